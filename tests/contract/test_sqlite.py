"""What only a SQLite file can meet: other versions, strangers, damage, locks, full disks, people with a shell."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from contract.checks import BEGINNING, STORY, begun, change_for, contents, do, publish
from contract.places import Dies
from flow import START

from keepkernel import Pause, Policy, Resume
from keepkernel.adapters import sqlite
from keepkernel.adapters.points import SimulatedCrash
from keepkernel.adapters.sqlite import SQLiteStore
from keepkernel.kernel.ports import (
    Conflict,
    DamagedStore,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    Store,
    StoreBusy,
    StoreError,
    StoreFull,
)


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "store.db"


def store_at(path: Path) -> SQLiteStore:
    return SQLiteStore(str(path), clock=lambda: START, busy_ms=20)


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-mark")


def told(path: Path) -> Store:
    """A store with a whole story in it, still open."""
    store = store_at(path)
    store.create("w", Policy())
    do(store, *STORY)
    return store


def shell(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """A person with the sqlite3 shell."""
    rows = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            rows += connection.execute(statement).fetchall()
    return rows


def refused(path: Path, error: type[StoreError], remedy: str) -> None:
    """It is not opened, the message says what to do, and nothing of it is changed."""
    before = path.read_bytes()
    with pytest.raises(error, match=remedy):
        store_at(path)
    assert path.read_bytes() == before


# --- what is there is not ours, or not whole ---------------------------------------------------------


def test_a_newer_store_is_not_touched(path: Path) -> None:
    told(path).close()
    shell(path, "PRAGMA user_version = 99")
    refused(path, NewerStore, "schema version 99.*install the keepkernel that wrote it")


def test_a_newer_version_in_the_log_is_seen_too(path: Path) -> None:
    store = told(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
        store.drop()
    with pytest.raises(NewerStore, match="schema version 99"):
        store_at(path)


@pytest.mark.parametrize("text", [b"name,amount\n" * 20, b"SQLite format 3\0" + b"\1" * 200])
def test_a_foreign_file_is_not_touched(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    refused(path, NotAStore, "name another file")


def test_a_database_of_another_program_is_not_touched(path: Path) -> None:
    shell(path, "CREATE TABLE store (log TEXT)", "INSERT INTO store VALUES ('closed')")
    refused(path, NotAStore, "name another file")


@pytest.mark.parametrize("length", [0, 50, 99])
def test_hardly_anything_left(path: Path, length: int) -> None:
    told(path).close()
    os.truncate(path, length)
    refused(path, DamagedStore, "restore a copy")


@pytest.mark.parametrize("pages", range(1, 12))
def test_a_file_that_was_cut_short(path: Path, pages: int) -> None:
    told(path).close()
    os.truncate(path, pages * 4096)
    with pytest.raises(DamagedStore, match="restore a copy"):
        store_at(path)


def test_garbage_inside(path: Path) -> None:
    told(path).close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(DamagedStore, match="restore a copy"):
        store_at(path)


# --- places where nothing can be written -------------------------------------------------------------


def test_there_is_no_such_folder(folder: Path) -> None:
    with pytest.raises(StoreError, match="make it first"):
        store_at(folder / "nowhere" / "store.db")


def test_the_place_is_a_folder(folder: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        store_at(folder)


@contextmanager
def as_somebody_without_rights(folder: Path) -> Iterator[None]:
    """Root may write everywhere, so it becomes nobody for a while."""
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


def test_a_folder_that_can_not_be_written(folder: Path, path: Path) -> None:
    with as_somebody_without_rights(folder), pytest.raises(ReadOnlyStore, match="let this user write"):
        store_at(path)
    told(path).close()
    path.chmod(0o444)
    with as_somebody_without_rights(folder), pytest.raises(ReadOnlyStore, match="let this user write"):
        store_at(path)
    path.chmod(0o644)
    store_at(path).close()


def test_a_full_disk_writes_nothing_and_loses_nothing(path: Path) -> None:
    store = begun(store_at(path))
    there = contents(store)
    change = change_for(store, publish("mail", "m1", payload='"' + "x" * 100_000 + '"'), "change")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull, match="make room"):
        store.commit(change)
    assert contents(store) == there
    store._connection.execute(f"PRAGMA max_page_count = {pages * 100}")
    assert store.commit(change) == change.base + 1
    store.close()


def test_what_one_left_who_died_while_letting_go_is_swept_away(path: Path) -> None:
    store = told(path)
    there = contents(store)
    kept = path.with_name(f"{path.name}-kept")
    kept.write_text("an older log")
    store.drop()
    assert not kept.exists()
    with closing(store_at(path)) as store:
        assert contents(store) == there


def test_a_store_that_somebody_keeps_to_himself(path: Path) -> None:
    store = begun(store_at(path))
    change = change_for(store, Pause(START), "change")
    there = contents(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for ask in (lambda: store.commit(change), lambda: store.lease("w", "host", 10), lambda: store_at(path)):
            with pytest.raises(StoreBusy, match="end it, or try again later"):
                ask()
        assert contents(store) == there
    assert store.commit(change) == change.base + 1
    store.close()


# --- the log -----------------------------------------------------------------------------------------


def test_every_commit_is_synced(path: Path) -> None:
    with closing(store_at(path)) as store:
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_closed_store_is_one_file(path: Path) -> None:
    told(path).close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_log_that_is_missing_is_noticed(path: Path) -> None:
    store = told(path)
    there = contents(store)
    store.drop()
    away = path.with_name("away")
    log_of(path).rename(away)
    refused(path, DamagedStore, "Put it back")
    refused(path, DamagedStore, "Put it back")
    away.rename(log_of(path))
    with closing(store_at(path)) as store:
        assert contents(store) == there


def test_a_log_without_its_file_is_not_taken_for_that_of_a_new_one(path: Path) -> None:
    told(path).drop()
    path.unlink()
    with pytest.raises(DamagedStore, match=f"remove {log_of(path).name} and {mark_of(path).name}"):
        store_at(path)
    assert not path.exists()
    log_of(path).unlink()
    mark_of(path).unlink()
    with closing(store_at(path)) as store:
        assert store.workflows() == ()


def test_a_log_that_is_gone_for_good(path: Path) -> None:
    """The remedy that the message gives opens what is left."""
    told(path).drop()
    log_of(path).unlink()
    with pytest.raises(DamagedStore) as caught:
        store_at(path)
    remedy = str(caught.value).split('"')[1]
    assert f"remove {mark_of(path).name}, then sqlite3" in str(caught.value)
    mark_of(path).unlink()
    shell(path, remedy)
    with closing(store_at(path)) as store:
        assert store.workflows() == ()


def test_a_link_leads_to_the_log_of_its_file(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told(path).close()
    link = folder / "link.db"
    link.symlink_to(path)
    monkeypatch.chdir(folder)
    store = store_at(Path("link.db"))
    do(store, publish("mail", "late"))
    monkeypatch.chdir("/")
    there = contents(store)
    with closing(store_at(link)) as second:
        assert contents(second) == there
    store.drop()
    with closing(store_at(link)) as store:
        assert contents(store) == there


def test_a_copy_without_its_log_is_noticed(path: Path) -> None:
    store = told(path)
    shutil.copy(path, path.with_name("copy.db"))
    with pytest.raises(DamagedStore, match=r"copy\.db-wal is missing"):
        store_at(path.with_name("copy.db"))
    store.close()


def test_a_shell_may_tidy_up_after_a_death(path: Path) -> None:
    """The last one to close a file after a death brings the log into it; then nothing is missing."""
    store = told(path)
    there = contents(store)
    store.drop()
    shell(path, "SELECT count(*) FROM runs")
    assert not log_of(path).exists()
    with closing(store_at(path)) as store:
        assert contents(store) == there


def test_a_torn_log_ends_with_a_whole_commit(path: Path) -> None:
    store = store_at(path)
    store.create("w", Policy())
    states, ends = [contents(store)], [log_of(path).stat().st_size]
    for command in STORY:
        do(store, command)
        states.append(contents(store))
        ends.append(log_of(path).stat().st_size)
    store.drop()
    assert len(set(ends)) == len(STORY) + 1
    for cut in range(ends[0], ends[-1], 1_111):
        torn = path.with_name(f"torn{cut}.db")
        shutil.copy(path, torn)
        log_of(torn).write_bytes(log_of(path).read_bytes()[:cut])
        with closing(store_at(torn)) as store:
            whole = max(number for number, end in enumerate(ends) if end <= cut)
            assert contents(store) == states[whole]


def test_a_log_that_lost_commits_is_told(path: Path) -> None:
    """By its end or by one wrong byte, wherever that is; and the remedy that the message gives opens what is left."""
    store = told(path)
    there = contents(store)
    store.drop()
    main, log, mark = (of.read_bytes() for of in (path, log_of(path), mark_of(path)))
    places = range(10, len(log), 10_007)
    for spoiled in (b"", *(log[:at] for at in places), *(log[:at] + b"?!" + log[at + 2 :] for at in places)):
        path.write_bytes(main)
        log_of(path).write_bytes(spoiled)
        mark_of(path).write_bytes(mark)
        for _ in range(2):
            with pytest.raises(DamagedStore, match=f"or go on without those commits: remove {mark_of(path).name}"):
                store_at(path)
    log_of(path).write_bytes(log)
    with closing(store_at(path)) as store:
        assert contents(store) == there
    path.write_bytes(main)
    log_of(path).write_bytes(log[: len(log) // 2])
    with closing(store_at(path)) as store:
        assert 0 < len(contents(store)[-1]) < len(there[-1])


@pytest.mark.parametrize("text", [b"", b"\0" * 50, b'["w", 1', b"7"])
def test_a_mark_that_a_machine_left_half_written_says_nothing(path: Path, text: bytes) -> None:
    store = told(path)
    there = contents(store)
    store.drop()
    mark_of(path).write_bytes(text)
    with closing(store_at(path)) as store:
        assert contents(store) == there


def test_a_commit_is_done_although_its_mark_can_not_be_written(path: Path) -> None:
    store = begun(store_at(path))
    store.close()
    mark_of(path).mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        store_at(path)
    mark_of(path).rmdir()
    store = store_at(path)
    mark_of(path).mkdir()
    do(store, publish("mail", "m1"))
    mark_of(path).rmdir()
    store.close()


def test_the_log_is_brought_in_now_and_then(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_COMMITS", 5)
    store = begun(store_at(path))
    lengths = []
    for _ in range(40):
        do(store, Pause(START), Resume(START))
        lengths.append(log_of(path).stat().st_size)
    assert max(lengths) < 30 * 4096, "the log grows and grows"  # Five commits of a few pages each, and not eighty.
    there = contents(store)
    store.drop()
    log = log_of(path).read_bytes()
    log_of(path).unlink()
    with pytest.raises(DamagedStore, match="Put it back"):
        store_at(path)
    log_of(path).write_bytes(log)
    with closing(store_at(path)) as store:
        assert contents(store) == there


# --- several at once ---------------------------------------------------------------------------------


def test_two_processes_may_share_a_file(path: Path) -> None:
    one, two = begun(store_at(path)), store_at(path)
    assert contents(one) == contents(two)
    late = change_for(one, Pause(START), "late")
    do(two, publish("mail", "m1"))
    assert one.load("w") == two.load("w"), "what one remembers is older than what the other wrote"
    with pytest.raises(Conflict):
        one.commit(late)
    lease = one.lease("w", "one", 100)
    assert (lease is None, two.lease("w", "two", 100)) == (False, None)
    one.close()
    assert log_of(path).exists(), "the other one still needs the log"
    do(two, publish("mail", "m2"))
    there = contents(two)
    two.drop()
    log_of(path).rename(path.with_name("away"))
    with pytest.raises(DamagedStore, match="Put it back"):
        store_at(path)
    path.with_name("away").rename(log_of(path))
    with closing(store_at(path)) as store:
        assert contents(store) == there


def test_a_lease_outlives_its_process(path: Path) -> None:
    """Another process may hold it, so an open must not free it."""
    store = begun(store_at(path))
    lease = store.lease("w", "one", 100)
    store.drop()
    with closing(store_at(path)) as store:
        assert store.lease("w", "two", 100) is None
        assert store.lease("w", "one", 100) == lease


def test_two_make_the_file_at_once(path: Path) -> None:
    """Whoever is second takes the first one's."""
    others: list[SQLiteStore] = []

    def second(point: str) -> None:
        if point == "create file: before" and not others:
            others.append(begun(store_at(path)))

    with closing(SQLiteStore(str(path), clock=lambda: START, reach=second)) as store:
        assert contents(store) == contents(others[0])
        others[0].close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# --- migrations --------------------------------------------------------------------------------------

