"""What a failure costs: counts per handler, backoff, maintenance, blocks; and how failures are classified."""

from typing import Final, Literal, NamedTuple

from .policy import backoff_ms
from .reasons import present
from .types import EndStatus, Error, ErrorCause, Handler, Maintenance, Run, State

FailureClass = Literal[
    "auth",
    "permission",
    "approval",
    "network",
    "rate_limit",
    "timeout",
    "script",
    "bad_result",
    "forbidden",
    "limit",
    "refused",
    "host",
    "connector",
    "unknown",
]
"""Where a failure arose. `refused` is the target's own definite no; `unknown` an outcome that nobody knows."""

STATUS: Final[dict[FailureClass, tuple[EndStatus, ErrorCause]]] = {
    "auth": ("paused:approval", "auth"),
    "permission": ("paused:approval", "permission"),
    "approval": ("paused:approval", "request"),
    "network": ("paused:transient", ""),
    "rate_limit": ("paused:transient", ""),
    "timeout": ("paused:transient", ""),
    "script": ("failed:logic", ""),
    "bad_result": ("failed:logic", ""),
    "forbidden": ("failed:logic", ""),
    "limit": ("failed:logic", ""),
    "refused": ("failed:logic", ""),
    "host": ("failed:internal", ""),
    "connector": ("failed:internal", ""),
    "unknown": ("paused:reconciliation", ""),
}
"""Failure class -> run status and missing approval (FAIL-001)."""

ANSWERS: Final[frozenset[FailureClass]] = frozenset({"auth", "rate_limit", "refused"})
"""Classes that a target itself can answer with; a connector may declare such an answer a definite refusal.

A target that misses a right says `auth`; `permission` is ours, and asks for a grant."""


class Classified(NamedTuple):
    status: EndStatus
    cause: ErrorCause
    certain: bool
    """It is certain that the mutation did not happen."""


def classify(failure: FailureClass, *, sent: bool, declared_refusal: bool = False) -> Classified:
    """The status that a failure asks for, and whether it proves that the mutation did not happen (FAIL-001, FAIL-002).

    Once a call is sent, only the target's own refusal proves it; an exception, a time limit or a bad result
    does not.

    >>> classify("timeout", sent=False)
    Classified(status='paused:transient', cause='', certain=True)
    >>> classify("timeout", sent=True).certain, classify("refused", sent=True, declared_refusal=True).certain
    (False, True)
    """
    status, cause = STATUS[failure]
    return Classified(status, cause, not sent or (declared_refusal and failure in ANSWERS))


def handler_row(state: State, name: str) -> Handler | None:
    for row in state.handlers:
        if row.declared.name == name:
            return row
    return None


def row_of(state: State, run: Run) -> Handler | None:
    """The row of a run's handler; None when it was removed, or replaced by one of the other kind (RETRY-004)."""
    row = handler_row(state, run.handler)
    return row if row is not None and row.declared.kind == run.kind else None


def replace_row(state: State, row: Handler) -> State:
    name = row.declared.name
    return state._replace(handlers=tuple(row if h.declared.name == name else h for h in state.handlers))


def count_transient(state: State, run: Run, now: int) -> State:
    """One more transient failure in a row: back off, or block after the last retry (FAIL-003)."""
    row = row_of(state, run)
    if row is None:  # Its consumer was removed; nothing is left to count on.
        return state
    failures = row.transient_failures + 1
    state = replace_row(state, row._replace(transient_failures=failures))
    if failures <= state.policy.transient_retries:
        wait = backoff_ms(failures, state.policy.backoff_base_ms, state.policy.backoff_max_ms)
        return state._replace(backoff_until=now + wait)
    return block(state, run, "transient")


def count_logic(state: State, run: Run) -> State:
    """One more logic failure in a row: maintenance, and a block after the last repair (FAIL-004)."""
    row = present(row_of(state, run), "handler_unknown", run.handler)
    failures = row.logic_failures + 1
    state = replace_row(state, row._replace(logic_failures=failures))
    state = state._replace(maintenance=Maintenance(run.id, run.handler, run.message))
    return state if failures < state.policy.logic_failures else block(state, run, "logic")


def block(state: State, run: Run, cause: ErrorCause) -> State:
    """Stop and ask a person; an error that stands already says more (WORK-003)."""
    if state.error is not None:
        return state
    return state._replace(error=Error("blocked", cause, run.id, run.message, "", None))
