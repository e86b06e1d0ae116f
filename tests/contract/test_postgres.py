"""What only the store in PostgreSQL can meet: several hosts, a server that dies, a connection that breaks."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from contract.checks import BEGINNING, CRASHED, RUN, STORY, begun, change_for, contents, do, fill, publish
from contract.wire import wire_to
from flow import START
from server import PASSWORD, Server, free_port, started

from keepkernel import Key, Pause, Policy
from keepkernel.adapters import postgres
from keepkernel.adapters.postgres import MIGRATIONS, PostgresStore
from keepkernel.adapters.stores import open_store
from keepkernel.kernel.ports import (
    Change,
    Conflict,
    DamagedStore,
    Disconnected,
    LeaseLost,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    StoreBusy,
    StoreError,
    StoreFull,
)


@pytest.fixture
def server() -> Server:
    return started()


@pytest.fixture
def schema(server: Server, request: pytest.FixtureRequest) -> str:
    return server.make(request.node.nodeid)


@pytest.fixture
def admin(server: Server, schema: str) -> Iterator[psycopg.Connection]:
    with server.connect(schema) as connection:
        yield connection


@pytest.fixture
def store(server: Server, schema: str) -> Iterator[PostgresStore]:
    store = PostgresStore(server.url(schema))
    yield store
    store.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


# --- several hosts -----------------------------------------------------------------------------------


def at_once(threads: ThreadPoolExecutor, stores: list[PostgresStore], act: Callable[[PostgresStore], Any]) -> list[Any]:
    """What each store answers or raises when all are asked at the same moment."""
    ready = threading.Barrier(len(stores))

    def act_together(store: PostgresStore) -> Any:
        ready.wait()
        try:
            return act(store)
        except StoreError as error:
            return type(error)

    return list(threads.map(act_together, stores))


def test_hosts_open_a_new_store_at_once(server: Server, schema: str, threads: ThreadPoolExecutor) -> None:
    ready = threading.Barrier(5)

    def open_together(_: int) -> PostgresStore:
        ready.wait()
        return PostgresStore(server.url(schema))

    stores = list(threads.map(open_together, range(5)))
    begun(stores[0])
    assert {store.load("w").version for store in stores} == {len(BEGINNING)}
    assert [store.close() for store in stores] == [None] * 5


def test_of_several_hosts_one_wins(server: Server, schema: str, threads: ThreadPoolExecutor) -> None:
    stores = [PostgresStore(server.url(schema)) for _ in range(4)]
    begun(stores[0])
    for turn in range(10):
        changes = {
            store: change_for(store, publish("mail", f"m{turn} {number}"), f"{turn} {number}")
            for number, store in enumerate(stores)
        }
        base = changes[stores[0]].base
        said = at_once(threads, stores, lambda store, changes=changes: store.commit(changes[store]))
        assert sorted(said, key=str) == sorted([base + 1, Conflict, Conflict, Conflict], key=str)
        assert len(stores[0].events("w")) == turn + 1
    for store in stores:
        store.close()


def test_of_several_hosts_one_gets_the_lease(server: Server, schema: str, threads: ThreadPoolExecutor) -> None:
    stores = [PostgresStore(server.url(schema)) for _ in range(4)]
    begun(stores[0])
    names = {store: f"host {number}" for number, store in enumerate(stores)}
    tokens = []
    for _ in range(10):
        leases = at_once(threads, stores, lambda store: store.lease("w", names[store], 600_000))
        [held] = [lease for lease in leases if lease is not None]
        tokens.append(held.token)
        stores[0].release(held)
    assert tokens == sorted(set(tokens))
    for store in stores:
        store.close()


def test_who_was_away_can_not_commit(server: Server, schema: str, store: PostgresStore) -> None:
    begun(store)
    old = store.lease("w", "one", 0)
    late = change_for(store, Pause(START), "late")
    other = PostgresStore(server.url(schema))
    assert other.lease("w", "two", 600_000).token > old.token
    other.close()
    with pytest.raises(LeaseLost, match="two"):
        store.commit(late, old)


def test_what_was_planned_for_an_empty_store_is_right_for_a_full_one(store: PostgresStore) -> None:
    begun(store)
    far = [store.load("w", publish("mail", "new")) for _ in range(20)] and fill(store, "mail", 3_000)[2_000]
    with store._connection.transaction():
        loaded = store.load("w", publish(*far.key))
        counts = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'events'::regclass"
        [(read,)] = store._connection.execute(counts).fetchall()
    assert far in loaded.state.events
    assert read < 20


# --- time --------------------------------------------------------------------------------------------


def server_time(admin: psycopg.Connection) -> int:
    return admin.execute("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()[0]


def test_time_is_the_servers(server: Server, schema: str, admin: psycopg.Connection) -> None:
    store = open_store(server.url(schema))
    assert server_time(admin) <= store.now() <= server_time(admin)
    store.close()


def test_time_is_not_behind_what_another_host_wrote(server: Server, schema: str, store: PostgresStore) -> None:
    """Should the server's clock be set back, then a workflow goes on from the last time that it knows."""
    begun(store)
    other = PostgresStore(server.url(schema))
    later = store.now() + 10**9
    do(store, Pause(later))
    assert other.now() < later
    other.load("w")
    assert other.now() == later
    assert PostgresStore(server.url(schema)).now() == later
    other.close()


