"""The benchmark of stores does the work that it says, and fails when a number is not met."""

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bench import stores as bench
from keepkernel.adapters.memory import MemoryStore


def test_a_run_is_ten_transitions_and_ends() -> None:
    store = MemoryStore()
    one = bench.Bench(store, "w")
    one.forget_times()
    one.run()
    assert len(one.commits) == len(one.loads) == len(one.steps) == 10
    assert [event.status for event in store.events("w")] == ["consumed"]
    assert store.runs("w")[-1][1].status == "committed"


def test_the_history_holds_what_was_asked() -> None:
    store = MemoryStore()
    one = bench.Bench(store, "w")
    one.fill(500)
    assert store.load("w").state.next_seq == 502
    assert {event.status for event in store.events("w", limit=1_000)} == {"consumed"}
    assert len(store.runs("w", limit=1_000)) == 6


def test_the_raw_loop_of_sqlite_is_durable(tmp_path: Path) -> None:
    with bench.raw_sqlite(tmp_path, "sqlite:") as append:
        assert bench.time_appends(append, 3) > 0
    with closing(bench.sqlite3.connect(tmp_path / "raw")) as connection:
        assert connection.execute("SELECT count(*), min(length(line)) FROM lines").fetchone() == (3, 400)


def test_small_numbers_give_whole_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    options = ["--runs", "1", "--history", "100", "--folder", str(tmp_path), "--json"]
    monkeypatch.setattr(sys, "argv", ["stores", "memory:", "sqlite:", *options])
    bench.main()
    memory, sqlite = json.loads(capsys.readouterr().out)
    assert (memory["store"], sqlite["store"]) == ("memory", "sqlite")
    assert (memory["raw_per_s"], memory["opening_s"]) == (0, 0)
    assert all(number > 0 for number in sqlite.values() if isinstance(number, float))
    assert sqlite["transitions"] == 10
    assert list(tmp_path.iterdir()) == []


GOOD = bench.Result("sqlite", 100, 5_000, 4_000, 10_000, 0.5, 1_000_000, 100, 130, 1.3, 50, 50, 1.0, 2.0)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (GOOD, 0),
        (GOOD._replace(rate=0.49), 1),
        (GOOD._replace(growth=1.31), 1),
        (GOOD._replace(opening_s=2.01), 1),
        (GOOD._replace(store="memory", raw_per_s=0.0, rate=0.0), 0),
    ],
)
def test_fails_when_a_number_is_not_met(
    result: bench.Result, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "measure", lambda *arguments: result)
    monkeypatch.setattr(sys, "argv", ["stores", "sqlite:"])
    assert bench.main() == code
    assert f"{result.history:,} finished events" in capsys.readouterr().out
