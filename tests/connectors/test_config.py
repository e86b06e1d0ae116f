"""keepkernel.toml: what it configures, and what it says when something is wrong."""

from pathlib import Path

import pytest
from connectors.effects import read, send

from keepkernel.adapters.connectors import ConfigError, Connections
from keepkernel.adapters.connectors.config import KINDS, Reader, load
from keepkernel.kernel.respond import Failed, Happened

OWN = '''
from pydantic import SecretStr
from keepkernel.adapters.connectors import Connector, NotDone, Shape, reads

class Nothing(Shape):
    pass

class Said(Shape):
    text: str

class Echo(Connector):
    token: SecretStr
    plain: str = ""

    @reads
    def say(self, params: Nothing) -> Said:
        """Say the token, which a target might do."""
        return Said(text=f"token {self.token.get_secret_value()} {self.plain}")

    @reads
    def fail(self, params: Nothing) -> Said:
        raise NotDone("auth", f"token {self.token.get_secret_value()} is wrong")

NOT_ONE = 1
'''


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("1 / 0")
    return tmp_path / "keepkernel.toml"


def problems(place: Path, text: str) -> list[str]:
    place.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(place, {})
    assert str(place) in str(caught.value)
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return caught.value.problems


def test_paths_count_from_the_folder_of_the_file(place: Path) -> None:
    place.write_text('[connectors.out]\nkind = "files"\nfolder = "out"\n[store]\nurl = "of somebody else"\n')
    with Connections.from_config(place) as connections:
        assert set(connections.catalogue()) == {"out.write", "out.list", "out.read"}
        assert isinstance(send(connections, "out.write", {"name": "a", "text": ""}), Happened)
    assert len(list((place.parent / "out").glob("a-*"))) == 1


def test_an_empty_file_configures_nothing(place: Path) -> None:
    place.write_text("")
    assert Connections.from_config(place).catalogue() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_there(kind: str) -> None:
    assert Reader(Path(), {}).kind(kind).methods


def test_all_errors_are_told_at_once_and_each_with_a_remedy(place: Path) -> None:
    found = problems(
        place,
        """
        [connectors.publish]
        kind = "files"
        folder = "out"
        [connectors.a]
        [connectors.b]
        kind = "fles"
        [connectors.c]
        kind = "files"
        folder = "nowhere"
        foldr = "x"
        [connectors.d]
        kind = "files"
        folder = {env = "MISSING"}
        [connectors.e]
        kind = "none.py:Echo"
        [connectors.f]
        kind = "own.py:NOT_ONE"
        [connectors.g]
        kind = "no_such_module:X"
        [connectors.h]
        kind = "own.py:Echo"
        token = {file = "missing.txt"}
        [connectors.i]
        kind = "broken.py:X"
        """,
    )
    told = [
        ("connectors.publish", "take a name"),
        ("connectors.a", f"kinds are {', '.join(KINDS)}"),
        ("connectors.b", "there is no kind fles; take files"),
        ("connectors.c.folder", "does not point to a directory"),
        ("connectors.c.foldr", "settings of files are deadline_ms, folder"),
        ("connectors.d.folder", "MISSING is not set; set it"),
        ("connectors.e", "there is no file"),
        ("connectors.f", "derive a class of this name"),
        ("connectors.g", "needs no_such_module"),
        ("connectors.h.token", "No such file"),
        ("connectors.i", "can not be loaded: ZeroDivisionError"),
    ]
    assert len(found) == len(told)
    for (where, what), problem in zip(told, found, strict=True):
        assert problem.startswith(f"{where}: ")
        assert what in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a =", "not TOML"), ("connectors = 1", "write a table for each"), ("[connectors]\na = 1", "say what it is")],
)
def test_a_file_of_the_wrong_form(place: Path, text: str, problem: str) -> None:
    assert problem in problems(place, text)[0]


def test_a_file_that_is_not_there_or_is_no_text(place: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(place)
    place.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(place)


# --- secrets -------------------------------------------------------------------------------------------


SECRET = 'correct horse/"battery"'


@pytest.mark.parametrize("source", ["env", "file", "plain"])
def test_a_secret_is_used_and_never_shown(place: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    (place.parent / "token.txt").write_text(f"{SECRET}\n")
    values = {"env": '{env = "TOKEN"}', "file": '{file = "token.txt"}', "plain": f"'{SECRET}'"}
    place.write_text(f'[connectors.it]\nkind = "own.py:Echo"\ntoken = {values[source]}\n')
    connections = Connections.from_config(place)
    assert connections.connectors["it"].token.get_secret_value() == SECRET
    assert read(connections, "it.say", {}) == {"text": "token ••• "}
    failed = read(connections, "it.fail", {})
    assert failed == Failed("auth", "it.fail: token ••• is wrong", "it.fail")
    assert SECRET not in repr(connections.connectors)
    assert connections.masked(f"{SECRET} and more") == "••• and more"


def test_a_secret_in_a_plain_field_is_covered_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN", "swordfish-and-more")
    place.write_text('[connectors.it]\nkind = "own.py:Echo"\ntoken = "short"\nplain = {env = "PLAIN"}\n')
    connections = Connections.from_config(place)
    assert read(connections, "it.say", {}) == {"text": "token short •••"}
    assert connections.masked("short, swordfish-and-more") == "•••, •••"


def test_a_wrong_secret_is_not_told_with_what_is_wrong(place: Path) -> None:
    (place.parent / "secret.txt").write_text("swordfish")
    found = problems(place, '[connectors.it]\nkind = "files"\nfolder = {file = "secret.txt"}\n')
    assert not any("swordfish" in problem for problem in found)


def test_an_empty_secret_is_none(place: Path) -> None:
    (place.parent / "empty.txt").write_text("\n")
    assert "is empty" in problems(place, '[connectors.it]\nkind = "own.py:Echo"\ntoken = {file = "empty.txt"}\n')[0]
