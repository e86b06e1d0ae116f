"""What else an invariant says: each row of it broken alone."""

from typing import Any

import pytest
from flow import TOOL, done, mail

from keepkernel import (
    Accepted,
    Approve,
    BlockWorkflow,
    Command,
    CreateRun,
    Emitting,
    EnterMaintenance,
    LoseTrack,
    Outcome,
    Pause,
    Prepared,
    Publication,
    Publish,
    RecordMutation,
    SendMutation,
    State,
)
from keepkernel.kernel.events import consume, publish, reserve
from keepkernel.kernel.gate import closed
from keepkernel.kernel.ledger import (
    digest,
    lose_track,
    record_mutation,
    send_mutation,
)
from keepkernel.kernel.people import block_workflow, pause
from keepkernel.kernel.runs import (
    active_run,
    committed,
    end_run,
    end_uncertain,
    live_run,
    mutating,
    require_session,
    retry_of,
)
from keepkernel.kernel.types import (
    Key,
    Maintenance,
    Repair,
    Retired,
    Run,
    Session,
)
from keepkernel.spec import readings
from keepkernel.spec.readings import altered
from keepkernel.spec.variants import Swap

from .broken import RETRY, Case, always_open
from .driver import (
    AFTER,
    ASKED,
    COMMITTED,
    DEPLOYED,
    LATE,
    M1,
    MUTATING,
    NOW,
    PREPARED,
    PREPARING,
    RECORDED,
    SENT,
    STARTED,
    UNCERTAIN,
    ends,
    sending,
    start,
    what_was_accepted,
)


def retry_too_early(failed: Run, c: Any, version: str) -> Run:
    return retry_of(failed, c, version)._replace(phase="mutated")


def live_is_enough(state: State, run_id: str, kind: Any = None) -> Run:
    return live_run(state, run_id)


def committed_in_emitting(state: State, run: Run, *rules: str) -> Accepted:
    return committed(state, run._replace(phase="emitting"), *rules)


def pause_drops_the_run(state: State, c: Any) -> Accepted:
    return altered(pause(state, c), run=None)._replace(retired=Retired(run=state.run))


def pause_forgets_the_run(state: State, c: Any) -> Accepted:
    return altered(pause(state, c), run=None)


def any_session(state: State, session_id: str) -> Session:
    return Session(session_id, "open", 0, 0)


def mutating_forgets(state: State, c: Any) -> Accepted:
    accepted = mutating(state, c)
    return altered(accepted, run=accepted.state.run._replace(reserved=()))


def consume_renumbers(state: State) -> State:
    return state._replace(events=tuple(e._replace(seq=e.seq + 1) for e in consume(state).events))


def publish_under_one_number(state: State, publications: Any, run: str, causes: tuple[Key, ...]) -> State:
    state = publish(state, publications, run, causes)
    return state._replace(events=tuple(e._replace(seq=1) for e in state.events))


def committed_without_history(state: State, run: Run, *rules: str) -> Accepted:
    accepted = committed(state, run, *rules)
    return accepted._replace(retired=accepted.retired._replace(mutation=None))


def record_when_prepared(state: State, c: Any) -> Accepted:
    run = active_run(state, c.run)
    return altered(record_mutation(state._replace(run=run._replace(phase="mutating")), c), run=run)


def send_again(state: State, c: Any) -> Accepted:
    record = state.mutation._replace(status="pending")
    return send_mutation(state._replace(mutation=record), c)


def lost_is_sent(state: State, c: Any) -> Accepted:
    return send_mutation(state, SendMutation(c.now, c.run))


def send_late(state: State, c: Any) -> Accepted:
    return send_mutation(state, c._replace(now=state.mutation.send_by))


def send_and_keep_approval(state: State, c: Any) -> Accepted:
    return altered(send_mutation(state, c), approvals=state.approvals)


def send_unrecorded(state: State, c: Any) -> Accepted:
    return altered(send_mutation(state, c), mutation=state.mutation)


def repair_the_uncertain(state: State, run: Run, c: Any) -> Accepted:
    return end_uncertain(state, run, c)._replace(effects=(Repair(run.id, run.handler, ""),))


def every_end_is_repaired(state: State, c: Any) -> Accepted:
    return altered(end_run(state, c), maintenance=Maintenance(c.run, "file", ""))


def forget_pauses(before: State, command: Command, outcome: Outcome) -> State:
    """A runtime that loses an accepted command."""
    return before if isinstance(command, Pause) else what_was_accepted(before, command, outcome)


# --- the cases ---------------------------------------------------------------------------------------

