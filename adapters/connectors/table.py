"""Rows of a table in SQLite, DuckDB or PostgreSQL.

Beside the table, in the same database, `keepkernel_calls` holds one line for each call. A row and the line of its call
are inserted in one transaction, so each is there exactly if the other is. Whoever looks for a call first inserts a
line of the same key that makes it void. An insert that is not committed yet can not be seen, but it can not be
committed any more either when that line is there: a primary key is unique.
"""

import base64
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, PrivateAttr, SecretStr, StringConstraints, ValidationInfo, field_validator
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ...kernel.failures import FailureClass
from ...kernel.respond import DidNotHappen
from .base import Call, Connector, NotDone, Refused, Shape, changes, reads, reconciles
from .databases import Database, database_of

CALLS: Final = "keepkernel_calls"
COLUMNS: Final = "call VARCHAR(64) PRIMARY KEY, idempotency_key TEXT NOT NULL, state TEXT NOT NULL, result TEXT"

Name = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
Scalar = bool | int | float | str | None
Row = dict[str, Any]
Values = Annotated[dict[Name, Scalar], Field(max_length=1_000)]


class InsertParams(Shape):
    row: Annotated[Values, Field(min_length=1)]


class Inserted(Shape):
    row: Row
    """As the database holds it, with what it filled in itself."""


class QueryParams(Shape):
    where: Values = Field(default={})
    """Values that columns must have."""
    above: Values = Field(default={})
    """Values that columns must exceed."""
    order: Name | None = None
    descending: bool = False
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class Rows(Shape):
    rows: list[Row]


