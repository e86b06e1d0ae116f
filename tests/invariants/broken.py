"""For each invariant a kernel, or a runtime around it, that breaks this one and no other."""

from typing import Any, NamedTuple

import pytest
from flow import FILE, POLL, TELL, TOOL, TOPICS

from keepkernel import (
    Abandon,
    Accepted,
    ApplyMutation,
    Approve,
    BlockWorkflow,
    Command,
    CreateRetry,
    CreateRun,
    Deploy,
    DidntHappen,
    Emitting,
    EnterMaintenance,
    FailMutation,
    FinishSession,
    LoseTrack,
    Mutated,
    Outcome,
    Pause,
    Prepared,
    RecordMutation,
    Reject,
    Rejected,
    Resume,
    SendMutation,
    SkipMutation,
    StartSession,
    State,
)
from keepkernel.kernel.boundary import side
from keepkernel.kernel.events import consume, publish, release, skip
from keepkernel.kernel.failures import count_logic, replace_row
from keepkernel.kernel.gate import closed
from keepkernel.kernel.ledger import (
    apply_mutation,
    digest,
    failed,
    lose_track,
    record_mutation,
    require_author,
    require_landed,
    settled,
)
from keepkernel.kernel.people import deploy, enter_maintenance, reject, resume
from keepkernel.kernel.runs import (
    accept,
    active_run,
    committed,
    create_run,
    emitting,
    end_run,
    end_uncertain,
    finish_session,
    handler_of,
    moved,
    mutating,
    permission,
    prepared,
    require_gate,
    retry_of,
    stopped,
)
from keepkernel.kernel.tables import CONSUMER_PHASE, MUTATION_STATUS
from keepkernel.kernel.types import (
    Event,
    Key,
    Mutation,
    MutationOutcome,
    ResolvedBy,
    Run,
)
from keepkernel.spec import readings
from keepkernel.spec.readings import altered
from keepkernel.spec.variants import Swap

from .driver import (
    AFTER,
    ASKED,
    COMMITTED,
    DEPLOYED,
    INDETERMINATE,
    LATE,
    M1,
    MUTATED,
    MUTATING,
    NOW,
    PREPARED,
    PREPARING,
    RECORDED,
    SENT,
    STARTED,
    UNCERTAIN,
    UNGRANTED,
    Hold,
    Trace,
    ends,
    mail_again,
    sending,
    start,
    what_was_accepted,
)


class Case(NamedTuple):
    mark: pytest.MarkDecorator
    """The invariant, and the rule that it watches over."""
    swaps: tuple[Swap, ...]
    trace: Trace
    row: str
    """What the violation at the end of the trace says."""
    witness: Trace = ()
    """Where the kernel as it is comes close to breaking it; the same trace when none is given."""
    lands: bool = True
    hold: Hold = what_was_accepted

    @property
    def invariant(self) -> str:
        return str(self.mark.args[0])


# --- the variants ------------------------------------------------------------------------------------


def stopped_a_phase_later(state: State, run: Run, status: Any, message: str) -> tuple[State, Run]:
    state, run = stopped(state, run, status, message)
    run = run._replace(phase="mutating" if run.phase == "prepared" else run.phase)
    return state._replace(run=run), run


def always_open(state: State, now: int) -> str:
    return ""


def release_nothing(state: State) -> State:
    return state


def republished_is_pending(state: State, publications: Any, run: str, causes: tuple[Key, ...]) -> State:
    named = {p.key for p in publications}

    def again(event: Event) -> Event:
        return event._replace(status="pending", owner="") if event.key in named else event

    state = publish(state, publications, run, causes)
    return state._replace(events=tuple(again(event) for event in state.events))


def release_after_all(state: State, c: Any) -> Accepted:
    accepted = end_run(state, c)
    return accepted._replace(state=release(accepted.state))


def mutating_releases(state: State, c: Any) -> Accepted:
    accepted = mutating(state, c)
    return accepted._replace(state=release(accepted.state))


def consume_for_good(state: State) -> State:
    kept = tuple(e for e in consume(state).events if e.status != "consumed")
    return state._replace(events=kept)


