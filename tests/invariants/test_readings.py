"""Every reading changes the kernel, and breaks what it says it breaks where the kernel as it is breaks nothing."""

import re
from pathlib import Path

import pytest
from flow import TELL, TOOL, TOPICS

from keepkernel import (
    Abandon,
    ApplyMutation,
    AssertApplied,
    Begin,
    BlockWorkflow,
    CommitConsumer,
    CreateRetry,
    CreateRun,
    Deploy,
    DidntHappen,
    Emitting,
    ExitMaintenance,
    FailMutation,
    FinishSession,
    LoseTrack,
    Mutated,
    Pause,
    Prepared,
    Reconnect,
    RecordMutation,
    Reject,
    Resume,
    SkipEvent,
    StartSession,
)
from keepkernel.kernel.ledger import digest
from keepkernel.spec.invariants import INVARIANTS
from keepkernel.spec.readings import NOT_MODELLED, READINGS, Reading, all_swaps
from keepkernel.spec.variants import swapped

from .driver import (
    AFTER,
    ASKED,
    COMMITTED,
    DEPLOYED,
    EMITTING,
    INDETERMINATE,
    LATE,
    M1,
    NOW,
    PREPARED,
    PREPARING,
    SENT,
    STARTED,
    UNCERTAIN,
    Trace,
    ends,
    mail_again,
    play,
    sending,
    start,
)

DECISIONS = Path(__file__).resolve().parents[2] / "spec" / "13-decisions.md"
RETRIED = (*AFTER, StartSession(LATE, "s2"), CreateRetry(LATE, "r2", "s2", "r1"))


def spent_retries() -> Trace:
    """A run that is past its mutation, and whose retries fail until none is left."""
    trace = AFTER
    for n in range(2, 7):
        now = n * LATE
        retry = CreateRetry(now, f"r{n}", f"s{n}", f"r{n - 1}")
        trace = (*trace, StartSession(now, f"s{n}"), retry, ends("paused:transient", f"r{n}", now))
    return trace


TRACES: dict[str, Trace] = {
    "phase-before-ledger": UNCERTAIN,
    "empty-outcome-retried": (*STARTED, Begin(NOW, "r1"), Prepared(NOW, "r1"), Emitting(NOW, "r1"), ends("crashed")),
    "indeterminate-forgotten": (*STARTED, *sending(reconcilable=False), LoseTrack(NOW, "r1"), ends("crashed")),
    "left-in-flight": UNCERTAIN,
    "last-error-stands": (*SENT, ends("paused:approval", cause="auth")),
    "reconnect-clears-all": (*UNCERTAIN, Reconnect(NOW)),
    "block-over-anything": (*STARTED, BlockWorkflow(NOW, "stop"), ends("crashed")),
    "status-as-reported": (*SENT, ends("failed:logic")),
    "anybody-resolves": (*SENT, LoseTrack(NOW, "r1"), ApplyMutation(NOW, "r1", "reconcile")),
    "any-error-cleared": (*SENT, BlockWorkflow(NOW, "stop"), FailMutation(NOW, "r1", "call")),
    "last-write-wins": (*PREPARED, mail_again("another title")),
    "any-later-phase": (*STARTED, Mutated(NOW, "r1")),
    "commit-from-anywhere": (*STARTED, CommitConsumer(NOW, "r1")),
    "late-report-counts": (*AFTER, ends("failed:logic")),
    "failed-at-any-time": (*INDETERMINATE, DidntHappen(NOW, "r1")),
    "asserted-before-given-up": (*UNCERTAIN, AssertApplied(NOW, "r1")),
    "retry-dropped-when-spent": spent_retries(),
    "resume-clears-error": (*DEPLOYED, BlockWorkflow(NOW, "stop"), Pause(NOW), Resume(NOW)),
    "reserve-unchecked": (*PREPARING, SkipEvent(NOW, M1[0]), Prepared(NOW, "r1", M1)),
    "result-from-own-ledger": (
        *RETRIED,
        ends("paused:transient", "r2", LATE),
        StartSession(2 * LATE, "s3"),
        CreateRetry(2 * LATE, "r3", "s3", "r2"),
    ),
    "repaired-run-retried": (*PREPARED, ends("failed:logic")),
    "error-means-failed": (*SENT, LoseTrack(NOW, "r1")),
    "always-completed": (*DEPLOYED, StartSession(NOW, "s1"), FinishSession(NOW, "s1")),
    "no-gate": (*STARTED, CreateRun(NOW, "r2", "s1", "file")),
    "released-wakes-nobody": (*PREPARED, ends("crashed")),
    "never-abandoned": (*AFTER, Deploy(NOW, "v2", TOPICS, (TELL,)), Abandon(NOW, "r1")),
    "reject-leaves-inputs": (*ASKED, Reject(NOW, digest(TOOL, "{}"))),
    "failed-for-free": (*UNCERTAIN, FailMutation(LATE, "r1", "reconcile", asked_at=LATE)),
    "finish-under-a-run": (*STARTED, FinishSession(NOW, "s1")),
    "any-unresolved-record": (*SENT, LoseTrack(NOW, "r1"), ApplyMutation(NOW, "r1", "call")),
    "mutate-again": (*SENT, FailMutation(NOW, "r1", "call"), RecordMutation(NOW, "r1", TOOL, "[]", True)),
    "bug-logic-failure-orphans": (*EMITTING, ends("failed:logic")),
    "bug-two-writes": (*PREPARED, ends("crashed")),
    "bug-dead-run-holds": (*EMITTING, ends("failed:logic"), ExitMaintenance(NOW), *start(2)),
    "bug-nothing-transferred": RETRIED,
    "bug-status-alone": (*PREPARED, ends("paused:transient")),
}
"""Commands at whose end a reading shows."""


