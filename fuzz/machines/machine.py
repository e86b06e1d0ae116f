"""The stateful machine of Hypothesis that lives such lives, shrinks what breaks, and keeps it for the next time.

Hypothesis draws every choice of a life and the number of its steps. A machine with a rule for each actor would be too
weak: chosen evenly, faults come so often that nothing gets far. So there is one rule, what happens next, and the mix
of the life decides by weight what that is. Shrinking works on each choice all the same.
"""

import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from . import scouted
from .choices import Choices, by_chance, drawn, recorded
from .life import Broken, Coverage, Scene, alarm


class Living(Protocol):
    """A life, as a machine sees it."""

    story: list[Scene]

    def start(self) -> None:
        """Everything that comes before anything can go wrong."""

    def happens(self) -> None:
        """One more thing happens."""

    def finish(self) -> None:
        """Nothing goes wrong any more; raises Broken unless it comes to a good end."""

    def close(self) -> None:
        """Give back what it holds, whatever became of it."""


Begin = Callable[[Choices, Coverage], Living]


class Failure(NamedTuple):
    """A life that broke something, so that it can be lived again."""

    what: str
    text: str
    steps: int
    choices: tuple[int, ...]
    story: tuple[Scene, ...]
    trace: str
    """Where in the code, when it is no broken promise but an error."""

    @property
    def size(self) -> tuple[int, int]:
        return len(self.story), sum(self.choices)


class TimeIsOver(KeyboardInterrupt):
    """Nothing catches it but whoever set the limit."""


HANGS_SECONDS: Final = 15.0
"""No life takes so much of a processor; one that does goes in circles."""


def limited() -> AbstractContextManager[None]:
    """End what goes in circles. Time of the processor counts, so that a busy machine does no harm."""
    text = f"it goes in circles: nothing came of {HANGS_SECONDS:.0f} s of work"
    return alarm(signal.SIGPROF, HANGS_SECONDS, Broken("LIVE", text))


class Watcher:
    """What a machine tells while Hypothesis drives it."""

    def __init__(self, until: float = float("inf"), shrink_seconds: float = 20.0) -> None:
        self.coverage = Coverage()
        self.until = until
        self.shrink_seconds = shrink_seconds
        self.first: Failure | None = None
        self.first_at = 0.0
        self.first_cpu = 0.0
        self.smallest: Failure | None = None
        self.on_example: Callable[[], None] = lambda: None
        self.is_symbolic: Callable[[], bool] = lambda: False
        """Whether a solver is at work, so that numbers are symbols; Hypothesis lives the same again with numbers."""

    def example(self) -> None:
        self.coverage.examples += 1
        self.on_example()
        limit = self.until if self.first is None else self.first_at + self.shrink_seconds
        if time.monotonic() > limit:
            raise TimeIsOver

    def failed(self, failure: Failure) -> None:
        if self.first is None:
            self.first, self.first_at, self.first_cpu = failure, time.monotonic(), time.process_time()
        if self.smallest is None or failure.size < self.smallest.size:
            self.smallest = failure


def failure_of(error: Exception, life: Living | None, choices: Choices, steps: int) -> Failure:
    story = tuple(life.story) if life is not None else ()
    if isinstance(error, Broken):
        return Failure(error.what, "\n".join((error.text, *error.rows)), steps, tuple(choices.taken), story, "")
    text = f"{type(error).__name__}: {error}"
    return Failure("ERROR", text, steps, tuple(choices.taken), story, traceback.format_exc())


def machine(begin: Begin, watcher: Watcher, scout: str = "") -> type[RuleBasedStateMachine]:
    """A machine whose lives begin like this."""

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.life: Living | None = None
            self.steps = 0
            self.whole = False
            watcher.example()

        @initialize(data=st.data())
        def begins(self, data: st.DataObject) -> None:
            self.choices = drawn(data, Random(scout) if scout else None)

            self.life = begin(self.choices, watcher.coverage)
            self.guarded(self.life.start)

        @rule()
        def happens(self) -> None:
            self.steps += 1
            if self.life is not None:
                self.guarded(self.life.happens)

        def teardown(self) -> None:
            if self.life is None:
                return
            try:
                if self.whole:
                    self.guarded(self.life.finish)
            finally:
                self.life.close()

        def guarded(self, act: Callable[[], None]) -> None:
            """Whatever breaks is told; a life that was cut off is not brought to its end."""
            self.whole = False
            try:
                with limited():
                    act()
            except Exception as error:
                if not is_ours(error):
                    raise
                if not watcher.is_symbolic():
                    watcher.failed(failure_of(error, self.life, self.choices, self.steps))
                raise
            self.whole = True

    return Machine


def is_ours(error: Exception) -> bool:
    """Whether an exception is about the system, and not Hypothesis speaking to itself."""
    return not type(error).__module__.startswith("hypothesis")


STEPS: Final = 60


def run(
    begin: Begin,
    watcher: Watcher,
    *,
    number: int,
    examples: int,
    steps: int = STEPS,
    database: ExampleDatabase | None = None,
    backend: str = scouted.NAME,
    scout: str = "",
) -> Failure | None:
    """So many lives from this seed on, or the one that a scout has found; the smallest one that broke something."""
    chosen: dict[str, Any] = {
        "max_examples": examples,
        "stateful_step_count": steps + 2,  # The beginning counts as one, and the end as well.
        "database": database,
        "backend": backend,
        "deadline": None,
        "derandomize": False,
        "report_multiple_bugs": False,
        "print_blob": False,
        "verbosity": Verbosity.quiet,
        "suppress_health_check": list(HealthCheck),
        "phases": (Phase.reuse, Phase.generate, Phase.shrink),
    }
    if backend == "crosshair":
        from crosshair.tracers import is_tracing

        watcher.is_symbolic = is_tracing
    try:
        run_state_machine_as_test(seed(number)(machine(begin, watcher, scout)), settings=settings(**chosen))
    except TimeIsOver:
        return watcher.smallest
    except Exception:
        if watcher.smallest is None:
            raise
    return watcher.smallest


def scout(begin: Begin, watcher: Watcher, names: Iterator[str], steps: int = STEPS) -> str:
    """Live one life after the other by chance; the name of the first that broke something, empty when time is over."""
    for name in names:
        try:
            watcher.example()
        except TimeIsOver:
            return ""
        choices, life = by_chance(Random(name)), None
        try:
            with limited():
                life = begin(choices, watcher.coverage)
                life.start()
                for _ in range(steps):
                    life.happens()
                life.finish()
        except Exception as error:
            watcher.failed(failure_of(error, life, choices, steps))
            return name
        finally:
            if life is not None:
                life.close()
    return ""


def again(begin: Begin, steps: int, choices: tuple[int, ...]) -> Failure | None:
    """Live one life again; None when it breaks nothing any more."""
    taken, life = recorded(choices), None
    try:
        with limited():
            life = begin(taken, Coverage())
            life.start()
            for _ in range(steps):
                life.happens()
            life.finish()
    except Exception as error:
        return failure_of(error, life, taken, steps)
    finally:
        if life is not None:
            life.close()
    return None
