"""A plugin for pytest: kill your own workflow at every point, with a world that does what your test says.

Installed with keepkernel; `pytest --fixtures` shows what there is, and `fuzz/README.md` a worked example.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from ..adapters.connectors import Connections
from ..adapters.host import Host
from ..adapters.points import SimulatedCrash
from ..adapters.stores import open_store
from ..kernel.policy import Policy
from ..kernel.ports import Handlers, Store
from ..kernel.respond import Answer, DidNotHappen, Failed, Happened, NoMethod, Unknown
from ..kernel.schedule import Idle, Wait
from ..kernel.step import step
from ..kernel.types import Accepted, Key, Reconcile, Send, State, new_workflow
from ..spec.invariants import Ghost, Step, check_step

MARKER: Final = "crash_everywhere"
POINTS_MAX: Final = 2_000
DIE_AT: Final = "_keepkernel_die_at"
PASSED: Final = "_keepkernel_crashes"
OUTCOMES: Final = ("applied", "refused", "silent", "lost")


class Crashes:
    """Numbers the points that a test passes, and dies at one of them, once."""

    def __init__(self, die_at: int = 0) -> None:
        self.die_at = die_at
        self.passed: list[str] = []
        self.died = ""
        """The point at which it died; empty when it did not."""

    def __call__(self, point: str) -> None:
        self.passed.append(point)
        if len(self.passed) == self.die_at:
            self.died = point
            raise SimulatedCrash


class ScriptedWorld:
    """A target whose answers a test writes down beforehand, and which remembers what really happened.

    Each call takes the next outcome: `applied` (done, and says so), `refused` (not done, and says so), `silent` (done,
    and nobody hears of it) or `lost` (not done, and nobody hears of it). When none is left, calls are applied.
    """

    def __init__(self, *outcomes: str, reconcilable: bool = True) -> None:
        unknown = {*outcomes} - {*OUTCOMES}
        if unknown:
            raise ValueError(f"there is no outcome {sorted(unknown)}; there are {', '.join(OUTCOMES)}")
        self.outcomes = list(outcomes)
        self.reconcilable = reconcilable
        self.calls: list[tuple[str, str, str]] = []
        """Key, parameters and outcome of every call that came."""
        self.reach: Callable[[str], None] = lambda point: None

    def send(self, effect: Send) -> Answer:
        self.reach("target: before")
        outcome = self.outcomes.pop(0) if self.outcomes else "applied"
        self.calls.append((effect.key, effect.params, outcome))
        self.reach("target: after")
        if outcome == "applied":
            return Happened()
        return Failed("refused", "the target refused") if outcome == "refused" else Unknown("no answer came")

    def reconcile(self, effect: Reconcile) -> Answer:
        if not self.reconcilable:
            return NoMethod()
        happened = any(key == effect.key and outcome in ("applied", "silent") for key, _, outcome in self.calls)
        return Happened() if happened else DidNotHappen()

    def applied(self, params: str | None = None) -> int:
        """How often something was really done: all in all, or with these parameters."""
        return sum(o in ("applied", "silent") and params in (None, p) for _, p, o in self.calls)


class CrashingStore:
    """A store, and hosts on it, that die at one point and come back with what was durable."""

    def __init__(self, url: str, crashes: Crashes) -> None:
        self.url = url
        self.crashes = crashes
        self.now = 1_000_000
        self._ids = 0
        self.store: Store = self._open()

    def _open(self) -> Store:
        try:
            return open_store(self.url, clock=lambda: self.now, reach=self.crashes)
        except SimulatedCrash:  # It dies once, and opening a store has points of its own.
            return open_store(self.url, clock=lambda: self.now, reach=self.crashes)

    def restart(self) -> None:
        """What the next process finds; a store in memory stands for one that never loses anything."""
        self.store.drop()
        if not self.url.startswith("memory:"):
            self.store = self._open()

    def connections(self, config: Path) -> Connections:
        """Your own connectors, as this file configures them: their calls die too, and their clock is the test's."""
        return Connections.from_config(config, reach=self.crashes, clock=lambda: self.now)

    def host(self, handlers: Handlers, world: ScriptedWorld | Connections) -> Host:
        if isinstance(world, Connections):
            if world.reach is not self.crashes:
                raise TypeError("these connections do not die: make them by crashing_store.connections(FILE)")
        else:
            world.reach = self.crashes
        return Host(
            self.store, handlers, world, name="host", fresh_id=self._fresh, clock=lambda: self.now, reach=self.crashes
        )

    def _fresh(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    def drive(
        self, workflow: str, handlers: Callable[[Store], Handlers], world: ScriptedWorld | Connections,
        prepare: Callable[[Host], None], policy: Policy | None = None,
    ) -> State:  # fmt: skip
        """Bring a workflow to rest through one death, if one is due, and give its last state.

        `prepare` does what people do first: deploy, grant, resume, publish. It is called again after a death, so that
        it must not mind what is done already.
        """
        for _ in range(3):
            try:
                return self._live(workflow, handlers(self.store), world, prepare, policy or Policy())
            except SimulatedCrash:
                self.restart()
        raise AssertionError("it dies again and again")

    def _live(
        self,
        workflow: str,
        handlers: Handlers,
        world: ScriptedWorld | Connections,
        prepare: Callable[[Host], None],
        policy: Policy,
    ) -> State:
        self.store.create(workflow, policy)
        host = self.host(handlers, world)
        prepare(host)
        if not host.start(workflow):
            self.now += host.lease_ms
            assert host.start(workflow), "another host drives the workflow"
        for _ in range(200):
            rest = host.drive(workflow)
            state = self.store.load(workflow).state
            if isinstance(rest, Idle) or (rest.reason == "nothing_due" and state.run is None):
                return state
            assert isinstance(rest, Wait)
            self.now = max(self.now, rest.until)
        raise AssertionError("it does not come to rest")


def assert_invariants(store: Store, workflow: str, landed: tuple[Key, ...] = ()) -> None:
    """Step a workflow's journal through the kernel again: every step keeps every invariant, and the store shows it.

    `landed` are the inputs of the calls that took effect, once for each time.
    """
    loaded, version = store.load(workflow), 0
    state = new_workflow(workflow, loaded.state.policy)
    while page := store.transitions(workflow, version):
        for version, _, command, _ in page:
            outcome = step(state, command)
            assert isinstance(outcome, Accepted), f"transition {version}: the kernel refuses {command}: {outcome}"
            broken = check_step(Step(state, command, outcome, outcome.state))
            assert not broken, f"transition {version}, {type(command).__name__}: {'; '.join(map(str, broken))}"
            state = outcome.state
    assert loaded.state._replace(events=()) == state._replace(events=()), "the store shows what its journal does not"
    twice = check_step(Step(state, command, outcome, state), Ghost(landed)) if version and landed else ()
    assert not twice, "; ".join(map(str, twice))


# --- pytest --------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(store='memory:'): repeat the test once for each point at which a process may die"
    )


