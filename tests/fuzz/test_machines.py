"""The machines: they find nothing on the system as it is, find what is broken, shrink it, and play it again."""

import json
from datetime import datetime
from hashlib import sha256
from itertools import count
from pathlib import Path
from random import Random

import pytest
from flow import flow

from keepkernel import Accepted
from keepkernel.adapters.connectors import connections
from keepkernel.adapters.host import Ask, Host, Said
from keepkernel.adapters.memory import MemoryStore
from keepkernel.adapters.service import Lane
from keepkernel.adapters.sqlite import SQLiteStore
from keepkernel.fuzz import law
from keepkernel.fuzz.commands import WrongUsage, replay
from keepkernel.fuzz.machines import kernel as kernel_machine
from keepkernel.fuzz.machines import levels
from keepkernel.fuzz.machines.choices import Choices, by_chance, recorded
from keepkernel.fuzz.machines.host import HostLife
from keepkernel.fuzz.machines.kernel import KernelLife
from keepkernel.fuzz.machines.kinds import EVERYTHING, LIVED
from keepkernel.fuzz.machines.levels import LEVELS, Level, Trace, beginning
from keepkernel.fuzz.machines.life import Broken, Coverage
from keepkernel.fuzz.machines.machine import Failure, Watcher, run, scout
from keepkernel.fuzz.machines.values import COURSE
from keepkernel.fuzz.unreached import HARDLY_LIVED, NEVER_LIVED
from keepkernel.kernel import commands as c
from keepkernel.kernel import events, gate, ledger, people, policy, reasons, recover, respond, step
from keepkernel.kernel.failures import classify
from keepkernel.kernel.ports import Change, Lease, Loaded
from keepkernel.kernel.respond import Happened
from keepkernel.kernel.schedule import Idle, Wait
from keepkernel.kernel.types import Declaration, Handler, Send, State
from keepkernel.sandbox import handlers
from keepkernel.sandbox.handlers import Performer
from keepkernel.spec.variants import Swap, swapped

LIVES = {"kernel": 120, "store": 6, "host": 25, "service": 60}


def lived(level: Level, lives: int, steps: int = 60, store: str = "all") -> Watcher:
    """So many lives by chance."""
    watcher = Watcher()
    scout(beginning(level, store), watcher, (f"test/{n}" for n in range(lives)), steps)
    return watcher


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_broken(level: Level) -> None:
    watcher = lived(level, LIVES[level])
    assert watcher.smallest is None, watcher.smallest and levels.told(Trace(level, "all", "", watcher.smallest))
    assert watcher.coverage.examples == LIVES[level]


@pytest.mark.parametrize(("level", "lives"), [("kernel", 1_500), ("store", 1_600), ("host", 1_000)])
def test_lives_come_to_everything_there_is(level: Level, lives: int) -> None:
    """Where nothing ever comes, a fault can sit for ever. What a host is refused inside, its journal does not tell."""
    saw = lived(level, lives, store="memory:").coverage
    assert {*saw.kinds} <= LIVED
    missed = LIVED - saw.kinds.keys() - HARDLY_LIVED.keys()
    assert {kind for kind in missed if level == "kernel" or not kind.startswith("refusal")} == set()
    if level == "kernel":
        assert len(saw.rules) > 58
        assert len(saw.states) > 500


def test_what_lives_are_excused_for_has_a_name_and_a_reason() -> None:
    assert NEVER_LIVED.keys() | HARDLY_LIVED.keys() <= EVERYTHING
    assert all((NEVER_LIVED | HARDLY_LIVED).values())


def test_a_host_dies_at_points_of_every_kind() -> None:
    points = lived("host", 25, store="memory:").coverage.points
    expected = ("commit", "CallHandler", "Send", "script", "target", "recover")
    assert all(any(point.startswith(kind) for point in points) for kind in expected)


def test_a_host_that_woke_too_late_may_say_itself_that_it_did_not_call() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    life = HostLife(recorded([]), Coverage())
    life.now = sent.state.mutation.send_by + life.lag
    early, late = life.now, life.now + 1
    assert not life.has_a_source(sent.state, c.FailMutation(early, sent.run.id, "call"))
    life.now = late
    assert life.has_a_source(sent.state, c.FailMutation(late, sent.run.id, "call"))
    life.called.add(sent.state.mutation.key)
    assert not life.has_a_source(sent.state, c.FailMutation(late, sent.run.id, "call"))


