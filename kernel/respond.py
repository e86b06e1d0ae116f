"""What a host does with an answer: the pure half of its loop.

A host performs an effect, gets an answer, and asks `respond` for the commands to submit, in order, each one a
transition of its own. When it has neither effect nor answer in hand it asks `advance`. What is refused goes
to `after_rejection`. What must be durable, and before what, say `may_wait` and `must_be_durable`. A crash drops what
is in hand; `recover` needs none of it.
"""

from typing import Final, NamedTuple

from . import boundary, failures, gate
from .commands import (
    ApplyMutation,
    Begin,
    Command,
    CommitConsumer,
    CommitProducer,
    CreateRetry,
    CreateRun,
    Emitting,
    EndRun,
    Exhaust,
    FailMutation,
    FinishSession,
    LoseTrack,
    Mutated,
    Mutating,
    Prepared,
    ReconcileRetry,
    RecordMutation,
    SendMutation,
    StartSession,
)
from .failures import FailureClass
from .reasons import REASONS
from .runs import needs_mutate
from .types import CallHandler, Effect, Key, Publication, Reconcile, Rejected, Repair, Send, State


class Pinned(NamedTuple):
    """Prepare returned."""

    reservations: tuple[Key, ...] = ()
    data: str = "null"
    title: str = ""
    wake_at: int | None = None


class Called(NamedTuple):
    """Mutate called its tool, which ends it."""

    tool: str
    params: str
    reconcilable: bool
    deadline_ms: int | None = None


class CalledNothing(NamedTuple):
    """Mutate returned without calling a tool."""


class Finished(NamedTuple):
    """Next or a producer returned."""

    state: str | None = None
    publications: tuple[Publication, ...] = ()
    due_at: int | None = None


class Failed(NamedTuple):
    """A handler failed, or a call failed and it is certain that nothing happened outside."""

    failure: FailureClass
    message: str = ""
    tool: str = ""


class Happened(NamedTuple):
    """The target says that the change was made."""

    result: str = "null"


class Unknown(NamedTuple):
    """The call was sent and gave no answer that settles it."""

    message: str = ""


class DidNotHappen(NamedTuple):
    """Reconcile did not find the change."""

    voided: bool = False


class AskAgain(NamedTuple):
    """Reconcile could not tell."""

    message: str = ""


class NoMethod(NamedTuple):
    """The tool can not be reconciled."""


Answer = Pinned | Called | CalledNothing | Finished | Failed | Happened | Unknown | DidNotHappen | AskAgain | NoMethod

UNCERTAIN = "nobody knows whether the mutation happened"


MAY_WAIT: Final[frozenset[type[Command]]] = frozenset(
    {
        StartSession,
        FinishSession,
        CreateRun,
        CreateRetry,
        Begin,
        Prepared,
        Mutating,
        RecordMutation,
        Mutated,
        Emitting,
    }
)
"""Steps that are asked for again when they are forgotten: they start a run or move it on, and nothing has left."""


def may_wait(command: Command) -> bool:
    """Whether an accepted command may share the commit of a later one (HOST-011).

    What was said by somebody outside, what sends a call, and what ends a run may not.
    """
    return type(command) in MAY_WAIT


def must_be_durable(effect: Effect) -> bool:
    """Whether all that led to an effect is committed before it is performed (HOST-001).

    A handler only reads: when it is called again after a crash, nothing has happened twice. And what `prepare` reads
    is durable, since of the steps that may wait only those of its own run touch events, and they come after it.
    """
    return not isinstance(effect, CallHandler)


def advance(state: State, now: int) -> Command | None:
    """The active run's next command when the host has nothing in hand; None when it owes an answer (HOST-010)."""
    run = gate.active(state)
    if run is None:
        return None
    if run.phase == "pending":
        return Begin(now, run.id)
    if run.phase == "prepared":
        return Mutating(now, run.id) if needs_mutate(state, run) else Emitting(now, run.id)
    if run.phase == "mutated":
        failed = run.outcome == "failure"
        return EndRun(now, run.id, "paused:transient", "the mutation failed") if failed else Emitting(now, run.id)
    record = state.mutation
    if record is not None and record.status == "pending":
        return SendMutation(now, run.id)
    if boundary.unresolved(record):
        return EndRun(now, run.id, "paused:reconciliation", UNCERTAIN)
    return None


