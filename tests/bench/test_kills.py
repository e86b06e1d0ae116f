"""The benchmark of kills kills, counts what is outside afterwards, and fails when anything is doubled or lost."""

import json
import sys
from pathlib import Path

import pytest

from bench import kills as bench


def test_one_kill_of_each_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["kills", "--times", "1", "--folder", str(tmp_path), "--json"])
    assert bench.main() == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["system"], row["killed"], row["asked"], row["told_apart"]) for row in rows] == [
        ("keepkernel", "before", 0, "yes"),
        ("keepkernel", "after", 0, "yes"),
        ("keepkernel, no reconcile", "before", 1, "by a person"),
        ("keepkernel, no reconcile", "after", 1, "by a person"),
    ]
    assert {(row["duplicates"], row["losses"]) for row in rows} == {(0, 0)}
    assert list(tmp_path.iterdir()) == []


GOOD = bench.Result("keepkernel", "after", 25, 0, 0, 0)


@pytest.mark.parametrize(
    ("result", "good", "apart"),
    [
        (GOOD, True, "yes"),
        (GOOD._replace(asked=25), True, "by a person"),
        (GOOD._replace(asked=3), False, "yes"),
        (GOOD._replace(duplicates=1), False, "no"),
        (GOOD._replace(losses=1), False, "no"),
        (GOOD._replace(system="DBOS Transact", duplicates=25), True, "no"),
    ],
)
def test_what_counts_as_met(result: bench.Result, good: bool, apart: str) -> None:
    assert bench.met([result]) is good
    assert bench.told_apart(result.system, [result]) == apart
    assert f"{result.duplicates}" in bench.table([result])


def test_a_process_that_was_not_killed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "first_life", lambda *given: None)
    with pytest.raises(RuntimeError, match="should have been killed"):
        bench.systems()["keepkernel"](tmp_path, "before")
