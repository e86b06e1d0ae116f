"""Loads a workflow file: everything that is wrong with it at once, before anything of it runs for real.

The file's top is run once, in a worker and with its limits, to see what it declares; the text tells where things
stand and which tools it calls.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from cronsim import CronSim, CronSimError

from ..kernel.policy import interval_ms
from ..kernel.respond import Failed
from ..kernel.types import Declaration
from . import bridge
from .bridge import OPERATIONS, Job, Returned, readable
from .engine import Workers
from .outline import Outline, Place

SOURCE_MAX: Final = 1_000_000
DEEPEST: Final = 500
NAME: Final = re.compile(r"\w[\w.:-]{0,99}")
NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
TOLD_PLACE: Final = re.compile(r" \(line (\d+), column (\d+)\)$")


class Problem(NamedTuple):
    """Something that is wrong with a file, and what to do about it."""

    message: str
    remedy: str
    place: Place | None = None

    def __str__(self) -> str:
        where = f"line {self.place.line}, column {self.place.column}: " if self.place else ""
        return f"{where}{self.message}. {self.remedy}{'' if self.remedy.endswith('?') else '.'}"


class BadScript(ValueError):
    """A workflow file can not be used; `problems` has all that is wrong with it."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.place or Place(0, 0)))
        super().__init__("\n".join(map(str, self.problems)))


class Script(NamedTuple):
    """A workflow file that was found to be in order: what a deploy needs."""

    name: str
    topics: tuple[str, ...]
    handlers: tuple[Declaration, ...]
    warnings: tuple[Problem, ...]
    source: str


def load(source: str, tools: Collection[str], workers: Workers, wall_ms: int = 5_000) -> Script:
    """Read a workflow file, given the names of all tools; BadScript when there is anything wrong with it."""
    if len(source) > SOURCE_MAX or NO_TEXT.search(source):
        raise BadScript([Problem("the file is too long or no text", f"Keep it below {SOURCE_MAX} characters")])
    said = bridge.run(workers, Job(source, "describe", "the file", wall_ms=wall_ms), _nothing_to_do, [])
    if isinstance(said, Failed):
        raise BadScript([_broken(said.message)])
    assert isinstance(said, Returned)
    outline = Outline(source)
    if outline.deeper(DEEPEST):
        raise BadScript([Problem(f"the file nests deeper than {DEEPEST} levels", "Take it apart")])
    declared = json.loads(said.value or "null")
    if not isinstance(declared, dict) or not outline.exports:
        remedy = "End it with: export default Keep.workflow({name, topics, producers, consumers})"
        raise BadScript([Problem("the file exports no workflow", remedy)])
    check = Check(declared, outline, tools)
    if check.problems:
        raise BadScript(check.problems)
    return Script(check.name, check.topics, tuple(check.handlers), tuple(_warnings(outline)), source)


def _nothing_to_do(asked: bridge.Asked) -> str:
    raise AssertionError(f"a file has no context to ask for {asked.operation}")


def _broken(message: str) -> Problem:
    told = TOLD_PLACE.search(message)
    place = Place(int(told[1]), int(told[2])) if told else None
    remedy = "Mend the file; it stands alone and imports nothing"
    return Problem(TOLD_PLACE.sub("", message), remedy, place)


def _warnings(outline: Outline) -> Iterator[Problem]:
    for name, owners, place in outline.shared_variables():
        message = f"{', '.join(owners)} assign {name}, and none sees what another assigned: each call begins anew"
        yield Problem(message, "Return it as state, pass it in data, or publish it", place)
    for name, place in outline.lost_promises():
        who, remedy = (f"nobody awaits {name}", "Await it, or return it")
        if not name:
            who, remedy = ("forEach awaits no function", "Call it in a loop that awaits it: for (const … of …)")
        yield Problem(f"{who}, so what it throws is lost in silence", remedy, place)


def kind(value: Any) -> str:
    """The type of a described value, in words."""
    if isinstance(value, str):
        return "a text" if value.startswith("=") else value
    return "a list" if isinstance(value, list) else "an object"


