"""Telling what a search found, in words."""

from collections.abc import Iterator

from ..kernel.codec import to_plain
from ..kernel.commands import NAMES
from ..kernel.types import Rejected, State
from .check import Counterexample, Moment, Result


def told(result: Result) -> str:
    """The whole result as text."""
    return "\n".join(lines(result))


def lines(result: Result) -> Iterator[str]:
    yield f"{result.setup.name} ({result.caller}): {result.verdict}{': ' if result.why else ''}{result.why}"
    for example in result.counterexamples:
        yield from story(example)


def story(example: Counterexample) -> Iterator[str]:
    """A counterexample: numbered steps in words, what changed, what is broken."""
    before = example.start
    for number, moment in enumerate(example.moments, 1):
        if number - 1 == example.loop:
            yield "     -- from here on it goes round for ever --"
        yield f"{number:4}  {step_in_words(moment)}"
        for change in changes(before, moment.state):
            yield f"        {change}"
        before = moment.state
    violation = example.violation
    yield f"breaks {violation.invariant} ({violation.rule}): {violation.text}"
    yield from (f"        {row}" for row in violation.rows)


def step_in_words(moment: Moment) -> str:
    actor, text, command = moment.label
    if command is None:
        return f"{actor}: {text}"
    said = f" (rejected: {moment.outcome.reason})" if isinstance(moment.outcome, Rejected) else ""
    return f"{actor}: {text}: {NAMES[type(command)]}{said}"


def changes(before: State, after: State) -> Iterator[str]:
    """The fields that differ, row by row."""
    was, now = to_plain(before), to_plain(after)
    yield from differences("", was, now)


def differences(place: str, was: object, now: object) -> Iterator[str]:
    if was == now:
        return
    if isinstance(was, dict) and isinstance(now, dict):
        for name in was.keys() | now.keys():
            yield from differences(f"{place}.{name}" if place else name, was.get(name), now.get(name))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for n, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(f"{place}[{n}]", one, other)
    else:
        yield f"{place}: {was} → {now}"
