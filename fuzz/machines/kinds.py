"""The kinds of things that a life can come to, by name, so that what no life comes to is seen."""

from collections.abc import Iterator
from typing import Final, get_args

from ...kernel import commands as c
from ...kernel.failures import FailureClass
from ...kernel.reasons import REASONS
from ...kernel.respond import (
    Answer,
    AskAgain,
    Called,
    CalledNothing,
    DidNotHappen,
    Failed,
    Finished,
    Happened,
    NoMethod,
    Pinned,
    Unknown,
)
from ...kernel.types import Accepted, CallHandler, Effect, Outcome, Reconcile, Send
from ..unreached import NEVER_LIVED
from .rules import HINTS, literals

UPKEEP: Final = "Reconcile reconcile"
"""No command has it as its effect; a host is to do it by what the state says."""
TOLD_APART: Final = ("by", "early", "voided", "no_method", "mode", "status")
"""Fields that make another thing of a command."""
ENDS: Final = {
    "CallHandler prepare": (Pinned, Failed),
    "CallHandler mutate": (Called, CalledNothing, Failed),
    "CallHandler next": (Finished, Failed),
    "CallHandler producer": (Finished, Failed),
    "Send": (Happened, Unknown, Failed),
    "Reconcile inline": (Happened, DidNotHappen, AskAgain, NoMethod),
    UPKEEP: (Happened, DidNotHappen, AskAgain, NoMethod),
}
"""What is asked of others, and what it may come to."""


def of_command(command: c.Command) -> Iterator[str]:
    name = f"command {c.NAMES[type(command)]}"
    yield name
    for field in TOLD_APART:
        if field in command._fields:
            yield f"{name} {field}={getattr(command, field)}"


def of_effect(effect: Effect) -> str:
    which = getattr(effect, "function", getattr(effect, "by", ""))
    return f"{type(effect).__name__} {which}".rstrip()


def of_outcome(command: c.Command, outcome: Outcome) -> Iterator[str]:
    if not isinstance(outcome, Accepted):
        yield f"refusal {outcome.reason}"
        return
    yield from of_command(command)
    yield from (f"effect {of_effect(effect)}" for effect in outcome.effects)


def of_answer(effect: CallHandler | Send | Reconcile, answer: Answer) -> Iterator[str]:
    yield f"answer {of_effect(effect)}: {type(answer).__name__}"
    if isinstance(answer, Failed):
        yield f"failure {answer.failure}"
    if isinstance(answer, DidNotHappen) and answer.voided:
        yield f"answer {of_effect(effect)}: voided"


def everything() -> Iterator[str]:
    """All the kinds that there are."""
    for kind, name in c.NAMES.items():
        yield f"command {name}"
        for field in TOLD_APART:
            hint = HINTS[kind].get(field)
            values = (False, True) if hint is bool else literals(hint)
            yield from (f"command {name} {field}={value}" for value in values)
    yield from (f"refusal {reason}" for reason in REASONS)
    yield from (f"effect {effect}" for effect in (*ENDS, "Repair") if effect != UPKEEP)
    for effect, answers in ENDS.items():
        yield from (f"answer {effect}: {answer.__name__}" for answer in answers)
        if DidNotHappen in answers:
            yield f"answer {effect}: voided"
    yield from (f"failure {failure}" for failure in get_args(FailureClass))


EVERYTHING: Final = frozenset(everything())
LIVED: Final = EVERYTHING - NEVER_LIVED.keys()
"""What lives must come to, sooner or later."""
