"""The benchmark beside others says what is missing, and fails when the number is not met."""

import sys

import pytest

from bench import peers as bench


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["peers"])
    assert bench.main() == 2
    assert "keepkernel[peers]" in capsys.readouterr().err


@pytest.mark.parametrize(("ratio", "code"), [(3.0, 0), (2.9, 1)])
def test_the_exit_code_says_whether_the_number_is_met(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: name)
    monkeypatch.setattr(bench, "measure", lambda *given: bench.Result(300, 90.0, 30.0, ratio))
    monkeypatch.setattr(sys, "argv", ["peers"])
    assert bench.main() == code
    assert f"{ratio} times as fast" in capsys.readouterr().out
