"""The log beside a store."""

from pathlib import Path

import pytest

from keepkernel import log
from keepkernel.log import Log, read_log


def no_trouble(text: str) -> None:
    raise AssertionError(text)


def test_lines_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.log"
    writer = Log(path, no_trouble)
    for number in range(3):
        writer.write({"n": number, "text": "ä\n"})
    assert [line["n"] for line in read_log(path)] == [0, 1, 2]
    assert [line["text"] for line in read_log(path)] == ["ä\n"] * 3


def test_the_oldest_are_dropped_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FILE_MAX_BYTES", 100)
    path = tmp_path / "x.log"
    for number in range(100):
        Log(path, no_trouble).write({"n": number})
    kept = [line["n"] for line in read_log(path)]
    assert kept == list(range(kept[0], 100))
    assert 0 < kept[0] < 99
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 300


def test_a_line_that_a_death_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    writer = Log(path, no_trouble)
    writer.write({"n": 1})
    with path.open("a") as file:
        file.write('5\n{"n": 2, "te')
    writer.write({"n": 3})
    writer.write({"n": 4})
    assert [line["n"] for line in read_log(path)] == [1, 4]


def test_a_log_that_can_not_be_written_is_told_once_and_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    troubles: list[str] = []
    writer = Log(tmp_path / "file" / "x.log", troubles.append)
    writer.write({"n": 1})
    writer.write({"n": 2})
    assert len(troubles) == 1
    assert "the log has gaps" in troubles[0]


def test_without_a_place_nothing_is_kept() -> None:
    Log(None, no_trouble).write({"n": 1})