class Table(Connector):
    """A table, which must exist. The user needs the rights to read it, to insert, and to make one table beside it."""

    url: SecretStr
    table: Annotated[str, StringConstraints(pattern=r"^[^.\x00]+(\.[^.\x00]+)?$")]
    """Its name, or schema and name with a dot between them."""

    _database: Database = PrivateAttr()

    @field_validator("url")
    @classmethod
    def _placed(cls, url: SecretStr, info: ValidationInfo) -> SecretStr:
        """The path of a file counts from the folder of the configuration."""
        scheme, _, place = url.get_secret_value().partition(":")
        database_of(url.get_secret_value())
        if scheme.startswith("postgres"):
            return url
        return SecretStr(f"{scheme}:{(info.context or {}).get('folder', Path()) / place}")

    def model_post_init(self, context: Any) -> None:
        self._database = database_of(self.url.get_secret_value())

    def failure(self, error: Exception) -> FailureClass | None:
        return self._database.failure(error)

    # -- changes

    @changes
    def insert(self, params: InsertParams, call: Call) -> Inserted:
        """Insert one row."""
        columns = ", ".join(self._quoted(column) for column in params.row)
        marks = ", ".join(self._database.mark for _ in params.row)
        with self._session() as session:
            with self.unsent():
                session.run(self._database.begin)
                call.reach("table: begun")
                statement = f"INSERT INTO {self._name} ({columns}) VALUES ({marks}) RETURNING *"
                rows = session.rows(statement, *params.row.values())
                if len(rows) != 1:  # A rule or a trigger may have its own opinion.
                    raise NotDone("refused", f"the table took {len(rows)} rows")
                (row,) = rows
                inserted = Inserted(row=row)
                try:
                    self._claim(session, call, "done", json.dumps(row, allow_nan=False))
                except self._database.integrity as error:
                    raise NotDone("timeout", "the call was made void before it could leave") from error
            call.leaves()
            try:
                session.run("COMMIT")
            except self._database.integrity as error:  # A constraint that is deferred speaks only now.
                raise Refused("refused", str(error)) from error
            call.reach("table: committed")
        return inserted

    @reconciles("insert")
    def find(self, params: InsertParams, call: Call) -> Inserted | DidNotHappen:
        """Claim the call's key, unless it is taken; then whoever has taken it tells what happened."""
        with self._session() as session:
            self._claim(session, call, "void", None, "ON CONFLICT DO NOTHING")
            call.reach("table: claimed")
            statement = f"SELECT state, result FROM {CALLS} WHERE call = {self._database.mark}"
            (line,) = session.rows(statement, call.name)
        return Inserted(row=json.loads(line["result"])) if line["state"] == "done" else DidNotHappen(voided=True)

    def _claim(self, session: "Session", call: Call, state: str, result: str | None, conflict: str = "") -> None:
        marks = ", ".join([self._database.mark] * 4)
        key = json.dumps(call.key)[1:-1]  # For people to read; not every database takes every character.
        session.run(f"INSERT INTO {CALLS} VALUES ({marks}) {conflict}", call.name, key, state, result)

    # -- reads

    @reads
    def query(self, params: QueryParams) -> Rows:
        """Rows with these values. What JSON does not have comes as text: times in ISO 8601, bytes in base64."""
        terms: list[str] = []
        values: list[Scalar] = []
        for column, value in params.where.items():
            terms.append(f"{self._of_row(column)} {'IS NULL' if value is None else f'= {self._database.mark}'}")
            values += [] if value is None else [value]
        for column, value in params.above.items():
            terms.append(f"{self._of_row(column)} > {self._database.mark}")
            values.append(value)
        where = f"WHERE {' AND '.join(terms)}" if terms else ""
        way = "DESC" if params.descending else "ASC"
        order = f"ORDER BY {self._of_row(params.order)} {way}" if params.order else ""
        statement = f"SELECT * FROM {self._name} AS here {where} {order} LIMIT {params.limit}"
        with self._connected() as session:
            return Rows(rows=session.rows(statement, *values))

    # -- the database

    @contextmanager
    def _session(self) -> Iterator["Session"]:
        """A connection to a database that has a place for calls."""
        with self._connected() as session:
            with self.unsent():
                self._make_room(session)
            yield session

    def _make_room(self, session: "Session") -> None:
        """Make the table of calls if it is missing. It is looked for first: that needs no right to make tables."""
        look = f"SELECT call FROM {CALLS} LIMIT 0"
        try:
            session.run(look)
        except Exception as missing:
            if self.failure(missing) != "refused":
                raise
            try:
                session.run(f"CREATE TABLE {CALLS} ({COLUMNS})")
            except Exception as error:
                if self.failure(error) != "refused":
                    raise
                session.run(look)  # Somebody else made it at the same moment, or it can not be made.

    @contextmanager
    def _connected(self) -> Iterator["Session"]:
        """A connection of its own for each call: one that outlasts its deadline is in nobody's way."""
        with self.unsent():
            connection = self._database.connect()
        try:
            yield Session(connection)
        finally:
            connection.close()  # What is not committed is undone.

    @property
    def _name(self) -> str:
        return ".".join(self._quoted(part) for part in self.table.split("."))

    def _of_row(self, column: str) -> str:
        """SQLite takes a name that it does not find for a text, unless it is said where it should be."""
        return f"here.{self._quoted(column)}"

    def _quoted(self, name: str) -> str:
        quoted = f'"{name.replace(chr(34), 2 * chr(34))}"'
        return quoted.replace("%", "%%") if self._database.mark == "%s" else quoted


class Session:
    """Statements on one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, statement: str, *values: Any) -> Any:
        return self._connection.execute(statement, values)

    def rows(self, statement: str, *values: Any) -> list[Row]:
        cursor = self.run(statement, *values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, map(as_json, line), strict=True)) for line in cursor.fetchall()]


def as_json(value: Any) -> Any:
    """A value of a database as JSON has it, or as a text.

    >>> from datetime import date
    >>> as_json(date(2026, 1, 2)), as_json(b"\\xff"), as_json(float("nan")), as_json(2**70)
    ('2026-01-02', '/w==', 'nan', 1180591620717411303424)
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings")
    except PydanticSerializationError:
        return str(value)
