"""Tables and views of the store in DuckDB, and how the journal is folded into them; see `duckdb.py`."""

from collections.abc import Sequence
from hashlib import md5
from typing import Final

from ..kernel.types import Key
from .pages import VIEWED, view
from .rows import EVENT_COLUMNS, TRANSITION_COLUMNS

EVENT_LIST: Final = ", ".join(EVENT_COLUMNS)
TRANSITION_LIST: Final = ", ".join(f'"{column}"' for column in TRANSITION_COLUMNS)
EVENT_TYPES: Final = ", ".join(f"{c} {'BIGINT' if c == 'seq' else 'VARCHAR'} NOT NULL" for c in EVENT_COLUMNS)
LINE_COLUMNS: Final = (*TRANSITION_COLUMNS, "head", "events")
"""A line of the journal is a JSON list of these. One text, as DuckDB takes its time for each column."""
TRANSITION_TYPES: Final = """
    workflow VARCHAR NOT NULL, version BIGINT NOT NULL, change VARCHAR, "at" BIGINT, name VARCHAR, command VARCHAR,
    rules VARCHAR, run VARCHAR, mutation VARCHAR, session VARCHAR"""
NAME_HASH: Final = "md5_number_lower(concat_ws(chr(0), workflow, topic, id))"
"""Names an event in 64 bits, for an index that stays small; who looks up by it compares the names too."""


def name_hash(workflow: str, key: Key) -> int:
    """The same as NAME_HASH, for a value that is looked up."""
    return int.from_bytes(md5("\0".join((workflow, *key)).encode(), usedforsecurity=False).digest()[8:], "little")


def _columns(values: str, names: Sequence[str]) -> str:
    """A list of texts as columns."""
    types = {"seq": "::BIGINT", "version": "::BIGINT", "at": "::BIGINT"}
    return ", ".join(f'{values}[{place}]{types.get(name, "")} AS "{name}"' for place, name in enumerate(names, 1))


def _view(name: str) -> str:
    return view(name, lambda text, field: f"({text} ->> '$.{field}')")


MIGRATIONS: Final = (
    f"""
    CREATE TABLE store (
        keepkernel_schema INTEGER NOT NULL, position BIGINT NOT NULL, latest_at BIGINT NOT NULL,
        closed BOOLEAN NOT NULL);
    INSERT INTO store VALUES (0, 0, 0, true);
    CREATE TABLE journal (position BIGINT NOT NULL, line VARCHAR NOT NULL);
    CREATE TABLE heads (workflow VARCHAR NOT NULL, version BIGINT NOT NULL, head VARCHAR NOT NULL);
    CREATE TABLE live_events (workflow VARCHAR NOT NULL, {EVENT_TYPES}, name_hash UBIGINT NOT NULL);
    CREATE TABLE finished_events (workflow VARCHAR NOT NULL, {EVENT_TYPES}, name_hash UBIGINT NOT NULL);
    CREATE INDEX finished_by_name ON finished_events (name_hash);
    CREATE TABLE past_transitions ({TRANSITION_TYPES});

    CREATE VIEW journal_lines AS SELECT position, {_columns("line", LINE_COLUMNS)}
        FROM (SELECT position, from_json(line, '["VARCHAR"]') AS line FROM journal);
    CREATE VIEW journal_heads AS SELECT workflow, version, head FROM journal_lines
        QUALIFY row_number() OVER (PARTITION BY workflow ORDER BY position DESC) = 1;
    CREATE VIEW journal_events AS SELECT workflow, {EVENT_LIST} FROM (
            SELECT position, workflow, {_columns("event", EVENT_COLUMNS)} FROM (
                SELECT position, workflow, unnest(from_json(events, '[["VARCHAR"]]')) AS event FROM journal_lines))
        QUALIFY row_number() OVER (PARTITION BY workflow, seq ORDER BY position DESC) = 1;

    CREATE VIEW workflows AS SELECT workflow AS name, version, head::JSON AS head FROM (
        FROM heads ANTI JOIN journal_heads USING (workflow) UNION ALL FROM journal_heads);
    CREATE VIEW events AS
        SELECT workflow, {EVENT_LIST} FROM finished_events ANTI JOIN journal_events USING (workflow, seq)
        UNION ALL SELECT workflow, {EVENT_LIST} FROM live_events ANTI JOIN journal_events USING (workflow, seq)
        UNION ALL FROM journal_events;
    CREATE VIEW transitions AS SELECT {TRANSITION_LIST} FROM past_transitions
        UNION ALL SELECT {TRANSITION_LIST} FROM journal_lines WHERE version > 0;
    {"; ".join(map(_view, VIEWED))}""",
)
"""What leads from each schema version to the next. What was released never changes; append."""

FOLD: Final = f"""
    CREATE OR REPLACE TEMP TABLE changed AS SELECT *, {NAME_HASH} AS name_hash FROM journal_events;
    DELETE FROM live_events old USING changed WHERE old.workflow = changed.workflow AND old.seq = changed.seq;
    DELETE FROM finished_events old USING changed WHERE old.workflow = changed.workflow AND old.seq = changed.seq;
    INSERT INTO live_events BY NAME FROM changed WHERE status IN ('pending', 'reserved') ORDER BY workflow, seq;
    INSERT INTO finished_events BY NAME
        FROM changed WHERE status NOT IN ('pending', 'reserved') ORDER BY workflow, seq;
    INSERT INTO past_transitions BY NAME
        SELECT {TRANSITION_LIST} FROM journal_lines WHERE version > 0 ORDER BY position;
    DELETE FROM heads WHERE workflow IN (SELECT workflow FROM journal_heads);
    INSERT INTO heads BY NAME FROM journal_heads;
    UPDATE store SET position = (SELECT max(position) FROM journal),
        latest_at = greatest(latest_at, (SELECT max("at") FROM journal_lines));
    DELETE FROM journal;"""
"""Brings the journal into the tables, in one transaction."""
STORAGE: Final = " UNION ALL ".join(
    f"SELECT block_id, additional_block_ids FROM pragma_storage_info('{table}')"
    for table in ("heads", "live_events", "finished_events", "past_transitions")
)
