"""Playing a script to a driver, step by step beside the law, up to the first divergence."""

import time
from collections import Counter
from typing import Any, Final, NamedTuple

from ...kernel.codec import to_plain
from ...kernel.commands import Command, EndRun
from ...kernel.policy import Policy
from ...kernel.recover import recover
from ...kernel.step import step
from ...kernel.types import Accepted, Outcome, Retired, State, new_workflow
from .channel import Channel, GaveUp, Hello, Trouble, Unsupported
from .profile import Profile, Translator
from .rules import blamed, command_name, shown
from .verdict import Divergence, Judge, plain_state

Json = dict[str, Any]

WORKFLOW: Final = "w"
DIED: Final = "the kit pulled the plug"
"""What a driver is to write down at a recovery; a text that no runtime has of its own."""


class Do(NamedTuple):
    """Send one command."""

    command: Command
    crash_at: int = -1
    """The driver's crash point at which it kills itself; -1 for none."""


class Kill(NamedTuple):
    """Kill the driver between two requests, and look what it remembers."""


class KillDuring(NamedTuple):
    """Send a command, kill the driver after a moment, and look whether it was done as a whole or not at all."""

    command: Command
    after_us: int


class Recover(NamedTuple):
    now: int


class Meet(NamedTuple):
    """At level behaviour: what the world does at the next ask."""

    fate: str


Move = Do | Kill | KillDuring | Recover | Meet


class Script(NamedTuple):
    """What is played: from a draft with this policy, or from a state."""

    policy: Policy
    moves: tuple[Move, ...]
    start: State | None = None


class Found(NamedTuple):
    divergence: Divergence
    script: Script
    """The moves up to the divergence."""
    before: State | None
    """On which both agreed."""


class Cut(Exception):
    """The rest of a script can not be played, for a reason that is counted."""


STARTS_MAX: Final = 3
"""After so many starts in a row that fail, the run is over."""
HANGS_MAX: Final = 2
"""After so many hangs at one command it is not sent any more."""


