"""Several workflows in one process, with plain functions as handlers."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from keepkernel.adapters import service as services
from keepkernel.adapters.clock import wall_clock_ms
from keepkernel.adapters.host import Grain, Host, Said, at_once
from keepkernel.adapters.memory import MemoryStore
from keepkernel.adapters.service import LOOK_EVERY_S, Service, shared
from keepkernel.fuzz.machines.choices import recorded
from keepkernel.fuzz.machines.loom import Loom, Strand
from keepkernel.kernel.commands import Command, Deploy, Pause, Publish, Resume
from keepkernel.kernel.policy import Policy
from keepkernel.kernel.ports import Change, DamagedStore, Disconnected, Loaded, Store, StoreStopped
from keepkernel.kernel.respond import Answer, Failed, Finished, Pinned
from keepkernel.kernel.schedule import Idle, Wait
from keepkernel.kernel.types import Accepted, CallHandler, Declaration, Key, Publication, Rejected, State

LONG_S = 60.0
TAKE = Declaration("take", "consumer", ("mail",))
Prepare = Callable[[State], Answer]


def mail(name: str) -> Publication:
    return Publication(Key("mail", name), name, "null")


def first(state: State) -> Answer:
    """Take the oldest event."""
    return Pinned(tuple(e.key for e in state.events if e.status == "pending")[:1])


class Functions:
    """Handlers as functions by workflow, and no connectors."""

    def __init__(self) -> None:
        self.prepares: dict[str, Prepare] = {}
        self.nexts: dict[str, Callable[[], Answer]] = {}

    def call(self, state: State, effect: CallHandler) -> Answer:
        if effect.function == "prepare":
            return self.prepares.get(state.workflow, first)(state)
        return self.nexts.get(state.workflow, Finished)()

    def send(self, effect: object) -> Answer:
        raise AssertionError("nothing is sent")

    reconcile = send


class World:
    """A service on a store in memory."""

    def __init__(
        self,
        *workflows: str,
        look_every_s: float = 3_600,
        policy: Policy = Policy(),  # noqa: B008 - an immutable value
        grain: Grain = "coalesced",
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.told: list[tuple[str, str]] = []
        self.functions = Functions()
        self.memory = MemoryStore(clock)
        self.store: Store = shared(self.memory, lambda change: self.service.wake(change.workflow))
        self.ids = count()
        self.grain = grain
        self.hosts = {name: self.host("host") for name in workflows}
        self.service = Service(self.hosts, self.submit, lambda *told: self.told.append(told), look_every_s=look_every_s)
        for name in workflows:
            self.memory.create(name, policy)
            for command in (Deploy(0, "1", ("mail",), (TAKE,)), Resume(0)):
                self.service.submit(name, command, 0)

    def host(self, name: str) -> Host:
        def fresh_id() -> str:
            return f"id{next(self.ids)}"

        parts = (self.store, self.functions, self.functions)
        return Host(*parts, name=name, fresh_id=fresh_id, clock=self.store.now, grain=self.grain)

    def submit(self, workflow: str, command: Command) -> Said:
        said = self.host("people").submit(workflow, at_once(command), leased=False)
        assert said is not None
        return said

    def publish(self, workflow: str, name: str) -> None:
        self.service.submit(workflow, Publish(0, mail(name)), 0)

    def statuses(self, workflow: str) -> list[str]:
        return [event.status for event in self.store.events(workflow, limit=100_000)]


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def blocked() -> Iterator[tuple[Prepare, threading.Event, threading.Event]]:
    """A prepare that is slow, with the news that it began, and the way to let it end."""
    began, go_on = threading.Event(), threading.Event()

    def prepare(state: State) -> Answer:
        began.set()
        assert go_on.wait(LONG_S)
        return first(state)

    yield prepare, began, go_on
    go_on.set()


Blocked = tuple[Prepare, threading.Event, threading.Event]


def test_a_slow_workflow_stops_no_other(blocked: Blocked) -> None:
    prepare, began, go_on = blocked
    world = World("slow", "quick")
    world.functions.prepares["slow"] = prepare
    world.publish("slow", "s1")
    world.publish("quick", "q1")
    world.service.start()
    assert began.wait(LONG_S)
    eventually(lambda: world.statuses("quick") == ["consumed"])
    world.publish("quick", "q2")
    eventually(lambda: world.statuses("quick") == ["consumed", "consumed"])
    assert world.statuses("slow") == ["pending"]
    go_on.set()
    world.service.wait(until_idle=True)
    assert world.statuses("slow") == ["consumed"]
    assert world.service.stop(LONG_S)


def test_a_workflow_that_never_rests_does_not_starve_another() -> None:
    world = World("busy", "other")
    world.functions.nexts["busy"] = lambda: Finished(publications=(mail(f"b{next(world.ids)}"),))
    world.publish("busy", "b")
    world.service.start()
    for number in range(3):
        world.publish("other", f"o{number}")
        eventually(lambda number=number: world.statuses("other") == ["consumed"] * (number + 1))
    before = len(world.statuses("busy"))
    eventually(lambda: len(world.statuses("busy")) > before)
    assert world.service.stop(LONG_S)


def test_what_is_published_in_an_idle_host_is_taken_at_once() -> None:
    world = World("w", look_every_s=3_600)
    world.service.start()
    world.service.wait(until_idle=True)
    world.publish("w", "m1")
    eventually(lambda: world.statuses("w") == ["consumed"])
    world.service.wait(until_idle=True)
    assert world.service.stop(LONG_S)


def test_an_idle_host_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("w")
    turns = []
    turn = world.hosts["w"].turn
    monkeypatch.setattr(world.hosts["w"], "turn", lambda name: (turns.append(name), turn(name))[1])
    world.service.start()
    world.service.wait(until_idle=True)
    before = len(turns)
    time.sleep(0.3)
    assert len(turns) <= before + 1
    assert world.service.stop(LONG_S)


def test_until_idle_waits_for_what_is_tried_again() -> None:
    world = World("w", policy=Policy(backoff_base_ms=2_000))
    failures = iter([Failed("network", "gone")])
    world.functions.prepares["w"] = lambda state: next(failures, None) or first(state)
    world.publish("w", "m1")
    world.service.start()
    world.service.wait(until_idle=True)
    assert world.statuses("w") == ["consumed"]
    assert len(world.told) == 1
    assert re.fullmatch(r"waits \d s after a failure, and tries again", world.told[0][1])
    assert world.service.stop(LONG_S)


def test_a_command_that_is_refused_during_a_run_is_done_after_it(blocked: Blocked) -> None:
    prepare, began, go_on = blocked
    world = World("w", grain="fine")
    world.functions.prepares["w"] = prepare
    world.publish("w", "m1")
    world.service.start()
    assert began.wait(LONG_S)
    deploy = Deploy(0, "2", ("mail", "more"), (TAKE,))
    impatient = world.service.submit("w", deploy, 0.01).outcome
    assert isinstance(impatient, Rejected)
    assert impatient.reason == "run_active"
    patient = []
    waiting = threading.Thread(target=lambda: patient.append(world.service.submit("w", deploy, LONG_S)))
    waiting.start()
    assert isinstance(world.service.submit("w", Pause(0), 0).outcome, Accepted)
    go_on.set()
    waiting.join(LONG_S)
    assert isinstance(patient[0].outcome, Accepted)
    assert world.store.load("w").state.version == "2"
    assert world.service.stop(LONG_S)


def test_whatever_breaks_is_taken_up_by_the_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "BEGIN_AGAIN_MS", (1, 1))
    world = World("w", policy=Policy(backoff_base_ms=1), grain="fine")
    bugs = iter([ZeroDivisionError("a bug")])

    def prepare(state: State) -> Answer:
        if bug := next(bugs, None):
            raise bug
        return first(state)

    world.functions.prepares["w"] = prepare
    world.publish("w", "m1")
    world.service.start()
    eventually(lambda: world.statuses("w") == ["consumed"])
    assert [run.status for _, run in world.store.runs("w")][:2] == ["crashed", "committed"]
    assert "ZeroDivisionError: a bug" in world.told[0][1]
    assert world.service.stop(LONG_S)


@pytest.mark.parametrize(("grain", "cause", "crashes"), [("fine", "transient", 3), ("coalesced", "host", 0)])
def test_a_bug_that_stays_stops_its_workflow(
    monkeypatch: pytest.MonkeyPatch, grain: Grain, cause: str, crashes: int
) -> None:
    """Runs that are durable are counted by the kernel; those that left no trace, by the service."""
    monkeypatch.setattr(services, "BEGIN_AGAIN_MS", (1, 1))
    world = World("w", "other", policy=Policy(backoff_base_ms=1, transient_retries=2), grain=grain)

    def prepare(state: State) -> Answer:
        raise ZeroDivisionError("a bug")

    world.functions.prepares["w"] = prepare
    world.publish("w", "m1")
    world.publish("other", "o1")
    world.service.start()
    world.service.wait(until_idle=True)
    error = world.store.load("w").state.error
    assert error is not None
    assert (error.kind, error.cause) == ("blocked", cause)
    assert [run.status for _, run in world.store.runs("w")] == ["crashed"] * crashes
    assert world.statuses("other") == ["consumed"]
    assert world.service.stop(LONG_S)


def test_a_store_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "BEGIN_AGAIN_MS", (1, 1))
    world = World("w")
    away = iter([Disconnected("the server is gone")] * 20)
    turn = world.hosts["w"].turn

    def trying(name: str) -> Wait | Idle | None:
        if trouble := next(away, None):
            raise trouble
        return turn(name)

    monkeypatch.setattr(world.hosts["w"], "turn", trying)
    world.publish("w", "m1")
    world.service.start()
    world.service.wait(until_idle=True)
    assert world.statuses("w") == ["consumed"]
    assert [text for _, text in world.told] == ["broke off, and begins again in 0 s: the server is gone"] * 20
    assert world.service.stop(LONG_S)


@pytest.mark.parametrize("trouble", [DamagedStore, StoreStopped])
def test_a_store_that_can_not_go_on_ends_the_service(trouble: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("w")

    def turn(name: str) -> None:
        raise trouble("it is broken")

    monkeypatch.setattr(world.hosts["w"], "turn", turn)
    world.service.start()
    world.service.wait(until_idle=False)
    assert str(world.service.lanes["w"].hopeless) == "it is broken"
    assert world.service.stop(LONG_S)


def test_whoever_waited_for_another_host_is_told_when_it_drives() -> None:
    world = World("w", look_every_s=0.01)
    other = world.host("other")
    assert other.start("w")
    begun: list[str] = []
    service = Service(world.hosts, world.submit, lambda *told: None, begun.append, look_every_s=0.01)
    service.start()
    eventually(lambda: service.lanes["w"].standing.at == "elsewhere")
    assert begun == []
    lease = world.store.lease("w", "other", 1)
    assert lease is not None
    world.store.release(lease)
    eventually(lambda: begun == ["w"])
    assert service.stop(LONG_S)


def test_stopping_lets_the_run_in_hand_come_to_its_end(blocked: Blocked) -> None:
    prepare, began, go_on = blocked
    world = World("w")
    world.functions.prepares["w"] = prepare
    world.publish("w", "m1")
    world.publish("w", "m2")
    world.service.start()
    assert began.wait(LONG_S)
    assert not world.service.stop(0.01)
    go_on.set()
    assert world.service.stop(LONG_S)
    assert world.statuses("w") == ["consumed", "pending"]
    assert world.store.load("w").state.run is None


def test_a_workflow_that_another_host_drives_is_left_alone() -> None:
    world = World("w", look_every_s=0.01)
    lease = world.store.lease("w", "another", 3_600_000)
    assert lease is not None
    world.publish("w", "m1")
    world.service.start()
    world.service.wait(until_idle=True)
    assert world.service.lanes["w"].standing.at == "elsewhere"
    assert world.statuses("w") == ["pending"]
    world.store.release(lease)
    eventually(lambda: world.statuses("w") == ["consumed"])
    assert world.service.stop(LONG_S)


# --- with threads whose every switch is chosen, and time that passes when it is told to --------------


@pytest.fixture
def loom(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loom]:
    loom = woven(monkeypatch)
    yield loom
    loom.unravel()


def woven(monkeypatch: pytest.MonkeyPatch) -> Loom:
    """One thread goes on until it sleeps, and then the next; whatever else is done is done in between."""
    loom = Loom(recorded([]), 1_000_000, 0)
    monkeypatch.setattr(services, "threading", loom)
    return loom


def world_of(loom: Loom, *workflows: str, grain: Grain = "coalesced") -> World:
    world = World(*workflows, look_every_s=LOOK_EVERY_S, grain=grain, clock=lambda: loom.now)
    world.service.start()
    return world


def time_passes(loom: Loom, seconds: float) -> None:
    loom.settle()
    loom.now += int(seconds * 1_000)
    loom.settle()


def asking(loom: Loom, world: World, command: Command, patience_s: float) -> list[Said]:
    """A person who asks for something; the answer will be in the list."""
    said: list[Said] = []
    loom.Thread(lambda: said.append(world.service.submit("w", command, patience_s)), "person").start()
    return said


def test_whenever_something_is_published_it_is_taken_without_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every point at which the thread of a workflow can be overtaken, from its start to its first sleep."""
    for point in count():
        loom = woven(monkeypatch)
        world = world_of(loom, "w")
        asleep = not all(loom.step() for _ in range(point))
        world.publish("w", "m1")
        loom.settle()
        statuses = world.statuses("w")
        loom.unravel()
        assert statuses == ["consumed"], f"published at point {point}"
        if asleep:
            assert point > 5
            return


