"""The `files` connector on a real folder."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from connectors.effects import KEY, Heard, alone, read, reconcile, send

from keepkernel.adapters.connectors import Call, Connections
from keepkernel.adapters.connectors.files import Files, marked
from keepkernel.adapters.points import SimulatedCrash
from keepkernel.kernel.respond import DidNotHappen, Failed, Happened, Unknown

PARAMS = {"name": "report.txt", "text": "one\r\ntwö\n"}
NAME = marked("report.txt", Call(KEY))


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.fixture
def files(tmp_path: Path) -> Connections:
    return alone(Files(folder=tmp_path), tell=Heard())


def test_a_file_is_written_exactly_and_found_again(files: Connections, tmp_path: Path) -> None:
    assert send(files, "it.write", PARAMS) == Happened(json.dumps({"name": NAME}, separators=(",", ":")))
    assert (tmp_path / NAME).read_bytes() == "one\r\ntwö\n".encode()
    assert reconcile(files, "it.write", PARAMS) == send_result()
    assert visible(tmp_path) == [NAME]


def send_result() -> Happened:
    return Happened(f'{{"name":"{NAME}"}}')


def test_it_happened_even_if_somebody_took_the_file_away(files: Connections, tmp_path: Path) -> None:
    send(files, "it.write", PARAMS)
    (tmp_path / NAME).unlink()
    assert reconcile(files, "it.write", PARAMS) == send_result()
    assert visible(tmp_path) == []


def test_a_key_writes_once(files: Connections, tmp_path: Path) -> None:
    send(files, "it.write", PARAMS)
    (tmp_path / NAME).unlink()
    answer = send(files, "it.write", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "timeout"
    assert visible(tmp_path) == []


def test_a_file_that_is_there_was_written_whatever_became_of_its_entry(files: Connections, tmp_path: Path) -> None:
    assert send(files, "it.write", PARAMS) == send_result()
    [calls] = [path for path in tmp_path.rglob(".keepkernel") if path.is_dir()]
    shutil.rmtree(calls)
    assert reconcile(files, "it.write", PARAMS) == send_result()


def test_a_void_call_can_not_land(files: Connections, tmp_path: Path) -> None:
    assert reconcile(files, "it.write", PARAMS) == DidNotHappen(voided=True)
    assert isinstance(send(files, "it.write", PARAMS), Failed)
    assert reconcile(files, "it.write", PARAMS) == DidNotHappen(voided=True)
    assert visible(tmp_path) == []


POINTS = ["files: prepared", "call: leaves", "files: visible"]


def test_the_points_are_all_that_a_write_passes(tmp_path: Path) -> None:
    passed: list[str] = []
    send(alone(Files(folder=tmp_path), reach=passed.append), "it.write", PARAMS)
    assert passed == POINTS


def at(point: str, act: Callable[[], None]) -> Callable[[str], None]:
    return lambda passed: act() if passed == point else None


@pytest.mark.parametrize("point", POINTS)
def test_a_death_anywhere_is_told_rightly(tmp_path: Path, point: str) -> None:
    def die() -> None:
        raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        send(alone(Files(folder=tmp_path), reach=at(point, die)), "it.write", PARAMS)
    landed = visible(tmp_path) == [NAME]
    expected = send_result() if landed else DidNotHappen(voided=True)
    assert reconcile(alone(Files(folder=tmp_path)), "it.write", PARAMS) == expected
    assert visible(tmp_path) == ([NAME] if landed else [])


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_that_is_overtaken_by_a_look_obeys_it(tmp_path: Path, point: str) -> None:
    """The writer stands still, somebody looks, and the writer goes on: what was said stays true."""
    said = []
    others = alone(Files(folder=tmp_path))
    slow = alone(
        Files(folder=tmp_path),
        reach=at(point, lambda: said.append(reconcile(others, "it.write", PARAMS))),
        tell=Heard(),
    )
    answer = send(slow, "it.write", PARAMS)
    if said == [DidNotHappen(voided=True)]:
        assert isinstance(answer, Failed | Unknown)
        assert visible(tmp_path) == []
    else:
        assert said == [answer] == [send_result()]
        assert visible(tmp_path) == [NAME]
    assert reconcile(others, "it.write", PARAMS) == said[0]


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a\\b", "a\nb", "é" * 150])
def test_names_that_are_no_plain_names_are_refused(files: Connections, tmp_path: Path, name: str) -> None:
    answer = send(files, "it.write", {"name": name, "text": ""})
    assert isinstance(answer, Failed)
    assert answer.failure == "bad_result"
    assert "nothing was sent" in answer.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(files: Connections, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    answer = send(files, "it.write", PARAMS)
    tmp_path.chmod(0o700)
    assert isinstance(answer, Failed)
    assert answer.failure == "auth"


def test_a_folder_that_is_gone_is_transient_and_nothing_is_said_of_the_call(tmp_path: Path) -> None:
    folder = tmp_path / "share"
    folder.mkdir()
    heard = Heard()
    files = alone(Files(folder=folder), tell=heard)
    folder.rmdir()
    answer = send(files, "it.write", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "network"
    assert type(reconcile(files, "it.write", PARAMS)).__name__ == "AskAgain"
    assert "nobody could tell" in heard[0]


def test_files_are_listed_by_name_and_page_by_page(files: Connections, tmp_path: Path) -> None:
    for name in ("b", "a", "c", ".hidden", os.fsdecode(b"\xff")):
        (tmp_path / name).write_text(name, errors="surrogateescape")
    (tmp_path / "folder").mkdir()
    first = read(files, "it.list", {"limit": 2})["files"]
    assert [(file["name"], file["size"]) for file in first] == [("a", 1), ("b", 1)]
    assert [file["name"] for file in read(files, "it.list", {"after": "b"})["files"]] == ["c"]


def test_a_file_is_read(files: Connections, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("grüße")
    assert read(files, "it.read", {"name": "a.txt"}) == {"name": "a.txt", "text": "grüße"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "no file"), (b"\xff", "not a text in UTF-8"), (b"x" * 1_000_001, "more than 1000000 bytes")],
)
def test_what_can_not_be_read_is_refused(
    files: Connections, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    failed = read(files, "it.read", {"name": "a"})
    assert isinstance(failed, Failed)
    assert failed.failure == "refused"
    assert problem in failed.message
