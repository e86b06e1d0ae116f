"""Single-step cases: of all steps that were seen, the first one of each kind."""

from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

from ...kernel import commands as c
from ...kernel.codec import to_plain
from ...kernel.commands import Command
from ...kernel.ledger import digest
from ...kernel.policy import Policy
from ...kernel.step import step
from ...kernel.types import Accepted, Declaration, Key, Outcome, Publication, State, new_workflow
from ...spec import moves
from .rules import command_name, shown

Json = dict[str, Any]

MAIL: Final = Key("mail", "m1")
OUT: Final = Key("out", "o1")
FILE: Final = Declaration("file", "consumer", ("mail",), has_mutate=True)
NOTE: Final = Declaration("note", "consumer", ("out",))
CRON: Final = Declaration("daily", "producer", cron="0 9 * * *")
POLL: Final = Declaration("poll", "producer", interval_ms=60_000)
ONCE: Final = Declaration("once", "producer")
TOOL: Final = "sheets.append"


class Case(NamedTuple):
    before: State
    command: Command
    outcome: Outcome
    reachable: bool = True


def letter(key: Key, payload: str = "{}") -> Publication:
    return Publication(key, "Mail from alice", payload)


def deploy(
    now: int, *handlers: Declaration, topics: tuple[str, ...] = ("mail", "out"), version: str = "v1"
) -> c.Deploy:
    return c.Deploy(now, version, topics, handlers)


def scripts() -> Iterator[tuple[Policy, tuple[Command, ...]]]:
    """What the walk of the machines does not come to: chains, schedules, wake times, limits, malformed commands."""
    law = Policy()
    begin = (deploy(0, FILE, NOTE, CRON), c.Resume(0), c.Grant(0, TOOL), c.Publish(0, letter(MAIL)))
    first = (c.StartSession(1, "s1"), c.CreateRun(1, "r1", "s1", "file"), c.Begin(1, "r1"))
    pinned = (*begin, *first, c.Prepared(2, "r1", (MAIL,), '{"n":1}', "One mail", 5))
    recorded = (*pinned, c.Mutating(3, "r1"), c.RecordMutation(4, "r1", TOOL, '{"row":1}', True, 1_000))
    applied = (*recorded, c.SendMutation(5, "r1"), c.ApplyMutation(6, "r1", "call", '{"row":7}'))
    emitted = (*applied, c.Emitting(7, "r1"))
    failed = (*emitted, c.EndRun(8, "r1", "paused:transient", "network"))
    yield law, (*begin, c.Publish(1, letter(OUT)), c.Publish(2, letter(MAIL, "[1]")), c.SkipEvent(3, MAIL))
    yield law, (*begin, c.SkipEvent(3, MAIL), c.Publish(4, letter(MAIL, "[2]")), c.Publish(4, letter(Key("no", "x"))))
    yield law, (*begin, c.Publish(4, Publication(OUT, " ", "{}")), c.CreateRun(5, "r9", "s9", "file"))
    yield law, (*begin, *first, c.Prepared(2, "r1", (MAIL, MAIL)), c.Prepared(2, "r1", (OUT,)))
    yield law, (*begin, *first, c.Prepared(2, "r1", (Key("mail", "m9"),)), c.Prepared(2, "r1", (), wake_at=10**12))
    yield law, (*pinned, c.Mutating(3, "r1"), c.RecordMutation(4, "r1", TOOL, "{}", True, 0))
    yield law, (*emitted, c.CommitConsumer(8, "r1", '{"seen":1}', (letter(OUT), letter(MAIL))))
    yield law, (
        *emitted, c.CommitConsumer(8, "r1", None, (letter(OUT),)), c.CreateRun(9, "r2", "s1", "nobody"),
        c.CreateRun(9, "r2", "s1", "note"), c.Begin(9, "r2"), c.Prepared(9, "r2", (OUT,)), c.Mutating(9, "r2"),
        c.Emitting(9, "r2"), c.CommitConsumer(9, "r2", None, (letter(Key("out", "o2")),)), c.FinishSession(10, "s1"),
    )  # fmt: skip
    yield law, (
        *failed, c.StartSession(9, "s2"), c.CreateRetry(20_000, "r2", "s2", "r1"), c.StartSession(20_000, "s2"),
        c.CreateRetry(20_000, "r1", "s2", "r1"), c.CreateRetry(20_000, "r2", "s2", "r1"),
        c.EndRun(20_001, "r2", "failed:logic", "bad result"), deploy(20_002, NOTE), c.StartSession(20_003, "s3"),
        c.CreateRetry(20_003, "r3", "s3", "r2"), c.Abandon(20_004, "r2"),
    )  # fmt: skip
    yield law, (*failed, deploy(9, FILE, version="v2"), c.Abandon(10, "r1"))
    yield law, (
        *begin, c.StartSession(1, "s1"), c.CreateRun(1, "p1", "s1", "daily"), c.Begin(1, "p1"),
        c.CommitProducer(2, "p1"), c.CommitProducer(2, "p1", '"seen"', (letter(Key("mail", "m2")),), 86_400_000),
        c.RunNow(3, "daily"), c.RunNow(3, "note"), c.RunNow(3, "nobody"),
    )  # fmt: skip
    yield law, (
        deploy(0, ONCE, FILE), c.Resume(0), c.StartSession(1, "s1"), c.CreateRun(1, "p1", "s1", "once"),
        c.Begin(1, "p1"), c.CommitProducer(2, "p1", None, (), 5), c.CommitProducer(2, "p1"),
    )  # fmt: skip
    yield law, (
        deploy(0, POLL, FILE), c.Resume(0), c.StartSession(1, "s1"), c.CreateRun(1, "p1", "s1", "poll"),
        c.Begin(2, "p1"), c.CommitProducer(900, "p1"), c.RunNow(901, "poll"), deploy(902, POLL, FILE, version="v2"),
        deploy(903, POLL._replace(interval_ms=7), FILE, version="v3"),
    )  # fmt: skip
    yield law._replace(json_max_chars=5), (*begin, *first, c.Prepared(2, "r1", (MAIL,), '"large"'))
    yield law._replace(session_runs=1), (
        *begin, *first, c.Prepared(2, "r1", ()), c.Emitting(2, "r1"), c.CommitConsumer(2, "r1"),
        c.CreateRun(3, "r2", "s1", "file"),
    )  # fmt: skip
    yield law._replace(logic_failures=1), (
        *begin, *first, c.EndRun(2, "r1", "failed:logic", "a bug"), c.ClearError(3), deploy(4, FILE, version="v2"),
    )  # fmt: skip
    yield law, (
        *begin, c.Grant(0, TOOL, "ask"), *recorded[4:], c.SendMutation(5, "r1"),
        c.EndRun(6, "r1", "paused:approval", "may I", "request"), c.Retry(7), c.ClearError(7), c.Reconnect(7),
    )  # fmt: skip
    for bad in malformed():
        yield law, (bad,)