def test_only_a_tool_of_theirs_is_asked_of_the_connections() -> None:
    life = HostLife(recorded([]), Coverage())
    life.is_connected = True
    for tool in ("", "sheets.append"):
        life.hear(Send("r1", tool, "1", "w/r1", life.now), Happened("2"))
    assert life.trouble is None
    life.hear(Send("r1", "sheets.append", "1", "w/r1", life.now - life.lag - 1), Happened("2"))  # It is too late.
    assert life.trouble is not None


def test_a_failure_that_proves_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    life = KernelLife(recorded([]), Coverage())
    life.classes("timeout")
    monkeypatch.setattr(kernel_machine, "classify", lambda failure, **how: classify(failure, sent=False))
    with pytest.raises(Broken, match="timeout, sent: True, declared: False, is certain: True"):
        life.classes("timeout")


# --- what is broken is found ---------------------------------------------------------------------------


def nobody_may_start(state: State, now: int) -> str:
    return "" if gate.active(state) is None else "run_active"


def unsorted_release(state: State) -> State:
    """Gives back one event, and forgets the others."""
    held = [e for e in state.events if e.status == "reserved"]
    return state._replace(
        events=tuple(e._replace(status="pending", owner="") if e in held[:1] else e for e in state.events)
    )


def too_long(now: int, deadline_ms: int, policy: object) -> tuple[int, int]:
    return now + 1, now + 1


BROKEN = {
    "a gate that is open": Swap(gate.closed, nobody_may_start),
    "a release of one": Swap(events.release, unsorted_release),
    "a window that is short": Swap(ledger.send_window, too_long),
}


def found(swap: Swap) -> tuple[Watcher, Failure]:
    with swapped(swap):
        watcher = Watcher(shrink_seconds=1)
        begin = beginning("kernel")
        name = scout(begin, watcher, (f"test/{n}" for n in count()))
        failure = run(begin, watcher, number=1, examples=3, scout=name)
    assert failure is not None
    return watcher, failure


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_found_and_the_life_made_smaller(name: str) -> None:
    watcher, failure = found(BROKEN[name])
    assert watcher.first is not None
    assert failure.size <= watcher.first.size
    with swapped(BROKEN[name]):
        again = levels.live_again("kernel", failure.steps, failure.choices)
    assert again is not None
    assert (again.what, again.story) == (failure.what, failure.story)
    assert levels.live_again("kernel", failure.steps, failure.choices) is None


def test_a_kernel_that_raises_is_found() -> None:
    def stumbles(state: State, command: c.Begin) -> Accepted:
        raise KeyError("no such phase")

    from keepkernel.kernel import runs

    _, failure = found(Swap(runs.begin, stumbles))
    assert failure.what == "LAW"
    assert "KeyError" in failure.text


def first_found(level: Level, store: str = "all") -> Failure:
    """The first failure of lives by chance, however many that takes."""
    watcher = Watcher()
    scout(beginning(level, store), watcher, (f"test/{n}" for n in count()))
    assert watcher.first is not None
    return watcher.first


def test_what_a_host_says_is_held_against_what_it_owes() -> None:
    with swapped(Swap(respond.fitting, lambda state, result: result)):
        assert "a host should say (ApplyMutation" in first_found("kernel").text


def plain_key(workflow: str, run: str) -> str:
    return f"{workflow}/{run}"


def at_the_limit(policy: policy.Policy, *texts: str) -> None:
    reasons.require(all(len(text) < policy.json_max_chars for text in texts), "too_large")


def any_cron_is_kept(row: Handler | None, declared: Declaration, now: int) -> Handler:
    same = row is not None and row.declared.interval_ms == declared.interval_ms
    return REAL_DEPLOYED(row._replace(declared=declared) if row is not None and same else row, declared, now)


def asks_when_it_was_due(state: State, command: c.TryAgain) -> Accepted:
    accepted = REAL_TRY_AGAIN(state, command)
    due = state.mutation.next_attempt_at
    return accepted._replace(
        state=accepted.state._replace(mutation=accepted.state.mutation._replace(next_attempt_at=due))
    )


REAL_DEPLOYED, REAL_TRY_AGAIN = people.deployed, ledger.try_again
CORNERS = {
    "a name that is not escaped": Swap(ledger.idempotency_key, plain_key),
    "a text as long as may be is refused": Swap(events.require_size, at_the_limit),
    "another cron schedule is no other": Swap(people.deployed, any_cron_is_kept),
    "who asks once more waits": Swap(ledger.try_again, asks_when_it_was_due),
    "orphans that nobody sees": Swap(recover.orphans, lambda state: ()),
}


