"""Failures: what they prove and what they cost."""

from typing import get_args

import pytest
from flow import FILE, TELL, TOPICS, flow

from keepkernel import (
    ApplyMutation,
    Begin,
    ClearError,
    CommitConsumer,
    CommitProducer,
    Deploy,
    DidntHappen,
    Error,
    ExitMaintenance,
    FailMutation,
    LoseTrack,
    Maintenance,
    Retry,
    classify,
)
from keepkernel.kernel.failures import STATUS, FailureClass

CLASSES = {
    ("paused:approval", "auth"): {"auth"},
    ("paused:approval", "permission"): {"permission"},
    ("paused:approval", "request"): {"approval"},
    ("paused:transient", ""): {"network", "rate_limit", "timeout"},
    ("failed:logic", ""): {"script", "bad_result", "forbidden", "limit", "refused"},
    ("failed:internal", ""): {"host", "connector"},
    ("paused:reconciliation", ""): {"unknown"},
}


def counts(f, name: str = "file") -> tuple[int, int]:
    return f.row(name).transient_failures, f.row(name).logic_failures


def fails(f, status: str, times: int):
    """The same failure of a prepare again and again, waiting and repairing in between."""
    for _ in range(times):
        f = f.at(max(f.now, f.state.backoff_until))
        f = f.run_to("preparing").end(status, message="why")
        if f.state.maintenance and not f.error:
            f = f.do(Deploy, "v2", TOPICS, (FILE, TELL))
    return f


@pytest.mark.rule("FAIL-001")
@pytest.mark.parametrize("failure", get_args(FailureClass))
def test_every_class_asks_for_one_status(failure: str) -> None:
    status, cause, _ = classify(failure, sent=False)
    assert failure in CLASSES[status, cause]
    assert STATUS.keys() == {*get_args(FailureClass)} == set().union(*CLASSES.values())


@pytest.mark.rule("FAIL-002")
@pytest.mark.parametrize("failure", get_args(FailureClass))
def test_once_sent_only_the_targets_own_refusal_is_certain(failure: str) -> None:
    assert classify(failure, sent=False).certain
    assert classify(failure, sent=False, declared_refusal=True).certain
    assert not classify(failure, sent=True).certain
    definite = failure in ("auth", "rate_limit", "refused")
    assert classify(failure, sent=True, declared_refusal=True).certain == definite


@pytest.mark.rule("FAIL-003")
@pytest.mark.parametrize("status", ["paused:transient", "crashed"])
def test_transient_failures_back_off_and_then_block(status: str) -> None:
    waits = []
    for times in range(1, 6):
        failed = fails(flow().deployed(), status, times)
        assert (counts(failed), failed.error) == ((times, 0), None)
        waits.append(failed.state.backoff_until - failed.now)
    assert waits == [10_000, 20_000, 40_000, 80_000, 160_000]
    blocked = fails(flow().deployed(), status, 6)
    assert blocked.error == Error("blocked", "transient", blocked.retired.run.id, "why", "", None)
    assert blocked.state.backoff_until == blocked.now
    assert fails(blocked.do(ClearError), status, 1).error.cause == "transient"


@pytest.mark.rule("FAIL-003")
def test_the_backoff_has_a_limit_and_counts_are_per_handler() -> None:
    short = flow(backoff_base_ms=30, backoff_max_ms=50).deployed()
    assert [f.state.backoff_until - f.now for f in (fails(short, "crashed", n) for n in (1, 2, 3))] == [30, 50, 50]
    other = fails(flow().deployed(), "crashed", 2).later(20_000).create("tell").end("crashed")
    assert (counts(other), counts(other, "tell")) == ((2, 0), (1, 0))
    assert other.state.backoff_until - other.now == 10_000


@pytest.mark.rule("FAIL-003")
def test_a_block_after_an_application_keeps_the_pending_retry() -> None:
    blocked = flow(transient_retries=0).deployed().after()
    assert (blocked.error.kind, blocked.error.cause) == ("blocked", "transient")
    assert (blocked.run.outcome, blocked.events["m1"], blocked.state.backoff_until) == ("success", "reserved", 0)


