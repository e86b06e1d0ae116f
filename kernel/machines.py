"""The machines of the model: states and edges, nothing else.

An edge is a line, `trigger = source.to(target)`. No callbacks and no guards live here; the guards are
in the transition functions, and the kernel runs on the tables that `tables.py` compiles from these classes.
A state's value is its name in every document; its attribute is its name in diagrams.
"""

from statemachine import State, StateMachine


class ConsumerPhase(StateMachine):
    """How far a consumer run has come (PHASE-001)."""

    pending = State(value="pending", initial=True)
    preparing = State(value="preparing")
    prepared = State(value="prepared")
    mutating = State(value="mutating")
    mutated = State(value="mutated")
    emitting = State(value="emitting")
    committed = State(value="committed", final=True)

    begin = pending.to(preparing)
    pin = preparing.to(prepared)
    mutate = prepared.to(mutating)
    settle = mutating.to(mutated)
    emit = prepared.to(emitting) | mutated.to(emitting)
    commit = emitting.to(committed)


class ProducerPhase(StateMachine):
    """How far a producer run has come (PHASE-002)."""

    pending = State(value="pending", initial=True)
    executing = State(value="executing")
    committed = State(value="committed", final=True)

    begin = pending.to(executing)
    commit = executing.to(committed)


class RunStatus(StateMachine):
    """Why a run stands still; everything but active is final (RUN-001)."""

    active = State(value="active", initial=True)
    paused_transient = State(value="paused:transient", final=True)
    paused_approval = State(value="paused:approval", final=True)
    paused_reconciliation = State(value="paused:reconciliation", final=True)
    failed_logic = State(value="failed:logic", final=True)
    failed_internal = State(value="failed:internal", final=True)
    crashed = State(value="crashed", final=True)
    committed = State(value="committed", final=True)

    pause_transient = active.to(paused_transient)
    pause_approval = active.to(paused_approval)
    pause_reconciliation = active.to(paused_reconciliation)
    fail_logic = active.to(failed_logic)
    fail_internal = active.to(failed_internal)
    crash = active.to(crashed)
    commit = active.to(committed)


class EventStatus(StateMachine):
    """The life of one event in a topic (EVENT-001)."""

    pending = State(value="pending", initial=True)
    reserved = State(value="reserved")
    consumed = State(value="consumed", final=True)
    skipped = State(value="skipped", final=True)

    reserve = pending.to(reserved)
    release = reserved.to(pending)
    transfer = reserved.to(reserved)
    consume = reserved.to(consumed)
    skip = reserved.to(skipped) | pending.to(skipped)


class MutationStatus(StateMachine):
    """The life of one ledger record (MUT-001)."""

    pending = State(value="pending", initial=True)
    in_flight = State(value="in_flight")
    needs_reconcile = State(value="needs_reconcile")
    indeterminate = State(value="indeterminate")
    applied = State(value="applied", final=True)
    failed = State(value="failed", final=True)

    call_sent = pending.to(in_flight)
    never_sent = pending.to(failed)
    call_applied = in_flight.to(applied)
    call_refused = in_flight.to(failed)
    lose_track = in_flight.to(needs_reconcile)
    lose_for_good = in_flight.to(indeterminate)
    reconcile_applied = needs_reconcile.to(applied)
    reconcile_failed = needs_reconcile.to(failed)
    reconcile_retry = needs_reconcile.to(needs_reconcile)
    exhaust = needs_reconcile.to(indeterminate)
    try_again = indeterminate.to(needs_reconcile)
    didnt_happen = indeterminate.to(failed)
    skip = indeterminate.to(failed)
    assert_applied = indeterminate.to(applied)


class SessionStatus(StateMachine):
    """A group of runs, for budget and display (SESS-001)."""

    open = State(value="open", initial=True)
    completed = State(value="completed", final=True)
    failed = State(value="failed", final=True)

    complete = open.to(completed)
    fail = open.to(failed)


class WorkflowStatus(StateMachine):
    """What the user wants; the system never moves it (WORK-001)."""

    draft = State(value="draft", initial=True)
    ready = State(value="ready")
    active = State(value="active")
    paused = State(value="paused")

    deploy = draft.to(ready)
    resume = ready.to(active) | paused.to(active)
    pause = active.to(paused)


MACHINES: tuple[type[StateMachine], ...] = (
    ConsumerPhase,
    ProducerPhase,
    RunStatus,
    EventStatus,
    MutationStatus,
    SessionStatus,
    WorkflowStatus,
)
