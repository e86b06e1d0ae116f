"""A backend for Hypothesis that makes it live a life which somebody else has found.

Scouts go through lives by plain chance, several times as fast as Hypothesis draws them, and without its liking for
small numbers and repetitions, which bends the weights by which a life goes on. When a scout has found something,
Hypothesis draws the same choices with the help of this backend, and from there on shrinks them as ever.
"""

from typing import Final

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

NAME: Final = "keepkernel-scouted"


class Scouted(HypothesisProvider):
    """Draws what is planned; without a plan, what Hypothesis would draw."""

    planned: int | None = None

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        planned, Scouted.planned = Scouted.planned, None
        if planned is not None:
            return planned
        return super().draw_integer(min_value, max_value, weights=weights, shrink_towards=shrink_towards)


AVAILABLE_PROVIDERS[NAME] = f"{__name__}.{Scouted.__name__}"
