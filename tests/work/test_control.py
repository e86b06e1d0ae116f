"""The socket of a host: for its owner alone, one at a time, and patient with whatever comes in."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepkernel.adapters import control
from keepkernel.adapters.control import Busy, Control, ControlError, NoHost, ask, private_folder, socket_of


def echo(request: dict[str, Any]) -> dict[str, Any]:
    return {"heard": request}


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "s.sock"
    with Control(path) as opened:
        opened.listen(echo)
        yield path


def test_a_question_is_answered(listening: Path) -> None:
    assert ask(listening, {"do": "x", "text": "ä\n\0"}) == {"heard": {"do": "x", "text": "ä\n\0"}}


def test_only_the_owner_may_connect(listening: Path) -> None:
    assert stat.S_IMODE(listening.stat().st_mode) == 0o600


def test_another_user_is_not_answered(listening: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "caller", lambda connection: os.getuid() + 1)
    with pytest.raises(ControlError):
        ask(listening, {})


def test_the_caller_is_who_the_system_says(listening: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert control.caller(ours) == os.getuid()


def test_one_host_at_a_time(listening: Path) -> None:
    with pytest.raises(Busy, match="a host is at work"):
        Control(listening)


def test_what_a_dead_host_left_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NoHost):
        ask(path, {})
    with Control(path) as opened:
        opened.listen(echo)
        assert ask(path, {}) == {"heard": {}}
    assert not path.exists()
    with pytest.raises(NoHost):
        ask(path, {})


@pytest.mark.parametrize(
    ("said", "told"), [(b"{\n", "not a line of JSON"), (b"[]\n", "a JSON object"), (b"\xff\n", "JSON")]
)
def test_nonsense_is_answered_with_an_error(listening: Path, said: bytes, told: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(listening))
        connection.sendall(said)
        assert told.encode() in connection.recv(1_000)


def test_a_caller_that_hangs_up_disturbs_nobody(listening: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(listening))
        connection.sendall(b'{"do"')
    assert ask(listening, {}) == {"heard": {}}


@pytest.fixture
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short enough for the address of a socket, wherever pytest puts its own folders."""
    with tempfile.TemporaryDirectory(prefix="keep-") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)


def test_a_store_with_a_long_path_has_a_socket_too(tmp_path: Path, runtime_folder: Path) -> None:
    deep = tmp_path / ("d" * 120) / "store.db"
    path = socket_of(deep)
    assert path.parent == runtime_folder / "keepkernel"
    assert path == socket_of(deep)
    assert path != socket_of(deep.with_name("other.db"))
    with Control(path) as opened:
        opened.listen(echo)
        assert ask(path, {}) == {"heard": {}}


def test_a_folder_that_others_may_open_is_not_used(runtime_folder: Path) -> None:
    (runtime_folder / "keepkernel").mkdir()
    (runtime_folder / "keepkernel").chmod(0o755)
    with pytest.raises(ControlError, match="open to others"):
        private_folder()


def test_a_place_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ControlError, match="name another place"):
        Control(tmp_path / "file" / "s.sock")