def all_readings() -> list[object]:
    return [pytest.param(reading, id=name) for name, reading in READINGS.items()]


def test_every_reading_is_shown() -> None:
    assert TRACES.keys() == READINGS.keys()


@pytest.mark.parametrize("reading", all_readings())
def test_the_reading_breaks_what_it_says(reading: Reading) -> None:
    trace = TRACES[reading.name]
    true, variant = play(trace), play(trace, *all_swaps(reading))
    assert [v for found in true.broken for v in found] == []
    assert [v for found in variant.broken[:-1] for v in found] == []
    assert true.steps[-1] != variant.steps[-1]
    if reading.breaks == "LIVE-002":
        assert variant.broken[-1] == ()
    else:
        assert reading.breaks in {v.invariant for v in variant.broken[-1]}


@pytest.mark.parametrize("reading", [r for r in READINGS.values() if r.needs], ids=lambda r: r.name)
def test_a_reading_that_needs_another_does_no_harm_alone(reading: Reading) -> None:
    trace = TRACES[reading.name]
    without = [swap for name in reading.needs for swap in READINGS[name].swaps]
    for swaps in (reading.swaps, without):
        assert [v for found in play(trace, *swaps).broken for v in found] == []


def test_every_hole_in_the_texts_is_a_reading_or_has_a_reason() -> None:
    decided = re.findall(r"^## (D\d\d) ", DECISIONS.read_text(), re.MULTILINE)
    modelled = {reading.decision for reading in READINGS.values()}
    assert modelled | NOT_MODELLED.keys() >= {f"D{n:02}" for n in range(1, 34)}
    assert modelled.isdisjoint(NOT_MODELLED)
    assert {name for name in modelled if name.startswith("D")} | NOT_MODELLED.keys() <= set(decided)


def test_bugs_are_the_five_of_the_report() -> None:
    bugs = {reading.decision for reading in READINGS.values() if reading.name.startswith("bug-")}
    assert bugs == {"B1", "B2", "B3", "B4", "B5"}


def test_what_breaks_and_what_is_needed_exists() -> None:
    for reading in READINGS.values():
        assert reading.breaks in {*INVARIANTS, "LIVE-002"}
        assert set(reading.needs) <= READINGS.keys() - {reading.name}


def test_readings_leave_the_kernel_as_it_was() -> None:
    before = play(COMMITTED)
    for reading in READINGS.values():
        with swapped(*all_swaps(reading)):
            pass
    assert play(COMMITTED) == before
