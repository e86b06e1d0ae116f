"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# A slow machine is no failure, and the same code always gives the same verdict. Chance belongs to the fuzzers.
settings.register_profile("keepkernel", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("keepkernel")
