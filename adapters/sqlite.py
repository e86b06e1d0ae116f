"""A store in one SQLite file: durable with every commit, and open to the `sqlite3` shell at any time.

Several processes of one machine may share the file. Tables are `workflows`, `events` and `transitions`; `runs`,
`mutations` and `sessions` are views of what the transitions sent into history and of what is still live (its
`transition` is NULL). README.md in this folder shows what to ask them.

What is committed stands first in a second file, PATH-wal, which SQLite reads when it opens the first one. Without it
SQLite would silently show an older store. So the log is marked: `store.log` in the main file says `open` while
commits go to the log, whose own first entry says `logged`. Who finds `open` and no log knows that the log was lost.
Of a log that was cut or spoiled SQLite takes what comes before, as silently. So a third file, PATH-mark, names the last
commit, and a store that does not hold it is not opened.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final
from urllib.parse import quote

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
)
from ..kernel.types import State, new_workflow
from ..kernel.window import named
from .clock import ForwardClock, wall_clock_ms
from .disk import trouble_with
from .mark import LastCommit, sync_folder
from .pages import EVENTS, REPLACE_EVENT, VIEWED, Pages, view
from .points import Reach, pass_by
from .rows import (
    EVENT_COLUMNS,
    TRANSITION_COLUMNS,
    event_of,
    event_row,
    next_lease,
    transition_rows,
)

APPLICATION_ID: Final = 0x6B656570
"""Stands in the file's header and says whose it is: "keep" in ASCII."""
CHECKPOINT_COMMITS: Final = 500
"""After so many commits the log is brought into the main file, so that it stays short."""
HEADER_BYTES: Final = 100


def _field(text: str, name: str) -> str:
    return f"json_extract({text}, '$.{name}')"


MIGRATIONS: Final = (
    (
        "CREATE TABLE store (log TEXT NOT NULL CHECK (log IN ('closed', 'open', 'logged')))",
        "INSERT INTO store VALUES ('closed')",
        """
        CREATE TABLE workflows (
            name TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL, changed_at INTEGER NOT NULL,
            lease_host TEXT NOT NULL, lease_token INTEGER NOT NULL, lease_expires_at INTEGER NOT NULL,
            head TEXT NOT NULL)""",
        """
        CREATE TABLE events (
            workflow TEXT NOT NULL, topic TEXT NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL, status TEXT NOT NULL,
            owner TEXT NOT NULL, title TEXT NOT NULL, payload TEXT NOT NULL, created_by TEXT NOT NULL,
            causes TEXT NOT NULL, UNIQUE (workflow, topic, id), UNIQUE (workflow, seq))""",
        "CREATE INDEX pending_events ON events (workflow, topic, seq) WHERE status = 'pending'",
        "CREATE INDEX reserved_events ON events (workflow) WHERE status = 'reserved'",
        """
        CREATE TABLE transitions (
            workflow TEXT NOT NULL, version INTEGER NOT NULL, change TEXT NOT NULL, at INTEGER NOT NULL,
            name TEXT NOT NULL, command TEXT NOT NULL, rules TEXT NOT NULL,
            run TEXT, mutation TEXT, session TEXT, PRIMARY KEY (workflow, version))""",
        *(f"CREATE INDEX finished_{n}s ON transitions (workflow, version) WHERE {n} IS NOT NULL" for n in VIEWED),
        *(view(name, _field) for name in VIEWED),
    ),
)
"""Statements that lead from each schema version to the next. What was released never changes; append."""

OLDEST: Final = f"{EVENTS} AND topic = ? AND status = 'pending' ORDER BY seq LIMIT 1"
PUT_EVENT: Final = f"""
    INSERT INTO events (workflow, {", ".join(EVENT_COLUMNS)}) VALUES (?{", ?" * len(EVENT_COLUMNS)}) {REPLACE_EVENT}"""
PUT_TRANSITION: Final = f"""
    INSERT INTO transitions ({", ".join(TRANSITION_COLUMNS)}) VALUES (?{", ?" * (len(TRANSITION_COLUMNS) - 1)})"""
MOVE_HEAD: Final = """
    UPDATE workflows SET head = ?, version = ?, changed_at = max(changed_at, ?)
    WHERE name = ? AND version = ? AND lease_token = ifnull(?, lease_token)"""


