"""keepkernel: crash-safe workflow execution, specified and checked."""

from typing import Any

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    # Reading the metadata takes longer than all other imports here, and few ask for it.
    if name == "__version__":
        from importlib.metadata import version

        return version("keepkernel")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