# --- a connection that breaks, a server that dies ----------------------------------------------------


LAST = STORY[-1]
"""Writes a head, a line with a run, a record and a session, and two events."""


def told(store: PostgresStore) -> Change:
    """The story up to its last command, and the change that this one asks for."""
    store.create("w", Policy())
    do(store, *STORY[:-1])
    return change_for(store, LAST, "the last")


@pytest.fixture(scope="module")
def whole() -> tuple[Any, Any]:
    """What is there before and after the last change, when nothing goes wrong."""
    server = started()
    store = PostgresStore(server.url(server.make("whole")))
    change = told(store)
    before = contents(store)
    store.commit(change)
    after = contents(store)
    store.close()
    return before, after


def test_the_wire_breaks_at_every_message(server: Server, whole: tuple[Any, Any]) -> None:
    before, after = whole
    outcomes = []
    with wire_to(server.port) as wire:
        for messages in count():
            schema = server.make(f"wire {messages}")
            store = PostgresStore(server.url(schema, port=wire.port))
            change = told(store)
            wire.cut_at(messages)
            with suppress(Disconnected):
                assert store.commit(change) == change.base + 1
            wire.mend()
            if not wire.is_cut:
                break
            found = contents(store)
            assert found in (before, after)
            outcomes.append(found == after)
            assert store.commit(change) == change.base + 1
            assert contents(store) == after
            store.close()
        assert contents(store) == after
        store.close()
    assert outcomes == sorted(outcomes), "once the server has it all, it is done"
    assert {True, False} == set(outcomes)
    assert len(outcomes) >= 8


STAGES = {
    "head": "TRIGGER halt BEFORE UPDATE ON workflows",
    "line": "TRIGGER halt BEFORE INSERT ON transitions",
    "event": "TRIGGER halt BEFORE UPDATE ON events",
    "end": "CONSTRAINT TRIGGER halt AFTER INSERT ON transitions DEFERRABLE INITIALLY DEFERRED",
}
"""Where a commit is halted: in each of its parts, and when all are done and about to become durable."""


