"""Faults in stores: what is written late, in part, in another order, or over somebody else's work."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ...adapters import duckdb, sqlite
from ...adapters.clock import ForwardClock
from ...adapters.duckdb import DuckDBStore
from ...adapters.memory import MemoryStore
from ...adapters.pages import EVENTS, Pages
from ...adapters.rows import event_of, event_row, next_lease, refusal
from ...adapters.sqlite import SQLiteStore
from ...kernel.commands import Command
from ...kernel.ports import Change, Lease, Loaded
from ...kernel.types import Event, State
from ...spec.variants import Swap
from .base import Fault, Patch

Commit = Callable[[Any, Change, Lease | None], int]

sqlite_commit = SQLiteStore.commit
STORES: Final = (MemoryStore, SQLiteStore, DuckDBStore)


def in_every_store(commit: Callable[[Commit, Any, Change, Lease | None], int]) -> tuple[Patch, ...]:
    """Another commit for each store, which is given the real one."""

    def replaced(real: Commit) -> Commit:
        def put(self: Any, change: Change, lease: Lease | None = None) -> int:
            return commit(real, self, change, lease)

        return put

    return tuple(Patch(store, "commit", replaced(store.commit)) for store in STORES)


def without_the_last(real: Commit, store: Any, change: Change, lease: Lease | None) -> int:
    return real(store, change._replace(events=change.events[:-1] or change.events), lease)


def in_two_goes(real: Commit, store: Any, change: Change, lease: Lease | None) -> int:
    """The events of a change are written with the next one."""
    late: tuple[Event, ...] = vars(store).get("_late", ())
    vars(store)["_late"] = change.events
    return real(store, change._replace(events=late), lease)


def when_there_is_time(real: Commit, store: Any, change: Change, lease: Lease | None) -> int:
    """A change is acknowledged at once, and written before the next one, or when somebody asks."""
    if store.load(change.workflow).version != change.base:
        return real(store, change, lease)
    vars(store)["_waiting"] = partial(real, store, change, lease)
    return change.version


def write_what_waits(store: Any) -> None:
    waiting = vars(store).pop("_waiting", None)
    if waiting is not None:
        waiting()


def load_after_waiting(real: Callable[..., Loaded]) -> Callable[..., Loaded]:
    def load(self: Any, workflow: str, command: Command | None = None) -> Loaded:
        write_what_waits(self)
        return real(self, workflow, command)

    return load


def drop_what_waits(real: Callable[[Any], None]) -> Callable[[Any], None]:
    def drop(self: Any) -> None:
        vars(self).pop("_waiting", None)
        real(self)

    return drop


def close_in_order(real: Callable[[Any], None]) -> Callable[[Any], None]:
    def close(self: Any) -> None:
        write_what_waits(self)
        real(self)

    return close


def on_top_of_anything(real: Commit, store: Any, change: Change, lease: Lease | None) -> int:
    return real(store, change._replace(base=store.load(change.workflow).version), lease)


def for_whoever_asks(real: Commit, store: Any, change: Change, lease: Lease | None) -> int:
    return real(store, change, None)


def without_history(real: Commit, store: Any, change: Change, lease: Lease | None) -> int:
    kept = tuple(one._replace(retired=one.retired._replace(session=None)) for one in change.done)
    return real(store, change._replace(done=kept), lease)


def without_the_backoff(real: Commit, store: Any, change: Change, lease: Lease | None) -> int:
    return real(store, change._replace(head=change.head._replace(backoff_until=0)), lease)


def same_token(held: Lease, workflow: str, host: str, now: int, ttl_ms: int) -> Lease | None:
    lease = next_lease(held, workflow, host, now, ttl_ms)
    return lease._replace(token=max(held.token, 1)) if lease is not None else None


def lease_for_all(held: Lease, workflow: str, host: str, now: int, ttl_ms: int) -> Lease | None:
    return Lease(workflow, host, held.token + 1, now + ttl_ms)


def answer_lost_for_good(self: Any, change: Change, version: int, lease: Lease | None, held: Lease) -> int:
    raise refusal(change, version, lease, held)


def peek_at_all_workflows(self: Any, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
    everybody = EVENTS.replace("workflow = ?", "? != ''")
    page = f"{everybody} AND topic = ? AND status = 'pending' AND seq > ? ORDER BY seq LIMIT ?"
    found: tuple[Event, ...] = self._page(workflow, event_of, page, topic, after_seq, limit)
    return found


def peek_at_what_is_taken(self: Any, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
    page = f"{EVENTS} AND topic = ? AND status IN ('pending', 'reserved') AND seq > ? ORDER BY seq LIMIT ?"
    found: tuple[Event, ...] = self._page(workflow, event_of, page, topic, after_seq, limit)
    return found


def newest_first(self: Any, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
    page = f"{EVENTS} AND topic = ? AND status = 'pending' AND seq > ? ORDER BY seq DESC LIMIT ?"
    found: tuple[Event, ...] = self._page(workflow, event_of, page, topic, after_seq, limit)
    return found


def whatever_the_clock_says(self: Any) -> int:
    now: int = self._clock()
    return now


def events_in_a_transaction_of_their_own(self: Any, change: Change, lease: Lease | None = None) -> int:
    version = sqlite_commit(self, change._replace(events=()), lease)
    with self._troubles_named(), self._writing():
        self._write_all("events", sqlite.PUT_EVENT, [(change.workflow, *event_row(e)) for e in change.events])
    return version


KEEPS_PAYLOAD: Final = sqlite.PUT_EVENT.replace(", payload = excluded.payload", "")


def without_named(state: State, command: Command) -> frozenset[Any]:
    return frozenset()


FAULTS: Final = (
    Fault(
        "drops-one-write",
        "store",
        "Of a commit with two events or more, the last event is not written.",
        "a loop that ends one too early",
        patches=in_every_store(without_the_last),
    ),
    Fault(
        "reorders-two-writes",
        "store",
        "The events of a commit are written together with the next commit.",
        "rows are gathered, to write them in larger portions",
        patches=in_every_store(in_two_goes),
    ),
    Fault(
        "acknowledged-too-early",
        "store",
        "A commit is acknowledged before it is durable.",
        "a write behind is so much faster",
        patches=(
            *in_every_store(when_there_is_time),
            *(Patch(store, "load", load_after_waiting(store.load)) for store in STORES),
            *(Patch(store, "close", close_in_order(store.close)) for store in STORES),
            *(Patch(store, "drop", drop_what_waits(store.drop)) for store in STORES),
        ),
    ),
    Fault(
        "no-version-check",
        "store",
        "A change is written on top of whatever is there.",
        "there is one host, so there is no one to compare with",
        patches=in_every_store(on_top_of_anything),
    ),
    Fault(
        "no-lease-check",
        "store",
        "A host whose lease was taken over can still commit.",
        "the version is compared, and that seems to be enough",
        patches=in_every_store(for_whoever_asks),
    ),
    Fault(
        "token-stays",
        "store",
        "Who takes a lease over gets the token of the one before.",
        "a token names the workflow, it was thought, not the holder",
        shared=(Swap(next_lease, same_token),),
    ),
    Fault(
        "lease-for-all",
        "store",
        "A lease is given although another host holds it.",
        "the new host must be the right one, why else would it ask",
        shared=(Swap(next_lease, lease_for_all),),
    ),
    Fault(
        "answer-lost-for-good",
        "store",
        "A change that was written is not recognised when its commit is tried again.",
        "every mismatch of versions is a conflict",
        patches=(Patch(Pages, "_version_of", answer_lost_for_good),),
    ),
    Fault(
        "all-workflows-in-one",
        "store",
        "A peek shows events of other workflows.",
        "topics had unique names when it was tried",
        patches=(Patch(Pages, "peek", peek_at_all_workflows),),
    ),
    Fault(
        "peeks-at-what-is-taken",
        "store",
        "A peek shows events that are reserved.",
        "not done yet was taken for not taken yet",
        patches=(Patch(Pages, "peek", peek_at_what_is_taken),),
    ),
    Fault(
        "newest-first",
        "store",
        "A peek gives the newest events first.",
        "that is how every other list is sorted",
        patches=(Patch(Pages, "peek", newest_first),),
    ),
    Fault(
        "clock-goes-back",
        "store",
        "The time of a store is the time of the machine, back and forth.",
        "a clock is a clock",
        patches=(Patch(ForwardClock, "now", whatever_the_clock_says),),
    ),
    Fault(
        "backoff-lost-at-restart",
        "store",
        "The time until which a workflow waits is not written.",
        "it was a variable of the scheduler once, and the row has no place for it",
        patches=in_every_store(without_the_backoff),
    ),
    Fault(
        "sessions-forgotten",
        "store",
        "Sessions that are over do not go into history.",
        "nobody decides by them",
        patches=in_every_store(without_history),
    ),
    Fault(
        "events-after-the-commit",
        "store",
        "Events are written in a transaction of their own, after the head.",
        "shorter transactions, fewer locks",
        patches=(Patch(SQLiteStore, "commit", events_in_a_transaction_of_their_own),),
    ),
    Fault(
        "payload-stays",
        "store",
        "An event that is published again keeps its old payload.",
        "the list of columns to update was written by hand",
        patches=(Patch(sqlite, "PUT_EVENT", KEEPS_PAYLOAD),),
    ),
    Fault(
        "window-without-the-named",
        "store",
        "Events that a command names are not brought with the state.",
        "what is pending and what is reserved seemed to be all",
        patches=tuple(Patch(module, "named", without_named) for module in (sqlite, duckdb)),
    ),
)
"""Those in `Pages` are in all stores that speak SQL."""
