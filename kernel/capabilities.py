"""What a script may do in each of its functions, as data.

The rest is the sandbox's duty: no way back from a call that ends the script (SCRIPT-003), `mutate` sees only what
was prepared (SCRIPT-004), a fresh context for every call (SCRIPT-005), peeks of subscribed topics only (SCRIPT-006),
what `next` is told (SCRIPT-007), parameters shown as the host saw them (SCRIPT-008), a time limit (SCRIPT-009).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Function = Literal["producer", "prepare", "mutate", "next"]
Operation = Literal["read", "mutate", "peek", "get", "publish"]

CAPABILITIES: Final[Mapping[Function, frozenset[Operation]]] = MappingProxyType(
    {
        "producer": frozenset({"read", "publish"}),
        "prepare": frozenset({"read", "peek", "get"}),
        "mutate": frozenset({"mutate"}),
        "next": frozenset({"publish"}),
    }
)
"""Function -> allowed operations (SCRIPT-001)."""

TERMINAL: Final[frozenset[Operation]] = frozenset({"mutate"})
"""Operations after which the script does nothing more (SCRIPT-002)."""


def allowed(function: Function, operation: Operation, made: tuple[Operation, ...] = ()) -> bool:
    """Whether a function may do this, after the operations that it has made (SCRIPT-001, SCRIPT-002).

    >>> allowed("mutate", "mutate"), allowed("mutate", "mutate", ("mutate",)), allowed("prepare", "publish")
    (True, False, False)
    """
    return operation in CAPABILITIES[function] and TERMINAL.isdisjoint(made)
