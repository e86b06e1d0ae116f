"""Scripts of a life as real workflow files: what is drawn is written in JavaScript, and the sandbox must come to it.

For every call a file is made whose function does what was drawn: peek, reserve, publish, call its tool, return. The
function looks first at what it was given, and whether anything of an earlier call is left. Now and then it does what
it may not, and must be stopped for the right reason, whatever it catches.
"""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any, Final, NamedTuple

from ...kernel.capabilities import Function
from ...kernel.failures import FailureClass
from ...kernel.respond import Answer, Called, CalledNothing, Failed, Finished, Pinned
from ...kernel.types import CallHandler, Declaration, Event, Handler, Key, Run, State
from ...sandbox import engine
from ...sandbox.bridge import Tool
from ...sandbox.engine import Workers
from ...sandbox.handlers import Events, Scripts
from .choices import Choices
from .life import Broken, alarm
from .plans import ODD_TEXTS, TOOLS, WORKFLOW, Plan

READ: Final = "mail.read"
MAY: Final[dict[Function, str]] = {
    "producer": "read publish",
    "prepare": "read peek get",
    "mutate": "mutate",
    "next": "publish",
}
"""What each function may do, from the law."""
OPERATIONS: Final = {
    "read": "await ctx.mail.read({});",
    "mutate": "await ctx.sheets.append({});",
    "peek": "await ctx.peek(TOPIC, {limit: 1});",
    "get": "await ctx.getByIds(TOPIC, ['x']);",
    "publish": "await ctx.publish(TOPIC, {messageId: 'x', title: 't', payload: 1});",
}
HELPERS: Final = """
const text = (value) => JSON.stringify(value, (key, one) => typeof one === 'bigint' ? `${one}n` : one);
const given = (what, is, should) => { if (text(is) !== text(should)) throw new Error(`given ${what}: ${text(is)}`); };
for (const name of ['std', 'os', 'bjson', 'setTimeout', 'require', 'process', 'fetch', 'scriptArgs'])
    if (globalThis[name] !== undefined) throw new Error(`it finds ${name}`);
if (globalThis.seen !== undefined) throw new Error('something is left of an earlier call');
globalThis.seen = 1;
for (const one of [ctx, ctx.mail, ctx.sheets]) for (const name of Object.keys(one)) {
    const before = one[name];
    try { one[name] = () => 0; } catch (error) { }
    if (one[name] !== before) throw new Error(`it can rewrite ${name}`);
}
"""
FLOOD: Final = "for (let n = 0; n < 300; n++) console.log('x'.repeat(1000));"
"""More than a log holds: the rest is left out, and nothing else comes of it."""
CAUGHT: Final = "try { BODY } catch (error) { } finally { } return {};"


GOES_ON: Final = "ctx.sheets.append({}); throw new Error('x');"
"""It calls, does not wait, and breaks: nothing may be sent for it."""
BIG: Final = re.compile(r"(?<![\w.\"])(\d{16,})(?![\w.\"])")
NO_JSON: Final = ('{"a":1,"a":2}', "NaN", "[1", "1e999", "[" * 70 + "]" * 70)
"""What no script can be given."""
DAY_MS: Final = 24 * 60 * 60_000
ZONES: Final = (UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-7)))
HEAVY: Final = (
    "const kept = []; for (let n = 0; n < 200; n++) kept.push(new Uint8Array(1e6).fill(1)); return;",
    "for (;;);",
    "for (;;) await null;",
    "const deeper = () => deeper() + 1; deeper();",
)
"""More memory, time or stack than a script may use."""
SHORT_MS: Final = 300
"""So long what never ends may take; nobody can take it for an honest script that is slow."""
LONG_SECONDS: Final = 1.5
"""So long no host waits for it, if it is not held up itself: the worker's own timer is later than that."""
PULSE_SECONDS: Final = 0.05
NEVER_SECONDS: Final = 60


class Task(NamedTuple):
    """A body in JavaScript, and what must come of it."""

    body: str
    meant: Answer
    heavy: bool = False


@cache
def workers_of(folder: str) -> Workers:
    """Warm workers for all lives of this process; they are started from the files of this folder."""
    return Workers(warm=1)