class Check:
    """Goes through a described declaration and notes every problem."""

    def __init__(self, declared: Mapping[str, Any], outline: Outline, tools: Collection[str]) -> None:
        self.outline = outline
        self.tools = tools
        self.problems: list[Problem] = []
        self.handlers: list[Declaration] = []
        self.known(declared, ("name", "topics", "producers", "consumers"))
        self.name = self.named(declared)
        self.topics = tuple(self.objects(declared, "topics", required=True))
        for name, value in self.objects(declared, "producers").items():
            self.producer(name, value)
        for name, value in self.objects(declared, "consumers").items():
            self.consumer(name, value)
        if not self.handlers and not self.problems:
            self.wrong("the workflow has no handlers", "Give it a producer or a consumer")
        self.together()
        self.uses()
        for place in outline.after_mutations():
            remedy = "Make the call the last statement of mutate, and do the rest in next"
            self.problems.append(Problem("nothing behind the mutation call ever runs (SCRIPT-003)", remedy, place))

    def wrong(self, message: str, remedy: str, *path: str) -> None:
        self.problems.append(Problem(readable(message), remedy, self.outline.place(*path)))

    def known(self, value: Mapping[str, Any], fields: tuple[str, ...], *path: str) -> None:
        for field in value.keys() - set(fields):
            self.wrong(f"{field} is not known here", suggestion(field, fields), *path, field)

    # -- parts of a declaration

    def named(self, declared: Mapping[str, Any]) -> str:
        name = declared.get("name", "undefined")
        if not isinstance(name, str) or not name.startswith("="):
            self.wrong(f"name is {kind(name)}", "Give the workflow a name in quotes", "name")
            return ""
        self.check_name(name[1:], "name")
        return name[1:]

    def check_name(self, name: str, *path: str) -> None:
        if not NAME.fullmatch(name):
            remedy = "Use letters, digits, and . : - _ ; at most 100, beginning with a letter or digit"
            self.wrong(f"{name!r} can not be a name", remedy, *path)

    def objects(self, declared: Mapping[str, Any], field: str, *, required: bool = False) -> dict[str, Any]:
        """An object whose names are names of the workflow."""
        value = declared.get(field, "undefined" if required else {})
        if not isinstance(value, dict):
            self.wrong(f"{field} is {kind(value)}", f"Write {field}: {{ … }}", field)
            return {}
        for name in value:
            self.check_name(name, field, name)
        if field == "topics":
            for name, options in value.items():
                if not isinstance(options, dict):
                    self.wrong(f"topic {name} is {kind(options)}", "Write {} for it", field, name)
        return value

    def producer(self, name: str, value: Any) -> None:
        path = ("producers", name)
        interval, cron = 0, ""
        if isinstance(value, dict):
            self.known(value, ("schedule", "handler"), *path)
            self.function(value, "handler", *path)
            if "schedule" in value:
                interval, cron = self.schedule(value["schedule"], *path, "schedule")
        elif value != "function":
            self.wrong(f"producer {name} is {kind(value)}", "Make it a function, or {schedule, handler}", *path)
        self.handlers.append(Declaration(name, "producer", interval_ms=interval, cron=cron))

    def schedule(self, value: Any, *path: str) -> tuple[int, str]:
        """(interval in milliseconds, cron expression), one of which is empty."""
        if not isinstance(value, dict) or len(value.keys() & {"interval", "cron"}) != 1:
            self.wrong("a schedule has either an interval or a cron expression", 'Write {interval: "5m"}', *path)
            return 0, ""
        self.known(value, ("interval", "cron"), *path)
        [(field, text)] = [(field, value[field]) for field in ("interval", "cron") if field in value]
        text = text[1:] if isinstance(text, str) and text.startswith("=") else ""
        if field == "interval":
            length = interval_ms(text)
            if length is None:
                remedy = 'Write a number and s, m, h or d, such as "5m"; at most ten years'
                self.wrong(f"{text!r} is no interval", remedy, *path, field)
            return length or 0, ""
        if not cron_works(text):
            remedy = 'Write five fields, such as "0 9 * * 1-5" (UTC), that come true at some time'
            self.wrong(f"{text!r} is no cron expression", remedy, *path, field)
        return 0, text

    def consumer(self, name: str, value: Any) -> None:
        path = ("consumers", name)
        if not isinstance(value, dict):
            self.wrong(f"consumer {name} is {kind(value)}", "Write Keep.consumer({subscribe, prepare, …})", *path)
            return
        self.known(value, ("subscribe", "prepare", "mutate", "next"), *path)
        self.function(value, "prepare", *path)
        for optional in value.keys() & {"mutate", "next"}:
            self.function(value, optional, *path)
        topics = value.get("subscribe", "undefined")
        if not isinstance(topics, list) or not topics or not all(kind(topic) == "a text" for topic in topics):
            self.wrong(f"{name} subscribes to nothing", 'Write subscribe: ["topic", …]', *path, "subscribe")
            topics = []
        subscribes = tuple(topic[1:] for topic in topics)
        for topic in subscribes:
            if topic not in self.topics:
                remedy = suggestion(topic, self.topics, "Declare it in topics")
                self.wrong(f"{name} subscribes to {topic}, which is not declared", remedy, *path, "subscribe")
        self.handlers.append(Declaration(name, "consumer", subscribes, "mutate" in value))

    def function(self, value: Mapping[str, Any], field: str, *path: str) -> None:
        if value.get(field) != "function":
            owner = path[-1]
            problem = f"{field} of {owner} is {kind(value.get(field, 'undefined'))}"
            self.wrong(problem, "Make it a function", *path, field)

    # -- what holds between them

    def together(self) -> None:
        names: set[str] = set()
        takers: dict[str, str] = {}
        for handler in self.handlers:
            path = (f"{handler.kind}s", handler.name)
            if handler.name in names:
                self.wrong(f"two handlers are called {handler.name}", "Rename one of them", *path)
            names.add(handler.name)
            for topic in handler.subscribes:
                if topic in takers:
                    problem = f"{topic} has two consumers, {takers[topic]} and {handler.name}"
                    self.wrong(problem, "Let one of them read another topic", *path, "subscribe")
                takers[topic] = handler.name

    def uses(self) -> None:
        """What handlers ask of their context, as far as the text tells."""
        for use in self.outline.uses():
            name = f"{use.name}.{use.method}" if use.method else use.name
            if use.method and use.name not in OPERATIONS and name not in self.tools:
                self.problems.append(
                    Problem(f"no connector provides {name}", suggestion(name, self.tools, "Add it"), use.place)
                )
            elif not use.method and use.name not in OPERATIONS:
                self.problems.append(
                    Problem(f"ctx.{name} is not known", suggestion(name, OPERATIONS), use.place)
                )  # fmt: skip
            elif use.topic is not None and use.topic not in self.topics:
                remedy = suggestion(use.topic, self.topics, "Declare it in topics")
                self.problems.append(Problem(f"topic {use.topic} is not declared", remedy, use.place))


def suggestion(word: str, words: Collection[str], otherwise: str = "") -> str:
    """What was probably meant.

    >>> suggestion("prepar", ("prepare", "mutate")), suggestion("x", ("peek", "publish"))
    ('Did you mean prepare?', 'Known are peek and publish')
    """
    if close := get_close_matches(word, words, 1):
        return f"Did you mean {close[0]}?"
    if otherwise or not words:
        return otherwise or "Leave it out"
    *most, last = sorted(words)
    return f"Known are {', '.join(most)} and {last}" if most else f"Known is {last}"


def cron_works(text: str) -> bool:
    """Whether a cron expression is one, and comes true at some time.

    >>> cron_works("*/5 * * * *"), cron_works("0 0 30 2 *"), cron_works("now and then")
    (True, False, False)
    """
    try:
        return next(CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)), None) is not None
    except CronSimError:
        return False
