"""Transitions of sessions and runs: start, progress, commit, end."""

from typing import Final

from . import boundary, events, failures, gate
from .capabilities import Function
from .commands import (
    Begin,
    CommitConsumer,
    CommitProducer,
    CreateRetry,
    CreateRun,
    Emitting,
    EndRun,
    FinishSession,
    Mutated,
    Mutating,
    Prepared,
    RunNow,
    StartSession,
)
from .policy import clamp_wake
from .reasons import present, require
from .tables import CONSUMER_PHASE, MUTATION_STATUS, PRODUCER_PHASE, RUN_STATUS, SESSION_STATUS
from .types import (
    Accepted,
    CallHandler,
    Effect,
    EndStatus,
    Error,
    ErrorCause,
    GrantMode,
    Handler,
    HandlerKind,
    Mutation,
    Repair,
    Request,
    Retired,
    Run,
    Session,
    SessionStatus,
    State,
)

NOTHING: Final = Retired()


def accept(state: State, *rules: str, effects: tuple[Effect, ...] = (), retired: Retired = NOTHING) -> Accepted:
    return Accepted(state, effects, rules, retired)


def live_run(state: State, run_id: str) -> Run:
    """The run that a command speaks of, whether active or pending retry (RUN-003)."""
    run = present(state.run, "run_unknown", run_id)
    require(run.id == run_id, "run_unknown", run_id)
    return run


def active_run(state: State, run_id: str, kind: HandlerKind | None = None) -> Run:
    """The same, when the command is for active runs only (RUN-002, RUN-004)."""
    run = live_run(state, run_id)
    require(run.status == "active", "run_not_active", run.status)
    require(kind is None or run.kind == kind, "wrong_kind", run.kind)
    return run


def handler_of(state: State, name: str) -> Handler:
    return present(failures.handler_row(state, name), "handler_unknown", name)


def moved(run: Run, trigger: str) -> Run:
    """One edge of the phase, never a leap (PHASE-001, PHASE-002)."""
    table = CONSUMER_PHASE if run.kind == "consumer" else PRODUCER_PHASE
    return run._replace(phase=present(table.get((run.phase, trigger)), "phase", run.phase))


# --- start -------------------------------------------------------------------------------------------


def require_gate(state: State, now: int) -> None:
    reason = gate.closed(state, now)
    require(not reason, reason)


def open_session(state: State, session_id: str) -> Session:
    session = present(state.session, "session_unknown", session_id)
    require(session.id == session_id, "session_unknown", session_id)
    return session


def require_session(state: State, session_id: str) -> Session:
    """An open session with budget left (SESS-003)."""
    session = open_session(state, session_id)
    require(session.runs < state.policy.session_runs, "session_spent", session_id)
    return session


def require_id(new: str) -> None:
    """An empty name means nobody, everywhere (RUN-006)."""
    require(bool(new), "id_empty")


def start_session(state: State, c: StartSession) -> Accepted:
    require_gate(state, c.now)
    require(state.session is None, "session_open")
    require_id(c.session)
    return accept(state._replace(session=Session(c.session, "open", 0, 0)), "SESS-002")


def finish_session(state: State, c: FinishSession) -> Accepted:
    session = open_session(state, c.session)
    require(gate.active(state) is None, "run_active")
    trigger = "complete" if session.commits else "fail"
    state, closed = close_session(state, trigger)
    return accept(state, "SESS-004", retired=Retired(session=closed))


def close_session(state: State, trigger: str) -> tuple[State, Session]:
    """The session leaves, completed or failed (SESS-001)."""
    session = present(state.session, "session_unknown")
    status: SessionStatus = present(SESSION_STATUS.get((session.status, trigger)), "session_unknown", session.id)
    return state._replace(session=None), session._replace(status=status)