@pytest.mark.parametrize("name", CORNERS)
def test_lives_come_into_corners(name: str) -> None:
    with swapped(CORNERS[name]):
        assert first_found("kernel").what == "LAW"


def test_a_host_that_goes_on_with_what_it_had_in_hand_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit_on_what_it_has(self: Host, workflow: str, ask: Ask, *, leased: bool = True) -> Said | None:
        self.flush(workflow)
        return self._take(workflow, ask, wait=False, leased=leased)

    monkeypatch.setattr(Host, "submit", submit_on_what_it_has)
    assert first_found("host", "memory:").what in ("HOST", "LAW")


def test_what_a_script_says_of_times_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            handlers, "wake_time", lambda text: int(datetime.fromisoformat(text[:23] + "Z").timestamp() * 1000)
        )
        assert "wake_at" in first_found("host", "memory:").text
    real = handlers.cron_after
    monkeypatch.setattr(handlers, "cron_after", lambda expression, time_ms: real(expression, time_ms) + 60_000)
    assert "due_at" in first_found("host", "memory:").text


def test_a_store_that_forgets_other_processes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SQLiteStore._load

    def stale(self: SQLiteStore, workflow: str, command: c.Command | None) -> Loaded:
        seen = self._heads.get(workflow)
        loaded = real(self, workflow, command)
        return loaded if seen is None else loaded._replace(state=seen[1]._replace(events=loaded.state.events))

    monkeypatch.setattr(SQLiteStore, "_load", stale)
    assert first_found("store", "sqlite:").what == "STORE"


def test_a_lease_that_anybody_gives_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryStore.release

    def release(self: MemoryStore, lease: Lease) -> None:
        real(self, self._rows[lease.workflow].lease)

    monkeypatch.setattr(MemoryStore, "release", release)
    assert "lease" in first_found("store", "memory:").text


def test_connections_that_take_any_refusal_for_certain_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "classify", lambda failure, **how: classify(failure, sent=False))
    assert first_found("host", "memory:").what == "CONNECTOR"


def test_a_digest_that_stumbles_over_half_a_character_is_found() -> None:
    def whole_only(tool: str, params: str) -> str:
        return sha256(f"{tool}\n{params}".encode()).hexdigest()

    with swapped(Swap(ledger.digest, whole_only)):
        assert "UnicodeEncodeError" in first_found("kernel").text


