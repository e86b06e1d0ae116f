"""The kernel's arithmetic: one plain course of commands, in which every time and every limit is drawn.

Nothing here depends on what is drawn but the values themselves, so that a solver can draw them: with the backend
`crosshair` of Hypothesis each number is a symbol, and the solver looks for one that leads where no other has led.
"""

from typing import Any, Final

from ...kernel import commands as c
from ...kernel.policy import Policy
from ...kernel.step import step
from ...kernel.types import Accepted, Declaration, Key, new_workflow
from .choices import Choices
from .life import Coverage, Life, hold_to_law
from .plans import TOOLS, publication

MOST: Final = 1 << 20
MAIL: Final = Key("mail", "m1")
HANDLERS: Final = (
    Declaration("file", "consumer", ("mail",), has_mutate=True),
    Declaration("poll", "producer", interval_ms=1_000),
)


class ValuesLife(Life):
    """A course through run, call, reconcile and retry; each step is one command."""

    def __init__(self, choices: Choices, coverage: Coverage) -> None:
        super().__init__(coverage)
        self.choices = choices
        self.now = 0
        limits = [choices.number(MOST) for _ in range(7)]
        policy = Policy(
            backoff_base_ms=limits[0], backoff_max_ms=limits[1], send_within_ms=limits[2], clock_skew_ms=limits[3],
            wake_min_ms=limits[4], wake_max_ms=limits[5], reconcile_max_ms=limits[6],
        )  # fmt: skip
        self.state = new_workflow("w", policy)
        self.course = iter(COURSE)

    def start(self) -> None:
        for command in (c.Deploy(0, "v1", ("mail",), HANDLERS), c.Grant(0, TOOLS[0]), c.Resume(0)):
            self.submit(command)
        self.submit(c.Publish(0, publication(MAIL)))

    def happens(self) -> None:
        kind = next(self.course, None)
        if kind is None:
            return
        self.now += self.choices.number(MOST)
        values: dict[str, Any] = {name: self.value(name) for name in kind._fields}
        self.submit(kind(**values))

    def value(self, name: str) -> object:
        fixed = {"now": self.now, "run": "r1", "session": "s1", "handler": "file", "tool": TOOLS[0], "params": "{}"}
        if name in fixed:
            return fixed[name]
        if name in ("wake_at", "deadline_ms", "asked_at"):
            return self.choices.number(MOST)
        words = {"reservations": (MAIL,), "reconcilable": True, "by": "reconcile", "status": "paused:transient"}
        return words.get(name, {"early": False, "voided": False}.get(name, ""))

    def submit(self, command: c.Command) -> None:
        outcome = step(self.state, command)
        self.tell("course", c.NAMES[type(command)])
        hold_to_law(self.state, command, outcome)
        if isinstance(outcome, Accepted):
            self.state = outcome.state

    def finish(self) -> None:
        """It is over where it is over."""


COURSE: Final[tuple[type[c.Command], ...]] = (
    *(c.StartSession, c.CreateRun, c.Begin, c.Prepared, c.Mutating, c.RecordMutation, c.SendMutation, c.LoseTrack),
    *(c.EndRun, c.ReconcileRetry, c.FailMutation, c.StartSession),
)
