"""The databases that `table` speaks with: how each is opened, and what its errors mean. No message is ever matched."""

import importlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ...kernel.failures import FailureClass
from .base import NotDone

BUSY_S: Final = 5
"""So long others may keep us waiting for a lock."""

SQLITE_FAILURES: Final[dict[int, FailureClass]] = {
    **dict.fromkeys((3, 8, 23), "auth"),  # no permission, read-only, not authorised
    **dict.fromkeys((5, 6, 7, 9, 10, 13, 14, 15), "network"),  # busy, locked, memory, interrupted, I/O, full, open
    **dict.fromkeys((2, 11, 21, 26), "connector"),  # internal, corrupt, misuse, not a database
}
"""Primary result codes; every other one is about what was asked."""


class Database(NamedTuple):
    """One database, behind the interface that all of Python's drivers share."""

    connect: Callable[[], Any]
    """A connection on which every statement is a transaction of its own, until one begins."""
    begin: str
    mark: str
    """Stands for a value in a statement."""
    failure: Callable[[Exception], FailureClass | None]
    integrity: type[Exception]
    """What is raised when a constraint forbids what was asked."""


def database_of(url: str) -> Database:
    """The database behind a URL; a ValueError says what is wrong with it, without showing it."""
    scheme, _, place = url.partition(":")
    match scheme:
        case "sqlite" if place:
            return sqlite(Path(place))
        case "duckdb" if place:
            return duckdb(Path(place))
        case "postgresql" | "postgres" if place.startswith("//"):
            return postgresql(url)
    raise ValueError("write sqlite:PATH, duckdb:PATH or postgresql://USER:PASSWORD@HOST/DATABASE")


def driver(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ValueError(
            f"this needs {name}: pip install 'keepkernel[{extra}]'; in a checkout: ./keep install {extra}"
        ) from None


def sqlite(path: Path) -> Database:
    def connect() -> sqlite3.Connection:
        # A file that is missing is not made: nobody could tell a new database from one that was lost.
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None
        )  # fmt: skip
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection

    def failure(error: Exception) -> FailureClass | None:
        if isinstance(error, OverflowError):
            return "refused"
        if not isinstance(error, sqlite3.Error):
            return None
        return SQLITE_FAILURES.get(getattr(error, "sqlite_errorcode", 1) & 0xFF, "refused")

    return Database(connect, "BEGIN IMMEDIATE", "?", failure, sqlite3.IntegrityError)


def duckdb(path: Path) -> Database:
    library = driver("duckdb", "duckdb")

    def connect() -> Any:
        if not path.exists():
            raise library.IOException(f"there is no database {path}")
        return library.connect(str(path))

    def failure(error: Exception) -> FailureClass | None:
        if isinstance(error, library.PermissionException):
            return "auth"
        return by_kind(library, error)

    return Database(connect, "BEGIN", "?", failure, library.IntegrityError)


def postgresql(url: str) -> Database:
    library = driver("psycopg", "postgres")

    def connect() -> Any:
        try:
            connection = library.connect(url, autocommit=True, connect_timeout=10)
        except library.OperationalError as error:
            if error.pgconn and (error.pgconn.used_password or error.pgconn.needs_password):
                raise NotDone("auth", str(error)) from error  # The server is there, and does not let us in.
            raise
        connection.execute(f"SET lock_timeout = '{BUSY_S}s'")
        # What is acknowledged must be durable; a server that promises more than that keeps its promise.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        return connection

    def failure(error: Exception) -> FailureClass | None:
        state = getattr(error, "sqlstate", None) or ""
        if state.startswith("28") or state == "42501":
            return "auth"
        # Triggers and extensions raise errors of states that no standard kind has.
        return by_kind(library, error) or ("refused" if state and not state.startswith("XX") else None)

    return Database(connect, "BEGIN", "%s", failure, library.IntegrityError)


def by_kind(library: Any, error: Exception) -> FailureClass | None:
    """What the standard kinds of errors of a database mean."""
    if isinstance(error, library.DataError | library.IntegrityError | library.ProgrammingError):
        return "refused"
    if isinstance(error, library.NotSupportedError):
        return "refused"
    return "network" if isinstance(error, library.OperationalError) else None
