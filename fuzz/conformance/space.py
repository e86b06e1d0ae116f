"""The checker's space, made concrete: real ids and times, so that any runtime can walk it from a draft on.

The checker explores pictures of states (`abstract.py`). Here each of its transitions is taken by a concrete command on
a concrete state that has that picture.
"""

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

from ...kernel import commands as c
from ...kernel.codec import encode
from ...kernel.commands import Command
from ...kernel.policy import Policy
from ...kernel.step import step
from ...kernel.types import Accepted, GrantMode, State, new_workflow
from .. import abstract, explorer
from ..abstract import FRESH_RUN, NOW, STALE_RUN
from ..setups import NO_LIMIT, TOOL, Setup, publication, setup
from ..system import Model

# No wait after a failure, as in the search, where it is not counted; the document wants a base of one at least.
NO_BACKOFF: Final = {
    "backoff_base_ms": 1,
    "backoff_max_ms": 0,
    "transient_retries": NO_LIMIT,
    "logic_failures": NO_LIMIT,
}
POLICIES: Final[tuple[Policy, ...]] = tuple(
    Policy(**NO_BACKOFF, reconcile_attempts=1, session_runs=NO_LIMIT)._replace(**times)
    for times in (
        {},
        {"wake_min_ms": 1, "wake_max_ms": 1, "reconcile_base_ms": 200_000, "reconcile_max_ms": 200_000},
        {"wake_min_ms": 10**6, "reconcile_base_ms": 1, "send_within_ms": 500},
        {"wake_min_ms": 1, "wake_max_ms": 1, "send_within_ms": 10**6, "reconcile_base_ms": 1},
        {"wake_min_ms": 300_000, "reconcile_base_ms": 10**6, "reconcile_max_ms": 10**6, "send_within_ms": 10},
        {"wake_min_ms": 200, "wake_max_ms": 200, "send_within_ms": 100, "call_deadline_ms": 50, "clock_skew_ms": 0},
    )
)
"""Numbers whose deadlines pass in different orders; the law holds for any."""

Path = tuple[Command, ...]
Route = tuple[tuple[int, int], ...]
"""Moves, each by the number of its picture and its own place among the ways."""


class Place(NamedTuple):
    """A concrete state, the time, and how many ids were used."""

    state: State
    clock: int
    ids: int


class Way(NamedTuple):
    """One move from a picture: a command, or a deadline that passes."""

    command: Command | None
    target: int


class Space:
    """A set-up of the checker, explored, with concrete commands for all of its transitions."""

    def __init__(self, chosen: Setup, policy: Policy = POLICIES[0]) -> None:
        self.setup = chosen
        self.policy = policy

    @cached_property
    def model(self) -> Model:
        model = Model(self.setup, fold=False)
        explorer.explore(model)
        return model

    @cached_property
    def numbers(self) -> dict[State, int]:
        return {state: number for number, state in enumerate(self.model.states)}

    @cached_property
    def ways(self) -> list[list[Way]]:
        """The moves of each picture: the commands that are accepted, and the deadlines that may pass."""
        found = []
        for number, state in enumerate(tuple(self.model.states)):
            edges = self.model._edges[number]
            ways = [Way(command, edge.target) for (_, command), edge in edges.items() if edge.target >= 0]
            later = [after for _, after in abstract.passing(state)]
            over = abstract.landing_over(state)
            later += [over] if over is not None else []
            ways += [Way(None, self.numbers[after]) for after in later if after in self.numbers]
            # In an order of their own, so that the tour does not depend on the order of the search.
            found.append(sorted(ways, key=lambda way: (name(way), repr(self.model.states[way.target]))))
        return found

    @property
    def transitions(self) -> int:
        return sum(way.command is not None for ways in self.ways for way in ways)

    # -- from pictures to states

    def preamble(self) -> Path:
        """From a draft to where the search begins."""
        mode: GrantMode = "ask" if self.setup.has("approval") else "always"
        commands: list[Command] = [self.setup.deploy(1), c.Grant(1, TOOL, mode), c.Resume(1)]
        if all(h.kind == "consumer" for h in self.setup.handlers):
            commands += [c.Publish(1, publication(key)) for key in self.setup.inputs]
        return tuple(commands)

    def begin(self, policy: Policy) -> Place:
        state = new_workflow("w", policy)
        for command in self.preamble():
            outcome = step(state, command)
            state = outcome.state if isinstance(outcome, Accepted) else state
        return Place(state, 1, 0)

    def number(self, place: Place) -> int:
        """The number of a state's picture; -1 when the search has none such."""
        picture = abstract.picture(shifted(place.state, NOW - place.clock), self.setup)
        return self.numbers.get(picture._replace(policy=self.setup.limits), -1)

    def concrete(self, command: Command, place: Place) -> Command:
        """The command of a picture, with the ids and the time of a state."""
        state, clock, ids = place
        live = state.run.id if state.run is not None else "gone"
        session = state.session.id if state.session is not None else "closed"
        names = {"r1": live, FRESH_RUN: f"n{ids + 1}", STALE_RUN: "gone", "s1": session}
        changes: dict[str, Any] = {}
        for field in command._fields:
            value = getattr(command, field)
            if field in ("now", "asked_at", "wake_at", "due_at") and value:
                changes[field] = value - NOW + clock
            elif field in ("run", "session", "retry_of"):
                changes[field] = names[value] if value else value
        return command._replace(**changes)

    def taken(self, way: Way, place: Place) -> tuple[Command | None, Place] | None:
        """Go a way from a concrete state; None when this state's numbers do not allow it."""
        if way.command is None:
            for clock in sorted(deadlines(place)):
                later = place._replace(clock=clock)
                if self.number(later) == way.target:
                    return None, later
            return None
        command = self.concrete(way.command, place)
        outcome = step(place.state, command)
        if not isinstance(outcome, Accepted):
            return None
        return command, Place(outcome.state, place.clock, place.ids + 1)

    # -- shortest ways

    @cached_property
    def shortest(self) -> dict[int, tuple[Place, Path]]:
        """A concrete state for each picture, and the fewest commands after the preamble that lead there."""
        known = self.reached(self.policy)
        return {number: (place, path) for number, (place, path, _) in known.items()}

    def reached(self, policy: Policy) -> dict[int, tuple[Place, Path, Route]]:
        """The same with the moves of the way, for the pictures that can be reached with these numbers."""
        start = self.begin(policy)
        first = self.number(start)
        known: dict[int, tuple[Place, Path, Route]] = {first: (start, (), ())}
        queue = deque([first])
        while queue:
            number = queue.popleft()
            place, path, route = known[number]
            for n, way in enumerate(self.ways[number]):
                if way.target in known:
                    continue
                went = self.taken(way, place)
                if went is not None and self.number(went[1]) == way.target:
                    command, onward = went
                    path_on = path if command is None else (*path, command)
                    known[way.target] = onward, path_on, (*route, (number, n))
                    (queue.appendleft if command is None else queue.append)(way.target)
        return known


