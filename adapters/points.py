"""Where a process may die: the code that passes such a point names it, and a harness decides what happens there."""

from collections.abc import Callable

Reach = Callable[[str], None]
"""Called with the name of the point that was reached; whoever injects it may kill the process, or raise."""


class SimulatedCrash(BaseException):
    """The process dies here. No `except Exception` can hide it, as none can hide a real death."""


def pass_by(point: str) -> None:
    """In production nothing happens."""
