"""Settings of the tests of the crash harness."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepkernel.fuzz.crash import fast_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is such a thing: thousands of stores are made and thrown away."""
    with tempfile.TemporaryDirectory(dir=fast_folder()) as name:
        yield Path(name)