class SQLiteStore(Pages):
    """Durable workflows in one file; `reach` is told before and after each statement that writes."""

    def __init__(
        self,
        path: str,
        clock: Callable[[], int] = wall_clock_ms,
        reach: Reach = pass_by,
        busy_ms: int = 5_000,
    ) -> None:
        # SQLite puts the log beside the file itself, not beside a link to it.
        self._path = Path(os.path.realpath(path))
        self._clock = ForwardClock(clock)
        self._reach = reach
        self._busy_ms = busy_ms
        self._commits = 0
        self._mark = LastCommit(self._path.with_name(f"{self._path.name}-mark"))
        self._heads: dict[str, tuple[int, State]] = {}
        """The latest version and head that were seen of each workflow, so that they are not read twice."""
        with self._troubles_named():
            left = self._log.exists()  # Asked first: whoever creates the store makes the log after the file.
            if not self._path.exists():
                if left:
                    raise DamagedStore(
                        f"{self._path} is missing, and its log is there. Put it back, or restore a copy; "
                        f"to begin a new one, remove {self._log.name} and {self._mark.path.name}"
                    )
                self._create_file()
            self._require_store()
            self._connection = self._connect("mode=rw", busy_ms)
            try:
                self._set_up()
            except BaseException:
                self._let_go()
                raise

    # -- the file

    def _connect(self, mode: str, busy_ms: int = 0, path: Path | None = None) -> sqlite3.Connection:
        uri = f"file:{quote(str((path or self._path).absolute()))}?{mode}"
        # Threads may share a store, one call at a time; whoever shares it sees to that.
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=busy_ms / 1000, check_same_thread=False)

    def _create_file(self) -> None:
        """Make it beside its place and put it there when it is whole: nobody ever finds half a store."""
        if not self._path.parent.is_dir():
            raise StoreError(f"there is no folder {self._path.parent}; make it first")
        draft = self._path.with_name(f"{self._path.name}.{token_hex(4)}.new")
        try:
            with closing(self._connect("mode=rwc", path=draft)) as connection:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._migrate(connection)
            self._reach("create file: before")
            os.link(draft, self._path)
            sync_folder(self._path.parent)
            self._reach("create file: after")
        except FileExistsError:
            """Another process was faster; its store is as good."""
        finally:
            draft.unlink(missing_ok=True)

    def _require_store(self) -> None:
        """Refuse what is not ours, before anything of it is changed."""
        with self._path.open("rb") as file:
            header = file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            raise DamagedStore(
                f"{self._path} holds {len(header)} bytes, which is no store any more, if it was one: "
                "restore a copy, or remove it to begin a new one"
            )
        if not header.startswith(b"SQLite format 3\0") or int.from_bytes(header[68:72]) != APPLICATION_ID:
            raise NotAStore(f"{self._path} was not written by keepkernel; name another file")
        self._require_known(int.from_bytes(header[60:64]))
        if self._log_is_missing() and self._log_is_missing():  # Another process may open it between the two looks.
            raise DamagedStore(
                f"{self._log} is missing: {self._path.name} was not closed in order, and its last commits stood there. "
                "Put it back where it was. If it is gone for good, restore a copy, or go on without those commits: "
                f"remove {self._mark.path.name}, then sqlite3 '{self._path}' \"UPDATE store SET log = 'closed'\""
            )

    def _log_is_missing(self) -> bool:
        return not self._log.exists() and self._log_mark("mode=ro&immutable=1") == "open" and not self._log.exists()

    @property
    def _log(self) -> Path:
        return self._path.with_name(f"{self._path.name}-wal")

    def _log_mark(self, mode: str) -> str:
        with closing(self._connect(mode)) as connection:
            mark: str = connection.execute("SELECT log FROM store").fetchone()[0]
            return mark

    def _set_up(self) -> None:
        execute = self._connection.execute
        if execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreError(
                f"the file system under {self._path} has no shared memory, which SQLite needs; use another"
            )
        for setting in ("synchronous = FULL", "fullfsync = ON", "wal_autocheckpoint = 0"):
            execute(f"PRAGMA {setting}")
        self._migrate(self._connection)
        self._require_last_commit()
        self._begin_log()
        pages, bytes_per_page = (execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        if self._path.stat().st_size < pages * bytes_per_page and self._log.stat().st_size == 0:
            raise DamagedStore(f"{self._path} has been cut short; restore a copy")
        self._clock.saw(execute("SELECT ifnull(max(changed_at), 0) FROM workflows").fetchone()[0])

    def _require_last_commit(self) -> None:
        """A log that was cut loses its end, so whoever has the last commit has all of them."""
        last = self._mark.read()
        if last is None:
            return
        workflow, wanted = last
        held = self._all("SELECT 1 FROM workflows WHERE name = ? AND version >= ?", workflow, wanted)
        # Whoever reads while another process writes may find half of the one and half of the other; once.
        if not held and self._mark.read() == last:
            raise DamagedStore(
                f"{self._log} is damaged or cut, or {self._path.name} is an older copy: {self._mark.path.name} says "
                f"that {workflow} was at version {wanted}, and that is not there. Put back what was there. If it is "
                f"gone for good, restore a copy, or go on without those commits: remove {self._mark.path.name}"
            )

    def _require_known(self, version: int) -> None:
        if version > len(MIGRATIONS):
            raise NewerStore(
                f"{self._path} has schema version {version}, and this keepkernel knows {len(MIGRATIONS)}; "
                "install the keepkernel that wrote it, or a later one"
            )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the schema up to date, one transaction a version."""
        while (version := connection.execute("PRAGMA user_version").fetchone()[0]) != len(MIGRATIONS):
            self._require_known(version)
            with self._writing(connection):
                if connection.execute("PRAGMA user_version").fetchone()[0] == version:
                    for statement in MIGRATIONS[version]:
                        self._write(f"migrate {version}", statement, connection=connection)
                    connection.execute(f"PRAGMA user_version = {version + 1}")

    def _begin_log(self) -> None:
        """Bring the log into the main file, and begin a new one with its mark; see the top of this module.

        The log's file is there as long as the main file says `open`, so dying in between is harmless. It keeps its
        length, because a commit that makes a file longer takes twice the time.
        """
        self._write("mark open", "UPDATE store SET log = 'open'")
        self._write("checkpoint", "PRAGMA wal_checkpoint(RESTART)")
        self._write("mark logged", "UPDATE store SET log = 'logged'")
        self._commits = 0

    def close(self) -> None:
        """The last one to leave brings all into the main file and removes the log."""
        with self._troubles_named():
            try:
                self._leave()
            except BaseException:
                self._let_go()
                raise
            self._connection.close()

    def _leave(self) -> None:
        self._begin_log()
        self._write("mark closed", "UPDATE store SET log = 'closed'")
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._write("leave", "PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            # Others go on with the log.
            self._connection.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
            self._write("mark logged", "UPDATE store SET log = 'logged'")
            self._mark.release()
        else:
            self._mark.remove()

    def drop(self) -> None:
        main = self._path.read_bytes()
        self._let_go()
        if self._path.read_bytes() != main:
            self._path.write_bytes(main)

    def _let_go(self) -> None:
        """SQLite tidies up when the last connection closes. Who has not come to the end of its work leaves the log."""
        self._mark.release()
        kept = self._path.with_name(f"{self._path.name}-kept")
        with suppress(OSError):  # Where nothing can be written, SQLite removes nothing.
            kept.unlink(missing_ok=True)  # Of somebody who died here.
            os.link(self._log, kept)
        self._connection.close()
        if kept.exists():
            os.replace(kept, self._log)
            kept.unlink(missing_ok=True)  # Two names of one file are not replaced.

    # -- statements

    def _write(
        self, point: str, statement: str, values: Sequence[Any] = (), connection: sqlite3.Connection | None = None
    ) -> int:
        """How many rows it changed; the statement is at its end, whatever happens at the point after it."""
        self._reach(f"{point}: before")
        cursor = (connection or self._connection).execute(statement, values)
        cursor.fetchall()
        self._reach(f"{point}: after")
        return cursor.rowcount

    def _write_all(self, point: str, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._reach(f"{point}: before")
            self._connection.executemany(statement, rows)
            self._reach(f"{point}: after")

    @contextmanager
    def _writing(self, connection: sqlite3.Connection | None = None) -> Iterator[None]:
        """One transaction: all of it is durable when this ends, or nothing of it has happened."""
        connection = connection or self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._write("commit", "COMMIT", connection=connection)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _troubles_named(self) -> Iterator[None]:
        """What SQLite and the system report, in words that say what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._named(error) from error
        except OSError as error:
            raise trouble_with(self._path, error) from error

    def _named(self, error: sqlite3.Error) -> StoreError:
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
        match primary:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return StoreBusy(
                    f"another process writes to {self._path} and does not stop; end it, or try again later"
                )
            case sqlite3.SQLITE_FULL:
                return StoreFull(f"the disk under {self._path} is full; make room, then try again")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                return ReadOnlyStore(
                    f"{self._path} can not be written: let this user write to the file and to its folder ({error})"
                )
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return DamagedStore(f"{self._path} is damaged; restore a copy ({error})")
            case _:
                return StoreError(
                    f"SQLite failed on {self._path}; see to its disk, then open the store again, "
                    f"which shows what was committed ({error})"
                )

    def _all(self, statement: str, *values: Any) -> list[Any]:
        with self._troubles_named():
            return self._connection.execute(statement, values).fetchall()

    # -- workflows

    def now(self) -> int:
        return self._clock.now()

    def create(self, workflow: str, policy: Policy) -> bool:
        head = encode(new_workflow(workflow, policy))
        with self._troubles_named():
            statement = "INSERT INTO workflows VALUES (?, 0, 0, '', 0, 0, ?) ON CONFLICT DO NOTHING"
            created = self._write("create", statement, (workflow, head)) == 1
            if created:
                self._mark.write(workflow, 0)
            return created

    def load(self, workflow: str, command: Command | None = None) -> Loaded:
        with self._troubles_named():
            self._connection.execute("BEGIN")
            try:
                return self._load(workflow, command)
            finally:
                self._connection.execute("COMMIT")

    def _load(self, workflow: str, command: Command | None) -> Loaded:
        execute = self._connection.execute
        version, changed_at = self._row(workflow, "version, changed_at")
        self._clock.saw(changed_at)
        seen = self._heads.get(workflow)
        if seen is None or seen[0] != version:
            [(text,)] = execute("SELECT head FROM workflows WHERE name = ?", (workflow,))
            seen = self._heads[workflow] = version, decode_state(text)
        head = seen[1]
        found = execute(f"{EVENTS} AND status = 'reserved'", (workflow,)).fetchall()
        for topic in head.topics:
            found += execute(OLDEST, (workflow, topic))
        for key in named(head, command) if command is not None else ():
            found += execute(f"{EVENTS} AND topic = ? AND id = ?", (workflow, *key))
        events = {event.seq: event for event in map(event_of, found)}
        return Loaded(head._replace(events=tuple(events[seq] for seq in sorted(events))), version)

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        head, lines = encode(change.head), transition_rows(change)
        token = lease.token if lease is not None else None
        moving = (head, change.version, lines[-1].at, change.workflow, change.base, token)
        with self._troubles_named():
            if self._commits >= CHECKPOINT_COMMITS:
                self._begin_log()
            with self._writing():
                if self._write("head", MOVE_HEAD, moving) != 1:
                    version, *held = self._row(change.workflow, "version, lease_host, lease_token, lease_expires_at")
                    return self._version_of(change, version, lease, Lease(change.workflow, *held))
                self._write_all("transitions", PUT_TRANSITION, lines)
                self._write_all("events", PUT_EVENT, [(change.workflow, *event_row(e)) for e in change.events])
            self._commits += 1
            self._heads[change.workflow] = change.version, change.head
            self._mark.write(change.workflow, change.version)
        return change.version

    def lease(self, workflow: str, host: str, ttl_ms: int) -> Lease | None:
        with self._troubles_named(), self._writing():
            changed_at, *held = self._row(workflow, "changed_at, lease_host, lease_token, lease_expires_at")
            self._clock.saw(changed_at)
            lease = next_lease(Lease(workflow, *held), workflow, host, self.now(), ttl_ms)
            if lease is not None:
                statement = "UPDATE workflows SET lease_host = ?, lease_token = ?, lease_expires_at = ? WHERE name = ?"
                self._write("lease", statement, (*lease[1:], workflow))
        return lease

    def release(self, lease: Lease) -> None:
        statement = "UPDATE workflows SET lease_host = '', lease_expires_at = 0 WHERE name = ? AND lease_token = ?"
        with self._troubles_named():
            self._write("release", statement, (lease.workflow, lease.token))
