"""A counterexample as a Mermaid sequence diagram."""

from collections.abc import Iterator
from typing import Final

from ..kernel.commands import NAMES
from ..kernel.types import Rejected
from .check import Counterexample, Moment
from .report import Scene, last_rows, last_words, scenes
from .setups import TOOL

KERNEL: Final = "kernel"
TARGET: Final = "target"
ORDER: Final = ("time", "user", "tool", "anyone", "second host", "host", KERNEL, TARGET)
"""From left to right. What happens in the world happens at the target."""

CALLS: Final = "calls the target"
ANSWERS: Final = ("the target ", "gets no answer")
"""How the words of a host begin that has heard from the target, or not."""


def to_mermaid(example: Counterexample) -> str:
    """The text of a diagram: who submits what, what the kernel rejects, what changes, and what breaks at the end."""
    return "\n".join(lines(example)) + "\n"


def lines(example: Counterexample) -> Iterator[str]:
    yield "sequenceDiagram"
    actors = {place(moment.label.actor) for moment in example.moments} | {KERNEL, TARGET}
    yield from (f"    participant {name(actor)} as {actor}" for actor in ORDER if actor in actors)
    for n, (moment, scene) in enumerate(zip(example.moments, scenes(example), strict=True)):
        if n == example.loop:
            yield "    loop for ever"
        yield from (f"    {line}" for line in arrows(moment, scene))
    if 0 <= example.loop < example.length:
        yield "    end"
    elif example.loop == example.length:
        yield f"    Note over {KERNEL}: {last_words(example)}"
    violation = example.violation
    broken = (f"breaks {violation.invariant} ({violation.rule})", violation.text, *last_rows(example))
    yield f"    Note over {KERNEL}: {several(broken)}"


def arrows(moment: Moment, scene: Scene) -> Iterator[str]:
    actor, text, command = moment.label
    who = name(place(actor))
    if command is None:
        yield f"{who}->>{TARGET}: {TOOL}" if text == CALLS else f"Note over {who}: {safe(text)}"
    else:
        if actor == "host" and text.startswith(ANSWERS):
            yield f"{TARGET}--{'x' if text == ANSWERS[1] else '>>'}{who}: {safe(text)}"
            yield f"{who}->>{KERNEL}: {NAMES[type(command)]}"
        else:
            yield f"{who}->>{KERNEL}: {safe(text)} ({NAMES[type(command)]})"
        if isinstance(moment.outcome, Rejected):
            yield f"{KERNEL}--x{who}: rejected, {moment.outcome.reason}"
    if scene.changes:
        yield f"Note over {TARGET if actor == 'world' else KERNEL}: {several(scene.changes)}"


def place(actor: str) -> str:
    return TARGET if actor == "world" else actor


def name(actor: str) -> str:
    return actor.replace(" ", "_")


def several(texts: tuple[str, ...]) -> str:
    return "<br/>".join(map(safe, texts))


def safe(text: str) -> str:
    """Semicolons and hashes end a statement, angle brackets begin a tag.

    >>> safe("a; b <c> #1")
    'a, b ‹c› no. 1'
    """
    return text.replace(";", ",").replace("#", "no. ").replace("<", "‹").replace(">", "›")
