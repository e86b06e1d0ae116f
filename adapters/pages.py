"""Lists and history a page at a time, for the stores that keep rows of `rows.py` in tables of these names and columns.

Statements are written with `?` for a value; a store whose driver wants another sign puts it there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..kernel.ports import Change, Lease, Transition
from ..kernel.types import Event, Key, Mutation, Run, Session
from .rows import EVENT_COLUMNS, event_of, refusal, transition_of, unknown, value_of

Value = TypeVar("Value")

EVENTS: Final = f"SELECT {', '.join(EVENT_COLUMNS)} FROM events WHERE workflow = ?"
REPLACE_EVENT: Final = """
    ON CONFLICT (workflow, topic, id) DO UPDATE SET status = excluded.status, owner = excluded.owner,
    title = excluded.title, payload = excluded.payload"""
"""What may change of an event that is there."""

VIEWED: Final = {
    "run": (
        "id handler kind session version status phase outcome retry_of created_at reserved causes data title "
        "result message abandoned"
    ),
    "mutation": (
        "run status tool params digest key reconcilable send_by may_land_until attempts next_attempt_at resolved_by"
    ),
    "session": "id status runs commits",
}
"""The views of schema version 1 and their columns, each a field of the value of that name."""


def view(name: str, field: Callable[[str, str], str]) -> str:
    """Finished rows from the journal, and the live one from the head; `field` takes a name out of a JSON text."""
    columns = ", ".join(f"{field('json', column)} AS {column}" for column in VIEWED[name].split())
    live = field("head", name)
    return f"""
    CREATE VIEW {name}s AS SELECT workflow, transition, {columns} FROM (
        SELECT workflow, version AS transition, {name} AS json FROM transitions WHERE {name} IS NOT NULL
        UNION ALL SELECT name, NULL, {live} FROM workflows WHERE {live} IS NOT NULL) AS rows_of_both"""


class Pages(ABC):
    """The reading half of a store."""

    @abstractmethod
    def _all(self, statement: str, *values: Any) -> list[Any]:
        """The rows that a statement gives."""

    def workflows(self, after: str = "", limit: int = 100) -> tuple[str, ...]:
        rows = self._all("SELECT name FROM workflows WHERE name > ? ORDER BY name LIMIT ?", after, limit)
        return tuple(name for (name,) in rows)

    def peek(self, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
        page = f"{EVENTS} AND topic = ? AND status = 'pending' AND seq > ? ORDER BY seq LIMIT ?"
        return self._page(workflow, event_of, page, topic, after_seq, limit)

    def get(self, workflow: str, key: Key) -> Event | None:
        return next(iter(self._page(workflow, event_of, f"{EVENTS} AND topic = ? AND id = ?", *key)), None)

    def events(self, workflow: str, after_seq: int = 0, limit: int = 100) -> tuple[Event, ...]:
        return self._page(workflow, event_of, f"{EVENTS} AND seq > ? ORDER BY seq LIMIT ?", after_seq, limit)

    def runs(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Run], ...]:
        return self._finished(workflow, "run", Run, after, limit)

    def mutations(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Mutation], ...]:
        return self._finished(workflow, "mutation", Mutation, after, limit)

    def sessions(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[tuple[int, Session], ...]:
        return self._finished(workflow, "session", Session, after, limit)

    def transitions(self, workflow: str, after: int = 0, limit: int = 100) -> tuple[Transition, ...]:
        columns = 'version, "at", command, rules'  # DuckDB takes a bare `at` for something else.
        page = f"SELECT {columns} FROM transitions WHERE workflow = ? AND version > ? ORDER BY version LIMIT ?"
        return self._page(workflow, lambda row: transition_of(*row), page, after, limit)

    def _finished(
        self, workflow: str, column: str, kind: type[Value], after: int, limit: int
    ) -> tuple[tuple[int, Value], ...]:
        page = f"""SELECT version, {column} FROM transitions
            WHERE workflow = ? AND {column} IS NOT NULL AND version > ? ORDER BY version LIMIT ?"""
        return self._page(workflow, lambda row: (row[0], value_of(kind, row[1])), page, after, limit)

    def _page(self, workflow: str, read: Callable[[Any], Value], statement: str, *values: Any) -> tuple[Value, ...]:
        """Rows of a workflow; an empty page only of one that exists."""
        rows = self._all(statement, workflow, *values)
        if not rows:
            self._row(workflow, "1")
        return tuple(map(read, rows))

    def _version_of(self, change: Change, version: int, lease: Lease | None, held: Lease) -> int:
        """The version that a change has led to already; an error when it has not and can not."""
        done = "SELECT 1 FROM transitions WHERE workflow = ? AND version = ? AND change = ?"
        if not self._all(done, change.workflow, change.base + 1, change.id):
            raise refusal(change, version, lease, held)
        return change.version

    def _row(self, workflow: str, columns: str) -> Any:
        """These columns of a workflow."""
        rows = self._all(f"SELECT {columns} FROM workflows WHERE name = ?", workflow)
        if not rows:
            raise unknown(workflow)
        return rows[0]
