"""A whole run against a driver at level transitions: the suite, then chance with crashes, then short stories."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from ...kernel import commands as c
from ...kernel.commands import NAMES, Command
from ...kernel.policy import Policy
from ...kernel.step import step
from ...kernel.types import (
    Accepted,
    Author,
    Declaration,
    EndStatus,
    ErrorCause,
    Key,
    Publication,
    State,
    new_workflow,
)
from ...spec import moves
from ..setups import setup
from . import cases, tours, vectors
from .play import Do, Found, Kill, KillDuring, Move, Player, Recover, Script
from .space import Place, Space, deadlines, refused
from .verdict import Divergence

QUICK: Final = "single steps"
"""The part that gets more time than there is, so that a cause is told by its best example."""
GRACE_S: Final = 30.0
"""How much more; a driver that hangs or dies at every step would take an hour."""
CHANCE: Final = 0.2
"""The share of the time that chance gets, however long the suite takes."""
ENOUGH: Final = 40
"""Divergences of one cause after which the kit looks no further for it."""
SHRINK_S: Final = 20.0
TRIES: Final = 3
"""How often a crash is tried again before it counts as one that does not diverge."""


class Cause(NamedTuple):
    """All divergences of one cause, told by the shortest script that shows it."""

    divergence: Divergence
    script: Script
    before: State | None
    times: int
    shrunk: bool
    """No single command can be left out; false when there was no time to find that out."""


class Progress(NamedTuple):
    what: str
    done: int
    of: int


Report = Callable[[Progress], None]


class Suite:
    def __init__(self, player: Player, report: Report, seed: int = 0) -> None:
        self.player = player
        self.report = report
        self.seed = seed
        self.found: dict[tuple[str, str], list[Found]] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.parts: dict[str, int] = {}
        self.until = float("inf")

    # -- the parts

    def run(self, until: float) -> None:
        """The whole suite, then chance until the time is up; a suite that has found something ends then, too."""
        self.until = until
        share = (until - time.monotonic()) * CHANCE
        hello = self.player.up()
        if "load" in hello.supports:
            self.part(QUICK, (Script(state.policy, (Do(command),), state) for state, command in vectors.single_steps()))
        space, walks, _ = tours.walks()
        probed: set[object] = set()
        tour = (with_refusals(space, walk.policy, walk.commands, probed) for walk in walks)
        # The tour has one set-up; these have schedules, budgets, sizes and bad declarations, also without `load`.
        self.part("stories", stories())
        self.part("crashes", crash_scripts(space))
        self.part("crash points", point_scripts(space, len(hello.crash_points)))
        self.part("walks of the tour", tour, len(walks))
        # A slow suite must not take all the time from chance, unless there is enough to tell already.
        self.chance(until if self.found else max(until, time.monotonic() + share))

    def part(self, what: str, scripts: Iterable[Script], of: int = 0) -> None:
        self.parts[what] = 0
        for script in scripts:
            late = time.monotonic() - self.until
            if self.found and late > (GRACE_S if what == QUICK else 0):
                return
            self.report(Progress(what, self.parts[what], of))
            self.play(script)
            self.parts[what] += 1

    def play(self, script: Script) -> None:
        found = self.player.play(script)
        if found is None:
            return
        cause = found.divergence.cause
        self.counts[cause] = self.counts.get(cause, 0) + 1
        kept = self.found.setdefault(cause, [])
        if len(kept) < ENOUGH:
            kept.append(found)

    def chance(self, until: float) -> None:
        chooser = Chooser(random.Random(self.seed))
        walks = 0
        while time.monotonic() < until:
            self.report(Progress("chance, with crashes", walks, 0))
            self.play(chooser.script())
            walks += 1
        self.parts["walks by chance"] = walks

    # -- causes, the worst first

    def causes(self, seconds: float = SHRINK_S) -> list[Cause]:
        made = []
        for cause, kept in self.found.items():
            best = min(kept, key=lambda one: (one.divergence.severity, len(one.script.moves)))
            self.report(Progress(f"shortening: {best.divergence.text}", 0, 0))
            short, shrunk = self.shrunk(best, time.monotonic() + seconds)
            made.append(Cause(short.divergence, short.script, short.before, self.counts[cause], shrunk))
        return sorted(made, key=lambda one: (one.divergence.severity, one.divergence.rule))

    def unshortened(self) -> list[Cause]:
        """The same as far as it is known, when there is no driver or no time left to shorten anything."""
        made = [Cause(*kept[0], self.counts[cause], False) for cause, kept in self.found.items()]
        return sorted(made, key=lambda one: (one.divergence.severity, one.divergence.rule))

    def shrunk(self, found: Found, until: float) -> tuple[Found, bool]:
        """The same cause with as few moves as possible: no single one can be left out."""
        if found.divergence.kind in ("hang", "flood"):
            return found._replace(script=found.script._replace(moves=found.script.moves[-1:])), False
        best = found
        for shortcut in self.shortcuts(found):
            again = self.reproduced(shortcut, found)
            if again is not None and len(again.script.moves) < len(best.script.moves):
                best = again
        size = max(1, len(best.script.moves) // 2)
        while time.monotonic() < until:
            start, smaller = 0, False
            while start < len(best.script.moves) and time.monotonic() < until:
                moves = best.script.moves
                fewer = best.script._replace(moves=(*moves[:start], *moves[start + size :]))
                again = self.reproduced(fewer, found)
                if again is None:
                    start += size
                else:
                    best, smaller = again, True
            if size == 1 and not smaller:
                return best, True
            size = max(1, size // 2) if not smaller or size > 1 else 1
        return best, False

    def reproduced(self, script: Script, found: Found) -> Found | None:
        crashes = any(isinstance(move, KillDuring) for move in script.moves)
        for _ in range(TRIES if crashes else 1):
            again = self.player.play(script)
            if again is not None and again.divergence.cause == found.divergence.cause:
                return again
        return None

    def shortcuts(self, found: Found) -> Iterator[Script]:
        """The shortest way that the checker knows to a state like the one where the two part."""
        last = found.script.moves[-1:]
        if found.before is None or found.script.start is not None or not last or not isinstance(last[0], Do):
            return
        space = tours.walks()[0]
        command = last[0].command
        number = space.number(Place(found.before, command.now, 0))
        known = space.shortest.get(number)
        if known is None:
            return
        place, path = known
        before = found.before
        renamed = rename(command, before, place)
        yield Script(space.policy, tuple(Do(one) for one in (*space.preamble(), *path, renamed)))


def rename(command: Command, before: State, place: Place) -> Command:
    """The command as it would be said of another state that looks the same."""
    names: dict[str, str] = {}
    if before.run is not None and place.state.run is not None:
        names[before.run.id] = place.state.run.id
    if before.session is not None and place.state.session is not None:
        names[before.session.id] = place.state.session.id
    changes: dict[str, Any] = {
        f: names[getattr(command, f)] for f in ("run", "session", "retry_of") if getattr(command, f, "") in names
    }
    return command._replace(**{**changes, "now": place.clock})


# --- scripts -----------------------------------------------------------------------------------------


def with_refusals(space: Space, policy: Policy, commands: tuple[Command, ...], probed: set[object]) -> Script:
    """A walk with everything that is refused in each kind of state, tried once."""
    state = new_workflow("w", policy)
    made: list[Move] = []
    for n, command in enumerate(commands):
        like = moves.likeness(state), passed(state, command.now)
        if n >= len(space.preamble()) and like not in probed:
            probed.add(like)
            made += [Do(one) for one in refused(space, Place(state, command.now, 900_000))]
        made.append(Do(command))
        outcome = step(state, command)
        state = outcome.state if isinstance(outcome, Accepted) else state
    return Script(policy, tuple(made))


def passed(state: State, now: int) -> tuple[bool, ...]:
    """Which deadlines are over; a refusal may depend on them."""
    record = state.mutation
    return (now < state.backoff_until, *((now > record.send_by, now >= record.may_land_until) if record else ()))


def stories() -> Iterator[Script]:
    told = chain(cases.scripts(), ((policy, commands) for _, policy, commands in cases.limits()))
    return (Script(policy, tuple(Do(command) for command in commands)) for policy, commands in told)


def crash_scripts(space: Space) -> Iterator[Script]:
    """A kill at every kind of point, a recovery, another kill, and the recovery again."""
    others = [Space(setup(name)) for name in tours.OTHERS]
    known: set[str] = set()
    yield Script(space.policy, (Kill(),))  # A reset was answered, too.
    for one in (space, *others):
        for where, (place, path) in sorted(tours.crash_points(one).items()):
            if where not in known:
                known.add(where)
                ways = tuple(Do(command) for command in (*one.preamble(), *path))
                ends = (Kill(), Recover(place.clock), Kill(), Recover(place.clock))
                yield Script(one.policy, (*ways, *ends))


def point_scripts(space: Space, points: int) -> Iterator[Script]:
    """The driver dies at each of its own points during each kind of command that the tour has."""
    if not points:
        return
    known: set[type[Command]] = set()
    for place, path in sorted(space.shortest.values(), key=lambda one: len(one[1])):
        if path and type(path[-1]) not in known:
            known.add(type(path[-1]))
            ways = tuple(Do(command) for command in (*space.preamble(), *path[:-1]))
            for point in range(points):
                # What is written after half a line is read only by the start after that.
                ends = (Recover(place.clock), Kill(), Recover(place.clock))
                yield Script(space.policy, (*ways, Do(path[-1], point), *ends))


# --- chance ------------------------------------------------------------------------------------------

POLL: Final = Declaration("poll", "producer", interval_ms=60_000)
FILE: Final = Declaration("file", "consumer", ("mail",), has_mutate=True)
SINK: Final = Declaration("sink", "consumer", ("out",), has_mutate=True)
NOTE: Final = Declaration("note", "consumer", ("log",))
WHOLE: Final = (POLL, FILE, SINK, NOTE)
TOPICS: Final = ("mail", "out", "log")
TOOLS: Final = ("sheets.append", "mail.send")
POLICIES: Final = (
    Policy(),
    Policy(transient_retries=1, logic_failures=2, reconcile_attempts=2, session_runs=3),
    Policy(json_max_chars=40, send_within_ms=100, call_deadline_ms=1, clock_skew_ms=0, wake_min_ms=0),
)


class Chooser:
    """Walks by chance, guided: of some commands that might be sent, one whose like was sent least."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sent: dict[object, int] = {}

    def script(self) -> Script:
        chance = self.chance
        policy = chance.choice(POLICIES)
        state, clock = new_workflow("w", policy), 1
        made: list[Move] = []
        first = (c.Deploy(1, "v1", TOPICS, WHOLE), c.Resume(1), c.Grant(1, TOOLS[0], chance.choice(("always", "ask"))))
        crashing = chance.random() < 0.3
        for n in range(chance.randrange(20, 120)):
            if chance.random() < 0.2:
                ahead = sorted(deadlines(Place(state, clock, 0)))
                clock = chance.choice(ahead) if ahead and chance.random() < 0.7 else clock + chance.randrange(1, 2_000)
            command = first[n] if n < len(first) else self.choose(state, clock, n)
            outcome = step(state, command)
            if crashing and chance.random() < 0.05:
                made += (
                    [Kill(), Recover(clock)]
                    if chance.random() < 0.5
                    else [KillDuring(command, chance.randrange(2_000))]
                )
                return Script(policy, (*made, *([] if isinstance(made[-1], Recover) else [Recover(clock)])))
            made.append(Do(command))
            state = outcome.state if isinstance(outcome, Accepted) else state
        return Script(policy, tuple(made))

    def choose(self, state: State, clock: int, ids: int) -> Command:
        offered = [self.command(state, clock, ids) for _ in range(6)]
        kinds = [(kind(state, one), type(step(state, one))) for one in offered]
        best = min(range(len(offered)), key=lambda n: (self.sent.get(kinds[n], 0), kinds[n][1] is not Accepted))
        self.sent[kinds[best]] = self.sent.get(kinds[best], 0) + 1
        return offered[best]

    def command(self, state: State, clock: int, ids: int) -> Command:
        """Any command, with values that mean something here most of the time."""
        pick = self.chance.choice
        run = state.run.id if state.run is not None and self.chance.random() < 0.95 else "gone"
        session = state.session.id if state.session is not None and self.chance.random() < 0.95 else "closed"
        keys = [e.key for e in state.events]
        topic = pick(TOPICS)
        fresh = Key(topic, f"e{ids}")
        known = pick(keys) if keys else fresh
        row = next((h for h in state.handlers if state.run is not None and h.declared.name == state.run.handler), None)
        mine = [e.key for e in state.events if e.status == "pending" and row and e.key.topic in row.declared.subscribes]
        some = tuple(mine[: self.chance.randrange(3)]) if self.chance.random() < 0.9 else (known, known)[: ids % 3]
        publications = (Publication(pick((fresh, known)), pick(("A title", "B")), pick(('{"n":1}', "[2]"))),)
        name = pick(WHOLE).name
        tool = pick(TOOLS)
        request = state.error.request if state.error is not None else None
        digest = request.digest if request is not None else "none"
        status, cause = pick(ENDS)
        now, new = clock, f"i{ids}"
        made: dict[str, Command] = {
            "start": c.StartSession(now, new), "create": c.CreateRun(now, new, session, name),
            "again": c.CreateRetry(now, new, session, run), "finish": c.FinishSession(now, session),
            "now": c.RunNow(now, name), "begin": c.Begin(now, run),
            "pin": c.Prepared(now, run, some, pick(("null", '{"a":[1]}')), pick(("", "T")), pick((None, now + 40_000))),
            "mutating": c.Mutating(now, run), "mutated": c.Mutated(now, run), "emit": c.Emitting(now, run),
            "commit": c.CommitConsumer(now, run, pick((None, '"s"')), pick(((), publications))),
            "produce": c.CommitProducer(now, run, pick((None, '"s"')), pick(((), publications))),
            "record": c.RecordMutation(now, run, tool, pick(("{}", '{"x":1}')), pick((True, False)), pick((None, 500))),
            "send": c.SendMutation(now, run), "apply": c.ApplyMutation(now, run, pick(AUTHORS), '{"row":1}'),
            "fail": c.FailMutation(now, run, pick(AUTHORS), pick((False, True)), pick((0, now))),
            "lose": c.LoseTrack(now, run),
            "ask": c.ReconcileRetry(now, run, pick(("inline", "reconcile")), pick((False, True))),
            "exhaust": c.Exhaust(now, run, pick((False, True))), "end": c.EndRun(now, run, status, "why", cause, tool),
            "try": c.TryAgain(now, run), "not": c.DidntHappen(now, run), "skip": c.SkipMutation(now, run),
            "did": c.AssertApplied(now, run, '{"row":2}'), "skip event": c.SkipEvent(now, known),
            "approve": c.Approve(now, digest), "reject": c.Reject(now, digest),
            "grant": c.Grant(now, tool, pick(("always", "ask"))), "reconnect": c.Reconnect(now), "pause": c.Pause(now),
            "resume": c.Resume(now), "clear": c.ClearError(now), "retry": c.Retry(now), "abandon": c.Abandon(now, run),
            "deploy": c.Deploy(now, f"v{ids}", TOPICS, WHOLE[: self.chance.randrange(2, 5)]),
            "publish": c.Publish(now, publications[0]), "block": c.BlockWorkflow(now, "stop"),
            "enter": c.EnterMaintenance(now), "leave": c.ExitMaintenance(now),
        }  # fmt: skip
        if self.chance.random() < 0.6:  # Most of the time something that leads on.
            ahead = [one for one in made.values() if isinstance(step(state, one), Accepted)]
            running = [one for one in ahead if getattr(one, "run", "") or isinstance(one, c.StartSession)]
            return (
                pick(running) if running and self.chance.random() < 0.8 else pick(ahead) if ahead else made["publish"]
            )
        return pick(list(made.values()))


AUTHORS: Final[tuple[Author, ...]] = ("call", "inline", "reconcile")
ENDS: Final[tuple[tuple[EndStatus, ErrorCause], ...]] = (
    ("paused:transient", ""), ("paused:reconciliation", ""), ("failed:logic", ""), ("failed:internal", ""),
    ("crashed", ""), ("paused:approval", "auth"), ("paused:approval", "permission"), ("paused:approval", "request"),
)  # fmt: skip


def kind(state: State, command: Command) -> object:
    """What tells one try from another."""
    return NAMES[type(command)], moves.likeness(state)[1:3]
