"""No step reads or writes another workflow, whatever names the two share.

A state holds one workflow, and `step` is a function of it alone. So nothing that happens to one workflow may show in
another: not in any walk, and not in any pair of steps that a search comes to.
"""

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walks import Tried, walk

from keepkernel import Accepted, Command, CreateRun, Outcome, State, step
from keepkernel.fuzz.explorer import explore
from keepkernel.fuzz.setups import setup
from keepkernel.fuzz.system import Caller, Model
from keepkernel.kernel import runs
from keepkernel.kernel.reasons import require
from keepkernel.spec.variants import Swap, swapped


def typed(value: object) -> object:
    """A value with the classes of all its parts: NamedTuples of two classes may be equal."""
    return (type(value), *map(typed, value)) if isinstance(value, tuple) else value


# --- walks -------------------------------------------------------------------------------------------


def interleaved(one: int, other: int, random: Random) -> None:
    """Both walks use the same names for workflow, runs, sessions, events and tools."""
    alone = {n: list(walk(Random(seed), 40)) for n, seed in enumerate((one, other))}
    states: dict[int, State] = {n: tried[0].state for n, tried in alone.items()}
    queues: dict[int, Iterator[Tried]] = {n: iter(tried) for n, tried in alone.items()}
    while queues:
        n = random.choice(sorted(queues))
        tried = next(queues[n], None)
        if tried is None:
            del queues[n]
            continue
        outcome = step(states[n], tried.command)
        assert typed(outcome) == typed(tried.outcome)
        if isinstance(outcome, Accepted):
            states[n] = outcome.state


@given(st.integers(0, 2**32), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_interleaved_workflows_answer_as_each_does_alone(one: int, other: int, random: Random) -> None:
    interleaved(one, other, random)


# --- pairs of steps ----------------------------------------------------------------------------------

Taken = tuple[State, Command, Outcome]


@cache
def steps_of(name: str, caller: Caller, depth: int) -> tuple[Taken, ...]:
    """Every step, accepted or refused, that a workflow comes to alone up to a depth; all are called w, with run r1."""
    model = Model(setup(name, 1), caller)
    graph = explore(model, max_depth=depth)
    found: dict[Any, Taken] = {}
    for code in graph.states[: len(graph.starts) - 1]:
        state = model.parts(code)[0]
        for label in model.moves(code).labels:
            command = model.labels[label].command
            if command is not None:
                found[state, type(command), command] = state, command, step(state, command)
    return tuple(found.values())


PAIRS = [
    (("main", "honest", 9), ("consumer", "honest", 9)),
    (("consumer", "honest", 9), ("chain", "honest", 9)),
    (("consumer", "adversary", 2), ("main", "honest", 8)),
]


def beside(ones: tuple[Taken, ...], others: tuple[Taken, ...]) -> None:
    """Each step of the one workflow right after each step of the other, and the reverse."""
    for state, command, outcome in ones:
        for its_state, its_command, its_outcome in others:
            assert step(its_state, its_command) == its_outcome
            assert step(state, command) == outcome


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_every_pair_of_steps_is_as_each_is_alone(pair: tuple[tuple[str, Caller, int], ...]) -> None:
    ones, others = (steps_of(*one) for one in pair)
    assert min(len(ones), len(others)) > 40, "there is something to pair"
    assert {state.workflow for state, _, _ in ones + others} == {"w"}
    beside(ones, others)


# --- the tests can fail ------------------------------------------------------------------------------


def with_a_memory() -> Swap:
    """A kernel that refuses a run's id when any workflow has used it before."""
    create_run, used = runs.create_run, set[tuple[str, State]]()

    def suspicious(state: State, command: CreateRun) -> Accepted:
        accepted = create_run(state, command)
        require(all(run != command.run or seen is state for run, seen in used), "id_in_use", command.run)
        used.add((command.run, state))
        return accepted

    return Swap(create_run, suspicious)


def test_a_kernel_that_remembers_is_caught_by_walks() -> None:
    with pytest.raises(AssertionError), swapped(with_a_memory()):
        interleaved(1, 1, Random(1))


def test_a_kernel_that_remembers_is_caught_by_pairs() -> None:
    ones, others = (steps_of(*one) for one in PAIRS[0])
    with pytest.raises(AssertionError), swapped(with_a_memory()):
        beside(ones, others)
