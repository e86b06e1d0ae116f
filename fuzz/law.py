"""The law a second time, as a clerk would apply it by hand: what a command must lead to, or why it must be refused.

The machines, and the checker with `--law`, compare every answer of the kernel with this one. It shares no function and
no table with the kernel, changes its rows in place where the kernel makes new ones, and tells all objections to a
command where the kernel tells the first. So a slip in one of the two shows, wherever a walk or a search comes.
"""

from collections.abc import Callable, Generator, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from ..kernel import commands as c
from ..kernel import recover as kernel_recovery
from ..kernel import schedule
from ..kernel.capabilities import Function
from ..kernel.schedule import Idle, Wait
from ..kernel.types import (
    CallHandler,
    Declaration,
    Effect,
    EndStatus,
    Error,
    ErrorCause,
    Event,
    Handler,
    HandlerKind,
    Key,
    Maintenance,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Outcome,
    Permission,
    Publication,
    Reconcile,
    Rejected,
    Repair,
    Request,
    ResolvedBy,
    Retired,
    Run,
    Send,
    Session,
    SessionStatus,
    State,
)

Law = Generator[str, None, None]
"""Objections to a command, then `GO`, then what it does."""

GO: Final = ""
OPEN_RECORDS: Final = ("in_flight", "needs_reconcile", "indeterminate")


class Expected(NamedTuple):
    """What must come of a command: one of these reasons or, without any, exactly this."""

    reasons: frozenset[str]
    state: State
    effects: tuple[Effect, ...] = ()
    retired: Retired = Retired()


def expected(state: State, command: c.Command) -> Expected:
    """What the law says to a command."""
    book = Book(state)
    reasons: list[str] = []
    for said in LAWS[type(command)](book, command):
        if said:
            reasons.append(said)
        elif reasons:
            break
    if reasons:
        return Expected(frozenset(reasons), state)
    return Expected(frozenset(), book.state(), tuple(book.effects), Retired(*book.retired))


def departure(before: State, command: c.Command, outcome: Outcome) -> tuple[str, ...]:
    """How the kernel's answer departs from what the law says: in a sentence, and in rows. Nothing when it does not."""
    name = c.NAMES[type(command)]
    meant = expected(before, command)
    why = ", ".join(sorted(meant.reasons))
    if isinstance(outcome, Rejected):
        if not meant.reasons:
            return (f"{name} is refused ({outcome.reason}), and the law allows it",)
        if outcome.reason not in meant.reasons:
            return (f"{name} is refused for {outcome.reason}, where the law says {why}",)
        return ()
    if meant.reasons:
        return (f"{name} is accepted, and the law refuses it: {why}",)
    if rows := differences(outcome.state, meant.state):
        return (f"{name} leads elsewhere than the law says", *rows)
    if outcome.effects != meant.effects:
        return (f"{name} has other effects", f"{outcome.effects}, by the law {meant.effects}")
    if outcome.retired != meant.retired:
        return (f"{name} leaves other history", f"{outcome.retired}, by the law {meant.retired}")
    return ()


def differences(actual: State, meant: State) -> tuple[str, ...]:
    """Where two states differ, field by field."""
    if actual == meant:
        return ()
    pairs = zip(State._fields, actual, meant, strict=True)
    return tuple(
        f"{name}: {is_there!r:.300}, should be {should_be!r:.300}"
        for name, is_there, should_be in pairs
        if is_there != should_be
    )


def plan_departures(state: State, now: int, fresh: str) -> tuple[str, ...]:
    """Where the kernel wants something else to happen next than the law does: recovery, background, scheduler."""
    nobodys = state._replace(run=None)  # No state has orphans; without its run, all that it holds are some.
    asked: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
        "the look for orphans": (
            kernel_recovery.orphans(nobodys),
            tuple(e for e in state.events if e.status == "reserved"),
        ),
        "recovery": (kernel_recovery.recover(state, now), recovery(state, now)),
        "the background": ((schedule.upkeep(state, now),), (owed(state, now),)),
        "the scheduler": ((schedule.schedule(state, now, fresh),), (planned(state, now, fresh),)),
    }
    return tuple(
        f"{who} asks for {said}, the law for {meant}"
        for who, (said, meant) in asked.items()
        if said != meant or [*map(type, said)] != [*map(type, meant)]
    )


