"""Campaigns: processes, corpus, exit codes, what they print, and the page."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from keepkernel.cli import app
from keepkernel.fuzz import campaign, faults
from keepkernel.fuzz.campaign import Campaign, Wanted, fuzz
from keepkernel.fuzz.machines.levels import LEVELS
from keepkernel.kernel import events
from keepkernel.kernel.types import State
from keepkernel.spec.variants import Swap, swapped


def keeps_all(state: State) -> State:
    """Nothing is released."""
    return state


@contextmanager
def installed() -> Iterator[None]:
    with swapped(Swap(events.release, keeps_all)):
        yield


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> str:
    """A fault for these tests alone; a seeded one must not be known here."""
    monkeypatch.setattr(faults, "CATALOGUE", {"of-this-test": SimpleNamespace(installed=installed, level="kernel")})
    return "of-this-test"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "PROFILES", {"ci": campaign.Profile(2, 60, 1)})
    monkeypatch.setattr(campaign, "CHECKED_SETUPS", ("consumer",))


def test_nothing_found(tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Wanted(seconds=3, workers=2, corpus=tmp_path)
    assert fuzz(wanted, as_json_text=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "not decided"
    assert document["failures"] == document["troubles"] == []
    assert all(document["examples"][level] > 0 for level in LEVELS)
    assert document["points"]
    before = campaign.remembered(tmp_path)
    assert before["lives"]["0"] > 0
    assert len(before["states"]) == document["states"]
    assert Campaign(wanted).known == {*before["states"]}


def test_something_found(tmp_path: Path, quick: None, broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    wanted = Wanted("kernel", seconds=60, workers=1, seed=1, corpus=tmp_path / "corpus", fault=broken)
    assert fuzz(wanted, html=page) == 1
    said = capsys.readouterr().out
    assert "something is broken" in said
    assert "INV-006" in said
    assert "the checker needs" in said
    files = sorted(path.name.partition("-")[0] for path in (tmp_path / "corpus" / "failures").iterdir())
    assert files == ["kernel", "kernel", "kernel"]
    assert any(path.name.endswith(".itf.json") for path in (tmp_path / "corpus" / "failures").iterdir())
    text = page.read_text()
    assert "<polyline" in text
    assert "breaks INV-006" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    balance(text)


def balance(text: str) -> None:
    """Every tag that must be closed is."""
    open_tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag in ("svg", "table", "div", "h1", "h2", "pre", "text", "style"):
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag in ("svg", "table", "div", "h1", "h2", "pre", "text", "style"):
                assert open_tags.pop() == tag

    Reader().feed(text)
    assert open_tags == []


def test_what_was_found_comes_first_the_next_time(tmp_path: Path, quick: None, broken: str) -> None:
    wanted = Wanted("kernel", seconds=60, workers=1, corpus=tmp_path, fault=broken)
    assert fuzz(wanted) == 1
    again = Campaign(wanted)
    again.run(lambda campaign: None)
    (found,) = again.found
    assert found.trace.failure.what in ("INV-006", "LAW")
    assert sum(again.examples.values()) < 30, "no scout had to look for it"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--fault", "nobody"], "there is no fault 'nobody'"),
        (["--profile", "nobody"], "there is no profile"),
        (["--store", "moon:"], "there is no store"),
        (["--level", "kernel", "--store", "sqlite:"], "the kernel machine has no other store"),
        (["--profile", "crosshair", "--level", "host"], "is for --level kernel"),
        (["--fault", "drops-one-write", "--level", "kernel"], "drops-one-write is attacked with --level store"),
        (["--corpus", "/dev/null/corpus"], "--corpus /dev/null/corpus can not be made: "),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["fuzz", "--corpus", str(tmp_path), *arguments])
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_corpus_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text("[1]")
    done = CliRunner().invoke(app, ["fuzz", "--corpus", str(tmp_path), "--seconds", "1"])
    assert done.exit_code == 2
    assert "was not written by keepkernel fuzz" in done.stderr


def test_a_process_that_fails_is_no_success(tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*anything: object) -> None:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(campaign.Worker, "work", fails)
    assert fuzz(Wanted("kernel", seconds=1, workers=1, corpus=tmp_path)) == 3
