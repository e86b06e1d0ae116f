"""Kernel and store: the same commands go to the store and to an account of what it must hold, crash by crash.

The account is kept by a kernel that sees every event there ever was; the store shows each command its own window. Both
must come to the same, after every step and after every recovery. The store dies at any of its points, is opened anew,
gets changes twice, gets changes that are too late, and is asked for its lists in pages of any size.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeVar
from unittest.mock import patch

from ...adapters.points import SimulatedCrash
from ...kernel import commands as c
from ...kernel.policy import Policy
from ...kernel.ports import (
    Change,
    Conflict,
    Lease,
    LeaseLost,
    Loaded,
    Store,
    StoreFull,
    Transition,
    UnknownWorkflow,
    change_of,
)
from ...kernel.step import step
from ...kernel.types import Accepted, Event, Key, Mutation, Outcome, Run, Session, State, new_workflow
from ...kernel.window import named
from ..law import differences
from ..lives import Place
from .choices import Choices
from .kernel import KernelLife
from .life import Broken, Coverage, shown
from .places import ALL, new_place
from .plans import ODD_TEXTS, WORKFLOW, publication

T = TypeVar("T")
NOBODY: Final = Lease("", "", 0, 0)
LEASES_END: Final = ("duckdb",)
"""Stores that one process keeps to itself: its leases end with it."""
FOLDING: Final = {"duckdb": "keepkernel.adapters.duckdb"}
"""Stores that rewrite their tables now and then, and where to find how much they read at once."""
SHARED: Final = ("sqlite", "postgresql")
"""Stores that several processes may open."""
NEIGHBOUR: Final = "w2/ü%"
"""Another workflow in the same store, with events of the same names."""


class Account:
    """What a store must hold of one workflow."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.version = 0
        self.runs: list[tuple[int, Run]] = []
        self.mutations: list[tuple[int, Mutation]] = []
        self.sessions: list[tuple[int, Session]] = []
        self.transitions: list[Transition] = []

    def add(self, command: c.Command, accepted: Accepted) -> None:
        self.version += 1
        self.state = accepted.state
        self.transitions.append(Transition(self.version, command.now, command, accepted.rules))
        run, mutation, session = accepted.retired
        self.runs += [(self.version, run)] if run is not None else []
        self.mutations += [(self.version, mutation)] if mutation is not None else []
        self.sessions += [(self.version, session)] if session is not None else []

    @property
    def events(self) -> list[Event]:
        return sorted(self.state.events, key=lambda event: event.seq)