class Book:
    """The rows of one workflow, which change in place."""

    def __init__(self, state: State) -> None:
        self.was = state
        self.policy = state.policy
        self.status = state.status
        self.version = state.version
        self.topics = state.topics
        self.error = state.error
        self.maintenance = state.maintenance
        self.backoff_until = state.backoff_until
        self.grants = {grant.tool: grant.mode for grant in state.grants}
        self.approvals = list(state.approvals)
        self.session = state.session
        self.run = state.run
        self.record = state.mutation
        self.handlers = {row.declared.name: row for row in state.handlers}
        self.events = {event.key: event for event in state.events}
        self.next_seq = state.next_seq
        self.effects: list[Effect] = []
        self.retired: list[Any] = [None, None, None]

    def state(self) -> State:
        return self.was._replace(
            status=self.status,
            version=self.version,
            topics=self.topics,
            error=self.error,
            maintenance=self.maintenance,
            backoff_until=self.backoff_until,
            grants=tuple(Permission(tool, mode) for tool, mode in self.grants.items()),
            approvals=tuple(self.approvals),
            session=self.session,
            run=self.run,
            mutation=self.record,
            handlers=tuple(self.handlers.values()),
            events=tuple(self.events.values()),
            next_seq=self.next_seq,
        )

    # -- what is so

    @property
    def busy(self) -> bool:
        return self.run is not None and self.run.status == "active"

    @property
    def uncertain(self) -> bool:
        return self.record is not None and self.record.status in OPEN_RECORDS

    @property
    def after(self) -> bool:
        return self.run is not None and not self.uncertain and self.run.outcome in ("success", "skipped")

    def row_of(self, run: Run) -> Handler | None:
        """A run's handler, unless it was removed or became one of the other kind."""
        row = self.handlers.get(run.handler)
        return row if row is not None and row.declared.kind == run.kind else None

    def held(self) -> list[Event]:
        run = self.run.id if self.run is not None else None
        return [event for event in self.events.values() if event.status == "reserved" and event.owner == run]

    # -- what is done

    def change_run(self, **fields: Any) -> None:
        assert self.run is not None
        self.run = self.run._replace(**fields)

    def change_record(self, **fields: Any) -> None:
        assert self.record is not None
        self.record = self.record._replace(**fields)

    def change_row(self, name: str, **fields: Any) -> None:
        self.handlers[name] = self.handlers[name]._replace(**fields)

    def move_held(self, **fields: Any) -> None:
        for event in self.held():
            self.events[event.key] = event._replace(**fields)

    def leave(self) -> None:
        """The run and its record go into history."""
        self.retired[0], self.retired[1] = self.run, self.record
        self.run = self.record = None

    def close_session(self, status: SessionStatus) -> None:
        assert self.session is not None
        self.retired[2] = self.session._replace(status=status)
        self.session = None

    def call(self, function: Function) -> None:
        assert self.run is not None
        self.effects.append(CallHandler(self.run.id, self.run.handler, self.run.version, function))

    def forget_approvals(self) -> None:
        """What was approved for events that are done could never be used."""
        done = {event.key for event in self.events.values() if event.status in ("consumed", "skipped")}
        self.approvals = [a for a in self.approvals if not done & {*a.events}]

    def wake(self, topics: set[str]) -> None:
        for name, row in self.handlers.items():
            if topics & {*row.declared.subscribes}:
                self.handlers[name] = row._replace(dirty=True)

    def publish(self, publications: tuple[Publication, ...], by: str, causes: tuple[Key, ...]) -> None:
        for key, title, payload in publications:
            known = self.events.get(key)
            if known is None:
                self.events[key] = Event(key, self.next_seq, "pending", "", title, payload, by, causes)
                self.next_seq += 1
            elif known.status == "pending":
                self.events[key] = known._replace(title=title, payload=payload)
            if self.events[key].status == "pending":
                self.wake({key.topic})

    def charge_transient(self, run: Run, now: int) -> None:
        row = self.row_of(run)
        if row is None:
            return
        count = row.transient_failures + 1
        self.change_row(run.handler, transient_failures=count)
        if count <= self.policy.transient_retries:
            wait = doubled(self.policy.backoff_base_ms, count, self.policy.backoff_max_ms)
            self.backoff_until = now + wait
        else:
            self.block(run, "transient")

    def charge_logic(self, run: Run) -> None:
        count = self.handlers[run.handler].logic_failures + 1
        self.change_row(run.handler, logic_failures=count)
        self.maintenance = Maintenance(run.id, run.handler, run.message)
        if count >= self.policy.logic_failures:
            self.block(run, "logic")

    def block(self, run: Run, cause: ErrorCause) -> None:
        self.error = self.error or Error("blocked", cause, run.id, run.message, "", None)

    def settle(self, outcome: MutationOutcome, by: ResolvedBy, result: str = "") -> None:
        """The outcome is known, and the doubt about this run is over."""
        assert self.run is not None
        if self.error is not None and (self.error.kind, self.error.run) == ("uncertain", self.run.id):
            self.error = None
        status: MutationStatus = "applied" if outcome == "success" else "failed"
        self.change_record(status=status, resolved_by=by)
        self.change_run(phase="mutated", outcome=outcome, result=result)

    def not_happened(self, by: ResolvedBy, now: int) -> None:
        """The inputs are free; of a run that is over nothing is left but a count."""
        self.settle("failure", by)
        self.move_held(status="pending", owner="")
        if self.run is None or self.busy:
            return
        run = self.run
        self.leave()
        self.wake({key.topic for key in run.reserved})
        self.charge_transient(run, now)

    def lose(self, now: int) -> None:
        """A call in the air goes to reconcile or, where there is none, to a person."""
        if self.record is not None and self.record.status == "in_flight":
            status = "needs_reconcile" if self.record.reconcilable else "indeterminate"
            self.change_record(status=status, next_attempt_at=now)