def test_who_hears_of_a_change_finds_it_in_the_store() -> None:
    world = World("w")
    heard: list[tuple[int, int]] = []

    def watch(change: Change) -> None:
        heard.append((change.version, world.memory.load(change.workflow).version))

    world.store = shared(world.memory, watch)
    world.publish("w", "m1")
    assert heard == [(3, 3)]


def test_a_store_is_used_by_one_thread_at_a_time(loom: Loom) -> None:
    class Slow(MemoryStore):
        inside: list[str]

        def load(self, workflow: str, command: Command | None = None) -> Loaded:
            self.inside.append(workflow)
            loom.pause()
            return super().load(workflow, command)

    slow = Slow()
    slow.inside = []
    store = shared(slow, lambda change: None)
    slow.create("w", Policy())
    one, two = (Strand(loom, lambda: store.load("w"), name) for name in "12")
    one.start()
    two.start()
    while not slow.inside:
        one.move()
    for _ in range(10):
        if two.can_move:
            two.move()
    assert slow.inside == ["w"]
    loom.settle()
    assert slow.inside == ["w", "w"]


def test_a_lease_that_is_lost_is_taken_again_when_it_is_free(loom: Loom) -> None:
    world = world_of(loom, "w")
    time_passes(loom, 3_600)  # All of this process was stopped.
    loom.now += 3_600_000
    assert world.memory.lease("w", "another", 60_000) is not None
    world.publish("w", "m1")
    loom.settle()
    assert world.service.lanes["w"].standing.at == "elsewhere"
    assert world.statuses("w") == ["pending"]
    time_passes(loom, 60)
    assert world.statuses("w") == ["consumed"]
    assert world.service.lanes["w"].running


