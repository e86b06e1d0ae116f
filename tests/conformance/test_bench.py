"""The benchmark of the kit does the work that it says, and fails when the kit is too slow."""

import json
import sys

import pytest

from bench import conform as bench


def test_it_drives_what_it_counts() -> None:
    result = bench.measure(200)
    assert 200 <= result.commands < 1_000
    assert result.ratio > 1


@pytest.mark.parametrize(("per_s", "code"), [(999.9, 1), (1000.0, 0)])
def test_fails_below_the_wanted_rate(
    per_s: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = bench.Result(10_000, per_s, per_s, 50.0)
    monkeypatch.setattr(bench, "measure", lambda: result)
    monkeypatch.setattr(sys, "argv", ["conform", "--json"])
    assert bench.main() == code
    assert json.loads(capsys.readouterr().out) == result._asdict()