@pytest.fixture
def crashes(request: pytest.FixtureRequest) -> Crashes:
    """The points that this test passes; with `crash_everywhere` it dies at one of them."""
    made = Crashes(vars(request.node).get(DIE_AT, 0))
    vars(request.node)[PASSED] = made
    return made


@pytest.fixture
def crashing_store(request: pytest.FixtureRequest, crashes: Crashes, tmp_path: Path) -> Iterator[CrashingStore]:
    """A store that dies where `crashes` says, and can be opened again."""
    marker = request.node.get_closest_marker(MARKER)
    url = (marker.kwargs if marker else {}).get("store", "memory:")
    place = url if url.startswith(("memory:", "postgresql:")) or not url.endswith(":") else f"{url}{tmp_path / 'store'}"
    store = CrashingStore(place, crashes)
    yield store
    store.store.drop()


@pytest.fixture
def scripted_world() -> type[ScriptedWorld]:
    """Makes worlds: `scripted_world("silent", "applied")`."""
    return ScriptedWorld


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test once without a death, and then once for each point that it passed."""
    if item.get_closest_marker(MARKER) is None:
        return None
    from _pytest.runner import runtestprotocol

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    point, points = 0, 0
    while True:
        vars(item)[DIE_AT] = point
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        crashes: Crashes | None = vars(item).get(PASSED)
        points = points or (len(crashes.passed) if crashes is not None else 0)
        if any(not report.passed for report in reports) or point >= min(points, POINTS_MAX):
            break
        point += 1
    for report in reports:
        died = f"at point {point} of {points}: {crashes.died}" if crashes is not None and crashes.died else "nowhere"
        if report.failed:
            report.sections.append(("where it died", died))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


__all__ = ["Crashes", "CrashingStore", "ScriptedWorld", "assert_invariants"]
