"""What a store is asked to write."""

from flow import flow, mail
from walks import Tried

from keepkernel import Accepted, CommitConsumer, Prepared, Retired, step
from keepkernel.kernel.ports import Change, Loaded, change_of


def test_a_change_carries_the_new_head_and_the_events_that_changed() -> None:
    preparing = flow().deployed().event("m1", "m2").run_to("preparing")
    command = preparing.command(Prepared, mail("m1"))
    accepted = step(preparing.state, command)
    assert change_of("c1", Loaded(preparing.state, 7), command, accepted) == Change(
        id="c1",
        workflow="w",
        base=7,
        command=command,
        rules=accepted.rules,
        head=accepted.state._replace(events=()),
        events=accepted.state.events[:1],
        retired=Retired(),
    )


def test_a_change_hands_on_the_rows_that_left() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    committed = emitting.run_to("committed").last
    change = change_of("c1", Loaded(emitting.state, 7), emitting.command(CommitConsumer), committed)
    assert change.retired == committed.retired
    assert committed.retired.run is not None


def test_a_change_put_on_its_base_gives_the_accepted_state(tries: list[Tried]) -> None:
    for state, command, _ in tries[::5]:
        accepted = step(state, command)
        if isinstance(accepted, Accepted):
            change = change_of("c1", Loaded(state, 1), command, accepted)
            events = {e.key: e for e in (*state.events, *change.events)}
            assert change.head._replace(events=tuple(events.values())) == accepted.state
            assert not {*change.events} & {*state.events}
