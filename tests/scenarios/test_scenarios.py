"""Every scenario plays as its transcript says, line by line. `pytest tests/scenarios --rewrite` writes them anew."""

import difflib
import re
from pathlib import Path

import pytest

from keepkernel import COMMANDS, Accepted, Command, Outcome, State, step

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


def test_every_command_has_a_scenario() -> None:
    shown = {name for path in FILES for name in re.findall(r"^> (?:@\S+ )?(\w+)", path.read_text(), re.MULTILINE)}
    assert set(COMMANDS) - shown == set()


def test_every_scenario_has_a_title_and_rules() -> None:
    texts = {path.name: path.read_text() for path in FILES}
    assert [name for name, text in texts.items() if not text.startswith("# ")] == []
    assert [name for name, text in texts.items() if not transcript.rules_of(text)] == []


SHORT = """\
# A workflow is deployed and resumed
rules: WORK-001

given deploy v1 topics=mail handlers=file:consumer(mail)
> resume
  accepted WORK-001
  ~ workflow: status ready → active
"""


def test_output_is_generated_and_the_rest_is_kept() -> None:
    written_by_hand = "\n".join(line for line in SHORT.splitlines() if not line.startswith("  "))
    assert transcript.replay(written_by_hand) == (SHORT, set())


def test_wrong_output_is_replaced() -> None:
    assert transcript.replay(SHORT.replace("→ active", "→ paused")) == (SHORT, set())


def test_a_rule_that_no_outcome_names_is_found() -> None:
    # The deploy that is given names WORK-007, but it does not show it.
    _, unseen = transcript.replay(SHORT.replace("rules: WORK-001", "rules: WORK-001 WORK-007"))
    assert unseen == {"WORK-007"}


@pytest.mark.parametrize(("time_ms", "text"), [(0, "0s"), (1, "1ms"), (95_000, "1m35s"), (90_061_001, "1d1h1m1s1ms")])
def test_times_are_exact(time_ms: int, text: str) -> None:
    assert transcript.show_time(time_ms) == text
    assert transcript.read_time(text) == time_ms


@pytest.mark.parametrize(
    "line",
    [
        "given pause",
        "given @5s publish 'mail/m1 Mail' | @4s publish 'mail/m2 Mail'",
        "given deploy v2 topics=mail handlers=file",
        "> end_run r1 gone",
        "what is this?",
    ],
)
def test_a_line_that_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(transcript.BadTranscript):
        transcript.replay(SHORT.replace("> resume", f"{line}\n> resume"))


def test_a_kernel_that_breaks_an_invariant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(state: State, command: Command) -> Outcome:
        outcome = step(state, command)
        assert isinstance(outcome, Accepted)
        return outcome._replace(state=outcome.state._replace(events=()))

    monkeypatch.setattr(transcript, "step", forgetful)
    with pytest.raises(AssertionError, match="INV-"):
        transcript.replay(SHORT + "given publish 'mail/m1 Mail from alice'\n")