def create_run(state: State, c: CreateRun) -> Accepted:
    require_gate(state, c.now)
    session = require_session(state, c.session)
    require(gate.pending_retry(state) is None, "retry_pending")
    require_id(c.run)
    row = handler_of(state, c.handler)
    run = Run(
        c.run, c.handler, row.declared.kind, c.session, state.version, "active", "pending",
        "", "", c.now, (), (), "null", "", "", "", False,
    )  # fmt: skip
    state = failures.replace_row(state, row._replace(dirty=False))
    state = state._replace(run=run, session=session._replace(runs=session.runs + 1))
    return accept(state, "RUN-005", "SCHED-003", "SCHED-006")


def create_retry(state: State, c: CreateRetry) -> Accepted:
    require_gate(state, c.now)
    session = require_session(state, c.session)
    failed = present(gate.pending_retry(state), "not_pending_retry", c.retry_of)
    require(failed.id == c.retry_of, "not_pending_retry", c.retry_of)
    require(boundary.side(failed, state.mutation) == "AFTER", "not_after")
    require_id(c.run)
    require(c.run != failed.id, "id_in_use", c.run)
    row = present(failures.row_of(state, failed), "handler_removed", failed.handler)
    retired = Retired(run=failed, mutation=state.mutation)
    retry = retry_of(failed, c, state.version)
    state = events.transfer(state, retry.id)
    state = failures.replace_row(state, row._replace(dirty=False))
    state = state._replace(
        run=retry,
        mutation=None,
        session=session._replace(runs=session.runs + 1),
    )
    return accept(
        state,
        "RETRY-001",
        "RETRY-002",
        "RETRY-003",
        effects=(call(retry, "next"),),
        retired=retired,
    )


def retry_of(failed: Run, c: CreateRetry, version: str) -> Run:
    """A new run at `emitting` that knows all that the first one knew (RETRY-002)."""
    return failed._replace(
        id=c.run, session=c.session, version=version, status="active", phase="emitting",
        retry_of=failed.id, created_at=c.now, message="",
    )  # fmt: skip


def run_now(state: State, c: RunNow) -> Accepted:
    require_gate(state, c.now)
    row = handler_of(state, c.handler)
    due = row._replace(dirty=True) if row.declared.kind == "consumer" else row._replace(due_at=c.now)
    return accept(failures.replace_row(state, due), "USER-003")


# --- progress ----------------------------------------------------------------------------------------


def call(run: Run, function: Function) -> CallHandler:
    return CallHandler(run.id, run.handler, run.version, function)


def begin(state: State, c: Begin) -> Accepted:
    run = moved(active_run(state, c.run), "begin")
    function: Function = "prepare" if run.kind == "consumer" else "producer"
    return accept(state._replace(run=run), "PHASE-003", effects=(call(run, function),))


def prepared(state: State, c: Prepared) -> Accepted:
    run = moved(active_run(state, c.run, "consumer"), "pin")
    events.require_size(state.policy, c.data)
    row = handler_of(state, run.handler)
    state = events.reserve(state, run.id, row.declared, c.reservations)
    causes = events.roots(state, c.reservations)
    wake_at = 0 if c.wake_at is None else clamp_wake(c.wake_at, c.now, state.policy)
    state = failures.replace_row(state, row._replace(wake_at=wake_at))
    run = run._replace(reserved=c.reservations, causes=causes, data=c.data, title=c.title)
    return accept(state._replace(run=run), "PHASE-004", "EVENT-003", "SCHED-007")


def mutating(state: State, c: Mutating) -> Accepted:
    run = moved(active_run(state, c.run, "consumer"), "mutate")
    require(bool(run.reserved), "nothing_reserved")
    require(has_mutate(state, run), "no_mutate")
    return accept(state._replace(run=run), "PHASE-005", effects=(call(run, "mutate"),))


def mutated(state: State, c: Mutated) -> Accepted:
    run = moved(active_run(state, c.run, "consumer"), "settle")
    require(state.mutation is None, "record_exists")
    return accept(state._replace(run=run), "PHASE-008")


def emitting(state: State, c: Emitting) -> Accepted:
    run = active_run(state, c.run, "consumer")
    after = moved(run, "emit")
    if run.phase == "prepared":
        require(not needs_mutate(state, run), "mutate_required")
    require(run.outcome != "failure", "mutation_failed")
    return accept(state._replace(run=after), "PHASE-006", "PHASE-007", effects=(call(after, "next"),))


