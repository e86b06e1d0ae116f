"""What is special about the store in DuckDB: folding, dying at any point, its files, and what a person may ask it.

The contract that all stores keep is tested elsewhere; the store in memory, which keeps it, is the model here.
"""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import duckdb
import pytest
from contract.checks import STORY, do
from flow import FILE, START, TELL, TOOL, TOPICS
from walks import POLICY, walk

from keepkernel import (
    Accepted,
    Command,
    Declaration,
    Deploy,
    Event,
    Grant,
    Key,
    Policy,
    Publication,
    Publish,
    Retired,
    step,
)
from keepkernel.adapters import duckdb as adapter
from keepkernel.adapters.duckdb import DuckDBStore
from keepkernel.adapters.duckdb_tables import FOLD, NAME_HASH
from keepkernel.adapters.duckdb_undo import HEADER_BYTES
from keepkernel.adapters.memory import MemoryStore
from keepkernel.adapters.points import SimulatedCrash
from keepkernel.kernel.ports import (
    Change,
    DamagedStore,
    Done,
    LeaseLost,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    Store,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreStopped,
    change_of,
)

W = "w"
BLOCK_BYTES = 262_144
BLOCK_END = HEADER_BYTES + BLOCK_BYTES
"""The first block holds the metadata, and begins with its checksum."""
CHECKSUM_BYTES = 8


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where the system has one: a sync would take most of the time otherwise."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def transit(store: Store, command: Command, name: str, workflow: str = W) -> bool:
    """Load, step, commit; whether the command was accepted."""
    loaded = store.load(workflow, command)
    outcome = step(loaded.state, command)
    if isinstance(outcome, Accepted):
        store.commit(change_of(name, loaded, (command, outcome)))
    return isinstance(outcome, Accepted)


def publish(store: Store, *ids: str, topic: str = "mail", payload: str = "{}") -> None:
    for name in ids:
        command = Publish(START, Publication(Key(topic, name), "a title", payload))
        assert transit(store, command, f"publish {topic} {name}")


def deployed(store: Store, *consumers: Declaration) -> None:
    assert store.create(W, Policy())
    assert transit(store, Deploy(START, "v1", TOPICS, consumers or (FILE, TELL)), "deploy")
    assert transit(store, Grant(START, TOOL), "grant")


def picture(store: Store) -> dict[str, Any]:
    """All that a store can be asked for, page by page."""

    def paged(page: Callable[[int], tuple[Any, ...]], number: Callable[[Any], int]) -> list[Any]:
        found: list[Any] = []
        while rows := page(number(found[-1]) if found else 0):
            found += rows
        return found

    names = store.workflows()
    return {
        "workflows": names,
        "loaded": [store.load(name) for name in names],
        "events": [paged(lambda at: store.events(name, at, 3), lambda e: e.seq) for name in names],  # noqa: B023
        "pending": [
            paged(lambda at: store.peek(name, topic, 2, at), lambda e: e.seq)  # noqa: B023
            for name in names
            for topic in TOPICS
        ],
        "history": [
            paged(lambda at: ask(name, at, 3), lambda row: row[0])  # noqa: B023
            for name in names
            for ask in (store.runs, store.mutations, store.sessions, store.transitions)
        ],
    }


# --- the same as the store in memory -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_walk_looks_the_same_as_in_memory(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "PAGE", 2)
    random = Random(seed)
    path = str(tmp_path / "store")
    model, store = MemoryStore(), DuckDBStore(path, fold_commits=random.randint(1, 9))
    for each in (model, store):
        assert each.create(W, POLICY)
    tried = [one for one in walk(random, 150) if isinstance(one.outcome, Accepted)]
    for number, (_, command, _) in enumerate(tried):
        expected, loaded = model.load(W, command), store.load(W, command)
        assert loaded == expected
        outcome = step(loaded.state, command)
        assert isinstance(outcome, Accepted)
        change = change_of(f"c{number}", loaded, (command, outcome))
        assert store.commit(change) == model.commit(change)
        if random.random() < 0.1:
            store.close() if random.random() < 0.5 else store.drop()
            store = DuckDBStore(path, fold_commits=random.randint(1, 9))
        if number % 20 == 0:
            assert picture(store) == picture(model)
    assert picture(store) == picture(model)
    for event in model.events(W, 0, 1_000):
        assert store.get(W, event.key) == event
    store.close()
    reopened = DuckDBStore(path)
    assert picture(reopened) == picture(model)
    reopened.close()


