"""The `table` connector on real databases."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from connectors.conftest import Place
from connectors.effects import KEY, Heard, alone, read, reconcile, send
from server import PASSWORD, started

from keepkernel.adapters.connectors import Connections, databases
from keepkernel.adapters.connectors.table import Table
from keepkernel.adapters.points import Reach, SimulatedCrash, pass_by
from keepkernel.kernel.respond import AskAgain, DidNotHappen, Failed, Happened, Unknown

PARAMS = {"row": {"name": "alice", "amount": 3}}
RESULT = {"row": {"name": "alice", "amount": 3, "added": "today"}}


def connections(place: Place, reach: Reach = pass_by, table: str = "reports", **options: Any) -> Connections:
    return alone(Table(url=place.url, table=table, **options), reach=reach, tell=Heard())


def value(answer: Any) -> Any:
    assert isinstance(answer, Happened)
    return json.loads(answer.result)


def test_a_row_is_inserted_once_and_found_with_the_same_result(place: Place) -> None:
    it = connections(place)
    assert value(send(it, "it.insert", PARAMS)) == RESULT
    assert value(reconcile(it, "it.insert", PARAMS)) == RESULT
    assert place.ask("SELECT * FROM reports") == [("alice", 3, "today")]
    again = send(it, "it.insert", {"row": {"name": "alice again"}})
    assert isinstance(again, Failed)
    assert place.names() == ["alice"]


def test_it_happened_even_if_somebody_deleted_the_row(place: Place) -> None:
    it = connections(place)
    send(it, "it.insert", PARAMS)
    place.ask("DELETE FROM reports")
    assert value(reconcile(it, "it.insert", PARAMS)) == RESULT


def test_a_void_call_can_not_land(place: Place) -> None:
    it = connections(place)
    assert reconcile(it, "it.insert", PARAMS) == DidNotHappen(voided=True)
    late = send(it, "it.insert", PARAMS)
    assert isinstance(late, Failed)
    assert late.failure == "timeout"
    assert reconcile(it, "it.insert", PARAMS) == DidNotHappen(voided=True)
    assert place.names() == []
    assert isinstance(send(it, "it.insert", PARAMS, key="demo/run-2"), Happened)


POINTS = ["table: begun", "call: leaves", "table: committed"]


def test_the_points_are_all_that_an_insert_passes(place: Place) -> None:
    passed: list[str] = []
    send(connections(place, passed.append), "it.insert", PARAMS)
    assert passed == POINTS


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("trouble", [SimulatedCrash, RuntimeError], ids=["death", "bug"])
def test_a_death_or_a_bug_anywhere_is_told_rightly(place: Place, point: str, trouble: type[BaseException]) -> None:
    def reach(passed: str) -> None:
        if passed == point:
            raise trouble

    it = connections(place, reach)
    if trouble is SimulatedCrash:
        with pytest.raises(SimulatedCrash):
            send(it, "it.insert", PARAMS)
    else:
        assert isinstance(send(it, "it.insert", PARAMS), Unknown)
    landed = place.names() == ["alice"]
    answer = reconcile(connections(place), "it.insert", PARAMS)
    assert isinstance(answer, Happened) if landed else answer == DidNotHappen(voided=True)
    assert landed == (point == "table: committed")


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_that_is_overtaken_by_a_look_obeys_it(place: Place, point: str) -> None:
    """The writer stands still inside its transaction, somebody looks, and the writer goes on."""
    said = []
    # SQLite and PostgreSQL make the look wait for the writer, which waits for the look: it gives up.
    other = connections(place, deadline_ms=300)

    def reach(passed: str) -> None:
        if passed == point:
            said.append(reconcile(other, "it.insert", PARAMS))

    answer = send(connections(place, reach), "it.insert", PARAMS)
    [first] = said
    last = reconcile(connections(place), "it.insert", PARAMS)
    if first == DidNotHappen(voided=True):
        assert isinstance(answer, Failed | Unknown)
        assert place.names() == []
    else:
        assert isinstance(answer, Happened)
        assert first == answer or isinstance(first, AskAgain)
        assert place.names() == ["alice"]
    assert isinstance(last, Happened) == (place.names() == ["alice"])
    assert isinstance(last, Happened | DidNotHappen)


@pytest.mark.parametrize(
    "row",
    [{"nobody": 1}, {"amount": 1}, {"name": "alice", "amount": "many"}, {"name": "alice", "amount": 2**80}],
    ids=["no such column", "not null", "no number", "too large"],
)
def test_what_the_database_does_not_take_is_refused_and_nothing_is_there(place: Place, row: dict[str, Any]) -> None:
    it = connections(place)
    answer = send(it, "it.insert", {"row": row})
    if place.kind == "sqlite" and row.get("amount") == "many":
        assert isinstance(answer, Happened)  # SQLite stores any value in any column.
        return
    assert isinstance(answer, Failed)
    assert answer.failure == "refused"
    assert place.names() == []


def test_a_constraint_of_the_table_is_a_refusal_and_the_key_stays_free(place: Place) -> None:
    it = connections(place)
    place.ask("INSERT INTO reports (name) VALUES ('alice')")
    answer = send(it, "it.insert", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "refused"
    assert reconcile(it, "it.insert", PARAMS) == DidNotHappen(voided=True)


def test_a_constraint_that_speaks_at_the_commit_is_a_refusal(request: pytest.FixtureRequest) -> None:
    """Only PostgreSQL has such constraints by default."""
    server = started()
    schema = server.make(request.node.name)
    with server.connect(schema) as admin:
        admin.execute("CREATE TABLE pets (id INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        admin.execute("INSERT INTO pets VALUES (1)")
        answer = send(alone(Table(url=server.url(schema), table="pets")), "it.insert", {"row": {"id": 1}})
        assert isinstance(answer, Failed)
        assert answer.failure == "refused"
        assert admin.execute("SELECT * FROM pets").fetchall() == [(1,)]


def test_names_are_quoted(place: Place) -> None:
    place.ask('CREATE TABLE "odd ""%s"" table" ("a ""%"" b" INTEGER)')
    it = connections(place, table='odd "%s" table')
    assert value(send(it, "it.insert", {"row": {'a "%" b': 1}})) == {"row": {'a "%" b': 1}}
    assert read(it, "it.query", {}) == {"rows": [{'a "%" b': 1}]}
    hostile = send(it, "it.insert", {"row": {'a") VALUES (1); DROP TABLE reports; --': 1}}, key="demo/2")
    assert isinstance(hostile, Failed)
    assert place.names() == []


# --- reads ---------------------------------------------------------------------------------------------


def test_rows_are_found(place: Place) -> None:
    for name, amount in (("a", 1), ("b", 2), ("c", None)):
        place.ask(f"INSERT INTO reports VALUES ('{name}', {'NULL' if amount is None else amount}, 'x')")
    it = connections(place)

    def names(**params: Any) -> list[str]:
        return [row["name"] for row in read(it, "it.query", params)["rows"]]

    assert names(where={"name": "b"}) == ["b"]
    assert names(where={"amount": None}) == ["c"]
    assert names(above={"amount": 1}, where={"added": "x"}) == ["b"]
    assert names(order="name", descending=True, limit=2) == ["c", "b"]
    assert read(it, "it.query", {"where": {"name": "a"}}) == {"rows": [{"name": "a", "amount": 1, "added": "x"}]}


@pytest.mark.parametrize("params", [{"where": {"nobody": "nobody"}}, {"order": "nobody"}, {"above": {"nobody": 1}}])
def test_a_column_that_is_not_there_is_refused(place: Place, params: Any) -> None:
    assert read(connections(place), "it.query", params).failure == "refused"


def test_what_json_lacks_comes_as_text(place: Place) -> None:
    blob = {"postgresql": "BYTEA", "duckdb": "BLOB", "sqlite": "BLOB"}[place.kind]
    place.ask(f"CREATE TABLE odd (time TIMESTAMP, price DECIMAL(9, 2), bytes {blob})")
    bytes_ = {"postgresql": "'\\xff'", "duckdb": "'\\xFF'::BLOB", "sqlite": "x'ff'"}[place.kind]
    place.ask(f"INSERT INTO odd VALUES ('2026-01-02 03:04:05', 1.5, {bytes_})")
    [row] = read(connections(place, table="odd"), "it.query", {})["rows"]
    assert row["bytes"] == "/w=="
    if place.kind != "sqlite":  # It has neither times nor decimals.
        assert (row["time"], row["price"]) == ("2026-01-02T03:04:05", "1.50")


# --- troubles ------------------------------------------------------------------------------------------


def test_a_table_that_is_not_there(place: Place) -> None:
    it = connections(place, table="nowhere")
    answer = send(it, "it.insert", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "refused"
    assert read(it, "it.query", {}).failure == "refused"


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_database_that_is_not_there_is_not_made_and_says_nothing_of_a_call(tmp_path: Path, kind: str) -> None:
    it = alone(Table(url=f"{kind}:{tmp_path / 'gone'}", table="t"), tell=Heard())
    answer = send(it, "it.insert", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "network"
    assert isinstance(reconcile(it, "it.insert", PARAMS), AskAgain)
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_others_have_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "BUSY_S", 0)
    path = tmp_path / "locked.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE reports (name TEXT, amount INTEGER, added TEXT DEFAULT 'today')")
    it = alone(Table(url=f"sqlite:{path}", table="reports"), tell=Heard())
    other.execute("BEGIN IMMEDIATE")
    answer = send(it, "it.insert", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "network"
    assert isinstance(reconcile(it, "it.insert", PARAMS), AskAgain)
    other.execute("ROLLBACK")
    assert value(send(it, "it.insert", PARAMS)) == RESULT


def test_a_server_that_is_away_or_does_not_know_us() -> None:
    server = started()
    for url, failure in ((server.url(port=1), "network"), (server.url(password="swordfish"), "auth")):
        it = alone(Table(url=url, table="t"), tell=Heard())
        for failed in (send(it, "it.insert", PARAMS), read(it, "it.query", {})):
            assert isinstance(failed, Failed)
            assert failed.failure == failure
            assert "swordfish" not in failed.message
        assert isinstance(reconcile(it, "it.insert", PARAMS), AskAgain)


def test_a_connection_that_breaks_at_the_commit_leaves_it_unknown(request: pytest.FixtureRequest) -> None:
    server = started()
    schema = server.make(request.node.name)
    with server.connect(schema) as admin:
        admin.execute("CREATE TABLE reports (name TEXT, amount INTEGER, added TEXT DEFAULT 'today')")

        def reach(point: str) -> None:
            if point == "call: leaves":
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
                )

        it = alone(Table(url=server.url(schema), table="reports"), reach=reach, tell=Heard())
        assert isinstance(send(it, "it.insert", PARAMS), Unknown)
        assert reconcile(it, "it.insert", PARAMS) == DidNotHappen(voided=True)
        assert admin.execute("SELECT * FROM reports").fetchall() == []


def test_a_user_who_may_not_make_tables_needs_only_that_it_is_there(request: pytest.FixtureRequest) -> None:
    server = started()
    schema = server.make(request.node.name)
    clerk = server.url(schema).replace("keep:", "clerk:")
    with server.connect(schema) as admin:
        admin.execute(f"CREATE ROLE clerk LOGIN PASSWORD '{PASSWORD}'")
        admin.execute("CREATE TABLE reports (name TEXT, amount INTEGER, added TEXT DEFAULT 'today')")
        admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO clerk")
        admin.execute("GRANT SELECT, INSERT ON reports TO clerk")
        it = alone(Table(url=clerk, table="reports"), tell=Heard())
        answer = send(it, "it.insert", PARAMS)
        assert isinstance(answer, Failed)
        assert answer.failure == "auth"
        assert isinstance(reconcile(it, "it.insert", PARAMS), AskAgain)
        send(alone(Table(url=server.url(schema), table="reports")), "it.insert", PARAMS, key="demo/admin")
        admin.execute("GRANT SELECT, INSERT ON keepkernel_calls TO clerk")
        assert value(send(it, "it.insert", PARAMS)) == RESULT
        assert value(reconcile(it, "it.insert", PARAMS)) == RESULT
        admin.execute("DROP OWNED BY clerk")
        admin.execute("DROP ROLE clerk")


@pytest.mark.parametrize(
    ("body", "problem"), [("RAISE EXCEPTION 'not today'", "not today"), ("RETURN NULL", "the table took 0 rows")]
)
def test_a_trigger_may_refuse(request: pytest.FixtureRequest, body: str, problem: str) -> None:
    server = started()
    schema = server.make(request.node.name)
    with server.connect(schema) as admin:
        admin.execute("CREATE TABLE reports (name TEXT, amount INTEGER)")
        admin.execute(f"CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body}; END$$")
        admin.execute("CREATE TRIGGER no BEFORE INSERT ON reports FOR EACH ROW EXECUTE FUNCTION no()")
        it = alone(Table(url=server.url(schema), table="reports"), tell=Heard())
        answer = send(it, "it.insert", PARAMS)
        assert isinstance(answer, Failed)
        assert answer.failure == "refused"
        assert problem in answer.message
        assert reconcile(it, "it.insert", PARAMS) == DidNotHappen(voided=True)


@pytest.mark.parametrize("url", ["sqlite:", "mysql://x", "reports.db", "postgresql:x"])
def test_a_url_that_names_no_database(url: str) -> None:
    with pytest.raises(ValueError, match="write sqlite:PATH"):
        Table(url=url, table="t")


def test_the_key_stands_beside_the_row_for_people(place: Place) -> None:
    send(connections(place), "it.insert", PARAMS)
    assert place.ask("SELECT idempotency_key, state FROM keepkernel_calls") == [(KEY, "done")]
