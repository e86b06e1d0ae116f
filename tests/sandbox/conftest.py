"""A warm worker for all tests of the sandbox."""

from collections.abc import Iterator

import pytest
from boxed import LIMITS, Watched


@pytest.fixture(scope="session")
def workers() -> Iterator[Watched]:
    workers = Watched(LIMITS)
    yield workers
    workers.close()
