"""What else an invariant says: each row of it broken alone."""

from typing import Any

import pytest
from flow import FILE, POLL, TELL, TOOL, TOPICS, done, mail

from keepkernel import (
    Accepted,
    Approve,
    Begin,
    BlockWorkflow,
    Command,
    CommitConsumer,
    CreateRun,
    Deploy,
    Emitting,
    EnterMaintenance,
    LoseTrack,
    Mutated,
    Outcome,
    Pause,
    Prepared,
    Publication,
    Publish,
    RecordMutation,
    Reject,
    SendMutation,
    SkipMutation,
    StartSession,
    State,
)
from keepkernel.kernel.events import consume, publish, release, reserve, roots, skip, skip_pending
from keepkernel.kernel.gate import closed
from keepkernel.kernel.ledger import (
    digest,
    lose_track,
    record_mutation,
    send_mutation,
    skip_mutation,
)
from keepkernel.kernel.people import approve, block_workflow, pause, reject
from keepkernel.kernel.runs import (
    accept,
    active_run,
    commit_consumer,
    committed,
    emitting,
    end_run,
    end_uncertain,
    live_run,
    moved,
    mutated,
    mutating,
    require_session,
    retry_of,
    saved,
    start_session,
    status_error,
)
from keepkernel.kernel.types import (
    Key,
    Maintenance,
    Permission,
    Repair,
    Retired,
    Run,
    Session,
)
from keepkernel.spec import readings
from keepkernel.spec.readings import altered
from keepkernel.spec.variants import Swap

