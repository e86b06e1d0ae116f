"""Which events a transition needs: a million may be pending, and a command touches a few.

`State.events` is a window. A store fills it with all events that are reserved, the oldest pending event of each
topic (for `schedule`), and the ones that `named` lists. More never changes an outcome (STEP-003).
"""

from .commands import (
    Approve,
    Command,
    CommitConsumer,
    CommitProducer,
    Prepared,
    Publish,
    Reject,
    SkipEvent,
)
from .types import Key, State


def named(state: State, command: Command) -> frozenset[Key]:
    """The events that a command names, so that the store can bring them (STEP-003)."""
    match command:
        case Prepared():
            return frozenset(command.reservations)
        case CommitConsumer() | CommitProducer():
            return frozenset(p.key for p in command.publications)
        case Publish():
            return frozenset({command.publication.key})
        case SkipEvent():
            return frozenset({command.key})
        case Reject() | Approve():
            return frozenset(state.error.request.events if state.error and state.error.request else ())
        case _:
            return frozenset()
