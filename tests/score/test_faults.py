"""The catalogue of seeded faults: each is another system than the real one, and leaves nothing behind."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from walks import walk

from keepkernel import Command, State
from keepkernel.fuzz.check import explore
from keepkernel.fuzz.faults import CATALOGUE, LEVELS, Fault
from keepkernel.fuzz.faults.base import Edit, Patch, all_by_name, edited
from keepkernel.fuzz.machines.levels import beginning
from keepkernel.fuzz.machines.machine import Watcher, scout
from keepkernel.fuzz.system import Caller
from keepkernel.kernel import recover, respond, schedule
from keepkernel.kernel import step as kernel
from keepkernel.sandbox import engine

KERNEL = [fault for fault in CATALOGUE.values() if fault.level == "kernel"]
OTHERS = [fault for fault in CATALOGUE.values() if fault.level != "kernel"]
LIVES = 100
"""So many lives the machine lives, when the walks have not come to a difference; after that it is searched."""
SPACES: tuple[tuple[str, Caller], ...] = (("bookkeeping", "adversary"), ("consumer", "honest"))


def test_there_are_many_of_every_level() -> None:
    assert len(CATALOGUE) >= 40
    assert {level: sum(fault.level == level for fault in CATALOGUE.values()) >= 8 for level in LEVELS} == dict.fromkeys(
        LEVELS, True
    )
    assert len({fault.title for fault in CATALOGUE.values()}) == len(CATALOGUE)
    assert all(name == fault.name and fault.why for name, fault in CATALOGUE.items())


def test_two_faults_of_one_name_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="one name"):
        all_by_name(tuple(KERNEL), tuple(KERNEL[:1]))


# --- the kernel's ------------------------------------------------------------------------------------


def answers(state: State, command: Command) -> list[Any]:
    """All that the kernel says about a state and a command."""
    now = command.now
    asked: tuple[Callable[[], Any], ...] = (
        lambda: kernel.step(state, command),
        lambda: recover.recover(state, now),
        lambda: schedule.schedule(state, now, "fresh"),
        lambda: schedule.upkeep(state, now),
        lambda: respond.advance(state, now),
    )
    return [said(ask) for ask in asked]


def said(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return repr(error)


@pytest.fixture(scope="module")
def moments() -> list[tuple[State, Command, list[Any]]]:
    tried = [one for seed in range(25) for one in walk(Random(seed), 150)]
    return [(state, command, answers(state, command)) for state, command, _ in tried]


@pytest.mark.parametrize("fault", KERNEL, ids=lambda fault: fault.name)
def test_a_fault_of_the_kernel_is_another_kernel(fault: Fault, moments: list[tuple[State, Command, list[Any]]]) -> None:
    with fault.installed():
        if any(answers(state, command) != real for state, command, real in moments):
            return
        if scout(beginning("kernel"), Watcher(), (f"faults/{n}" for n in range(LIVES))):
            return
        assert any(explore(name, caller=caller, stop_at_first=True).counterexamples for name, caller in SPACES)


def test_afterwards_it_is_the_kernel_again(moments: list[tuple[State, Command, list[Any]]]) -> None:
    for fault in KERNEL:
        with fault.installed():
            pass
    assert all(answers(state, command) == real for state, command, real in moments[::7])


# --- the others' -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", OTHERS, ids=lambda fault: fault.name)
def test_another_fault_replaces_what_is_there_and_puts_it_back(fault: Fault) -> None:
    assert fault.swaps or fault.shared or fault.patches or fault.edits
    before = [vars(patch.owner)[patch.name] for patch in fault.patches]
    assert all(patch.replacement is not real for patch, real in zip(fault.patches, before, strict=True))
    with fault.installed():
        assert [vars(patch.owner)[patch.name] for patch in fault.patches] == [p.replacement for p in fault.patches]
    assert [vars(patch.owner)[patch.name] for patch in fault.patches] == before


def test_an_edit_must_fit() -> None:
    with pytest.raises(LookupError, match=r"worker\.py"), edited((Edit("worker.py", "not there", ""),)):
        pass
    assert engine.__file__.endswith("sandbox/engine.py")


def test_a_fault_is_taken_away_even_when_the_block_fails() -> None:
    fault = Fault("x", "host", "", "", patches=(Patch(engine, "START_S", 0.0),))
    with pytest.raises(ZeroDivisionError), fault.installed():
        raise ZeroDivisionError
    assert engine.START_S > 0
