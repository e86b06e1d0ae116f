"""The status of a run, and who may report about it."""

import pytest
from flow import FILE, TOPICS, flow

from keepkernel import (
    ApplyMutation,
    Begin,
    CommitConsumer,
    CommitProducer,
    CreateRetry,
    CreateRun,
    Deploy,
    Emitting,
    EndRun,
    Error,
    FinishSession,
    Mutated,
    Mutating,
    Prepared,
    RunNow,
    StartSession,
)
from keepkernel.kernel import gate

ENDS = ("paused:transient", "failed:logic", "failed:internal", "crashed")


@pytest.mark.rule("RUN-001")
@pytest.mark.parametrize("status", ENDS)
def test_a_run_ends_once_and_its_phase_stays(status: str) -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    over = emitting.end(status, message="why")
    assert (over.run.status, over.run.phase, over.run.message) == (status, "emitting", "why")
    for again in (*ENDS, "paused:reconciliation"):
        over.refuses("run_not_active", "RUN-002", EndRun, again)


@pytest.mark.rule("RUN-002")
def test_a_run_that_is_over_takes_no_reports() -> None:
    over = flow().deployed().event("m1").run_to("emitting").do(CommitConsumer)
    over.refuses("run_unknown", "RUN-003", EndRun, "crashed", run="id2")
    waiting = flow().deployed().after()
    assert waiting.run.status == "paused:transient"
    for command in (Begin, CommitConsumer):
        waiting.refuses("run_not_active", "RUN-002", command)
    waiting.refuses("run_not_active", "RUN-002", EndRun, "crashed")


@pytest.mark.rule("RUN-003")
def test_a_report_names_the_live_run() -> None:
    active = flow().deployed().create()
    active.do(Begin, run=active.run.id)
    active.refuses("run_unknown", "RUN-003", Begin, run="another")
    active.refuses("run_unknown", "RUN-003", ApplyMutation, "call", run="another")
    flow().deployed().refuses("run_unknown", "RUN-003", Begin, run="another")


@pytest.mark.rule("RUN-004")
def test_each_kind_has_its_commands_and_a_run_needs_a_deployed_handler() -> None:
    producer = flow().deployed().create("poll").do(Begin)
    for command in (Prepared, Mutating, Mutated, Emitting, CommitConsumer):
        producer.refuses("wrong_kind", "RUN-004", command)
    producer.do(CommitProducer)
    flow().deployed().run_to("emitting").refuses("wrong_kind", "RUN-004", CommitProducer)
    ready = flow().deployed().session()
    ready.refuses("handler_unknown", "RUN-004", CreateRun, run="r", session=ready.state.session.id, handler="gone")
    ready.refuses("handler_unknown", "RUN-004", RunNow, "gone")


@pytest.mark.rule("RUN-005")
def test_a_workflow_has_one_live_run_active_or_pending_retry() -> None:
    active = flow().deployed().event("m1").create()
    assert active.run.status == "active"
    assert (gate.active(active.state), gate.pending_retry(active.state)) == (active.run, None)
    session = active.state.session.id
    active.refuses("run_active", "SCHED-001", CreateRun, run="r9", session=session, handler="tell")
    active.refuses("run_active", "SCHED-001", CreateRetry, run="r9", session=session, retry_of=active.run.id)
    active.refuses("run_active", "SCHED-001", FinishSession, session)
    waiting = flow().deployed().after().later(10_000).session()
    session = waiting.state.session.id
    waiting.refuses("retry_pending", "SCHED-003", CreateRun, run="r9", session=session, handler="tell")
    assert (gate.active(waiting.state), gate.pending_retry(waiting.state)) == (None, waiting.run)
    assert waiting.retry().run.status == "active"