def respond(
    state: State, effect: CallHandler | Send | Reconcile | Repair, answer: Answer, now: int
) -> tuple[Command, ...]:
    """The commands that an answer asks for, in order (HOST-010).

    An answer that does not fit its effect is a bug of the host, and raises.
    """
    match effect, answer:
        case CallHandler(run), Failed():
            return (ended(now, run, answer),)
        case CallHandler(run, _, _, "prepare"), Pinned():
            return (Prepared(now, run, *answer),)
        case CallHandler(run, _, _, "mutate"), Called():
            return (RecordMutation(now, run, *answer),)
        case CallHandler(run, _, _, "mutate"), CalledNothing():
            return (Mutated(now, run),)
        case CallHandler(run, _, _, "next"), Finished():
            return (CommitConsumer(now, run, answer.state, answer.publications),)
        case CallHandler(run, _, _, "producer"), Finished():
            return (CommitProducer(now, run, *answer),)
        case Send(run), Happened():
            return (ApplyMutation(now, run, "call", fitting(state, answer.result)),)
        case Send(run), Failed():
            return (FailMutation(now, run, "call"), ended(now, run, answer))
        case Send(run), Unknown(message):
            return (LoseTrack(now, run, message),)
        case Reconcile(run), _:
            return reconciled(state, effect, answer, now)
    raise TypeError(f"{type(answer).__name__} does not answer {type(effect).__name__}")


def fitting(state: State, result: str) -> str:
    """A result that is too large is left out: that the change was made must be told in any case (MUT-010)."""
    return result if len(result) <= state.policy.json_max_chars else "null"


def ended(now: int, run: str, failed: Failed) -> EndRun:
    status, cause, _ = failures.classify(failed.failure, sent=False)
    return EndRun(now, run, status, failed.message, cause, failed.tool)


def reconciled(state: State, effect: Reconcile, answer: Answer, now: int) -> tuple[Command, ...]:
    """What a reconcile's answer means; after the inline one the run stops, unless it was settled (MUT-011)."""
    run, by = effect.run, effect.by
    record = state.mutation
    may_land_until = record.may_land_until if record is not None else 0
    stop = (EndRun(now, run, "paused:reconciliation", UNCERTAIN),) if by == "inline" else ()
    match answer:
        case Happened(result):
            return (ApplyMutation(now, run, by, fitting(state, result)),)
        case DidNotHappen(voided) if voided or effect.asked_at >= may_land_until:
            failed = FailMutation(now, run, by, voided, effect.asked_at)
            end = (EndRun(now, run, "paused:transient", "the mutation did not happen"),) if by == "inline" else ()
            return (failed, *end)
        case DidNotHappen() if now < may_land_until:
            return (ReconcileRetry(now, run, by, early=True), *stop)
        case DidNotHappen():  # Asked too early and told too late: worth nothing, and it costs no attempt.
            return stop
        case AskAgain(message):
            return (ReconcileRetry(now, run, by, message=message), *stop)
        case NoMethod():
            return stop or (Exhaust(now, run, no_method=True),)
    raise TypeError(f"{type(answer).__name__} does not answer a reconcile")


def after_rejection(state: State, command: Command, refused: Rejected, now: int) -> Command | None:
    """How the run ends when its command was refused; None when the caller was mistaken, and reloads (HOST-003).

    A person's click, or a report about a run that is over, never ends the active run.
    """
    fault = REASONS[refused.reason].fault
    run = gate.active(state)
    if run is None or fault == "caller" or getattr(command, "run", "") != run.id:
        return None
    failure: FailureClass = "network" if fault == "transient" else fault
    tool = state.mutation.tool if fault == "permission" and state.mutation is not None else ""
    return ended(now, run.id, Failed(failure, f"{refused.reason}: {refused.detail}", tool))
