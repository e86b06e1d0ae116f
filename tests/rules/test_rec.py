"""Recovery: what a restart does first."""

import pytest
from flow import STATIONS, Flow, flow

from keepkernel import EndRun, FinishSession, orphans, recover


def recovered(f: Flow) -> Flow:
    """Recovery to its end; each command is accepted."""
    while commands := recover(f.state, f.now):
        for command in commands:
            f = f.apply(command)
    return f


@pytest.mark.rule("REC-001")
@pytest.mark.parametrize("station", STATIONS[:-1])
def test_a_run_that_is_still_active_has_crashed(station: str) -> None:
    active = flow().deployed().event("m1").run_to(station)
    (command,) = recover(active.state, 7)
    assert isinstance(command, EndRun)
    assert command == EndRun(7, active.run.id, "crashed", "the host died")
    over = recovered(active)
    if station == "in_flight":
        assert (over.run.status, over.record.status, over.events["m1"]) == (
            "paused:reconciliation",
            "needs_reconcile",
            "reserved",
        )
    elif station in ("mutated", "emitting"):
        assert (over.run.status, over.events["m1"]) == ("crashed", "reserved")
    else:
        assert (over.run, over.events["m1"]) == (None, "pending")


@pytest.mark.rule("REC-002")
def test_an_open_session_is_closed_by_what_it_has_done() -> None:
    empty = flow().deployed().session()
    (command,) = recover(empty.state, 7)
    assert isinstance(command, FinishSession)
    assert command == FinishSession(7, "id1")
    assert recovered(empty).retired.session.status == "failed"
    committed = flow().deployed().run_to("committed")
    assert recovered(committed).retired.session.status == "completed"


@pytest.mark.rule("REC-003")
def test_recovery_may_be_cut_anywhere_and_run_twice() -> None:
    rested = flow().deployed().event("m1")
    assert recover(rested.state, rested.now) == ()
    for f in (rested.session(), rested.run_to("in_flight"), rested.run_to("emitting"), rested.after()):
        whole = recovered(f)
        assert (recover(whole.state, whole.now), whole.state.session) == ((), None)
        assert recovered(whole).state == whole.state


@pytest.mark.rule("REC-004")
def test_an_orphan_is_shown_and_never_released() -> None:
    held = flow().deployed().event("m1", "m2").run_to("prepared", "m1")
    assert orphans(held.state) == ()
    assert orphans(flow().deployed().after().state) == ()
    stray = held.state.events[0]._replace(owner="somebody")
    broken = Flow(held.state._replace(events=(stray, *held.state.events[1:])), held.now)
    assert orphans(broken.state) == (stray,)
    ended = recovered(broken)
    assert orphans(ended.state) == (stray,)
