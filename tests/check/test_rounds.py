"""The fuzzer's part of the main job."""

import json
import subprocess
from typing import Any

import pytest

from keepkernel.fuzz import rounds, verify
from keepkernel.fuzz.verify import Search

DOCUMENT = {
    "troubles": [], "stopped": False, "failures": [], "examples": {"kernel": 3}, "steps": 70, "rules": {"RUN-001": 2},
    "points": {}, "seconds": 1.5,
}  # fmt: skip


def saying(monkeypatch: pytest.MonkeyPatch, text: str, code: int = 0, errors: str = "") -> None:
    def run(command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        assert "fuzz" in command
        return subprocess.CompletedProcess(command, code, text, errors)

    monkeypatch.setattr(subprocess, "run", run)


def test_a_campaign_that_finds_nothing_leaves_the_verdict_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    (result,) = rounds.attacked(["kernel"], 1)
    assert result["verdict"] == "nothing found"
    assert result["examples"] > 0
    assert result["steps"] > result["rules"] > 20
    assert rounds.verdict([result]) == "holds"


def test_a_failure_is_a_violation_and_says_how_to_see_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "searched", lambda plan: {s: searched(s) for s in plan})
    saying(monkeypatch, json.dumps({**DOCUMENT, "failures": [{}]}), 1)
    assert verify.verify(plan=(Search("consumer", 1),), fuzz_seconds=1) == 1
    assert "keepkernel fuzz --level kernel --seconds 1 tells how" in capfd.readouterr().out


def searched(search: Search) -> dict[str, Any]:
    return {**verify.undecided(search, ""), "verdict": "holds"}


@pytest.mark.parametrize(
    ("text", "errors", "why"),
    [
        ("", "keepkernel: fuzz needs Hypothesis", "needs Hypothesis"),
        (json.dumps({**DOCUMENT, "troubles": ["a process died"]}), "", "a process died"),
        (json.dumps({**DOCUMENT, "stopped": True}), "", "interrupted"),
    ],
)
def test_a_campaign_that_did_not_end_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, text: str, errors: str, why: str
) -> None:
    saying(monkeypatch, text, 3, errors)
    results = rounds.attacked(["kernel"], 1)
    assert rounds.verdict(results) == "not decided"
    assert why in results[0]["why"]
    assert any(why in line for line in rounds.lines(results))
