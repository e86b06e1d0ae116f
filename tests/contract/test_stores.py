"""Every store keeps the contract."""

from pathlib import Path

import pytest
from contract.checks import Check, checks_for
from contract.places import KINDS, Kind, Place

RUNS = [(kind, check) for kind in KINDS for check in checks_for(kind)]


@pytest.mark.parametrize(("kind", "check"), RUNS, ids=[f"{kind.name}-{check.__name__}" for kind, check in RUNS])
def test_keeps_the_contract(kind: Kind, check: Check, folder: Path) -> None:
    check(Place(kind, folder))