def doubled(base: int, times: int, most: int) -> int:
    """
    >>> doubled(10, 1, 600), doubled(10, 3, 600), doubled(10, 400, 600)
    (10, 40, 600)
    """
    return min(most, base * 2 ** min(times - 1, 64)) if base else 0


# --- objections that many commands share ---------------------------------------------------------------


def gate(book: Book, now: int) -> Law:
    if book.busy:
        yield "run_active"
    if book.status != "active":
        yield "workflow_not_active"
    if book.uncertain:
        yield "mutation_unresolved"
    if book.error is not None:
        yield "error_stands"
    if book.maintenance is not None:
        yield "in_maintenance"
    if now < book.backoff_until:
        yield "backing_off"


def in_session(book: Book, session: str) -> Law:
    if book.session is None or book.session.id != session:
        yield "session_unknown"
    elif book.session.runs >= book.policy.session_runs:
        yield "session_spent"


def alive(book: Book, run: str) -> Generator[str, None, bool]:
    known = book.run is not None and book.run.id == run
    if not known:
        yield "run_unknown"
    return known


def at_work(
    book: Book, run: str, *phases: str, kind: HandlerKind | None = "consumer"
) -> Generator[str, None, Run | None]:
    """The active run of this name, of this kind, in one of these phases."""
    live = book.run
    if live is None or live.id != run:
        yield "run_unknown"
        return None
    if live.status != "active":
        yield "run_not_active"
        return None
    if kind is not None and live.kind != kind:
        yield "wrong_kind"
    if phases and live.phase not in phases:
        yield "phase"
    return live


def too_large(book: Book, *texts: str | None) -> Law:
    if any(text is not None and len(text) > book.policy.json_max_chars for text in texts):
        yield "too_large"


def publishable(book: Book, publications: tuple[Publication, ...]) -> Law:
    for key, title, payload in publications:
        if key.topic not in book.topics:
            yield "topic_unknown"
        if not key.id or not title.strip():
            yield "title_missing"
        yield from too_large(book, payload)


def record_is(book: Book, status: str) -> Law:
    if book.record is None:
        yield "record_missing"
    elif book.record.status != status:
        yield "mutation_edge"


def speaks(book: Book, by: str) -> Law:
    """The call and the inline reconcile speak of a run that is active, all others of one that is over."""
    if book.busy != (by in ("call", "inline")):
        yield "author"


# --- scheduler -----------------------------------------------------------------------------------------


def start_session(book: Book, a: c.StartSession) -> Law:
    yield from gate(book, a.now)
    if book.session is not None:
        yield "session_open"
    if not a.session:
        yield "id_empty"
    yield GO
    book.session = Session(a.session, "open", 0, 0)


def finish_session(book: Book, a: c.FinishSession) -> Law:
    if book.session is None or book.session.id != a.session:
        yield "session_unknown"
    if book.busy:
        yield "run_active"
    yield GO
    book.close_session("completed" if book.session is not None and book.session.commits > 0 else "failed")


def begin_in_session(book: Book, run: Run) -> None:
    assert book.session is not None
    book.run = run
    book.session = book.session._replace(runs=book.session.runs + 1)
    book.change_row(run.handler, dirty=False)


