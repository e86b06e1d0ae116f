"""Level behaviour: the runtime is its own host, and the kit is the world around it.

A reference host lives through the same world. What the runtime asks is compared with what the reference asks; what
happens outside is counted here, where no runtime can touch it.
"""

import random
import time
from collections import Counter
from collections.abc import Generator, Iterator
from itertools import combinations
from typing import Any, Final, NamedTuple

from ...kernel import commands as c
from ...kernel import respond
from ...kernel.codec import to_plain
from ...kernel.commands import Command
from ...kernel.policy import Policy
from ...kernel.schedule import Idle, Wait, schedule, upkeep
from ...kernel.step import step
from ...kernel.types import (
    Accepted,
    CallHandler,
    Declaration,
    Effect,
    Key,
    Publication,
    Reconcile,
    Repair,
    Send,
    State,
    new_workflow,
)
from .channel import GaveUp, Trouble, Unsupported
from .fates import FATES
from .play import DIED, WORKFLOW, Found, Meet, Player, Script, recovery
from .rules import shown
from .suite import Progress, Suite
from .verdict import Divergence, Row, broken_state, read_state

Json = dict[str, Any]

FILE: Final = Declaration("file", "consumer", ("mail",), has_mutate=True)
SINK: Final = Declaration("note", "consumer", ("out",))
POLL: Final = Declaration("poll", "producer")
DEPLOY: Final = c.Deploy(1, "v1", ("mail", "out"), (POLL, FILE, SINK))
"""The producer is declared first, and goes last (SCHED-002)."""
TOOL: Final = "sheets.append"
INPUTS: Final = (Key("mail", "m1"), Key("mail", "m2"))
ROUNDS: Final = 60
"""So often the kit lets time pass before it says that the workflow does not come to rest."""
SLOW_MS: Final = 200_000
"""A slow answer is longer under way than a call may take to land."""
FAILURES: Final = (
    "network", "script", "host", "auth", "permission", "approval", "rate_limit", "timeout", "bad_result", "forbidden",
    "limit", "connector",
)  # fmt: skip
REFUSALS: Final = ("refused", "auth", "rate_limit")
"""What a target answers when it is certain that nothing happened (FAIL-002)."""


class Ask(NamedTuple):
    """What a host asks of the world."""

    effect: Effect
    more: Json


class Told(NamedTuple):
    answer: respond.Answer | c.Deploy | None
    """A deploy repairs; None answers a repair that is not made."""
    now: int


Work = Generator[Ask, Told, int | None]