@pytest.mark.rule("RUN-006")
def test_ids_are_never_empty_and_a_retry_has_its_own() -> None:
    ready = flow().deployed()
    ready.refuses("id_empty", "RUN-006", StartSession, "")
    opened = ready.session()
    opened.refuses("id_empty", "RUN-006", CreateRun, run="", session="id1", handler="file")
    waiting = flow().deployed().after().later(10_000).session()
    fields = {"session": waiting.state.session.id, "retry_of": waiting.run.id}
    waiting.refuses("id_empty", "RUN-006", CreateRetry, run="", **fields)
    waiting.refuses("id_in_use", "RUN-006", CreateRetry, run=waiting.run.id, **fields)
    assert waiting.do(CreateRetry, run="fresh", **fields).run.id == "fresh"


@pytest.mark.rule("RUN-007")
def test_the_boundary_decides_what_an_end_means() -> None:
    before = flow().deployed().event("m1").run_to("recorded").end("failed:internal")
    assert (before.run, before.events["m1"]) == (None, "pending")
    after = flow().deployed().after("failed:internal")
    assert (after.run.status, after.events["m1"]) == ("failed:internal", "reserved")
    uncertain = flow().deployed().event("m1").run_to("in_flight").end("failed:internal")
    assert (uncertain.run.status, uncertain.events["m1"]) == ("paused:reconciliation", "reserved")


@pytest.mark.rule("RUN-007")
def test_a_pause_for_reconciliation_needs_something_uncertain() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    assert sent.end("paused:reconciliation").run.status == "paused:reconciliation"
    for station in ("preparing", "recorded", "mutated", "emitting"):
        here = flow().deployed().event("m1").run_to(station)
        here.refuses("not_uncertain", "RUN-007", EndRun, "paused:reconciliation")


@pytest.mark.rule("RUN-008")
def test_an_end_says_what_would_answer_it() -> None:
    preparing = flow().deployed().run_to("preparing")
    run = preparing.run.id
    internal = preparing.end("failed:internal", message="disk full")
    assert internal.error == Error("internal", "", run, "disk full", "", None)
    auth = preparing.end("paused:approval", cause="auth", tool="gmail", message="token expired")
    assert auth.error == Error("approval", "auth", run, "token expired", "gmail", None)
    permission = preparing.end("paused:approval", cause="permission", tool="gmail", message="never granted")
    assert permission.error == Error("approval", "permission", run, "never granted", "gmail", None)
    for status in ("paused:transient", "failed:logic", "crashed"):
        assert preparing.end(status).error is None


@pytest.mark.rule("RUN-008")
def test_an_approval_pause_and_no_other_names_what_is_missing() -> None:
    preparing = flow().deployed(FILE).run_to("preparing")
    preparing.refuses("cause_mismatch", "RUN-008", EndRun, "paused:approval")
    preparing.refuses("cause_mismatch", "RUN-008", EndRun, "crashed", cause="auth")
    for cause in ("transient", "logic", "host"):
        preparing.refuses("cause_mismatch", "RUN-008", EndRun, "paused:approval", cause=cause)
    uncertain = flow().deployed(FILE).event("m1").run_to("in_flight")
    for cause in ("transient", "logic", "host"):
        uncertain.refuses("cause_mismatch", "RUN-008", EndRun, "paused:approval", cause=cause)
    assert uncertain.end("paused:approval", cause="permission").run.status == "paused:reconciliation"


@pytest.mark.rule("RUN-009")
def test_a_run_carries_the_version_it_began_with_and_a_retry_the_deployed_one() -> None:
    running = flow().deployed().event("m1").create()
    assert (running.run.version, running.do(Begin).effects[0].version) == ("v1", "v1")
    running.refuses("run_active", "SCHED-001", Deploy, "v2", TOPICS, (FILE,))
    after = running.run_to("mutated").end("crashed").do(Deploy, "v2", TOPICS, (FILE,))
    assert after.run.version == "v1"
    retry = after.later(10_000).retry()
    assert (retry.run.version, retry.effects[0].version) == ("v2", "v2")
