"""A store in one DuckDB file: one statement a commit, for one process at a time, open to the `duckdb` shell after.

A transition is one row of `journal`: the command and what it sent into history; the last row of a change also has the
new head and the changed events. Every few thousand rows, at open and at close, the journal is folded into `heads`,
`live_events`, `finished_events` and `past_transitions`, in one transaction, and the log into the main file. What stands
in the journal is also kept in memory, so nothing of it is read back. The views `workflows`, `events`, `transitions`,
`runs`, `mutations` and `sessions` show both parts as one; README.md in this folder shows what to ask them.

What is committed stands first in a second file, PATH.wal, which DuckDB reads when it opens the first one. Without it
DuckDB would silently show an older store. So a third file, PATH.mark, names a position of the journal that the store
must reach. It is there from open to close, and a store that says that it was not closed is not opened without it.
A fourth one, PATH.undo, is there while the log is brought into the main file; see `duckdb_undo.py`.
"""

import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from glob import escape
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4
from weakref import WeakValueDictionary

import duckdb

from ..kernel.codec import decode_state, encode
from ..kernel.commands import Command
from ..kernel.policy import Policy
from ..kernel.ports import (
    Change,
    DamagedStore,
    Lease,
    Loaded,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreStopped,
)
from ..kernel.types import Event, Key, State, new_workflow
from ..kernel.window import named
from .clock import ForwardClock, wall_clock_ms
from .disk import trouble_with
from .duckdb_tables import EVENT_LIST, FOLD, MIGRATIONS, STORAGE, name_hash
from .duckdb_undo import HEADER_BYTES, Undo
from .mark import Mark, sync_folder
from .pages import Pages, Value
from .pending import Pending
from .points import Reach, pass_by
from .rows import (
    TRANSITION_COLUMNS,
    event_of,
    event_row,
    next_lease,
    transition_rows,
    unknown,
)

FOLD_COMMITS: Final = 2_000
FOLD_BYTES: Final = 8_000_000
"""The journal is folded when it has so many rows, or so many bytes."""
PAGE: Final = 256
"""So many pending events of a topic are brought into memory at once."""
SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "memory_limit": "1GB",
    # The log is brought into the main file when the journal is folded, and never in between.
    "checkpoint_threshold": "1TB",
    "auto_checkpoint_skip_wal_threshold": 2**62,
    "autoinstall_known_extensions": False,
}
MAGIC: Final = b"DUCK"
MAGIC_AT: Final = 8

APPEND: Final = "INSERT INTO journal VALUES (?, ?)"
PENDING: Final = f"""
    SELECT {EVENT_LIST} FROM live_events
    WHERE workflow = ? AND topic = ? AND status = 'pending' AND seq > ? ORDER BY seq LIMIT ?"""

_open_stores: WeakValueDictionary[Path, "DuckDBStore"] = WeakValueDictionary()
"""DuckDB's lock keeps other processes out; within one process it would let a second store in."""


class Live:
    """A workflow in memory: its head, the events that it holds, and whatever is newer than the tables."""

    def __init__(self, head: State, version: int, reserved: Sequence[Event] = ()) -> None:
        self.head = head
        self.version = version
        self.changed: dict[Key, Event] = {}
        """Events that the journal holds, as they are now."""
        self.reserved = {event.key: event for event in reserved}
        self.pending: dict[str, Pending] = {}
        """By topic, what of that is pending."""
        self.stored: dict[str, tuple[Event | None, Iterator[Event]]] = {}
        """Per topic the oldest pending event of the table, and those that follow it."""

    def apply(self, change: Change) -> None:
        self.head, self.version = change.head, change.version
        for event in change.events:
            self.changed[event.key] = event
            self.pending.setdefault(event.key.topic, Pending()).put(event)
            self.reserved.pop(event.key, None)
            if event.status == "reserved":
                self.reserved[event.key] = event

    def pending_changed(self, topic: str, after_seq: int = 0) -> Iterator[Event]:
        return (self.changed[key] for key in self.pending.get(topic, Pending()).after(after_seq))


def by_seq(event: Event) -> int:
    return event.seq


