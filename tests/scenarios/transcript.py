"""Scenarios as readable transcripts: commands written by hand, each followed by what the kernel made of it.

A file is a text of lines, and this module is the only one that knows what they mean:

    # …                  title and prose, kept as they are
    rules: MUT-009 …     rules that the scenario shows; each must be named by an outcome below
    policy: field=value  numbers of the policy that differ from the defaults
    given a | b          commands that must be accepted; their output is not shown
    > @30s command …     a command; `@30s` sets the clock, `@+30s` moves it, without either it stands still
    > schedule           a question: what does the scheduler want? The same for `upkeep` and `recover`
    > crash              the host dies: every command that `recover` gives is applied, until it gives none
    > crash after=1      the same, but the host dies again after that many commands

Indented lines are output. They are generated, and show the outcome, the rows that changed (`+` new, `~` changed,
`-` gone) and the effects (`!`). Arguments are read by the fields and types of the command, in their order or by
name.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from keepkernel import (
    COMMANDS,
    REASONS,
    Accepted,
    Command,
    Declaration,
    Key,
    Outcome,
    Policy,
    Publication,
    State,
    new_workflow,
    recover,
    schedule,
    step,
    upkeep,
)
from keepkernel.kernel.codec import TAGS
from keepkernel.kernel.policy import UNIT_MS, interval_ms
from keepkernel.spec.invariants import Step, check_step

QUESTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "schedule": (schedule, ("fresh",)),
    "upkeep": (upkeep, ()),
    "recover": (recover, ()),
}
"""Question -> the function that answers it, with what it needs besides state and time."""

RULE = re.compile(r"\b[A-Z]+-\d{3}\b")


class BadTranscript(Exception):
    """The hand-written part of a transcript makes no sense."""


# --- reading -----------------------------------------------------------------------------------------

LENGTH = re.compile(r"(?:\d+(?:ms|[smhd]))+")
LENGTHS_MS = {"ms": 1, **UNIT_MS}
DECLARATION = re.compile(r"(\w+):(consumer|producer)\(([^)]*)\)")


def read_time(text: str) -> int:
    if not LENGTH.fullmatch(text):
        return int(text)
    return sum(int(n) * LENGTHS_MS[unit] for n, unit in re.findall(r"(\d+)(ms|[smhd])", text))


def read_key(text: str) -> Key:
    topic, _, name = text.partition("/")
    return Key(topic, name)


def read_publication(text: str) -> Publication:
    """`topic/id title`, or `topic/id title = payload`."""
    key, _, rest = text.strip().partition(" ")
    title, _, payload = rest.partition(" = ")
    return Publication(read_key(key), title, payload or "{}")


def read_declaration(text: str) -> Declaration:
    """`file:consumer(mail,mutate)`, `poll:producer(every=5m)` or `poll:producer(cron=0 * * * *)`."""
    match = DECLARATION.fullmatch(text)
    if match is None:
        raise BadTranscript(f"not a handler: {text}")
    name, kind, inside = match.groups()
    words = inside.split(",") if inside else []
    if kind == "consumer":
        return Declaration(name, "consumer", tuple(w for w in words if w != "mutate"), "mutate" in words)
    options = dict(word.split("=", 1) for word in words)
    length = interval_ms(options["every"]) if "every" in options else 0
    if length is None:
        raise BadTranscript(f"not an interval: {options['every']}")
    return Declaration(name, "producer", interval_ms=length, cron=options.get("cron", ""))


READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: read_time,
    bool: {"true": True, "false": False}.__getitem__,
    Key: read_key,
    Publication: read_publication,
    Declaration: read_declaration,
}
SEPARATORS = {Publication: r";\s*", Declaration: r",(?![^(]*\))"}


def read_value(kind: Any, text: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        (kind,) = (k for k in get_args(kind) if k is not NoneType)
        return read_value(kind, text)
    if origin is Literal:
        if text not in get_args(kind):
            raise BadTranscript(f"{text} is not one of {', '.join(get_args(kind))}")
        return text
    if origin is tuple:
        (item, _) = get_args(kind)
        return tuple(read_value(item, part) for part in re.split(SEPARATORS.get(item, ","), text) if part)
    return READERS[kind](text)


def read_fields(kind: Any, words: list[str], **known: Any) -> Any:
    """A value of a NamedTuple from words: `name=value`, or by position after the known fields."""
    hints = get_type_hints(kind)
    free = [name for name in kind._fields if name not in known]
    values = dict(known)
    for position, word in enumerate(words):
        name, equals, text = word.partition("=")
        if not (equals and name in hints):
            name, text = free[position], word
        values[name] = read_value(hints[name], text)
    return kind(**values)


# --- printing ----------------------------------------------------------------------------------------

TIMES = re.compile(r"now|until|send_by|\w+_(at|until|ms)")
DIGEST = re.compile(r"[0-9a-f]{64}")


def show_time(time_ms: int) -> str:
    """A time in the units of a reader, exactly."""
    if time_ms < 0:
        return "never"
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, time_ms = divmod(time_ms, LENGTHS_MS[unit])
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def short_digest(digest: re.Match[str]) -> str:
    return f"#{digest[0][:8]}"


def show_declaration(d: Declaration) -> str:
    if d.kind == "consumer":
        inside = ",".join((*d.subscribes, *(["mutate"] if d.has_mutate else [])))
    else:
        inside = f"every={show_time(d.interval_ms)}" if d.interval_ms else f"cron={d.cron}" if d.cron else ""
    return f"{d.name}:{d.kind}({inside})"


def show(name: str, value: Any) -> str:
    """A field's value as a reader would write it."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case int():
            return show_time(value) if TIMES.fullmatch(name) else str(value)
        case Key():
            return f"{value.topic}/{value.id}"
        case Declaration():
            return show_declaration(value)
        case tuple() if hasattr(value, "_fields"):
            return f"({show_fields(value)})"
        case tuple():
            return ",".join(show(name, item) for item in value) or "none"
        case _:
            text = DIGEST.sub(short_digest, value)
            return f'"{text}"' if not text or " " in text else text


