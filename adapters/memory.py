"""A store in memory: for tests, for simulations, and as the shortest account of what a store does."""

from collections.abc import Callable
from itertools import islice

from ..kernel.commands import Command
from ..kernel.policy import Policy
from ..kernel.ports import Change, Lease, Loaded, Transition
from ..kernel.types import Event, Key, Mutation, Run, Session, State, new_workflow
from ..kernel.window import named
from .clock import ForwardClock, wall_clock_ms
from .pending import Pending
from .points import Reach, pass_by
from .rows import next_lease, refusal, unknown


class Rows:
    """One workflow: its head, its events, its history."""

    def __init__(self, head: State) -> None:
        self.head = head
        self.version = 0
        self.changes: list[str] = []
        """The id of the change that led to each version, from 1."""
        self.events: dict[Key, Event] = {}
        self.by_seq: list[Key] = []
        self.pending: dict[str, Pending] = {}
        """By topic."""
        self.reserved: dict[Key, None] = {}
        self.runs: list[tuple[int, Run]] = []
        self.mutations: list[tuple[int, Mutation]] = []
        self.sessions: list[tuple[int, Session]] = []
        self.transitions: list[Transition] = []
        self.lease = Lease("", "", 0, 0)

    def put(self, event: Event) -> None:
        if event.key not in self.events:
            self.by_seq.append(event.key)
        self.events[event.key] = event
        self.pending.setdefault(event.key.topic, Pending()).put(event)
        self.reserved.pop(event.key, None)
        if event.status == "reserved":
            self.reserved[event.key] = None

    def window(self, command: Command | None) -> tuple[Event, ...]:
        keys = dict(self.reserved)
        for pending in self.pending.values():
            keys |= dict.fromkeys(islice(pending.after(0), 1))
        if command is not None:
            keys |= dict.fromkeys(key for key in named(self.head, command) if key in self.events)
        return tuple(sorted((self.events[key] for key in keys), key=lambda event: event.seq))

    def apply(self, change: Change) -> None:
        self.head = change.head
        for event in change.events:
            self.put(event)
        for command, rules, (run, mutation, session) in change.done:
            self.version += 1
            self.changes.append(change.id)
            self.transitions.append(Transition(self.version, command.now, command, rules))
            self.runs += [(self.version, run)] if run is not None else []
            self.mutations += [(self.version, mutation)] if mutation is not None else []
            self.sessions += [(self.version, session)] if session is not None else []


class MemoryStore:
    """Everything in one process, gone at its end; `reach` is told before and after each commit."""

    def __init__(self, clock: Callable[[], int] = wall_clock_ms, reach: Reach = pass_by) -> None:
        self._rows: dict[str, Rows] = {}
        self._clock = ForwardClock(clock)
        self._reach = reach

    def now(self) -> int:
        return self._clock.now()

    def create(self, workflow: str, policy: Policy) -> bool:
        if workflow in self._rows:
            return False
        self._rows[workflow] = Rows(new_workflow(workflow, policy))
        return True

    def workflows(self, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._rows if name > after)[:limit])

    def load(self, workflow: str, command: Command | None = None) -> Loaded:
        rows = self._of(workflow)
        return Loaded(rows.head._replace(events=rows.window(command)), rows.version)

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        rows = self._of(change.workflow)
        if change.base < rows.version and rows.changes[change.base] == change.id:
            return change.version
        if rows.version != change.base or (lease is not None and lease.token != rows.lease.token):
            raise refusal(change, rows.version, lease, rows.lease)
        self._reach("commit: before")
        rows.apply(change)
        self._reach("commit: after")
        return rows.version

    def lease(self, workflow: str, host: str, ttl_ms: int) -> Lease | None:
        rows = self._of(workflow)
        lease = next_lease(rows.lease, workflow, host, self.now(), ttl_ms)
        rows.lease = lease or rows.lease
        return lease

    def release(self, lease: Lease) -> None:
        rows = self._of(lease.workflow)
        if rows.lease.token == lease.token:
            rows.lease = rows.lease._replace(host="", expires_at=0)

    def peek(self, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
        rows = self._of(workflow)
        pending = rows.pending.get(topic, Pending())
        return tuple(rows.events[key] for key in islice(pending.after(after_seq), limit))

    def get(self, workflow: str, key: Key) -> Event | None:
        return self._of(workflow).events.get(key)

    def events(self, workflow: str, after_seq: int = 0, limit: int = 100) -> tuple[Event, ...]:
        rows = self._of(workflow)
        return tuple(rows.events[key] for key in rows.by_seq[after_seq : after_seq + limit])

    def runs(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Run], ...]:
        return tuple(row for row in self._of(workflow).runs if row[0] > after)[:limit]

    def mutations(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Mutation], ...]:
        return tuple(row for row in self._of(workflow).mutations if row[0] > after)[:limit]

    def sessions(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Session], ...]:
        return tuple(row for row in self._of(workflow).sessions if row[0] > after)[:limit]

    def transitions(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[Transition, ...]:
        return tuple(self._of(workflow).transitions[after : after + limit])

    def close(self) -> None:
        """Nothing to leave in order."""

    def drop(self) -> None:
        """A change is there or not; nothing is ever half done."""

    def _of(self, workflow: str) -> Rows:
        if workflow not in self._rows:
            raise unknown(workflow)
        return self._rows[workflow]
