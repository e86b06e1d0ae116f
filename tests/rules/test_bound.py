"""The boundary: may a run start over, must it go on, or can nobody know?"""

from typing import get_args

import pytest
from flow import flow

from keepkernel import Error, FailMutation, LoseTrack, Mutated, boundary
from keepkernel.kernel.types import MutationOutcome, MutationStatus

OUTCOMES = get_args(MutationOutcome)
RECORDS = (None, *get_args(MutationStatus))
UNRESOLVED = ("in_flight", "needs_reconcile", "indeterminate")
ENDS = ("paused:transient", "failed:logic", "failed:internal", "crashed")


@pytest.mark.rule("BOUND-001")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_unresolved_record_is_uncertain_whatever_the_outcome(outcome: str) -> None:
    assert {record for record in RECORDS if boundary(outcome, record) == "UNCERTAIN"} == {*UNRESOLVED}


@pytest.mark.rule("BOUND-002")
@pytest.mark.parametrize("record", [None, "pending", "applied", "failed"])
def test_a_success_or_a_skip_is_after(record: str | None) -> None:
    assert {outcome for outcome in OUTCOMES if boundary(outcome, record) == "AFTER"} == {"success", "skipped"}


@pytest.mark.rule("BOUND-003")
@pytest.mark.parametrize("record", [None, "pending", "applied", "failed"])
def test_everything_else_is_before(record: str | None) -> None:
    assert {outcome for outcome in OUTCOMES if boundary(outcome, record) == "BEFORE"} == {"", "failure"}


@pytest.mark.rule("BOUND-003")
@pytest.mark.parametrize("station", ["mutated", "emitting"])
def test_a_run_that_called_no_tool_may_start_over_from_any_phase(station: str) -> None:
    ended = flow().deployed().event("m1").run_to("mutating").do(Mutated).run_to(station).end("crashed")
    assert (ended.run, ended.events["m1"]) == (None, "pending")


@pytest.mark.rule("BOUND-004")
@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("station", ["pending", "preparing", "prepared", "mutating", "recorded"])
def test_an_end_before_releases_and_leaves_nothing(station: str, status: str) -> None:
    running = flow().deployed().event("m1").run_to(station)
    ended = running.end(status)
    assert (ended.run, ended.record, ended.events) == (None, None, {"m1": "pending"})
    assert ended.state.events[0].owner == ""
    assert ended.retired.run == running.run._replace(status=status)
    assert "BOUND-004" in ended.rules


@pytest.mark.rule("BOUND-004")
def test_an_end_after_a_failed_mutation_is_before_and_keeps_the_record_as_it_was() -> None:
    refused = flow().deployed().event("m1").run_to("in_flight").do(FailMutation, "call")
    ended = refused.end("failed:logic")
    assert (ended.run, ended.record, ended.retired.mutation) == (None, None, refused.record)


@pytest.mark.rule("BOUND-005")
@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("station", ["mutated", "emitting"])
def test_an_end_after_keeps_inputs_and_run(station: str, status: str) -> None:
    running = flow().deployed().event("m1").run_to(station)
    ended = running.end(status)
    assert ended.run == running.run._replace(status=status)
    assert (ended.record, ended.state.events) == (running.record, running.state.events)
    assert (ended.retired.run, ended.retired.mutation) == (None, None)
    assert "BOUND-005" in ended.rules


@pytest.mark.rule("BOUND-006")
@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("reconcilable", [True, False])
def test_an_uncertain_end_keeps_everything_and_says_so(status: str, reconcilable: bool) -> None:
    sent = flow().deployed().event("m1").run_to("in_flight", reconcilable=reconcilable)
    for running in (sent, sent.do(LoseTrack)):
        ended = running.end(status, message="connection reset")
        assert (ended.run.status, ended.run.phase) == ("paused:reconciliation", "mutating")
        assert ended.error == Error("uncertain", "", ended.run.id, "connection reset", "", None)
        assert ended.record.status == ("needs_reconcile" if reconcilable else "indeterminate")
        assert ended.state.events == running.state.events
        assert "BOUND-006" in ended.rules


@pytest.mark.rule("BOUND-006")
def test_an_uncertain_end_is_no_failure() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    for status in ENDS:
        ended = sent.end(status)
        assert (ended.row().transient_failures, ended.row().logic_failures) == (0, 0)
        assert (ended.state.maintenance, ended.state.backoff_until, ended.effects) == (None, 0, ())
    asked = sent.end("paused:approval", cause="auth", message="token expired")
    assert (asked.error.kind, asked.error.cause) == ("uncertain", "")