def test_what_broke_long_ago_does_not_count(loom: Loom) -> None:
    """Five bugs in a row stop a workflow; many, one now and then, do not."""
    world = world_of(loom, "w")
    bugs: list[ZeroDivisionError] = []

    def prepare(state: State) -> Answer:
        if bugs:
            raise bugs.pop()
        return first(state)

    world.functions.prepares["w"] = prepare
    for number in range(2 * services.BREAKS_MAX):
        bugs.append(ZeroDivisionError("now and then"))
        world.publish("w", f"m{number}")
        time_passes(loom, 1)
        assert world.statuses("w") == ["consumed"] * (number + 1)
    assert len(world.told) == 2 * services.BREAKS_MAX
    assert all("begins again in 1 s" in text for _, text in world.told)


def busy_for(loom: Loom, world: World, seconds: float) -> None:
    """A run of so many seconds has begun, and the store shows it."""

    def prepare(state: State) -> Answer:
        loom.pause(lambda: False, seconds)
        return first(state)

    world.functions.prepares["w"] = prepare
    world.publish("w", "m1")
    loom.settle()


NEWER = Deploy(0, "2", ("mail", "more"), (TAKE,))


def test_a_command_is_not_done_after_its_caller_gave_up(loom: Loom) -> None:
    world = world_of(loom, "w", grain="fine")
    busy_for(loom, world, 20)
    said = asking(loom, world, NEWER, 5)
    time_passes(loom, 5)
    assert isinstance(said[0].outcome, Rejected)
    time_passes(loom, 60)
    assert world.statuses("w") == ["consumed"]
    assert world.store.load("w").state.version == "1"