def name(way: Way) -> str:
    return "" if way.command is None else encode(way.command)


def one_event(events: int = 1) -> Space:
    """The set-up that the tour goes through."""
    return Space(setup("consumer", events))


def shifted(state: State, by: int) -> State:
    """The state as it would be if all had happened so much later."""

    def moved(time: int) -> int:
        return time + by if time > 0 else time

    record = state.mutation
    return state._replace(
        backoff_until=moved(state.backoff_until),
        mutation=record
        and record._replace(
            send_by=record.send_by + by,
            may_land_until=record.may_land_until + by,
            next_attempt_at=moved(record.next_attempt_at),
        ),
        handlers=tuple(h._replace(wake_at=moved(h.wake_at), due_at=moved(h.due_at)) for h in state.handlers),
    )


def deadlines(place: Place) -> set[int]:
    """The times ahead at which something is over."""
    state, record = place.state, place.state.mutation
    times = [state.backoff_until, *(h.wake_at for h in state.handlers), *(h.due_at for h in state.handlers)]
    if record is not None:
        times += [record.send_by + 1, record.may_land_until, record.next_attempt_at]
    return {time for time in times if time > place.clock}


# --- the tour ----------------------------------------------------------------------------------------


class Walk(NamedTuple):
    policy: Policy
    commands: Path


def tour(space: Space, longest: int = 100) -> tuple[list[Walk], set[tuple[int, int]]]:
    """Walks that together take every transition that any of the policies allows, and what they leave out."""
    missing = {
        (number, n) for number, ways in enumerate(space.ways) for n, way in enumerate(ways) if way.command is not None
    }
    walks: list[Walk] = []
    for policy in POLICIES:
        for number, (_, _, route) in space.reached(policy).items():
            for n in range(len(space.ways[number])):
                if (number, n) in missing:
                    walks.append(Walk(policy, walk(space, policy, (*route, (number, n)), missing, longest)))
    return walks, missing


def walk(space: Space, policy: Policy, route: Route, missing: set[tuple[int, int]], longest: int) -> Path:
    """One walk: along a route that is known, and then to whatever is missing nearby."""
    place = space.begin(policy)
    commands = list(space.preamble())
    barred: set[tuple[int, int]] = set()
    onward: Route | None = route
    number = route[0][0]
    while onward is not None and len(commands) < longest:
        for source, n in onward:
            went = space.taken(space.ways[source][n], place)
            if went is None:  # With these numbers the deadline can not be the next one.
                barred.add((source, n))
                break
            command, place = went
            number = space.ways[source][n].target
            if command is not None:
                commands.append(command)
                missing.discard((source, n))
        onward = nearest(space, number, missing, barred)
    return tuple(commands)


NEARBY: Final = 300
"""How many pictures are looked at before a walk ends and another begins."""


def nearest(space: Space, start: int, missing: set[tuple[int, int]], barred: set[tuple[int, int]]) -> Route | None:
    came: dict[int, tuple[int, int] | None] = {start: None}
    queue = deque([start])
    while queue and len(came) < NEARBY:
        number = queue.popleft()
        for n, way in enumerate(space.ways[number]):
            if (number, n) in barred:
                continue
            if (number, n) in missing:
                return (*back(came, number), (number, n))
            if way.target not in came:
                came[way.target] = (number, n)
                queue.append(way.target)
    return None


def back(came: dict[int, tuple[int, int] | None], number: int) -> list[tuple[int, int]]:
    route: list[tuple[int, int]] = []
    step_before = came[number]
    while step_before is not None:
        route.append(step_before)
        step_before = came[step_before[0]]
    return route[::-1]


# --- refusals ----------------------------------------------------------------------------------------


def refused(space: Space, place: Place) -> Iterator[Command]:
    """Commands that are refused here, of all that anybody may send."""
    number = space.number(place)
    if number < 0:
        return
    state = space.model.states[number]
    run = state.run.id if state.run is not None else STALE_RUN
    for command in (*space.model._alphabet(number, state, run), *told(run)):
        made = space.concrete(command, place)
        if not isinstance(step(place.state, made), Accepted):
            yield made


def told(run: str) -> Iterator[Command]:
    """What is said of a call."""
    for by in ("call", "inline", "reconcile"):
        yield c.ApplyMutation(NOW, run, by)
        yield c.FailMutation(NOW, run, by, False, 0)
    yield from (c.DidntHappen(NOW, run), c.AssertApplied(NOW, run))
