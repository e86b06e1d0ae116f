"""Where the stores under test are, and how to open them again and again."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from flow import START
from server import started

from keepkernel.adapters.points import Reach, SimulatedCrash, pass_by
from keepkernel.adapters.stores import open_store
from keepkernel.kernel.ports import Store

Wrap = Callable[[Store], Store]


class Kind(NamedTuple):
    """A kind of store, and whether it outlives its process."""

    name: str
    url: Callable[[Path], str]
    """A URL of its own for each folder."""
    durable: bool = True
    shared: bool = False
    """Whether several processes may have it open."""


KINDS = (
    Kind("memory", lambda folder: "memory:", durable=False),
    Kind("duckdb", lambda folder: f"duckdb:{folder / 'store.db'}"),
    Kind("sqlite", lambda folder: f"sqlite:{folder / 'store.db'}", shared=True),
    Kind("postgresql", lambda folder: started().url(started().make(folder)), shared=True),
)
"""One line per kind; every check of the contract runs on each."""


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> int:
        return self.at


class Place:
    """One place for a store; a broken store is made by a wrapper."""

    def __init__(self, kind: Kind, folder: Path, wrap: Wrap = lambda store: store) -> None:
        folder.mkdir(exist_ok=True)
        self.kind = kind
        self.folder = folder
        self.clock = Clock()
        self._url = kind.url(folder)
        self._wrap = wrap
        self._fresh = 0

    def open(self, reach: Reach = pass_by) -> Store:
        return self._wrap(open_store(self._url, clock=self.clock, reach=reach))

    def fresh(self) -> "Place":
        """Another place of the same kind, where nothing is."""
        self._fresh += 1
        return Place(self.kind, self.folder / f"fresh{self._fresh}", self._wrap)


class Dies:
    """A point hook that kills at the n-th point, and counts."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.passed: list[str] = []

    def __call__(self, point: str) -> None:
        self.passed.append(point)
        if len(self.passed) == self.at:
            raise SimulatedCrash(point)
