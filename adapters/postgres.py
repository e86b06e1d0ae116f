"""A store in a PostgreSQL database: for several hosts, each on a machine of its own.

Tables and views are those of the SQLite store, in the schema that the URL's user works in (its `search_path`). A
commit is one statement and so one transaction: PostgreSQL makes all of it durable, or nothing.

When the connection breaks during a commit, nobody knows whether the statement arrived. `Disconnected` says so, the
next call connects again, and the same change, committed again, is recognised by its id. Should the server still be
at work on the first one, then the second waits for the lock on the workflow's row and finds it moved.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown, TextLoader

from ..kernel.codec import decode_state, encode
from ..kernel.commands import Command
from ..kernel.policy import Policy
from ..kernel.ports import (
    Change,
    DamagedStore,
    Disconnected,
    Lease,
    Loaded,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    StoreBusy,
    StoreError,
    StoreFull,
)
from ..kernel.types import Key, new_workflow
from ..kernel.window import named
from .clock import ForwardClock
from .pages import REPLACE_EVENT, VIEWED, Pages, view
from .points import Reach, pass_by
from .rows import (
    EVENT_COLUMNS,
    TRANSITION_COLUMNS,
    EventRow,
    TransitionRow,
    event_of,
    event_row,
    next_lease,
    transition_rows,
    unknown,
)

Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]

TEXT: Final = 'TEXT COLLATE "C" NOT NULL'
"""Sorted by code point, as Python sorts, whatever the database's language."""
NULL_TEXT: Final = 'TEXT COLLATE "C"'
ESCAPED_NUL: Final = r"(?<!\\)((?:\\\\)*)\\u0000"
"""The escape of the character that PostgreSQL can not show, after no backslash or an even number of them."""


def _field(text: str, name: str) -> str:
    return rf"regexp_replace({text}, '{ESCAPED_NUL}', '\1\\u2400', 'g')::json ->> '{name}'"


MIGRATIONS: Final = (
    (
        "CREATE TABLE keepkernel (schema_version INTEGER NOT NULL)",
        "INSERT INTO keepkernel VALUES (0)",
        f"""
        CREATE TABLE workflows (
            name {TEXT} PRIMARY KEY, version BIGINT NOT NULL, changed_at BIGINT NOT NULL,
            lease_host {TEXT}, lease_token BIGINT NOT NULL, lease_expires_at BIGINT NOT NULL,
            head {TEXT}) WITH (fillfactor = 50)""",
        # Every event leaves both partial indexes again; what it leaves there is swept up before scans grow long.
        f"""
        CREATE TABLE events (
            workflow {TEXT}, topic {TEXT}, id {TEXT}, seq BIGINT NOT NULL, status {TEXT}, owner {TEXT}, title {TEXT},
            payload {TEXT}, created_by {TEXT}, causes {TEXT},
            UNIQUE (workflow, topic, id), UNIQUE (workflow, seq)
        ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)""",
        "CREATE INDEX pending_events ON events (workflow, topic, seq) WHERE status = 'pending'",
        "CREATE INDEX reserved_events ON events (workflow) WHERE status = 'reserved'",
        f"""
        CREATE TABLE transitions (
            workflow {TEXT}, version BIGINT NOT NULL, change {TEXT}, at BIGINT NOT NULL, name {TEXT}, command {TEXT},
            rules {TEXT}, run {NULL_TEXT}, mutation {NULL_TEXT}, session {NULL_TEXT},
            PRIMARY KEY (workflow, version))""",
        *(
            f"CREATE INDEX finished_{name}s ON transitions (workflow, version) WHERE {name} IS NOT NULL"
            for name in VIEWED
        ),
        *(view(name, _field) for name in VIEWED),
    ),
)
"""Statements that lead from each schema version to the next. What was released never changes; append."""
NAMES: Final = ["keepkernel", "workflows", "events", "transitions", *(f"{name}s" for name in VIEWED)]
MIGRATION_LOCK: Final = 0x6B656570
"""Whoever migrates holds this, so that two hosts that open a new store do not both make its tables."""