def limits() -> Iterator[tuple[str, Policy, tuple[Command, ...]]]:
    """Commands that lie on a limit, the last of each: a runtime that is off by one, or counts otherwise, shows here."""
    law = Policy()
    begin = (deploy(0, FILE, NOTE, CRON), c.Resume(0), c.Grant(0, TOOL, "ask"), c.Publish(0, letter(MAIL)))
    first = (c.StartSession(1, "s1"), c.CreateRun(1, "r1", "s1", "file"), c.Begin(1, "r1"))
    daily = (c.StartSession(1, "s1"), c.CreateRun(1, "p1", "s1", "daily"), c.Begin(1, "p1"))
    yield "demo", law, (*begin, *daily, c.CommitProducer(2, "p1", None, (), 1))
    yield "demo", law, (*begin, *daily, c.CommitProducer(2, "p1", None, (), 2))
    yield "demo", law._replace(wake_min_ms=50, wake_max_ms=10), (*begin, *first, c.Prepared(2, "r1", (), wake_at=22))
    committed = (*begin, *daily, c.CommitProducer(2, "p1", None, (), 9))
    yield "demo", law._replace(session_runs=1), (*committed, c.CreateRun(3, "p2", "s1", "daily"))
    yield "demo", law, (*committed, deploy(3, FILE, NOTE, CRON._replace(cron="0 10 * * *")))
    # What counts as white space, and as a character, differs from language to language.
    for title in ("\x1c", "\x85", "\u2003\u3000", "\u200b", "\ufeff"):
        yield "demo", law, (*begin, c.Publish(1, Publication(OUT, title, "{}")))
    for payload in ('"\U0001f600"', '"\U0001f600a"'):
        yield "demo", law._replace(json_max_chars=3), (*begin, c.Publish(1, letter(OUT, payload)))
    record, call = c.RecordMutation(3, "r1", TOOL, "{}", True, 1_000), digest(TOOL, "{}")
    yield "50%/a", law, (*begin, *first, c.Prepared(2, "r1", (MAIL,)), c.Mutating(3, "r1"), record)
    other = Key("mail", "m2")
    both = (*begin, c.Publish(0, letter(other)), *first, c.Prepared(2, "r1", (other, MAIL)))
    yield "demo", law, both
    asked = (*both, c.Mutating(3, "r1"), record, c.EndRun(4, "r1", "paused:approval", "may I", "request"))
    again = (
        c.Approve(5, call), c.StartSession(6, "s2"), c.CreateRun(6, "r2", "s2", "file"), c.Begin(6, "r2"),
        c.Prepared(7, "r2", (MAIL,)), c.Mutating(7, "r2"), record._replace(now=7, run="r2"),
        c.EndRun(8, "r2", "paused:approval", "may I", "request"), c.Approve(9, call),
    )  # fmt: skip
    yield "demo", law, (*asked, *again)
    applied = (c.Grant(3, TOOL), c.SendMutation(4, "r1"), c.ApplyMutation(5, "r1", "call", "1"))
    ended = (c.Prepared(2, "r1", (MAIL,)), c.Mutating(3, "r1"), record, *applied, c.EndRun(6, "r1", "crashed", "died"))
    later = (deploy(7, FILE, NOTE, version="v2"), c.StartSession(20_000, "s2"), c.CreateRetry(20_000, "r2", "s2", "r1"))
    yield "demo", law, (*begin, *first, *ended, *later)
    idle = (c.CreateRun(1, "r1", "s1", "note"), c.Begin(1, "r1"), c.Prepared(1, "r1", ()), c.Emitting(1, "r1"))
    slept = (*begin, first[0], *idle, c.CommitConsumer(2, "r1"))
    yield "demo", law, (*slept, c.Publish(3, letter(other)))
    wide = (deploy(0, FILE._replace(subscribes=("mail", "out"))), c.Resume(0), c.Publish(0, letter(OUT)), *first)
    yield "demo", law, (*wide, c.SkipEvent(2, OUT))
    failed = (*begin, *first, c.EndRun(2, "r1", "paused:transient", "network"))
    yield "demo", law, (*failed, deploy(3, ONCE._replace(name="file"), NOTE))
    yield from whole_or_not()


