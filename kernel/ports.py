"""What the kernel's surroundings must offer: a store, handlers, connectors. Shapes only; no decision lives here.

A store keeps each workflow's live state with a version, its events, and its history. A host loads a state with the
events that a command names, asks `step`, once or several times, and commits what came of it, as one change, against the
version that it loaded. Of two hosts exactly one wins; a host whose lease was taken over can not commit at all.
"""

from typing import NamedTuple, Protocol

from .commands import Command
from .policy import Policy
from .respond import Answer
from .types import Accepted, CallHandler, Event, Key, Mutation, Reconcile, Retired, Run, Send, Session, State


class Loaded(NamedTuple):
    """A workflow as a store holds it, with the window of events that a command needs (STEP-003)."""

    state: State
    version: int


class Lease(NamedTuple):
    """The right of one host to drive one workflow; whoever takes it over gets a higher token (HOST-008)."""

    workflow: str
    host: str
    token: int
    expires_at: int


class Done(NamedTuple):
    """One accepted command of a change, and what goes into history with it."""

    command: Command
    rules: tuple[str, ...]
    retired: Retired


class Change(NamedTuple):
    """Accepted commands, one on top of the other, as a store writes them: all of them, or none."""

    id: str
    """Names this change, so that a commit whose answer was lost is recognised when it is tried again."""
    workflow: str
    base: int
    """The version that it was computed on; each of its commands leads to the next one."""
    done: tuple[Done, ...]
    head: State
    """The new state without its events."""
    events: tuple[Event, ...]
    """The events that are new or changed, as they are now."""

    @property
    def version(self) -> int:
        """The version that it leads to."""
        return self.base + len(self.done)


class Transition(NamedTuple):
    """One line of a workflow's journal."""

    version: int
    at: int
    command: Command
    rules: tuple[str, ...]


class StoreError(Exception):
    """A store can not do what was asked; the message says why and what to do about it."""


class Conflict(StoreError):
    """The workflow has moved on since it was loaded: load it again and ask again."""


class LeaseLost(StoreError):
    """Another host drives the workflow now: stop at once."""


class Disconnected(StoreError):
    """The connection broke during a commit, and it is not known whether it was done: commit the same change again."""


class UnknownWorkflow(StoreError):
    """The store holds no workflow of this name."""


class StoreBusy(StoreError):
    """Another process keeps the store to itself: end it, or try again later. Nothing was written."""


class StoreFull(StoreError):
    """There is no room for the change: make some, and commit it again. Nothing was written."""


class ReadOnlyStore(StoreError):
    """The store can be read but not written: see to its permissions."""


class NotAStore(StoreError):
    """What is there was not written by keepkernel: name another place."""


class NewerStore(StoreError):
    """A later version of keepkernel wrote it: install that one."""


class StoreStopped(StoreError):
    """This object can not go on, for it may not know any more what is durable: open the store again."""


class DamagedStore(StoreError):
    """A part of the store is missing or unreadable: bring it back, or restore a copy."""


def change_of(change_id: str, loaded: Loaded, *steps: tuple[Command, Accepted]) -> Change:
    """What a store must write for commands that were accepted, the first on the loaded state (HOST-001, HOST-011)."""
    state = steps[-1][1].state
    before = {event.key: event for event in loaded.state.events}
    changed = tuple(event for event in state.events if before.get(event.key) != event)
    done = tuple(Done(command, accepted.rules, accepted.retired) for command, accepted in steps)
    return Change(change_id, state.workflow, loaded.version, done, state._replace(events=()), changed)


class Store(Protocol):
    """Durable workflows."""

    def now(self) -> int:
        """The one clock of all hosts, in milliseconds; it never goes back (HOST-004)."""

    def create(self, workflow: str, policy: Policy) -> bool:
        """Make a draft; False when the workflow is there already."""

    def workflows(self, after: str = "", limit: int = 100) -> tuple[str, ...]:
        """Names in order, a page at a time."""

    def load(self, workflow: str, command: Command | None = None) -> Loaded:
        """The live state with its version and the window of events for this command."""

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        """Write a change durably and give the version that it leads to; Conflict when its base is not the current one.

        With a lease, LeaseLost when another host has taken it over. A change that is there already, by its id, is
        not written again.
        """

    def lease(self, workflow: str, host: str, ttl_ms: int) -> Lease | None:
        """Take or renew the right to drive a workflow; None while another host holds it."""

    def release(self, lease: Lease) -> None:
        """Give the right back, if it is still held."""

    def peek(self, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
        """Pending events of a topic in order of publication, a page at a time."""

    def get(self, workflow: str, key: Key) -> Event | None:
        """One event, whatever its status."""

    def events(self, workflow: str, after_seq: int = 0, limit: int = 100) -> tuple[Event, ...]:
        """All events in order of publication, a page at a time."""

    def runs(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Run], ...]:
        """Finished runs with the version at which each went into history, in that order, a page at a time."""

    def mutations(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Mutation], ...]:
        """Finished ledger records, likewise."""

    def sessions(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Session], ...]:
        """Closed sessions, likewise."""

    def transitions(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[Transition, ...]:
        """The journal, in order, a page at a time."""

    def close(self) -> None:
        """Leave everything in order."""

    def drop(self) -> None:
        """Let go as a process does that dies: whatever is not committed is undone, and nothing is left in order."""


class Handlers(Protocol):
    """Runs a workflow's functions: the sandbox, or plain functions in tests."""

    def call(self, state: State, effect: CallHandler) -> Answer:
        """Run one function to its end. It never raises for what a script does; that is `Failed`."""


class Connectors(Protocol):
    """The ways out."""

    def send(self, effect: Send) -> Answer:
        """Make the call, once: Happened, Failed when the target refused it or it was never sent, else Unknown."""

    def reconcile(self, effect: Reconcile) -> Answer:
        """Ask whether it happened: Happened, DidNotHappen, AskAgain or NoMethod."""
