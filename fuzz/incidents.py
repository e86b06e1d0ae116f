"""What may happen to a host beside death, at each of its points: it stalls, somebody is faster, another takes over,
the connection to its store breaks.

The host lives on with whatever it has in hand. Afterwards the workflow is brought to rest by another life, and judged
as after a crash.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final, NamedTuple

from ..adapters.host import Host, at_once
from ..adapters.points import pass_by
from ..kernel.commands import Grant, Pause, Resume
from ..kernel.ports import Change, Disconnected, Lease, LeaseLost
from .crash import Failure, failures_of
from .lives import NAME, live
from .outside import Clock
from .trials import Ground, Trial, brought_to_rest, simulated
from .workflows import Workflow

STALL_MS: Final = 45_000
"""Longer than anybody may wait with a call, and shorter than a lease."""
LEASE_MS: Final = 660_000
"""After so long every lease has run out."""
TURNS_MAX: Final = 500

Incident = Callable[[Host], None]


def time_passes(host: Host, milliseconds: int) -> None:
    clock: Any = host.clock
    clock.wait_until(clock.now + milliseconds)


def beside(host: Host, name: str) -> Host:
    """Another host of the same store."""
    numbers = count(1)
    return Host(
        host.store, host.handlers, host.connectors, name=name, fresh_id=lambda: f"{name}{next(numbers)}",
        clock=host.clock, repair=host.repair, grain=host.grain,
    )  # fmt: skip


def stalls(host: Host) -> None:
    time_passes(host, STALL_MS)


def person_clicks(host: Host) -> None:
    """A person pauses, grants something, and resumes: the state is no longer what the host has loaded."""
    person = beside(host, "person")
    for command in (Pause(0), Grant(0, "notes.add"), Resume(0)):
        person.submit(NAME, at_once(command), leased=False)


def taken_over(host: Host) -> None:
    """The host stalls until its lease has run out, and another one has driven the workflow as far as it goes."""
    time_passes(host, LEASE_MS)
    other = beside(host, "other")
    if other.start(NAME):
        for _ in range(TURNS_MAX):
            if other.turn(NAME) is not None:
                return


def connection_breaks(*, after: bool) -> Incident:
    """The next commit is done, or not done, and nobody hears of it."""

    def incident(host: Host) -> None:
        commit = host.store.commit

        def broken(change: Change, lease: Lease | None = None) -> int:
            setattr(host.store, "commit", commit)  # noqa: B010 - a method of one store, for one call
            if after:
                commit(change, lease)
            raise Disconnected("the connection broke during a commit")

        setattr(host.store, "commit", broken)  # noqa: B010

    return incident


INCIDENTS: Final[dict[str, Incident]] = {
    "stalls": stalls,
    "a person clicks": person_clicks,
    "another host takes over": taken_over,
    "the connection breaks before a commit": connection_breaks(after=False),
    "the connection breaks after a commit": connection_breaks(after=True),
}


def disturbed(point: int, incident: Incident, passed: list[str]) -> type[Host]:
    """Hosts to which something happens at the n-th of their points."""

    class Disturbed(Host):
        def __init__(self, *parts: Any, reach: Callable[[str], None], **options: Any) -> None:
            def counted(name: str) -> None:
                reach(name)
                passed.append(name)
                if len(passed) == point:
                    incident(self)

            super().__init__(*parts, reach=counted, **options)

    return Disturbed


class Disturbance(NamedTuple):
    name: str
    point: int
    at: str
    trial: Trial


def disturbances(workflow: Workflow, where: Ground) -> Iterator[Disturbance]:
    """Every incident at every point of the host."""
    for name, incident in INCIDENTS.items():
        point, passed = 1, [""]
        while len(passed) >= point:
            passed = []
            trial = one_disturbed(workflow, where, name, point, incident, passed)
            if len(passed) >= point:
                yield Disturbance(name, point, passed[point - 1], trial)
            point += 1


def one_disturbed(
    workflow: Workflow, where: Ground, name: str, point: int, incident: Incident, passed: list[str]
) -> Trial:
    died = (f"{name} at point {point}",)
    with where.place(workflow) as place:
        try:
            live(workflow, place, pass_by, 0, where.way._replace(make_host=disturbed(point, incident, passed)))
        except LeaseLost:
            # The host was told that another one drives the workflow, and stopped, as it should. That one is gone too.
            clock = Clock(place.folder / "clock")
            clock.wait_until(clock.now + LEASE_MS)
        except Exception as error:
            return Trial(died, (), (f"{type(error).__name__}: {error}",), None, "", ())
        return brought_to_rest(workflow, where, place, died)


def swept_by_incidents(workflow: Workflow, where: Ground) -> Iterator[Failure]:
    """What is wrong after each of them, by itself and beside a life in which nothing happens."""
    clean = simulated(workflow, where)
    for disturbance in disturbances(workflow, where):
        yield from failures_of(granted(clean, disturbance.trial), disturbance.trial, (disturbance.point,))


def granted(clean: Trial, trial: Trial) -> Trial:
    """What a person has granted meanwhile is no difference; that it is not lost, the journal says."""
    if clean.ending is None or trial.ending is None:
        return clean
    return clean._replace(ending=clean.ending._replace(grants=trial.ending.grants))
