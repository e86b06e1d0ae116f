"""Settings of the contract of stores."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("contract.checks")

SHARED_MEMORY = "/dev/shm"


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has one: deaths that are simulated need no disk."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None) as name:
        yield Path(name)