class StoreLife(KernelLife):
    """A life of the kernel in a store."""

    texts = ODD_TEXTS  # The border of the sandbox lets only whole characters pass, and stores keep no others.

    def __init__(self, choices: Choices, coverage: Coverage, url: str = ALL) -> None:
        super().__init__(choices, coverage)
        self.places = ExitStack()
        self.url = url
        self.lives = 0
        self.clock = 1_000_000
        self.die_in = self.full_in = self.fold_after = 0
        self.copy: Place | None = None
        self.beside: Store | None = None
        """The same store as another process has it open."""
        self.overtaken: Loaded | None = None
        """What was so before the last change."""
        self.gathered: list[tuple[c.Command, Accepted]] = []
        self.changes: list[Change] = []
        self.lease = NOBODY
        self.old_leases: list[Lease] = []
        self.own = Account(self.state)
        self.other = Account(new_workflow(NEIGHBOUR, Policy()))

    def start(self) -> None:
        self.place = self.places.enter_context(new_place(self.choices, self.url))
        if self.place.scheme in FOLDING:
            self.fold_after = self.choices.of((1, 3, 2_000))
            module = import_module(FOLDING[self.place.scheme])
            self.places.enter_context(patch.object(module, "PAGE", self.choices.of((1, 3, 256))))
        self.store: Store = self.opened()
        self.places.callback(self.drop)
        for name, its in ((WORKFLOW, self.plan.policy), (NEIGHBOUR, Policy())):
            if not self.store.create(name, its) or self.store.create(name, its):
                raise Broken("STORE", f"{name} is made once, the first time")
        self.neighbour(c.Deploy(self.now, "v1", self.plan.topics, self.plan.handlers))
        for key in self.plan.roots[:2]:
            self.neighbour(c.Publish(self.now, publication(key, "of the neighbour")))
        super().start()

    def close(self) -> None:
        self.places.close()

    def drop(self) -> None:
        if self.beside is not None:
            self.beside.drop()
        self.store.drop()

    def opened(self) -> Store:
        """The store of this place; one that folds does so as often as is drawn."""
        store = self.place.open(self.tick, self.reach)
        if self.fold_after:
            vars(store)["_fold_commits"] = self.fold_after
        return store

    # -- time and death

    def tick(self) -> int:
        return self.clock

    def reach(self, point: str) -> None:
        self.coverage.points[f"{self.place.scheme} {point}"] += 1
        if self.full_in and point.endswith(": before"):
            self.full_in -= 1
            if not self.full_in:
                raise StoreFull("no room")
        if self.die_in:
            self.die_in -= 1
            if not self.die_in:
                self.lives += 1
                self.copy = self.place.copied(self.place.folder.with_name(f"life{self.lives}"))
                raise SimulatedCrash

    def surviving(self, act: Callable[[], T], percent: int) -> T | None:
        """Do something to the store, which may die at any point of it; None when it did."""
        self.die_in = 1 + self.choices.number(8) if self.choices.chance(percent) else 0
        try:
            return act()
        except SimulatedCrash:
            self.reopen(died=True)
            return None
        finally:
            self.die_in = 0

    def reopen(self, *, died: bool) -> None:
        """The next process opens what the last one left."""
        if died:
            self.tell("store", "dies and is opened again")
            self.drop()
            self.place = self.copy or self.place
        else:
            self.tell("store", "is closed and opened again")
            self.store.close()
            if self.beside is not None:
                self.beside.close()
        self.copy = self.beside = None
        if self.place.scheme in LEASES_END:
            self.old_leases += [self.lease] if self.lease.host else []
            self.lease = NOBODY
        self.store = self.opened()

    # -- commands

    def ask(self, command: c.Command) -> Outcome:
        """Ask the kernel about all there is, and about what the store shows, and let the store keep it."""
        self.clock = max(self.clock, self.now)
        outcome = super().ask(command)
        if not self.gathered:
            loaded = self.store.load(WORKFLOW, command)
            self.check_loaded(loaded, self.own, command)
            self.check_alike(outcome, step(loaded.state, command), command)
        else:
            loaded = Loaded(self.own.state, self.own.version)
        if not isinstance(outcome, Accepted):
            return outcome
        self.gathered.append((command, outcome))
        if not self.choices.chance(25):
            self.flush(loaded)
        return outcome

    def flush(self, loaded: Loaded | None = None) -> None:
        """Let the store write what was gathered, in one change."""
        if not self.gathered:
            return
        steps, self.gathered = self.gathered, []
        base = Loaded(self.own.state, self.own.version)
        if loaded is not None and len(steps) == 1:  # As a host does: from what the store showed, and no more.
            accepted = step(loaded.state, steps[0][0])
            assert isinstance(accepted, Accepted)
            change = change_of(self.fresh(), loaded, (steps[0][0], accepted))
        else:
            change = change_of(self.fresh(), base, *steps)
        self.overtaken = base
        self.write(change, self.own, steps)

    def write(self, change: Change, account: Account, steps: list[tuple[c.Command, Accepted]]) -> None:
        lease = self.lease if self.lease.host and change.workflow == WORKFLOW else None
        version = self.surviving(lambda: self.store.commit(change, lease), 10 if self.plan.has("crash") else 3)
        if version is None:
            held = self.store.load(change.workflow).version
            if held not in (account.version, change.version):
                raise Broken("STORE", f"after a death during a commit the version is {held}, not all or nothing")
            if held == account.version:
                self.check(account)
            version = self.store.commit(change)  # The same change again: done once, whatever was done before.
        for command, accepted in steps:
            account.add(command, accepted)
        if version != account.version:
            raise Broken("STORE", f"a commit gives version {version}, not {account.version}")
        self.changes.append(change)
        if self.choices.chance(20):
            self.check(account)

    def neighbour(self, command: c.Command) -> None:
        """Something happens to the other workflow, at a time that the store's clock has reached (HOST-004)."""
        self.clock = max(self.clock, self.now)
        loaded = self.store.load(NEIGHBOUR, command)
        self.check_loaded(loaded, self.other, command)
        whole, seen = step(self.other.state, command), step(loaded.state, command)
        self.check_alike(whole, seen, command)
        if isinstance(whole, Accepted) and isinstance(seen, Accepted):
            change = change_of(self.fresh(), loaded, (command, seen))
            if self.place.scheme in SHARED and self.choices.chance(50) and self.has_no_room(change):
                return
            self.write(change, self.other, [(command, whole)])

    def has_no_room(self, change: Change) -> bool:
        """The disk is full in the middle of a change, and then another process writes something else: no half of it."""
        self.full_in = 1 + self.choices.number(4)
        try:
            self.store.commit(change)
        except StoreFull:
            self.tell("store", "has no room for a change of the neighbour")
        else:
            for done in change.done:
                accepted = step(self.other.state, done.command)
                assert isinstance(accepted, Accepted)
                self.other.add(done.command, accepted)
            return True
        finally:
            self.full_in = 0
        if self.choices.chance(50):  # Whoever looks at once may be put right by that.
            self.check(self.other)
        self.change_process()
        grant = c.Grant(self.now, "mail.send", self.choices.of(("ask", "always")))
        accepted = step(self.other.state, grant)
        assert isinstance(accepted, Accepted)
        loaded = self.store.load(NEIGHBOUR, grant)
        self.write(change_of(self.fresh(), loaded, (grant, accepted)), self.other, [(grant, accepted)])
        self.change_process()
        self.check(self.other)
        return True

    # -- what else happens to a store

    def happens(self) -> None:
        if self.choices.chance(75):
            super().happens()
            return
        self.flush()
        match self.choices.weighted(
            [(2, "check"), (2, "twice"), (2, "late"), (3, "lease"), (1, "neighbour"), (2, "beside"), (1, "end")]
        ):
            case "check":
                self.check(self.own)
                self.check(self.other)
            case "twice":
                self.commit_again()
            case "late":
                self.commit_too_late()
            case "lease":
                self.change_leases()
            case "neighbour":
                key = self.choices.of(self.plan.roots)
                acts: tuple[c.Command, ...] = (
                    c.Publish(self.now, publication(key, "again")),
                    c.SkipEvent(self.now, key),
                    c.Resume(self.now),
                )
                self.neighbour(self.choices.of(acts))
            case "beside":
                self.change_process()
                self.check(self.own)
            case _:
                self.turn_clock_back()
                self.surviving(lambda: self.reopen(died=False), 20)
                written = max(self.own.transitions[-1].at, self.other.transitions[-1].at)
                if self.store.now() < written:
                    raise Broken("STORE", f"opened again, its time is {self.store.now()}, before {written}")
                self.clock = max(self.clock, self.now)
                self.check(self.own)
                self.check(self.other)

    def turn_clock_back(self) -> None:
        """The machine's clock goes back; the store's must not."""
        before = self.store.now()
        self.clock -= self.choices.of((0, 1, 1_000))
        if self.store.now() < before:
            raise Broken("STORE", f"its time goes back from {before} to {self.store.now()}")

    def change_process(self) -> None:
        """The same store is open twice, and its users take turns."""
        if self.place.scheme in SHARED:
            self.tell("store", "another process works on it")
            if self.choices.chance(30):
                self.turn_clock_back()
            beside = self.beside or self.opened()
            self.store, self.beside = beside, self.store

    def commit_again(self) -> None:
        """A change whose answer was lost comes a second time."""
        if self.changes:
            change = self.choices.of(self.changes[-4:])
            self.tell("host", f"commits change {change.id} again")
            version = self.surviving(lambda: self.store.commit(change), 5)
            if version is not None and version != change.version:
                raise Broken("STORE", f"a change that was there already, up to {change.version}, gives {version}")
            self.check(self.own)

    def commit_too_late(self) -> None:
        """A change that was computed on what is no longer so."""
        own = [change for change in self.changes if change.workflow == WORKFLOW]
        if own:
            change = self.choices.of((*own[-4:], *self.rival()))._replace(id=self.fresh())
            self.tell("host", f"commits a change on version {change.base}, which is over")
            self.refused(Conflict, lambda: self.store.commit(change))
            self.check(self.own)

    def rival(self) -> tuple[Change, ...]:
        """Another change on top of what the last one changed."""
        command = c.Grant(self.now, "mail.send", "ask")
        accepted = step(self.overtaken.state, command) if self.overtaken is not None else None
        if self.overtaken is None or not isinstance(accepted, Accepted):
            return ()
        return (change_of("", self.overtaken, (command, accepted)),)

    def refused(self, kind: type[Exception], act: Callable[[], object]) -> None:
        try:
            done = act()
        except kind:
            return
        raise Broken("STORE", f"it should have raised {kind.__name__}, and gave {done!r:.80}")

    def change_leases(self) -> None:
        """Hosts take, renew, lose and give back the right to drive."""
        held, host = self.lease, self.choices.of(("a", "b"))
        if held.host and self.choices.chance(20):
            self.store.release(held)
            self.old_leases.append(held)
            self.lease = held._replace(host="", expires_at=0)
            self.tell(held.host, "gives its lease back")
            return
        self.clock = max(self.clock, self.now)
        if self.old_leases and self.choices.chance(20):
            self.give_back_too_late()
            host = "a" if held.host == "b" else "b"
        elif held.host and self.choices.chance(30):  # To the tick at which it ends, or just before it.
            self.clock = max(self.clock, held.expires_at - self.choices.of((0, 1)))
        now, ttl = self.store.now(), self.choices.of((100, 1_000))
        over = not held.host or now >= held.expires_at
        given = self.store.lease(WORKFLOW, host, ttl)
        self.tell(host, f"asks for the lease: {given}")
        if host != held.host and not over:
            if given is not None:
                raise Broken("STORE", f"{host} gets the lease of {held.host}, which holds until {held.expires_at}")
            return
        if given is None or given.host != host or given.expires_at < now + ttl:
            raise Broken("STORE", f"{host} should get a lease until {now + ttl}, and gets {given}")
        if (over or host != held.host) and given.token <= held.token:
            raise Broken("STORE", f"{host} takes over with token {given.token}, after {held.token}")
        if not over and given.token != held.token:
            raise Broken("STORE", f"{host} renews its lease and gets another token")
        if given.token != held.token and held.host:
            self.old_leases.append(held)
        self.lease = given
        if self.old_leases and self.choices.chance(50):
            self.commit_without_right()

    def give_back_too_late(self) -> None:
        """Whoever has lost its lease can not give away what another has now."""
        old = self.choices.of(self.old_leases)
        if old.token != self.lease.token:
            self.tell(old.host, "gives back a lease that it has lost")
            self.store.release(old)

    def commit_without_right(self) -> None:
        old = self.choices.of(self.old_leases)
        command = c.Grant(self.now, "mail.send")
        loaded = self.store.load(WORKFLOW, command)
        accepted = step(loaded.state, command)
        if old.token != self.lease.token and isinstance(accepted, Accepted):
            change = change_of(self.fresh(), loaded, (command, accepted))
            self.tell(old.host, "commits under a lease that it has lost")
            self.refused(LeaseLost, lambda: self.store.commit(change, old))
            self.check(self.own)

    def finish(self) -> None:
        self.flush()
        self.lease = NOBODY
        super().finish()
        self.flush()
        self.reopen(died=False)
        self.check(self.own)
        self.check(self.other)
        self.refused(UnknownWorkflow, lambda: self.store.load("nobody"))
        both, store = tuple(sorted((WORKFLOW, NEIGHBOUR))), self.store
        pages = store.workflows(), *(store.workflows(after, 1) for after in ("", *both))
        if pages != (both, both[:1], both[1:], ()):
            raise Broken("STORE", f"it lists {pages}")

    # -- comparing

    def check_alike(self, whole: Outcome, seen: Outcome, command: c.Command) -> None:
        """What the store shows leads to the same as all there is (STEP-003)."""
        if isinstance(whole, Accepted) and isinstance(seen, Accepted):
            rows = differences(seen.state._replace(events=()), whole.state._replace(events=()))
            after = {event.key: event for event in whole.state.events}
            rows += tuple(f"{e}, should be {after.get(e.key)}" for e in seen.state.events if after.get(e.key) != e)
            if rows or seen.effects != whole.effects or seen.retired != whole.retired:
                raise Broken("STORE", f"{shown(command)} leads elsewhere on what the store shows", rows)
        elif whole != seen:
            raise Broken("STORE", f"{shown(command)}: {seen!r:.200} on what the store shows, else {whole!r:.200}")

    def check_loaded(self, loaded: Loaded, account: Account, command: c.Command | None) -> None:
        state = account.state
        if loaded.version != account.version:
            raise Broken("STORE", f"it is at version {loaded.version}, not {account.version}")
        if account.transitions and self.store.now() < account.transitions[-1].at:
            raise Broken("STORE", f"its time is {self.store.now()}, and it holds what happened after that")
        rows = differences(loaded.state._replace(events=()), state._replace(events=()))
        if rows:
            raise Broken("STORE", "its state is another than was committed", rows)
        shows = {event.key: event for event in loaded.state.events}
        rows = tuple(f"{e}, should be {k}" for e in shows.values() if (k := event_of(account, e.key)) != e)
        missing = [key for key in wanted(account, command) if key not in shows]
        if rows or missing or len(shows) < len(loaded.state.events):
            raise Broken("STORE", f"its window is wrong, {missing} is missing", rows)

    def peek(self, name: str, topic: str, limit: int, after: int) -> tuple[Event, ...]:
        return self.store.peek(name, topic, limit, after)

    def check(self, account: Account) -> None:
        """Everything that the store tells of a workflow, in pages of any size."""
        if self.gathered and account is self.own:
            return
        store, name, limit = self.store, account.state.workflow, self.choices.of((100, 1, 2, 7))
        self.check_loaded(store.load(name), account, None)
        events, state = account.events, account.state
        lists: dict[str, tuple[Callable[[int], tuple[Any, ...]], list[Any], Callable[[Any], int]]] = {
            "events": (lambda after: store.events(name, after, limit), events, lambda event: event.seq),
            "runs": (lambda after: store.runs(name, after, limit), account.runs, lambda row: row[0]),
            "mutations": (lambda after: store.mutations(name, after, limit), account.mutations, lambda row: row[0]),
            "sessions": (lambda after: store.sessions(name, after, limit), account.sessions, lambda row: row[0]),
            "journal": (lambda after: store.transitions(name, after, limit), account.transitions, lambda t: t.version),
        }
        for topic in state.topics:
            pending = [e for e in events if e.key.topic == topic and e.status == "pending"]
            lists[f"pending {topic}"] = (partial(self.peek, name, topic, limit), pending, lambda event: event.seq)
        for what, (page, should_be, place) in lists.items():
            found: list[Any] = []
            while more := page(place(found[-1]) if found else 0):
                found += more
                if len(more) > limit or len(found) > len(should_be):
                    break
            if found != should_be:
                raise Broken("STORE", f"its {what}: {found!r:.300}, should be {should_be!r:.300}")
        for key in (*self.plan.roots, Key("nowhere", "x")):
            if store.get(name, key) != event_of(account, key):
                raise Broken("STORE", f"event {key}: {store.get(name, key)}, should be {event_of(account, key)}")


def event_of(account: Account, key: Key) -> Event | None:
    return next((event for event in account.state.events if event.key == key), None)


def wanted(account: Account, command: c.Command | None) -> list[Key]:
    """What a window must show: what the live run holds, the oldest pending of each topic, what the command names."""
    events = account.events
    keys = [event.key for event in events if event.status == "reserved"]
    for topic in {event.key.topic for event in events}:
        keys += [e.key for e in events if e.key.topic == topic and e.status == "pending"][:1]
    if command is not None:
        keys += [key for key in named(account.state, command) if event_of(account, key) is not None]
    return keys
