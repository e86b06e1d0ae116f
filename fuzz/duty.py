"""What a host owes, a second time: what it says by itself, to an answer, and when it is refused.

Like `law.py` it shares no function and no table with the kernel's own account of this, `respond`. Where it gives no
message, a host may choose its words.
"""

from typing import Final

from ..kernel import commands as c
from ..kernel.failures import FailureClass
from ..kernel.respond import (
    Answer,
    AskAgain,
    Called,
    CalledNothing,
    DidNotHappen,
    Failed,
    Finished,
    Happened,
    Pinned,
    Unknown,
)
from ..kernel.types import CallHandler, EndStatus, ErrorCause, Reconcile, Run, Send, State
from .law import OPEN_RECORDS

ENDS: Final[tuple[tuple[EndStatus, tuple[FailureClass, ...]], ...]] = (
    ("paused:approval", ("auth", "permission", "approval")),
    ("paused:transient", ("network", "rate_limit", "timeout")),
    ("failed:logic", ("script", "bad_result", "forbidden", "limit", "refused")),
    ("failed:internal", ("host", "connector")),
    ("paused:reconciliation", ("unknown",)),
)
CAUSES: Final[dict[FailureClass, ErrorCause]] = {"auth": "auth", "permission": "permission", "approval": "request"}
BLAMED: Final[tuple[tuple[FailureClass, tuple[str, ...]], ...]] = (
    ("script", ("event_unknown", "not_subscribed", "event_not_pending", "reserved_twice")),
    ("script", ("topic_unknown", "title_missing", "too_large")),
    ("network", ("send_by_passed", "nothing_asked")),
    ("permission", ("not_granted",)),
    ("approval", ("not_approved",)),
    ("host", ("cron_time", "bad_deadline")),
)
"""Refusals that end a run, and as what; all others are mistakes of the caller."""


def agree(said: tuple[c.Command, ...], owed: tuple[c.Command, ...]) -> bool:
    """Whether a host says what it owes."""
    return len(said) == len(owed) and all(map(alike, said, owed))


def alike(one: c.Command, owed: c.Command) -> bool:
    if isinstance(one, c.EndRun) and isinstance(owed, c.EndRun) and not owed.message:
        one = one._replace(message="")
    return type(one) is type(owed) and one == owed


def by_itself(state: State, now: int) -> tuple[c.Command, ...]:
    """What it says without anybody's answer."""
    run, record = state.run, state.mutation
    if run is None or run.status != "active":
        return ()
    match run.phase:
        case "pending":
            return (c.Begin(now, run.id),)
        case "prepared":
            row = next(row for row in state.handlers if row.declared.name == run.handler)
            calls = row.declared.has_mutate and run.reserved
            return (c.Mutating(now, run.id) if calls else c.Emitting(now, run.id),)
        case "mutated" if run.outcome == "failure":
            return (c.EndRun(now, run.id, "paused:transient"),)
        case "mutated":
            return (c.Emitting(now, run.id),)
    if record is not None and record.status == "pending":
        return (c.SendMutation(now, run.id),)
    return (doubt(now, run.id),) if record is not None and record.status in OPEN_RECORDS else ()


def to_answer(state: State, effect: CallHandler | Send | Reconcile, answer: Answer, now: int) -> tuple[c.Command, ...]:
    """What it says when it has heard this."""
    run = effect.run
    match answer:
        case Failed():
            no = (c.FailMutation(now, run, "call"),) if isinstance(effect, Send) else ()
            return (*no, end(now, run, answer))
        case Pinned():
            return (c.Prepared(now, run, *answer),)
        case Called():
            return (c.RecordMutation(now, run, *answer),)
        case CalledNothing():
            return (c.Mutated(now, run),)
        case Finished() if isinstance(effect, CallHandler) and effect.function == "producer":
            return (c.CommitProducer(now, run, *answer),)
        case Finished():
            return (c.CommitConsumer(now, run, answer.state, answer.publications),)
        case Unknown():
            return (c.LoseTrack(now, run, *answer),)
        case Happened(result):
            fits = len(result) <= state.policy.json_max_chars
            by = effect.by if isinstance(effect, Reconcile) else "call"
            return (c.ApplyMutation(now, run, by, result if fits else "null"),)
    assert isinstance(effect, Reconcile)
    return to_question(state, effect, answer, now)


def to_question(state: State, effect: Reconcile, answer: Answer, now: int) -> tuple[c.Command, ...]:
    """What it says to an answer that leaves the doubt, or ends it badly; its own run goes no further."""
    run, by, record = effect.run, effect.by, state.mutation
    stop = (doubt(now, run),) if by == "inline" else ()
    match answer:
        case DidNotHappen(voided):
            lands_until = record.may_land_until if record is not None else 0
            if voided or lands_until <= effect.asked_at:
                over = (c.EndRun(now, run, "paused:transient"),) if by == "inline" else ()
                return (c.FailMutation(now, run, by, voided, effect.asked_at), *over)
            early = (c.ReconcileRetry(now, run, by, early=True),) if now < lands_until else ()
            return (*early, *stop)
        case AskAgain():
            return (c.ReconcileRetry(now, run, by, False, *answer), *stop)
    return stop or (c.Exhaust(now, run, no_method=True),)


def to_refusal(state: State, command: c.Command, reason: str, now: int) -> tuple[c.Command, ...]:
    """What it says when the kernel refused a command: a run ends by its own fault only."""
    run, record = state.run, state.mutation
    failure = next((failure for failure, reasons in BLAMED if reason in reasons), None)
    if failure is None or run is None or not concerns(command, run):
        return ()
    tool = record.tool if failure == "permission" and record is not None else ""
    return (end(now, run.id, Failed(failure, "", tool)),)


def concerns(command: c.Command, run: Run) -> bool:
    return run.status == "active" and getattr(command, "run", "") == run.id


def end(now: int, run: str, failed: Failed) -> c.EndRun:
    status = next(status for status, failures in ENDS if failed.failure in failures)
    return c.EndRun(now, run, status, failed.message, CAUSES.get(failed.failure, ""), failed.tool)


def is_certain(failure: FailureClass, sent: bool, declared: bool) -> bool:
    """Whether a failure proves that the call did not happen (FAIL-002)."""
    return not sent or (declared and failure in ("auth", "rate_limit", "refused"))


def doubt(now: int, run: str) -> c.EndRun:
    return c.EndRun(now, run, "paused:reconciliation")
