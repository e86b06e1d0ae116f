"""Sessions: groups of runs, with a budget."""

import pytest
from flow import flow

from keepkernel import CreateRetry, CreateRun, EnterMaintenance, FinishSession, Pause, Session, StartSession
from keepkernel.kernel.tables import SESSION_STATUS


@pytest.mark.rule("SESS-001")
def test_a_session_is_open_and_closes_once() -> None:
    assert {(a, b) for (a, _), b in SESSION_STATUS.items()} == {("open", "completed"), ("open", "failed")}
    opened = flow().deployed().do(StartSession, "s1")
    assert opened.state.session == Session("s1", "open", 0, 0)
    closed = opened.do(FinishSession, "s1")
    assert closed.state.session is None
    closed.refuses("session_unknown", "SESS-003", FinishSession, "s1")


@pytest.mark.rule("SESS-002")
def test_a_session_starts_when_the_gate_is_open_and_no_session_is() -> None:
    flow().deployed().session().refuses("session_open", "SESS-002", StartSession, "s2")
    flow().deployed().do(Pause).refuses("workflow_not_active", "SCHED-001", StartSession, "s1")
    flow().deployed().do(EnterMaintenance).refuses("in_maintenance", "SCHED-001", StartSession, "s1")
    flow().deployed().create().refuses("run_active", "SCHED-001", StartSession, "s2")


@pytest.mark.rule("SESS-003")
def test_a_run_needs_the_open_session_and_its_budget() -> None:
    ready = flow(session_runs=2).deployed()
    ready.refuses("session_unknown", "SESS-003", CreateRun, run="r", session="none", handler="file")
    ready.session().refuses("session_unknown", "SESS-003", CreateRun, run="r", session="other", handler="file")
    spent = ready.run_to("committed").run_to("committed")
    assert spent.state.session.runs == 2
    spent.refuses("session_spent", "SESS-003", CreateRun, run="r", session="id1", handler="file")


@pytest.mark.rule("SESS-003")
def test_a_retry_counts_as_a_run() -> None:
    after = flow(session_runs=1).deployed().after().later(10_000)
    spent = after.event("m2").retry()
    assert spent.state.session.runs == 1
    full = after.session()
    full = type(full)(full.state._replace(session=full.state.session._replace(runs=1)), full.now)
    fields = {"run": "new", "session": full.state.session.id, "retry_of": full.run.id}
    full.refuses("session_spent", "SESS-003", CreateRetry, **fields)


@pytest.mark.rule("SESS-004")
def test_a_session_is_completed_if_and_only_if_it_has_a_commit() -> None:
    empty = flow().deployed().session().do(FinishSession, "id1")
    assert empty.retired.session == Session("id1", "failed", 0, 0)
    committed = flow().deployed().run_to("committed").do(FinishSession, "id1")
    assert committed.retired.session == Session("id1", "completed", 1, 1)
    assert committed.state.session is None


@pytest.mark.rule("SESS-004")
def test_a_session_is_not_finished_under_an_active_run() -> None:
    flow().deployed().create().refuses("run_active", "SCHED-001", FinishSession, "id1")
    flow().deployed().session().refuses("session_unknown", "SESS-003", FinishSession, "other")


@pytest.mark.rule("SESS-005")
@pytest.mark.parametrize("status", ["paused:transient", "failed:logic", "failed:internal", "crashed"])
@pytest.mark.parametrize("station", ["preparing", "in_flight", "emitting"])
def test_an_end_closes_the_session_as_failed(station: str, status: str) -> None:
    running = flow().deployed().run_to("committed").event("m1").run_to(station)
    ended = running.end(status)
    assert ended.state.session is None
    assert ended.retired.session == Session("id1", "failed", 2, 1)
