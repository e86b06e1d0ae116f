"""Retries: what must go on goes on as a new run."""

import pytest
from flow import FILE, TELL, TOPICS, done, flow, mail

from keepkernel import (
    Abandon,
    ApplyMutation,
    CallHandler,
    CommitConsumer,
    CreateRetry,
    Declaration,
    Deploy,
    EnterMaintenance,
    Idle,
    SkipMutation,
    schedule,
)


def waiting():
    """A pending retry whose backoff is over, with an open session."""
    return flow().deployed().after().later(10_000).session()


@pytest.mark.rule("RETRY-001")
def test_only_the_pending_retry_is_retried() -> None:
    ready = waiting()
    fields = {"run": "new", "session": ready.state.session.id}
    ready.refuses("not_pending_retry", "RETRY-001", CreateRetry, **fields, retry_of="another")
    ready.refuses("session_unknown", "SESS-003", CreateRetry, run="new", session="no", retry_of=ready.run.id)
    ready.do(CreateRetry, **fields, retry_of=ready.run.id)
    nothing = flow().deployed().session()
    nothing.refuses("not_pending_retry", "RETRY-001", CreateRetry, run="new", session="id1", retry_of="id2")


@pytest.mark.rule("RETRY-001")
def test_a_retry_needs_the_gate_and_a_run_after_its_mutation() -> None:
    after = flow().deployed().after()
    after.refuses("backing_off", "SCHED-001", CreateRetry, run="new", session="any", retry_of=after.run.id)
    uncertain = flow().deployed().uncertain()
    fields = {"run": "new", "session": "any", "retry_of": uncertain.run.id}
    uncertain.refuses("mutation_unresolved", "SCHED-001", CreateRetry, **fields)
    ready = waiting()
    before = ready.state._replace(run=ready.run._replace(outcome=""))
    fields = {"run": "new", "session": ready.state.session.id, "retry_of": ready.run.id}
    type(ready)(before, ready.now).refuses("not_after", "RETRY-001", CreateRetry, **fields)


@pytest.mark.rule("RETRY-002")
def test_a_retry_starts_at_emitting_and_knows_what_the_first_run_knew() -> None:
    ready = waiting()
    retry = ready.retry()
    assert retry.run == ready.run._replace(
        id=retry.run.id,
        retry_of=ready.run.id,
        session=ready.state.session.id,
        status="active",
        phase="emitting",
        created_at=ready.now,
        message="",
    )
    assert (retry.run.outcome, retry.run.result, retry.run.data) == ("success", '"ok"', '{"a":1}')
    assert (retry.record, retry.state.session.runs) == (None, 1)
    assert retry.effects == (CallHandler(retry.run.id, "file", "v1", "next"),)
    assert (retry.retired.run, retry.retired.mutation) == (ready.run, ready.record)


@pytest.mark.rule("RETRY-002")
def test_the_result_survives_any_number_of_retries() -> None:
    retry = waiting().retry()
    for wait_ms in (20_000, 40_000, 80_000):
        failed = retry.end("paused:transient", message="again")
        retry = failed.later(wait_ms).retry()
        assert (retry.run.outcome, retry.run.result, retry.run.retry_of) == ("success", '"ok"', failed.run.id)
    committed = retry.do(CommitConsumer, publications=(done("d1"),))
    assert committed.state.events[-1].causes == mail("m1")
    assert committed.events == {"m1": "consumed", "d1": "pending"}


@pytest.mark.rule("RETRY-003")
def test_reservations_pass_to_the_retry() -> None:
    ready = waiting().event("m2")
    retry = ready.retry()
    assert [(e.status, e.owner) for e in retry.state.events] == [("reserved", retry.run.id), ("pending", "")]
    skipped = flow().deployed().uncertain(reconcilable=False).do(SkipMutation)
    assert skipped.retry().state.events == skipped.state.events


@pytest.mark.rule("RETRY-004")
@pytest.mark.parametrize("others", [(TELL,), (TELL, Declaration("file", "producer"))])
def test_a_retry_whose_handler_is_gone_waits_for_a_person(others: tuple[Declaration, ...]) -> None:
    after = flow().deployed().after().later(10_000)
    gone = after.do(Deploy, "v2", TOPICS, others)
    assert schedule(gone.state, gone.now, "new") == Idle("handler_removed")
    opened = gone.session()
    fields = {"run": "new", "session": opened.state.session.id, "retry_of": opened.run.id}
    opened.refuses("handler_removed", "RETRY-004", CreateRetry, **fields)
    back = gone.do(Deploy, "v3", TOPICS, (FILE,))
    assert back.retry().run.version == "v3"


@pytest.mark.rule("RETRY-005")
def test_a_person_may_abandon_a_pending_retry() -> None:
    after = flow().deployed().after("failed:internal")
    abandoned = after.do(Abandon)
    assert (abandoned.run, abandoned.record, abandoned.events) == (None, None, {"m1": "consumed"})
    assert abandoned.retired.run == after.run._replace(abandoned=True)
    assert abandoned.retired.mutation == after.record
    assert abandoned.error == after.error
    kept = flow().deployed().after().do(EnterMaintenance)
    left = kept.do(Abandon).state
    assert (left.maintenance, left.backoff_until) == (kept.state.maintenance, kept.state.backoff_until)
    assert left.handlers == kept.state.handlers


@pytest.mark.rule("RETRY-005")
def test_nothing_but_a_finished_run_after_its_mutation_is_abandoned() -> None:
    active = flow().deployed().event("m1").run_to("emitting")
    active.refuses("run_active", "SCHED-001", Abandon)
    uncertain = flow().deployed().uncertain().refuses("not_after", "RETRY-001", Abandon)
    uncertain.do(ApplyMutation, "reconcile").do(Abandon)
    flow().deployed().refuses("run_unknown", "RUN-003", Abandon)