def lost_before_sent(state: State, c: Any) -> Accepted:
    record = state.mutation
    if record is None or record.status != "pending":
        return lose_track(state, c)
    return accept(state._replace(mutation=record._replace(status="needs_reconcile")), "MUT-007")


def record_anew(state: State, c: Any) -> Accepted:
    return record_mutation(state._replace(mutation=None), c)


def committed_keeps_record(state: State, run: Run, *rules: str) -> Accepted:
    return altered(committed(state, run, *rules), mutation=state.mutation)


def always_granted(state: State, tool: str) -> str:
    return "always"


def settled_without_outcome(
    state: State, run: Run, record: Mutation, outcome: MutationOutcome, resolved_by: ResolvedBy, result: str = ""
) -> State:
    return settled(state, run, record, "", resolved_by, result)


def maintained_anyway(state: State, c: Any) -> Accepted:
    accepted = enter_maintenance(state._replace(mutation=None), c)
    return altered(accepted, mutation=state.mutation)


def retry_without_result(failed: Run, c: Any, version: str) -> Run:
    return retry_of(failed, c, version)._replace(result="")


def committed_uncounted(state: State, run: Run, *rules: str) -> Accepted:
    return altered(committed(state, run, *rules), session=state.session)


def emitting_after_failure(state: State, c: Any) -> Accepted:
    run = active_run(state, c.run)
    accepted = emitting(state._replace(run=run._replace(outcome="")), c)
    return altered(accepted, run=moved(run, "emit"))


def prepared_saves_state(state: State, c: Any) -> Accepted:
    accepted = prepared(state, c)
    row = handler_of(accepted.state, "file")
    return accepted._replace(state=replace_row(accepted.state, row._replace(state=c.data)))


def internal_failure_pauses(state: State, c: Any) -> Accepted:
    return altered(end_run(state, c), status="paused")


def count_nothing(state: State, run: Run) -> State:
    return state


def count_refusals(before: State, command: Command, outcome: Outcome) -> State:
    """A runtime that takes a refused command for a failure of the handler."""
    if not isinstance(outcome, Rejected):
        return outcome.state
    rows = tuple(row._replace(transient_failures=row.transient_failures + 1) for row in before.handlers)
    return before._replace(handlers=rows)


def lost_is_applied(state: State, c: Any) -> Accepted:
    return apply_mutation(state, ApplyMutation(c.now, c.run, "call"))


def emitting_without_mutate(state: State, c: Any) -> Accepted:
    run = moved(active_run(state, c.run), "emit")
    return accept(state._replace(run=run), "PHASE-006")


def failed_called_success(state: State, run: Run, record: Mutation, resolved_by: ResolvedBy, now: int) -> Accepted:
    accepted = failed(state, run, record, resolved_by, now)
    retired = accepted.retired
    told = retired.run._replace(outcome="success") if retired.run is not None else None
    return accepted._replace(retired=retired._replace(run=told))


def stopped_as_crashed(state: State, run: Run, status: Any, message: str) -> tuple[State, Run]:
    return stopped(state, run, "crashed" if status == "failed:internal" else status, message)


def rejected_is_approved(state: State, c: Any) -> Accepted:
    return altered(reject(state, c), approvals=(state.error.request,), events=state.events)


def deployed_under_a_run(state: State, c: Any) -> Accepted:
    return altered(deploy(state._replace(run=None), c), run=state.run)


# --- the cases ---------------------------------------------------------------------------------------


def call_of(params: str) -> tuple[object, ...]:
    return TOOL, params, digest(TOOL, params), "w/r1", NOW + 30_000, NOW + 95_000


PREPARED_BY = next(trigger for (_, trigger), phase in CONSUMER_PHASE.items() if phase == "prepared")
LEAPING = {**CONSUMER_PHASE, ("pending", PREPARED_BY): "prepared"}
GIVEN_UP = (*SENT, LoseTrack(LATE, "r1"), ends("paused:transient", now=LATE))
RETRY = (StartSession(LATE, "s2"), CreateRetry(LATE, "r2", "s2", "r1"))

