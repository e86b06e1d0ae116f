"""Variants: another kernel, made by exchanging small functions or tables of the real one; another package likewise.

The kernel has no flags. A variant says which object it replaces by which, and `swapped` puts the replacements in
place for as long as a `with` block lasts. A replacement that builds on what it replaces imports that by name
(`from ..kernel.events import release`): a name outside the kernel is never exchanged.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import Final, NamedTuple

from ..kernel import step

KERNEL: Final = step.__name__.rpartition(".")[0]


class Swap(NamedTuple):
    """A function, table or other object of a package, and what stands in its place."""

    original: object
    replacement: object


class NotInKernel(LookupError):
    """What should be replaced is bound nowhere in its package: it does not exist, or it is replaced already."""


@contextmanager
def swapped(*swaps: Swap, package: str = KERNEL) -> Iterator[None]:
    """Run the block on a variant of the kernel, or of another package; afterwards, whatever happens, as it was.

    >>> from keepkernel.kernel import gate
    >>> with swapped(Swap(gate.closed, lambda state, now: "closed for today")):
    ...     gate.closed(None, 0)
    'closed for today'
    """
    undo: list[tuple[ModuleType, str, object]] = []
    try:
        for swap in swaps:
            places = list(bindings(swap, package))
            if not places:
                raise NotInKernel(f"{getattr(swap.original, '__qualname__', swap.original)!s:.80} is not in {package}")
            for module, name, value in places:
                undo.append((module, name, getattr(module, name)))
                setattr(module, name, value)
        yield
    finally:
        for module, name, value in reversed(undo):
            setattr(module, name, value)


def bindings(swap: Swap, package: str = KERNEL) -> Iterator[tuple[ModuleType, str, object]]:
    """Every module attribute that must change for this swap, and its new value.

    Other modules import functions by name, so one function has many bindings. The transitions are found in their
    mapping, which is read-only: it is exchanged as a whole.
    """
    modules = [m for name, m in sorted(sys.modules.items()) if name == package or name.startswith(f"{package}.")]
    for module in modules:
        for name, value in vars(module).items():
            if value is swap.original:
                yield module, name, swap.replacement
    if any(function is swap.original for function in step.TRANSITIONS.values()):
        transitions = {k: swap.replacement if f is swap.original else f for k, f in step.TRANSITIONS.items()}
        yield step, "TRANSITIONS", MappingProxyType(transitions)