def needs_mutate(state: State, run: Run) -> bool:
    """Whether a prepared run goes to its mutation before `next` (PHASE-005, PHASE-006)."""
    return bool(run.reserved) and has_mutate(state, run)


def has_mutate(state: State, run: Run) -> bool:
    return handler_of(state, run.handler).declared.has_mutate


# --- commit ------------------------------------------------------------------------------------------


def commit_consumer(state: State, c: CommitConsumer) -> Accepted:
    run = moved(active_run(state, c.run, "consumer"), "commit")
    require(may_commit(state.mutation), "record_open")
    state = events.consume(state)
    state = events.publish(state, c.publications, run.id, run.causes)
    row = saved(state, run, c.state)
    if run.reserved:  # An empty commit neither clears a count nor asks for another look (SCHED-005, FAIL-005).
        row = row._replace(dirty=True, transient_failures=0, logic_failures=0)
    return committed(failures.replace_row(state, row), run, "COMMIT-001", "COMMIT-002")


def commit_producer(state: State, c: CommitProducer) -> Accepted:
    run = moved(active_run(state, c.run, "producer"), "commit")
    state = events.publish(state, c.publications, run.id, ())
    row = saved(state, run, c.state)
    due_at = next_due(row, run.created_at, c.due_at)
    row = row._replace(due_at=due_at, transient_failures=0, logic_failures=0)
    return committed(failures.replace_row(state, row), run, "COMMIT-003", "PROD-002", "PROD-003")


def may_commit(record: Mutation | None) -> bool:
    """A run commits only without a record, or when its own is applied (COMMIT-001)."""
    return record is None or record.status == "applied"


def saved(state: State, run: Run, returned: str | None) -> Handler:
    """The handler's row with what it returned; nothing returned keeps what was there (COMMIT-004)."""
    row = handler_of(state, run.handler)
    if returned is None:
        return row
    events.require_size(state.policy, returned)
    return row._replace(state=returned)


def next_due(row: Handler, started_at: int, cron_due_at: int | None) -> int:
    """A producer's next time, counted from this run's start: a time that passed meanwhile is due, once (PROD-003)."""
    require((cron_due_at is not None) == bool(row.declared.cron), "cron_time", row.declared.name)
    if cron_due_at is not None:
        require(cron_due_at > started_at, "cron_time", row.declared.name)
        return cron_due_at
    return started_at + row.declared.interval_ms if row.declared.interval_ms else -1


def committed(state: State, run: Run, *rules: str) -> Accepted:
    """Phase, status, consumption, state and publications in one step (COMMIT-002)."""
    session = open_session(state, run.session)
    run = run._replace(status=RUN_STATUS[run.status, "commit"])
    retired = Retired(run=run, mutation=state.mutation)
    session = session._replace(commits=session.commits + 1)
    state = state._replace(run=None, mutation=None, session=session)
    return accept(state, *rules, retired=retired)


# --- end ---------------------------------------------------------------------------------------------

TRIGGERS: Final[dict[EndStatus, str]] = {
    "paused:transient": "pause_transient",
    "paused:approval": "pause_approval",
    "paused:reconciliation": "pause_reconciliation",
    "failed:logic": "fail_logic",
    "failed:internal": "fail_internal",
    "crashed": "crash",
}

APPROVALS: Final[tuple[ErrorCause, ...]] = ("auth", "permission", "request")
"""What a run that pauses for approval can lack (RUN-008)."""


def end_run(state: State, c: EndRun) -> Accepted:
    """A run failed, paused or crashed: the boundary alone decides what follows (RUN-007)."""
    run = active_run(state, c.run)
    require(c.cause in (APPROVALS if c.status == "paused:approval" else ("",)), "cause_mismatch", c.cause)
    side = boundary.side(run, state.mutation)
    if side == "UNCERTAIN":
        return end_uncertain(state, run, c)
    require(c.status != "paused:reconciliation", "not_uncertain")
    error = status_error(state, run, c)
    inline_failed = run.outcome == "failure" and state.mutation is not None and state.mutation.resolved_by == "inline"
    state, run = stopped(state, run, c.status, c.message)
    state, session = close_session(state, "fail")
    if side == "BEFORE":
        retired = Retired(run, never_sent(state.mutation), session)
        state = events.release(state)._replace(run=None, mutation=None)
        rule = "BOUND-004"
    else:
        retired = Retired(session=session)
        rule = "BOUND-005"
    state = charged(state._replace(error=error), run, c.now, inline_failed)
    return accept(state, "RUN-007", rule, "SESS-005", effects=repairs(state), retired=retired)