def whole_or_not() -> Iterator[tuple[str, Policy, tuple[Command, ...]]]:
    """Steps in which one thing is wrong, after others that are right: nothing of them may stay (STEP-002)."""
    law = Policy()
    small = law._replace(json_max_chars=4)
    begin = (deploy(0, FILE, NOTE, CRON), c.Resume(0), c.Grant(0, TOOL), c.Publish(0, letter(MAIL)))
    pinned = (
        *begin, c.StartSession(1, "s1"), c.CreateRun(1, "r1", "s1", "file"), c.Begin(1, "r1"),
        c.Prepared(2, "r1", (MAIL,)),
    )  # fmt: skip
    mutating = (*pinned, c.Mutating(3, "r1"))
    sent = (*mutating, c.RecordMutation(4, "r1", TOOL, "{}", False, 1_000), c.SendMutation(5, "r1"))
    emitted = (*sent, c.ApplyMutation(6, "r1", "call", "1"), c.Emitting(7, "r1"))
    daily = (*begin, c.StartSession(1, "s1"), c.CreateRun(1, "p1", "s1", "daily"), c.Begin(1, "p1"))
    for wrong in (letter(Key("no", "x")), Publication(OUT, "\t", "{}"), letter(OUT, '"much"')):
        both = (letter(Key("out", "o2")), wrong)
        yield "demo", small, (*emitted, c.CommitConsumer(8, "r1", "1", both))
        yield "demo", small, (*daily, c.CommitProducer(2, "p1", "1", both, 9))
    yield "demo", small, (*emitted, c.CommitConsumer(8, "r1", '"much"', (letter(OUT),)))
    yield "demo", small, (*daily, c.CommitProducer(2, "p1", '"much"', (letter(OUT),), 9))
    yield "demo", small, (*mutating, c.RecordMutation(4, "r1", TOOL, '{"n":1}', True, 1_000))
    yield "demo", small, (*sent, c.ApplyMutation(6, "r1", "call", '"much"'))
    yield "demo", small, (*sent, c.EndRun(6, "r1", "crashed", "died"), c.AssertApplied(7, "r1", '"much"'))
    # One id twice in one commit counts in its order (EVENT-010).
    yield "demo", law, (*emitted, c.CommitConsumer(8, "r1", None, (letter(OUT), letter(OUT, "[1]"))))


def malformed() -> Iterator[c.Deploy]:
    """Declarations that contradict themselves, each in its way."""
    yield deploy(0, FILE, topics=("mail", "mail"))
    yield deploy(0, FILE, FILE)
    yield deploy(0, FILE, NOTE._replace(subscribes=("mail",)))
    yield deploy(0, NOTE, topics=("mail",))
    yield deploy(0, NOTE._replace(subscribes=()))
    yield deploy(0, NOTE._replace(cron="0 9 * * *"))
    yield deploy(0, ONCE._replace(has_mutate=True))
    yield deploy(0, CRON._replace(interval_ms=1_000))