def test_whoever_gives_up_while_it_is_done_hears_what_came_of_it(loom: Loom, monkeypatch: pytest.MonkeyPatch) -> None:
    """Done and refused, or not done and accepted, is never the answer."""
    world = world_of(loom, "w", grain="fine")
    submit = world.hosts["w"].submit

    def slowly(*question: Any, **options: Any) -> Said | None:
        said = submit(*question, **options)
        loom.pause(lambda: False, 10)
        return said

    monkeypatch.setattr(world.hosts["w"], "submit", slowly)
    busy_for(loom, world, 20)
    said = asking(loom, world, NEWER, 25)
    for _ in range(60):
        time_passes(loom, 1)
    assert isinstance(said[0].outcome, Accepted)
    assert world.store.load("w").state.version == "2"


def test_a_command_that_breaks_when_it_is_tried_is_tried_again(loom: Loom, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(loom, "w", grain="fine")
    busy_for(loom, world, 20)
    said = asking(loom, world, NEWER, 60)
    loom.settle()
    submit = world.hosts["w"].submit
    away = iter([Disconnected("the store is away")])

    def trying(*question: Any, **options: Any) -> Said | None:
        if trouble := next(away, None):
            raise trouble
        return submit(*question, **options)

    monkeypatch.setattr(world.hosts["w"], "submit", trying)
    for _ in range(30):
        time_passes(loom, 1)
    assert isinstance(said[0].outcome, Accepted)
