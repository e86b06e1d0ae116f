"""The machines as declared, and the tables that the kernel runs on."""

from itertools import product
from typing import Any, Literal, get_args, get_origin

import pytest
from statemachine import State, StateMachine
from statemachine.exceptions import TransitionNotAllowed

from keepkernel.kernel import machines, types
from keepkernel.kernel.commands import COMMANDS, Command
from keepkernel.kernel.machines import MACHINES
from keepkernel.kernel.runs import TRIGGERS
from keepkernel.kernel.step import TRANSITIONS
from keepkernel.kernel.tables import TABLES, Nondeterminism, compile_table
from keepkernel.spec.moves import START, observed

EVERY_MACHINE = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)


def driven(machine: type[StateMachine], state: str, trigger: str) -> str | None:
    """Where a real machine goes that stands in a state and gets a trigger; None when it refuses."""
    running = machine(start_value=state)
    try:
        running.send(trigger)
    except TransitionNotAllowed:
        assert running.current_state_value == state, "a refusal changes nothing"
        return None
    return str(running.current_state_value)


@pytest.mark.rule("PHASE-001")
@pytest.mark.rule("PHASE-002")
@pytest.mark.rule("RUN-001")
@pytest.mark.rule("EVENT-001")
@pytest.mark.rule("MUT-001")
@pytest.mark.rule("SESS-001")
@pytest.mark.rule("WORK-001")
@EVERY_MACHINE
def test_the_table_goes_where_the_machine_goes(machine: type[StateMachine]) -> None:
    table = TABLES[machine.__name__]
    triggers = [event.id for event in machine.events]
    assert {trigger for _, trigger in table} == set(triggers)
    for state, trigger in product([s.value for s in machine.states], triggers):
        assert table.get((state, trigger)) == driven(machine, state, trigger), (state, trigger)


@EVERY_MACHINE
def test_a_final_state_has_no_edge(machine: type[StateMachine]) -> None:
    left = {state for state, _ in TABLES[machine.__name__]}
    assert {s.value for s in machine.states if s.final}.isdisjoint(left)
    assert {s.value for s in machine.states if not s.final} == left


@EVERY_MACHINE
def test_machines_hold_edges_and_nothing_else(machine: type[StateMachine]) -> None:
    for state in machine.states:
        for transition in state.transitions:
            assert not list(transition.cond), "guards are in the transition functions"
    callbacks = [name for name in vars(machine) if name.startswith(("on_", "before_", "after_"))]
    assert callbacks == []


def test_every_machine_has_its_table() -> None:
    declared = [m for m in vars(machines).values() if isinstance(m, type) and issubclass(m, StateMachine)]
    assert set(declared) - {StateMachine} == set(MACHINES)
    assert list(TABLES) == [machine.__name__ for machine in MACHINES]


def test_a_table_can_not_be_changed() -> None:
    table: Any = TABLES["SessionStatus"]
    with pytest.raises(TypeError):
        table["completed", "reopen"] = "open"


def test_two_edges_of_one_trigger_stop_the_import() -> None:
    class Undecided(StateMachine):
        here = State(value="here", initial=True)
        left = State(value="left", final=True)
        right = State(value="right", final=True)
        go = here.to(left) | here.to(right)

    with pytest.raises(Nondeterminism, match="left and right"):
        compile_table(Undecided)


def test_the_same_edge_twice_is_one_edge() -> None:
    class Twice(StateMachine):
        here = State(value="here", initial=True)
        there = State(value="there", final=True)
        go = here.to(there) | here.to(there)

    assert dict(compile_table(Twice)) == {("here", "go"): "there"}


def words(hint: Any) -> set[str]:
    return {word for part in get_args(hint) for word in (words(part) if get_origin(part) is Literal else {part})}


@pytest.mark.parametrize(
    ("hint", "of"),
    [
        (types.Phase, [machines.ConsumerPhase, machines.ProducerPhase]),
        (types.RunStatus, [machines.RunStatus]),
        (types.EventStatus, [machines.EventStatus]),
        (types.MutationStatus, [machines.MutationStatus]),
        (types.SessionStatus, [machines.SessionStatus]),
        (types.WorkflowStatus, [machines.WorkflowStatus]),
    ],
    ids=["phase", "run", "event", "mutation", "session", "workflow"],
)
def test_the_types_name_the_states_of_the_machines(hint: Any, of: list[type[StateMachine]]) -> None:
    assert words(hint) == {state.value for machine in of for state in machine.states}


def test_every_way_to_end_a_run_has_its_edge() -> None:
    assert set(TRIGGERS) == words(types.EndStatus)
    assert {status: TABLES["RunStatus"]["active", trigger] for status, trigger in TRIGGERS.items()} == {
        status: status for status in TRIGGERS
    }


@pytest.mark.rule("STEP-001")
def test_every_command_has_its_transition() -> None:
    assert set(TRANSITIONS) == set(get_args(Command)) == set(COMMANDS.values())
    assert {name: transition.__name__ for name, transition in zip(COMMANDS, TRANSITIONS.values(), strict=True)} == {
        name: name for name in COMMANDS
    }


def test_the_kernel_goes_along_every_edge_and_no_other() -> None:
    declared = {(name, source, target) for name, table in TABLES.items() for (source, _), target in table.items()}
    seen = {tuple(move) for moves in observed().values() for move in moves}
    assert {move for move in seen if move[1] != START} == declared
    # A retry begins at `emitting`; every other row begins where its machine does. Workflows begin outside `step`.
    first = {(m.__name__, START, m.initial_state.value) for m in MACHINES if m is not machines.WorkflowStatus}
    assert {move for move in seen if move[1] == START} == first | {("ConsumerPhase", START, "emitting")}
