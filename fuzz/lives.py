"""One life of a process in the crash harness: it opens what the last one left, and works until rest or death."""

import os
import shutil
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from ..adapters.host import Grain, Host
from ..adapters.points import Reach, pass_by
from ..adapters.stores import open_store
from ..kernel import schedule
from ..kernel.commands import Command
from ..kernel.policy import Policy
from ..kernel.ports import Store, Transition
from ..kernel.types import Accepted, Event, Repair, State
from .outside import Clock, Outside
from .workflows import Scripts, Workflow, preparation, reaction, repaired

NAME: Final = "w"
"""What every workflow is called in its store."""
STORES_WITH_FILES: Final = ("sqlite", "duckdb")
RESTART_MS: Final = 1_000
TURNS_MAX: Final = 2_000
"""No life takes half as many turns, so one that takes more goes in circles."""
POINTS_MAX: Final = 20_000
"""Nor does it pass half as many points; who goes in circles may do so within one turn."""
PAGE: Final = 1_000
SHARED_MEMORY: Final = "*-shm"
"""SQLite's index of its log: whoever opens a store first makes it anew, so it is no part of what a death leaves."""


class Stuck(Exception):
    """The workflow neither rests nor goes on."""


# --- dying -------------------------------------------------------------------------------------------


class Points:
    """Numbers the crash points of one life from 1, and lets the process die at one of them."""

    def __init__(self, die_at: int = 0, die: Callable[[], NoReturn] | None = None) -> None:
        self.names: list[str] = []
        self._die_at = die_at
        self._die = die

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if self._die is not None and len(self.names) == self._die_at:
            self._die()


def kill() -> NoReturn:
    """Die for real: nothing is flushed, closed or told."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


# --- what outlives a process -------------------------------------------------------------------------


def no_time() -> int:
    """For those who only read."""
    return 0


class Place:
    """A folder with a store in it, and the record of the outside beside it.

    A store in memory lives as long as its place: it stands for one that never loses anything. A store on a server
    is elsewhere altogether, at a URL of its own.
    """

    def __init__(self, scheme: str, folder: Path, url: str = "") -> None:
        self.scheme = scheme
        self.folder = folder
        self.url = url or f"{scheme}:{folder / 'store'}"
        self.record = folder / "outside.jsonl"
        self._clock: Callable[[], int] = no_time
        self._reach: Reach = pass_by
        self._kept: Store | None = None

    def open(self, clock: Callable[[], int] = no_time, reach: Reach = pass_by) -> Store:
        """The store, as a new process finds it."""
        self._clock, self._reach = clock, reach
        if self.scheme != "memory":
            return open_store(self.url, clock=clock, reach=reach)
        if self._kept is None:
            self._kept = open_store("memory:", clock=self._now, reach=self._reached)
        else:
            self._kept.drop()  # As its last process did when it died.
        return self._kept

    def _now(self) -> int:
        return self._clock()

    def _reached(self, name: str) -> None:
        self._reach(name)

    def copied(self, folder: Path) -> "Place":
        """The same things elsewhere: all that a process would leave if it died at this instant."""
        if self.scheme not in STORES_WITH_FILES:
            return self
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns(SHARED_MEMORY))
        return Place(self.scheme, folder)


def every_event(store: Store) -> tuple[Event, ...]:
    found: tuple[Event, ...] = ()
    while page := store.events(NAME, found[-1].seq if found else 0, PAGE):
        found += page
    return found


def journal_of(store: Store) -> tuple[Transition, ...]:
    found: tuple[Transition, ...] = ()
    while page := store.transitions(NAME, found[-1].version if found else 0, PAGE):
        found += page
    return found


# --- a life ------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """How workflows are driven."""

    grain: Grain = "coalesced"
    make_host: type[Host] = Host


WAY: Final = Way()


def not_for_ever(points: Reach) -> Reach:
    passed = count(1)

    def reach(name: str) -> None:
        if next(passed) > POINTS_MAX:
            raise Stuck(f"it has passed {POINTS_MAX} points, and passes {name} again")
        points(name)

    return reach


def live(workflow: Workflow, place: Place, points: Reach, life: int, way: Way = WAY) -> None:
    """Begin where the last life ended, go on until everything is at rest, and leave in order."""
    points = not_for_ever(points)
    clock = Clock(place.folder / "clock")
    clock.wait_until(clock.now + RESTART_MS)
    store = place.open(clock, points)
    try:
        outside = Outside(workflow, place.record, clock, points, lambda: store.load(NAME).version)
        numbers = count(1)
        host = way.make_host(
            store,
            Scripts(workflow, store, outside),
            outside,
            name="host",
            fresh_id=lambda: f"{'abcdefgh'[life]}{next(numbers)}",
            clock=clock,
            repair=lambda work: repair(workflow, host, work),
            reach=points,
            grain=way.grain,
        )
        work(workflow, host, outside, clock)
        store.close()
    except BaseException:
        store.drop()  # A process that was killed never comes here; a simulated death lets go of the files likewise.
        raise


def work(workflow: Workflow, host: Host, outside: Outside, clock: Clock) -> None:
    """Take the workflow from wherever it stands to its rest."""
    host.store.create(NAME, Policy())
    while insist(host, lambda state, now: preparation(workflow, state, host.store)):
        """One thing after the other."""
    if not host.start(NAME):
        raise Stuck("the lease of the dead host keeps its successor out")
    for _ in range(TURNS_MAX):
        rest = host.turn(NAME)
        if rest is None:
            continue
        if rests(workflow, host.store, rest):
            return
        waits = rest if isinstance(rest, schedule.Wait) else person(workflow, host, outside)
        if waits is not None:
            clock.wait_until(waits.until)
    raise Stuck(f"still busy after {TURNS_MAX} turns")


def insist(host: Host, ask: Callable[[State, int], Command | None]) -> bool:
    """A person's command, which must be accepted; False when there is none."""
    said = host.submit(NAME, ask, leased=False)
    if said is not None and not isinstance(said.outcome, Accepted):
        raise Stuck(f"a person's {type(said.command).__name__} is refused: {said.outcome.reason}")
    return said is not None


def repair(workflow: Workflow, host: Host, work: Repair) -> None:
    """The repair hook: deploy the next version, unless somebody was faster."""

    def ask(state: State, now: int) -> Command | None:
        waits = state.maintenance is not None and state.maintenance.run == work.run
        return repaired(workflow, now) if waits else None

    insist(host, ask)


def person(workflow: Workflow, host: Host, outside: Outside) -> schedule.Wait | None:
    """Let the person act; what comes back is a time for which they wait."""
    state, now = host.store.load(NAME).state, host.store.now()
    act = reaction(workflow, state, now, outside)
    if act is None:
        raise Stuck(f"idle, and nobody knows what to do: {state.error or 'no error'}")
    if not isinstance(act, schedule.Wait):
        insist(host, lambda state, now: act._replace(now=now))
        return None
    return act


def rests(workflow: Workflow, store: Store, rest: schedule.Wait | schedule.Idle) -> bool:
    """All inputs are there and done, and the scheduler has nothing to do."""
    if rest.reason != "nothing_due":
        return False
    events = every_event(store)
    return {*workflow.keys} <= {e.key for e in events} and all(e.status in ("consumed", "skipped") for e in events)