SETTINGS: Final = """
    SELECT set_config('default_transaction_isolation', 'read committed', false),
        set_config('lock_timeout', %s, false),
        CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"""
FACTS: Final = """
    SELECT current_setting('fsync'), current_setting('server_encoding'), current_schema(), ARRAY(
        SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = current_schema() AND relname = ANY (%s) ORDER BY relname)"""
CLOCK: Final = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

LEASE_COLUMNS: Final = "lease_host, lease_token, lease_expires_at"
TAKE_LEASE: Final = f"""
    UPDATE workflows SET ({LEASE_COLUMNS}) = (%s, %s, %s) WHERE name = %s AND ({LEASE_COLUMNS}) = (%s, %s, %s)"""
EVENT_LIST: Final = ", ".join(EVENT_COLUMNS)
LINE_LIST: Final = ", ".join(TRANSITION_COLUMNS)


def _types(columns: Iterable[str]) -> str:
    return ", ".join(f"{name} {'bigint' if name in ('seq', 'version', 'at') else 'text'}" for name in columns)


COMMIT: Final = f"""
    WITH moved AS (
        UPDATE workflows SET head = %s, version = %s, changed_at = greatest(changed_at, %s)
        WHERE name = %s AND version = %s AND lease_token = coalesce(%s, lease_token) RETURNING name
    ), lines AS (
        INSERT INTO transitions ({LINE_LIST})
        SELECT line.* FROM moved, json_to_recordset(%s::json) AS line ({_types(TRANSITION_COLUMNS)})
    ) SELECT count(*) FROM moved"""
COMMIT_WITH_EVENTS: Final = COMMIT.replace(
    ") SELECT count",
    f"""), put AS (
        INSERT INTO events (workflow, {EVENT_LIST})
        SELECT name, event.* FROM moved, json_to_recordset(%s::json) AS event ({_types(EVENT_COLUMNS)})
        {REPLACE_EVENT}
    ) SELECT count""",
)
LOAD: Final = f"""
    WITH RECURSIVE oldest AS (
        (SELECT * FROM events WHERE workflow = %(name)s AND status = 'pending' ORDER BY topic, seq LIMIT 1)
        UNION ALL SELECT next.* FROM oldest, LATERAL (
            SELECT * FROM events WHERE workflow = %(name)s AND status = 'pending' AND topic > oldest.topic
            ORDER BY topic, seq LIMIT 1) AS next
    ) SELECT version, changed_at, head{", NULL" * len(EVENT_COLUMNS)} FROM workflows WHERE name = %(name)s
    UNION ALL SELECT NULL, NULL, NULL, {EVENT_LIST} FROM oldest
    UNION ALL SELECT NULL, NULL, NULL, {EVENT_LIST} FROM events WHERE workflow = %(name)s AND status = 'reserved'
    UNION ALL SELECT NULL, NULL, NULL, found.* FROM unnest(%(topics)s::text[], %(ids)s::text[]) AS key (topic, id),
    LATERAL (
        SELECT {EVENT_LIST} FROM events
        WHERE workflow = %(name)s AND topic = key.topic AND id = key.id LIMIT 1) AS found"""
"""The head in one row and the window of events in the others; the oldest event of a topic leads to the next topic.

The plan is made once for a connection, perhaps when the tables are empty, and must be right when they are not. So the
limits say from where to where to go.
"""

