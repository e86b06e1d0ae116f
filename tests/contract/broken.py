"""Stores that break their promises, each in one way. The contract must notice every one of them."""

from typing import Any

from keepkernel.kernel.ports import Change, Lease, Store
from keepkernel.kernel.types import Event


class Broken:
    """Everything is passed on to a store that is in order, but for what a subclass spoils."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class DropsOneWrite(Broken):
    """Of the first commit with two events or more, the last event is never written."""

    dropped = False

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        if len(change.events) > 1 and not self.dropped:
            self.dropped = True
            change = change._replace(events=change.events[:-1])
        return self.store.commit(change, lease)


class ReordersTwoWrites(Broken):
    """The events of one commit are written with the next one, after those of that one."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.late: tuple[Event, ...] = ()

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        late, keep = self.late, change.events if not self.late else ()
        now = () if keep else change.events
        version = self.store.commit(change._replace(events=(*now, *late)), lease)
        self.late = keep
        return version


class AcknowledgesTooEarly(Broken):
    """A change that will be accepted is acknowledged at once, and written when somebody asks for something."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.unwritten: list[Change] = []

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        self._write()
        if lease is not None or self.store.load(change.workflow).version != change.base:
            return self.store.commit(change, lease)
        self.unwritten.append(change)
        return change.base + 1

    def drop(self) -> None:
        self.store.drop()

    def __getattr__(self, name: str) -> Any:
        self._write()
        return getattr(self.store, name)

    def _write(self) -> None:
        while self.unwritten:
            self.store.commit(self.unwritten.pop())


class ForgetsTheVersion(Broken):
    """Whatever a change was computed on, it is written on top of what is there."""

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        return self.store.commit(change._replace(base=self.store.load(change.workflow).version), lease)


BROKEN = (DropsOneWrite, ReordersTwoWrites, AcknowledgesTooEarly, ForgetsTheVersion)