def empty(name: str, value: Any) -> bool:
    """Whether a new row can leave a field out: it has nothing to say yet."""
    return value in ("", "null", (), None, -1) or (value == 0 and name != "due_at")


def show_fields(row: Any) -> str:
    fields = row._asdict()
    return " ".join(f"{name}={show(name, v)}" for name, v in fields.items() if name != "now" and not empty(name, v))


def show_request(value: Any) -> str:
    """A command or an effect in the syntax of the input, or the scheduler's wish to wait."""
    return f"{TAGS.get(type(value), type(value).__name__.lower())} {show_fields(value)}"


ONE = ("error", "maintenance", "session", "run", "mutation")
MANY = ("grants", "approvals", "handlers", "events")


def rows(state: State) -> dict[str, Any]:
    """Every row of a state by its label. What is left of the state without them is the workflow's own row."""
    bare: Any = dict.fromkeys(ONE + MANY)
    found: dict[str, Any] = {"workflow": state._replace(**bare)}
    named = [(name, row) for name in ONE if (row := getattr(state, name)) is not None]
    named += [(name, row) for name in MANY for row in getattr(state, name)]
    return found | {label(name, row): row for name, row in named}


def label(name: str, row: Any) -> str:
    """A row is known by its first field."""
    if name == "approvals":  # Several may stand for one tool.
        return f"approval of {show('digest', row.digest)} for {show('events', row.events)}"
    first = row.declared.name if name == "handlers" else row[0] and show("", row[0])
    return f"{name.removesuffix('s')} {first}".rstrip()


def changes(before: Any, after: Any) -> str:
    pairs = zip(before._fields, before, after, strict=True)
    return ", ".join(f"{name} {show(name, old)} → {show(name, new)}" for name, old, new in pairs if old != new)


def show_changes(before: State, accepted: Accepted) -> Iterator[str]:
    old, new = rows(before), rows(accepted.state)
    history = {label(name, row): row for name, row in accepted.retired._asdict().items() if row is not None}
    for name, row in old.items():
        if name in new and new[name] != row:
            yield f"~ {name}: {changes(row, new[name])}"
        elif name in history:
            yield f"- {name} to history: {changes(row, history[name])}".removesuffix(": ")
        elif name not in new:
            if name.split()[0] in accepted.retired._fields:
                raise AssertionError(f"{name} left the state without becoming history")
            yield f"- {name}"
    for name, row in new.items():
        if name not in old:
            told = f"{row._fields[0]}={name.split()[-1]} "
            yield f"+ {name}: {show_fields(row).removeprefix(told)}".removesuffix(": ")


