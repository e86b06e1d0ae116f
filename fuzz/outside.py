"""The outside of the crash harness: a target whose memory is a file of its own.

Nothing else writes that file, and every line is on disk before anybody hears of it. So it can testify afterwards
what really happened, whatever became of the process, its store and its host.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from ..adapters.points import Reach
from ..kernel.respond import Answer, AskAgain, DidNotHappen, Failed, Happened, NoMethod, Unknown
from ..kernel.types import Key, Reconcile, Send

Does = Literal["applied", "refused", "silent", "lost", "late"]
"""What the target does with a call: it applies it and says so; it refuses it and says so; it applies it and its
answer is lost; the call never arrives; the call arrives a minute later. The last three give no answer."""

What = Literal["applied", "refused", "silent", "lost", "late", "voided", "asked", "failed"]

BEGINNING_MS: Final = 1_000_000
ANSWER_MS: Final = 30_000
"""After so long a host takes a call for lost."""
LATE_MS: Final = 60_000
"""So long a late call travels: the connector's whole deadline."""


class Entry(NamedTuple):
    """One line of the record."""

    what: What
    about: str
    """The idempotency key of a call; of a failed function its name."""
    inputs: tuple[Key, ...]
    at: int
    version: int
    """How many transitions the store had shown by then."""


class Clock:
    """Virtual time: it passes when somebody waits, and it stands in a file, because it stops for nobody's death."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.now = int(path.read_text()) if path.exists() else BEGINNING_MS

    def __call__(self) -> int:
        return self.now

    def wait_until(self, until: int) -> None:
        """Whatever is seen from here on is seen at this time or later, also by the next life."""
        self.now = max(self.now, until)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, f"{self.now:015}".encode(), 0)  # Always as long, so that no moment finds half a number.
        finally:
            os.close(file)


def entries(record: Path) -> tuple[Entry, ...]:
    """What the outside remembers."""
    if not record.exists():
        return ()
    lines = (json.loads(line) for line in record.read_text().splitlines())
    return tuple(Entry(what, about, tuple(Key(*k) for k in inputs), at, v) for what, about, inputs, at, v in lines)


def landed_at(entry: Entry, record: tuple[Entry, ...]) -> int | None:
    """When a call took effect; None when it never did. A voided key keeps out what still travels."""
    if entry.what in ("applied", "silent"):
        return entry.at
    if entry.what != "late":
        return None
    voided = [e.at for e in record if e.what == "voided" and e.about == entry.about]
    return None if any(at < entry.at + LATE_MS for at in voided) else entry.at + LATE_MS


class Plan(Protocol):
    """What the outside does when nobody dies; a workflow says it."""

    @property
    def keys(self) -> tuple[Key, ...]: ...
    @property
    def calls(self) -> tuple[Does, ...]: ...
    @property
    def shrugs(self) -> int: ...
    @property
    def voids(self) -> bool: ...
    @property
    def reconcilable(self) -> bool: ...


class Outside:
    """The target of all calls."""

    def __init__(self, plan: Plan, record: Path, clock: Clock, reach: Reach, version: Callable[[], int]) -> None:
        self.plan = plan
        self.record = entries(record)
        self._path = record
        self._clock = clock
        self._reach = reach
        self._version = version

    # -- what a host asks

    def send(self, effect: Send) -> Answer:
        """The n-th call for the same inputs does what is planned for it; calls that nobody planned are applied."""
        inputs = inputs_of(effect.params)
        plan = self.plan.calls if inputs[0] == self.plan.keys[0] else ()
        made = sum(1 for e in self.record if e.inputs == inputs and e.what not in ("voided", "asked", "failed"))
        does: Does = plan[made] if made < len(plan) else "applied"
        if self._told("voided", effect.key):
            does = "refused"
        self.note(does, effect.key, inputs)
        if does == "applied":
            return Happened('{"row":1}')
        if does == "refused":
            return Failed("rate_limit", "the target is busy and did nothing")
        self._clock.wait_until(self._clock.now + ANSWER_MS)
        return Unknown("the target gave no answer")

    def reconcile(self, effect: Reconcile) -> Answer:
        """The truth; before it, as often as is planned, that it can not be told."""
        if not self.plan.reconcilable:
            return NoMethod()
        inputs = inputs_of(effect.params)
        asked = self._told("asked", effect.key)
        self.note("asked", effect.key, inputs)
        if asked < self.plan.shrugs:
            return AskAgain("the target can not tell yet")
        if self.happened(effect.key):
            return Happened('{"row":1}')
        if self.plan.voids:
            self.note("voided", effect.key, inputs)
        return DidNotHappen(self.plan.voids)

    # -- what others may know

    def happened(self, key: str) -> bool:
        """Whether this call has taken effect by now."""
        times = [landed_at(e, self.record) for e in self.record if e.about == key]
        return any(at is not None and at <= self._clock.now for at in times)

    def fails(self, function: str, inputs: tuple[Key, ...], times: int) -> bool:
        """Whether a function fails this time: the first `times` times for these inputs."""
        failed = sum(1 for e in self.record if (e.what, e.about, e.inputs) == ("failed", function, inputs))
        if failed < times:
            self.note("failed", function, inputs)
        return failed < times

    def note(self, what: What, about: str, inputs: tuple[Key, ...]) -> None:
        """Let it happen: from here on it is so, and survives any death."""
        entry = Entry(what, about, inputs, self._clock.now, self._version())
        self._reach(f"outside: before {what}")
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, (json.dumps(entry) + "\n").encode())
            os.fsync(file)
        finally:
            os.close(file)
        self.record += (entry,)
        self._reach(f"outside: after {what}")

    def _told(self, what: What, key: str) -> int:
        return sum(1 for e in self.record if (e.what, e.about) == (what, key))


def params_of(inputs: tuple[Key, ...]) -> str:
    return json.dumps(inputs)


def inputs_of(params: str) -> tuple[Key, ...]:
    return tuple(Key(*key) for key in json.loads(params))