@pytest.mark.parametrize(
    "text", ["", " ", "\0", "é\u2028", "\U0001f600", "'); DROP TABLE journal; --", '"\\', "a" * 70_000]
)
def test_any_text_comes_back(tmp_path: Path, text: str) -> None:
    event = Event(Key(text, text), 1, "consumed", text, text, text, text, (Key(text, text),))
    store = DuckDBStore(str(tmp_path / "store"))
    deployed(store)
    loaded = store.load(W)
    head = loaded.state._replace(version=text, events=())
    done = Done(Deploy(START, text, (text,), ()), (), Retired())
    store.commit(Change(text, W, loaded.version, (done,), head, (event,)))
    for _ in range(2):
        assert store.get(W, event.key) == event
        assert store.events(W) == (event,)
        assert store.load(W).state.version == text
        assert store.transitions(W, loaded.version)[0].command == Deploy(START, text, (text,), ())
        store.close()
        store = DuckDBStore(str(tmp_path / "store"))
    store.close()


def test_events_of_one_hash_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "FOLD", FOLD.replace(NAME_HASH, "7::UBIGINT"))
    monkeypatch.setattr(adapter, "name_hash", lambda workflow, key: 7)
    store = DuckDBStore(str(tmp_path / "store"), fold_commits=1)
    deployed(store)
    publish(store, "m1", "m2", "m3")
    for event in store.events(W):
        assert store.get(W, event.key) == event
    assert store.get(W, Key("done", "m1")) is None
    store.close()


def test_a_queue_of_many_pages_comes_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepkernel.adapters.duckdb.PAGE", 3)
    path = str(tmp_path / "store")
    store = DuckDBStore(path)
    deployed(store)
    publish(store, *(f"m{number}" for number in range(10)))
    store.close()
    store = DuckDBStore(path)
    assert [event.key.id for event in store.peek(W, "mail", 100)] == [f"m{number}" for number in range(10)]
    assert [event.key.id for event in store.peek(W, "mail", 100, 4)] == [f"m{number}" for number in range(4, 10)]
    store.close()


def test_memory_holds_nothing_of_a_journal_that_was_folded(tmp_path: Path) -> None:
    store = DuckDBStore(str(tmp_path / "store"), fold_commits=10)
    deployed(store)
    held = []
    for number in range(60):
        publish(store, f"m{number}")
        held.append(len(store._lives[W].changed))
    assert max(held) == 10
    assert len(store.peek(W, "mail", 1_000)) == 60
    store.close()


def test_a_journal_of_many_bytes_is_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "FOLD_BYTES", 100_000)
    points: list[str] = []
    store = DuckDBStore(str(tmp_path / "store"), reach=points.append)
    deployed(store)
    points.clear()
    for number in range(5):
        publish(store, f"m{number}", payload=f'"{"x" * 30_000}"')
    assert points.count("fold commit: after") == 2
    store.close()


# --- dying -------------------------------------------------------------------------------------------


class Points:
    """Numbers the points, and dies at one of them."""

    def __init__(self, die_at: int = 0, die: Callable[[], NoReturn] | None = None) -> None:
        self.names: list[str] = []
        self.die_at = die_at
        self.die = die

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if self.die is not None and len(self.names) == self.die_at:
            self.die()


def simulated() -> NoReturn:
    raise SimulatedCrash


def real() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


CHANGES = 4


