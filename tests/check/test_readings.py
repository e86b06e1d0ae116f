"""Every literal reading is broken, by the invariant and at the length that are pinned; the chosen one is whole."""

import json
from pathlib import Path

import pytest

from keepkernel.fuzz.check import explore, explore_reading, shortest
from keepkernel.spec.readings import READINGS

PINNED = Path(__file__).with_name("readings.json")


def measured(name: str) -> list[object]:
    result = explore_reading(name)
    example = shortest(result)
    return [example.violation.invariant, example.length, result.states]


def test_every_reading_breaks_as_pinned(request: pytest.FixtureRequest) -> None:
    found = {name: measured(name) for name in READINGS}
    if request.config.getoption("--rewrite"):
        lines = (f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
        PINNED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert found == json.loads(PINNED.read_text())


@pytest.mark.parametrize("name", READINGS)
def test_the_reading_breaks_what_it_says(name: str) -> None:
    assert shortest(explore_reading(name)).violation.invariant == READINGS[name].breaks


@pytest.mark.parametrize("name", READINGS)
def test_the_chosen_reading_is_whole_where_the_other_breaks(name: str) -> None:
    reading = READINGS[name]
    broken = explore_reading(name)
    whole = explore(broken.setup, caller=reading.caller, max_states=20_000)
    assert whole.counterexamples == ()


@pytest.mark.parametrize("name", [name for name, reading in READINGS.items() if reading.needs])
def test_a_reading_that_needs_others_says_so(name: str) -> None:
    reading = READINGS[name]
    alone = explore(
        explore_reading(name).setup, caller=reading.caller, swaps=reading.swaps, max_states=20_000, stop_at_first=True
    )
    assert alone.counterexamples == ()
