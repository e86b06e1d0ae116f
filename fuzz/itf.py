"""Traces in the Informal Trace Format, which TLA+, Quint and Apalache tools share, and replaying them.

The format: https://apalache-mc.org/docs/adr/015adr-trace.html. A whole number is written as `{"#bigint": "7"}`, a
tuple of any length as a list, a value of several fields as a record. A field that holds nothing is left out. Each
state has these variables:

- `actor`, `action`: who did what to come here; empty in the first state;
- `command`: the canonical JSON of the command that was submitted, if there was one;
- `outcome`: what the kernel said to it, without the state;
- `kernel`, `hand`, `world`: how things stand; see `system.py`.

When the last step itself breaks an invariant, its state says so (`breaks` in its `#meta`) and holds what the kernel
gave, before names and times are forgotten.
"""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final, NamedTuple, get_args

from ..kernel.codec import DecodeError, decode_command, encode, to_plain
from ..kernel.step import step
from ..kernel.types import Outcome, Rejected
from ..spec.invariants import Violation
from ..spec.readings import READINGS, all_swaps
from ..spec.variants import swapped
from .check import LIVENESS, Counterexample, Moment, Result, moments_of
from .setups import SETUPS, Setup, setup
from .system import LAW, Caller, Label, Model

VARIABLES: Final = ("actor", "action", "command", "outcome", "kernel", "hand", "world")

COMES_TO_REST: Final = LIVENESS["the workflow comes to rest"].invariant

Json = dict[str, Any]


# --- writing -----------------------------------------------------------------------------------------


def to_itf(result: Result, example: Counterexample) -> Json:
    """A counterexample as a JSON value in the Informal Trace Format."""
    violation = example.violation
    model = Model(result.setup, result.caller, to_law=result.to_law)
    start = first_moment(model)
    document: Json = {
        "#meta": {
            "format": "ITF",
            "format-description": "https://apalache-mc.org/docs/adr/015adr-trace.html",
            "source": "keepkernel check",
            "setup": result.setup.name,
            "events": result.setup.events,
            "features": sorted(result.setup.features),
            "caller": result.caller,
            "reading": result.reading,
            "invariant": violation.invariant,
            "rule": violation.rule,
            "description": violation.text,
            "rows": list(violation.rows),
        },
        "vars": list(VARIABLES),
        "states": [{"#meta": {"index": n}, **variables(moment)} for n, moment in enumerate((start, *example.moments))],
    }
    if example.by_step:
        document["states"][-1]["#meta"]["breaks"] = violation.invariant
    return document if example.loop < 0 else {**document, "loop": example.loop}


def first_moment(model: Model) -> Moment:
    return Moment(Label("", ""), None, *model.parts(model.initial()[0]))


def variables(moment: Moment) -> Json:
    actor, action, command = moment.label
    hand = to_plain(moment.hand) | {"queue": [encode(one) for one in moment.hand.queue]}
    del hand["durable"]  # A number that means something within one search only; the moves before it tell the state.
    return {
        "actor": actor,
        "action": action,
        "command": "" if command is None else encode(command),
        "outcome": itf_value(said(moment.outcome)),
        "kernel": itf_value(to_plain(moment.state)),
        "hand": itf_value(hand),
        "world": itf_value(to_plain(moment.world)),
    }


def said(outcome: Outcome | None) -> Json:
    """What the kernel said, but for the state, which is a variable of its own."""
    if outcome is None:
        return {"type": "nobody asked"}
    plain: Json = to_plain(outcome)
    return {name: value for name, value in plain.items() if name != "state"}


def itf_value(plain: Any) -> Any:
    """
    >>> itf_value({"attempts": 2, "keys": ["a"], "error": None, "late": False})
    {'attempts': {'#bigint': '2'}, 'keys': ['a'], 'late': False}
    """
    match plain:
        case dict():
            return {name: itf_value(value) for name, value in plain.items() if value is not None}
        case list():
            return [itf_value(value) for value in plain]
        case bool() | str():
            return plain
        case int():
            return {"#bigint": str(plain)}
    raise TypeError(f"{plain!r} has no place in a trace")


# --- reading -----------------------------------------------------------------------------------------


class NotATrace(ValueError):
    """A text is not a trace of this checker."""


class Trace(NamedTuple):
    setup: Setup
    caller: Caller
    reading: str
    invariant: str
    """What it is said to break."""
    states: tuple[Json, ...]
    loop: int


