"""The law as contracts that CrossHair can prove: one function for each command, machine and formula.

Each function takes a situation, runs the real kernel on it, and returns whether the kernel kept the law. The
law is written out here once more and shares no table with the kernel. The types of the arguments are the
range: every value of a literal type, both booleans, and every whole number that the `pre:` lines let through.
`keepkernel prove` runs them; a function named `canary_…` states a falsehood, which the prover must refute.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from ..kernel import boundary as bounds
from ..kernel import capabilities, failures, gate, tables
from ..kernel import commands as c
from ..kernel import policy as numbers
from ..kernel.policy import Policy
from ..kernel.recover import recover
from ..kernel.step import step
from ..kernel.types import (
    Accepted,
    Author,
    CallHandler,
    EndStatus,
    Error,
    ErrorCause,
    Event,
    EventStatus,
    GrantMode,
    HandlerKind,
    Key,
    Maintenance,
    MutationOutcome,
    MutationStatus,
    Outcome,
    Permission,
    Phase,
    Publication,
    Rejected,
    Request,
    Run,
    RunStatus,
    Send,
    Session,
    SessionStatus,
    State,
    WorkflowStatus,
)
from .situations import (
    CONSUMER,
    INPUT,
    LANDS,
    PARAMS,
    PRODUCER,
    REQUEST,
    SEND_BY,
    TOOL,
    UNRESOLVED,
    Life,
    NewId,
    Obstacle,
    Record,
    SessionShape,
    Trouble,
    idle,
    in_session,
    in_trouble,
    ledger_record,
    living,
    obstructed,
    scene,
    with_consumer,
    with_input,
    with_producer,
    with_record,
    with_run,
    with_session,
    without_run,
)


def lawful(outcome: Outcome, allowed: bool, after: State) -> bool:
    """Accepted exactly when the law allows it, and then everything is as the law says, down to the last field."""
    if isinstance(outcome, Rejected):
        return not allowed
    return allowed and outcome.state == after


# --- the boundary and the other decisions ------------------------------------------------------------


def boundary(outcome: MutationOutcome, record: Record) -> bool:
    """Unresolved records are UNCERTAIN, whatever the outcome; then success and skipped are AFTER; the rest is BEFORE.

    post: __return__
    """
    side = bounds.boundary(outcome, None if record == "none" else record)
    if record in UNRESOLVED:
        return side == "UNCERTAIN"
    return side == ("AFTER" if outcome in ("success", "skipped") else "BEFORE")


def gate_of_runs(
    workflow: WorkflowStatus, life: Life, record: Record, trouble: bool, maintenance: bool, now: int, backoff_until: int
) -> bool:
    """A run may start only in an active workflow without run, doubt, error, maintenance or backoff.

    post: __return__
    """
    state = living(life)._replace(
        status=workflow,
        mutation=None if record == "none" else ledger_record(record),
        error=Error("internal", "", "r0", "", "", None) if trouble else None,
        maintenance=Maintenance("", "", "") if maintenance else None,
        backoff_until=backoff_until,
    )
    free = workflow == "active" and life != "active" and record not in UNRESOLVED and not trouble and not maintenance
    return (gate.closed(state, now) == "") == (free and now >= backoff_until)


def classification(failure: failures.FailureClass, sent: bool, declared_refusal: bool) -> bool:
    """Once a call is sent, nothing but a refusal that the connector declares proves that it did not happen.

    post: __return__
    """
    found = failures.classify(failure, sent=sent, declared_refusal=declared_refusal)
    proves = failure in ("auth", "rate_limit", "refused") and declared_refusal
    asks = failure in ("auth", "permission", "approval")
    return found.certain == (not sent or proves) and (found.status == "paused:approval") == asks == bool(found.cause)


def capability(function: capabilities.Function, operation: capabilities.Operation, called: bool) -> bool:
    """Producers and prepare read, mutate mutates once and does nothing after it, next only publishes.

    post: __return__
    """
    rights = {"producer": "read publish", "prepare": "read peek get", "mutate": "mutate", "next": "publish"}
    made: tuple[capabilities.Operation, ...] = ("mutate",) if called else ()
    may = operation in rights[function].split() and not called
    return capabilities.allowed(function, operation, made) == may


def recovery(life: Life, phase: Phase, record: Record, session: bool, now: int) -> bool:
    """Recovery ends an active run as crashed, then closes an open session, and then has nothing left to do.

    post: __return__
    """
    state = idle() if life == "none" else scene(phase, life, record)
    state = in_session(state, "open" if session else "none")
    if life == "active":
        return recover(state, now) == (c.EndRun(now, "r1", "crashed", "the host died"),)
    return recover(state, now) == ((c.FinishSession(now, "s1"),) if session else ())


# --- policy arithmetic -------------------------------------------------------------------------------


def backoff(attempt: int, base_ms: int, max_ms: int) -> bool:
    """A wait is never below the base nor above the limit, doubles up to it, and never shrinks.

    pre: 1 <= attempt <= 12
    pre: 1 <= base_ms <= max_ms
    post: __return__
    """
    wait = numbers.backoff_ms(attempt, base_ms, max_ms)
    longer = numbers.backoff_ms(attempt + 1, base_ms, max_ms)
    return base_ms <= wait <= max_ms and (longer == wait * 2 or longer == max_ms <= wait * 2)


def backoff_before_the_first_failure(attempt: int, base_ms: int, max_ms: int) -> bool:
    """Without a failure there is nothing to wait for.

    pre: attempt <= 0
    post: __return__
    """
    return numbers.backoff_ms(attempt, base_ms, max_ms) == 0


def wake_clamp(wake_at: int, now: int, min_ms: int, max_ms: int) -> bool:
    """A wake time lies within the limits, and one that is within them is kept.

    pre: 0 <= min_ms <= max_ms
    post: __return__
    """
    woken = numbers.clamp_wake(wake_at, now, Policy(wake_min_ms=min_ms, wake_max_ms=max_ms))
    earliest, latest = now + min_ms, now + max_ms
    return earliest <= woken <= latest and (woken == wake_at or not earliest <= wake_at <= latest)


def send_window(now: int, deadline_ms: int, within_ms: int, skew_ms: int) -> bool:
    """A call sent at the last moment by a late clock has landed, or never will, when `may_land_until` comes.

    pre: deadline_ms > 0 and within_ms >= 0 and skew_ms >= 0
    post: __return__
    """
    policy = Policy(send_within_ms=within_ms, clock_skew_ms=skew_ms)
    send_by, lands = numbers.send_window(now, deadline_ms, policy)
    return now <= send_by < lands and send_by == now + within_ms and lands == send_by + skew_ms + deadline_ms


# --- machines ----------------------------------------------------------------------------------------


def edge(table: Mapping[tuple[str, str], str], before: str, after: str) -> bool:
    return any(source == before and target == after for (source, _), target in table.items())


def consumer_phase(before: Phase, after: Phase) -> bool:
    """A phase leads to the next one, prepared also to emitting, and nothing leaps, returns or leaves committed.

    post: __return__
    """
    steps = ("pending", "preparing", "prepared", "mutating", "mutated", "emitting", "committed")
    ordered = before in steps and after in steps and steps.index(after) - steps.index(before) == 1
    lawful_edge = ordered or (before == "prepared" and after == "emitting")
    return edge(tables.CONSUMER_PHASE, before, after) == lawful_edge


def producer_phase(before: Phase, after: Phase) -> bool:
    """Pending, executing, committed, in this order.

    post: __return__
    """
    return edge(tables.PRODUCER_PHASE, before, after) == (
        (before == "pending" and after == "executing") or (before == "executing" and after == "committed")
    )


def run_status(before: RunStatus, after: RunStatus) -> bool:
    """From active to every other status, and from those nowhere.

    post: __return__
    """
    return edge(tables.RUN_STATUS, before, after) == (before == "active" and after != "active")


def event_status(before: EventStatus, after: EventStatus) -> bool:
    """Reserved leads everywhere, pending to reserved and skipped, consumed and skipped nowhere.

    post: __return__
    """
    lawful_edge = before == "reserved" or (before == "pending" and after in ("reserved", "skipped"))
    return edge(tables.EVENT_STATUS, before, after) == lawful_edge


def mutation_status(before: MutationStatus, after: MutationStatus) -> bool:
    """Never back to pending or in_flight, and out of applied and failed nowhere.

    post: __return__
    """
    ways = {
        "pending": "in_flight failed",
        "in_flight": "needs_reconcile indeterminate applied failed",
        "needs_reconcile": "needs_reconcile indeterminate applied failed",
        "indeterminate": "needs_reconcile applied failed",
        "applied": "",
        "failed": "",
    }
    return edge(tables.MUTATION_STATUS, before, after) == (after in ways[before].split())


def session_status(before: SessionStatus, after: SessionStatus) -> bool:
    """From open to completed or failed.

    post: __return__
    """
    return edge(tables.SESSION_STATUS, before, after) == (before == "open" and after != "open")


def workflow_status(before: WorkflowStatus, after: WorkflowStatus) -> bool:
    """Draft becomes ready; ready and paused become active; active becomes paused.

    post: __return__
    """
    follows = {"draft": "ready", "ready": "active", "active": "paused", "paused": "active"}
    return edge(tables.WORKFLOW_STATUS, before, after) == (follows[before] == after)


Machine = Literal[
    "ConsumerPhase", "ProducerPhase", "RunStatus", "EventStatus", "MutationStatus", "SessionStatus", "WorkflowStatus"
]


def closed_machine(machine: Machine) -> bool:
    """Every edge joins two states of its machine; the final ones, and no others, have no way out.

    post: __return__
    """
    lasting, final = {
        "ConsumerPhase": ("pending preparing prepared mutating mutated emitting", "committed"),
        "ProducerPhase": ("pending executing", "committed"),
        "RunStatus": (
            "active",
            "paused:transient paused:approval paused:reconciliation failed:logic failed:internal crashed committed",
        ),
        "EventStatus": ("pending reserved", "consumed skipped"),
        "MutationStatus": ("pending in_flight needs_reconcile indeterminate", "applied failed"),
        "SessionStatus": ("open", "completed failed"),
        "WorkflowStatus": ("draft ready active paused", ""),
    }[machine]
    table = tables.TABLES[machine]
    sources, targets = {source for source, _ in table}, set(table.values())
    return sources == set(lasting.split()) and targets <= sources | set(final.split())


# --- who may speak -----------------------------------------------------------------------------------

RunCommand = Literal[
    "begin",
    "prepared",
    "mutating",
    "mutated",
    "emitting",
    "commit_consumer",
    "commit_producer",
    "record_mutation",
    "send_mutation",
    "apply_mutation",
    "fail_mutation",
    "lose_track",
    "reconcile_retry",
    "exhaust",
    "end_run",
    "try_again",
    "didnt_happen",
    "skip_mutation",
    "assert_applied",
    "abandon",
]
ConsumerCommand = Literal[
    "prepared",
    "mutating",
    "mutated",
    "emitting",
    "commit_consumer",
    "record_mutation",
    "send_mutation",
    "lose_track",
]


def report(name: str, run: str) -> c.Command:
    """A command that speaks of a run, with some arguments that are right."""
    more: dict[str, tuple[Any, ...]] = {
        "record_mutation": (TOOL, PARAMS, True),
        "apply_mutation": ("call",),
        "fail_mutation": ("call",),
        "reconcile_retry": ("inline",),
        "end_run": ("crashed",),
    }
    build = cast(Callable[..., c.Command], c.COMMANDS[name])
    return build(0, run, *more.get(name, ()))


def report_about_another_run(command: RunCommand, life: Life, record: Record) -> bool:
    """What is said of a run that is not the live one is rejected.

    post: __return__
    """
    state = idle() if life == "none" else scene("mutating", life, record)
    return isinstance(step(state, report(command, "r0")), Rejected)


def report_about_a_producer(command: ConsumerCommand, phase: Phase) -> bool:
    """A producer run takes none of a consumer's reports.

    post: __return__
    """
    return isinstance(step(scene(phase, kind="producer"), report(command, "r1")), Rejected)


# --- scheduler ---------------------------------------------------------------------------------------


def start_session(obstacle: Obstacle, shape: SessionShape, new: NewId) -> bool:
    """A session starts when the gate is open and no other one is.

    post: __return__
    """
    state = in_session(obstructed(idle(), obstacle), shape)
    session = "s3" if new == "fresh" else ""
    allowed = obstacle == "none" and shape == "none" and new == "fresh"
    return lawful(
        step(state, c.StartSession(0, session)), allowed, state._replace(session=Session(session, "open", 0, 0))
    )


def create_run(
    obstacle: Obstacle, shape: SessionShape, new: NewId, handler: Literal["file", "poll", "gone"], now: int
) -> bool:
    """A run starts at pending, when the gate is open, in an open session with budget; its consumer is not dirty then.

    pre: now >= 1
    post: __return__
    """
    state = in_session(with_consumer(obstructed(idle(), obstacle), dirty=True), shape)
    if obstacle == "backoff":
        state = state._replace(backoff_until=now + 1)
    run = "r2" if new == "fresh" else ""
    kind: HandlerKind = "consumer" if handler == "file" else "producer"
    allowed = obstacle == "none" and shape == "open" and new == "fresh" and handler != "gone"
    after = state._replace(
        run=Run(
            run, handler, kind, "s1", "v1", "active", "pending", "", "", now, (), (), "null", "", "", "", False
        ),
        session=Session("s1", "open", 100, 0),
    )  # fmt: skip
    if handler == "file":
        after = with_consumer(after, dirty=False)
    return lawful(step(state, c.CreateRun(now, run, "s1", handler)), allowed, after)


def create_run_beside_a_retry(status: EndStatus, outcome: MutationOutcome, record: Record) -> bool:
    """A fresh run never starts while a retry is pending.

    post: __return__
    """
    state = in_session(scene("mutated", status, record, outcome), "open")
    return isinstance(step(state, c.CreateRun(0, "r2", "s1", CONSUMER)), Rejected)


def create_retry(status: RunStatus, outcome: MutationOutcome, record: Record) -> bool:
    """Only a run that is over and AFTER is retried, from emitting, with all that it knew and held.

    post: __return__
    """
    state = in_session(scene("mutated", status, record, outcome), "open")
    allowed = status != "active" and record not in UNRESOLVED and outcome in ("success", "skipped")
    after = with_run(state, id="r2", status="active", phase="emitting", retry_of="r1")
    after = with_input(after._replace(mutation=None, session=Session("s1", "open", 100, 0)), "reserved", "r2")
    return lawful(step(state, c.CreateRetry(0, "r2", "s1", "r1")), allowed, after)


def create_retry_start(
    obstacle: Obstacle, shape: SessionShape, new: Literal["fresh", "empty", "taken"], of: Literal["r1", "r0"]
) -> bool:
    """A retry starts under the conditions of every run, under a new id, for the pending retry alone.

    post: __return__
    """
    state = in_session(obstructed(scene("mutated", "crashed", "applied", "success"), obstacle), shape)
    run = {"fresh": "r2", "empty": "", "taken": "r1"}[new]
    allowed = obstacle == "none" and shape == "open" and new == "fresh" and of == "r1"
    return isinstance(step(state, c.CreateRetry(0, run, "s1", of)), Accepted) == allowed


def finish_session(life: Life, shape: SessionShape, commits: int) -> bool:
    """A session is finished between runs; completed if and only if it has a commit.

    pre: commits >= 0
    post: __return__
    """
    state = in_session(living(life), shape)
    if shape != "none":
        state = with_session(state, commits=commits)
    outcome = step(state, c.FinishSession(0, "s1"))
    allowed = life != "active" and shape in ("open", "spent")
    if not lawful(outcome, allowed, state._replace(session=None)) or isinstance(outcome, Rejected):
        return not allowed
    closed = outcome.retired.session
    return closed is not None and closed.status == ("completed" if commits > 0 else "failed")


def run_now(obstacle: Obstacle, handler: Literal["file", "poll", "gone"], now: int) -> bool:
    """Run-now marks a handler, when the gate is open, and starts nothing.

    pre: now >= 1
    post: __return__
    """
    state = obstructed(idle(), obstacle)
    if obstacle == "backoff":
        state = state._replace(backoff_until=now + 1)
    after = with_consumer(state, dirty=True) if handler == "file" else with_producer(state, due_at=now)
    return lawful(step(state, c.RunNow(now, handler)), obstacle == "none" and handler != "gone", after)


# --- handler progress --------------------------------------------------------------------------------


def begin(kind: HandlerKind, phase: Phase, status: RunStatus) -> bool:
    """An active run begins once, from pending, and its function is called.

    post: __return__
    """
    state = scene(phase, status, kind=kind)
    outcome = step(state, c.Begin(0, "r1"))
    allowed = status == "active" and phase == "pending"
    consumer = kind == "consumer"
    if not lawful(outcome, allowed, with_run(state, phase="preparing" if consumer else "executing")):
        return False
    call = CallHandler("r1", CONSUMER, "v1", "prepare") if consumer else CallHandler("r1", PRODUCER, "v1", "producer")
    return isinstance(outcome, Rejected) or outcome.effects == (call,)


def prepared(
    phase: Phase,
    status: RunStatus,
    wanted: Literal["nothing", "pending", "reserved", "consumed", "skipped", "unknown", "foreign", "twice"],
) -> bool:
    """Prepare pins events that are pending, subscribed and named once, all or none.

    post: __return__
    """
    state = scene(phase, status, reserved=False)
    keys: tuple[Key, ...] = (INPUT,)
    match wanted:
        case "nothing":
            keys = ()
        case "reserved" | "consumed" | "skipped":
            state = with_input(state, wanted, "r0")
        case "unknown":
            keys = (INPUT, Key("mail", "m2"))
        case "foreign":
            keys = (INPUT, Key("post", "m1"))
        case "twice":
            keys = (INPUT, INPUT)
    allowed = status == "active" and phase == "preparing" and wanted in ("nothing", "pending")
    after = with_run(state, phase="prepared", reserved=keys, causes=keys)
    if wanted == "pending":
        after = with_input(after, "reserved", "r1")
    return lawful(step(state, c.Prepared(0, "r1", keys)), allowed, after)


def prepared_wake_time(now: int, asked: bool, wake_at: int) -> bool:
    """The wake time is written at prepared, 30 s to 24 h ahead, and an old one does not outlive the next prepare.

    pre: now >= 0
    post: __return__
    """
    state = with_consumer(scene("preparing", reserved=False), wake_at=5)
    outcome = step(state, c.Prepared(now, "r1", (), wake_at=wake_at if asked else None))
    if isinstance(outcome, Rejected):
        return False
    woken = outcome.state.handlers[0].wake_at
    return 30_000 <= woken - now <= 86_400_000 if asked else woken == 0


def mutating(phase: Phase, status: RunStatus, reserved: bool, has_mutate: bool) -> bool:
    """Mutate runs from prepared only, with something reserved and a consumer that has a mutate.

    post: __return__
    """
    state = scene(phase, status, reserved=reserved, has_mutate=has_mutate)
    allowed = status == "active" and phase == "prepared" and reserved and has_mutate
    return lawful(step(state, c.Mutating(0, "r1")), allowed, with_run(state, phase="mutating"))


def mutated(phase: Phase, status: RunStatus, record: Record) -> bool:
    """Mutated without a resolution only when no record exists.

    post: __return__
    """
    state = scene(phase, status, record)
    allowed = status == "active" and phase == "mutating" and record == "none"
    return lawful(step(state, c.Mutated(0, "r1")), allowed, with_run(state, phase="mutated"))


def emitting(phase: Phase, status: RunStatus, outcome: MutationOutcome, reserved: bool, has_mutate: bool) -> bool:
    """Next runs from mutated without a failure, or from prepared when there is nothing to mutate.

    post: __return__
    """
    state = scene(phase, status, "none", outcome, reserved=reserved, has_mutate=has_mutate)
    skips = phase == "prepared" and not (reserved and has_mutate)
    allowed = status == "active" and (phase == "mutated" or skips) and outcome != "failure"
    return lawful(step(state, c.Emitting(0, "r1")), allowed, with_run(state, phase="emitting"))


def commit_consumer(phase: Phase, status: RunStatus, record: Record, reserved: bool) -> bool:
    """A consumer commits from emitting only, without a record or with an applied one; its inputs are consumed then.

    post: __return__
    """
    state = with_consumer(scene(phase, status, record, reserved=reserved), transient_failures=2, logic_failures=1)
    outcome = step(state, c.CommitConsumer(0, "r1", "{}"))
    allowed = status == "active" and phase == "emitting" and record in ("none", "applied")
    if not allowed or isinstance(outcome, Rejected):
        return isinstance(outcome, Rejected) and not allowed
    after = with_session(with_consumer(without_run(state), state="{}"), commits=1)
    if reserved:
        after = with_consumer(with_input(after, "consumed", "r1"), dirty=True, transient_failures=0, logic_failures=0)
    retired = outcome.retired.run
    ended = retired is not None and retired.phase == "committed" and retired.status == "committed"
    return ended and outcome.state == after


def commit_producer(kind: HandlerKind, phase: Phase, status: RunStatus, started_at: int) -> bool:
    """A producer commits from executing only; its next time counts from this run's start.

    post: __return__
    """
    state = with_run(scene(phase, status, kind=kind, reserved=False), created_at=started_at)
    outcome = step(state, c.CommitProducer(0, "r1"))
    if status != "active" or phase != "executing" or kind != "producer":
        return isinstance(outcome, Rejected)
    after = with_session(with_producer(without_run(state), due_at=started_at + 60), commits=1)
    return lawful(outcome, True, after)


def commit_in_part(kind: HandlerKind, flaw: Literal["topic", "title", "size"]) -> bool:
    """A commit with one bad publication is rejected as a whole.

    post: __return__
    """
    state = scene("emitting" if kind == "consumer" else "executing", kind=kind)
    state = state._replace(policy=Policy(json_max_chars=4))
    good = Publication(Key("mail", "m2"), "t", "{}")
    bad = {
        "topic": Publication(Key("post", "m3"), "t", "{}"),
        "title": Publication(Key("mail", "m3"), " ", "{}"),
        "size": Publication(Key("mail", "m3"), "t", '"long"'),
    }[flaw]
    command = c.CommitConsumer if kind == "consumer" else c.CommitProducer
    whole = step(state, command(0, "r1", None, (good,)))
    return isinstance(whole, Accepted) and isinstance(step(state, command(0, "r1", None, (good, bad))), Rejected)


# --- mutation ----------------------------------------------------------------------------------------


def record_mutation(phase: Phase, status: RunStatus, record: Record, now: int, deadline_ms: int) -> bool:
    """One record per run, made by an active run in mutating, with its send window.

    pre: -2 <= deadline_ms <= 2
    post: __return__
    """
    state = scene(phase, status, record)
    allowed = status == "active" and phase == "mutating" and record == "none" and deadline_ms > 0
    send_by = now + 30_000
    made = ledger_record("pending")._replace(send_by=send_by, may_land_until=send_by + deadline_ms + 5_000)
    command = c.RecordMutation(now, "r1", TOOL, PARAMS, True, deadline_ms)
    return lawful(step(state, command), allowed, state._replace(mutation=made))


def send_mutation(phase: Phase, status: RunStatus, record: Record, now: int) -> bool:
    """A pending record is sent once, by an active run in mutating, until `send_by`.

    post: __return__
    """
    state = scene(phase, status, record)
    outcome = step(state, c.SendMutation(now, "r1"))
    allowed = status == "active" and phase == "mutating" and record == "pending" and now <= SEND_BY
    if isinstance(outcome, Rejected):
        return not allowed
    sent = outcome.effects == (Send("r1", TOOL, PARAMS, "w/r1", SEND_BY),)
    return sent and lawful(outcome, allowed, with_record(state, status="in_flight"))


def send_mutation_permission(
    grant: Literal["none", "other", "always", "ask"], approval: Literal["none", "digest", "events", "exact"]
) -> bool:
    """A call needs a grant and, where each call is asked for, the approval of exactly this call, used up by it.

    post: __return__
    """
    mode: GrantMode = "always" if grant == "always" else "ask"
    grants = () if grant == "none" else (Permission("mail.send" if grant == "other" else TOOL, mode),)
    approvals: dict[str, tuple[Request, ...]] = {
        "none": (),
        "digest": (REQUEST._replace(digest="0"),),
        "events": (REQUEST._replace(events=(INPUT, Key("mail", "m2"))),),
        "exact": (REQUEST,),
    }
    state = scene(record="pending")._replace(grants=grants, approvals=approvals[approval])
    after = with_record(state, status="in_flight")
    if approval == "exact":
        after = after._replace(approvals=())
    allowed = grant == "always" or (grant == "ask" and approval == "exact")
    return lawful(step(state, c.SendMutation(0, "r1")), allowed, after)


def may_speak(status: RunStatus, record: Record, by: Author) -> bool:
    """The call speaks of what is in flight, reconcile of what needs it; only the background once the run is over."""
    in_time = (status == "active") == (by != "reconcile")
    return in_time and record == ("in_flight" if by == "call" else "needs_reconcile")


def apply_mutation(phase: Phase, status: RunStatus, record: Record, by: Author) -> bool:
    """It happened, says who may say so: record, outcome and phase change together, and its own error is answered.

    post: __return__
    """
    state = in_trouble(scene(phase, status, record), "none" if status == "active" else "uncertain")
    outcome = step(state, c.ApplyMutation(0, "r1", by, "7"))
    allowed = phase == "mutating" and may_speak(status, record, by)
    if not allowed:
        return isinstance(outcome, Rejected)
    after = with_run(state, phase="mutated", outcome="success", result="7")._replace(error=None)
    return lawful(outcome, allowed, with_record(after, status="applied", resolved_by=by))


def fail_mutation(phase: Phase, status: RunStatus, record: Record, by: Author) -> bool:
    """It did not happen, says who may say so: the inputs are free again, and a run that is over leaves and is counted.

    post: __return__
    """
    state = in_trouble(scene(phase, status, record), "none" if status == "active" else "uncertain")
    outcome = step(state, c.FailMutation(LANDS, "r1", by, asked_at=LANDS))
    if phase != "mutating" or not may_speak(status, record, by):
        return isinstance(outcome, Rejected)
    after = with_input(state._replace(error=None), "pending")
    if status == "active":
        after = with_record(with_run(after, phase="mutated", outcome="failure"), status="failed", resolved_by=by)
    else:
        after = transient_failure(without_run(after), LANDS)
    return lawful(outcome, True, after)


def fail_mutation_time(by: Author, voided: bool, now: int, asked_at: int) -> bool:
    """A refusal counts at once, reconcile only if the call could not land any more when it was asked.

    pre: 198 <= asked_at <= 202
    post: __return__
    """
    state = scene(
        status="paused:reconciliation" if by == "reconcile" else "active",
        record="in_flight" if by == "call" else "needs_reconcile",
    )
    allowed = by == "call" or (asked_at <= now and (voided or asked_at >= LANDS))
    return isinstance(step(state, c.FailMutation(now, "r1", by, voided, asked_at)), Accepted) == allowed


def transient_failure(state: State, now: int) -> State:
    """The first in a row: ten seconds, and another look."""
    return with_consumer(state._replace(backoff_until=now + 10_000), dirty=True, transient_failures=1)


def lose_track(status: RunStatus, record: Record, reconcilable: bool, now: int) -> bool:
    """A call in the air goes to reconciliation, or to a person when its tool has none; the run goes on.

    post: __return__
    """
    state = scene(status=status, record=record)
    if record != "none":
        state = with_record(state, reconcilable=reconcilable)
    outcome = step(state, c.LoseTrack(now, "r1"))
    if status != "active" or record != "in_flight":
        return isinstance(outcome, Rejected)
    lost = "needs_reconcile" if reconcilable else "indeterminate"
    return lawful(outcome, True, with_record(state, status=lost, next_attempt_at=now))


def reconcile_retry(
    status: RunStatus, record: Record, by: Literal["inline", "reconcile"], early: bool, attempts: int, now: int
) -> bool:
    """An answer that came too early costs nothing; any other costs one of five attempts, and backs off.

    pre: 0 <= attempts <= 6
    post: __return__
    """
    state = scene(status=status, record=record)
    if record != "none":
        state = with_record(state, attempts=attempts)
    outcome = step(state, c.ReconcileRetry(now, "r1", by, early))
    if not may_speak(status, record, by):
        return isinstance(outcome, Rejected)
    if early:
        return lawful(outcome, now < LANDS, with_record(state, next_attempt_at=LANDS))
    wait = (10_000, 20_000, 40_000, 80_000, 160_000, 0, 0)[attempts]
    return lawful(outcome, attempts < 5, with_record(state, attempts=attempts + 1, next_attempt_at=now + wait))


def exhaust(status: RunStatus, record: Record, reconcilable: bool, no_method: bool, attempts: int) -> bool:
    """Reconcile gives up only when the run is over, and at the limit or without a method.

    pre: 0 <= attempts
    post: __return__
    """
    state = scene(status=status, record=record)
    if record != "none":
        state = with_record(state, attempts=attempts, reconcilable=reconcilable)
    outcome = step(state, c.Exhaust(0, "r1", no_method))
    if status == "active" or record != "needs_reconcile":
        return isinstance(outcome, Rejected)
    method = reconcilable and not no_method
    allowed = not method or attempts >= 5
    return lawful(outcome, allowed, with_record(state, status="indeterminate", reconcilable=method))


# --- the end of a run --------------------------------------------------------------------------------


def end_run(phase: Phase, record: Record, outcome: MutationOutcome, asked: EndStatus, reconcilable: bool) -> bool:
    """The boundary decides: in doubt all stays and a person is told, AFTER it stays for a retry, BEFORE it resets.

    post: __return__
    """
    state = scene(phase, "active", record, outcome)
    if record != "none":
        state = with_record(state, reconcilable=reconcilable)
    result = step(state, c.EndRun(9, "r1", asked, "m", "auth" if asked == "paused:approval" else ""))
    after = with_consumer(state._replace(session=None), dirty=True)
    if record in UNRESOLVED:
        after = with_run(after, status="paused:reconciliation", message="m")
        after = after._replace(error=Error("uncertain", "", "r1", "m", "", None))
        if record == "in_flight":
            lost = "needs_reconcile" if reconcilable else "indeterminate"
            after = with_record(after, status=lost, next_attempt_at=9)
        return lawful(result, True, after)
    if outcome in ("success", "skipped"):
        after = with_run(after, status=asked, message="m")
    else:
        after = with_input(without_run(after), "pending")
    match asked:
        case "crashed" | "paused:transient":
            after = transient_failure(after, 9)
        case "failed:logic":
            after = with_consumer(after._replace(maintenance=Maintenance("r1", CONSUMER, "m")), logic_failures=1)
        case "failed:internal":
            after = after._replace(error=Error("internal", "", "r1", "m", "", None))
        case "paused:approval":
            after = after._replace(error=Error("approval", "auth", "r1", "m", "", None))
    return lawful(result, asked != "paused:reconciliation", after)


def end_run_twice(status: RunStatus, record: Record, asked: EndStatus) -> bool:
    """A run that is over takes no further status.

    pre: status != "active"
    post: __return__
    """
    cause: ErrorCause = "auth" if asked == "paused:approval" else ""
    return isinstance(step(scene("mutating", status, record), c.EndRun(0, "r1", asked, "", cause)), Rejected)


def end_run_of_a_producer(phase: Phase, status: RunStatus, asked: EndStatus) -> bool:
    """A producer holds nothing and is never in doubt; it stays due.

    post: __return__
    """
    state = scene(phase, status, kind="producer", reserved=False)
    result = step(state, c.EndRun(0, "r1", asked, "", "auth" if asked == "paused:approval" else ""))
    if status != "active" or asked == "paused:reconciliation":
        return isinstance(result, Rejected)
    after = state._replace(session=None, run=None)
    if isinstance(result, Rejected) or asked in ("failed:logic", "failed:internal", "paused:approval"):
        return isinstance(result, Accepted) and result.state.run is None and result.state.handlers[1].due_at == 7
    return lawful(result, True, with_producer(after._replace(backoff_until=10_000), transient_failures=1))


def end_run_leaves_the_record(record: Record, inline: bool) -> bool:
    """A record that was never sent fails with its run; a failure found by the inline reconcile costs its handler one.

    pre: record not in ("in_flight", "needs_reconcile", "indeterminate", "applied")
    post: __return__
    """
    state = scene("mutated" if record == "failed" else "mutating", "active", record)
    if record == "failed":
        state = with_record(with_run(state, outcome="failure"), resolved_by="inline" if inline else "call")
    result = step(state, c.EndRun(0, "r1", "failed:internal"))
    if isinstance(result, Rejected):
        return False
    kept = result.retired.mutation
    counted = 1 if record == "failed" and inline else 0
    if record == "none":
        settled = kept is None
    else:
        never_sent = record == "pending"
        settled = kept is not None and kept.status == "failed" and (kept.resolved_by == "never_sent") == never_sent
    return settled and result.state.handlers[0].transient_failures == counted


def end_run_cause(asked: EndStatus, cause: ErrorCause, record: Record, grant: Literal["none", "always", "ask"]) -> bool:
    """A pause for approval, and no other end, names what is missing; a request only for an unsent call that needs it.

    pre: record not in ("in_flight", "needs_reconcile", "indeterminate")
    post: __return__
    """
    grants = () if grant == "none" else (Permission(TOOL, grant),)
    state = scene(record=record)._replace(grants=grants)
    result = step(state, c.EndRun(0, "r1", asked, "", cause, TOOL))
    if asked != "paused:approval":
        allowed = cause == "" and asked != "paused:reconciliation"
    elif cause == "permission":
        allowed = grant == "none"
    elif cause == "request":
        allowed = record == "pending" and grant == "ask"
    else:
        allowed = cause == "auth"
    if isinstance(result, Rejected) or not allowed:
        return isinstance(result, Rejected) and not allowed
    error = result.state.error
    if cause == "":
        return error is None or error.kind == "internal"
    return error is not None and error.kind == "approval" and error.request == (REQUEST if cause == "request" else None)


def end_run_count(counted: int, asked: Literal["paused:transient", "crashed", "failed:logic"], now: int) -> bool:
    """Five transient failures in a row back off, the sixth blocks; a third logic failure blocks.

    pre: 0 <= counted <= 6
    post: __return__
    """
    state = with_consumer(scene(), transient_failures=counted, logic_failures=counted)
    result = step(state, c.EndRun(now, "r1", asked))
    if isinstance(result, Rejected):
        return False
    error, logic = result.state.error, asked == "failed:logic"
    blocks = counted >= (2 if logic else 5)
    wait = (10_000, 20_000, 40_000, 80_000, 160_000, 0, 0)[counted]
    backs_off = result.state.backoff_until == (0 if blocks or logic else now + wait)
    blocked = error is not None and error.kind == "blocked" and error.cause == ("logic" if logic else "transient")
    repairs = len(result.effects) == (1 if logic and not blocks else 0)
    return backs_off and (blocked if blocks else error is None) and repairs


# --- a person decides about a mutation ---------------------------------------------------------------


def try_again(status: RunStatus, record: Record, reconcilable: bool, now: int) -> bool:
    """A person sends an indeterminate record back to reconcile, if there is a method, with all its attempts.

    post: __return__
    """
    state = scene(status=status, record=record)
    if record != "none":
        state = with_record(state, reconcilable=reconcilable, attempts=5)
    outcome = step(state, c.TryAgain(now, "r1"))
    if status == "active" or record != "indeterminate":
        return isinstance(outcome, Rejected)
    return lawful(outcome, reconcilable, with_record(state, status="needs_reconcile", attempts=0, next_attempt_at=now))


def didnt_happen(phase: Phase, status: RunStatus, record: Record, now: int) -> bool:
    """A person says that it did not happen: only of an indeterminate record, and only when it can not land any more.

    post: __return__
    """
    state = in_trouble(scene(phase, status, record), "uncertain")
    allowed = status != "active" and phase == "mutating" and record == "indeterminate" and now >= LANDS
    after = transient_failure(without_run(with_input(state, "pending"))._replace(error=None), now)
    return lawful(step(state, c.DidntHappen(now, "r1")), allowed, after)


def skip_mutation(phase: Phase, status: RunStatus, record: Record) -> bool:
    """A person skips an indeterminate mutation: its events are skipped at once, and next still runs.

    post: __return__
    """
    state = in_trouble(scene(phase, status, record), "uncertain")
    outcome = step(state, c.SkipMutation(0, "r1"))
    if status == "active" or phase != "mutating" or record != "indeterminate":
        return isinstance(outcome, Rejected)
    after = with_run(with_input(state, "skipped", "r1"), phase="mutated", outcome="skipped")._replace(error=None)
    return lawful(outcome, True, with_record(after, status="failed", resolved_by="user_skip"))


def assert_applied(phase: Phase, status: RunStatus, record: Record) -> bool:
    """A person says that it happened: only of an indeterminate record.

    post: __return__
    """
    state = in_trouble(scene(phase, status, record), "uncertain")
    outcome = step(state, c.AssertApplied(0, "r1", "7"))
    if status == "active" or phase != "mutating" or record != "indeterminate":
        return isinstance(outcome, Rejected)
    after = with_run(state, phase="mutated", outcome="success", result="7")._replace(error=None)
    return lawful(outcome, True, with_record(after, status="applied", resolved_by="user_assert_applied"))


def abandon(status: RunStatus, outcome: MutationOutcome, record: Record, standing: bool) -> bool:
    """A person gives up a pending retry that is AFTER: its events are consumed; error and maintenance stay.

    post: __return__
    """
    state = scene("mutated", status, record, outcome)
    if standing:
        state = in_trouble(state, "internal")._replace(maintenance=Maintenance("r1", CONSUMER, "m"))
    allowed = status != "active" and record not in UNRESOLVED and outcome in ("success", "skipped")
    return lawful(step(state, c.Abandon(0, "r1")), allowed, with_input(without_run(state), "consumed", "r1"))


# --- a person, about everything else -----------------------------------------------------------------


def skip_event(event: EventStatus, phase: Phase, status: RunStatus) -> bool:
    """A person skips a pending event, but not while its consumer is preparing.

    post: __return__
    """
    state = with_input(scene(phase, status), event, "" if event == "pending" else "r1")
    allowed = event == "pending" and not (status == "active" and phase == "preparing")
    return lawful(step(state, c.SkipEvent(0, INPUT)), allowed, with_input(state, "skipped"))


def approve(trouble: Trouble, same: bool, life: Life) -> bool:
    """An approval needs the request that stands, and answers it.

    post: __return__
    """
    state = in_trouble(living(life), trouble)
    allowed = trouble == "request" and same
    after = state._replace(error=None, approvals=(REQUEST,))
    return lawful(step(state, c.Approve(0, REQUEST.digest if same else "0")), allowed, after)


def reject(trouble: Trouble, same: bool, event: EventStatus) -> bool:
    """A rejection needs the request that stands, and skips those of its events that are still pending.

    post: __return__
    """
    state = with_input(in_trouble(idle(), trouble), event, "" if event == "pending" else "r0")
    allowed = trouble == "request" and same
    after = (with_input(state, "skipped") if event == "pending" else state)._replace(error=None)
    return lawful(step(state, c.Reject(0, REQUEST.digest if same else "0")), allowed, after)


def grant(trouble: Trouble, same: bool, mode: GrantMode) -> bool:
    """A grant is always taken, and answers the permission error that names its tool.

    post: __return__
    """
    state = in_trouble(idle(), trouble)
    tool = TOOL if same else "mail.send"
    grants = (Permission(TOOL, mode),) if same else (*state.grants, Permission(tool, mode))
    after = state._replace(grants=grants)
    if trouble == "permission" and same:
        after = after._replace(error=None)
    return lawful(step(state, c.Grant(0, tool, mode)), True, after)


def reconnect(trouble: Trouble, life: Life) -> bool:
    """Reconnecting answers an auth error, and no other.

    post: __return__
    """
    state = in_trouble(living(life), trouble)
    return lawful(step(state, c.Reconnect(0)), trouble == "auth", state._replace(error=None))


def pause(workflow: WorkflowStatus, life: Life, trouble: Trouble) -> bool:
    """A person pauses an active workflow; the run goes on, and nothing else changes.

    post: __return__
    """
    state = in_trouble(living(life), trouble)._replace(status=workflow)
    return lawful(step(state, c.Pause(0)), workflow == "active", state._replace(status="paused"))


def resume(workflow: WorkflowStatus, life: Life, trouble: Trouble) -> bool:
    """A person resumes a ready or paused workflow; no error is cleared by it.

    post: __return__
    """
    state = in_trouble(living(life), trouble)._replace(status=workflow)
    return lawful(step(state, c.Resume(0)), workflow in ("ready", "paused"), state._replace(status="active"))


def clear_error(trouble: Trouble, life: Life, record: Record) -> bool:
    """Clearing answers internal errors and blocks, but for a block that came from logic failures.

    post: __return__
    """
    state = in_trouble(living(life), trouble)._replace(mutation=None if record == "none" else ledger_record(record))
    allowed = trouble in ("internal", "blocked:transient", "blocked:host")
    return lawful(step(state, c.ClearError(0)), allowed, state._replace(error=None))


def retry(trouble: Trouble, life: Life, maintenance: bool) -> bool:
    """Retry resets counts, backoff and maintenance, clears no error but a block, and waits for the run.

    post: __return__
    """
    state = with_consumer(in_trouble(living(life), trouble), transient_failures=6, logic_failures=3)
    state = state._replace(backoff_until=99, maintenance=Maintenance("r0", CONSUMER, "") if maintenance else None)
    after = with_consumer(state, transient_failures=0, logic_failures=0)._replace(backoff_until=0, maintenance=None)
    if trouble in ("blocked:transient", "blocked:logic", "blocked:host"):
        after = after._replace(error=None)
    return lawful(step(state, c.Retry(0)), life != "active", after)


def deploy(workflow: WorkflowStatus, life: Life, trouble: Trouble, now: int) -> bool:
    """A deploy waits for the run, makes a draft ready, ends maintenance, and clears no error but a logic block.

    post: __return__
    """
    state = with_consumer(in_trouble(living(life), trouble), transient_failures=2, logic_failures=3)
    state = state._replace(status=workflow, maintenance=Maintenance("r0", CONSUMER, ""))
    handlers = tuple(h.declared for h in state.handlers)
    after = with_consumer(state, dirty=True)._replace(version="v2", maintenance=None)
    if workflow == "draft":
        after = after._replace(status="ready")
    if trouble == "blocked:logic":
        after = after._replace(error=None)
    return lawful(step(state, c.Deploy(now, "v2", ("mail",), handlers)), life != "active", after)


# --- host --------------------------------------------------------------------------------------------


def publish(event: EventStatus, known: bool, topic: Literal["mail", "post"], life: Life) -> bool:
    """A new event is appended; a known one changes while it is pending, and never after.

    post: __return__
    """
    state = with_input(living(life), event, "" if event == "pending" else "r1")
    key = Key(topic, "m1" if known else "m2")
    after = state
    if not known:
        after = after._replace(events=(*state.events, Event(key, 2, "pending", "", "new", "1", "", ())), next_seq=3)
    elif event == "pending":
        after = after._replace(events=(state.events[0]._replace(title="new", payload="1"),))
    if not known or event == "pending":
        after = with_consumer(after, dirty=True)
    return lawful(step(state, c.Publish(0, Publication(key, "new", "1"))), topic == "mail", after)


def block_workflow(life: Life, trouble: Trouble) -> bool:
    """The host blocks a workflow between runs, and never over an error that stands.

    post: __return__
    """
    state = in_trouble(living(life), trouble)
    after = state._replace(error=Error("blocked", "host", "", "m", "", None))
    return lawful(step(state, c.BlockWorkflow(0, "m")), life != "active" and trouble == "none", after)


def enter_maintenance(life: Life, record: Record, maintenance: bool) -> bool:
    """Maintenance by hand waits for the run and for the doubt, and keeps the evidence of a repair under way.

    post: __return__
    """
    under_way = Maintenance("r0", CONSUMER, "m") if maintenance else None
    state = living(life)._replace(mutation=None if record == "none" else ledger_record(record), maintenance=under_way)
    after = state._replace(maintenance=under_way or Maintenance("", "", ""))
    return lawful(step(state, c.EnterMaintenance(0)), life != "active" and record not in UNRESOLVED, after)


def exit_maintenance(life: Life, maintenance: bool, trouble: Trouble) -> bool:
    """Maintenance ends only when there is one, and takes nothing else with it.

    post: __return__
    """
    state = in_trouble(living(life), trouble)
    state = state._replace(maintenance=Maintenance("r0", CONSUMER, "m") if maintenance else None)
    return lawful(step(state, c.ExitMaintenance(0)), maintenance, state._replace(maintenance=None))


# --- canaries: false on purpose ----------------------------------------------------------------------


def canary_boundary(outcome: MutationOutcome, record: Record) -> bool:
    """False: a run without an outcome may always start over.

    post: __return__
    """
    return outcome != "" or bounds.boundary(outcome, None if record == "none" else record) == "BEFORE"


def canary_arithmetic(now: int, deadline_ms: int) -> bool:
    """False: no deadline is long enough to reach the ten-millionth millisecond.

    pre: deadline_ms > 0
    post: __return__
    """
    return numbers.send_window(now, deadline_ms, Policy())[1] != now + 10_000_000


def canary_step(phase: Phase, status: RunStatus, record: Record, now: int) -> bool:
    """False: a mutation may still be sent a moment after `send_by`.

    post: __return__
    """
    allowed = status == "active" and phase == "mutating" and record == "pending" and now <= SEND_BY + 1
    state = scene(phase, status, record)
    return isinstance(step(state, c.SendMutation(now, "r1")), Accepted) == allowed
