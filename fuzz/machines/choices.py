"""Where a life takes its choices from: Hypothesis while it searches and shrinks, a list when it is played again.

Every choice is one small number, and 0 is always the plainest thing that can happen. So what Hypothesis shrinks is a
life in which less and less happens, and a list of numbers is all that is needed to live it again.
"""

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from .scouted import Scouted

T = TypeVar("T")


class Choices:
    """Numbers below a bound, and what can be made of them."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self.taken: list[int] = []

    def number(self, bound: int) -> int:
        """From 0 up to a bound, which is not included."""
        if bound == 1:
            return 0
        self.taken.append(self._below(bound))
        return self.taken[-1]

    def of(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def weighted(self, options: Sequence[tuple[int, T]]) -> T:
        """One of these, each as often as its weight says; not all weights may be 0."""
        place = self.number(sum(weight for weight, _ in options))
        for weight, option in options:
            place -= weight
            if place < 0:
                return option
        raise AssertionError("weights are whole numbers")

    def chance(self, percent: int) -> bool:
        """True so often; 0 means no."""
        return percent > 0 and self.number(100) >= 100 - percent

    def some(self, options: Sequence[T], percent: int) -> list[T]:
        return [option for option in options if self.chance(percent)]


@cache
def numbers(bound: int) -> "st.SearchStrategy[int]":
    return st.integers(0, bound - 1)


def drawn(data: st.DataObject, scout: Random | None = None) -> Choices:
    """Choices of Hypothesis, which remembers and shrinks them; at first, those that a scout has made."""

    def below(bound: int) -> int:
        Scouted.planned = None if scout is None else scout.randrange(bound)
        return data.draw(numbers(bound))

    return Choices(below)


def by_chance(random: Random) -> Choices:
    return Choices(random.randrange)


def recorded(numbers: Sequence[int]) -> Choices:
    """The same choices again; where the list ends or does not fit any more, the plainest."""
    rest = iter(numbers)
    return Choices(lambda bound: min(next(rest, 0), bound - 1))