class Sandboxed:
    def __init__(self, plan: Plan, choices: Choices, events: Events) -> None:
        self.plan = plan
        self.choices = choices
        self.events = events
        self.sources: dict[tuple[str, str], str] = {}
        """Workflow and version -> its file."""
        self.failing: Failed | None = None
        self.found = choices.of(ODD_TEXTS)
        """What is read from outside."""
        self.logged: list[tuple[str, str, tuple[str, ...]]] = []
        log = lambda *told: self.logged.append(told)  # noqa: E731 - a line that says all
        self.scripts = Scripts(workers_of(engine.__file__), lambda *which: self.sources[which], events, self, log)

    # -- the tools that scripts see

    def catalogue(self) -> Mapping[str, Tool]:
        return {TOOLS[0]: Tool("mutate", self.plan.reconcilable, self.plan.deadline_ms), READ: Tool("read")}

    def read(self, state: State, tool: str, params: str) -> str | Failed:
        return self.failing or self.found

    # -- a call

    def call(self, state: State, effect: CallHandler, row: Declaration, drawn: Answer, pending: list[Event]) -> Answer:
        """Let the sandbox do what was drawn; what comes of it must be what was meant."""
        run = state.run
        assert run is not None
        task = self.task(effect.function, run, row, drawn, pending)
        handler = next(h for h in state.handlers if h.declared.name == effect.handler)
        flood = FLOOD if self.choices.chance(3) else ""
        begins = f"console.log({js(f'{effect.function} of {run.id}')});"
        body = f"{begins}{HELPERS}{checks(effect.function, run, handler)}{flood}{task.body}"
        code = f"async (ctx, first, second) => {{ {body} }}"
        name = json.dumps(effect.handler)
        parts = f"producers: {{{name}: {code}}}"
        if effect.function != "producer":
            parts = f"consumers: {{{name}: {{{effect.function}: {code}}}}}"
        self.sources[state.workflow, effect.version] = (
            f"export default Keep.workflow({{name: 'w', topics: {{}}, {parts}}});"
        )
        if task.heavy:
            state = state._replace(policy=state.policy._replace(handler_call_ms=SHORT_MS))
            with self.scripts.workers.lent():
                """So that none has to be started in the time that is looked at."""
        never = Broken("SANDBOX", f"a call did not end in {NEVER_SECONDS} s")
        with alarm(signal.SIGALRM, NEVER_SECONDS, never), far_from_utc(), Pulse() as pulse:
            answer = self.scripts.call(state, effect)
        if task.heavy and pulse.seconds > LONG_SECONDS and pulse.longest_gap < PULSE_SECONDS * 5:
            raise Broken(
                "SANDBOX", f"the host waits {pulse.seconds:.1f} s for what may take {SHORT_MS} ms", (task.body,)
            )
        if not alike(answer, task.meant):
            raise Broken(
                "SANDBOX",
                f"{effect.function} should come to {task.meant!r:.300}, came to {answer!r:.300}",
                (task.body,),
            )
        lines = [lines for *which, lines in self.logged if which == [state.workflow, run.id]]
        if not task.heavy and [one[0] for one in lines] != [f"{effect.function} of {run.id}"]:
            raise Broken("SANDBOX", f"what {effect.function} logs does not arrive: {self.logged!r:.200}", (task.body,))
        return answer if isinstance(answer, Finished) else task.meant if isinstance(task.meant, Failed) else answer

    def task(self, function: Function, run: Run, row: Declaration, drawn: Answer, pending: list[Event]) -> Task:
        topic = json.dumps((row.subscribes or self.plan.topics)[0])
        if self.choices.chance(2):
            busy = [f"for (;;) {OPERATIONS['read']}"] if "read" in MAY[function].split() else []
            return Task(self.choices.of((*HEAVY, *busy)), Failed("limit"), heavy=True)
        if self.choices.chance(15):
            return self.hostile(function, row, topic)
        if "read" in MAY[function].split() and self.choices.chance(5):
            self.found = self.choices.of(NO_JSON)
            return Task(CAUGHT.replace("BODY", OPERATIONS["read"]), Failed("connector"))
        match drawn:
            case Failed(failure="script"):
                return Task("throw new Error('it failed');", drawn)
            case Failed():
                if "read" not in MAY[function].split():
                    return Task("throw new Error('it failed');", Failed("script"))
                self.failing = drawn
                return Task(CAUGHT.replace("BODY", OPERATIONS["read"]), drawn)
            case Pinned():
                return self.prepare(drawn, pending, topic)
            case Called():
                call = f"await ctx.sheets.append({literal(drawn.params)});"
                # Nothing comes back from the call, and nothing that stands around it runs.
                again = f"try {{ {call} }} catch (error) {{ }} finally {{ {OPERATIONS['mutate']} }}"
                ways = (call, CAUGHT.replace("BODY", call), f"return {call[6:]}", again)
                return Task(self.choices.of(ways), drawn)
            case CalledNothing():
                return Task("return;", drawn)
            case Finished():
                return self.finish(drawn._replace(due_at=daily(row.cron, run.created_at) if row.cron else None))
        raise AssertionError(f"no script comes to {drawn}")

    def prepare(self, drawn: Pinned, pending: list[Event], topic: str) -> Task:
        reservations: list[dict[str, Any]] = []
        for key in drawn.reservations:
            if not reservations or reservations[-1]["topic"] != key.topic:
                reservations.append({"topic": key.topic, "ids": []})
            reservations[-1]["ids"].append(key.id)
        of_topic = [seen(e) for e in pending if json.dumps(e.key.topic) == topic]
        limit = self.choices.of((None, 1, 2, 10**6))
        options = "" if limit is None else f", {{limit: {limit}}}"
        most = min(limit or self.plan.policy.peek_default, self.plan.policy.peek_max)
        known = self.plan.roots[: self.plan.policy.peek_max - 1] if topic == js(self.plan.topics[0]) else ()
        ids = [*(key.id for key in known), "nobody"]
        found = [seen(e) for key in known if (e := self.events.get(WORKFLOW, key)) is not None]
        peek = (
            f"const [peeked, got, found] = await Promise.all("
            f"[ctx.peek({topic}{options}), ctx.getByIds({topic}, {js(ids)}), ctx.mail.read({{}})]);"
            f"given('what is outside', found, {literal(self.found)});"
            f"given('peek', peeked, [{', '.join(of_topic[:most])}]); given('events', got, [{', '.join(found)}]);"
        )
        wake = ""
        if drawn.wake_at is not None:
            zone = self.choices.of((None, *ZONES))  # Without one it is UTC, wherever the host is.
            moment = datetime.fromtimestamp(drawn.wake_at / 1000, zone or UTC)
            said = moment if zone else moment.replace(tzinfo=None)
            wake = f", wakeAt: {js(said.isoformat(timespec='milliseconds'))}"
        returned = (
            f"reservations: {js(reservations)}, data: {literal(drawn.data)}, ui: {{title: {js(drawn.title)}}}{wake}"
        )
        return Task(f"{peek} return {{{returned}}};", drawn)

    def finish(self, drawn: Finished) -> Task:
        calls = ""
        for key, title, text in drawn.publications:
            message = f"{{messageId: {js(key.id)}, title: {js(title)}, payload: {literal(text)}}}"
            calls += f"await ctx.publish({js(key.topic)}, {message}); "
        body = f"{calls} return {'undefined' if drawn.state is None else literal(drawn.state)};"
        wrong = any(
            key.topic not in self.plan.topics
            or not key.id
            or not title.strip()
            or len(json.dumps(json.loads(text), separators=(",", ":"))) > self.plan.policy.json_max_chars
            for key, title, text in drawn.publications
        )
        return Task(body, Failed("bad_result") if wrong else drawn)

    def hostile(self, function: Function, row: Declaration, topic: str) -> Task:
        """Something that the function may not do, with a net around it."""
        forbidden = [code for name, code in OPERATIONS.items() if name not in MAY[function].split()]
        tasks = [(code, "forbidden") for code in forbidden]
        tasks += [("throw new Error('x');", "script"), ("await new Promise(() => {});", "script")]
        if function == "mutate":
            twice = f"await Promise.all([1, 2].map(async () => {{ {OPERATIONS['mutate']} }}));"
            after = f"const call = (async () => {{ {OPERATIONS['mutate']} }})(); {OPERATIONS['read']}"
            tasks += [
                (GOES_ON, "forbidden"),
                (twice, "forbidden"),
                (after, "forbidden"),
                ("await ctx.sheets.append({}, {});", "bad_result"),
            ]
            tasks += [(f"{code};", "forbidden") for code in ("Date.now()", "new Date()", "Date()", "Math.random()")]
        elif function == "prepare":
            foreign = [name for name in (*self.plan.topics, "nowhere") if name not in row.subscribes]
            tasks += [(OPERATIONS["peek"].replace("TOPIC", js(name)), "forbidden") for name in foreign]
            tasks += [(OPERATIONS["get"].replace("TOPIC", js(name)), "forbidden") for name in foreign]
            tasks += [
                ("return {reservations: 1};", "bad_result"),
                ("return {reservations: [], data: NaN};", "bad_result"),
                ("return {reservations: [], data: [undefined]};", "bad_result"),
            ]
        else:
            tasks += [("return new Map();", "bad_result")]
        code, failure = self.choices.of(tasks)
        code = code.replace("TOPIC", topic)
        caught = failure == "forbidden" and code != GOES_ON and self.choices.chance(50)
        kind: FailureClass = (
            "script" if failure == "script" else "forbidden" if failure == "forbidden" else "bad_result"
        )
        return Task(CAUGHT.replace("BODY", code) if caught else code, Failed(kind))