def small_life(path: Path, points: Points, answered: Callable[[int], object]) -> None:
    """Open or create, go on with the rest of four changes, close; three rows of the journal make a fold."""
    store = DuckDBStore(str(path), reach=points, fold_commits=3)
    try:
        store.create(W, Policy())
        for number in range(store.load(W).version, CHANGES):
            first = Deploy(START, "v1", TOPICS, (FILE, TELL))
            command = first if number == 0 else Publish(START, Publication(Key("mail", f"m{number}"), "t", "{}"))
            assert transit(store, command, f"c{number}")
            answered(number + 1)
        store.close()
    except SimulatedCrash:
        store.drop()
        raise


def require_whole(path: Path, answered: int) -> None:
    """Everything that was answered is there, at most one change more, and each of them as a whole."""
    store = DuckDBStore(str(path))
    store.create(W, Policy())
    version = store.load(W).version
    assert answered <= version <= answered + 1
    assert [line.version for line in store.transitions(W)] == [*range(1, version + 1)]
    assert [e.key.id for e in store.events(W)] == [f"m{n}" for n in range(1, version)]
    assert store.load(W).state.next_seq == max(version, 1)
    store.close()
    assert sorted(os.listdir(path.parent)) == [path.name]


def clean_points(tmp_path: Path) -> list[str]:
    points = Points()
    (tmp_path / "clean").mkdir()
    small_life(tmp_path / "clean" / "store", points, lambda number: None)
    return points.names


def test_points_stand_around_every_statement(tmp_path: Path) -> None:
    names = clean_points(tmp_path)
    assert names.count("commit: before") == names.count("commit: after") == CHANGES
    assert names.count("fold commit: after") == 3  # At open, in between, and at the end.
    assert names.count("create file: before") == names.count("remove mark: after") == 1
    assert [name.replace("before", "after") for name in names[::2]] == names[1::2]