class Host:
    """The reference as a host: it asks, and is told."""

    def __init__(self, state: State, rules: Counter[str]) -> None:
        self.state = state
        self.now = 0
        self.rules = rules
        self.ids = 0
        self.trail: list[State] = [state]
        """The states since the last one that must be durable."""
        self.recent: list[State] = []
        """The states since the last answer, and those that were allowed when it came."""

    def work(self) -> Work:
        declined = False
        while True:
            following = respond.advance(self.state, self.now) or schedule(self.state, self.now, self.fresh())
            if isinstance(following, Wait | Idle):
                kept = upkeep(self.state, self.now)
                if isinstance(kept, Repair) and declined:
                    return until(following)
                if isinstance(kept, Repair | Reconcile | CallHandler | Send):
                    declined |= not (yield from self.perform(kept))
                    continue
                if isinstance(kept, Wait | Idle):
                    return until(following, kept)
                following = kept
            yield from self.submit(following)

    def fresh(self) -> str:
        self.ids += 1
        return f"reference-{self.ids}"

    def submit(self, command: Command) -> Generator[Ask, Told, bool]:
        before, outcome = self.state, step(self.state, command)
        self.rules.update(shown(before, command, outcome))
        if not isinstance(outcome, Accepted):
            end = respond.after_rejection(self.state, command, outcome, self.now)
            if end is None:
                return False
            self.rules.update(("HOST-003",))
            return (yield from self.submit(end))
        self.take(outcome.state, held_back=isinstance(command, HELD_BACK))
        for effect in outcome.effects:
            yield from self.perform(effect)
        return True

    def take(self, state: State, *, held_back: bool) -> None:
        self.state = state
        self.trail = [*self.trail, state] if held_back else [state]
        self.recent.append(state)

    def perform(self, effect: Effect) -> Generator[Ask, Told, bool]:
        if isinstance(effect, Send):
            self.trail = [self.state]
        told = yield Ask(effect, self.more(effect))
        self.now = told.now
        if isinstance(effect, Repair):
            return isinstance(told.answer, c.Deploy) and (yield from self.submit(told.answer))
        if told.answer is None or isinstance(told.answer, c.Deploy):
            raise TypeError("only a repair is answered by a deploy")
        for command in respond.respond(self.state, effect, told.answer, self.now):
            if not (yield from self.submit(command)):
                break
        return True

    def more(self, effect: Effect) -> Json:
        state, run = self.state, self.state.run
        if isinstance(effect, CallHandler) and effect.function == "prepare":
            topics = [t for h in state.handlers if h.declared.name == effect.handler for t in h.declared.subscribes]
            pending = [e.key for e in state.events if e.status == "pending" and e.key.topic in topics]
            return {"pending": to_plain(tuple(pending[: state.policy.peek_default]))}
        if isinstance(effect, CallHandler) and effect.function == "next" and run is not None:
            if run.outcome == "success":
                return {"mutation": {"status": "applied", "result": run.result or None}}
            return {"mutation": {"status": "skipped" if run.outcome == "skipped" else "none"}}
        return {}

    def recover(self) -> None:
        while commands := recovery(self.state, self.now):
            command = commands[0]
            outcome = step(self.state, command)
            if not isinstance(outcome, Accepted):
                break
            self.rules.update(("REC-001" if isinstance(command, c.EndRun) else "REC-002", "REC-003", "HOST-007"))
            self.rules.update(outcome.rules)
            self.take(outcome.state, held_back=False)


HELD_BACK: Final = (
    c.StartSession, c.FinishSession, c.CreateRun, c.CreateRetry, c.Begin, c.Prepared, c.Mutating, c.RecordMutation,
    c.Mutated, c.Emitting,
)  # fmt: skip
"""Steps that a host need not commit before it asks for a handler (HOST-011)."""


def until(*waits: Wait | Idle) -> int | None:
    return min((one.until for one in waits if isinstance(one, Wait)), default=None)


# --- the world ---------------------------------------------------------------------------------------


class Killed(Exception):
    """The world decides that the runtime dies here."""


class World:
    """What really happens outside."""

    def __init__(self) -> None:
        self.landed: Counter[Key] = Counter()
        self.held: tuple[Key, ...] = ()
        """What the run reserved whose call comes next."""
        self.calls: dict[str, bool] = {}
        """Key of a call -> whether it took effect."""
        self.uncalled: set[Key] = set()
        """Inputs for which the script called nothing."""

    def answer(self, ask: Ask, key: str, fate: str, now: int) -> Told:
        """What the world says, and does; `key` is the runtime's name of the call."""
        match ask.effect:
            case CallHandler(_, _, _, function):
                return Told(self.script(function, ask.more, fate, now), now)
            case Send():
                return Told(self.call(key, fate), now)
            case Reconcile():
                return Told(self.found(key, fate), now)
            case Repair():
                return Told(DEPLOY._replace(now=now) if fate != "nothing" else None, now)

    def script(self, function: str, more: Json, fate: str, now: int) -> respond.Answer:
        if fate in FAILURES:
            failure: Any = fate
            return respond.Failed(failure, "by the world", "")
        if function == "prepare":
            pending = tuple(Key(**key) for key in more["pending"])
            self.held = () if fate in ("nothing", "wake") else pending[:1]
            return respond.Pinned(self.held, '{"n":1}', "One", now + 40_000 if self.held != pending else None)
        if function == "mutate" and fate == "nothing":
            self.uncalled.update(self.held)
            return respond.CalledNothing()
        if function == "mutate":
            self.uncalled.difference_update(self.held)
            return respond.Called(TOOL, '{"row":1}', True, 1_000)
        out = tuple(Publication(Key("out", key.id), "Done", "{}") for key in self.held if key.topic == "mail")
        return respond.Finished('"seen"', out if function == "next" and fate != "nothing" else (), None)

    def call(self, key: str, fate: str) -> respond.Answer:
        lands = fate not in (*REFUSALS, "silent", "network", "script")
        self.calls[key] = lands
        if lands:
            self.landed.update(self.held)
        if fate in REFUSALS:
            failure: Any = fate
            return respond.Failed(failure, "by the target", TOOL)
        return (
            respond.Happened('{"row":7}')
            if fate in ("ok", "slow", "nothing", "wake", "killed after")
            else respond.Unknown("no answer came")
        )

    def found(self, key: str, fate: str) -> respond.Answer:
        if fate == "unsure":
            return respond.AskAgain("it can not tell")
        if fate == "no method":
            return respond.NoMethod()
        if self.calls.get(key, False):
            return respond.Happened('{"row":7}')
        return respond.DidNotHappen(voided=fate == "voided")