def checks(function: Function, run: Run, row: Handler) -> str:
    """Looks at what the function is given."""
    if function in ("producer", "prepare"):
        return f"given('state', first, {literal(row.state) if row.state else 'undefined'});"
    reserved: dict[str, list[str]] = {}
    for key in run.reserved:
        reserved.setdefault(key.topic, []).append(key.id)
    taken = [{"topic": topic, "ids": ids} for topic, ids in reserved.items()]
    lines = [
        f"given('data', first.data, {literal(run.data)});",
        f"given('title', first.ui.title, {js(run.title)});",
        f"given('inputs', first.reservations, {js(taken)});",
    ]
    if function == "next":
        meant = {"success": f"{{status: 'applied', result: {literal(run.result or 'null')}}}"}
        meant |= {"skipped": "{status: 'skipped'}"}
        lines.append(f"given('outcome', second, {meant.get(run.outcome, '{status: `none`}')});")
    return " ".join(lines)


def seen(event: Event) -> str:
    """An event as a script must see it."""
    names = f"topic: {js(event.key.topic)}, messageId: {js(event.key.id)}, title: {js(event.title)}"
    return f"{{{names}, payload: {literal(event.payload)}}}"


class Pulse:
    """How long a piece of work took, and whether this process could move all the while."""

    def __enter__(self) -> "Pulse":
        self.longest_gap = self.seconds = 0.0
        self._over = threading.Event()
        self._began = self._beaten = time.monotonic()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def _beat(self) -> None:
        while not self._over.wait(PULSE_SECONDS):
            self._take_note()

    def _take_note(self) -> None:
        now = time.monotonic()
        self.longest_gap, self._beaten = max(self.longest_gap, now - self._beaten), now

    def __exit__(self, *error: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._over.set()
        self._thread.join()
        self._take_note()


@contextmanager
def far_from_utc() -> Iterator[None]:
    """A machine that stands where it is another time."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Kathmandu"
    time.tzset()
    try:
        yield
    finally:
        del os.environ["TZ"]
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


def js(value: object) -> str:
    return json.dumps(value)


def literal(text: str) -> str:
    """A JSON text as JavaScript; a whole number that JavaScript can not hold is a BigInt there."""
    return BIG.sub(r"\1n", text)


def alike(answer: Answer, meant: Answer) -> bool:
    """Whether an answer says the same; texts of JSON may be written in another way."""
    if isinstance(meant, Failed) or isinstance(answer, Failed):
        return isinstance(answer, Failed) and isinstance(meant, Failed) and answer.failure == meant.failure
    match answer, meant:
        case Pinned(), Pinned():
            same = json.loads(answer.data) == json.loads(meant.data)
            return same and answer._replace(data="") == meant._replace(data="")
        case Called(), Called():
            same = json.loads(answer.params) == json.loads(meant.params)
            return same and answer._replace(params="") == meant._replace(params="")
        case Finished(), Finished():
            return plain(answer) == plain(meant)
    return type(answer) is type(meant)


def plain(finished: Finished) -> object:
    state = None if finished.state is None else json.loads(finished.state)
    published = [(Key(*key), title, json.loads(payload)) for key, title, payload in finished.publications]
    return state, published, finished.due_at


def daily(cron: str, after: int) -> int:
    """The next time of a schedule that comes once a day, in UTC."""
    minute, hour = map(int, cron.split()[:2])
    return after + DAY_MS - (after - (hour * 60 + minute) * 60_000) % DAY_MS