def show_outcome(before: State, outcome: Outcome) -> Iterator[str]:
    if isinstance(outcome, Accepted):
        yield f"accepted {' '.join(outcome.rules)}"
        yield from show_changes(before, outcome)
        yield from (f"! {show_request(effect)}" for effect in outcome.effects)
    else:
        reason = REASONS[outcome.reason]
        detail = f" ({DIGEST.sub(short_digest, outcome.detail)})" if outcome.detail else ""
        yield f"rejected {outcome.reason}{detail} {outcome.rule}: {reason.why} / {reason.remedy}"


# --- running -----------------------------------------------------------------------------------------


class Player:
    """Plays a transcript line by line on one workflow."""

    def __init__(self) -> None:
        self.state = new_workflow("demo")
        self.now = 0
        self.digests: dict[str, str] = {}
        self.claimed: set[str] = set()
        self.seen: set[str] = set()

    def play(self, line: str) -> list[str]:
        """The output of one line."""
        match line.split(" ", 1):
            case ["rules:", rules]:
                self.claimed |= set(rules.split())
            case ["policy:", fields]:
                self.state = new_workflow("demo", read_fields(Policy, fields.split()))
            case ["given", commands]:
                for words in self.split(commands):
                    self.given(words)
            case [">", command]:
                (words,) = self.split(command)
                return [f"  {output}" for output in self.answer(words)]
            case _ if line and not line.startswith("#"):
                raise BadTranscript(f"not a line of a transcript: {line}")
        return []

    def split(self, text: str) -> Iterator[list[str]]:
        """The words of each command, after setting the clock."""
        command: list[str] = []
        for word in [*shlex.split(text), "|"]:
            if word == "|":
                yield command
                command = []
            elif word.startswith("@") and not command:
                self.set_clock(word[1:])
            else:
                command.append(self.digests.get(word, word))

    def set_clock(self, text: str) -> None:
        now = self.now + read_time(text[1:]) if text.startswith("+") else read_time(text)
        if now < self.now:
            raise BadTranscript(f"the clock goes backwards at @{text}")
        self.now = now

    def read(self, words: list[str]) -> Command:
        command: Command = read_fields(COMMANDS[words[0]], words[1:], now=self.now)
        return command

    def given(self, words: list[str]) -> None:
        outcome = self.step(self.read(words))
        if not isinstance(outcome, Accepted):
            raise BadTranscript(f"{' '.join(words)} is given but rejected: {outcome}")

    def answer(self, words: list[str]) -> Iterator[str]:
        if words[0] in QUESTIONS:
            question, more = QUESTIONS[words[0]]
            self.names_rules(question)
            answer = question(self.state, self.now, *more)
            many = isinstance(answer, tuple) and not hasattr(answer, "_fields")
            yield from [show_request(a) for a in (answer if many else (answer,))] or ["nothing"]
        elif words[0] == "crash":
            yield from self.crash(*words[1:])
        else:
            yield from self.shown(self.read(words))

    def names_rules(self, question: Callable[..., Any]) -> None:
        """A question has no outcome that names rules; its description does."""
        self.seen |= set(RULE.findall(question.__doc__ or ""))

    def crash(self, after: str = "after=10") -> Iterator[str]:
        self.names_rules(recover)
        for _ in range(int(after.removeprefix("after="))):
            commands = recover(self.state, self.now)
            if not commands:
                yield "recovered"
                return
            yield show_request(commands[0])
            yield from (f"  {output}" for output in self.shown(commands[0]))
        yield "the host dies again"

    def shown(self, command: Command) -> Iterator[str]:
        before = self.state
        outcome = self.step(command)
        self.seen |= {outcome.rule} if not isinstance(outcome, Accepted) else set(outcome.rules)
        yield from show_outcome(before, outcome)

    def step(self, command: Command) -> Outcome:
        before, outcome = self.state, step(self.state, command)
        if isinstance(outcome, Accepted):
            self.state = outcome.state
        broken = check_step(Step(before, command, outcome, self.state))
        if broken:
            raise AssertionError(f"{command} breaks {'; '.join(map(str, broken))}")
        if self.state.mutation is not None:
            self.digests[f"#{self.state.mutation.digest[:8]}"] = self.state.mutation.digest
        return outcome


def rules_of(text: str) -> list[str]:
    """The rules that a transcript claims to show."""
    return [rule for line in text.splitlines() if line.startswith("rules: ") for rule in line.split()[1:]]


def replay(text: str) -> tuple[str, set[str]]:
    """The hand-written lines with fresh output, and the claimed rules that no outcome names."""
    player = Player()
    lines = []
    for line in text.splitlines():
        if not line.startswith("  "):
            lines += [line, *player.play(line)]
    return "\n".join(lines) + "\n", player.claimed - player.seen