ANSWERS: Final[dict[type, str]] = {
    respond.Pinned: "pinned",
    respond.Called: "called",
    respond.CalledNothing: "called_nothing",
    respond.Finished: "finished",
    respond.Failed: "failed",
    respond.Happened: "happened",
    respond.Unknown: "unknown",
    respond.DidNotHappen: "did_not_happen",
    respond.AskAgain: "ask_again",
    respond.NoMethod: "no_method",
}


def answer_document(told: Told) -> Json:
    if isinstance(told.answer, c.Deploy):
        return {"type": "deploy", "command": to_plain(told.answer)}
    if told.answer is None:
        return {"type": "no_repair"}
    return {"type": ANSWERS[type(told.answer)], **to_plain(told.answer)}


# --- one life ----------------------------------------------------------------------------------------


class Parted(Exception):
    """The runtime and the law part here."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence.text)
        self.divergence = divergence


def part(kind: str, rules: tuple[str, ...], what: str, text: str, *rows: Row) -> Parted:
    return Parted(Divergence(kind, rules, what, text, rows))


class Life:
    """One workflow from its first deploy to its rest, in a world whose fates are given."""

    def __init__(self, player: "Worldly", policy: Policy, fates: tuple[str, ...]) -> None:
        self.player = player
        self.channel = player.channel
        self.world = World()
        self.host = Host(new_workflow(WORKFLOW, policy), player.rules)
        self.fates = iter(fates)
        self.policy = policy
        self.now = 1
        self.runs: dict[str, str] = {}
        """The reference's name of a run -> the runtime's."""
        self.keys: dict[str, str] = {}
        """The runtime's name of a run -> the key of its call."""
        self.used: set[str] = set()
        """The runtime's names of all runs so far, those before a kill included."""
        self.sent: Counter[str] = Counter()
        self.met = 0
        self.deaths = 0
        self.answered: tuple[str, ...] = ()
        """The rules of the last answer: what is asked otherwise right after it is likely to break them."""

    def live(self) -> None:
        self.channel.ask(
            "reset", {"workflow": WORKFLOW, "policy": self.player.translator.theirs(to_plain(self.policy))}
        )
        first: tuple[Command, ...] = (DEPLOY, c.Grant(1, TOOL), c.Resume(1))
        for command in (*first, *(c.Publish(1, letter(key)) for key in INPUTS)):
            self.do(command)
        for _ in range(ROUNDS):
            deaths, waits = self.deaths, self.work()
            if self.deaths > deaths or self.settle():
                continue  # What a start owes, a repair for instance, comes before people.
            if self.rests():
                return self.judge()
            if waits is None:
                break
            if waits - 1 > self.now:
                # Right before its time nothing may be asked yet.
                self.now = waits - 1
                waits = self.work() or waits
            self.now = max(self.now, waits)
        raise part("no rest", ("LIVE-002",), "work", "the world is kind, and the workflow does not come to rest")

    def do(self, command: Command) -> None:
        outcome = step(self.host.state, command)
        if not isinstance(outcome, Accepted):
            raise TypeError(f"the kit's own command is refused: {outcome}")
        self.player.rules.update(shown(self.host.state, command, outcome))
        self.host.take(outcome.state, held_back=False)
        plain = to_plain(command)
        if "run" in plain:
            plain["run"] = self.runs[plain["run"]]
        self.player.commands += 1
        told = self.player.translator.ours(
            self.channel.ask("do", {"command": self.player.translator.theirs(plain)}).get("outcome")
        )
        if not isinstance(told, dict) or told.get("type") != "accepted":
            reason = told.get("reason") if isinstance(told, dict) else told
            name = plain["type"]
            text = f"{name} was rejected ({reason}); the law accepts it"
            raise part("rejected, and the law accepts", outcome.rules, name, text)

    def rests(self) -> bool:
        state = self.host.state
        return state.run is None and all(e.status in ("consumed", "skipped") for e in state.events)

    # -- work, side by side

    def work(self) -> int | None:
        self.host.now, self.answered = self.now, ()
        self.channel.send("work", {"now": self.now})
        work = self.host.work()
        wanted, ends = following(work, None)
        while True:
            message = self.channel.read()
            if "ask" not in message:
                return self.ended(message, wanted, ends)
            if wanted is None:
                raise self.surplus(message)
            theirs = self.player.translator.ours(message)
            self.same_ask(wanted, theirs)
            fate = next(self.fates, "ok")
            self.met += 1
            self.now += SLOW_MS if fate == "slow" else 0
            told = self.world.answer(wanted, str(theirs["effect"].get("key", "")), fate, self.now)
            if fate in ("killed", "killed late"):
                self.killed(fate, wanted, str(theirs["effect"].get("key", "")))
                return self.now
            reply = {"ask": message["ask"], "now": told.now, "answer": answer_document(told)}
            self.channel.write(reply)
            self.host.recent = list(self.host.trail)
            wanted, ends = following(work, told)
            self.answered = SHOWN_BY.get(type(told.answer), ())
            self.player.rules.update(("HOST-010", *self.answered))
            if fate == "killed after":
                time.sleep(0.001)
                self.killed(fate, wanted, "")
                return self.now

    def ended(self, message: Json, wanted: Ask | None, ends: int | None) -> int | None:
        if message.get("id") != self.channel._id:
            raise Trouble("out of order", f"neither an ask nor the answer to work: {str(message)[:80]}")
        if "unsupported" in message:
            raise Unsupported(str(message["unsupported"]))
        if "error" in message:
            raise Trouble("driver error", str(message["error"])[:300])
        if wanted is not None:
            rules = (*self.answered, *missing_rules(wanted))
            raise part("another ask", rules, "work", f"it ends its work; the law asks: {in_words(wanted)}")
        if message.get("until") != ends:
            row = Row("until", str(ends), str(message.get("until")))
            text = "it says another time at which there is more to do"
            raise part("another ask", ("SCHED-004", "SCHED-002", "POLICY-002"), "work", text, row)
        self.player.rules.update(("SCHED-002", "SCHED-004", "SCHED-008"))
        return ends

    def surplus(self, message: Json) -> Parted:
        effect = self.player.translator.ours(message).get("effect")
        if not isinstance(effect, dict):
            raise Trouble("garbled", "an ask has no effect")
        again = effect.get("type") == "send" and self.sent[str(effect.get("key"))] > 0
        usual = (*self.answered, *SURPLUS.get(str(effect.get("type")), ("HOST-010",)))
        rules = ("HOST-006", "HOST-010") if again else usual
        what = f"{effect.get('type')} {effect.get('function', effect.get('tool', ''))}".strip()
        return part("another ask", rules, "work", f"it asks for {what}; by law there is nothing to do now")

    def same_ask(self, wanted: Ask, message: Json) -> None:
        """The runtime asks what the law asks, up to the names that it gives itself."""
        effect, law = message.get("effect"), to_plain(wanted.effect)
        if not isinstance(effect, dict):
            raise Trouble("garbled", "an ask has no effect")
        if effect.get("type") == "send":
            self.outside(effect)
        kinds = [(one.get("type"), one.get("function"), one.get("handler")) for one in (law, effect)]
        if kinds[0] != kinds[1]:
            rules = (*self.answered, *missing_rules(wanted))
            text = f"it asks for {' '.join(str(w) for w in kinds[1] if w)}; the law asks: {in_words(wanted)}"
            raise part("another ask", rules, "work", text)
        if law["run"] not in self.runs:
            self.runs[law["run"]] = self.fresh(str(effect.get("run")))
        known = self.runs[law["run"]]
        law = {**law, "run": known}
        if "key" in law:
            law["key"] = self.keys.setdefault(known, str(effect.get("key")))
        rows = self.player.judge.rows(
            {**law, **wanted.more}, {**effect, **{k: message.get(k) for k in wanted.more}}, "ask"
        )
        if rows:
            rules = tuple(rule for row in rows for rule in ASK_RULES.get(row.field.split(".")[1], ("HOST-010",)))
            raise part(
                "another ask", tuple(dict.fromkeys(rules)), "work", f"it asks otherwise: {in_words(wanted)}", *rows
            )
        self.player.rules.update(
            {"pending": ("SCRIPT-006",), "mutation": ("SCRIPT-007",)}.get(next(iter(wanted.more), ""), ())
        )

    def fresh(self, run: str) -> str:
        """The name of a run that the law has just begun."""
        if run in self.used:
            raise part("outside", ("HOST-005", "RUN-006"), "work", f"the id {run} is given to a second run")
        self.used.add(run)
        return run

    def outside(self, effect: Json) -> None:
        key = str(effect.get("key"))
        self.sent[key] += 1
        if self.sent[key] > 1:
            raise part("outside", ("HOST-006", "MUT-014"), "send", f"the call with the key {key} is sent twice")
        send_by = effect.get("send_by")
        if isinstance(send_by, int) and self.now > send_by:
            raise part("outside", ("HOST-002", "MUT-005"), "send", "a call is sent after its time")
        self.player.rules.update(("HOST-001", "HOST-006"))

    # -- deaths

    def killed(self, fate: str, wanted: Ask | None, key: str) -> None:
        """The runtime dies; what it remembers must be allowed here, and the reference goes on from there."""
        if fate == "killed" and key in self.world.calls and wanted is not None and isinstance(wanted.effect, Send):
            if self.world.calls[key]:
                self.world.landed.subtract(self.world.held)
            self.world.calls[key] = False
        self.deaths += 1
        self.answered = ()
        self.player.again()
        state = read_state(self.player.state())
        if state is None:
            raise part("not a document", ("STEP-002",), "state", "after a kill its state is not a document")
        allowed = [shape(one) for one in (self.host.recent if fate == "killed after" else self.host.trail)]
        if shape(state) not in allowed:
            sent = wanted is not None and isinstance(wanted.effect, Send) and fate != "killed after"
            rules = ("HOST-001", "STEP-002") if sent else ("HOST-001", "HOST-011")
            rows = [Row(n, str(a), str(b)) for n, a, b in zip(SHAPE, allowed[-1], shape(state), strict=True) if a != b]
            text = "what it remembers after a kill is not what must be durable here"
            raise Parted(
                Divergence(
                    "it lost what it had answered", rules, "kill", text, tuple(rows), broken_state(to_plain(state))
                )
            )
        self.host.state = state
        self.host.trail = [state]
        # A run that was held back and is lost (HOST-011) is in no history, so its id is free again.
        self.used -= {*self.runs.values()}
        self.runs = {state.run.id: state.run.id} if state.run is not None else {}
        self.used |= {*self.runs}
        self.host.now = self.now
        self.host.recover()
        answer = self.channel.ask("recover", {"now": self.now, "message": DIED})
        told = self.player.translator.ours(answer).get("state")
        words = "recovery leaves another state than the law says"
        divergence = self.player.judge.same_state(
            "another recovery", "REC-001", self.host.state, told, "recover", words
        )
        if divergence is not None:
            raise Parted(divergence)

    # -- people, who tell the truth

    def settle(self) -> bool:
        """A person answers what stands; true when there was something."""
        state = self.host.state
        error, record, run = state.error, state.mutation, state.run
        if run is not None and run.status != "active" and record is not None and record.status == "indeterminate":
            happened = self.world.calls.get(self.key_of(run.id), False)
            self.now = max(self.now, record.may_land_until)
            self.runs.setdefault(run.id, run.id)
            self.do(c.AssertApplied(self.now, run.id) if happened else c.DidntHappen(self.now, run.id))
            return True
        if error is not None and error.kind == "approval":
            self.do(c.Reconnect(self.now))
            return True
        if error is not None and error.kind in ("internal", "blocked"):
            self.do(c.Retry(self.now) if error.kind == "blocked" else c.ClearError(self.now))
            return True
        if state.maintenance is not None:
            self.do(DEPLOY._replace(now=self.now))
            return True
        return False

    def key_of(self, run: str) -> str:
        """The key of the one call that nobody knows about: the last that was sent."""
        return next(reversed(self.world.calls), run)

    # -- the end

    def judge(self) -> None:
        """All is done: what happened outside, and what the runtime says of it."""
        for key in INPUTS:
            if self.world.landed[key] > 1:
                text = f"the change for {key.id} was made {self.world.landed[key]} times"
                raise Parted(
                    Divergence("outside", ("BOUND-001", "HOST-001"), "send", text, (), ("a change is made twice",))
                )
            done = any(e.key == key and e.status == "consumed" for e in self.host.state.events)
            if done and not self.world.landed[key] and key not in self.world.uncalled:
                text = f"{key.id} is consumed, and its change was never made"
                raise Parted(Divergence("outside", ("BOUND-001", "LIVE-002"), "send", text, (), ("a change is lost",)))
        told = read_state(self.player.state())
        if told is None:
            raise part("not a document", ("STEP-002",), "state", "in the end its state is not a document")
        law, theirs = (
            {f"{e.key.topic}/{e.key.id}": e.status for e in state.events} for state in (self.host.state, told)
        )
        differ = [
            Row(k, str(law.get(k)), str(theirs.get(k)))
            for k in sorted(law.keys() | theirs.keys())
            if law.get(k) != theirs.get(k)
        ]
        if differ:
            text = "in the end the events are not what the law says"
            raise part("another state", ("COMMIT-002", "EVENT-006", "LIVE-002"), "state", text, *differ)
        self.player.rules.update(("LIVE-002",))