def create_run(book: Book, a: c.CreateRun) -> Law:
    yield from gate(book, a.now)
    yield from in_session(book, a.session)
    if book.run is not None and not book.busy:
        yield "retry_pending"
    if not a.run:
        yield "id_empty"
    row = book.handlers.get(a.handler)
    if row is None:
        yield "handler_unknown"
        return
    yield GO
    run = Run(
        id=a.run, handler=a.handler, kind=row.declared.kind, session=a.session, version=book.version, status="active",
        phase="pending", outcome="", retry_of="", created_at=a.now, reserved=(), causes=(), data="null", title="",
        result="", message="", abandoned=False,
    )  # fmt: skip
    begin_in_session(book, run)


def create_retry(book: Book, a: c.CreateRetry) -> Law:
    yield from gate(book, a.now)
    yield from in_session(book, a.session)
    failed = book.run
    if failed is None or book.busy or failed.id != a.retry_of:
        yield "not_pending_retry"
    if not book.after:
        yield "not_after"
    if not a.run:
        yield "id_empty"
    if failed is None:
        return
    if a.run == failed.id:
        yield "id_in_use"
    if book.row_of(failed) is None:
        yield "handler_removed"
    yield GO
    inherited = failed._replace(
        id=a.run, session=a.session, version=book.version, status="active", phase="emitting", retry_of=failed.id,
        created_at=a.now, message="",
    )  # fmt: skip
    book.move_held(owner=a.run)
    book.leave()
    begin_in_session(book, inherited)
    book.call("next")


def run_now(book: Book, a: c.RunNow) -> Law:
    yield from gate(book, a.now)
    row = book.handlers.get(a.handler)
    if row is None:
        yield "handler_unknown"
        return
    yield GO
    book.change_row(a.handler, **({"dirty": True} if row.declared.kind == "consumer" else {"due_at": a.now}))


# --- progress ------------------------------------------------------------------------------------------


def begin(book: Book, a: c.Begin) -> Law:
    run = yield from at_work(book, a.run, "pending", kind=None)
    if run is None:
        return
    yield GO
    book.change_run(phase="preparing" if run.kind == "consumer" else "executing")
    book.call("prepare" if run.kind == "consumer" else "producer")


def prepared(book: Book, a: c.Prepared) -> Law:
    run = yield from at_work(book, a.run, "preparing")
    yield from too_large(book, a.data)
    if run is None:
        return
    for key in a.reservations:
        event = book.events.get(key)
        if key.topic not in book.handlers[run.handler].declared.subscribes:
            yield "not_subscribed"
        if event is None:
            yield "event_unknown"
        elif event.status != "pending":
            yield "event_not_pending"
    if len({*a.reservations}) < len(a.reservations):
        yield "reserved_twice"
    yield GO
    roots: list[Key] = []
    for key, event in list(book.events.items()):
        if key in a.reservations:
            book.events[key] = event._replace(status="reserved", owner=run.id)
            roots += [root for root in event.causes or (key,) if root not in roots]
    book.change_run(phase="prepared", reserved=a.reservations, causes=tuple(roots), data=a.data, title=a.title)
    wake_at = 0
    if a.wake_at is not None:
        wake_at = min(max(a.wake_at, a.now + book.policy.wake_min_ms), a.now + book.policy.wake_max_ms)
        wake_at = max(wake_at, a.now + book.policy.wake_min_ms)
    book.change_row(run.handler, wake_at=wake_at)


def mutating(book: Book, a: c.Mutating) -> Law:
    run = yield from at_work(book, a.run, "prepared")
    if run is None:
        return
    if not run.reserved:
        yield "nothing_reserved"
    if not book.handlers[run.handler].declared.has_mutate:
        yield "no_mutate"
    yield GO
    book.change_run(phase="mutating")
    book.call("mutate")


def mutated(book: Book, a: c.Mutated) -> Law:
    yield from at_work(book, a.run, "mutating")
    if book.record is not None:
        yield "record_exists"
    yield GO
    book.change_run(phase="mutated")


def emitting(book: Book, a: c.Emitting) -> Law:
    run = yield from at_work(book, a.run, "prepared", "mutated")
    if run is None:
        return
    if run.phase == "prepared" and run.reserved and book.handlers[run.handler].declared.has_mutate:
        yield "mutate_required"
    if run.outcome == "failure":
        yield "mutation_failed"
    yield GO
    book.change_run(phase="emitting")
    book.call("next")


def commit_consumer(book: Book, a: c.CommitConsumer) -> Law:
    run = yield from at_work(book, a.run, "emitting")
    if book.record is not None and book.record.status != "applied":
        yield "record_open"
    yield from publishable(book, a.publications)
    yield from too_large(book, a.state)
    if run is None:
        return
    yield GO
    book.move_held(status="consumed")
    book.forget_approvals()
    book.publish(a.publications, run.id, run.causes)
    if run.reserved:
        book.change_row(run.handler, dirty=True, transient_failures=0, logic_failures=0)
    commit(book, run, a.state)