def in_depth() -> Iterator[Case]:
    """Guards that no commands lead to: a commit whose record is open, a retry in a session that is spent."""
    for policy, commands in scripts():
        for case in played("demo", policy, commands):
            state, command = case.before, case.command
            record, run, session = state.mutation, state.run, state.session
            if record is not None and record.status == "in_flight" and run is not None:
                before = state._replace(run=run._replace(phase="emitting"))
                commit = c.CommitConsumer(command.now, run.id)
                yield Case(before, commit, step(before, commit), reachable=False)
            if isinstance(command, c.CreateRetry) and isinstance(case.outcome, Accepted) and session is not None:
                before = state._replace(session=session._replace(runs=policy.session_runs))
                yield Case(before, command, step(before, command), reachable=False)


def scripted() -> Iterator[Case]:
    for policy, commands in scripts():
        yield from played("demo", policy, commands)


def played(workflow: str, policy: Policy, commands: tuple[Command, ...]) -> Iterator[Case]:
    state = new_workflow(workflow, policy)
    for command in commands:
        outcome = step(state, command)
        yield Case(state, command, outcome)
        state = outcome.state if isinstance(outcome, Accepted) else state


@cache
def cases() -> list[Case]:
    """The first step of each kind: by its reason, or by the edges it takes, the rules and the fields it changes."""
    chosen: dict[object, Case] = {}
    walked = (Case(*seen) for seen in moves.walk())
    for case in chain(scripted(), walked, in_depth()):
        chosen.setdefault(kind(case), case)
    # A limit is of the same kind as what lies beside it, so these are kept in any case.
    chosen.update({("limit", n): [*played(*one)][-1] for n, one in enumerate(limits())})
    return sorted(chosen.values(), key=lambda case: command_name(case.command))


def kind(case: Case) -> object:
    outcome, name = case.outcome, command_name(case.command)
    if not isinstance(outcome, Accepted):
        detail = outcome.detail if outcome.reason == "bad_declaration" else ""
        return name, outcome.reason, detail, *circumstances(case.before, case.command)
    taken = frozenset(moves.moves(case.before, outcome))
    seen = frozenset(shown(*case[:3]))
    came = changed(case.before, outcome.state)
    return name, taken, seen, came, len(outcome.effects), words(case.command), history(case.before, case.command)


def history(state: State, command: Command) -> tuple[object, ...]:
    """What an accepted command may wrongly change, or count from."""
    counts = (any(h.transient_failures for h in state.handlers), any(h.logic_failures for h in state.handlers))
    return (*counts, state.run is not None and command.now > state.run.created_at, state.backoff_until > command.now)


def circumstances(state: State, command: Command) -> tuple[object, ...]:
    """What may tell one refusal from another: who is spoken of, who speaks, and when."""
    run, record = state.run, state.mutation
    return (
        run and (run.status == "active", run.phase),
        record and (record.status, command.now >= record.may_land_until, command.now > record.send_by),
        state.error and state.error.kind,
        words(command),
    )


def words(command: Command) -> tuple[object, ...]:
    asked_at: int | None = getattr(command, "asked_at", None)
    said = [getattr(command, field, None) for field in ("by", "voided", "early", "no_method", "mode")]
    return (*said, asked_at is not None and asked_at < command.now)


def changed(before: State, after: State) -> tuple[str, ...]:
    return tuple(name for name, was, now in zip(State._fields, before, after, strict=True) if was != now)


def documents() -> list[Json]:
    """The cases as documents, numbered within their command."""
    counts: dict[str, int] = {}
    made = []
    for case in cases():
        name = command_name(case.command)
        counts[name] = counts.get(name, 0) + 1
        made.append({"id": f"{name}-{counts[name]:03}", **document(case)})
    return made


def document(case: Case) -> Json:
    outcome = case.outcome
    common = {
        "reachable": case.reachable,
        "rules": list(shown(*case[:3])),
        "before": to_plain(case.before),
        "command": to_plain(case.command),
    }
    if not isinstance(outcome, Accepted):
        return {**common, "moves": [], "outcome": "rejected", "reason": outcome.reason}
    taken = sorted(moves.moves(case.before, outcome))
    return {
        **common,
        "moves": [f"{machine}: {source} → {target}" for machine, source, target in taken],
        "outcome": "accepted",
        "after": to_plain(outcome.state),
        "effects": to_plain(outcome.effects),
        "retired": to_plain(outcome.retired),
    }
