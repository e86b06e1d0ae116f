"""Settings of all tests."""

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no failure, and the same code always gives the same verdict. Chance belongs to the fuzzers.
settings.register_profile("keepkernel", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("keepkernel")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write pinned results anew; then read the diff")
    parser.addoption("--campaign", action="store_true", help="run also the tests that take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `campaign` take minutes: they run when asked for, and are counted as skipped otherwise."""
    if not config.getoption("--campaign"):
        for item in items:
            if item.get_closest_marker("campaign"):
                item.add_marker(pytest.mark.skip(reason="takes minutes: run it with --campaign"))