def test_a_simulated_death_at_any_point_loses_nothing(tmp_path: Path) -> None:
    for number in range(1, len(clean_points(tmp_path)) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        answered = [0]
        with pytest.raises(SimulatedCrash):
            small_life(folder / "store", Points(number, simulated), answered.append)
        require_whole(folder / "store", answered[-1])


def test_two_simulated_deaths_lose_nothing(tmp_path: Path) -> None:
    """The second one while the store is opened and folded anew."""
    random, names = Random(4), clean_points(tmp_path)
    for number in range(15):
        folder = tmp_path / str(number)
        folder.mkdir()
        answered = [0]
        for die_at in (random.randint(1, len(names)), random.randint(1, 60), random.randint(1, 30)):
            with suppress(SimulatedCrash):  # A later life may end before it comes to the point.
                small_life(folder / "store", Points(die_at, simulated), answered.append)
        require_whole(folder / "store", answered[-1])


def forked(work: Callable[[], object]) -> int:
    """The wait status of a child that does this."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def test_a_real_kill_at_any_point_loses_nothing(tmp_path: Path) -> None:
    for number in range(1, len(clean_points(tmp_path)) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        record = os.open(folder.with_suffix(".answered"), os.O_RDWR | os.O_CREAT)

        def life(folder: Path = folder, number: int = number, record: int = record) -> None:
            small_life(folder / "store", Points(number, real), lambda n: os.pwrite(record, bytes([n]), 0))

        assert os.WTERMSIG(forked(life)) == signal.SIGKILL
        answered = os.pread(record, 1, 0) or b"\0"
        os.close(record)
        require_whole(folder / "store", answered[0])


def test_both_deaths_leave_the_same_files(tmp_path: Path) -> None:
    """Which is why the simulated one may stand for the real one."""
    for number in range(1, len(clean_points(tmp_path)) + 1, 7):
        left = []
        for name, die in (("simulated", simulated), ("real", real)):
            folder = tmp_path / f"{name}{number}"
            folder.mkdir()
            forked(lambda: small_life(folder / "store", Points(number, die), lambda n: None))  # noqa: B023
            left.append(sorted(path.name.split("-")[0] for path in folder.iterdir()))
        assert left[0] == left[1]


def test_nothing_is_asked_of_a_store_after_a_death(tmp_path: Path) -> None:
    points = Points()
    store = DuckDBStore(str(tmp_path / "store"), reach=points)
    deployed(store)
    points.die_at, points.die = len(points.names) + 2, simulated
    with pytest.raises(SimulatedCrash):
        publish(store, "m1")
    for ask in (lambda: store.load(W), lambda: publish(store, "m2"), lambda: store.events(W), store.close):
        with pytest.raises(StoreError, match="open it again"):
            ask()
    store.drop()
    assert [e.key.id for e in DuckDBStore(str(tmp_path / "store")).events(W)] == ["m1"]


def test_a_checkpoint_that_was_torn_is_undone(tmp_path: Path) -> None:
    """A kill may fall into the middle of a write, where no point is: a part of a block is new, the rest is old."""
    path, snapshot = tmp_path / "a" / "store", tmp_path / "before"
    path.parent.mkdir()
    torn: list[int] = []

    def tear(point: str) -> None:
        if point == "checkpoint: before":
            shutil.rmtree(snapshot, ignore_errors=True)
            shutil.copytree(path.parent, snapshot)
        elif point == "checkpoint: after" and (number := len(torn) + 1):
            old, new = (snapshot / "store").read_bytes(), path.read_bytes()
            part = HEADER_BYTES + CHECKSUM_BYTES
            (snapshot / "store").write_bytes(
                old[:HEADER_BYTES]
                + new[HEADER_BYTES:part]
                + old[part:BLOCK_END]
                + new[BLOCK_END:]
                + old[len(new) :]  # The file is cut only after the header was written.
            )
            torn.append(number)
            shutil.copytree(snapshot, tmp_path / f"torn{number}")

    store = DuckDBStore(str(path), reach=tear, fold_commits=5)
    deployed(store)
    told = {}
    for number in range(30):
        publish(store, f"m{number}")
        told[len(torn)] = store.load(W).version
    store.drop()
    assert len(torn) > 5
    for number in torn[1:]:
        there = tmp_path / f"torn{number}" / "store"
        without = tmp_path / f"without{number}"
        shutil.copytree(there.parent, without)
        (without / "store.undo").unlink()
        with pytest.raises(DamagedStore):
            DuckDBStore(str(without / "store"))
        store = DuckDBStore(str(there))
        assert store.load(W).version == told[number - 1]
        assert [e.key.id for e in store.events(W)] == [f"m{n}" for n in range(told[number - 1] - 2)]
        for event in store.events(W):
            assert store.get(W, event.key) == event
        store.close()
        assert [p.name for p in there.parent.iterdir()] == ["store"]


# --- leases ------------------------------------------------------------------------------------------


def test_a_lease_of_an_earlier_process_is_lost(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    store = DuckDBStore(path)
    deployed(store)
    for host in ("a", "b", "c", "d", "e"):
        old = store.lease(W, host, 0)
    store.drop()
    store = DuckDBStore(path)
    new = store.lease(W, "f", 60_000)
    assert old is not None
    assert new is not None
    assert new.token > old.token
    loaded = store.load(W)
    command = Grant(START, "other.tool")
    outcome = step(loaded.state, command)
    assert isinstance(outcome, Accepted)
    change = change_of("late", loaded, (command, outcome))
    with pytest.raises(LeaseLost):
        store.commit(change, old)
    assert store.commit(change, new) == loaded.version + 1
    store.close()


# --- files -------------------------------------------------------------------------------------------


@pytest.fixture
def unclean(tmp_path: Path) -> Iterator[Path]:
    """A store whose process died after three events."""
    path = tmp_path / "store"
    store = DuckDBStore(str(path))
    deployed(store)
    publish(store, "m1", "m2", "m3")
    store.drop()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store", "store.mark", "store.wal"]
    return path


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def test_one_file_is_left_when_it_is_closed(tmp_path: Path) -> None:
    store = DuckDBStore(str(tmp_path / "store"))
    deployed(store)
    store.close()
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("lost", [[".wal"], [".mark"], [".wal", ".mark"]])
def test_a_missing_companion_is_told(unclean: Path, lost: list[str]) -> None:
    kept = {suffix: beside(unclean, suffix).read_bytes() for suffix in lost}
    for suffix in lost:
        beside(unclean, suffix).unlink()
    for _ in range(2):  # Being told changes nothing.
        with pytest.raises(DamagedStore, match=r"store\.wal .*missing"):
            DuckDBStore(str(unclean))
    for suffix, content in kept.items():
        beside(unclean, suffix).write_bytes(content)
    store = DuckDBStore(str(unclean))
    assert len(store.events(W)) == 3
    store.close()


@pytest.mark.parametrize("lost", [[".wal"], [".mark", ".wal"]])
def test_the_remedy_that_is_named_works(unclean: Path, lost: list[str]) -> None:
    for suffix in lost:
        beside(unclean, suffix).unlink()
    with pytest.raises(DamagedStore, match=r"remove store\.mark, then duckdb .* 'UPDATE store SET closed = true'"):
        DuckDBStore(str(unclean))
    beside(unclean, ".mark").unlink(missing_ok=True)
    with duckdb.connect(str(unclean)) as shell:
        shell.execute("UPDATE store SET closed = true")
    store = DuckDBStore(str(unclean))
    assert store.workflows() == ()
    store.close()


@pytest.mark.parametrize("lost", [[], [".wal"], [".mark"]])
def test_what_is_left_of_a_missing_file_is_not_taken_for_that_of_a_new_one(unclean: Path, lost: list[str]) -> None:
    unclean.unlink()
    for suffix in lost:
        beside(unclean, suffix).unlink()
    left = [f"store{suffix}" for suffix in (".wal", ".mark") if suffix not in lost]
    with pytest.raises(DamagedStore, match=f"Put it back.* remove {' and '.join(left)}$"):
        DuckDBStore(str(unclean))
    assert not unclean.exists()
    for name in left:
        unclean.with_name(name).unlink()
    store = DuckDBStore(str(unclean))
    assert store.workflows() == ()
    store.close()


def test_an_older_copy_beside_a_mark_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = DuckDBStore(str(path))
    deployed(store)
    store.close()
    shutil.copy(path, tmp_path / "copy")
    store = DuckDBStore(str(path))
    publish(store, "m1")
    store.drop()
    beside(path, ".wal").unlink()
    shutil.copy(tmp_path / "copy", path)
    with pytest.raises(DamagedStore, match="an older copy"):
        DuckDBStore(str(path))


def test_a_log_that_was_cut_is_told(unclean: Path) -> None:
    log = beside(unclean, ".wal")
    whole = log.read_bytes()
    for size in (*range(0, len(whole), 97), len(whole) - 1):
        log.write_bytes(whole[:size])
        with pytest.raises(DamagedStore):
            DuckDBStore(str(unclean))
    log.write_bytes(whole)
    DuckDBStore(str(unclean)).close()


def test_a_log_with_a_wrong_byte_is_told(unclean: Path) -> None:
    log = beside(unclean, ".wal")
    whole = log.read_bytes()
    for place in range(30, len(whole), 211):
        log.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(DamagedStore):
            DuckDBStore(str(unclean))


def test_a_commit_that_was_torn_is_as_if_it_never_was(unclean: Path) -> None:
    """The machine died in the middle of a write, and nobody was told that it was done."""
    log = beside(unclean, ".wal")
    before = log.read_bytes()
    store = DuckDBStore(str(unclean))
    after_open = log.read_bytes()
    publish(store, "m4")
    torn = log.read_bytes()[:-7]
    store.drop()
    assert before != after_open != torn
    log.write_bytes(torn)
    mark = beside(unclean, ".mark")
    mark.write_text(f"{int(mark.read_text()) - 1:020d}\n")
    store = DuckDBStore(str(unclean))
    assert [e.key.id for e in store.events(W)] == ["m1", "m2", "m3"]
    store.close()


@pytest.mark.parametrize("text", [b"", b"0\n", b"\xff\xfe", "²".encode(), b"1" * 5_000, bytes(21)])
def test_a_mark_that_is_damaged_is_told(unclean: Path, text: bytes) -> None:
    beside(unclean, ".mark").write_bytes(text)
    with pytest.raises(DamagedStore, match="mark is damaged"):
        DuckDBStore(str(unclean))


def test_a_file_that_was_cut_is_told(unclean: Path) -> None:
    DuckDBStore(str(unclean)).close()
    whole = unclean.read_bytes()
    for size in (12, 100, 4096, 8192, 12_288, *range(20_000, len(whole), 100_000), len(whole) - 1):
        unclean.write_bytes(whole[:size])
        with pytest.raises(DamagedStore, match="restore a copy"):
            DuckDBStore(str(unclean))


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0" + bytes(100)])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(NotAStore, match="name another file"):
        DuckDBStore(str(path))
    assert path.read_bytes() == content
    assert len([*tmp_path.iterdir()]) == 1


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with duckdb.connect(str(path)) as other:
        other.execute("CREATE TABLE store (a INTEGER)")
    content = path.read_bytes()
    with pytest.raises(NotAStore, match="not written by keepkernel"):
        DuckDBStore(str(path))
    assert path.read_bytes() == content
    assert len([*tmp_path.iterdir()]) == 1


def test_a_newer_schema_is_told(unclean: Path) -> None:
    DuckDBStore(str(unclean)).close()
    with duckdb.connect(str(unclean)) as later:
        later.execute("UPDATE store SET keepkernel_schema = 2")
    with pytest.raises(NewerStore, match=r"schema version 2.* install the keepkernel that wrote it"):
        DuckDBStore(str(unclean))


def test_an_older_schema_is_migrated(unclean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a journal that was not folded yet, and a death at every point of it."""
    further = "ALTER TABLE heads ADD COLUMN note VARCHAR DEFAULT 'new'"
    monkeypatch.setattr(adapter, "MIGRATIONS", (*adapter.MIGRATIONS, further))
    for die_at in range(1, 12):
        folder = unclean.parent / str(die_at)
        folder.mkdir()
        for file in unclean.parent.glob("store*"):
            shutil.copy(file, folder)
        with pytest.raises(SimulatedCrash):
            DuckDBStore(str(folder / "store"), reach=Points(die_at, simulated))
        store = DuckDBStore(str(folder / "store"))
        assert len(store.events(W)) == 3
        store.close()
        with duckdb.connect(str(folder / "store")) as shell:
            assert shell.execute("SELECT keepkernel_schema, note FROM store, heads").fetchall() == [(2, "new")]


def test_a_store_is_opened_once_in_a_process(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = DuckDBStore(str(path))
    with pytest.raises(StoreBusy, match="open in this process already"):
        DuckDBStore(str(tmp_path / "." / "store"))
    store.close()
    DuckDBStore(str(path)).close()


def test_a_store_is_opened_by_one_process(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = DuckDBStore(str(path))
    deployed(store)
    program = "import sys; from keepkernel.adapters.duckdb import DuckDBStore; DuckDBStore(sys.argv[1])"
    second = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert "StoreBusy" in second.stderr
    assert "is open in another process; end that one, or use its store" in second.stderr
    publish(store, "m1")
    store.close()


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="make it first"):
        DuckDBStore(str(tmp_path / "none" / "store"))


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder; name a file in it"):
        DuckDBStore(str(tmp_path))


def test_what_a_killed_creation_left_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / "store.new-1").write_bytes(b"half")
    (tmp_path / "store.new-1.wal").write_bytes(b"half")
    DuckDBStore(str(tmp_path / "store")).close()
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


def test_a_creation_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def full(point: str) -> None:
        if point == "checkpoint draft: before":
            assert len([*tmp_path.iterdir()]) == 2
        if point == "create file: before":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StoreFull):
        DuckDBStore(str(tmp_path / "store"), reach=full)
    assert [*tmp_path.iterdir()] == []


