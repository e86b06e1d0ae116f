"""What a restart does before anything else (HOST-007)."""

from . import gate
from .commands import Command, EndRun, FinishSession
from .types import Event, State


def recover(state: State, now: int) -> tuple[Command, ...]:
    """The commands that make a state whole after its host died (REC-001, REC-002, REC-003).

    Each is one transition through `step`. Asking again after any of them, or after a crash between them,
    gives what is still missing, so recovery may be cut anywhere and run twice.
    """
    run = gate.active(state)
    if run is not None:
        return (EndRun(now, run.id, "crashed", "the host died"),)
    if state.session is not None:
        return (FinishSession(now, state.session.id),)
    return ()


def orphans(state: State) -> tuple[Event, ...]:
    """Reserved events that no live run owns: a bug to be shown, never quietly released (REC-004)."""
    owner = state.run.id if state.run else None
    return tuple(e for e in state.events if e.status == "reserved" and e.owner != owner)