def commit_producer(book: Book, a: c.CommitProducer) -> Law:
    run = yield from at_work(book, a.run, "executing", kind="producer")
    yield from publishable(book, a.publications)
    yield from too_large(book, a.state)
    if run is None:
        return
    declared = book.handlers[run.handler].declared
    if bool(declared.cron) != (a.due_at is not None) or (a.due_at is not None and a.due_at <= run.created_at):
        yield "cron_time"
    yield GO
    book.publish(a.publications, run.id, ())
    by_interval = run.created_at + declared.interval_ms if declared.interval_ms else -1
    due_at = by_interval if a.due_at is None else a.due_at
    book.change_row(run.handler, due_at=due_at, transient_failures=0, logic_failures=0)
    commit(book, run, a.state)


def commit(book: Book, run: Run, returned: str | None) -> None:
    assert book.session is not None
    if returned is not None:
        book.change_row(run.handler, state=returned)
    book.change_run(phase="committed", status="committed")
    book.leave()
    book.session = book.session._replace(commits=book.session.commits + 1)


# --- the end of a run ----------------------------------------------------------------------------------


def end_run(book: Book, a: c.EndRun) -> Law:
    run = yield from at_work(book, a.run, kind=None)
    if a.cause not in (("auth", "permission", "request") if a.status == "paused:approval" else ("",)):
        yield "cause_mismatch"
    if run is None:
        return
    if not book.uncertain:
        yield from unfounded(book, run, a)
    yield GO
    status: EndStatus = "paused:reconciliation" if book.uncertain else a.status
    inline = book.record is not None and (book.record.status, book.record.resolved_by) == ("failed", "inline")
    raised = error_of(book, run, a)
    over = run._replace(status=status, message=a.message)
    book.run = over
    if book.row_of(run) is not None and run.kind == "consumer":
        book.change_row(run.handler, dirty=True)
    book.close_session("failed")
    book.error = raised
    if book.uncertain:
        book.lose(a.now)
        return
    if not book.after:
        book.move_held(status="pending", owner="")
        if book.record is not None and book.record.status == "pending":
            book.change_record(status="failed", resolved_by="never_sent")
        book.leave()
    if status == "failed:logic":
        book.charge_logic(over)
    if inline or status in ("paused:transient", "crashed"):
        book.charge_transient(over, a.now)
    book.effects += wanted_repair(book)


def unfounded(book: Book, run: Run, a: c.EndRun) -> Law:
    if a.status == "paused:reconciliation":
        yield "not_uncertain"
    if a.status != "paused:approval":
        return
    if a.cause == "permission" and (not a.tool or a.tool in book.grants):
        yield "nothing_asked"
    record = book.record
    if a.cause == "request" and (
        record is None
        or record.status != "pending"
        or book.grants.get(record.tool) != "ask"
        or Request(record.tool, record.digest, run.reserved) in book.approvals
    ):
        yield "nothing_asked"


def error_of(book: Book, run: Run, a: c.EndRun) -> Error | None:
    if book.uncertain:
        return Error("uncertain", "", run.id, a.message, "", None)
    if a.status == "failed:internal":
        return Error("internal", "", run.id, a.message, "", None)
    if a.status != "paused:approval":
        return None
    if a.cause == "request" and book.record is not None:
        asked = Request(book.record.tool, book.record.digest, run.reserved)
        return Error("approval", "request", run.id, a.message, "", asked)
    return Error("approval", a.cause, run.id, a.message, a.tool, None)


def wanted_repair(book: Book) -> Iterator[Repair]:
    work = book.maintenance
    if work is not None and work.run and book.error is None:
        yield Repair(work.run, work.handler, work.message)


# --- the mutation --------------------------------------------------------------------------------------


def record_mutation(book: Book, a: c.RecordMutation) -> Law:
    run = yield from at_work(book, a.run, "mutating")
    if book.record is not None:
        yield "record_exists"
    deadline = book.policy.call_deadline_ms if a.deadline_ms is None else a.deadline_ms
    if deadline <= 0:
        yield "bad_deadline"
    yield from too_large(book, a.params)
    if run is None:
        return
    yield GO
    send_by = a.now + book.policy.send_within_ms
    workflow = book.was.workflow.replace("%", "%25").replace("/", "%2F")
    book.record = Mutation(
        run=run.id, status="pending", tool=a.tool, params=a.params,
        digest=sha256(f"{a.tool}\n{a.params}".encode("utf-8", "surrogatepass")).hexdigest(),
        key=f"{workflow}/{run.id}", reconcilable=a.reconcilable, send_by=send_by,
        may_land_until=send_by + deadline + book.policy.clock_skew_ms, attempts=0, next_attempt_at=0, resolved_by="",
    )  # fmt: skip


