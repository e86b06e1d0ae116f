"""The benchmark of the host does the work that it says, and fails when a number is not met."""

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bench import host as bench
from keepkernel.adapters.memory import MemoryStore


@pytest.mark.parametrize("sandbox", [True, False])
def test_every_event_is_handled_once_in_three_commits(tmp_path: Path, sandbox: bool) -> None:
    store = MemoryStore()
    with bench.work(store, tmp_path, sandbox=sandbox) as one:
        one.publish(3)
        before = len({*store._rows["bench"].changes})
        one.drive()
        one.check()
        # Three for each event, one for the run that finds nothing, one for the end of the session.
        assert len({*store._rows["bench"].changes}) - before == 3 * bench.COMMITS_PER_EVENT + 2
        assert [event.payload for event in store.peek("bench", "done", 9)] == ["true"] * 3


def test_a_change_that_is_missing_outside_is_noticed(tmp_path: Path) -> None:
    with closing(MemoryStore()) as store, bench.work(store, tmp_path, sandbox=False) as one:
        one.publish(2)
        one.drive()
        one.ledger.path.write_text("0\tx\n")
        with pytest.raises(RuntimeError, match="1 changes outside instead of 2"):
            one.check()


def test_small_numbers_give_whole_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    name = "sqlite, Python functions"
    monkeypatch.setattr(sys, "argv", ["host", name, "--events", "2", "--folder", str(tmp_path), "--json"])
    bench.main()
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["name"], result["events"], result["wanted"]) == (name, 2, 0.5)
    assert all(result[number] > 0 for number in ("events_per_s", "bare_per_s", "ratio"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("ratio", "code"), [(0.5, 0), (0.49, 1)])
def test_the_exit_code_says_whether_the_numbers_are_met(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "sqlite, Python functions"
    monkeypatch.setattr(bench, "measure", lambda *given: bench.Result(name, 1_000, 500, 1_000, ratio, 0.5))
    monkeypatch.setattr(sys, "argv", ["host", name])
    assert bench.main() == code
    assert f"{ratio:.2f}" in capsys.readouterr().out
