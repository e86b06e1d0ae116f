"""The outside of a life: calls that travel, land or are lost, and what people said of them. It is the judge.

A call lands before its deadline, counted from the moment at which it was really sent. That is all that the world
promises; what a host, a store or the kernel believes about it is their own affair.
"""

from typing import Literal

from ...kernel.types import Key
from ...spec.invariants import Ghost
from .choices import Choices

Fate = Literal["air", "landed", "lost", "void"]


class Call:
    """One call that left a host."""

    def __init__(self, key: str, inputs: tuple[Key, ...], sent_at: int, deadline_ms: int) -> None:
        self.key = key
        self.inputs = inputs
        self.lands_before = sent_at + deadline_ms
        self.fate: Fate = "air"


class World:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.voided: set[str] = set()
        self._landed: list[Key] = []
        self._denied: set[Key] = set()
        self._asserted: set[Key] = set()

    def ghost(self) -> Ghost:
        return Ghost(tuple(self._landed), frozenset(self._denied), frozenset(self._asserted))

    def send(self, key: str, inputs: tuple[Key, ...], now: int, deadline_ms: int) -> Call:
        call = Call(key, inputs, now, deadline_ms)
        if key in self.voided:
            call.fate = "lost"
        self.calls.append(call)
        return call

    def land(self, call: Call) -> None:
        call.fate = "landed"
        self._landed += call.inputs

    def travelling(self) -> list[Call]:
        return [call for call in self.calls if call.fate == "air"]

    def happened(self, key: str) -> bool:
        return any(call.key == key and call.fate == "landed" for call in self.calls)

    def arrived(self, key: str) -> bool:
        """Whether there ever was such a call."""
        return any(call.key == key for call in self.calls)

    def travels(self, key: str) -> bool:
        return any(call.key == key and call.fate == "air" for call in self.calls)

    def void(self, key: str) -> None:
        """From now on nothing with this key can land."""
        self.voided.add(key)
        for call in self.calls:
            if call.key == key and call.fate == "air":
                call.fate = "void"

    def pass_time(self, until: int, choices: Choices) -> None:
        """Calls whose time is over by then have landed or are lost."""
        for call in self.travelling():
            if call.lands_before <= until:
                self.end(call, choices)

    def end(self, call: Call, choices: Choices) -> None:
        if choices.chance(60):
            self.land(call)
        else:
            call.fate = "lost"

    def denied(self, key: str, inputs: tuple[Key, ...]) -> None:
        """A person says that it did not happen; when it did, what follows is theirs."""
        if self.happened(key):
            self._denied |= {*inputs}

    def asserted(self, key: str, inputs: tuple[Key, ...]) -> None:
        if not self.happened(key):
            self._asserted |= {*inputs}