def send_mutation(book: Book, a: c.SendMutation) -> Law:
    run = yield from at_work(book, a.run, "mutating")
    yield from record_is(book, "pending")
    record = book.record
    if run is None or record is None:
        return
    if a.now > record.send_by:
        yield "send_by_passed"
    call = Request(record.tool, record.digest, run.reserved)
    mode = book.grants.get(record.tool)
    if mode is None:
        yield "not_granted"
    elif mode == "ask" and call not in book.approvals:
        yield "not_approved"
    yield GO
    book.change_record(status="in_flight")
    book.approvals = [a for a in book.approvals if a != call]
    book.effects.append(Send(run.id, record.tool, record.params, record.key, record.send_by))


def apply_mutation(book: Book, a: c.ApplyMutation) -> Law:
    if not (yield from alive(book, a.run)):
        return
    yield from speaks(book, a.by)
    yield from record_is(book, "in_flight" if a.by == "call" else "needs_reconcile")
    yield from too_large(book, a.result)
    yield GO
    book.settle("success", a.by, a.result)


def fail_mutation(book: Book, a: c.FailMutation) -> Law:
    if not (yield from alive(book, a.run)):
        return
    yield from speaks(book, a.by)
    yield from record_is(book, "in_flight" if a.by == "call" else "needs_reconcile")
    if a.by != "call":
        if a.asked_at > a.now:
            yield "asked_later"
        if not a.voided and book.record is not None and a.asked_at < book.record.may_land_until:
            yield "too_early"
    yield GO
    book.not_happened(a.by, a.now)


def lose_track(book: Book, a: c.LoseTrack) -> Law:
    run = yield from at_work(book, a.run)
    yield from record_is(book, "in_flight")
    record = book.record
    if run is None or record is None:
        return
    yield GO
    book.lose(a.now)
    if record.reconcilable:
        book.effects.append(Reconcile(run.id, record.tool, record.params, record.key, "inline", a.now))


def reconcile_retry(book: Book, a: c.ReconcileRetry) -> Law:
    if not (yield from alive(book, a.run)):
        return
    yield from speaks(book, a.by)
    yield from record_is(book, "needs_reconcile")
    record, policy = book.record, book.policy
    if record is None:
        return
    if a.early and a.now >= record.may_land_until:
        yield "not_early"
    if not a.early and record.attempts >= policy.reconcile_attempts:
        yield "attempts_spent"
    yield GO
    if a.early:
        book.change_record(next_attempt_at=record.may_land_until)
    else:
        wait = doubled(policy.reconcile_base_ms, record.attempts + 1, policy.reconcile_max_ms)
        book.change_record(attempts=record.attempts + 1, next_attempt_at=a.now + wait)


def exhaust(book: Book, a: c.Exhaust) -> Law:
    if not (yield from alive(book, a.run)):
        return
    yield from speaks(book, "reconcile")
    yield from record_is(book, "needs_reconcile")
    record = book.record
    if record is None:
        return
    able = record.reconcilable and not a.no_method
    if able and record.attempts < book.policy.reconcile_attempts:
        yield "attempts_left"
    yield GO
    book.change_record(status="indeterminate", reconcilable=able)


# --- people --------------------------------------------------------------------------------------------


def decides(book: Book, run: str) -> Law:
    """A person speaks of a call that nobody else can settle any more."""
    if (yield from alive(book, run)):
        yield from speaks(book, "person")
        yield from record_is(book, "indeterminate")


def try_again(book: Book, a: c.TryAgain) -> Law:
    yield from decides(book, a.run)
    if book.record is not None and not book.record.reconcilable:
        yield "no_reconcile"
    yield GO
    book.change_record(status="needs_reconcile", attempts=0, next_attempt_at=a.now)


def didnt_happen(book: Book, a: c.DidntHappen) -> Law:
    yield from decides(book, a.run)
    if book.record is not None and a.now < book.record.may_land_until:
        yield "too_early"
    yield GO
    book.not_happened("user_assert_failed", a.now)


def skip_mutation(book: Book, a: c.SkipMutation) -> Law:
    yield from decides(book, a.run)
    yield GO
    book.settle("skipped", "user_skip")
    book.move_held(status="skipped")
    book.forget_approvals()


