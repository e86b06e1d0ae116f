"""The bugs that the consolidation document reports of its time: each is caught at once, and would have done harm."""

import pytest

from keepkernel import (
    Accepted,
    Begin,
    CommitConsumer,
    CreateRetry,
    ExitMaintenance,
    Prepared,
    StartSession,
)
from keepkernel.kernel.recover import orphans, recover
from keepkernel.spec.readings import READINGS

from .driver import AFTER, EMITTING, LATE, M1, NOW, PREPARED, Played, Trace, ends, play, start


def played(bug: str, trace: Trace) -> Played:
    assert [v for found in play(trace).broken for v in found] == [], "the kernel as it is breaks nothing here"
    return play(trace, *READINGS[bug].swaps)


def caught(result: Played, at: int) -> str:
    """What is said of the step at which the bug is caught; there is nothing to say before it."""
    assert [v for found in result.broken[:at] for v in found] == []
    return "\n".join(str(v) for v in result.broken[at])


def event_status(result: Played) -> str:
    return result.steps[-1].after.events[0].status


REPAIRED = (*EMITTING, ends("failed:logic"), ExitMaintenance(NOW), *start(2), Begin(NOW, "r2"))


def test_a_logic_failure_after_the_mutation_orphans_its_events() -> None:
    result = played("bug-logic-failure-orphans", REPAIRED)
    said = caught(result, len(EMITTING))
    assert "INV-006 (EVENT-003): a reserved event belongs to the live run: event mail/m1 is reserved by r1" in said
    assert "INV-025 (RETRY-002)" in said
    assert "run r1 left after its mutation, neither committed nor abandoned" in said
    assert event_status(result) == "reserved"
    assert orphans(result.steps[-1].after) == result.steps[-1].after.events[:1]


def test_status_and_release_in_two_writes_leave_a_gap() -> None:
    fresh = (*PREPARED, ends("crashed"), *start(2, LATE), Begin(LATE, "r2"), Prepared(LATE, "r2", M1))
    result = played("bug-two-writes", fresh)
    said = caught(result, len(PREPARED))
    assert said.startswith("INV-006 (EVENT-003)")
    assert "event mail/m1 is reserved by r1, which is not live" in said
    in_the_gap = result.steps[len(PREPARED)].after
    assert recover(in_the_gap, NOW) == ()
    assert event_status(result) == "reserved", "the second write came, and the event was used after all"
    assert result.broken[-1] == ()


def test_a_dead_run_in_emitting_holds_its_events() -> None:
    result = played("bug-dead-run-holds", REPAIRED)
    said = caught(result, len(EMITTING) + 3)
    assert "INV-006 (EVENT-003)" in said
    assert "INV-005 (SCHED-001)" in said
    assert "run r2 started before the pending retry r1" in said
    assert event_status(result) == "reserved"


def test_a_retry_that_does_not_take_its_events_over_consumes_nothing() -> None:
    retried = (*AFTER, StartSession(LATE, "s2"), CreateRetry(LATE, "r2", "s2", "r1"), CommitConsumer(LATE, "r2"))
    result = played("bug-nothing-transferred", retried)
    assert "event mail/m1 is reserved by r1, which is not live" in caught(result, len(AFTER) + 1)
    assert isinstance(result.steps[-1].outcome, Accepted), "the retry commits"
    assert event_status(result) == "reserved", "and its input is not consumed"
    assert play(retried).steps[-1].after.events[0].status == "consumed"


@pytest.mark.parametrize("status", ["paused:transient", "failed:internal", "crashed"])
def test_a_status_without_what_follows_from_it_is_never_recovered(status: str) -> None:
    result = played("bug-status-alone", (*PREPARED, ends(status)))
    said = caught(result, len(PREPARED))
    assert (
        "INV-022 (BOUND-004): the pending retry is past its mutation, or uncertain, and it has not committed: " in said
    )
    assert f"run r1 ({status}, prepared) is pending retry and BEFORE" in said
    after = result.steps[-1].after
    assert [type(command).__name__ for command in recover(after, NOW)] == ["FinishSession"], "the run is overlooked"
    assert event_status(result) == "reserved"