class Halt:
    """Makes commits stand still at a stage, until they may go on or until their server dies."""

    def __init__(self, admin: psycopg.Connection, stage: str) -> None:
        self._admin = admin
        admin.execute("""
            CREATE FUNCTION halt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pg_advisory_xact_lock_shared(1);
                RETURN NEW;
            END $$""")
        admin.execute(f"CREATE {STAGES[stage]} FOR EACH ROW EXECUTE FUNCTION halt()")
        admin.execute("SELECT pg_advisory_lock(1)")

    def wait_for(self, commit: Future[int], number: int = 1) -> list[tuple[int]]:
        """The server's processes, when so many wait for a lock; the commit must be one of them."""
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while len(found := self._admin.execute(waiting).fetchall()) < number:
            assert not commit.done(), "it did not wait"
            time.sleep(0.005)
        return found

    def end(self) -> None:
        self._admin.execute("SELECT pg_advisory_unlock(1)")


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_server_dies(
    server: Server, store: PostgresStore, admin: psycopg.Connection, stage: str, threads: ThreadPoolExecutor, whole: Any
) -> None:
    before, after = whole
    change = told(store)
    halt = Halt(admin, stage)
    commit = threads.submit(store.commit, change)
    halt.wait_for(commit)
    server.stop("immediate")
    try:
        with pytest.raises(Disconnected, match="do the same again"):
            commit.result()
    finally:
        server.start()
    assert contents(store) == before
    assert store.commit(change) == change.base + 1
    assert contents(store) == after
    assert store.commit(change) == change.base + 1
    assert contents(store) == after


def test_the_servers_process_is_ended(
    store: PostgresStore, admin: psycopg.Connection, stage: str, threads: ThreadPoolExecutor, whole: Any
) -> None:
    before, after = whole
    change = told(store)
    halt = Halt(admin, stage)
    commit = threads.submit(store.commit, change)
    admin.execute("SELECT pg_terminate_backend(%s)", halt.wait_for(commit)[0])
    with pytest.raises(Disconnected, match="do the same again"):
        commit.result()
    halt.end()
    assert contents(store) == before
    assert store.commit(change) == change.base + 1
    assert contents(store) == after


def test_the_server_goes_on_with_a_commit_that_nobody_waits_for(
    server: Server, schema: str, admin: psycopg.Connection, stage: str, threads: ThreadPoolExecutor, whole: Any
) -> None:
    """The connection is cut, and the same change comes over another one while the first is still at work."""
    with wire_to(server.port) as wire:
        store = PostgresStore(server.url(schema, port=wire.port))
        change = told(store)
        halt = Halt(admin, stage)
        commit = threads.submit(store.commit, change)
        halt.wait_for(commit)
        wire.cut()
        with pytest.raises(Disconnected, match="do the same again"):
            commit.result()
        again = threads.submit(store.commit, change)
        halt.wait_for(again, 2)
        halt.end()
        assert again.result() == change.base + 1
        assert contents(store) == whole[1]
        store.close()


def test_a_server_that_is_away_for_a_moment(
    server: Server, store: PostgresStore, threads: ThreadPoolExecutor, whole: Any
) -> None:
    change = told(store)
    server.stop("fast")
    try:
        with pytest.raises(Disconnected):
            store.commit(change)
        store._patience_ms = 60_000
        commit = threads.submit(store.commit, change)
    finally:
        server.start()
    assert commit.result() == change.base + 1
    assert contents(store) == whole[1]


def test_a_server_that_stays_away(server: Server, schema: str) -> None:
    store = PostgresStore(server.url(schema), patience_ms=100)
    change = told(store)
    server.stop("fast")
    try:
        for _ in range(2):
            with pytest.raises(Disconnected):
                store.commit(change)
        for ask in (store.workflows, store.now, lambda: store.load("w"), lambda: store.commit(change)):
            with pytest.raises(Disconnected, match=r"start the server.*then do the same again"):
                ask()
    finally:
        server.start()
    assert store.commit(change) == change.base + 1
    store.close()


# --- errors that say what to do ----------------------------------------------------------------------


def message_of(url: str, kind: type[StoreError] = StoreError) -> str:
    with pytest.raises(StoreError) as raised:
        open_store(url)
    assert type(raised.value) is kind
    chain, error = "", raised.value
    while error is not None:
        chain, error = chain + str(error), error.__cause__
    for secret in (PASSWORD, "hunter2", "hunt", "er2"):
        assert secret not in chain
    return str(raised.value)


def test_no_server(server: Server, schema: str) -> None:
    assert "start the server, or see to host and port" in message_of(server.url(schema, port=free_port()))


