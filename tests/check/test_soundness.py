"""Forgetting is sound: names, histories, counts and done inputs can go without losing a state or a move.

A model with history forgets nothing but the sizes of times. Up to a bound, each of its states is set beside its
picture: whatever the one can do, the other can do, and the pictures of all states of a depth are the states that
the search through pictures comes to.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

import pytest

from keepkernel.fuzz import world
from keepkernel.fuzz.abstract import picture, renamed
from keepkernel.fuzz.explorer import Graph, Moves, explore, in_columns
from keepkernel.fuzz.setups import SETUPS, setup
from keepkernel.fuzz.system import Caller, Hand, Model
from keepkernel.kernel.commands import Command


def command_pictured(command: Command, live: str) -> Command:
    return command._replace(run=renamed(command.run, live))


def hand_pictured(full: Model, small: Model, hand: Hand, live: str) -> Hand:
    queue = tuple(command_pictured(command, live) for command in hand.queue)
    durable = -1 if hand.durable < 0 else small.state_id(picture(full.states[hand.durable], small.setup))
    return hand._replace(queue=queue, durable=durable)


def pictured(full: Model, small: Model, code: int) -> int:
    """The state of the small model that stands for a state with history."""
    state, hand, outside = full.parts(code)
    live = state.run.id if state.run is not None else ""
    number = small.state_id(picture(state, small.setup))
    done = sum(1 << small.keys.index(e.key) for e in state.events if e.status in ("consumed", "skipped"))
    held = small.hand_id(hand_pictured(full, small, hand, live))
    return small.folded(small.code(number, held, small.world_id(world.without(outside, done))))


def depths(graph: Graph[int]) -> list[int]:
    found: list[int] = []
    for parent in graph.parent:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


class Onward(NamedTuple):
    """What can be seen of a move: where it leads or what it breaks, who makes it, and whether it is calm."""

    target: int | frozenset[str]
    actor: str
    calm: bool


def onward(model: Model, code: int, pictured: Callable[[int], int]) -> set[Onward]:
    """The moves out of a state, with their targets as pictures, but those that nobody can see."""
    here = pictured(code)
    return {
        Onward(
            frozenset(model.broken_by(code, label)) if target is None else pictured(target),
            model.labels[label].actor,
            calm,
        )
        for label, target, calm in model.concrete_moves(code)
        if target is None or pictured(target) != here
    }


class Bound(NamedTuple):
    setup: str
    depth: int
    features: str = "all"
    events: int = 0
    caller: Caller = "honest"

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "+") for part in self if part)

    def model(self, *, history: bool) -> Model:
        wanted = None if self.features == "all" else frozenset(self.features.split())
        return Model(setup(self.setup, self.events, wanted), self.caller, history=history)


BOUNDS = [
    # Everything that a set-up explores, up to where both spaces take about a second.
    Bound("main", 15),
    Bound("consumer", 13),
    Bound("chain", 12),
    Bound("batch", 11),
    Bound("no-mutate", 14),
    Bound("bookkeeping", 13),
    Bound("no-reconcile", 13),
    Bound("coalesced", 15),
    Bound("main", 7, caller="adversary"),
    Bound("consumer", 7, caller="adversary"),
    # A few faults at a time, far enough for second runs, retries, strays and limits.
    Bound("main", 26, "crash late"),
    Bound("main", 24, "crash late skip", events=2),
    Bound("coalesced", 26, "crash late skip coalesced"),
    Bound("consumer", 24, "crash counts budget"),
    Bound("consumer", 22, "crash late stall second"),
    Bound("consumer", 22, "crash stall void wrong"),
    Bound("bookkeeping", 20, "counts budget failures"),
    Bound("no-reconcile", 22, "crash late stall wrong"),
    Bound("batch", 22, "crash late"),
    Bound("chain", 22, "crash"),
]


@pytest.mark.parametrize("case", BOUNDS, ids=str)
def test_pictures_of_the_full_space_are_the_pruned_space(case: Bound) -> None:
    full, small = case.model(history=True), case.model(history=False)
    whole, pruned = explore(full, max_depth=case.depth), explore(small, max_depth=case.depth)
    assert whole.depth == case.depth
    assert len(whole.states) > len(pruned.states), "nothing was forgotten, so nothing is shown"
    pictures = {code: pictured(full, small, code) for code in whole.states}
    far, near = depths(whole), depths(pruned)
    for depth in range(case.depth + 1):
        assert {pictures[code] for code, n in zip(whole.states, far, strict=True) if n == depth} >= {
            code for code, n in zip(pruned.states, near, strict=True) if n == depth
        }, f"a state is missing at depth {depth}"
    assert set(pictures.values()) == set(pruned.states)
    for code, n in zip(whole.states, far, strict=True):
        if n < case.depth:
            image = pictures[code]
            assert onward(full, code, pictures.__getitem__) == onward(small, image, small.folded), full.parts(code)
            assert full.broken(code) == small.broken(image), full.parts(code)


@pytest.mark.parametrize("caller", ["honest", "adversary"])
@pytest.mark.parametrize("name", SETUPS)
def test_a_long_history_can_do_what_its_picture_can(name: str, caller: Caller) -> None:
    """Walks go where no bound of the full space reaches: many runs, many sessions, high counts."""
    full, small = Model(setup(name), caller, history=True), Model(setup(name), caller)
    longest = 0
    for seed in range(12):
        random, code = Random(seed), full.initial()[0]
        for _ in range(150):
            image = pictured(full, small, code)
            assert onward(full, code, partial(pictured, full, small)) == onward(small, image, small.folded), code
            assert full.broken(code) == small.broken(image)
            moves = full.concrete_moves(code)
            # Faults and whims come now and then, or no run would ever end.
            calm = [move for move in moves if move[2]] if random.random() < 0.8 else []
            _, target, _ = random.choice(calm or moves)
            assert target is not None
            code = target
        longest = max(longest, len(full.pasts[full.numbers(code)[0]]))
    assert longest >= 5, "no walk made any history"


# --- symmetry ----------------------------------------------------------------------------------------


class Unfolded:
    """The same model, without renaming inputs."""

    def __init__(self, model: Model) -> None:
        self.initial = model.initial
        self.model = model
        self.broken = model.broken
        self.broken_by = model.broken_by
        self.rests = model.rests

    def moves(self, code: int) -> Moves[int]:
        return in_columns(self.model.concrete_moves(code))


FOLDED = [
    Bound("main", 0, "crash late skip approval", events=2),
    Bound("consumer", 0, "crash late void wrong", events=2),
    Bound("batch", 0, "crash late stall failures republish skip"),
    Bound("consumer", 6, events=2, caller="adversary"),
]


@pytest.mark.parametrize("case", FOLDED, ids=str)
def test_folding_the_unfolded_space_gives_the_folded_one(case: Bound) -> None:
    model = case.model(history=False)
    folded = explore(model, max_depth=case.depth)
    whole = explore(Unfolded(model), max_depth=case.depth)
    assert folded.complete == whole.complete == (case.depth == 0)
    assert len(whole.states) > len(folded.states)
    assert {model.folded(code) for code in whole.states} == set(folded.states)
    assert folded.depth == whole.depth
    for code in whole.states[: len(whole.starts) - 1]:
        assert onward(model, code, model.folded) == onward(model, model.folded(code), model.folded), model.parts(code)
        assert sorted(model.broken(code)) == sorted(model.broken(model.folded(code)))
        assert model.rests(code) == model.rests(model.folded(code))


def test_events_of_a_chain_are_not_folded() -> None:
    """Between two consumers the order of arrival decides who is first."""
    assert not Model(setup("chain")).fold