def test_of_two_that_create_at_once_one_is_told(tmp_path: Path) -> None:
    def sweep(point: str) -> None:
        if point == "create file: before":
            for draft in tmp_path.glob("store.new-*"):
                draft.unlink()

    with pytest.raises(StoreBusy, match="try again"):
        DuckDBStore(str(tmp_path / "store"), reach=sweep)


def test_who_creates_second_takes_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "store"
    other = DuckDBStore(str(tmp_path / "other"))
    deployed(other)
    other.close()

    def faster(point: str) -> None:
        if point == "create file: before":
            os.link(tmp_path / "other", path)

    store = DuckDBStore(str(path), reach=faster)
    assert store.workflows() == (W,)
    store.close()


# --- a disk that refuses -----------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach; those of pytest are closed to them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(work: Callable[[], object]) -> int:
    """Root may write anywhere, so it becomes somebody who may not."""

    def humble() -> None:
        if os.getuid() == 0:
            os.setgid(65_534)
            os.setuid(65_534)
        work()

    return os.waitstatus_to_exitcode(forked(humble))


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_can_not_be_written_is_told(open_folder: Path, there: bool) -> None:
    path = open_folder / "store"
    if there:
        DuckDBStore(str(path)).close()
        path.chmod(0o444)
    open_folder.chmod(0o555)

    def refused() -> None:
        with pytest.raises(ReadOnlyStore, match="permission"):
            DuckDBStore(str(path))

    assert as_nobody(refused) == 0


