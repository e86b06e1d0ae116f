"""The score: what is found is told, what is missed is named, and a detector that cries wolf counts for nothing."""

import json
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from keepkernel.cli import app
from keepkernel.fuzz import score
from keepkernel.fuzz.faults import CATALOGUE, LEVELS, Level
from keepkernel.fuzz.incidents import INCIDENTS, swept_by_incidents
from keepkernel.fuzz.lives import WAY
from keepkernel.fuzz.progress import Watch
from keepkernel.fuzz.score import Attempt, Detector, Task, attempts, by_tests
from keepkernel.fuzz.trials import Ground
from keepkernel.fuzz.workflows import WORKFLOWS
from keepkernel.kernel import events


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["score", *words])


def with_detector(monkeypatch: pytest.MonkeyPatch, name: str, search: score.Callable[[Level, float], str]) -> None:
    monkeypatch.setitem(score.DETECTORS, name, Detector(name, "", search, LEVELS))


def one(detector: str, fault: str = "", seconds: float = 5.0) -> Attempt:
    with Watch() as watch:
        [attempt] = attempts(deque([Task(fault, detector, "kernel", seconds)]), watch)
    return attempt


# --- the command -------------------------------------------------------------------------------------


def test_what_is_found_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "SEARCHES", (("no-mutate", "honest"),))
    result = run("--only", "lost-release", "--detector", "check", "--json")
    assert result.exit_code == 0
    told = json.loads(result.output)
    assert (told["verdict"], told["score"], told["missed"], told["false_alarms"]) == ("complete", 1.0, [], [])
    [row] = told["faults"]
    assert (row["fault"], row["level"], row["found_by"]) == ("lost-release", "kernel", "check")
    assert row["what"] == "LAW after 8 steps (no-mutate, honest)"


def test_what_is_missed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "SEARCHES", (("no-mutate", "honest"),))
    result = run("--only", "result-dropped", "--detector", "check")
    assert result.exit_code == 1
    assert "Not found: result-dropped." in result.output
    assert "0%: 0 of 1 fault found, incomplete" in result.output


def test_a_detector_that_finds_something_where_nothing_is_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_detector(monkeypatch, "wolf", lambda level, until: "a wolf")
    result = run("--only", "lost-release", "--detector", "wolf")
    assert result.exit_code == 1
    assert "wolf finds something where nothing is wrong: a wolf" in result.output
    assert result.output.endswith("100%: 1 of 1 fault found, void\n")


@pytest.mark.parametrize(("words", "asked"), [((), {"blind", "sharp"}), (("--matrix",), {"blind", "sharp", "keen"})])
def test_a_fault_that_is_found_is_asked_of_nobody_else_unless_all_are_wanted(
    words: tuple[str, ...], asked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def release_is_lost(seconds: float) -> Callable[[Level, float], str]:
        def search(level: Level, until: float) -> str:
            time.sleep(seconds)  # So that the next one is not asked beside it by chance.
            return "lost" if events.release is not sound else ""

        return search

    sound = events.release
    for known in list(score.DETECTORS):
        monkeypatch.delitem(score.DETECTORS, known)
    few = {name: CATALOGUE[name] for name in ("lost-release", "result-dropped", "pause-is-ignored")}
    monkeypatch.setattr(score, "CATALOGUE", few)
    with_detector(monkeypatch, "blind", lambda level, until: "")
    with_detector(monkeypatch, "sharp", release_is_lost(0.5))
    with_detector(monkeypatch, "keen", release_is_lost(3.0))
    told = json.loads(run("--only", "kernel", *words, "--json").output)
    [row] = [row for row in told["faults"] if row["fault"] == "lost-release"]
    assert (row["found_by"], row["what"], row["detectors"].keys()) == ("sharp", "lost", asked)
    assert told["false_alarms"] == []


@pytest.mark.parametrize(
    "words",
    [("--only", "nothing"), ("--detector", "nobody"), ("--detector", "check", "--only", "newest-first")],
    ids=" ".join,
)
def test_wrong_usage(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


def test_everything_is_listed() -> None:
    listed = run("--list").output
    assert all(f"  {name} " in listed for name in (*score.DETECTORS, *CATALOGUE))


def test_every_level_has_detectors_that_are_no_fuzzers() -> None:
    for level in LEVELS:
        assert {d.name for d in score.DETECTORS.values() if level in d.levels} > {"fuzz"}


# --- attempts ----------------------------------------------------------------------------------------


def test_a_detector_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(level: Level, until: float) -> str:
        time.sleep(600)
        return "too late"

    with_detector(monkeypatch, "sleeper", sleep)
    monkeypatch.setattr(score, "GRACE", 0.1)
    assert one("sleeper", seconds=0.1) == Attempt("", "sleeper", "kernel", "", 0.1)


def test_an_error_and_a_death_are_found_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with_detector(monkeypatch, "broken", lambda level, until: str(1 // 0))
    assert one("broken").found.startswith("fails: ZeroDivisionError")
    with_detector(monkeypatch, "dead", lambda level, until: score.os._exit(3))
    assert one("dead").found == "its process died"


def test_tests_are_run_with_the_fault_in_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    test = tmp_path / "test_release.py"
    test.write_text(
        "from keepkernel.kernel import events\ndef test_it():\n    assert events.release.__name__ == 'release'\n"
    )
    with_detector(monkeypatch, "tests", by_tests(str(test)))
    assert one("tests", seconds=60).found == ""
    assert one("tests", "lost-release", seconds=60).found.endswith("test_release.py::test_it")
    with_detector(monkeypatch, "none", by_tests(str(tmp_path / "nothing.py")))
    assert one("none", seconds=60).found.startswith("the tests could not be run")


# --- incidents ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["success", "silent", "chain"])
def test_a_sound_host_survives_every_incident(name: str, tmp_path: Path) -> None:
    assert list(swept_by_incidents(WORKFLOWS[name], Ground("memory", tmp_path, {}, WAY))) == []


@pytest.mark.parametrize(
    ("fault", "incident"),
    [
        ("sends-at-any-time", "stalls"),
        ("conflict-overcome", "a person clicks"),
        ("no-lease-check", "another host takes over"),
        ("lost-answer-ignored", "the connection breaks before a commit"),
        ("lost-answer-repeated", "the connection breaks after a commit"),
    ],
)
def test_every_incident_shows_what_only_it_can_show(
    fault: str, incident: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in INCIDENTS.keys() - {incident}:
        monkeypatch.delitem(INCIDENTS, other)
    where = Ground("memory", tmp_path, {}, WAY)
    with CATALOGUE[fault].installed():
        assert any(failure for name in ("success", "repair") for failure in swept_by_incidents(WORKFLOWS[name], where))


# --- the whole ---------------------------------------------------------------------------------------


@pytest.mark.campaign
def test_every_fault_is_found() -> None:
    result = run("--json")
    told = json.loads(result.output)
    assert (told["verdict"], told["missed"], told["false_alarms"]) == ("complete", [], [])
    assert result.exit_code == 0
