"""What a person may do."""

import pytest
from flow import flow, mail

from keepkernel import (
    Begin,
    BlockWorkflow,
    Key,
    Pause,
    Retry,
    RunNow,
    SkipEvent,
    Wait,
    schedule,
)


@pytest.mark.rule("USER-001")
def test_a_person_skips_pending_events_whatever_the_workflows_status() -> None:
    pending = flow().deployed().event("m1", "m2")
    for here in (pending, pending.do(Pause), pending.do(BlockWorkflow, "stop")):
        skipped = here.do(SkipEvent, *mail("m1"))
        assert skipped.events == {"m1": "skipped", "m2": "pending"}
        assert skipped.state.events[0].owner == ""
    pending.run_to("prepared").refuses("event_not_pending", "EVENT-004", SkipEvent, *mail("m1"))
    pending.refuses("event_unknown", "EVENT-004", SkipEvent, *mail("m9"))


@pytest.mark.rule("USER-002")
def test_an_event_is_not_skipped_while_its_consumer_prepares() -> None:
    pending = flow().deployed().event("m1").event("d1", topic="done")
    preparing = pending.run_to("preparing").refuses("preparing", "USER-002", SkipEvent, *mail("m1"))
    assert preparing.do(SkipEvent, Key("done", "d1")).events["d1"] == "skipped"
    for station in ("pending", "prepared"):
        other = pending.event("m2").run_to(station, "m2")
        assert other.do(SkipEvent, *mail("m1")).events["m1"] == "skipped"
    producer = pending.create("poll").do(Begin)
    assert producer.do(SkipEvent, *mail("m1")).events["m1"] == "skipped"


@pytest.mark.rule("USER-003")
def test_run_now_marks_a_handler_due_and_starts_nothing() -> None:
    rested = flow().deployed().run_to("committed")
    marked = rested.do(RunNow, "file")
    assert (rested.row().dirty, marked.row().dirty) == (False, True)
    assert (marked.row().due_at, marked.run) == (-1, None)
    later = flow().deployed().later(7).do(RunNow, "poll")
    assert (later.row("poll").due_at, later.row("poll").dirty) == (later.now, False)
    flow().deployed().do(Pause).refuses("workflow_not_active", "SCHED-001", RunNow, "poll")
    flow().deployed().create().refuses("run_active", "SCHED-001", RunNow, "poll")


@pytest.mark.rule("USER-004")
def test_retry_starts_afresh_and_clears_no_error_but_a_block() -> None:
    failed = flow().deployed().run_to("preparing").end("crashed")
    assert isinstance(schedule(failed.state, failed.now, "new"), Wait)
    afresh = failed.do(Retry)
    assert (afresh.state.backoff_until, afresh.row().transient_failures) == (0, 0)
    broken = flow().deployed().run_to("preparing").end("failed:logic").do(Retry)
    assert (broken.state.maintenance, broken.row().logic_failures) == (None, 0)
    for policy in ({"transient_retries": 0}, {"logic_failures": 1}):
        status = "crashed" if "transient_retries" in policy else "failed:logic"
        blocked = flow(**policy).deployed().run_to("preparing").end(status)
        assert blocked.error.kind == "blocked"
        assert blocked.do(Retry).error is None
    assert flow().deployed().do(BlockWorkflow, "stop").do(Retry).error is None
    for kept in (flow().deployed().uncertain(), flow().deployed().run_to("preparing").end("failed:internal")):
        assert kept.do(Retry).error == kept.error
    flow().deployed().create().refuses("run_active", "SCHED-001", Retry)