def assert_applied(book: Book, a: c.AssertApplied) -> Law:
    yield from decides(book, a.run)
    yield from too_large(book, a.result)
    yield GO
    book.settle("success", "user_assert_applied", a.result)


def skip_event(book: Book, a: c.SkipEvent) -> Law:
    event, run = book.events.get(a.key), book.run
    if event is None:
        yield "event_unknown"
        return
    if event.status != "pending":
        yield "event_not_pending"
    looks = run is not None and run.phase == "preparing" and book.busy
    if looks and run is not None and a.key.topic in book.handlers[run.handler].declared.subscribes:
        yield "preparing"
    yield GO
    book.events[a.key] = event._replace(status="skipped", owner="")
    book.forget_approvals()


def abandon(book: Book, a: c.Abandon) -> Law:
    if not (yield from alive(book, a.run)):
        return
    if book.busy:
        yield "run_active"
    if not book.after:
        yield "not_after"
    yield GO
    book.move_held(status="consumed")
    book.forget_approvals()
    book.change_run(abandoned=True)
    book.leave()


def request_for(book: Book, digest: str) -> Generator[str, None, Request | None]:
    request = book.error.request if book.error is not None else None
    if request is None or request.digest != digest:
        yield "no_request"
        return None
    return request


def approve(book: Book, a: c.Approve) -> Law:
    request = yield from request_for(book, a.digest)
    if request is None:
        return
    yield GO
    book.approvals = [*(one for one in book.approvals if not {*one.events} & {*request.events}), request]
    book.forget_approvals()
    book.error = None


def reject(book: Book, a: c.Reject) -> Law:
    request = yield from request_for(book, a.digest)
    if request is None:
        return
    yield GO
    for key in request.events:
        event = book.events.get(key)
        if event is not None and event.status == "pending":
            book.events[key] = event._replace(status="skipped")
    book.forget_approvals()
    book.error = None


def grant(book: Book, a: c.Grant) -> Law:
    yield GO
    book.grants.pop(a.tool, None)
    book.grants[a.tool] = a.mode
    error = book.error
    if error is not None and (error.kind, error.cause, error.tool) == ("approval", "permission", a.tool):
        book.error = None


def reconnect(book: Book, a: c.Reconnect) -> Law:
    if book.error is None or (book.error.kind, book.error.cause) != ("approval", "auth"):
        yield "no_error"
    yield GO
    book.error = None


def pause(book: Book, a: c.Pause) -> Law:
    if book.status != "active":
        yield "workflow_edge"
    yield GO
    book.status = "paused"


def resume(book: Book, a: c.Resume) -> Law:
    if book.status not in ("ready", "paused"):
        yield "workflow_edge"
    yield GO
    book.status = "active"


def clear_error(book: Book, a: c.ClearError) -> Law:
    if book.error is None or book.error.kind not in ("internal", "blocked"):
        yield "no_error"
    elif book.error.cause == "logic":
        yield "logic_block"
    yield GO
    book.error = None


def idle(book: Book) -> Law:
    if book.busy:
        yield "run_active"


def retry(book: Book, a: c.Retry) -> Law:
    yield from idle(book)
    yield GO
    for name in book.handlers:
        book.change_row(name, transient_failures=0, logic_failures=0)
    book.backoff_until = 0
    book.maintenance = None
    if book.error is not None and book.error.kind == "blocked":
        book.error = None


def block_workflow(book: Book, a: c.BlockWorkflow) -> Law:
    yield from idle(book)
    if book.error is not None:
        yield "error_stands"
    yield GO
    book.error = Error("blocked", "host", "", a.message, "", None)


def enter_maintenance(book: Book, a: c.EnterMaintenance) -> Law:
    yield from idle(book)
    if book.uncertain:
        yield "mutation_unresolved"
    yield GO
    book.maintenance = book.maintenance or Maintenance("", "", "")


def exit_maintenance(book: Book, a: c.ExitMaintenance) -> Law:
    if book.maintenance is None:
        yield "not_in_maintenance"
    yield GO
    book.maintenance = None


def publish(book: Book, a: c.Publish) -> Law:
    yield from publishable(book, (a.publication,))
    yield GO
    book.publish((a.publication,), "", ())