FURTHER = (
    Case(
        pytest.mark.rule("INV-001", "PHASE-001"),
        (Swap(retry_of, retry_too_early),),
        (*AFTER, *RETRY),
        "run r2 was created at mutated",
    ),
    Case(
        pytest.mark.rule("INV-001", "PHASE-001"),
        (Swap(active_run, live_is_enough),),
        (*AFTER, Emitting(NOW, "r1")),
        "run r1 is over and went from mutated to emitting",
    ),
    Case(
        pytest.mark.rule("INV-002", "RUN-001"),
        (Swap(committed, committed_in_emitting),),
        COMMITTED,
        "run r1 is committed in emitting",
    ),
    Case(
        pytest.mark.rule("INV-004", "RUN-005"),
        (Swap(pause, pause_drops_the_run),),
        (*STARTED, Pause(NOW)),
        "run r1 vanished while it was active",
    ),
    Case(
        pytest.mark.rule("INV-004", "RUN-005"),
        (Swap(pause, pause_forgets_the_run),),
        (*STARTED, Pause(NOW)),
        "run r1 left without a trace",
    ),
    Case(
        pytest.mark.rule("INV-005", "SCHED-001"),
        (Swap(closed, always_open),),
        (*DEPLOYED, BlockWorkflow(NOW, "stop"), *start(1)),
        "run r1 started over an error (blocked)",
    ),
    Case(
        pytest.mark.rule("INV-005", "SCHED-001"),
        (Swap(closed, always_open),),
        (*DEPLOYED, EnterMaintenance(NOW), *start(1)),
        "run r1 started during maintenance",
    ),
    Case(
        pytest.mark.rule("INV-005", "SCHED-001"),
        (Swap(closed, always_open),),
        (*STARTED, ends("crashed"), *start(2)),
        "run r2 started at 1000, before 11000",
    ),
    Case(
        pytest.mark.rule("INV-005", "SCHED-001"),
        (Swap(require_session, any_session),),
        (*DEPLOYED, CreateRun(NOW, "r1", "s1", "file")),
        "run r1 started without a session that has budget left",
    ),
    Case(
        pytest.mark.rule("INV-011", "EVENT-004"),
        (Swap(mutating, mutating_forgets),),
        MUTATING,
        f"run r1 reserved {M1}, now ()",
    ),
    Case(
        pytest.mark.rule("INV-011", "EVENT-004"),
        (Swap(reserve, readings.reserve_unchecked),),
        (*PREPARING, Prepared(NOW, "r1", mail("m9"))),
        "run r1 reserved event mail/m9, which it can not have",
    ),
    Case(
        pytest.mark.rule("INV-011", "EVENT-004"),
        (Swap(reserve, readings.reserve_unchecked),),
        (*PREPARING, Publish(NOW, done("d1")), Prepared(NOW, "r1", (Key("done", "d1"),))),
        "run r1 reserved event done/d1, which it can not have",
    ),
    Case(
        pytest.mark.rule("INV-011", "EVENT-004"),
        (Swap(reserve, readings.reserve_unchecked),),
        (*PREPARING, Prepared(NOW, "r1", M1 + M1)),
        "run r1 reserved an event twice",
    ),
    Case(
        pytest.mark.rule("INV-012", "EVENT-007"),
        (Swap(consume, consume_renumbers),),
        COMMITTED,
        "event m1: number 1 to 2",
    ),
    Case(
        pytest.mark.rule("INV-012", "EVENT-007"),
        (Swap(publish, publish_under_one_number),),
        (*DEPLOYED, Publish(NOW, Publication(Key("mail", "m2"), "title of m2", "{}"))),
        "new events are numbered [1], the counter went 2 to 3",
    ),
    Case(
        pytest.mark.rule("INV-015", "MUT-001"),
        (Swap(committed, committed_without_history),),
        COMMITTED,
        "the record of run r1 (applied) is gone",
    ),
    Case(
        pytest.mark.rule("INV-016", "MUT-002"),
        (Swap(record_mutation, record_when_prepared),),
        (*PREPARED, RecordMutation(NOW, "r1", TOOL, "{}", True)),
        "a record of run r1 appeared outside an active run in mutating",
    ),
    Case(
        pytest.mark.rule("INV-018", "MUT-005"),
        (Swap(send_mutation, send_again),),
        (*SENT, SendMutation(NOW, "r1")),
        "run r1 sends without a record of its own that was not sent",
        lands=False,
    ),
    Case(
        pytest.mark.rule("INV-018", "MUT-005"),
        (Swap(lose_track, lost_is_sent),),
        (*RECORDED, LoseTrack(NOW, "r1")),
        "run r1 (active, mutating) sends at LoseTrack",
    ),
    Case(
        pytest.mark.rule("INV-018", "MUT-005"),
        (Swap(send_mutation, send_late),),
        (*RECORDED, SendMutation(LATE, "r1")),
        "run r1 sends at 501000, after 31000",
    ),
    Case(
        pytest.mark.rule("INV-018", "MUT-005"),
        (Swap(send_mutation, send_and_keep_approval),),
        (*ASKED, Approve(NOW, digest(TOOL, "{}")), *start(2), *sending("r2")),
        "the approval of sheets.append is not used up",
    ),
    Case(
        pytest.mark.rule("INV-018", "MUT-005"),
        (Swap(send_mutation, send_unrecorded),),
        SENT,
        "run r1 sends and its record does not say so",
    ),
    Case(
        pytest.mark.rule("INV-024", "BOUND-006"),
        (Swap(end_uncertain, repair_the_uncertain),),
        UNCERTAIN,
        "a repair is asked for over an unresolved record",
    ),
    Case(
        pytest.mark.rule("INV-032", "WORK-002"),
        (Swap(block_workflow, readings.block_over_anything),),
        (*DEPLOYED, BlockWorkflow(NOW, "stop"), BlockWorkflow(NOW, "stop again")),
        "error blocked/host of run none was replaced by blocked/host",
    ),
    Case(
        pytest.mark.rule("INV-033", "FAIL-004"),
        (Swap(end_run, every_end_is_repaired),),
        (*STARTED, ends("paused:transient")),
        "run r1 is paused:transient and entered maintenance",
    ),
    Case(
        pytest.mark.rule("INV-034", "STEP-002"),
        (),
        (*DEPLOYED, Pause(NOW)),
        "what is held is not what was accepted",
        hold=forget_pauses,
    ),
)
