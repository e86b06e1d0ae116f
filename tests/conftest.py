"""Settings of all tests."""

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no failure, and the same code always gives the same verdict. Chance belongs to the fuzzers.
settings.register_profile("keepkernel", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("keepkernel")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write pinned results anew; then read the diff")