AT_WORK: Final = "starting up|shutting down|in recovery mode|not yet accepting connections"
"""What a server says that is there and not ready."""
AWAY: Final = "Connection refused|No such file or directory|closed the connection|reset by peer"
REMEDIES: Final = {
    "password|authentication failed": "see to the user and the password, in the URL, PGPASSWORD or ~/.pgpass",
    'database ".*" does not exist': "make the database with createdb, or name another",
    'role ".*" does not exist': "make the user with createuser, or name another",
    "pg_hba.conf": "let this machine in, in the server's pg_hba.conf",
    "too many clients|connection slots": "end other connections, or raise the server's max_connections",
    AT_WORK: "the server is about to start or to stop; wait for it",
    f"{AWAY}|timeout|resolve host|unreachable|No route": "start the server, or see to host and port",
    "": "see to the server, the URL and the rights of the user",
}
"""What helps, by what the server or the driver says about a connection that it did not make."""

MARK: Final = "\ufdd0"
"""A character that is none in Unicode's eyes; stands before `0` for NUL, which PostgreSQL can not hold, and before `1`
for itself."""


def storable(text: str) -> str:
    if text.isascii() and "\0" not in text:
        return text
    return text.replace(MARK, f"{MARK}1").replace("\0", f"{MARK}0")


def restored(text: str) -> str:
    return text.replace(f"{MARK}0", "\0").replace(f"{MARK}1", MARK)


class TextWithNul(StrDumperUnknown):
    def dump(self, obj: str) -> Any:
        return storable(obj).encode()


class TextWithNulLoader(TextLoader):
    def load(self, data: Any) -> str:
        return restored(str(super().load(data)))


def rows_text(rows: Iterable[EventRow | TransitionRow]) -> str:
    """Rows as one JSON text, which takes the driver less time than a list for each column."""
    return json.dumps(
        [{k: storable(v) if isinstance(v, str) else v for k, v in row._asdict().items()} for row in rows]
    )  # fmt: skip


