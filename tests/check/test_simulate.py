"""Random walks: the same seed walks the same way, and what is broken is found."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner, Result

from keepkernel.cli import app
from keepkernel.fuzz.check import explore
from keepkernel.fuzz.progress import Watch
from keepkernel.fuzz.setups import SETUPS, setup
from keepkernel.fuzz.simulate import STEPS, simulate, walk
from keepkernel.fuzz.system import Caller, Label, Model
from keepkernel.spec.invariants import INVARIANTS

READING = "phase-before-ledger"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def told(model: Model, seed: int, number: int) -> list[Label]:
    return [model.labels[label] for label in walk(model, seed, number).labels]


@pytest.mark.parametrize("caller", ["honest", "adversary"])
@pytest.mark.parametrize("name", SETUPS)
def test_a_walk_is_made_of_its_seed_and_its_number(name: str, caller: Caller) -> None:
    """Also when others were walked before it: a model learns, but that must not show."""
    used = Model(setup(name), caller)
    first = [told(used, 5, number) for number in range(6)]
    assert told(Model(setup(name), caller), 5, 4) == first[4]
    assert [told(used, 5, number) for number in range(6)] == first
    assert [told(used, 6, number) for number in range(6)] != first
    assert len({str(one) for one in first}) > 1


def test_a_walk_is_the_same_in_another_process() -> None:
    command = [sys.executable, "-m", "keepkernel", "simulate", "--seed", "7", "--walk", "3"]
    texts = {
        subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": value}
        ).stdout
        for value in ("1", "2")
    }
    assert len(texts) == 1
    assert texts.pop().startswith("walk 3 of seed 7 breaks nothing in ")


@pytest.mark.parametrize(
    ("name", "caller"), [("consumer", "honest"), ("no-mutate", "honest"), ("no-mutate", "adversary")]
)
def test_walks_stay_in_the_space_that_the_search_finds(name: str, caller: Caller) -> None:
    from keepkernel.fuzz import explorer

    model = Model(setup(name), caller)
    space = set(explorer.explore(model).states)
    for number in range(40):
        one = walk(model, 1, number)
        assert not one.broken
        assert len(one.labels) <= STEPS
        assert {model.folded(code) for code in one.codes} <= space


def test_what_was_met_is_counted() -> None:
    done = simulate(setup("no-mutate"), seed=1, walks=60)
    model = Model(setup("no-mutate"))
    walks = [walk(model, 1, number) for number in range(60)]
    assert (done.walks, done.steps) == (60, sum(len(one.labels) for one in walks))
    assert done.states == len({model.folded(code) for one in walks for code in one.codes})
    assert done.known == explore("no-mutate").states
    assert 0 < done.states < done.known


def test_nobody_knows_how_many_states_other_features_have() -> None:
    assert simulate(setup("no-mutate", features=frozenset({"crash"})), walks=1).known == 0


def test_a_reading_that_repeats_mutations_is_found() -> None:
    done = simulate(setup("consumer"), reading=READING, seed=0, walks=200)
    assert done.counterexample is not None
    assert done.counterexample.violation.invariant in INVARIANTS
    assert done.broken_walk == done.walks - 1
    assert done.counterexample.length >= explore("consumer", reading=READING, stop_at_first=True).depth


def test_a_second_application_is_found() -> None:
    """With the steps unchecked, the harm itself shows: an input is applied twice."""
    from keepkernel.fuzz import system
    from keepkernel.spec.invariants import ON_OUTSIDE

    def only_outside(kinds: object, subject: object) -> tuple[object, ...]:
        return violations(kinds, subject) if kinds is ON_OUTSIDE else ()

    violations = system.violations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system, "violations", only_outside)
        done = simulate(setup("consumer"), reading=READING, seed=0, walks=400)
    assert done.counterexample is not None
    assert max(done.counterexample.moments[-1].world.landed) == 2


def test_time_ends_it_between_two_walks() -> None:
    done = simulate(setup("main"), seed=2, seconds=0.05)
    again = simulate(setup("main"), seed=2, walks=done.walks)
    assert done._replace(seconds=0) == again._replace(seconds=0)


def test_an_interrupt_ends_it_after_its_walk() -> None:
    with Watch() as watch:
        signal.raise_signal(signal.SIGINT)
        assert simulate(setup("main"), walks=1000, watch=watch).walks == 0


def test_a_simulation_has_an_end() -> None:
    with pytest.raises(ValueError, match="how many"):
        simulate(setup("main"))


# --- the command -------------------------------------------------------------------------------------


def test_the_command_tells_what_it_met_and_how_to_repeat_it() -> None:
    done = run("no-mutate", "--seed", "4", "--walks", "20")
    assert done.exit_code == 0
    again = "keepkernel simulate no-mutate --seed 4 --walks 20"
    lines = done.stdout.splitlines()
    assert lines[0] == "no-mutate, 1 event, honest: nothing is broken"
    assert lines[1].startswith("  20 walks, ")
    assert " of 984 known ones (" in lines[2]
    assert lines[3] == f"  seed 4; the same walks again: {again}"


def test_the_command_shows_the_broken_walk_and_ends_with_1() -> None:
    arguments = ("consumer", "--reading", READING, "--events", "1")
    done = run(*arguments, "--walks", "200")
    assert done.exit_code == 1
    assert f"keepkernel simulate consumer --events 1 --reading {READING} --seed 0 --walk " in done.stdout
    number = done.stdout.partition(" --walk ")[2].split()[0]
    alone = run(*arguments, "--walk", number)
    assert alone.exit_code == 1
    assert alone.stdout in done.stdout
    assert "is broken after" in alone.stdout


def test_json() -> None:
    done = json.loads(run("consumer", "--reading", READING, "--walks", "200", "--json").stdout)
    assert done["verdict"] == "violated"
    assert done["violations"][0]["length"] == len(done["violations"][0]["trace"])
    whole = json.loads(run("consumer", "--walks", "2", "--json").stdout)
    assert (whole["verdict"], whole["violations"], whole["walks"]) == ("not decided", [], 2)


@pytest.mark.parametrize("wrong", [("nowhere",), ("--features", "magic"), ("--reading", "aloud"), ("--seconds", "0")])
def test_wrong_usage(wrong: tuple[str, ...]) -> None:
    assert run(*wrong).exit_code == 2
