"""Whether a run may start: the one predicate that `schedule` and `step` share."""

from .boundary import unresolved
from .types import Run, State


def active(state: State) -> Run | None:
    """The active run, if there is one (RUN-005)."""
    return state.run if state.run is not None and state.run.status == "active" else None


def pending_retry(state: State) -> Run | None:
    """The run that must be taken up again before anything else (RUN-005)."""
    return state.run if state.run is not None and state.run.status != "active" else None


def closed(state: State, now: int) -> str:
    """The reason why no run may start; empty when one may (SCHED-001)."""
    if active(state):
        return "run_active"
    if state.status != "active":
        return "workflow_not_active"
    if unresolved(state.mutation):
        return "mutation_unresolved"
    if state.error is not None:
        return "error_stands"
    if state.maintenance is not None:
        return "in_maintenance"
    if now < state.backoff_until:
        return "backing_off"
    return ""