LATER = (*sqlite.MIGRATIONS, ("CREATE TABLE later (a)", "INSERT INTO later VALUES (1)", "CREATE TABLE latest (b)"))


def test_an_older_store_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = told(path)
    there = contents(store)
    store.close()
    monkeypatch.setattr(sqlite, "MIGRATIONS", LATER)
    with closing(store_at(path)) as store:
        assert contents(store) == there
    assert shell(path, "PRAGMA user_version", "SELECT a FROM later") == [(2,), (1,)]
    with closing(store_at(path)) as store:
        assert contents(store) == there


def test_dying_in_a_migration_is_harmless(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = told(path)
    there = contents(store)
    store.close()
    monkeypatch.setattr(sqlite, "MIGRATIONS", LATER)
    deaths = 0
    for number in range(1, 100):
        copy = path.with_name(f"copy{number}.db")
        shutil.copy(path, copy)
        dies = Dies(number)
        try:
            SQLiteStore(str(copy), clock=lambda: START, reach=dies).drop()
        except SimulatedCrash:
            deaths += 1
            with closing(store_at(copy)) as store:
                assert contents(store) == there
            assert shell(copy, "PRAGMA user_version", "SELECT a FROM later") == [(2,), (1,)]
        else:
            break
    assert deaths > 2 * len(LATER[-1])


# --- people and indexes ------------------------------------------------------------------------------


def test_people_can_ask_with_a_shell(path: Path) -> None:
    """While the store is open, and of what is live as well as of what is past."""
    store = store_at(path)
    store.create("w", Policy())
    do(store, *STORY[:-1])
    live = "SELECT transition, id, handler, status, phase FROM runs"
    assert shell(path, live) == [(None, "r1", "file", "active", "mutating")]
    assert shell(path, "SELECT run, status, tool FROM mutations") == [("r1", "pending", "sheets.append")]
    assert shell(path, "SELECT id, status FROM sessions") == [("s1", "open")]
    do(store, STORY[-1])
    assert shell(path, live) == [(len(STORY), "r1", "file", "crashed", "mutating")]
    assert shell(path, "SELECT run, status, resolved_by FROM mutations") == [("r1", "failed", "never_sent")]
    assert shell(path, "SELECT transition, id, status FROM sessions") == [(len(STORY), "s1", "failed")]
    assert shell(path, "SELECT seq, topic, id, status FROM events") == [
        (1, "mail", "m1", "pending"),
        (2, "mail", "m2", "pending"),
    ]
    names = [name for (name,) in shell(path, "SELECT name FROM transitions ORDER BY version")]
    assert names[: len(BEGINNING)] == ["deploy", "resume", "grant"]
    assert len(names) == len(STORY)
    store.close()


def test_the_questions_of_the_readme_have_answers(path: Path) -> None:
    readme = (Path(sqlite.__file__).parent / "README.md").read_text()
    questions = [q.strip() for block in readme.split("```sql\n")[1:] for q in block.split("```")[0].split(";")]
    told(path).close()
    answers = [shell(path, question) for question in questions if question]
    assert len(answers) > 4
    assert all(answers), "a question of the README has no answer in a store where something happened"


def test_no_question_of_a_store_reads_more_than_it_needs(path: Path) -> None:
    """SQLite says how it would answer each statement: by an index, never by going through a table, never by sorting."""
    store = told(path)
    asked: list[str] = []
    store._connection.set_trace_callback(asked.append)
    contents(store)
    store.peek("w", "mail", 10)
    change = change_for(store, publish("mail", "m1"), "change")
    store.commit(change)
    store.commit(change)
    store.lease("w", "host", 10)
    store._connection.set_trace_callback(None)
    reading = [statement for statement in asked if statement.lstrip().startswith(("SELECT", "UPDATE"))]
    assert len(reading) > 10
    for statement in reading:
        plan = store._connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        assert [row[3] for row in plan if not row[3].startswith("SEARCH")] == [], statement
    store.close()


def test_a_log_that_another_process_makes_meanwhile_is_not_missing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SQLiteStore(str(path)).close()
    look = SQLiteStore._log_mark
    others: list[SQLiteStore] = []

    def look_while_another_opens(store: SQLiteStore, mode: str) -> str:
        if not others:
            monkeypatch.setattr(SQLiteStore, "_log_mark", look)
            others.append(SQLiteStore(str(path)))
        return look(store, mode)

    monkeypatch.setattr(SQLiteStore, "_log_mark", look_while_another_opens)
    SQLiteStore(str(path)).close()
    others[0].close()
