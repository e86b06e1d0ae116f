"""One boundary, one function: may this run start over, must it go on, or can nobody know?"""

from typing import Final, Literal

from .types import Mutation, MutationOutcome, MutationStatus, Run

Side = Literal["BEFORE", "AFTER", "UNCERTAIN"]

UNRESOLVED: Final[frozenset[MutationStatus]] = frozenset({"in_flight", "needs_reconcile", "indeterminate"})
"""A record that was sent, and whose outcome nobody knows."""


def boundary(outcome: MutationOutcome, record: MutationStatus | None) -> Side:
    """On which side of its mutation a run stands (BOUND-001, BOUND-002, BOUND-003).

    UNCERTAIN is asked first: a run that crashed during its call has an empty outcome too, and releasing its
    inputs would repeat the mutation.

    >>> boundary("", "in_flight"), boundary("success", "applied"), boundary("", None)
    ('UNCERTAIN', 'AFTER', 'BEFORE')
    """
    if record in UNRESOLVED:
        return "UNCERTAIN"
    if outcome in ("success", "skipped"):
        return "AFTER"
    return "BEFORE"


def unresolved(record: Mutation | None) -> bool:
    """Whether a ledger record blocks its workflow (BOUND-001)."""
    return record is not None and record.status in UNRESOLVED


def side(run: Run, record: Mutation | None) -> Side:
    """The boundary of a run with its ledger record."""
    return boundary(run.outcome, None if record is None else record.status)
