"""Mutants that no test notices are argued to be no other kernel; the arguments are for these mutants and no others."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
REPORT = json.loads((ROOT / "reports" / "mutants.json").read_text())
ARGUED = json.loads((ROOT / "reports" / "survivors.json").read_text())


def test_every_survivor_has_an_argument_and_no_argument_is_stale() -> None:
    assert ARGUED["equivalent"].keys() == {survivor["name"] for survivor in REPORT["survivors"]}
    short = [name for name, argument in ARGUED["equivalent"].items() if len(argument.split()) < 6]
    assert short == []


def test_the_arguments_are_about_the_kernel_of_the_report() -> None:
    assert (ARGUED["kernel"], ARGUED["again"]) == (REPORT["kernel"], REPORT.get("again"))


def test_the_report_is_whole_and_good_enough() -> None:
    assert REPORT["complete"]
    assert not REPORT["untested"]
    assert REPORT["score"] >= 0.95
    assert REPORT["counts"]["survived"] == len(REPORT["survivors"])
    for status in REPORT["counts"]:
        assert REPORT["counts"][status] == sum(counts.get(status, 0) for counts in REPORT["modules"].values())


# --- planting ----------------------------------------------------------------------------------------


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import mutants

    yield mutants
    sys.modules.pop("mutants")


def test_the_report_for_people_says_the_same(tool: Any) -> None:
    assert (ROOT / "reports" / "mutants.md").read_text() == tool.as_markdown(REPORT)


def test_a_survivor_is_planted_where_it_stood_or_not_at_all(tool: Any) -> None:
    diff = "--- a\n+++ a\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2"
    mutant = tool.Mutant("f", "kernel/f.py", "survived", diff)
    assert tool.planted("x = 1\n\ndef f():\n    return 1\n", mutant) == "x = 1\n\ndef f():\n    return 2\n"
    assert tool.planted("def f():\n    return 3\n", mutant) is None