CASES = (
    Case(
        pytest.mark.rule("INV-001", "PHASE-001"),
        (Swap(CONSUMER_PHASE, LEAPING),),
        (*STARTED, Prepared(NOW, "r1", M1)),
        "run r1: pending to prepared",
    ),
    Case(
        pytest.mark.rule("INV-002", "RUN-001"),
        (Swap(stopped, stopped_a_phase_later),),
        (*PREPARED, ends("crashed")),
        "run r1: active/prepared to crashed/mutating",
    ),
    Case(
        pytest.mark.rule("INV-003", "RUN-002"),
        (Swap(end_run, readings.late_report_counts),),
        (*AFTER, ends("crashed")),
        "run r1: paused:transient to crashed",
    ),
    Case(
        pytest.mark.rule("INV-004", "RUN-005"),
        (Swap(create_run, readings.run_beside_a_run), Swap(require_gate, readings.no_gate)),
        (*STARTED, CreateRun(NOW, "r2", "s1", "file")),
        "run r2 started beside r1",
    ),
    Case(
        pytest.mark.rule("INV-005", "SCHED-001"),
        (Swap(closed, always_open),),
        (*DEPLOYED, StartSession(NOW, "s1"), Pause(NOW), CreateRun(NOW, "r1", "s1", "file")),
        "run r1 started while the workflow is paused",
    ),
    Case(
        pytest.mark.rule("INV-006", "EVENT-003"),
        (Swap(release, release_nothing),),
        (*PREPARED, ends("crashed")),
        "event mail/m1 is reserved by r1, which is not live",
        witness=AFTER,
    ),
    Case(
        pytest.mark.rule("INV-007", "EVENT-006"),
        (Swap(skip, consume),),
        (*INDETERMINATE, SkipMutation(NOW, "r1")),
        "event m1 (reserved, owner r1) is consumed",
        witness=(*AFTER, Abandon(NOW, "r1")),
    ),
    Case(
        pytest.mark.rule("INV-008", "EVENT-001"),
        (Swap(publish, republished_is_pending),),
        (*COMMITTED, mail_again()),
        "event m1: consumed to pending",
    ),
    Case(
        pytest.mark.rule("INV-009", "USER-001"),
        (Swap(release, skip),),
        (*PREPARED, ends("crashed")),
        "event m1 (reserved) is skipped by EndRun",
        witness=(*INDETERMINATE, SkipMutation(NOW, "r1")),
    ),
    Case(
        pytest.mark.rule("INV-010", "BOUND-005"),
        (Swap(end_run, release_after_all),),
        AFTER,
        "event m1 is released while its run is AFTER",
        witness=(*SENT, FailMutation(NOW, "r1", "call")),
    ),
    Case(
        pytest.mark.rule("INV-010", "BOUND-005"),
        (Swap(skip, release),),
        (*INDETERMINATE, SkipMutation(NOW, "r1")),
        "event m1 is released while its run is UNCERTAIN",
        witness=(*INDETERMINATE, DidntHappen(LATE, "r1")),
    ),
    Case(
        pytest.mark.rule("INV-011", "EVENT-004"),
        (Swap(mutating, mutating_releases),),
        MUTATING,
        "event m1 left run r1: pending",
        witness=(*PREPARED, mail_again()),
    ),
    Case(
        pytest.mark.rule("INV-012", "EVENT-007"),
        (Swap(consume, consume_for_good),),
        COMMITTED,
        "event m1 (reserved) is gone",
    ),
    Case(
        pytest.mark.rule("INV-013", "EVENT-010"),
        (Swap(publish, readings.last_write_wins),),
        (*PREPARED, mail_again("another title")),
        "event m1 (reserved) was rewritten",
    ),
    Case(
        pytest.mark.rule("INV-014", "SCHED-005"),
        (Swap(stopped, readings.stopped_without_a_look),),
        (*PREPARED, ends("crashed")),
        "event m1 is pending again and file is not dirty",
    ),
    Case(
        pytest.mark.rule("INV-015", "MUT-001"),
        (Swap(lose_track, lost_before_sent),),
        (*RECORDED, LoseTrack(NOW, "r1")),
        "record of run r1: pending to needs_reconcile",
    ),
    Case(
        pytest.mark.rule("INV-016", "MUT-002"),
        (Swap(record_mutation, record_anew),),
        (*RECORDED, RecordMutation(NOW, "r1", TOOL, "[]", True)),
        f"record of run r1 changed from {call_of('{}')} to {call_of('[]')}",
    ),
    Case(
        pytest.mark.rule("INV-017", "MUT-003"),
        (Swap(committed, committed_keeps_record),),
        COMMITTED,
        "record of run r1 beside run none",
    ),
    Case(
        pytest.mark.rule("INV-018", "MUT-005"),
        (Swap(permission, always_granted),),
        (*UNGRANTED, *start(1), *sending()),
        "run r1 sends sheets.append, which is granted: None",
        witness=(*RECORDED, SendMutation(LATE, "r1")),
    ),
    Case(
        pytest.mark.rule("INV-019", "MUT-008"),
        (Swap(require_author, readings.anybody_speaks),),
        (*SENT, LoseTrack(NOW, "r1"), ApplyMutation(NOW, "r1", "reconcile")),
        "reconcile speaks of run r1, which is active",
    ),
    Case(
        pytest.mark.rule("INV-019", "MUT-008"),
        (Swap(MUTATION_STATUS, readings.ANY_STATUS),),
        (*SENT, LoseTrack(NOW, "r1"), ApplyMutation(NOW, "r1", "call")),
        "call speaks of run r1, whose record is needs_reconcile",
        witness=(*UNCERTAIN, ApplyMutation(NOW, "r1", "call")),
    ),
    Case(
        pytest.mark.rule("INV-020", "MUT-009"),
        (Swap(require_landed, readings.any_time_will_do),),
        (*INDETERMINATE, DidntHappen(2 * NOW, "r1")),
        "run r1: called failed by a look at 2000, and may land until 96000",
    ),
    Case(
        pytest.mark.rule("INV-021", "MUT-010"),
        (Swap(settled, settled_without_outcome),),
        MUTATED,
        "run r1: outcome empty, ledger says success",
        witness=(*INDETERMINATE, SkipMutation(NOW, "r1")),
    ),
    Case(
        pytest.mark.rule("INV-022", "BOUND-004"),
        (Swap(side, readings.empty_is_after),),
        (*PREPARING, Prepared(NOW, "r1"), Emitting(NOW, "r1"), ends("crashed")),
        "run r1 (crashed, emitting) is pending retry and BEFORE",
        witness=AFTER,
    ),
    Case(
        pytest.mark.rule("INV-023", "BOUND-006"),
        (Swap(end_uncertain, readings.left_in_flight),),
        UNCERTAIN,
        "record of run r1 is in_flight and nobody will ask about it",
    ),
    Case(
        pytest.mark.rule("INV-024", "BOUND-006"),
        (Swap(enter_maintenance, maintained_anyway),),
        (*UNCERTAIN, EnterMaintenance(NOW)),
        "maintenance over the record of run r1",
        witness=(*SENT, ends("failed:logic")),
    ),
    Case(
        pytest.mark.rule("INV-025", "RETRY-002"),
        (Swap(retry_of, retry_without_result),),
        (*AFTER, *RETRY),
        "run r2 takes over from r1 and does not know what it knew",
    ),
    Case(
        pytest.mark.rule("INV-026", "COMMIT-002"),
        (Swap(committed, committed_uncounted),),
        COMMITTED,
        "run r1 committed and its session does not count it",
    ),
    Case(
        pytest.mark.rule("INV-027", "COMMIT-001"),
        (Swap(emitting, emitting_after_failure),),
        (*SENT, FailMutation(NOW, "r1", "call"), Emitting(NOW, "r1")),
        "run r1 is emitting with a record that is failed",
        witness=COMMITTED,
    ),
    Case(
        pytest.mark.rule("INV-028", "COMMIT-004"),
        (Swap(prepared, prepared_saves_state),),
        PREPARED,
        'handler file: state {"a":1}, should be empty',
        witness=COMMITTED,
    ),
    Case(
        pytest.mark.rule("INV-029", "SESS-003"),
        (Swap(finish_session, readings.finish_under_a_run),),
        (*STARTED, FinishSession(NOW, "s1")),
        "run r1 is active, its session s1 is not open",
    ),
    Case(
        pytest.mark.rule("INV-030", "SESS-005"),
        (Swap(finish_session, readings.always_completed),),
        (*DEPLOYED, StartSession(NOW, "s1"), FinishSession(NOW, "s1")),
        "session s1 should close as failed, closed as completed",
    ),
    Case(
        pytest.mark.rule("INV-031", "WORK-001"),
        (Swap(end_run, internal_failure_pauses),),
        (*STARTED, ends("failed:internal")),
        "EndRun: workflow active to paused",
    ),
    Case(
        pytest.mark.rule("INV-032", "WORK-002"),
        (Swap(resume, readings.resume_clears_error),),
        (*DEPLOYED, BlockWorkflow(NOW, "stop"), Pause(NOW), Resume(NOW)),
        "Resume cleared blocked/host of run none",
        witness=(*UNCERTAIN, Pause(NOW)),
    ),
    Case(
        pytest.mark.rule("INV-033", "FAIL-004"),
        (Swap(count_logic, count_nothing),),
        (*STARTED, ends("failed:logic")),
        "run r1 failed by its logic, maintenance is None",
    ),
    Case(
        pytest.mark.rule("INV-034", "STEP-002"),
        (),
        (*STARTED, Mutated(NOW, "r1")),
        "rejected with phase, and the state changed",
        hold=count_refusals,
    ),
    Case(
        pytest.mark.rule("INV-035", "MUT-009"),
        (Swap(lose_track, readings.taken_for_a_refusal),),
        (*GIVEN_UP, *start(2, 2 * LATE), *sending("r2", 2 * LATE)),
        "event m1 was applied 2 times",
    ),
    Case(
        pytest.mark.rule("INV-036", "MUT-016"),
        (Swap(lose_track, lost_is_applied),),
        (*SENT, LoseTrack(NOW, "r1")),
        "run r1 says success, and the call for event m1 never happened",
        lands=False,
        witness=MUTATED,
    ),
    Case(
        pytest.mark.rule("INV-037", "FAIL-006"),
        readings.READINGS["failed-for-free"].swaps,
        (*UNCERTAIN, FailMutation(LATE, "r1", "reconcile", asked_at=LATE)),
        "run r1: the mutation did not happen, and handler file is charged 0 times",
        witness=(*INDETERMINATE, DidntHappen(LATE, "r1")),
    ),
    Case(
        pytest.mark.rule("INV-038", "PHASE-005"),
        (Swap(emitting, emitting_without_mutate),),
        (*PREPARED, Emitting(NOW, "r1")),
        "run r1: prepared to emitting, should be mutating",
        witness=(*PREPARING, Prepared(NOW, "r1"), Emitting(NOW, "r1")),
    ),
    Case(
        pytest.mark.rule("INV-039", "MUT-010"),
        (Swap(failed, failed_called_success),),
        (*INDETERMINATE, DidntHappen(LATE, "r1")),
        "run r1: outcome success, ledger says failure",
    ),
    Case(
        pytest.mark.rule("INV-040", "RUN-007"),
        (Swap(stopped, stopped_as_crashed),),
        (*STARTED, ends("failed:internal")),
        "run r1 is crashed, reported as failed:internal, BEFORE",
        witness=UNCERTAIN,
    ),
    Case(
        pytest.mark.rule("INV-041", "PERM-004"),
        (Swap(reject, rejected_is_approved),),
        (*ASKED, Reject(NOW, digest(TOOL, "{}"))),
        "sheets.append is approved by Reject, and nobody was asked",
        witness=(*ASKED, Approve(NOW, digest(TOOL, "{}"))),
    ),
    Case(
        pytest.mark.rule("INV-042", "RUN-009"),
        (Swap(deploy, deployed_under_a_run),),
        (*STARTED, Deploy(NOW, "v2", TOPICS, (FILE, TELL, POLL))),
        "version v2 is deployed under run r1",
    ),
)