def test_a_full_disk_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = DuckDBStore(str(path))
    deployed(store)
    publish(store, "m1")
    store.drop()

    def until_full() -> None:
        store = DuckDBStore(str(path))
        limit = os.path.getsize(path) + 100_000
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        text = ""
        for number in range(2, 1_000):
            try:
                publish(store, f"m{number}", payload=f'"{"x" * 5_000}"')
            except StoreFull as error:
                text = str(error)
                break
        assert "has no room to grow; make some" in text
        written = store.load(W).version - 2
        assert written == number - 1
        assert len(store.events(W, 0, 10_000)) == written
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        publish(store, f"m{written + 1}")  # There is room again, and the same store goes on.
        (tmp_path / "written").write_text(str(written + 1))
        store.drop()

    assert forked(until_full) == 0
    store = DuckDBStore(str(path))
    assert len(store.events(W, 0, 10_000)) == int((tmp_path / "written").read_text()) > 5
    store.close()


def test_a_disk_that_is_full_while_the_journal_is_folded(tmp_path: Path) -> None:
    path = tmp_path / "store"

    def until_full() -> None:
        points = Points()
        store = DuckDBStore(str(path), reach=points, fold_commits=20)
        deployed(store)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for number in range(17):
            publish(store, f"m{number}", payload=f'"{os.urandom(30_000).hex()}"')
        size = os.path.getsize(beside(path, ".wal"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        before = picture(store)
        with pytest.raises(StoreFull):
            publish(store, "too much", payload=f'"{"x" * 30_000}"')
        assert points.names[-1] == "fold commit: before"
        assert picture(store) == before
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        publish(store, "m17")
        assert points.names.count("fold commit: after") == 2  # At open, and now.
        store.drop()

    assert forked(until_full) == 0
    store = DuckDBStore(str(path))
    assert [e.key.id for e in store.events(W)] == [f"m{n}" for n in range(18)]
    store.close()


def test_a_store_that_can_not_be_closed_in_order_can_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    store = DuckDBStore(str(path))
    deployed(store)
    publish(store, "m1")
    before = picture(store)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("keepkernel.adapters.duckdb_undo.Undo.save", full)
        with pytest.raises(StoreFull, match="make room"):
            store.close()
    store = DuckDBStore(str(path))
    assert picture(store) == before
    store.close()


# --- a person who asks -------------------------------------------------------------------------------


def test_views_tell_the_same_before_and_after_folding(unclean: Path) -> None:
    def answers() -> dict[str, Any]:
        asked = ("workflows", "events", "runs", "mutations", "sessions", "transitions")
        with duckdb.connect(str(unclean), read_only=True) as shell:
            return {view: sorted(shell.execute(f"FROM {view}").fetchall(), key=str) for view in asked}

    with_journal = answers()
    DuckDBStore(str(unclean)).close()
    assert answers() == with_journal
    assert [row[:5] for row in with_journal["events"]] == [
        (W, "mail", f"m{n}", n, "pending") for n in (1, 2, 3)
    ]  # fmt: skip
    assert len(with_journal["transitions"]) == 5


def shell(path: Path, question: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(question).fetchall()


@pytest.mark.parametrize("leave", ["drop", "close"])
def test_people_can_ask_with_a_shell(tmp_path: Path, leave: str) -> None:
    """Of what is live as well as of what is past, after a death as well as after an orderly close."""
    path = tmp_path / "store"
    live = "SELECT transition, id, handler, status, phase FROM runs"
    store = DuckDBStore(str(path))
    store.create(W, Policy())
    do(store, *STORY[:-1])
    getattr(store, leave)()
    assert shell(path, live) == [(None, "r1", "file", "active", "mutating")]
    assert shell(path, "SELECT run, status, tool FROM mutations") == [("r1", "pending", TOOL)]
    assert shell(path, "SELECT id, status FROM sessions") == [("s1", "open")]
    assert shell(path, "SELECT id, status, owner FROM events ORDER BY seq") == [
        ("m1", "reserved", "r1"),
        ("m2", "reserved", "r1"),
    ]
    store = DuckDBStore(str(path))
    do(store, STORY[-1])
    getattr(store, leave)()
    assert shell(path, live) == [(len(STORY), "r1", "file", "crashed", "mutating")]
    assert shell(path, "SELECT run, status, resolved_by FROM mutations") == [("r1", "failed", "never_sent")]
    assert shell(path, "SELECT transition, id, status FROM sessions") == [(len(STORY), "s1", "failed")]
    assert shell(path, "SELECT id, status FROM events ORDER BY seq") == [("m1", "pending"), ("m2", "pending")]
    assert shell(path, "SELECT count(*), max(version) FROM transitions") == [(len(STORY), len(STORY))]
    assert shell(path, "SELECT name, head ->> '$.status' FROM workflows") == [(W, "active")]


def test_the_questions_of_the_readme_have_answers(tmp_path: Path) -> None:
    readme = (Path(adapter.__file__).parent / "README.md").read_text()
    questions = [q.strip() for block in readme.split("```sql\n")[1:] for q in block.split("```")[0].split(";")]
    store = DuckDBStore(str(tmp_path / "store"))
    store.create(W, Policy())
    do(store, *STORY)
    store.close()
    answers = [shell(tmp_path / "store", question) for question in questions if question]
    assert len(answers) > 4
    assert all(answers), "a question of the README has no answer in a store where something happened"


def test_a_store_that_closes_takes_no_mark_of_the_next_one(tmp_path: Path) -> None:
    """The lock ends when DuckDB closes the file, so the mark must be gone by then."""
    path = tmp_path / "store.duckdb"
    found: list[str] = []

    def others_try(point: str) -> None:
        if point in ("remove mark: before", "remove mark: after"):
            script = f"from keepkernel.adapters.duckdb import DuckDBStore; DuckDBStore({str(path)!r})"
            tried = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
            found.append(tried.stderr.splitlines()[-1])

    DuckDBStore(str(path), reach=others_try).close()
    assert len(found) == 2
    assert all("StoreBusy" in line for line in found)


def test_a_store_that_can_not_go_on_says_so_by_its_kind(tmp_path: Path) -> None:
    def breaks(point: str) -> None:
        if point == "create: after":
            raise OSError("the disk is gone")

    store = DuckDBStore(str(tmp_path / "store.duckdb"), reach=breaks)
    with pytest.raises(StoreError):
        store.create("w", Policy())
    with pytest.raises(StoreStopped, match="open it again"):
        store.load("w")
    store.drop()
