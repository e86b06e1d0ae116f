"""The service around hosts: its threads, locks and wake-ups, with every switch between two threads chosen.

Workflows and scripts are as plain as can be. What is drawn is who moves when: lanes, people who publish and command,
a host that dies or stalls, a store that is away. Whenever all threads sleep, nothing may be left that one of them
should do.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from ...adapters import service as services
from ...adapters.host import Grain, Host, Said, at_once
from ...adapters.memory import MemoryStore
from ...adapters.service import BREAKS_MAX, Lane, Service, shared
from ...kernel import commands as c
from ...kernel import gate
from ...kernel.policy import Policy, backoff_ms
from ...kernel.ports import Change, DamagedStore, Disconnected, Store
from ...kernel.respond import Answer, Finished, Pinned
from ...kernel.schedule import Idle, Wait
from ...kernel.types import CallHandler, Declaration, Key, Publication, Rejected, State
from .. import law
from .choices import Choices
from .life import Broken, Coverage, Life, shown
from .loom import Loom, Strand

TAKE: Final = Declaration("take", "consumer", ("mail",))
LEASE_MS: Final = 4_000
LATE_MS: Final = 2
"""So much after its time a thread may wake."""
WAKES_MAX: Final = 500
"""So often time passes at most until all is at rest."""
HOST: Final = "host"
OTHER: Final = "another host"


class Bug(Exception):
    """What breaks in a host."""


class Line:
    """The store as threads see it: whoever is in a call may be overtaken there, and must be alone all the same."""

    def __init__(self, store: Store, life: "ServiceLife") -> None:
        self._store = store
        self._life = life
        self._inside = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def alone(*args: Any, **options: Any) -> Any:
            life = self._life
            if self._inside:
                life.note(Broken("HOST", f"two threads are in the store at once: {name}"))
            self._inside = True
            try:
                life.loom.pause()
                life.trouble_of(args)
                return method(*args, **options)
            finally:
                self._inside = False

        self.__dict__[name] = alone
        return alone


class Asked(NamedTuple):
    """What a person has asked for, and was told."""

    workflow: str
    command: c.Command
    said: Said


class ServiceLife(Life):
    """A life of one or two workflows in a service."""

    def __init__(self, choices: Choices, coverage: Coverage) -> None:
        super().__init__(coverage)
        self.choices = choices
        self.loom = Loom(choices, self.now, choices.of((20, 5, 50)))
        self.names = ("one", "two")[: 1 + choices.number(2)]
        self.grain: Grain = choices.of(("coalesced", "fine"))
        every = (self.a_script_is_slow, self.a_bug, self.an_outage, self.another_takes_over, self.it_is_stopped)
        self.troubles = choices.some(every, 40)
        """What there is at all in this life: where all goes wrong at once, little can be told apart."""
        self.places = ExitStack()
        self.ids = 0
        self.asked: list[Asked] = []
        self.waiting: list[tuple[str, c.Command]] = []
        """Who waits for an answer now."""
        self.slow = self.bugs = self.outages = 0
        self.at_work_until = 0
        """Until when a script takes its time."""
        self.away: Counter[str] = Counter()
        """How often the store was away for each since it was seen at rest."""
        self.damaged: str = ""
        self.breaks: Counter[str] = Counter()
        """What broke in each since it was seen at rest."""
        self.taken: set[str] = set()
        """What another host has driven since then."""
        self.late: dict[str, int | None] = {}
        """Threads that time went by, and until when they slept then."""
        self.noted: Broken | None = None

    def tell(self, actor: str, text: str) -> None:
        self.now = self.loom.now
        super().tell(actor, text)

    def hear(self, workflow: str, text: str) -> None:
        self.tell(workflow, text.splitlines()[-1])
        waits = re.match(r"broke off, and begins again in (\d+) s: the store is away", text)
        longest_ms = backoff_ms(self.away[workflow], *services.BEGIN_AGAIN_MS)
        if waits and int(waits[1]) * 1_000 > longest_ms:
            self.note(Broken("HOST", f"{workflow} waits {waits[1]} s after {self.away[workflow]} outages in a row"))

    def note(self, trouble: Broken) -> None:
        """Remember what is wrong: no thread is asked to let it through."""
        self.noted = self.noted or trouble

    def fresh(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    def start(self) -> None:
        self.places.enter_context(patch.object(services, "threading", self.loom))
        self.raw = MemoryStore(lambda: self.loom.now)
        line: Any = Line(self.raw, self)
        self.store = shared(line, self.watch)
        for name in self.names:
            self.raw.create(name, Policy(backoff_base_ms=1_000))
            for command in (c.Deploy(0, "v0", ("mail",), (TAKE,)), c.Resume(0)):
                self.host("people", self.raw).submit(name, at_once(command), leased=False)
        self.begin()

    def begin(self) -> None:
        """A service of a process that has just begun."""
        self.left = {gate.active(self.raw.load(name).state) for name in self.names}
        self.service = Service({name: self.host(HOST, self.store) for name in self.names}, self.submit, self.hear)
        self.service.start()

    def host(self, name: str, store: Store) -> Host:
        return Host(
            store, self, self, name=name, fresh_id=self.fresh, clock=self.raw.now, lease_ms=LEASE_MS, grain=self.grain
        )

    def close(self) -> None:
        self.loom.unravel()
        self.places.close()

    # -- what the service asks of others

    def watch(self, change: Change) -> None:
        if self.raw.load(change.workflow).version < change.version:
            self.note(Broken("HOST", f"{change.workflow} is woken before there is anything for it"))
        self.service.wake(change.workflow)

    def submit(self, workflow: str, command: c.Command) -> Said:
        said = self.host("people", self.store).submit(workflow, at_once(command), leased=False)
        assert said is not None
        return said

    def trouble_of(self, args: tuple[Any, ...]) -> None:
        """A store that is away is so for lanes; people try again by themselves."""
        who, _, workflow = (self.loom.moving.name if self.loom.moving is not None else "").partition(" ")
        lane = who == "keepkernel"
        if lane and self.outages:
            self.outages -= 1
            self.away[workflow] += 1
            raise Disconnected("the store is away")
        if lane and self.damaged and self.damaged in args:
            raise DamagedStore("it is broken")

    def call(self, state: State, effect: CallHandler) -> Answer:
        slow, self.slow = self.slow, 0
        self.at_work_until = max(self.at_work_until, self.loom.now + 1_000 * slow)
        self.loom.pause(lambda: False, slow)
        if self.bugs:
            self.bugs -= 1
            self.breaks[state.workflow] += 1
            raise Bug(f"{effect.function} of {state.workflow}")
        if effect.function == "prepare":
            return Pinned(tuple(event.key for event in state.events if event.status == "pending")[:1])
        return Finished()

    def send(self, effect: object) -> Answer:
        raise AssertionError("nothing is sent")

    reconcile = send

    # -- what happens

    def happens(self) -> None:
        self.choices.weighted((
            (6, self.somebody_publishes), (4, self.somebody_commands), (4, self.time_passes), (4, self.all_sleep),
            *((3, trouble) for trouble in self.troubles),
        ))()  # fmt: skip
        for _ in range(self.choices.number(40)):
            self.loom.step()
        self.look()

    def somebody_publishes(self) -> None:
        name = self.fresh()
        self.person(self.choices.of(self.names), c.Publish(0, Publication(Key("mail", name), name, "null")), 0)

    def somebody_commands(self) -> None:
        """One that is refused while a run is active, or one that never is."""
        deploy = c.Deploy(0, f"v{self.fresh()}", ("mail",), (TAKE,))
        commands: tuple[c.Command, ...] = (deploy, c.Grant(0, "notes.add"))
        self.person(self.choices.of(self.names), self.choices.of(commands), self.choices.of((0, 1, 30)))

    def person(self, workflow: str, command: c.Command, patience_s: int) -> None:
        def asks() -> None:
            began = self.loom.now
            self.waiting.append((workflow, command))
            said = self.service.submit(workflow, command, patience_s)
            self.waiting.remove((workflow, command))
            self.tell("person", f"hears from {workflow}: {type(said.outcome).__name__}")
            self.coverage.saw(said.command, said.outcome)
            self.asked.append(Asked(workflow, command, said))
            if services.refused_for_now(said) and self.loom.now < began + patience_s * 1_000:
                self.note(Broken("HOST", f"{workflow} refuses {shown(command)}, though the person would wait"))

        self.tell("person", f"asks {workflow} within {patience_s} s: {shown(command)}")
        self.loom.Thread(asks, "person").start()

    def time_passes(self) -> None:
        """As long as somebody wants to sleep, or less; who could move is late."""
        until = self.loom.next_time()
        if until is not None and until > self.loom.now:
            self.pass_to(self.choices.of((until, (self.loom.now + until) // 2)))
        self.tell("time", "passes")

    def pass_to(self, until: int) -> None:
        """Whoever was about to sleep for so long sleeps too long by as much: no thread can help that."""
        self.late |= {strand.name: None for strand in self.loom.strands if strand.can_move}
        self.loom.now = until

    def is_late(self, strand: Strand) -> bool:
        """Whether it sleeps as it has when time went by it."""
        if strand.name in self.late and self.late[strand.name] in (None, strand.until):
            self.late[strand.name] = strand.until
            return True
        return False

    def all_sleep(self) -> None:
        self.loom.settle()
        self.look()
        for name, lane in self.service.lanes.items():
            self.judge(name, lane)

    def a_script_is_slow(self) -> None:
        self.slow = self.choices.of((1, 20))
        self.tell("script", f"will take {self.slow} s")

    def a_bug(self) -> None:
        self.bugs = 1
        self.tell("host", "will break in its next call")

    def an_outage(self) -> None:
        self.outages = self.choices.of((1, 8))
        self.tell("store", f"will be away for {self.outages} calls")

    def another_takes_over(self) -> None:
        """All of this process stalls, until another one may drive."""
        self.pass_to(self.loom.now + LEASE_MS + 1)
        name = self.choices.of(self.names)
        if self.raw.lease(name, OTHER, self.choices.of((1, 20_000))) is not None:
            self.taken.add(name)
            self.tell(OTHER, f"drives {name}")

    def it_is_stopped(self) -> None:
        """And another process begins."""
        self.stop()
        self.begin()

    # -- what must be so

    def look(self) -> None:
        if self.noted is not None:
            raise self.noted

    def judge(self, name: str, lane: Lane) -> None:
        """While all sleep, nothing is left undone."""
        state, now = self.raw.load(name).state, self.loom.now
        if not lane.running:
            raise Broken("HOST", f"nobody drives {name} any more")
        blocked = state.error is not None and (state.error.kind, state.error.cause) == ("blocked", "host")
        if blocked and self.breaks[name] < BREAKS_MAX:
            raise Broken("HOST", f"{name} is blocked, and not much has broken since it was at rest")
        if lane.standing.at not in ("rest", "wait"):
            return
        if not blocked:
            self.breaks[name] = 0
        self.away[name] = 0
        self.taken.discard(name)
        waits = [command for workflow, command in self.waiting if workflow == name]
        if waits and gate.active(state) is None:
            raise Broken("HOST", f"{name} is at rest, and nobody does this: {shown(waits[0])}")
        strand = next(one for one in self.loom.strands if one.name.endswith(f" {name}"))
        wakes = math.inf if strand.until is None else strand.until
        if self.is_late(strand) or wakes <= now + LATE_MS:
            return
        for plan in (law.planned(state, now, "new"), law.owed(state, now)):
            if not isinstance(plan, Wait | Idle):
                raise Broken("HOST", f"{name} is at rest, and should do this: {plan!r:.200}")
            if isinstance(plan, Wait) and wakes > plan.until + LATE_MS:
                raise Broken("HOST", f"{name} sleeps beyond its time")

    def all_rest(self) -> bool:
        return all(lane.standing.at == "rest" for lane in self.service.lanes.values())

    def until(self, over: Callable[[], bool], what: str) -> None:
        """Let time pass until something is so."""
        for _ in range(WAKES_MAX):
            self.loom.settle()
            self.look()
            if over():
                return
            later = self.loom.next_time()
            if later is None:
                break
            self.loom.now = max(self.loom.now, later)
        raise Broken("LIVE", f"{what} never comes")

    def stop(self) -> None:
        """Nobody is in the middle of anything when it has stopped."""
        self.tell("person", "stops the service")
        stopped: list[int] = []
        began = self.loom.now

        def ends() -> None:
            self.service.stop(float("inf"))
            stopped.append(self.loom.now)

        self.loom.Thread(ends, "stop").start()
        self.until(lambda: bool(stopped) and not self.waiting, "the end of the service")
        if stopped[0] > max(began, self.at_work_until) + LATE_MS:
            raise Broken("HOST", f"it takes {stopped[0] - began} ms to stop, and no script is at work so long")
        for name, lane in self.service.lanes.items():
            if lane.running:
                raise Broken("HOST", f"{name} goes on after its end")
            in_hand = gate.active(self.raw.load(name).state) not in (None, *self.left)
            if in_hand and lane.standing.at == "work" and name not in self.taken:
                raise Broken("HOST", f"{name} was stopped in the middle of a run")

    def finish(self) -> None:
        """Nothing goes wrong any more: all that was published is consumed, and who waits for that hears of it."""
        self.bugs = self.outages = 0
        self.until(self.all_rest, "rest")
        for name in self.names:
            self.person(name, c.Retry(0), 60)  # What broke too often was blocked.
        self.until(lambda: not self.waiting, "an answer for everybody")
        waits = self.loom.Thread(lambda: self.service.wait(until_idle=True), "wait")
        waits.start()
        self.until(lambda: waits.done and self.all_rest(), "rest")
        self.all_sleep()
        for name in self.names:
            self.judge_end(name)
        self.damaged = self.names[0]
        self.service.wake(self.damaged)
        self.until(lambda: not self.service.lanes[self.damaged].running, "the end of what is damaged")
        self.stop()

    def judge_end(self, name: str) -> None:
        events = self.raw.events(name, limit=10_000)
        said = [one for one in self.asked if one.workflow == name]
        published = {one.command.publication.key for one in said if isinstance(one.command, c.Publish)}
        if {event.key for event in events if event.status == "consumed"} != published:
            raise Broken("LIVE", f"{name} leaves something undone: {[e.status for e in events]}")
        done = [one.command for one in self.raw.transitions(name, limit=100_000)]
        for one in said:
            there = one.command._replace(now=0) in [command._replace(now=0) for command in done]
            if there == isinstance(one.said.outcome, Rejected) and isinstance(one.command, c.Deploy):
                raise Broken(
                    "HOST", f"{shown(one.command)} was {'refused, and' if there else 'accepted, and not'} done"
                )