def read(text: str) -> Trace:
    """The trace behind a text; what it tells is not believed before it is replayed."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotATrace(f"not JSON: {error}") from None
    require(isinstance(document, dict), "not a JSON object")
    meta, states = document.get("#meta"), document.get("states")
    require(isinstance(meta, dict), "#meta is missing")
    require(document.get("vars") == list(VARIABLES), f"its variables are not {', '.join(VARIABLES)}")
    require(isinstance(states, list) and len(states) > 0, "it has no states")
    for n, state in enumerate(states):
        require(isinstance(state, dict) and isinstance(state.get("#meta"), dict), f"state {n} is not one")
        require({*VARIABLES} <= state.keys(), f"state {n} lacks variables")
        require(all(isinstance(state[name], str) for name in VARIABLES[:3]), f"state {n} does not say who did what")
    loop = document.get("loop", -1)
    require(loop == -1 or (type(loop) is int and 0 <= loop < len(states)), "its loop begins nowhere")
    name, events, features, caller = (meta.get(key) for key in ("setup", "events", "features", "caller"))
    require(isinstance(name, str) and name in SETUPS, f"the set-up {name!r} is not known")
    require(type(events) is int and events > 0, "it does not say how many events there are")
    require(isinstance(features, list) and all(isinstance(f, str) for f in features), "its features are no list")
    require(caller in get_args(Caller), f"the caller {caller!r} is not known")
    reading = meta.get("reading")
    require(isinstance(reading, str) and reading in ("", *READINGS), f"the reading {reading!r} is not known")
    try:
        chosen = setup(name, events, frozenset(features))
    except ValueError as error:
        raise NotATrace(str(error)) from None
    invariant = meta.get("invariant")
    require(isinstance(invariant, str), "it does not say what it breaks")
    return Trace(chosen, caller, reading, invariant, tuple(states), loop)


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise NotATrace(otherwise)


# --- replaying ---------------------------------------------------------------------------------------


class Divergence(NamedTuple):
    """Where the kernel does otherwise than a trace says."""

    step: int
    what: str
    details: tuple[str, ...] = ()


class Replay(NamedTuple):
    moments: tuple[Moment, ...]
    """The steps that were played, as the kernel gave them."""
    divergence: Divergence | None
    broken: tuple[Violation, ...]
    """What is broken where it ends."""


def replay(trace: Trace, *, with_reading: bool = False) -> Replay:
    """Play a trace step by step against the kernel, as it is or in the reading that the trace names.

    Who is there to act, what they have in hand and the world around them are played as well: a step counts only when
    somebody can take it.
    """
    swaps = all_swaps(READINGS[trace.reading]) if with_reading and trace.reading else ()
    with swapped(*swaps) if swaps else nullcontext():
        return Player(trace).play()


class Player:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.model = Model(trace.setup, trace.caller, to_law=trace.invariant == LAW)
        self.codes = self.model.initial()
        self.labels: list[int] = []

    def play(self) -> Replay:
        first, *steps = self.trace.states
        divergence = differing(0, first, first_moment(self.model))
        for n, recorded in enumerate(steps, 1):
            if divergence is None:
                divergence = self.take(n, recorded)
        divergence = divergence or self.other_end()
        return Replay(tuple(moments_of(self.model, self.codes, self.labels)), divergence, self.broken())

    def other_end(self) -> Divergence | None:
        """Whether it ends as it is said to end."""
        end, loop, invariant = len(self.labels), self.trace.loop, self.trace.invariant
        if loop < 0:
            missed = invariant and all(v.invariant != invariant for v in self.broken())
            return Divergence(end, f"it is said to break {invariant}, and does not") if missed else None
        if self.model.folded(self.codes[loop]) != self.model.folded(self.codes[-1]):
            return Divergence(end, f"the loop does not come back to where it was after step {loop}")
        onward = [self.model.labels[label] for label, _, calm in self.model.concrete_moves(self.codes[-1]) if calm]
        if invariant == COMES_TO_REST and loop == end and onward:
            return Divergence(end, f"it goes on from here; {onward[0].actor}: {onward[0].text}")
        return None

    def broken(self) -> tuple[Violation, ...]:
        if len(self.labels) == len(self.codes):
            return self.model.step_violations(self.codes[-1], self.labels[-1])
        return self.model.all_violations(self.codes[-1])

    def take(self, n: int, recorded: Json) -> Divergence | None:
        """Take the one recorded step, or say why it can not be taken."""
        if len(self.labels) == len(self.codes):
            return Divergence(n, "the step before breaks an invariant, and nothing follows it")
        try:
            command = decode_command(recorded["command"]) if recorded["command"] else None
        except DecodeError as error:
            raise NotATrace(f"the command of state {n} can not be read: {error}") from None
        wanted = Label(recorded["actor"], recorded["action"], command)
        code = self.codes[-1]
        divergence = None
        for label, onward, _ in self.model.concrete_moves(code):
            known = self.model.labels[label]
            if known != wanted or type(known.command) is not type(command):
                continue
            codes = [code] if onward is None or "breaks" in recorded["#meta"] else [code, onward]
            moment = next(moments_of(self.model, codes, [label]))
            differs = differing(n, recorded, moment)
            if differs is None:
                self.codes += codes[1:]
                self.labels.append(label)
                return None
            divergence = divergence or differs
        return divergence or Divergence(n, self.refusal(wanted))

    def refusal(self, wanted: Label) -> str:
        who = f"{wanted.actor}: {wanted.text}"
        if wanted.command is not None:
            base = self.model.stepped_on(self.codes[-1], self.model.label_id(wanted))
            outcome = step(self.model.states[base], wanted.command)
            if isinstance(outcome, Rejected):
                return f"the kernel rejects it: {outcome.reason} ({outcome.rule}); {who}"
        return f"nobody can do this here; {who}"


def differing(n: int, recorded: Json, moment: Moment) -> Divergence | None:
    actual = variables(moment)
    details = tuple(differences("", {name: recorded[name] for name in VARIABLES}, actual))
    return Divergence(n, "the trace tells it otherwise than it is", details) if details else None


def differences(place: str, told: object, actual: object) -> Iterator[str]:
    """Where two JSON values differ."""
    if told == actual and type(told) is type(actual):
        return
    if isinstance(told, dict) and isinstance(actual, dict) and "#bigint" not in told:
        for name in sorted(told.keys() | actual.keys(), key=str):
            inner = f"{place}.{name}" if place else name
            yield from differences(inner, told.get(name, NOTHING), actual.get(name, NOTHING))
    elif isinstance(told, list) and isinstance(actual, list) and len(told) == len(actual):
        for n, (one, other) in enumerate(zip(told, actual, strict=True)):
            yield from differences(f"{place}[{n}]", one, other)
    else:
        yield f"{place}: {shown(told)} in the trace, {shown(actual)} here"


NOTHING: Final = object()


def shown(value: object) -> str:
    if value is NOTHING:
        return "nothing"
    if isinstance(value, dict) and "#bigint" in value:
        return str(value["#bigint"])
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
