"""Real databases for tests of connectors."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import psycopg
import pytest
from server import started


class Place(NamedTuple):
    """A database with an empty table `reports`, and a way in beside the connector."""

    kind: str
    url: str
    connect: Callable[[], Any]

    def ask(self, statement: str) -> list[Any]:
        connection = self.connect()
        try:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def names(self) -> list[str]:
        return [name for (name,) in self.ask("SELECT name FROM reports ORDER BY name")]


def autocommitting(connection: Any) -> Any:
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
    return connection


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind = request.param
    if kind == "postgresql":
        server = started()
        schema = server.make(request.node.name)
        made = Place(kind, server.url(schema), lambda: psycopg.connect(server.url(schema), autocommit=True))
    else:
        path = tmp_path / f"reports.{kind}"
        library = {
            "sqlite": lambda: sqlite3.connect(path, isolation_level=None),
            "duckdb": lambda: duckdb.connect(path),
        }
        library[kind]().close()
        made = Place(kind, f"{kind}:{path}", library[kind])
    made.ask(
        "CREATE TABLE reports (name VARCHAR(99) NOT NULL UNIQUE, amount INTEGER, added VARCHAR(9) DEFAULT 'today')"
    )
    return made