@pytest.mark.rule("FAIL-004")
def test_logic_failures_set_maintenance_and_the_third_blocks() -> None:
    once = flow().deployed().run_to("preparing").end("failed:logic", message="why")
    assert once.state.maintenance == Maintenance(once.retired.run.id, "file", "why")
    assert (counts(once), once.error, once.state.backoff_until) == ((0, 1), None, 0)
    twice = fails(flow().deployed(), "failed:logic", 2)
    assert (counts(twice), twice.error) == ((0, 2), None)
    thrice = fails(flow().deployed(), "failed:logic", 3)
    assert thrice.error == Error("blocked", "logic", thrice.retired.run.id, "why", "", None)
    assert (thrice.state.maintenance.run, thrice.effects) == (thrice.retired.run.id, ())


@pytest.mark.rule("FAIL-004")
def test_no_other_end_sets_maintenance_or_counts_as_logic() -> None:
    for status in ("paused:transient", "failed:internal", "crashed"):
        ended = flow().deployed().run_to("preparing").end(status)
        assert (ended.state.maintenance, ended.row().logic_failures) == (None, 0)
    assert counts(flow().deployed().run_to("preparing").end("failed:internal")) == (0, 0)
    asked = flow().deployed().run_to("preparing").end("paused:approval", cause="auth")
    assert counts(asked) == (0, 0)


@pytest.mark.rule("FAIL-005")
def test_a_commit_that_reserved_something_resets_the_counts_of_its_handler() -> None:
    failed = fails(fails(flow().deployed(), "crashed", 1), "failed:logic", 1).later(10_000)
    failed = failed.create("tell").end("crashed").later(10_000)
    assert (counts(failed), counts(failed, "tell")) == ((1, 1), (1, 0))
    assert counts(failed.run_to("emitting").do(CommitConsumer)) == (1, 1)
    committed = failed.event("m1").run_to("committed")
    assert (counts(committed), counts(committed, "tell")) == ((0, 0), (1, 0))
    assert counts(failed.do(Deploy, "v3", TOPICS, (FILE, TELL))) == (1, 1)
    reset = failed.do(Retry)
    assert (counts(reset), counts(reset, "tell")) == ((0, 0), (0, 0))


@pytest.mark.rule("FAIL-005")
def test_every_commit_of_a_producer_resets_its_counts() -> None:
    crashed = flow().deployed().create("poll").end("crashed").later(10_000).create("poll").do(Begin)
    failed = crashed.end("failed:logic").do(ExitMaintenance)
    assert counts(failed, "poll") == (1, 1)
    assert counts(failed.create("poll").do(Begin).do(CommitProducer), "poll") == (0, 0)


@pytest.mark.rule("FAIL-006")
def test_a_mutation_found_failed_counts_as_one_transient_failure() -> None:
    over = flow().deployed().uncertain().landed()
    assert counts(over) == (0, 0)
    failed = over.do(FailMutation, "reconcile")
    assert (counts(failed), failed.state.backoff_until) == ((1, 0), failed.now + 10_000)
    denied = flow().deployed().uncertain(reconcilable=False).landed().do(DidntHappen)
    assert (counts(denied), denied.state.backoff_until) == ((1, 0), denied.now + 10_000)
    last = flow(transient_retries=0).deployed().uncertain().landed().do(FailMutation, "reconcile")
    assert (last.error.kind, last.error.cause) == ("blocked", "transient")


@pytest.mark.rule("FAIL-006")
@pytest.mark.parametrize(
    ("status", "cost"),
    [("paused:transient", (1, 0)), ("crashed", (1, 0)), ("failed:logic", (1, 1)), ("failed:internal", (1, 0))],
)
def test_an_inline_failure_counts_once_at_the_end_of_its_run(status: str, cost: tuple[int, int]) -> None:
    lost = flow().deployed().event("m1").run_to("in_flight").do(LoseTrack).landed()
    failed = lost.do(FailMutation, "inline")
    assert counts(failed) == (0, 0)
    assert counts(failed.end(status)) == cost
    refused = flow().deployed().event("m1").run_to("in_flight").do(FailMutation, "call")
    assert counts(refused.end("failed:logic")) == (0, 1)
    applied = lost.do(ApplyMutation, "inline")
    assert counts(applied.end("failed:internal")) == (0, 0)


@pytest.mark.rule("FAIL-006")
def test_nothing_is_counted_for_a_handler_that_is_gone() -> None:
    gone = flow().deployed().uncertain().landed().do(Deploy, "v2", TOPICS, (TELL,))
    failed = gone.do(FailMutation, "reconcile")
    assert (failed.events["m1"], failed.state.backoff_until, failed.error) == ("pending", 0, None)
