"""What a store is asked to write."""

import pytest
from flow import done, flow, mail
from walks import Tried

from keepkernel import Accepted, CommitConsumer, FinishSession, Prepared, Retired, step
from keepkernel.kernel.ports import Change, Done, Loaded, change_of


def test_a_change_carries_the_new_head_and_the_events_that_changed() -> None:
    preparing = flow().deployed().event("m1", "m2").run_to("preparing")
    command = preparing.command(Prepared, mail("m1"))
    accepted = step(preparing.state, command)
    change = change_of("c1", Loaded(preparing.state, 7), (command, accepted))
    assert change == Change(
        id="c1",
        workflow="w",
        base=7,
        done=(Done(command, accepted.rules, Retired()),),
        head=accepted.state._replace(events=()),
        events=accepted.state.events[:1],
    )
    assert change.version == 8


def test_a_change_hands_on_the_rows_that_left() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    committed = emitting.run_to("committed").last
    change = change_of("c1", Loaded(emitting.state, 7), (emitting.command(CommitConsumer), committed))
    assert change.done[0].retired == committed.retired
    assert committed.retired.run is not None


def test_a_change_put_on_its_base_gives_the_accepted_state(tries: list[Tried]) -> None:
    for state, command, _ in tries[::5]:
        accepted = step(state, command)
        if isinstance(accepted, Accepted):
            change = change_of("c1", Loaded(state, 1), (command, accepted))
            events = {e.key: e for e in (*state.events, *change.events)}
            assert change.head._replace(events=tuple(events.values())) == accepted.state
            assert not {*change.events} & {*state.events}


@pytest.mark.rule("HOST-011")
def test_a_change_of_several_steps_is_what_the_last_one_leaves_and_all_that_each_one_sent_into_history() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    committed = emitting.do(CommitConsumer, publications=(done("d1"),))
    closed = committed.do(FinishSession, committed.state.session.id)
    steps = ((emitting.command(CommitConsumer, publications=(done("d1"),)), committed.last),)
    steps += ((committed.command(FinishSession, committed.state.session.id), closed.last),)
    change = change_of("c1", Loaded(emitting.state, 7), *steps)
    assert (change.base, change.version) == (7, 9)
    assert change.head == closed.state._replace(events=())
    assert {event.key.id: event.status for event in change.events} == {"m1": "consumed", "d1": "pending"}
    assert [done.command for done in change.done] == [command for command, _ in steps]
    assert [done.retired for done in change.done] == [committed.last.retired, closed.last.retired]
    assert [done.rules for done in change.done] == [committed.last.rules, closed.last.rules]
