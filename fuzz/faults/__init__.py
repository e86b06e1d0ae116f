"""Seeded faults: what a real team could get wrong in the kernel, a store, the host, the service
around it or the sandbox.

`CATALOGUE[name].installed()` puts one in place for as long as a `with` block lasts. Nothing that looks for faults may
know them: it is handed a broken system and must find out by itself.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from . import hosts, kernel, sandboxes, services, stores
from .base import Fault, Level, all_by_name

CATALOGUE: Final[Mapping[str, Fault]] = MappingProxyType(
    all_by_name(kernel.FAULTS, stores.FAULTS, hosts.FAULTS, services.FAULTS, sandboxes.FAULTS)
)
LEVELS: Final[tuple[Level, ...]] = ("kernel", "store", "host", "service", "sandbox")

__all__ = ["CATALOGUE", "LEVELS", "Fault", "Level"]