def deploy(book: Book, a: c.Deploy) -> Law:
    yield from idle(book)
    if not sensible(a):
        yield "bad_declaration"
    yield GO
    rows: dict[str, Handler] = {}
    for declared in a.handlers:
        consumer = declared.kind == "consumer"
        old = book.handlers.get(declared.name)
        if old is None or old.declared.kind != declared.kind:
            rows[declared.name] = Handler(declared, "", consumer, 0, -1 if consumer else a.now, 0, 0)
            continue
        same = (old.declared.interval_ms, old.declared.cron) == (declared.interval_ms, declared.cron)
        due_at = old.due_at if same else -1 if consumer else a.now
        rows[declared.name] = old._replace(declared=declared, dirty=consumer, due_at=due_at)
    book.version, book.topics, book.handlers, book.maintenance = a.version, a.topics, rows, None
    if book.status == "draft":
        book.status = "ready"
    if book.error is not None and book.error.cause == "logic":
        book.error = None


def sensible(a: c.Deploy) -> bool:
    names = [declared.name for declared in a.handlers]
    subscribed = [topic for declared in a.handlers for topic in declared.subscribes]
    unique = all(len({*words}) == len(words) for words in (names, a.topics, subscribed))
    named = bool(a.version) and all(a.topics) and all(names) and {*subscribed} <= {*a.topics}
    return unique and named and all(map(sensible_handler, a.handlers))


def sensible_handler(declared: Declaration) -> bool:
    if declared.kind == "consumer":
        return bool(declared.subscribes) and not declared.interval_ms and not declared.cron
    schedules = bool(declared.interval_ms) + bool(declared.cron)
    return not declared.subscribes and not declared.has_mutate and declared.interval_ms >= 0 and schedules < 2


LAWS: Final[dict[type[c.Command], Callable[[Book, Any], Law]]] = {
    kind: globals()[name] for name, kind in c.COMMANDS.items()
}


# --- what should happen next ---------------------------------------------------------------------------


def recovery(state: State, now: int) -> tuple[c.Command, ...]:
    """What a start must do next: end the run that was active, then close the session."""
    if state.run is not None and state.run.status == "active":
        return (c.EndRun(now, state.run.id, "crashed", "the host died"),)
    return (c.FinishSession(now, state.session.id),) if state.session is not None else ()


def planned(state: State, now: int, fresh: str) -> c.Command | Wait | Idle:
    """What the scheduler must say."""
    book = Book(state)
    closed = list(gate(book, now))
    if "run_active" in closed:
        return Idle("run_active")
    start = None if closed else first_start(book, now, fresh)
    session = state.session
    if session is not None:
        may_go_on = isinstance(start, c.CreateRun | c.CreateRetry) and session.runs < state.policy.session_runs
        return start if may_go_on and start is not None else c.FinishSession(now, session.id)
    if closed:
        return Wait(state.backoff_until, "backing_off") if closed == ["backing_off"] else Idle(closed[0])
    if start is not None:
        return start if isinstance(start, Idle) else c.StartSession(now, fresh)
    times = [row.wake_at for row in state.handlers if row.wake_at > 0]
    times += [row.due_at for row in state.handlers if row.due_at >= 0]
    return Wait(min(times), "nothing_due") if times else Idle("nothing_due")


def first_start(book: Book, now: int, fresh: str) -> c.CreateRun | c.CreateRetry | Idle | None:
    session = book.session.id if book.session is not None else ""
    if book.run is not None:
        if book.row_of(book.run) is None:
            return Idle("handler_removed")
        return c.CreateRetry(now, fresh, session, book.run.id)
    best: tuple[float, float, str] | None = None
    for name, row in book.handlers.items():
        declared = row.declared
        if declared.kind == "consumer":
            if not row.dirty and not 0 < row.wake_at <= now:
                continue
            waiting = [
                e.seq for e in book.events.values() if e.status == "pending" and e.key.topic in declared.subscribes
            ]
            rank = (0.0, float(min(waiting)) if waiting else float("inf"), name)
        elif 0 <= row.due_at <= now:
            rank = (1.0, float(row.due_at), name)
        else:
            continue
        if best is None or rank[:2] < best[:2]:
            best = rank
    return None if best is None else c.CreateRun(now, fresh, session, best[2])


def owed(state: State, now: int) -> c.Command | Effect | Wait | Idle:
    """What the background must do."""
    book, record = Book(state), state.mutation
    if book.uncertain and not book.busy and record is not None:
        if record.status == "indeterminate":
            return Idle("mutation_unresolved")
        if not record.reconcilable or record.attempts >= state.policy.reconcile_attempts:
            return c.Exhaust(now, record.run)
        if record.next_attempt_at > now:
            return Wait(record.next_attempt_at, "mutation_unresolved")
        return Reconcile(record.run, record.tool, record.params, record.key, "reconcile", now)
    return next(wanted_repair(book), Idle("nothing_due"))
