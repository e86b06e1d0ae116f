"""A counterexample is told so that it can be followed, in words and as a diagram."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from keepkernel.cli import app
from keepkernel.fuzz.check import Counterexample, explore, explore_reading, shortest
from keepkernel.fuzz.mermaid import to_mermaid
from keepkernel.fuzz.report import scenes, story, told
from keepkernel.fuzz.setups import setup
from keepkernel.kernel.types import Rejected
from keepkernel.spec.readings import READINGS

STORY = """\
INV-006 (EVENT-003) is broken after 16 steps:
   1  host: starts
   2  host: has recovered
   3  host: schedules (start_session)
        session: new: open
   4  host: schedules (create_run)
        handler file: dirty → clean
        run r1: new: pending, of file
   5  host: goes on (begin)
        run r1: pending → preparing
   6  host: prepare of file takes m1 (prepared)
        run r1: preparing → prepared, holds m1
        event m1: pending → reserved by r1
"""

LASSO = """\
sequenceDiagram
    participant user as user
    participant host as host
    participant kernel as kernel
    participant target as target
    Note over host: starts
    Note over host: has recovered
    loop for ever
    host->>kernel: schedules (start_session)
    Note over kernel: session: new: open
"""


def example_of(reading: str) -> Counterexample:
    return shortest(explore_reading(reading))


def test_a_story_is_numbered_steps_with_what_they_change() -> None:
    text = "\n".join(story(example_of("bug-nothing-transferred")))
    assert text.startswith(STORY)
    assert "        run r1: mutating → mutated, outcome success\n" in text
    assert "        outside: input 1 is applied\n" in text


def test_every_run_has_a_name_of_its_own() -> None:
    text = "\n".join(story(example_of("bug-nothing-transferred")))
    assert "        run r2: new: emitting, of file, retry of r1, outcome success, holds m1\n" in text
    assert text.endswith("\n        event mail/m1 is reserved by r1, which is not live")


def test_a_run_that_is_over_keeps_its_name() -> None:
    text = "\n".join(story(example_of("reject-leaves-inputs")))
    assert "        run r1: paused:approval (over)\n" in text
    assert "        error: new: approval, request, of run r1, asks for sheets.append for m1\n" in text


def test_the_rows_of_a_step_that_breaks_are_those_that_the_kernel_gave() -> None:
    text = "\n".join(story(example_of("bug-dead-run-holds")))
    assert "        run r2: new: pending, of file\n" in text
    assert text.endswith("\n        run r2 started before the pending retry r1")


def test_a_rejected_step_says_why() -> None:
    example = example_of("reject-leaves-inputs")
    rejected = [n for n, moment in enumerate(example.moments) if isinstance(moment.outcome, Rejected)]
    words = [scene.words for scene in scenes(example)]
    assert [words[n] for n in rejected] == ["host: goes on (send_mutation, rejected: not_approved)"]


def test_a_loop_is_marked_where_it_begins_and_ends() -> None:
    lines = list(story(example_of("reject-leaves-inputs")))
    begin = lines.index("      from here on it goes round for ever:")
    assert lines[begin - 1 : begin + 2 : 2] == ["   2  host: has recovered", "   3  host: schedules (start_session)"]
    assert "      and so on from step 3" in lines


def test_a_dead_end_is_marked() -> None:
    assert "      here it stands still for ever" in story(example_of("never-abandoned"))


@pytest.mark.parametrize("reading", READINGS)
def test_no_row_is_told_as_it_is_stored(reading: str) -> None:
    text = "\n".join(story(example_of(reading)))
    assert not re.search(r"[{}]|None|\br0\b", text)
    assert f"breaks {READINGS[reading].breaks} (" in text


def test_what_else_a_step_breaks_is_named() -> None:
    assert "\nalso broken after 12 steps: INV-015 (MUT-001): " in told(explore_reading("phase-before-ledger"))


def test_an_adversary_is_named_and_nothing_is_said_of_rest() -> None:
    text = told(explore(setup("no-mutate", features=frozenset({"pause"})), caller="adversary"))
    assert text.startswith("no-mutate, 1 event, an adversary who sends any command at any time: holds\n")
    assert "Not bounded: commands, faults" in text
    assert "rest is reachable" not in text


def test_limits_are_named_when_they_are_explored() -> None:
    text = told(explore(setup("no-mutate", features=frozenset({"counts", "budget"}))))
    assert "1 reconcile attempt, 1 transient retry, 2 logic failures, 2 runs in a session" in text.replace(
        "\n    ", " "
    )


# --- diagrams ----------------------------------------------------------------------------------------


def test_a_lasso_as_a_diagram() -> None:
    text = to_mermaid(example_of("reject-leaves-inputs"))
    assert text.startswith(LASSO)
    assert "    kernel--xhost: rejected, not_approved\n" in text
    assert "    user->>kernel: rejects (reject)\n" in text
    assert text.count("\n    end\n") == 1


def test_calls_and_their_answers_as_a_diagram() -> None:
    text = to_mermaid(example_of("failed-at-any-time"))
    assert (
        "    host->>target: sheets.append\n    target--xhost: gets no answer\n    host->>kernel: lose_track\n" in text
    )
    assert text.splitlines()[-1].startswith("    Note over kernel: breaks INV-020 (MUT-009)<br/>")
    landed = to_mermaid(example_of("bug-dead-run-holds"))
    assert "    Note over target: the call lands\n    Note over target: outside: input 1 is applied\n" in landed
    assert "    target-->>host: the target says it is done\n    host->>kernel: apply_mutation\n" in landed


@pytest.mark.parametrize("reading", READINGS)
def test_every_line_of_a_diagram_is_a_statement(reading: str) -> None:
    first, *lines = to_mermaid(example_of(reading)).splitlines()
    assert first == "sequenceDiagram"
    actors = [re.fullmatch(r"    participant (\w+) as [\w ]+", line) for line in lines]
    names = "|".join(found[1] for found in actors if found)
    arrow, text = r"(->>|-->>|--x)", r"[^;#]+"
    statement = rf"    (participant .*|({names}){arrow}({names}): {text}|Note over ({names}): {text}|loop for ever|end)"
    assert [line for line in lines if not re.fullmatch(statement, line)] == []
    assert lines.count("    loop for ever") == lines.count("    end")


def test_check_writes_the_diagram(tmp_path: Path) -> None:
    path = tmp_path / "trace.mmd"
    assert CliRunner().invoke(app, ["check", "--reading", "no-gate", "--mermaid", str(path)]).exit_code == 1
    assert path.read_text(encoding="utf-8") == to_mermaid(example_of("no-gate"))
