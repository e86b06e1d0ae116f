"""The declared machines and the tables that are compiled from them, side by side."""

import pytest
from statemachine import State, StateMachine
from statemachine.exceptions import TransitionNotAllowed

from keepkernel.kernel.machines import MACHINES
from keepkernel.kernel.tables import TABLES, Nondeterminism, compile_table

by_name = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)


@by_name
def test_no_name_hides_one_of_the_library(machine: type[StateMachine]) -> None:
    """A trigger called `send` or `prepare` would replace a method, and the machine could not run."""
    names = {state.id for state in machine.states} | {trigger.id for trigger in machine.events}
    assert sorted(name for name in names if hasattr(StateMachine, name)) == []


@by_name
def test_machine_and_table_take_the_same_edges(machine: type[StateMachine]) -> None:
    table = TABLES[machine.__name__]
    taken = {}
    for state in machine.states:
        for trigger in machine.events:
            instance = machine(start_value=state.value)
            try:
                instance.send(trigger.id)
            except TransitionNotAllowed:
                assert instance.current_state_value == state.value
            else:
                taken[state.value, trigger.id] = instance.current_state_value
    assert taken == dict(table)


def test_two_edges_with_one_trigger_are_refused() -> None:
    class Undecided(StateMachine):
        start = State(initial=True)
        left = State(final=True)
        right = State(final=True)
        go = start.to(left) | start.to(right)

    with pytest.raises(Nondeterminism, match="go"):
        compile_table(Undecided)