DEFAULTS: Final = {
    "application_name": "keepkernel",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""A peer that vanished without a word is noticed within half a minute. The URL may say otherwise."""


def parameters(url: str) -> dict[str, str]:
    """What the URL says about the connection. Whatever is wrong with it, no part of a password is shown."""
    bad = StoreError(
        "this is no URL of a PostgreSQL database; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
        "with % escapes for signs like @ : / ? # % in a password"
    )
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError:
        raise bad from None
    # A password with an @ or a / that is not escaped would end up in these.
    if "@" in found.get("host", "") + found.get("dbname", "") or not found.get("port", "0").replace(",", "").isdigit():
        raise bad
    return DEFAULTS | found


class PostgresStore(Pages):
    """Durable workflows in a database; `reach` is told before and after each statement that writes.

    Time is the server's unless a clock is given. `patience_ms` is how long to wait for a lock, and for a server that
    is away for a moment.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], int] | None = None,
        reach: Reach = pass_by,
        patience_ms: int = 5_000,
    ) -> None:
        self._parameters = parameters(url)
        self._clock = ForwardClock(clock or self._server_clock)
        self._reach = reach
        self._patience_ms = patience_ms
        self._connection = self._connect(AT_WORK)
        try:
            self._set_up()
        except BaseException:
            self.drop()
            raise

    # -- the connection

    @property
    def _place(self) -> str:
        """Where the store is, as people name it, and without a password."""
        database, host = (self._parameters.get(name, "of the user's settings") for name in ("dbname", "host"))
        return f"database {database} at {host}"

    def _connect(self, passing: str) -> Connection:
        """Connect, and wait for what is passing: that is told from what the server or the driver says."""
        give_up = time.monotonic() + self._patience_ms / 1000
        while True:
            try:
                connection = psycopg.connect(make_conninfo(**self._parameters), autocommit=True)
                connection.execute(SETTINGS, (f"{self._patience_ms}ms",))
                break
            except psycopg.Error as error:
                if time.monotonic() > give_up or not re.search(passing, str(error)):
                    remedy = next(remedy for sign, remedy in REMEDIES.items() if re.search(sign, str(error)))
                    words = self._without_password(error)
                    raise StoreError(f"no connection to {self._place}: {remedy} ({words})") from None
                time.sleep(0.05)
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(str, TextWithNul)
        connection.adapters.register_loader("text", TextWithNulLoader)
        return connection

    def _without_password(self, error: psycopg.Error) -> str:
        words = " ".join(str(error).split())
        for secret in (self._parameters.get(name) for name in ("password", "sslpassword")):
            words = words.replace(secret, "…") if secret else words
        return words

    def _live(self) -> Connection:
        """The connection, made anew when it broke."""
        if self._connection.closed:
            try:
                self._connection = self._connect(f"{AT_WORK}|{AWAY}")
            except StoreError as error:
                raise Disconnected(f"{error}; then do the same again") from None
        return self._connection

    def _execute(self, statement: str, values: Any = (), *, prepare: bool | None = None) -> Cursor:
        connection = self._live()
        with self._troubles_named():
            return connection.execute(statement, values, prepare=prepare)

    @contextmanager
    def _troubles_named(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._named(error) from error

    def _write(self, point: str, statement: str, values: Any = ()) -> Cursor:
        self._reach(f"{point}: before")
        cursor = self._execute(statement, values)
        self._reach(f"{point}: after")
        return cursor

    def _read(self, statement: str, values: Any = (), *, prepare: bool | None = None) -> list[Any]:
        """Reading twice harms nobody, so a broken connection is not worth a word."""
        self._live()
        try:
            return self._execute(statement, values, prepare=prepare).fetchall()
        except Disconnected:
            return self._execute(statement, values, prepare=prepare).fetchall()

    def _all(self, statement: str, *values: Any) -> list[Any]:
        """Pages are planned each time, by how large the tables are then."""
        return self._read(statement.replace("?", "%s"), values, prepare=False)

    def _named(self, error: psycopg.Error) -> StoreError:
        """What PostgreSQL reports, in words that say what to do."""
        state, words, place = error.sqlstate or "", self._without_password(error), self._place
        if self._connection.closed or state.startswith("57P0"):
            self._connection.close()
            return Disconnected(f"the connection to {place} broke; do the same again ({words})")
        match state:
            case "53100":
                return StoreFull(f"the disk of {place} is full; make room, then try again")
            case "25006" | "42501":
                return ReadOnlyStore(
                    f"{place} can not be written: let this user write there, or name the main server ({words})"
                )
            case "55P03" | "57014" | "40001" | "40P01" | "53200" | "53300":
                return StoreBusy(f"{place} is kept busy by others; end them, or try again later ({words})")
            case "XX001" | "XX002" | "42P01" | "42703":
                return DamagedStore(f"{place} is damaged; restore a copy ({words})")
            case "54000":
                return StoreError(
                    f"names of workflow, topic and event are too long for {place}; shorten them ({words})"
                )
            case _:
                return StoreError(f"PostgreSQL failed on {place}; nothing was written. See to the server ({words})")

    def close(self) -> None:
        self._connection.close()

    def drop(self) -> None:
        """The server undoes what is not committed as soon as the connection is gone."""
        self._connection.close()

    # -- the schema

    def _set_up(self) -> None:
        [(fsync, encoding, schema, tables)] = self._read(FACTS, (NAMES,))
        if fsync == "off":
            raise StoreError(f"the server of {self._place} runs with fsync = off and may forget commits; turn it on")
        if encoding != "UTF8":
            raise StoreError(f"{self._place} is encoded in {encoding}; make one with createdb --encoding=UTF8")
        if schema is None:
            raise NotAStore(f"{self._place} has no schema that this user works in; create it, or set its search_path")
        if self._schema_version(tables) < len(MIGRATIONS):
            self._migrate()
        self._clock.saw(self._read("SELECT coalesce(max(changed_at), 0) FROM workflows")[0][0])

    def _schema_version(self, tables: Collection[str]) -> int:
        if "keepkernel" not in tables:
            return 0
        [(version,)] = self._execute("SELECT schema_version FROM keepkernel").fetchall()
        if version > len(MIGRATIONS):
            raise NewerStore(
                f"{self._place} has schema version {version}, and this keepkernel knows {len(MIGRATIONS)}; "
                "install the keepkernel that wrote it, or a later one"
            )
        return int(version)

    def _migrate(self) -> None:
        """Bring the schema up to date in one transaction; of several hosts one does it, and the others wait."""
        with self._troubles_named(), self._live().transaction():
            self._execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            [(_, _, schema, tables)] = self._execute(FACTS, (NAMES,)).fetchall()
            version = self._schema_version(tables)
            if version == 0 and tables:
                raise NotAStore(
                    f"schema {schema} of {self._place} has tables that keepkernel did not write: {', '.join(tables)}; "
                    "name another database, or a schema of its own by ?options=-csearch_path%3DNAME"
                )
            for number, statements in enumerate(MIGRATIONS[version:], version):
                for statement in statements:
                    self._write(f"migrate {number}", statement)
            self._write("schema version", "UPDATE keepkernel SET schema_version = %s", (len(MIGRATIONS),))
            self._reach("migrated: before")
        self._reach("migrated: after")

    # -- workflows

    def now(self) -> int:
        return self._clock.now()

    def _server_clock(self) -> int:
        now: int = self._read(CLOCK)[0][0]
        return now

    def create(self, workflow: str, policy: Policy) -> bool:
        statement = "INSERT INTO workflows VALUES (%s, 0, 0, '', 0, 0, %s) ON CONFLICT DO NOTHING"
        return self._write("create", statement, (workflow, encode(new_workflow(workflow, policy)))).rowcount == 1

    def load(self, workflow: str, command: Command | None = None) -> Loaded:
        """Each question gets an answer of one moment; which events are named is only known from the head."""
        keys: frozenset[Key] = frozenset()
        while True:
            loaded = self._load(workflow, keys)
            wanted = named(loaded.state, command) if command is not None else keys
            if wanted <= keys:
                return loaded
            keys = wanted

    def _load(self, workflow: str, keys: Collection[Key]) -> Loaded:
        names = {"name": workflow, "topics": [key.topic for key in keys], "ids": [key.id for key in keys]}
        rows = self._read(LOAD, names)
        heads = [row[:3] for row in rows if row[0] is not None]
        if not heads:
            raise unknown(workflow)
        [(version, changed_at, head)] = heads
        self._clock.saw(changed_at)
        events = {event.seq: event for event in (event_of(row[3:]) for row in rows if row[0] is None)}
        return Loaded(decode_state(head)._replace(events=tuple(events[seq] for seq in sorted(events))), version)

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        lines, token = transition_rows(change), lease.token if lease is not None else None
        moving = (encode(change.head), change.version, lines[-1].at, change.workflow, change.base, token)
        if change.events:
            events = rows_text(map(event_row, change.events))
            cursor = self._write("commit", COMMIT_WITH_EVENTS, (*moving, rows_text(lines), events))
        else:
            cursor = self._write("commit", COMMIT, (*moving, rows_text(lines)))
        [(moved,)] = cursor.fetchall()
        if moved:
            return change.version
        version, *held = self._row(change.workflow, f"version, {LEASE_COLUMNS}")
        return self._version_of(change, version, lease, Lease(change.workflow, *held))

    def lease(self, workflow: str, host: str, ttl_ms: int) -> Lease | None:
        """Decided on what was read, and written only if that still holds."""
        while True:
            changed_at, *held = self._row(workflow, f"changed_at, {LEASE_COLUMNS}")
            self._clock.saw(changed_at)
            lease = next_lease(Lease(workflow, *held), workflow, host, self.now(), ttl_ms)
            if lease is None or self._write("lease", TAKE_LEASE, (*lease[1:], workflow, *held)).rowcount == 1:
                return lease

    def release(self, lease: Lease) -> None:
        statement = "UPDATE workflows SET lease_host = '', lease_expires_at = 0 WHERE name = %s AND lease_token = %s"
        self._write("release", statement, (lease.workflow, lease.token))