SHAPE: Final = ("run", "record", "events", "session")


def shape(state: State) -> tuple[object, ...]:
    """What must be durable of a state, without the names that a runtime gives."""
    run, record = state.run, state.mutation
    return (
        run and (run.handler, run.status, run.phase, run.outcome, bool(run.retry_of)),
        record and (record.status, record.attempts),
        tuple(sorted((e.key, e.status) for e in state.events)),
        state.session is not None,
    )


def following(work: Work, told: Told | None) -> tuple[Ask | None, int | None]:
    """The reference's next ask; or none, and until when it waits."""
    try:
        return (next(work) if told is None else work.send(told)), None
    except StopIteration as stop:
        ends: int | None = stop.value
        return None, ends


def letter(key: Key) -> Publication:
    return Publication(key, f"Mail {key.id}", '{"a":1}')


def in_words(ask: Ask) -> str:
    match ask.effect:
        case CallHandler(_, handler, _, function):
            return f"call {function} of {handler}"
        case Send(_, tool):
            return f"send {tool}"
        case Reconcile(_, tool, _, _, by):
            return f"reconcile {tool} ({by})"
        case Repair(_, handler):
            return f"repair {handler}"


def missing_rules(wanted: Ask) -> tuple[str, ...]:
    """The rules by which the law asks this."""
    match wanted.effect:
        case CallHandler(_, _, _, "prepare"):
            return ("SCHED-002", "SCHED-004", "HOST-010")
        case Reconcile(_, _, _, _, "reconcile") | Repair():
            return ("SCHED-008",)
        case Reconcile():
            return ("MUT-007", "HOST-010")
        case CallHandler(_, _, _, "next"):
            return ("HOST-010", "RETRY-001", "SCHED-002")
        case _:
            return ("HOST-010",)


