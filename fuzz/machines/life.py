"""What the lives of all machines have in common: what was done, what is broken, and what was covered."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

from ...kernel import commands as c
from ...kernel.types import Accepted, Outcome, Rejected, State
from ...spec.invariants import Ghost, Step, check_step
from .. import law
from . import kinds


class Broken(AssertionError):
    """Something that must hold does not."""

    def __init__(self, what: str, text: str, rows: tuple[str, ...] = ()) -> None:
        super().__init__(f"{what}: {text}" + "".join(f"\n  {row}" for row in rows))
        self.what = what
        """The invariant, or the promise that is broken: LAW, STORE, HOST, LIVE."""
        self.text = text
        self.rows = rows


TIMERS: Final = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
"""Time of the processor, and time of the wall."""


@contextmanager
def alarm(number: signal.Signals, seconds: float, broken: Broken) -> Iterator[None]:
    """Whatever the block does, it is over in time, or something is broken."""
    if threading.current_thread() is not threading.main_thread():  # Signals are for the main thread alone.
        yield
        return

    def over(signum: int, frame: FrameType | None) -> None:
        raise broken

    before = signal.signal(number, over)
    signal.setitimer(TIMERS[number], seconds)
    try:
        yield
    finally:
        signal.setitimer(TIMERS[number], 0)
        signal.signal(number, before)


class Scene(NamedTuple):
    """One line of a story."""

    at: int
    actor: str
    text: str


class Coverage:
    """What lives have come to."""

    def __init__(self) -> None:
        self.rules: Counter[str] = Counter()
        self.rejects: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        """Kinds of commands, refusals, effects and answers; see kinds.py."""
        self.states: set[tuple[Any, ...]] = set()
        self.points: Counter[str] = Counter()
        self.steps = 0
        self.examples = 0

    def saw(self, command: c.Command, outcome: Outcome) -> None:
        if isinstance(outcome, Rejected) and not outcome.reason:  # Nobody knows what became of it.
            return
        self.kinds.update(kinds.of_outcome(command, outcome))
        if isinstance(outcome, Rejected):
            self.rejects[outcome.reason] += 1
        else:
            self.rules.update(outcome.rules)
            self.states.add(likeness(outcome.state))


def likeness(state: State) -> tuple[Any, ...]:
    """What kind of situation a workflow is in; there are a few thousand."""
    run, record, error = state.run, state.mutation, state.error
    return (
        state.status,
        run and (run.kind, run.phase, run.status, run.outcome, bool(run.retry_of), bool(run.reserved)),
        record and (record.status, record.reconcilable, record.resolved_by),
        error and (error.kind, error.cause),
        state.maintenance is not None,
        state.session is not None,
        tuple(sorted({event.status for event in state.events})),
    )


class Life:
    """The thread of a life."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        self.story: list[Scene] = []
        self.now = 1_000_000

    def tell(self, actor: str, text: str) -> None:
        self.story.append(Scene(self.now, actor, text))
        self.coverage.steps += 1

    def close(self) -> None:
        """Nothing to give back."""

    def tell_step(self, actor: str, text: str, command: c.Command, outcome: Outcome) -> None:
        said = f", rejected: {outcome.reason}" if isinstance(outcome, Rejected) else ""
        self.tell(actor, f"{text} ({shown(command)}{said})")


def shown(command: c.Command) -> str:
    """A command in short: its name and what is not obvious of it."""
    fields = command._asdict()
    said = [
        f"{name}={value!r:.60}" for name, value in fields.items() if name not in ("now",) and value not in ((), None)
    ]
    return f"{c.NAMES[type(command)]} {' '.join(said)}".rstrip()


def hold_to_law(before: State, command: c.Command, outcome: Outcome) -> None:
    """The kernel says what the clerk says."""
    if found := law.departure(before, command, outcome):
        raise Broken("LAW", found[0], found[1:])


def hold_to_invariants(before: State, command: c.Command, outcome: Outcome, after: State, ghost: Ghost) -> None:
    found = check_step(Step(before, command, outcome, after), ghost)
    if found:
        first = found[0]
        also = tuple(f"also {v.invariant} ({v.rule}): {v.text}" for v in found[1:])
        raise Broken(first.invariant, f"({first.rule}) {first.text}", (*first.rows, *also))


def accepted(outcome: Outcome) -> Accepted | None:
    return outcome if isinstance(outcome, Accepted) else None