from .broken import RETRY, Case, always_open, release_nothing
from .driver import (
    AFTER,
    ASKED,
    COMMITTED,
    DEPLOYED,
    EMITTING,
    INDETERMINATE,
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
    mail_again,
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


def commit_moves_the_phase_alone(state: State, c: Any) -> Accepted:
    return accept(state._replace(run=moved(active_run(state, c.run), "commit")), "COMMIT-001")


def other_causes(state: State) -> State:
    return state._replace(events=tuple(e._replace(causes=(Key("spam", "s1"),)) for e in consume(state).events))


def emitting_without_result(state: State, c: Any) -> Accepted:
    accepted = emitting(state, c)
    return altered(accepted, run=accepted.state.run._replace(result=""))


def skipped_is_over(state: State, c: Any) -> Accepted:
    """There is nothing left to do, it seems, and `next` never hears of it."""
    accepted = skip_mutation(state, c)
    left = Retired(run=accepted.state.run, mutation=accepted.state.mutation)
    return altered(accepted, run=None, mutation=None)._replace(retired=left)


def commit_drops_handlers(state: State, run: Run, *rules: str) -> Accepted:
    accepted = committed(state, run, *rules)
    return altered(accepted, handlers=tuple(h for h in accepted.state.handlers if h.declared.name == run.handler))


def retry_of_old_version(failed: Run, c: Any, version: str) -> Run:
    return retry_of(failed, c, failed.version)


def emitting_elsewhere(state: State, c: Any) -> Accepted:
    accepted = emitting(state, c)
    return altered(accepted, run=accepted.state.run._replace(created_at=0))


def reserve_nothing(state: State, run: str, consumer: Any, keys: tuple[Key, ...]) -> State:
    return state


def publish_nothing(state: State, publications: Any, run: str, causes: tuple[Key, ...]) -> State:
    return state


def emitting_publishes(state: State, c: Any) -> Accepted:
    accepted = emitting(state, c)
    return accepted._replace(state=publish(accepted.state, (done("d1"),), c.run, accepted.state.run.causes))


def publish_without_causes(state: State, publications: Any, run: str, causes: tuple[Key, ...]) -> State:
    return publish(state, publications, run, ())


def no_roots(state: State, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    return ()


def committed_and_kept(state: State, run: Run, *rules: str) -> Accepted:
    accepted = committed(state, run, *rules)
    return altered(accepted, run=accepted.retired.run, mutation=state.mutation)._replace(retired=Retired())


# --- the cases ---------------------------------------------------------------------------------------


def reserve_everything(state: State, run: str, consumer: Any, keys: tuple[Key, ...]) -> State:
    return reserve(state, run, consumer, tuple(e.key for e in state.events if e.status == "pending"))


def publish_from_outside_only(state: State, publications: Any, run: str, causes: tuple[Key, ...]) -> State:
    return state if run else publish(state, publications, run, causes)


def nothing_saved(state: State, run: Run, returned: str | None) -> Any:
    return saved(state, run, None)


def session_over_session(state: State, c: Any) -> Accepted:
    return start_session(state._replace(session=None), c)


def settled_over_a_record(state: State, c: Any) -> Accepted:
    return accept(state._replace(run=moved(active_run(state, c.run), "settle")), "PHASE-008")


def reconciliation_of_the_certain(state: State, c: Any) -> Accepted:
    accepted = end_run(state, c._replace(status="crashed"))
    told = accepted.retired.run._replace(status="paused:reconciliation")
    return accepted._replace(retired=accepted.retired._replace(run=told))


def no_error_told(state: State, run: Run, c: Any) -> None:
    return None


def reject_skips_everything(state: State, c: Any) -> Accepted:
    skipped = skip_pending(state, tuple(e.key for e in state.events))
    return accept(skipped._replace(error=None), "PERM-006")


def approving_is_granting(state: State, c: Any) -> Accepted:
    return altered(approve(state, c), grants=(Permission(TOOL, "always"),))


D1 = (Key("done", "d1"),)
TOLD = (
    *DEPLOYED,
    Publish(NOW, done("d1")),
    *start(1, handler="tell"),
    Begin(NOW, "r1"),
    Prepared(NOW, "r1", D1),
    Emitting(NOW, "r1"),
    CommitConsumer(NOW, "r1"),
)

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
    Case(
        pytest.mark.rule("INV-009", "USER-001"),
        (Swap(skip, release_nothing),),
        (*INDETERMINATE, SkipMutation(NOW, "r1")),
        "event m1 stays reserved when its mutation is skipped",
    ),
    Case(
        pytest.mark.rule("INV-011", "EVENT-004"),
        (Swap(reserve, reserve_everything),),
        (*DEPLOYED, Publish(NOW, Publication(mail("m2")[0], "another", "{}")), *start(1), *sending()[:2]),
        "run r1 holds event m2, which it did not name",
    ),
    Case(
        pytest.mark.rule("INV-026", "COMMIT-002"),
        (Swap(publish, publish_from_outside_only),),
        (*EMITTING, CommitConsumer(NOW, "r1", None, (done("d1"),))),
        "run r1 committed without event d1",
    ),
    Case(
        pytest.mark.rule("INV-028", "COMMIT-004"),
        (Swap(saved, nothing_saved),),
        COMMITTED,
        'handler file: state empty, should be {"n":1}',
    ),
    Case(
        pytest.mark.rule("INV-030", "SESS-005"),
        (Swap(start_session, session_over_session),),
        (*DEPLOYED, StartSession(NOW, "s1"), StartSession(NOW, "s2")),
        "session s1 did not close, and s2 is open",
    ),
    Case(
        pytest.mark.rule("INV-038", "PHASE-005"),
        (Swap(mutated, settled_over_a_record),),
        (*SENT, Mutated(NOW, "r1")),
        "run r1 is mutated, and its record is in_flight",
    ),
    Case(
        pytest.mark.rule("INV-040", "RUN-007"),
        (Swap(end_run, reconciliation_of_the_certain),),
        (*PREPARED, ends("paused:reconciliation")),
        "run r1 is paused:reconciliation, reported as paused:reconciliation, BEFORE",
    ),
    Case(
        pytest.mark.rule("INV-040", "RUN-007"),
        (Swap(status_error, no_error_told),),
        (*STARTED, ends("failed:internal")),
        "run r1 is failed:internal, and no internal error says so",
    ),
    Case(
        pytest.mark.rule("INV-041", "PERM-004"),
        (Swap(reject, reject_skips_everything),),
        (*ASKED, Publish(NOW, Publication(mail("m2")[0], "another", "{}")), Reject(NOW, digest(TOOL, "{}"))),
        "event m2 is skipped, and the request was not about it",
    ),
    Case(
        pytest.mark.rule("INV-041", "PERM-004"),
        (Swap(approve, approving_is_granting),),
        (*ASKED, Approve(NOW, digest(TOOL, "{}"))),
        "grants are changed by Approve",
    ),
    Case(
        pytest.mark.rule("INV-002", "RUN-001"),
        (Swap(commit_consumer, commit_moves_the_phase_alone),),
        COMMITTED,
        "run r1 is active in committed",
    ),
    Case(
        pytest.mark.rule("INV-013", "EVENT-010"),
        (Swap(consume, other_causes),),
        COMMITTED,
        "event m1 has another origin",
    ),
    Case(
        pytest.mark.rule("INV-025", "RETRY-002"),
        (Swap(emitting, emitting_without_result),),
        EMITTING,
        "run r1 does not know any more what it knew",
    ),
    Case(
        pytest.mark.rule("INV-025", "RETRY-002"),
        (Swap(skip_mutation, skipped_is_over),),
        (*INDETERMINATE, SkipMutation(NOW, "r1")),
        "run r1 left after its mutation, neither committed nor abandoned",
    ),
    Case(
        pytest.mark.rule("INV-028", "COMMIT-004"),
        (Swap(committed, commit_drops_handlers),),
        COMMITTED,
        "handler tell is gone; handler poll is gone",
    ),
    Case(
        pytest.mark.rule("INV-042", "RUN-009"),
        (Swap(retry_of, retry_of_old_version),),
        (*AFTER, Deploy(NOW, "v2", TOPICS, (FILE, TELL, POLL)), *RETRY),
        "run r2 is of version v1, and v2 is deployed",
    ),
    Case(
        pytest.mark.rule("INV-042", "RUN-009"),
        (Swap(emitting, emitting_elsewhere),),
        EMITTING,
        f"run r1 was created as ('file', 'consumer', 's1', 'v1', '', {NOW}), "
        "now ('file', 'consumer', 's1', 'v1', '', 0)",
    ),
    Case(
        pytest.mark.rule("INV-011", "EVENT-004"),
        (Swap(reserve, reserve_nothing),),
        PREPARED,
        "run r1 names event m1, which it does not hold",
    ),
    Case(
        pytest.mark.rule("INV-012", "EVENT-007"),
        (Swap(publish, publish_nothing),),
        (*DEPLOYED[:-2], mail_again()),
        "event m1 was published, and is not there",
    ),
    Case(
        pytest.mark.rule("INV-012", "EVENT-007"),
        (Swap(emitting, emitting_publishes),),
        EMITTING,
        "event d1 came with Emitting, which does not publish it",
    ),
    Case(
        pytest.mark.rule("INV-013", "EVENT-010"),
        (Swap(publish, publish_without_causes),),
        (*EMITTING, CommitConsumer(NOW, "r1", None, (done("d1"),))),
        "event d1 is said to come from r1 and ()",
    ),
    Case(
        pytest.mark.rule("INV-013", "EVENT-010"),
        (Swap(roots, no_roots),),
        PREPARED,
        "run r1 has the causes (), and not those of its inputs",
    ),
    Case(
        pytest.mark.rule("INV-022", "BOUND-004"),
        (Swap(committed, committed_and_kept),),
        COMMITTED,
        "run r1 has committed, and is pending retry",
    ),
    Case(
        pytest.mark.rule("INV-026", "COMMIT-002"),
        (Swap(consume, release),),
        TOLD,
        "run r1 committed, and its event d1 is pending",
    ),
)
