"""The contract notices stores that are broken; one that notices nothing would be worth nothing."""

from pathlib import Path

import pytest
from contract import checks
from contract.broken import (
    BROKEN,
    AcknowledgesTooEarly,
    Broken,
    DropsOneWrite,
    ForgetsTheVersion,
    KeepsLeasesToItself,
    NeverLooksAgain,
    ReordersTwoWrites,
    ShowsAHundredAtMost,
)
from contract.checks import CHECKS, checks_for
from contract.places import KINDS, Place

from keepkernel.kernel.ports import StoreError

SQLITE = next(kind for kind in KINDS if kind.name == "sqlite")
"""The store that is spoiled: durable, and the fastest of those."""

NOTICED_BY = {
    DropsOneWrite: checks.commits_with_many_events_are_whole,
    ReordersTwoWrites: checks.a_walk_leaves_what_the_kernel_says,
    AcknowledgesTooEarly: checks.what_is_acknowledged_survives_a_death,
    ForgetsTheVersion: checks.of_two_commits_on_one_version_one_wins,
    ShowsAHundredAtMost: checks.a_run_may_hold_many_inputs,
    NeverLooksAgain: checks.what_one_writes_the_other_sees,
    KeepsLeasesToItself: checks.who_lost_the_lease_to_another_process_can_not_commit,
}
"""The check that was written for each of them; others may notice it too."""


@pytest.mark.parametrize("broken", BROKEN)
def test_is_noticed(broken: type[Broken], folder: Path) -> None:
    failed = []
    for check in checks_for(SQLITE):
        try:
            check(Place(SQLITE, folder / check.__name__, broken))
        except (AssertionError, StoreError, pytest.fail.Exception):
            failed.append(check)
    assert NOTICED_BY[broken] in failed
    assert len(failed) < len(CHECKS), "what is not broken is not blamed"


def test_nothing_is_noticed_when_nothing_is_broken(folder: Path) -> None:
    """So it is the spoiled part that the checks notice, not the wrapper."""
    for check in NOTICED_BY.values():
        check(Place(SQLITE, folder / check.__name__, Broken))