def test_no_host() -> None:
    url = "postgresql://keep:hunter2@nowhere.invalid/postgres"
    assert "start the server, or see to host and port" in message_of(url)


def test_a_wrong_password(server: Server) -> None:
    assert "see to the user and the password" in message_of(server.url(password="hunter2"))


def test_a_user_who_is_not_let_in(server: Server, admin: psycopg.Connection) -> None:
    admin.execute("CREATE ROLE guest LOGIN PASSWORD 'hunter2'")
    admin.execute("CREATE DATABASE private")
    admin.execute("REVOKE CONNECT ON DATABASE private FROM PUBLIC")
    url = f"postgresql://guest:hunter2@127.0.0.1:{server.port}/private"
    assert "the rights of the user (" in message_of(url)
    assert "let this user write" in message_of(url.replace("/private", "/postgres"), ReadOnlyStore)


def test_a_wrong_database(server: Server) -> None:
    assert "make the database with createdb" in message_of(server.url().replace("/postgres?", "/another?"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:hunter2",
        "postgresql://keep:hunt@er2@host/postgres",
        "postgresql://keep:hunt/er2@host/postgres",
        "postgresql://keep:hunter2%zz@host/postgres",
        "postgresql://keep:hunter2@host/postgres?sslmod=disable",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    assert "% escapes for signs like @" in message_of(url)


def test_another_scheme_shows_no_password() -> None:
    assert "postgres: does not name a store" in message_of("postgres://keep:hunter2@host/postgres")


def test_a_newer_schema(server: Server, schema: str, store: PostgresStore, admin: psycopg.Connection) -> None:
    admin.execute("UPDATE keepkernel SET schema_version = 99")
    assert f"99, and this keepkernel knows {len(MIGRATIONS)}; install" in message_of(server.url(schema), NewerStore)


def test_tables_of_others(server: Server, schema: str, admin: psycopg.Connection) -> None:
    admin.execute("CREATE TABLE events (a INTEGER)")
    assert "did not write: events; name another database" in message_of(server.url(schema), NotAStore)
    assert admin.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()").fetchone() == (1,)


def test_no_schema(server: Server) -> None:
    assert "create it, or set its search_path" in message_of(server.url("missing"), NotAStore)


def test_another_encoding(server: Server, admin: psycopg.Connection) -> None:
    admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert "createdb --encoding=UTF8" in message_of(server.url().replace("/postgres?", "/latin?"))


def test_a_server_that_may_forget(server: Server, schema: str, admin: psycopg.Connection) -> None:
    admin.execute("ALTER SYSTEM SET fsync = off")
    admin.execute("SELECT pg_reload_conf()")
    try:
        while admin.execute("SHOW fsync").fetchone() != ("off",):
            time.sleep(0.005)
        assert "may forget commits; turn it on" in message_of(server.url(schema))
    finally:
        admin.execute("ALTER SYSTEM RESET fsync")
        admin.execute("SELECT pg_reload_conf()")
    while admin.execute("SHOW fsync").fetchone() != ("on",):
        time.sleep(0.005)


def test_commits_wait_for_the_disk_whatever_the_user_has_set(server: Server, schema: str) -> None:
    store = PostgresStore(f"{server.url(schema)}%20-csynchronous_commit%3Doff")
    assert store._all("SHOW synchronous_commit") == [("on",)]
    store.close()


def test_a_user_who_may_only_read(server: Server, schema: str, store: PostgresStore) -> None:
    begun(store)
    reader = PostgresStore(f"{server.url(schema)}%20-cdefault_transaction_read_only%3Don")
    assert reader.load("w") == store.load("w")
    with pytest.raises(ReadOnlyStore, match="let this user write"):
        reader.commit(change_for(reader, Pause(START), "change"))
    reader.close()
    assert message_of(f"{server.url(server.make('read only'))}%20-cdefault_transaction_read_only%3Don", ReadOnlyStore)


def test_a_row_that_somebody_locks(server: Server, schema: str, store: PostgresStore, admin: Any) -> None:
    begun(store)
    impatient = PostgresStore(server.url(schema), patience_ms=50)
    change = change_for(store, Pause(START), "change")
    with admin.transaction():
        admin.execute("SELECT * FROM workflows FOR UPDATE")
        with pytest.raises(StoreBusy, match="try again later"):
            impatient.commit(change)
    assert impatient.commit(change) == change.base + 1
    impatient.close()


@pytest.mark.parametrize(
    ("state", "kind", "remedy"),
    [
        ("53100", StoreFull, "make room"),
        ("53200", StoreBusy, "try again later"),
        ("XX001", DamagedStore, "restore a copy"),
        ("P0001", StoreError, "nothing was written"),
    ],
)
def test_what_the_server_reports(
    store: PostgresStore, admin: psycopg.Connection, state: str, kind: type[StoreError], remedy: str
) -> None:
    begun(store)
    there = contents(store)
    admin.execute(f"""
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'the server says so' USING ERRCODE = '{state}';
        END $$""")
    admin.execute("CREATE TRIGGER fail BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fail()")
    change = change_for(store, publish("mail", "m1"), "change")
    with pytest.raises(StoreError, match=remedy) as raised:
        store.commit(change)
    assert type(raised.value) is kind
    assert contents(store) == there
    admin.execute("DROP TRIGGER fail ON events")
    assert store.commit(change) == change.base + 1


def test_a_table_that_is_gone(store: PostgresStore, admin: psycopg.Connection) -> None:
    begun(store)
    change = change_for(store, publish("mail", "m1"), "change")
    admin.execute("DROP TABLE events CASCADE")
    with pytest.raises(DamagedStore, match="restore a copy"):
        store.commit(change)
    assert store.transitions("w")[-1].version == change.base


def test_names_that_no_index_takes(store: PostgresStore) -> None:
    begun(store)
    long = "".join(chr(0x20000 + n * 7919 % 42000) for n in range(1000))
    with pytest.raises(StoreError, match="shorten them"):
        do(store, publish("mail", long))
    assert store.events("w") == ()


# --- people with a shell -----------------------------------------------------------------------------


def test_history_can_be_asked_in_sql(store: PostgresStore, admin: psycopg.Connection) -> None:
    begun(store)
    do(store, publish("mail", "m1", "a \0 \\u0000 title"), *RUN)
    live = admin.execute("SELECT workflow, transition, id, handler, status, reserved FROM runs").fetchall()
    assert live == [("w", None, "r1", "file", "active", "[]")]
    do(store, CRASHED._replace(message="a \0 \\u0000 message"))
    line = store.load("w").version
    finished = admin.execute("SELECT workflow, transition, id, status, message FROM runs").fetchall()
    assert finished == [("w", line, "r1", "crashed", "a \u2400 \\u0000 message")]
    assert admin.execute("SELECT id, status, runs FROM sessions").fetchall() == [("s1", "failed", "1")]
    assert admin.execute("SELECT * FROM mutations").fetchall() == []
    assert admin.execute("SELECT topic, id, status FROM events").fetchall() == [("mail", "m1", "pending")]
    assert admin.execute("SELECT count(*), max(version) FROM transitions").fetchall() == [(line, line)]
    assert store.get("w", Key("mail", "m1")).title == "a \0 \\u0000 title"


def test_the_questions_of_the_readme_have_answers(store: PostgresStore, admin: psycopg.Connection) -> None:
    told(store)
    readme = (Path(postgres.__file__).parent / "README.md").read_text()
    assert "`head::json ->> 'status'` in place of `json_extract(head, '$.status')`" in readme
    questions = "".join(block.split("```")[0] for block in readme.split("```sql\n")[1:])
    asked = questions.replace("json_extract(head, '$.status')", "head::json ->> 'status'").strip().strip(";").split(";")
    assert len(asked) > 4
    assert all(admin.execute(question).fetchall() for question in asked)