SURPLUS: Final = {
    "call_handler": ("SCHED-001", "SCHED-004"),
    "reconcile": ("SCHED-008", "MUT-011"),
    "repair": ("SCHED-008", "WORK-005"),
}
ASK_RULES: Final = {
    "pending": ("SCRIPT-006",),
    "mutation": ("SCRIPT-007", "RETRY-002"),
    "run": ("RUN-005", "HOST-005"),
    "send_by": ("MUT-004", "POLICY-005"),
    "asked_at": ("HOST-010", "MUT-009"),
    "version": ("RUN-009",),
    "tool": ("MUT-002",),
    "params": ("MUT-002",),
    "by": ("MUT-008",),
    "key": ("MUT-014",),
}
SHOWN_BY: Final[dict[type, tuple[str, ...]]] = {
    respond.Failed: ("FAIL-001", "FAIL-002"),
    respond.Unknown: ("FAIL-002",),
    respond.DidNotHappen: ("MUT-009",),
}


class Worldly(Player):
    """A player at level behaviour."""

    def play(self, script: Script) -> Found | None:
        fates = tuple(move.fate for move in script.moves if isinstance(move, Meet))
        life: Life | None = None
        divergence: Divergence | None = None
        try:
            hello = self.up()
            if "behaviour" not in hello.supports:
                raise GaveUp("the driver does not support level behaviour")
            life = Life(self, script.policy, fates)
            life.live()
        except Parted as parted:
            divergence = parted.divergence
            self.channel.kill()
        except Unsupported as what:
            divergence = self.declined("work", str(what))
        except Trouble as trouble:
            divergence = self.misbehaved(trouble, "work")
        if divergence is None or life is None:
            return None
        played = script.moves[: max(life.met, 1)]
        return Found(divergence, script._replace(moves=played), None)


