"""Every scenario plays as its transcript says, line by line. `pytest tests/scenarios --rewrite` writes them anew."""

import difflib
from pathlib import Path

import pytest

from . import transcript

FILES = sorted(Path(__file__).parent.glob("*.txt"))


def scenario(path: Path) -> object:
    marks = [pytest.mark.rule(rule) for rule in transcript.rules_of(path.read_text())]
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [scenario(path) for path in FILES])
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    replayed, unseen = transcript.replay(text)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(replayed)
    else:
        difference = difflib.unified_diff(text.splitlines(), replayed.splitlines(), "written", "played", lineterm="")
        assert replayed == text, "\n".join(difference)
    assert unseen == set(), "the transcript claims rules that no outcome names"
