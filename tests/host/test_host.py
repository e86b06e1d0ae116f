"""The host: which steps share a commit, and what happens when others commit in between."""

from collections.abc import Callable
from itertools import count

import pytest
from flow import FILE, START, TELL, TOOL, TOPICS, done

from keepkernel import (
    ApplyMutation,
    CallHandler,
    Deploy,
    Grant,
    Idle,
    Key,
    Pause,
    Policy,
    Publication,
    Publish,
    Reconcile,
    Resume,
    Send,
    SkipEvent,
    State,
)
from keepkernel.adapters.host import Grain, Host, at_once
from keepkernel.adapters.memory import MemoryStore
from keepkernel.kernel.ports import Change, Done, Lease, LeaseLost, StoreFull
from keepkernel.kernel.respond import Answer, Called, Failed, Finished, Happened, Pinned
from keepkernel.kernel.types import Repair, Retired

Interruption = Callable[["World"], None]


class Counting(MemoryStore):
    """Remembers every change that was committed."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.changes: list[Change] = []
        self.full = False

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        if self.full:
            raise StoreFull("no room")
        version = super().commit(change, lease)
        self.changes.append(change)
        return version


class World:
    """A workflow whose handlers file mail, its target, and whoever else is about."""

    def __init__(self, grain: Grain = "coalesced", lease_ms: int = 600_000, mails: int = 1) -> None:
        self.now = START
        self.store = Counting(lambda: self.now)
        self.calls: list[tuple[str, str]] = []
        self.sent: list[Send] = []
        self.answers: dict[str, Answer] = {}
        """What a function gives instead of what it gives else."""
        self.meanwhile: dict[str, list[Interruption]] = {}
        """What others do while a function runs, or a call is made: each time one thing."""
        self._ids = count()
        self.host = self.another_host("one", grain, lease_ms)
        self.store.create("w", Policy())
        for command in (Deploy(0, "v1", TOPICS, (FILE,)), Grant(0, TOOL), Resume(0)):
            self.person(command)
        for number in range(mails):
            self.person(Publish(0, Publication(Key("mail", f"m{number}"), "Mail", "{}")))
        assert self.host.start("w")

    def another_host(self, name: str, grain: Grain = "coalesced", lease_ms: int = 600_000) -> Host:
        return Host(
            self.store,
            self,
            self,
            name=name,
            fresh_id=lambda: f"{name}{next(self._ids)}",
            clock=lambda: self.now,
            lease_ms=lease_ms,
            grain=grain,
        )

    def person(self, command: object) -> None:
        """A command that comes from another process."""
        said = self.another_host("person").submit("w", at_once(command), leased=False)
        assert said is not None
        assert not hasattr(said.outcome, "reason"), said.outcome

    # -- what the host asks

    def call(self, state: State, effect: CallHandler) -> Answer:
        self.calls.append((effect.function, effect.version))
        run = state.run
        found = self.store.peek("w", "mail", 1)
        self._interrupted(effect.function)
        if effect.function in self.answers:
            return self.answers[effect.function]
        if effect.function == "prepare":
            return Pinned(tuple(event.key for event in found))
        if effect.function == "mutate":
            return Called(TOOL, "{}", True)
        return Finished(None, tuple(done(f"{key.id} done") for key in run.reserved))

    def send(self, effect: Send) -> Answer:
        self.sent.append(effect)
        self._interrupted("send")
        return Happened()

    def reconcile(self, effect: Reconcile) -> Answer:
        raise AssertionError("every call is answered")

    def _interrupted(self, where: str) -> None:
        if self.meanwhile.get(where):
            self.meanwhile[where].pop(0)(self)

    # -- what came of it

    def commands(self) -> list[list[str]]:
        """The names of the commands of each change of the host."""
        return [
            [type(step.command).__name__ for step in change.done]
            for change in self.store.changes
            if change.id.startswith("one")
        ]

    @property
    def statuses(self) -> list[str]:
        return [event.status for event in self.store.events("w") if event.key.topic == "mail"]


RUN = [
    ["StartSession", "CreateRun", "Begin", "Prepared", "Mutating", "RecordMutation", "SendMutation"],
    ["ApplyMutation"],
    ["Emitting", "CommitConsumer"],
]
EMPTY_RUN = ["CreateRun", "Begin", "Prepared", "Emitting", "CommitConsumer"]


@pytest.mark.rule("HOST-011")
def test_a_run_with_a_call_outside_takes_three_commits_and_the_journal_shows_every_command() -> None:
    world = World()
    assert world.host.drive("w") == Idle("nothing_due")
    assert world.commands() == [*RUN, EMPTY_RUN, ["FinishSession"]]
    journal = [type(line.command).__name__ for line in world.store.transitions("w", 4)]
    assert journal == [name for change in world.commands() for name in change]
    assert world.statuses == ["consumed"]


@pytest.mark.rule("HOST-011")
def test_in_fine_grain_every_command_is_a_commit() -> None:
    world, other = World("fine"), World()
    for each in (world, other):
        each.host.drive("w")
    assert [name for change in world.commands() for name in change] == [n for c in other.commands() for n in c]
    assert all(len(change) == 1 for change in world.commands())


@pytest.mark.rule("HOST-001")
def test_what_is_sent_is_durable_before_and_what_was_answered_right_after() -> None:
    world = World()
    seen: list[str] = []
    world.meanwhile["send"] = [lambda w: seen.append(w.store.load("w").state.mutation.status)]
    world.meanwhile["next"] = [lambda w: seen.append(w.store.load("w").state.mutation.status)]
    world.host.drive("w")
    assert seen == ["in_flight", "applied"]


@pytest.mark.rule("HOST-011")
def test_a_host_that_waits_holds_nothing_back() -> None:
    world = World()
    while world.host.turn("w") is None:
        """Work."""
    before = world.store.load("w")
    assert world.host.flush("w")
    assert world.store.load("w") == before
    assert before.state.session is None


@pytest.mark.rule("HOST-008")
@pytest.mark.rule("USER-002")
def test_a_script_is_not_blamed_for_the_event_that_a_person_skipped_while_it_prepared() -> None:
    world = World()
    world.meanwhile["prepare"] = [lambda w: w.person(SkipEvent(0, Key("mail", "m0")))]
    world.host.drive("w")
    assert world.statuses == ["skipped"]
    assert world.sent == []
    assert [run.status for _, run in world.store.runs("w")] == ["committed"]
    assert world.store.load("w").state.maintenance is None


@pytest.mark.rule("HOST-008")
@pytest.mark.rule("RUN-009")
def test_a_version_that_is_deployed_while_a_script_prepares_prepares_anew() -> None:
    world = World()
    world.meanwhile["prepare"] = [lambda w: w.person(Deploy(0, "v2", TOPICS, (FILE, TELL)))]
    world.host.drive("w")
    dropped, *calls = [("prepare", "v1"), ("mutate", "v1")], *world.calls[2:5]
    assert world.calls[:2] == dropped
    assert calls == [("prepare", "v2"), ("mutate", "v2"), ("next", "v2")]
    assert {run.version for _, run in world.store.runs("w")} == {"v2"}
    assert len(world.sent) == 1


@pytest.mark.rule("HOST-008")
def test_a_pause_while_a_script_prepares_comes_first() -> None:
    world = World()
    world.meanwhile["prepare"] = [lambda w: w.person(Pause(0))]
    assert world.host.drive("w") == Idle("workflow_not_active")
    assert (world.sent, world.store.runs("w"), world.statuses) == ([], (), ["pending"])


@pytest.mark.rule("HOST-011")
def test_nobody_can_throw_a_run_away_for_ever() -> None:
    """Events come in all the time: the second try goes on with single steps, and none of its work is lost."""
    world = World()
    numbers = count(100)

    def publish(w: World) -> None:
        w.person(Publish(0, Publication(Key("mail", f"m{next(numbers)}"), "Mail", "{}")))

    world.meanwhile = {where: [publish] * 3 for where in ("prepare", "mutate", "next", "send")}
    for _ in range(300):
        if world.host.turn("w") is not None:
            break
    assert world.statuses == ["consumed"] * 13
    assert len(world.sent) == 13
    assert [function for function, _ in world.calls].count("prepare") <= 13 + 1 + 4


@pytest.mark.rule("HOST-011")
def test_after_that_run_steps_are_gathered_again() -> None:
    world = World(mails=2)
    world.meanwhile["prepare"] = [lambda w: w.person(Grant(0, "mail.send"))]
    world.host.drive("w")
    first = [name for change in RUN for name in change]
    assert world.commands() == [*([name] for name in first), *_second(RUN), EMPTY_RUN, ["FinishSession"]]


def _second(changes: list[list[str]]) -> list[list[str]]:
    """The same run, in a session that is open already."""
    return [changes[0][1:], *changes[1:]]


@pytest.mark.rule("HOST-008")
def test_the_answer_of_a_call_is_never_thrown_away() -> None:
    world = World()
    world.meanwhile["send"] = [lambda w: w.person(Pause(0))]
    world.host.drive("w")
    assert len(world.sent) == 1
    assert world.statuses == ["consumed"]
    assert ApplyMutation in {type(line.command) for line in world.store.transitions("w")}


def test_a_person_who_uses_the_same_host_comes_after_what_it_holds() -> None:
    world = World()
    while ("prepare", "v1") not in world.calls:
        world.host.turn("w")
    assert world.statuses == ["pending"]
    world.host.submit("w", at_once(Grant(0, "mail.send")))
    assert world.statuses == ["reserved"]
    world.host.drive("w")
    assert world.commands()[0] == RUN[0][:4]
    assert world.statuses == ["consumed"]


def test_what_could_not_be_written_is_forgotten_and_done_again() -> None:
    world = World()
    world.store.full = True
    with pytest.raises(StoreFull):
        world.host.drive("w")
    world.store.full = False
    world.host.drive("w")
    assert world.statuses == ["consumed"]
    assert len(world.sent) == 1


@pytest.mark.rule("HOST-002")
def test_who_sends_holds_the_lease_until_it_is_too_late_to_send() -> None:
    world = World(lease_ms=40_000)
    leases: list[tuple[str, int]] = []

    def look(w: World) -> None:
        assert w.store.lease("w", "two", 10) is None
        w.now = w.sent[0].send_by
        assert w.store.lease("w", "two", 10) is None
        leases.append(("one", w.now))

    def wait(w: World) -> None:
        w.now += 19_000

    world.meanwhile = {"prepare": [wait], "mutate": [wait], "send": [look]}
    world.host.drive("w")
    assert len(leases) == 1
    assert world.statuses == ["consumed"]


@pytest.mark.rule("HOST-008")
def test_who_lost_the_lease_sends_nothing() -> None:
    world = World(lease_ms=1_000)

    def take_over(w: World) -> None:
        w.now += 1_000
        assert w.another_host("two").start("w")

    world.meanwhile["mutate"] = [take_over]
    with pytest.raises(LeaseLost):
        world.host.drive("w")
    assert world.sent == []
    world.another_host("two").drive("w")
    assert (len(world.sent), world.statuses) == (1, ["consumed"])


# --- what a host must not do for ever, and what it must tell --------------------------------------------


@pytest.mark.rule("HOST-006")
def test_a_repair_that_takes_its_time_is_asked_for_once_in_a_life_of_the_host() -> None:
    world = World()
    asked: list[Repair] = []
    world.host.repair = asked.append
    world.answers["prepare"] = Failed("script", "no")
    assert isinstance(world.host.drive("w"), Idle)
    assert [repair.message for repair in asked] == ["no"]
    assert isinstance(world.host.drive("w"), Idle)
    assert len(asked) == 1
    assert world.host.start("w")
    world.host.drive("w")
    assert len(asked) == 2
    world.person(Deploy(0, "v2", TOPICS, (FILE,)))
    world.now += 600_000
    world.host.drive("w")
    assert [repair.message for repair in asked] == ["no", "no", "no"]
    assert asked[2].run != asked[1].run


@pytest.mark.rule("HOST-007")
@pytest.mark.rule("REC-004")
def test_an_event_that_nobody_will_take_is_told_after_a_start() -> None:
    world = World(mails=2)
    state, version = world.store.load("w")
    stray = state.events[0]._replace(status="reserved", owner="ghost")
    done = Done(Resume(START), (), Retired())
    world.store.commit(Change("by a bug", "w", version, (done,), state._replace(events=()), (stray,)))
    assert world.host.start("w")
    error = world.store.load("w").state.error
    assert error is not None
    assert (error.kind, error.cause) == ("blocked", "host")
    assert "mail/m0 by run ghost" in error.message
    assert world.host.drive("w") == Idle("error_stands")
    assert world.statuses == ["reserved", "pending"]
