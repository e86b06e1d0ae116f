"""What a target answers, as a real connector hears it: the real connections must make the same of it.

The world has decided what became of a call. Here a connector meets with it in one of the ways in which targets, nets
and libraries say such a thing, and whatever the connections take for certain must be so.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from pydantic import RootModel

from ...adapters.connectors.base import Call, Connector, NotDone, Refused, Unclear, changes, reconciles
from ...adapters.connectors.connections import Connections
from ...kernel.failures import FailureClass
from ...kernel.respond import Answer, AskAgain, Failed, Happened, Unknown
from ...kernel.types import Reconcile, Send
from .choices import Choices
from .life import Broken

DEFINITE: Final[tuple[FailureClass, ...]] = ("refused", "rate_limit", "auth")
"""What only a target can say; it has looked at the call and does not do it."""
INDEFINITE: Final[tuple[FailureClass, ...]] = ("timeout", "network", "host", "connector", "limit", "permission")
"""What a target may say of itself too, and what proves nothing once the call has left."""


class Anything(RootModel[Any]):
    """Parameters and results of any shape."""


class Sheets(Connector):
    """A connector that meets with what was drawn."""

    meets: Callable[[Call], Any]

    @changes
    def append(self, params: Anything, call: Call) -> Anything:
        told: Anything = self.told(call)
        return told

    @reconciles("append")
    def look(self, params: Anything, call: Call) -> Any:
        return self.told(call)

    def told(self, call: Call) -> Any:
        found = self.meets(call)
        if isinstance(found, Exception):
            raise found
        return Anything(json.loads(found.result)) if isinstance(found, Happened) else found


def through(choices: Choices, effect: Send | Reconcile, drawn: Answer, now: int) -> None:
    """Let the real connections hear of it, and hold what they make of it against what was drawn."""
    met = in_its_way(choices, effect, drawn)

    def meets(call: Call) -> Any:
        if not isinstance(met, NotDone) or isinstance(met, Refused):
            call.leaves()
        return met

    sheets = Sheets(meets=meets)
    silent = lambda tool, message, key: None  # noqa: E731 - what a person would read
    connections = Connections({"sheets": sheets}, tell=silent, clock=lambda: now)
    answer = connections.send(effect) if isinstance(effect, Send) else connections.reconcile(effect)
    if plain(answer) != plain(drawn):
        raise Broken("CONNECTOR", f"{met!r:.200} means {drawn!r:.200}, and the connections say {answer!r:.200}")


def in_its_way(choices: Choices, effect: Send | Reconcile, drawn: Answer) -> Any:
    """How a connector comes to know it: an answer, or an exception."""
    if isinstance(drawn, Failed):
        return (Refused if drawn.failure in DEFINITE else NotDone)(drawn.failure, drawn.message)
    if isinstance(drawn, AskAgain) and choices.chance(50):
        return choices.of((drawn, Unclear("busy"), ConnectionError("gone"), KeyError("id")))
    if isinstance(effect, Send) and not isinstance(drawn, Happened):
        unclear = Unclear("gateway"), ConnectionError("gone"), TimeoutError("slow"), KeyError("id")
        return choices.of((*unclear, *(Refused(failure, "no") for failure in INDEFINITE)))
    return drawn


def plain(answer: Answer) -> object:
    if isinstance(answer, Happened):
        return json.loads(answer.result)
    if isinstance(answer, Unknown | AskAgain):  # In words of its own, but it says why.
        return type(answer), bool(answer.message)
    return answer.failure if isinstance(answer, Failed) else answer