def test_a_list_of_workflows_that_begins_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(self: MemoryStore, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return tuple(name for name in sorted(self._rows) if name >= after)[:limit]

    monkeypatch.setattr(MemoryStore, "workflows", again)
    assert "it lists" in first_found("store", "memory:").text


def test_an_end_that_is_not_durable_at_once_is_found() -> None:
    real = respond.may_wait
    with swapped(Swap(real, lambda command: isinstance(command, c.EndRun) or real(command))):
        assert "it went on before this was durable: end_run" in first_found("host", "memory:").text


def test_a_bell_that_is_only_rung_for_those_who_sleep_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is about to sleep does not hear it."""

    def wake(self: Lane) -> None:
        if self.standing.at != "work":
            self._woken.set()

    monkeypatch.setattr(Lane, "wake", wake)
    assert "is at rest, and should do this" in first_found("service").text


def test_a_host_that_sleeps_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Host._look_around

    def a_tick_more(self: Host, workflow: str) -> Wait | Idle | None:
        rest = real(self, workflow)
        return rest._replace(until=rest.until + 1) if isinstance(rest, Wait) else rest

    monkeypatch.setattr(Host, "_look_around", a_tick_more)
    assert "it rests with" in first_found("host", "memory:").text


def test_a_script_that_gets_other_events_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Performer.get
    monkeypatch.setattr(Performer, "get", lambda self, topic, ids: real(self, topic, ids)[:1])
    assert first_found("host", "memory:").what == "SANDBOX"


@pytest.mark.campaign  # The solver gives up by the clock, so that a slow machine may need longer.
def test_a_solver_finds_the_one_value_that_is_wrong() -> None:
    clamp = policy.clamp_wake
    with swapped(Swap(clamp, lambda wake_at, now, limits: clamp(wake_at, now, limits) + (wake_at == 77_777))):
        watcher = Watcher(shrink_seconds=1)
        failure = run(beginning("values"), watcher, number=1, examples=400, steps=len(COURSE), backend="crosshair")
    assert failure is not None
    assert failure.what == "LAW"
    assert 77_777 in failure.choices


def test_a_store_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from keepkernel.adapters.memory import MemoryStore

    commit = MemoryStore.commit

    def forgetful(self: MemoryStore, change: Change, lease: Lease | None = None) -> int:
        return commit(self, change._replace(events=change.events[:1]), lease)

    monkeypatch.setattr(MemoryStore, "commit", forgetful)
    watcher = lived("store", 50, store="memory:")
    assert watcher.first is not None
    assert watcher.first.what == "STORE"


def test_a_host_that_calls_too_soon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from keepkernel.adapters.host import Host

    monkeypatch.setattr(Host, "_made_durable", lambda self, workflow, effects, leased: True)
    watcher = lived("host", 50, store="memory:")
    assert watcher.first is not None
    assert watcher.first.what == "HOST"


def test_what_goes_in_circles_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from keepkernel.adapters.host import Host
    from keepkernel.fuzz.machines import machine

    def circles(self: Host, workflow: str) -> None:
        while True:
            """Nothing ever comes of it."""

    monkeypatch.setattr(machine, "HANGS_SECONDS", 0.2)
    monkeypatch.setattr(Host, "turn", circles)
    watcher = lived("host", 50, store="memory:")
    assert watcher.first is not None
    assert "in circles" in watcher.first.text


def test_a_sandbox_that_lets_everything_pass_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from keepkernel.fuzz.machines.host import HostLife
    from keepkernel.sandbox import bridge

    class InSandbox(HostLife):
        def __init__(self, choices: Choices, coverage: Coverage) -> None:
            super().__init__(choices, coverage, "memory:")
            self.in_sandbox = True

    watcher = Watcher()
    scout(InSandbox, watcher, (f"test/{n}" for n in range(4)))
    assert watcher.first is None
    monkeypatch.setattr(bridge, "allowed", lambda function, operation, made=(): True)
    scout(InSandbox, watcher, (f"test/{n}" for n in range(200)))
    assert watcher.first is not None


# --- the law a second time -----------------------------------------------------------------------------


def test_the_law_names_every_objection() -> None:
    from keepkernel import new_workflow

    draft = new_workflow("w")
    meant = law.expected(draft, c.CreateRun(0, "", "s1", "nobody"))
    assert meant.reasons == {"workflow_not_active", "session_unknown", "id_empty", "handler_unknown"}
    outcome = step.step(draft, c.CreateRun(0, "", "s1", "nobody"))
    assert not isinstance(outcome, Accepted)
    assert outcome.reason in meant.reasons


# --- choices -------------------------------------------------------------------------------------------


def test_choices_are_played_again() -> None:
    first = by_chance(Random(1))
    made = [first.number(7), first.of("abc"), first.weighted([(1, "x"), (5, "y")]), first.chance(50), first.number(1)]
    second = recorded(first.taken)
    again = [second.number(7), second.of("abc"), second.weighted([(1, "x"), (5, "y")]), second.chance(50)]
    assert again == made[:4]
    assert second.number(9) == 0, "where the list ends, the plainest"


def test_a_life_is_the_same_for_the_same_choices() -> None:
    stories = []
    for _ in range(2):
        life = beginning("kernel")(by_chance(Random(5)), Coverage())
        life.start()
        for _ in range(30):
            life.happens()
        stories.append(list(life.story))
    assert stories[0] == stories[1]


# --- files ---------------------------------------------------------------------------------------------


def test_a_failure_is_written_read_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swap = BROKEN["a release of one"]
    _, failure = found(swap)
    trace = Trace("kernel", "all", "", failure)
    path = tmp_path / "life.json"
    path.write_text(json.dumps(levels.to_json(trace), indent=1))
    assert levels.from_json(json.loads(path.read_text())).failure.choices == failure.choices
    assert replay(path, with_reading=False) == 1
    assert "it breaks nothing here" in capsys.readouterr().out
    with swapped(swap):
        assert replay(path, with_reading=False) == 0
        namespace: dict[str, object] = {}
        exec(levels.as_test(trace), namespace)
        test = namespace[f"test_{trace.name.replace('-', '_')}"]
        assert callable(test)
        with pytest.raises(AssertionError, match=failure.what):
            test()
    test()


@pytest.mark.parametrize("change", [{"level": "moon"}, {"choices": ["x"]}, {"choices": [-1]}, {"steps": None}])
def test_a_file_that_is_no_life_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    life = {"format": levels.FORMAT, "level": "kernel", "store": "all", "fault": "", "breaks": "", "text": ""}
    path = tmp_path / "life.json"
    path.write_text(json.dumps({**life, "steps": 1, "choices": [], "story": [], **change}, indent=1))
    with pytest.raises(WrongUsage, match="not a trace of the fuzzer"):
        replay(path, with_reading=False)