class Behaviour(Suite):
    """The suite at level behaviour: every fate at every ask, pairs of them, then chance."""

    def run(self, until: float) -> None:
        self.until = until
        policy = Policy(transient_retries=2, logic_failures=2, reconcile_attempts=2)
        self.part("lives with one fate", [Script(policy, fates) for fates in single_fates()])
        self.part("lives with two fates", [Script(policy, fates) for fates in pairs_of_fates()])
        chance = random.Random(self.seed)
        lives = 0
        while time.monotonic() < until:
            self.report(Progress("lives by chance", lives, 0))
            weights = [len(FATES) if fate == "ok" else 1 for fate in FATES]
            fates = chance.choices(list(FATES), weights, k=20)
            self.play(Script(policy, tuple(Meet(fate) for fate in fates)))
            lives += 1
        self.parts["lives by chance"] = lives

    def shortcuts(self, found: Found) -> Iterator[Script]:
        """Fates that need not be are replaced by the kind one; what is kind at the end need not be said."""
        moves = found.script.moves
        for n, move in enumerate(moves):
            if move != KIND:
                others = tuple(KIND if at != n else one for at, one in enumerate(moves))
                yield found.script._replace(moves=trimmed(others))


KIND: Final = Meet("ok")
ASKS: Final = 8
"""So many asks two kind lives have at the least, of one input each."""


def trimmed(moves: tuple[Any, ...]) -> tuple[Any, ...]:
    while moves and moves[-1] == KIND:
        moves = moves[:-1]
    return moves


def single_fates() -> Iterator[tuple[Meet, ...]]:
    yield ()
    for place in range(ASKS):
        for fate in FATES:
            if fate != "ok":
                yield (*[KIND] * place, Meet(fate))


def pairs_of_fates() -> Iterator[tuple[Meet, ...]]:
    """Two fates at the first run: where the call is, and what follows it."""
    hard = ("silent", "applied", "killed late", "network", "script", "unsure", "slow")
    for first, second in (pair for pair in combinations(range(6), 2) if pair[1] - pair[0] <= 2):
        for one in hard:
            for other in hard:
                fates = [KIND] * (second + 1)
                fates[first], fates[second] = Meet(one), Meet(other)
                yield tuple(fates)