class DuckDBStore(Pages):
    """Durable workflows in one file; `reach` is told before and after each statement that writes."""

    def __init__(
        self,
        path: str,
        clock: Callable[[], int] = wall_clock_ms,
        reach: Reach = pass_by,
        fold_commits: int = FOLD_COMMITS,
    ) -> None:
        self._path = Path(os.path.realpath(path))
        self._clock = ForwardClock(clock)
        self._reach = reach
        self._fold_commits = fold_commits
        self._mark = Mark(self._path.with_name(f"{self._path.name}.mark"))
        self._lives: dict[str, Live] = {}
        self._leases: dict[str, Lease] = {}
        self._rows = self._bytes = 0
        self._held = ExitStack()
        """What is open, let go in reverse order: the lock on the file goes last."""
        self._over = ""
        """Why nothing can be asked of this object any more; empty while all is well."""
        if self._path in _open_stores:
            raise StoreBusy(f"{self._path} is open in this process already; use that store, or close it first")
        with self._troubles_named():
            if self._path.is_dir():
                raise StoreError(f"{self._path} is a folder; name a file in it")
            left = [
                name for name in (f"{self._path.name}.wal", self._mark.path.name) if self._path.with_name(name).exists()
            ]  # Asked first: whoever creates the store makes them last.
            if not self._path.exists():
                if left:
                    raise DamagedStore(
                        f"{self._path} is missing, and what belongs to it is there. Put it back, or restore a copy; "
                        f"to begin a new one, remove {' and '.join(left)}"
                    )
                self._create_file()
            try:
                self._file = self._locked()
                self._undo = Undo(self._path.with_name(f"{self._path.name}.undo"), self._file)
                self._require_database()
                self._undo.restore()
                self._held.callback(self._mark.release)
                self._connection = self._held.enter_context(closing(self._connect(self._path)))
                self._set_up()
            except BaseException:
                self._held.close()
                raise
        _open_stores[self._path] = self

    # -- the file

    def _connect(self, path: Path) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(str(path), config=SETTINGS)
        # Whoever drops a store leaves what a process that dies leaves; `close` brings it in order itself.
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        return connection

    def _create_file(self) -> None:
        """Make it beside its place and put it there when it is whole: DuckDB can not open a file that is half made."""
        if not self._path.parent.is_dir():
            raise StoreError(f"there is no folder {self._path.parent}; make it first")
        self._sweep()
        draft = self._path.with_name(f"{self._path.name}.new-{uuid4().hex}")
        try:
            with closing(self._connect(draft)) as connection:
                self._migrate(connection, 0)
                self._write("checkpoint draft", "CHECKPOINT", connection=connection)
            self._reach("create file: before")
            os.link(draft, self._path)
            sync_folder(self._path.parent)
            self._reach("create file: after")
        except FileExistsError:
            """Another process was faster; its store is as good."""
        except FileNotFoundError as error:
            raise StoreBusy(f"another process creates {self._path} as well; try again") from error
        except (OSError, duckdb.Error):
            self._sweep()
            raise
        draft.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what was left by processes that died while they created the store."""
        for left in self._path.parent.glob(f"{escape(self._path.name)}.new-*"):
            left.unlink(missing_ok=True)

    def _locked(self) -> int:
        """The main file, with the lock that DuckDB takes as well.

        A process loses its lock when it closes any descriptor of the file. So there is this one, from first to last.
        """
        file = os.open(self._path, os.O_RDWR)
        self._held.callback(os.close, file)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreBusy(f"{self._path} is open in another process; end that one, or use its store") from error
        return file

    def _require_database(self) -> None:
        if os.pread(self._file, len(MAGIC), MAGIC_AT) != MAGIC:
            raise NotAStore(f"{self._path} is no DuckDB file; name another file, or restore a copy if it was a store")

    def _set_up(self) -> None:
        try:
            (schema,) = self._one("SELECT keepkernel_schema FROM store")
        except (duckdb.CatalogException, duckdb.BinderException):
            raise NotAStore(f"{self._path} was not written by keepkernel; name another file") from None
        if schema > len(MIGRATIONS):
            raise NewerStore(
                f"{self._path} has schema version {schema}, and this keepkernel knows {len(MIGRATIONS)}; "
                "install the keepkernel that wrote it, or a later one"
            )
        self._position, latest_at, closed = self._one("SELECT position, latest_at, closed FROM store")
        position, at, self._rows = self._one('SELECT max(position), max("at"), count(*) FROM journal_lines')
        self._position = max(self._position, position or 0)
        self._clock.saw(max(latest_at, at or 0))
        self._require_length()
        self._require_whole(closed)
        self._sweep()
        self._marked(self._position)
        self._migrate(self._connection, schema)
        self._fold(closed=False)
        # Tokens of leases are not written down: those of a later opening are higher than all of an earlier one.
        self._first_token = self._position << 32

    def _require_length(self) -> None:
        """DuckDB reads a block when it needs it; a file that ends before its last one is told now, not then."""
        last, block_bytes = self._one(f"""
            SELECT max(greatest(block_id, list_max(additional_block_ids))), any_value(block_size)
            FROM ({STORAGE}), pragma_database_size()""")
        if last is not None and self._path.stat().st_size < HEADER_BYTES + (last + 1) * block_bytes:
            raise DamagedStore(f"{self._path} has been cut short; restore a copy")

    def _require_whole(self, closed: bool) -> None:
        """Tell whether the log, or the end of it, is missing."""
        wanted = self._mark.read()
        remedy = (
            "Put them back where they were. If they are gone for good, restore a copy, or go on without what is lost: "
            f"remove {self._mark.path.name}, then duckdb '{self._path}' 'UPDATE store SET closed = true'"
        )
        if wanted is None and not closed:
            raise DamagedStore(
                f"{self._path} was not closed in order, and {self._mark.path.name} is missing, so "
                f"{self._path.name}.wal may be missing as well, with the last commits. {remedy}"
            )
        if wanted is not None and wanted > self._position:
            raise DamagedStore(
                f"{self._path.name}.wal is missing or cut, or {self._path} is an older copy: it ends at position "
                f"{self._position}, and {self._mark.path.name} says that there was {wanted}. {remedy}"
            )

    def _migrate(self, connection: duckdb.DuckDBPyConnection, schema: int) -> None:
        """Bring the schema up to date, one transaction a version."""
        for version, script in enumerate(MIGRATIONS[schema:], schema + 1):
            done = f"UPDATE store SET keepkernel_schema = {version}"
            self._transact(f"migrate {version}", f"{script}; {done}", connection)

    def _fold(self, *, closed: bool) -> None:
        """Bring the journal into the tables and the log into the main file; then begin both anew, unless at the end.

        The mark asks for no more than the main file has until the new log has its first entry. So dying in between
        is harmless, and so is losing a log before anything was committed to it.
        """
        script = FOLD if self._rows else ""
        self._transact("fold", f"{script} UPDATE store SET closed = {closed}", self._connection)
        self._rows = self._bytes = 0
        self._lives.clear()
        self._checkpoint()
        if not closed:
            self._write("begin log", "UPDATE store SET position = ?", (self._position + 1,))
            sync_folder(self._path.parent)  # The log is a new file, and its name must last as well.
            self._position += 1
            self._marked(self._position)

    def _checkpoint(self) -> None:
        (block_bytes,) = self._one("SELECT block_size FROM pragma_database_size()")
        metadata = [block for (block,) in self._all("SELECT block_id FROM pragma_metadata_info()")]
        self._reach("save undo: before")
        self._undo.save(metadata, block_bytes)
        self._reach("save undo: after")
        self._write("checkpoint", "CHECKPOINT")
        self._undo.remove()

    def _marked(self, position: int) -> None:
        self._reach("mark: before")
        self._mark.write(position)
        self._reach("mark: after")

    def close(self) -> None:
        """Leave one file, with everything in its tables; or, where that fails, what a death leaves."""
        try:
            with self._writing():
                self._fold(closed=True)
                # Before DuckDB closes the file, and with it our lock: the next process has a mark of its own.
                self._reach("remove mark: before")
                self._mark.remove()
                self._reach("remove mark: after")
                self._connection.close()
        finally:
            self.drop()

    def drop(self) -> None:
        """Leave the files as the death of the process would."""
        self._over = f"{self._path} was closed; open it again"
        self._held.close()
        if _open_stores.get(self._path) is self:
            del _open_stores[self._path]

    # -- statements

    def _write(
        self,
        point: str,
        statement: str,
        values: Sequence[Any] = (),
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        self._reach(f"{point}: before")
        (connection or self._connection).execute(statement, values)
        self._reach(f"{point}: after")

    def _transact(self, name: str, script: str, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("BEGIN")
        try:
            self._write(name, script, connection=connection)
        except duckdb.Error:
            connection.execute("ROLLBACK")
            raise
        self._write(f"{name} commit", "COMMIT", connection=connection)

    @contextmanager
    def _troubles_named(self) -> Iterator[None]:
        """What DuckDB and the system report, in words that say what to do."""
        if self._over:
            raise StoreStopped(self._over)
        try:
            yield
        except duckdb.Error as error:
            raise self._named(error) from error
        except OSError as error:
            raise trouble_with(self._path, error) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Memory and file may differ when this does not come to its end; then only opening anew helps.

        A full disk alone is different: DuckDB takes back what it wrote of the statement, and goes on.
        """
        with self._troubles_named():
            try:
                yield
            except BaseException as error:
                if isinstance(error, duckdb.TransactionException) and isinstance(self._named(error), StoreFull):
                    raise
                self._over = f"{self._path} could not be written; open it again, which shows what was committed"
                raise

    def _named(self, error: duckdb.Error) -> StoreError:
        text = str(error)
        for kind, signs, remedy in (
            (StoreBusy, ("Could not set lock",), "is open in another process; end that one, or use its store"),
            (StoreFull, ("No space left", "File too large", "quota exceeded"), "has no room to grow; make some"),
            (ReadOnlyStore, ("Permission denied", "Read-only", "read-only"), "can not be written; see to permissions"),
            (
                DamagedStore,
                ("Corrupt", "corrupt", "checksum", "enough bytes", "replaying WAL", "not a valid"),
                "is damaged; restore a copy",
            ),
            (NewerStore, ("newer version", "newer DuckDB"), "needs a later DuckDB: pip install --upgrade duckdb"),
        ):
            if any(sign in text for sign in signs):
                return kind(f"{self._path} {remedy} ({text})")
        return StoreError(
            f"DuckDB failed on {self._path}; see to its disk, then open the store again, "
            f"which shows what was committed ({text})"
        )

    def _one(self, statement: str, *values: Any) -> Any:
        return self._connection.execute(statement, values).fetchone()

    def _all(self, statement: str, *values: Any) -> list[Any]:
        with self._troubles_named():
            return self._connection.execute(statement, values).fetchall()

    # -- workflows

    def now(self) -> int:
        return self._clock.now()

    def create(self, workflow: str, policy: Policy) -> bool:
        self._make_room()
        if self._find(workflow) is not None:
            return False
        head = new_workflow(workflow, policy)
        line = (workflow, 0, *[None] * (len(TRANSITION_COLUMNS) - 2))
        self._append("create", (*line, encode(head), ()))
        self._lives[workflow] = Live(head, 0)
        return True

    def load(self, workflow: str, command: Command | None = None) -> Loaded:
        live = self._of(workflow)
        window = dict(live.reserved)
        oldest = (self._oldest(live, topic) for topic in live.head.topics)
        window |= {event.key: event for event in oldest if event is not None}
        window |= self._named_events(live, named(live.head, command)) if command is not None else {}
        events = sorted(window.values(), key=by_seq)
        return Loaded(live.head._replace(events=tuple(events)), live.version)

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        self._make_room()
        live, held = self._of(change.workflow), self._lease_of(change.workflow)
        if live.version != change.base or (lease is not None and lease.token != held.token):
            return self._version_of(change, live.version, lease, held)
        *others, last = transition_rows(change)
        lines = [(*line, None, ()) for line in others]
        self._append("commit", *lines, (*last, encode(change.head), [*map(event_row, change.events)]))
        self._clock.saw(last.at)
        live.apply(change)
        return change.version

    def _make_room(self) -> None:
        """Fold a long journal. Workflows are read anew after that, so this comes before anything else."""
        if self._rows >= self._fold_commits or self._bytes >= FOLD_BYTES:
            with self._writing():
                self._fold(closed=False)

    def _append(self, point: str, *lines: Sequence[Any]) -> None:
        """Rows of the journal, by one statement, and durable when this ends."""
        texts = [json.dumps(line) for line in lines]
        values = [value for row in enumerate(texts, self._position + 1) for value in row]
        with self._writing():
            self._write(point, APPEND + ", (?, ?)" * (len(texts) - 1), values)
            self._position += len(texts)
            self._mark.hint(self._position)
        self._rows += len(texts)
        self._bytes += sum(map(len, texts))

    def _of(self, workflow: str) -> Live:
        live = self._find(workflow)
        if live is None:
            raise unknown(workflow)
        return live

    def _find(self, workflow: str) -> Live | None:
        """A workflow that is not in memory has nothing in the journal."""
        if self._over:
            raise StoreStopped(self._over)
        live = self._lives.get(workflow)
        if live is None and (rows := self._all("SELECT head, version FROM heads WHERE workflow = ?", workflow)):
            reserved = f"SELECT {EVENT_LIST} FROM live_events WHERE workflow = ? AND status = 'reserved'"
            live = Live(decode_state(rows[0][0]), rows[0][1], [*map(event_of, self._all(reserved, workflow))])
            self._lives[workflow] = live
        return live

    # -- leases, which end with the process as its lock on the file does

    def _lease_of(self, workflow: str) -> Lease:
        return self._leases.get(workflow) or Lease(workflow, "", self._first_token, 0)

    def lease(self, workflow: str, host: str, ttl_ms: int) -> Lease | None:
        self._of(workflow)
        lease = next_lease(self._lease_of(workflow), workflow, host, self.now(), ttl_ms)
        if lease is not None:
            self._leases[workflow] = lease
        return lease

    def release(self, lease: Lease) -> None:
        held = self._lease_of(lease.workflow)
        if held.token == lease.token:
            self._leases[lease.workflow] = held._replace(host="", expires_at=0)

    # -- events and history

    def _oldest(self, live: Live, topic: str) -> Event | None:
        found = (self._oldest_stored(live, topic), next(live.pending_changed(topic), None))
        return min((event for event in found if event is not None), key=by_seq, default=None)

    def _oldest_stored(self, live: Live, topic: str) -> Event | None:
        """The oldest pending event of the table that the journal does not change."""
        first, rest = live.stored.get(topic) or (None, self._stored(live, topic))
        if topic not in live.stored or (first is not None and first.key in live.changed):
            first = next(rest, None)
            live.stored[topic] = first, rest
        return first

    def _stored(self, live: Live, topic: str, after_seq: int = 0) -> Iterator[Event]:
        """Pending events of the table that the journal does not change, in order, read a page at a time."""
        page: list[Any] = [None] * PAGE
        while len(page) == PAGE:
            page = self._all(PENDING, live.head.workflow, topic, after_seq, PAGE)
            for event in map(event_of, page):
                after_seq = event.seq
                if event.key not in live.changed:
                    yield event

    def peek(self, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
        live = self._of(workflow)
        both = live.pending_changed(topic, after_seq), self._pending_stored(live, topic, after_seq)
        return tuple(islice(merge(*both, key=by_seq), limit))

    def _pending_stored(self, live: Live, topic: str, after_seq: int) -> Iterator[Event]:
        """The first one is in memory, so that whoever takes one after the other asks the table for nothing."""
        first = self._oldest_stored(live, topic)
        if first is None:
            return
        if first.seq > after_seq:
            yield first
        yield from self._stored(live, topic, max(after_seq, first.seq))

    def get(self, workflow: str, key: Key) -> Event | None:
        return self._named_events(self._of(workflow), {key}).get(key)

    def _named_events(self, live: Live, keys: Collection[Key]) -> dict[Key, Event]:
        """Those of the events that exist. Asked table by table, as DuckDB uses no index below a UNION."""
        found = {key: live.changed[key] for key in keys if key in live.changed}
        for table in ("live_events", "finished_events"):
            if hashes := [name_hash(live.head.workflow, key) for key in keys if key not in found]:
                named_so = f"SELECT workflow, {EVENT_LIST} FROM {table} WHERE name_hash IN ({str(hashes)[1:-1]})"
                rows = [row for row in self._all(named_so) if row[0] == live.head.workflow and row[1:3] in keys]
                found |= {event.key: event for event in (event_of(row[1:]) for row in rows)}
        return found

    def _page(self, workflow: str, read: Callable[[Any], Value], statement: str, *values: Any) -> tuple[Value, ...]:
        self._of(workflow)
        return tuple(map(read, self._all(statement, workflow, *values)))
