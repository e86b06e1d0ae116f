"""The machines, compiled once at import to plain read-only tables.

A look-up in a table costs a five-hundredth of a transition through the interpreter, and the table can not
do anything that its machine does not declare. A test drives both side by side.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

from statemachine import StateMachine

from . import types
from .machines import (
    MACHINES,
    ConsumerPhase,
    EventStatus,
    MutationStatus,
    ProducerPhase,
    RunStatus,
    SessionStatus,
    WorkflowStatus,
)

Table = Mapping[tuple[str, str], str]
"""(state, trigger) -> next state."""


class Nondeterminism(Exception):
    """Two edges of a machine leave one state with one trigger; the kernel can not choose."""


def compile_table(machine: type[StateMachine]) -> Table:
    """Read the edges off a machine class.

    >>> compile_table(SessionStatus)["open", "complete"]
    'completed'
    """
    edges: dict[tuple[str, str], str] = {}
    for state in machine.states:
        for transition in state.transitions:
            for trigger in transition.events:
                edge = (str(state.value), str(trigger.id))
                target = str(transition.target.value)
                if edges.setdefault(edge, target) != target:
                    raise Nondeterminism(f"{machine.__name__}: {edge} leads to {edges[edge]} and {target}")
    return MappingProxyType(edges)


TABLES: Final[Mapping[str, Table]] = MappingProxyType({m.__name__: compile_table(m) for m in MACHINES})

# The values are the literal types by construction; a test compares them.
CONSUMER_PHASE: Final = cast(Mapping[tuple[str, str], types.Phase], TABLES[ConsumerPhase.__name__])
PRODUCER_PHASE: Final = cast(Mapping[tuple[str, str], types.Phase], TABLES[ProducerPhase.__name__])
RUN_STATUS: Final = cast(Mapping[tuple[str, str], types.RunStatus], TABLES[RunStatus.__name__])
EVENT_STATUS: Final = cast(Mapping[tuple[str, str], types.EventStatus], TABLES[EventStatus.__name__])
MUTATION_STATUS: Final = cast(Mapping[tuple[str, str], types.MutationStatus], TABLES[MutationStatus.__name__])
SESSION_STATUS: Final = cast(Mapping[tuple[str, str], types.SessionStatus], TABLES[SessionStatus.__name__])
WORKFLOW_STATUS: Final = cast(Mapping[tuple[str, str], types.WorkflowStatus], TABLES[WorkflowStatus.__name__])
