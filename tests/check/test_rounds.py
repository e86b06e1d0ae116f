"""The fuzzer's part of the main job."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keepkernel.fuzz import rounds, verify
from keepkernel.fuzz.verify import Search

DOCUMENT = {
    "troubles": [], "stopped": False, "failures": [], "examples": {"kernel": 3}, "steps": 70, "rules": {"RUN-001": 2},
    "points": {}, "seconds": 1.5, "files": [],
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


def test_a_failure_is_a_violation_that_is_kept_to_be_replayed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(verify, "searched", lambda plan: {s: searched(s) for s in plan})
    monkeypatch.chdir(tmp_path)
    written = [tmp_path / "kernel-law-1.json", tmp_path / "kernel-law-1_test.py"]
    for file in written:
        file.write_text(file.name)
    saying(monkeypatch, json.dumps({**DOCUMENT, "failures": [{}], "files": [str(file) for file in written]}), 1)
    assert verify.verify(plan=(Search("consumer", 1),), fuzz_seconds=1) == 1
    kept = Path(".hypothesis", "keepkernel", "failures")
    assert f"keepkernel replay {kept / 'kernel-law-1.json'} tells how" in " ".join(capfd.readouterr().out.split())
    assert [(kept / file.name).read_text() for file in written] == [file.name for file in written]


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