def end_uncertain(state: State, run: Run, c: EndRun) -> Accepted:
    """Nobody knows whether the mutation happened: stop, keep everything, and say so (BOUND-006)."""
    state, run = stopped(state, run, "paused:reconciliation", c.message)
    state, session = close_session(state, "fail")
    error = Error("uncertain", "", run.id, run.message, "", None)
    record = present(state.mutation, "record_missing")
    state = state._replace(mutation=lost(record, c.now), error=error)
    return accept(state, "RUN-007", "BOUND-006", "SESS-005", retired=Retired(session=session))


def stopped(state: State, run: Run, status: EndStatus, message: str) -> tuple[State, Run]:
    """The status moves, the phase does not; the consumer will look at its topics again (RUN-001, SCHED-005)."""
    run = run._replace(status=RUN_STATUS[run.status, TRIGGERS[status]], message=message)
    row = failures.row_of(state, run)
    if row is not None and run.kind == "consumer":
        state = failures.replace_row(state, row._replace(dirty=True))
    return state._replace(run=run), run


def never_sent(record: Mutation | None) -> Mutation | None:
    """A record that was not sent ends with its run (MUT-006)."""
    if record is None or record.status != "pending":
        return record
    return record._replace(status=MUTATION_STATUS["pending", "never_sent"], resolved_by="never_sent")


def lost(record: Mutation, now: int) -> Mutation:
    """A call in the air is handed to reconciliation, or to a person when its tool has none (MUT-007)."""
    if record.status != "in_flight":
        return record
    trigger = "lose_track" if record.reconcilable else "lose_for_good"
    return record._replace(status=MUTATION_STATUS["in_flight", trigger], next_attempt_at=now)


def charged(state: State, run: Run, now: int, inline_failed: bool) -> State:
    """What the end costs its handler (FAIL-003, FAIL-004, FAIL-006)."""
    if run.status == "failed:logic":
        state = failures.count_logic(state, run)
    if run.status in ("paused:transient", "crashed") or inline_failed:
        state = failures.count_transient(state, run, now)
    return state


def repairs(state: State) -> tuple[Effect, ...]:
    """The repair that the state waits for, unless a person must act first (WORK-005)."""
    work = state.maintenance
    if work is None or not work.run or state.error is not None:
        return ()
    return (Repair(work.run, work.handler, work.message),)


def status_error(state: State, run: Run, c: EndRun) -> Error | None:
    """The error that an end raises, with what would answer it (RUN-008)."""
    if c.status == "failed:internal":
        return Error("internal", "", run.id, c.message, "", None)
    if c.status != "paused:approval":
        return None
    if c.cause == "request":
        return Error("approval", "request", run.id, c.message, "", asked(state, run))
    if c.cause == "permission":
        require(bool(c.tool) and permission(state, c.tool) is None, "nothing_asked", c.tool)
    return Error("approval", c.cause, run.id, c.message, c.tool, None)


def asked(state: State, run: Run) -> Request:
    """The request for approval of the call that stands in the ledger, not yet sent (PERM-003)."""
    record = present(state.mutation, "nothing_asked")
    require(record.status == "pending", "nothing_asked")
    request = Request(record.tool, record.digest, run.reserved)
    require(
        permission(state, record.tool) == "ask" and request not in state.approvals,
        "nothing_asked",
        record.tool,
    )
    return request


def permission(state: State, tool: str) -> GrantMode | None:
    """How a tool is granted; None when it is not (PERM-001)."""
    for grant in state.grants:
        if grant.tool == tool:
            return grant.mode
    return None