class Player:
    """A driver, the law beside it, and what was seen."""

    def __init__(self, argv: list[str], profile: Profile, patience_s: float, level: str = "transitions") -> None:
        self.channel = Channel(argv, level, patience_s)
        self.profile = profile
        self.judge = Judge(profile)
        self.translator = Translator(profile)
        self.hello: Hello | None = None
        self.rules: Counter[str] = Counter()
        self.commands = 0
        self.crashes = 0
        self.failed_starts = 0
        self.hangs: Counter[str] = Counter()
        self.unsupported: set[str] = set()
        self._kinds: dict[object, tuple[str, ...]] = {}
        self._state: State = new_workflow(WORKFLOW)
        self._unchecked = ""

    # -- process

    def up(self) -> Hello:
        """The driver is running; started if it is not."""
        if self.channel.process is None or self.hello is None:
            self.hello = self.start()
        return self.hello

    def start(self) -> Hello:
        try:
            hello = self.channel.start()
        except Trouble as trouble:
            self.channel.kill()
            self.failed_starts += 1
            if self.hello is None or self.failed_starts >= STARTS_MAX:
                raise GaveUp(trouble.detail) from None
            raise
        self.failed_starts = 0
        return hello

    def again(self) -> None:
        """The driver is killed and started on the same data."""
        self.channel.kill()
        self.crashes += 1
        self.hello = self.start()

    def close(self) -> None:
        self.channel.close()

    # -- scripts

    def play(self, script: Script) -> Found | None:
        """Play a script; the first divergence, or None."""
        played: list[Move] = []
        before: State | None = None
        command = "reset"
        try:
            self.up()
            self.reset(script)
            moves = list(script.moves)
            while moves:
                before = self._state
                taken = self.joined(moves)
                command = name_of(taken[-1])
                played += taken
                del moves[: len(taken)]
                divergence = self.one(taken)
                if divergence is not None:
                    return Found(divergence, script._replace(moves=tuple(played)), before)
            divergence = self.unchanged()
        except Cut as cut:
            self.judge.excuse(str(cut))
            return None
        except Unsupported as what:
            divergence = self.declined(command, str(what))
        except Trouble as trouble:
            divergence = self.misbehaved(trouble, command)
        return None if divergence is None else Found(divergence, script._replace(moves=tuple(played)), before)

    def declined(self, command: str, what: str) -> Divergence | None:
        if command in self.unsupported:
            self.judge.excuse(f"after it was found unsupported: {command}")
            return None
        self.unsupported.add(command)
        return Divergence("unsupported", (), command, f"the driver says that it does not support {what}")

    def misbehaved(self, trouble: Trouble, command: str) -> Divergence:
        """A driver that broke the protocol is started anew, on its data."""
        if trouble.kind == "hang":
            self.hangs[command] += 1
        self.channel.kill()
        return Divergence(trouble.kind, (), command, f"{trouble.detail}, at {command}")

    def reset(self, script: Script) -> None:
        if script.start is not None:
            self.channel.ask("reset", {"state": self.translator.theirs(plain_state(script.start))})
            self._state = script.start
        else:
            policy = self.translator.theirs(to_plain(script.policy))
            self.channel.ask("reset", {"workflow": WORKFLOW, "policy": policy})
            self._state = new_workflow(WORKFLOW, script.policy)
        self._unchecked = ""

    def joined(self, moves: list[Move]) -> list[Move]:
        """The moves that are sent as one: one, unless the profile joins what stands here."""
        first = moves[0]
        if not isinstance(first, Do):
            return [first]
        for steps in self.profile.joined:
            if steps[0] == command_name(first.command):
                taken = moves[: len(steps)]
                names = tuple(command_name(m.command) if isinstance(m, Do) else "" for m in taken)
                if names == steps:
                    self.judge.excuse(f"joined {' + '.join(steps)}")
                    return taken
                if isinstance(step(self._state, first.command), Accepted):
                    raise Cut(f"joined {' + '.join(steps)}: the rest of a trace that takes only a part")
        return [first]

    def one(self, taken: list[Move]) -> Divergence | None:
        move = taken[0]
        match move:
            case Do(command, crash_at) if len(taken) == 1:
                return self.do(command, crash_at)
            case Do():
                return self.do_joined([m.command for m in taken if isinstance(m, Do)])
            case Kill():
                return self.unchanged() or self.kill()
            case KillDuring(command, after_us):
                return self.unchanged() or self.kill_during(command, after_us)
            case Recover(now):
                return self.unchanged() or self.recover(now)
            case Meet():
                raise TypeError("the world is met at level behaviour")

    # -- commands

    def left_out(self, command: Command, law: Outcome) -> bool:
        """Whether a command is not sent; if the law accepts it, nothing after it can be played."""
        name = command_name(command)
        known = self.hello.commands if self.hello is not None else None
        why = ""
        if name in self.profile.commands:
            why = f"scope.commands {name}"
        elif known is not None and name not in known:
            why = f"not among the driver's commands: {name}"
        elif name in self.unsupported:
            why = f"after it was found unsupported: {name}"
        elif self.hangs[name] >= HANGS_MAX:
            why = f"after {HANGS_MAX} hangs: {name}"
        if why and isinstance(law, Accepted):
            raise Cut(why)
        if why:
            self.judge.excuse(why)
        return bool(why)

    def do(self, command: Command, crash_at: int) -> Divergence | None:
        law = step(self._state, command)
        if self.left_out(command, law):
            return None
        if isinstance(law, Accepted):
            divergence = self.unchanged()
            if divergence is not None:
                return divergence
        fields: Json = {"command": self.translator.theirs(to_plain(command))}
        if crash_at >= 0:
            return self.crash_inside(command, law, {**fields, "crash_at": crash_at})
        self.commands += 1
        answer = self.channel.ask("do", fields)
        told = self.translator.ours(answer.get("outcome"))
        return self.settled(command, law, told)

    def settled(self, command: Command, law: Outcome, told: Any) -> Divergence | None:
        """The verdict on an answer; and where things stand then."""
        divergence = self.judge.outcome(self._state, command, law, told)
        if divergence is not None:
            other = self.judge.other_reading(self._state, command, told)
            if other is not None:
                self._state = other
                return None
            if self.judge.out_of_scope(divergence):
                raise Cut(f"scope.rules {divergence.rule}")
            return divergence
        self.count(command, law)
        if isinstance(law, Accepted):
            self._state = law.state
        else:
            self._unchecked = command_name(command)
        return None

    def do_joined(self, commands: list[Command]) -> Divergence | None:
        """Several commands as one step."""
        before, outcomes = self._state, []
        for command in commands:
            outcomes.append(step(before, command))
            last = outcomes[-1]
            if not isinstance(last, Accepted):
                raise Cut(
                    f"joined {' + '.join(map(command_name, commands))}: the rest of a trace that takes only a part"
                )
            before = last.state
        made = [outcome for outcome in outcomes if isinstance(outcome, Accepted)]
        left: Json = {k: v for one in made for k, v in one.retired._asdict().items() if v is not None}
        retired = Retired(**left)
        law = Accepted(
            made[-1].state, sum((m.effects for m in made), ()), sum((m.rules for m in made), ()), retired
        )  # fmt: skip
        self.commands += len(commands)
        answer = self.channel.ask("do", {"commands": [self.translator.theirs(to_plain(one)) for one in commands]})
        return self.settled(commands[-1], law, self.translator.ours(answer.get("outcome")))

    def count(self, command: Command, law: Outcome) -> None:
        """Which rules this step has shown; found out once for each kind of step."""
        run, record = self._state.run, self._state.mutation
        kind = (
            type(command), law.rules if isinstance(law, Accepted) else law[:3], run and (run.phase, run.outcome),
            record and record.status, isinstance(law, Accepted) and law.state.error == self._state.error,
            isinstance(law, Accepted) and law.state.backoff_until == self._state.backoff_until,
            getattr(command, "state", None) is None, getattr(command, "wake_at", None) is None,
            isinstance(law, Accepted) and [h[2:] for h in law.state.handlers] == [h[2:] for h in self._state.handlers],
        )  # fmt: skip
        rules = self._kinds.get(kind)
        if rules is None:
            rules = self._kinds[kind] = shown(self._state, command, law)
        self.rules.update(rules)

    # -- what survives

    def state(self) -> Any:
        return self.translator.ours(self.channel.ask("state", {}).get("state"))

    def unchanged(self) -> Divergence | None:
        """After rejections: nothing has changed."""
        if not self._unchecked:
            return None
        name, self._unchecked = self._unchecked, ""
        text = f"{name} was rejected, and yet the state has changed"
        return self.judge.same_state("changed by a rejected command", "STEP-002", self._state, self.state(), name, text)

    def kill(self) -> Divergence | None:
        self.again()
        text = "after a kill between two requests the state is not the one that was answered"
        return self.judge.same_state(
            "it lost what it had answered", "HOST-001", self._state, self.state(), "kill", text
        )

    def kill_during(self, command: Command, after_us: int) -> Divergence | None:
        law = step(self._state, command)
        if self.left_out(command, law):
            return None
        self.commands += 1
        self.channel.send("do", {"command": self.translator.theirs(to_plain(command))})
        time.sleep(after_us / 1e6)
        self.again()
        return self.whole_or_nothing(command, law)

    def crash_inside(self, command: Command, law: Outcome, fields: Json) -> Divergence | None:
        """The driver kills itself at one of its own points; if it does not come by, it answers."""
        self.commands += 1
        try:
            answer = self.channel.ask("do", fields)
        except Trouble as trouble:
            if trouble.kind != "died":
                raise
        else:
            return self.settled(command, law, self.translator.ours(answer.get("outcome")))
        self.again()
        return self.whole_or_nothing(command, law)

    def whole_or_nothing(self, command: Command, law: Outcome) -> Divergence | None:
        told = self.state()
        name = command_name(command)
        if isinstance(law, Accepted) and not self.judge.rows(plain_state(law.state), told):
            self._state = law.state
            return None
        text = f"it was killed during {name}, and what it remembers is neither the state before nor the one after"
        divergence = self.judge.same_state("it did half a step", "STEP-002", self._state, told, name, text)
        if divergence is None:
            self.rules.update(("STEP-002",))
        return divergence

    def recover(self, now: int) -> Divergence | None:
        """What a start does first; and that it is the same when it is done again."""
        state, effects, fired = self._state, [], ["REC-003", "HOST-007"]
        while commands := recovery(state, now):
            law = step(state, commands[0])
            if not isinstance(law, Accepted):
                break
            fired = [RECOVERS[command_name(commands[0])], *law.rules, *fired]
            state = law.state
            effects += to_plain(law.effects)
        answer = self.channel.ask("recover", {"now": now, "message": DIED})
        told = self.translator.ours(answer)
        text = "recovery leaves another state than the law says"
        divergence = self.judge.same_state("another recovery", fired[0], state, told.get("state"), "recover", text)
        if divergence is not None:
            if not self.judge.rows(plain_state(self._state), told.get("state")):
                return divergence._replace(rules=tuple(dict.fromkeys(fired)), text="recovery does nothing")
            more = blamed([row.field for row in divergence.rows], tuple(fired))
            return divergence._replace(rules=tuple(dict.fromkeys((*more[:1], *fired, *more))))
        other = self.judge.rows(effects, told.get("effects"), "effects")
        if other:
            return Divergence("other effects", tuple(fired), "recover", "recovery has other effects", other)
        self.rules.update(fired)
        self._state = state
        return None


def recovery(state: State, now: int) -> tuple[Command, ...]:
    """What recovers, in the words that the driver is told."""
    commands = recover(state, now)
    return tuple(one._replace(message=DIED) if isinstance(one, EndRun) else one for one in commands)


RECOVERS: Final = {"end_run": "REC-001", "finish_session": "REC-002"}


def name_of(move: Move) -> str:
    if isinstance(move, Do | KillDuring):
        return command_name(move.command)
    if isinstance(move, Meet):
        return move.fate
    return "kill" if isinstance(move, Kill) else "recover"
