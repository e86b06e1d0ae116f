"""The benchmark of `step` does the work that it says, and fails when the kernel is too slow."""

import json
import sys

import pytest

from bench import step as bench


def test_both_sides_do_the_whole_run() -> None:
    state, seconds = bench.time_steps(bench.prepared_workflow(), 0, 2)
    assert len(seconds) == len(bench.time_machines(2)) == 2
    assert [event.status for event in state.events] == ["consumed"]
    assert state.session is not None
    assert state.session.commits == 2


@pytest.mark.parametrize(("ratio", "code"), [(9.99, 1), (10.0, 0)])
def test_fails_below_the_wanted_ratio(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = bench.Result(9, 11, 50.0, 50.0 * ratio, ratio, 10_000, 50.0, 50.0, 1.0)
    monkeypatch.setattr(bench, "measure", lambda: result)
    monkeypatch.setattr(sys, "argv", ["step", "--json"])
    assert bench.main() == code
    assert json.loads(capsys.readouterr().out) == result._asdict()


def test_different_work_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="came to"):
        bench.require_end("committed", "committed", "reserved", "applied")
