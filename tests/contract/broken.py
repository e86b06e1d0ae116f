"""Stores that break their promises, each in one way. The contract must notice every one of them."""

import time
from typing import Any

from keepkernel.adapters.rows import next_lease
from keepkernel.kernel.commands import Command
from keepkernel.kernel.ports import Change, Lease, Loaded, Store
from keepkernel.kernel.types import Event, State


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


class ShowsAHundredAtMost(Broken):
    """A window has no more than a hundred reserved events."""

    def load(self, workflow: str, command: Command | None = None) -> Loaded:
        state, version = self.store.load(workflow, command)
        reserved = [event for event in state.events if event.status == "reserved"]
        events = tuple(event for event in state.events if event not in reserved[100:])
        return Loaded(state._replace(events=events), version)


class NeverLooksAgain(Broken):
    """It knows the head of a workflow from its own commits, and does not see those of other processes."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.heads: dict[str, State] = {}

    def load(self, workflow: str, command: Command | None = None) -> Loaded:
        state, version = self.store.load(workflow, command)
        head = self.heads.setdefault(workflow, state)
        return Loaded(head._replace(events=state.events), version)

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        version = self.store.commit(change, lease)
        if version == self.store.load(change.workflow).version:
            self.heads[change.workflow] = change.head
        return version


class KeepsLeasesToItself(Broken):
    """Leases are in the memory of each process; at least they begin where those of dead ones can not have been."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.first_token = time.time_ns()
        self.leases: dict[str, Lease] = {}

    def held(self, workflow: str) -> Lease:
        self.store.load(workflow)
        return self.leases.get(workflow, Lease(workflow, "", self.first_token, 0))

    def lease(self, workflow: str, host: str, ttl_ms: int) -> Lease | None:
        lease = next_lease(self.held(workflow), workflow, host, self.store.now(), ttl_ms)
        self.leases |= {workflow: lease} if lease is not None else {}
        return lease

    def release(self, lease: Lease) -> None:
        if self.held(lease.workflow).token == lease.token:
            self.leases[lease.workflow] = lease._replace(host="", expires_at=0)

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        held = self.held(change.workflow)
        if lease is not None and lease.token != held.token:
            return self.store.commit(change, held._replace(host="", token=-1))
        return self.store.commit(change)


BROKEN = (
    DropsOneWrite, ReordersTwoWrites, AcknowledgesTooEarly, ForgetsTheVersion, ShowsAHundredAtMost, NeverLooksAgain,
    KeepsLeasesToItself,
)  # fmt: skip
