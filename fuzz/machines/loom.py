"""Threads whose every switch is chosen: the names of `threading` that the service uses, for one life.

Each strand is a thread of the system, but only one moves at a time, up to its next use of a lock, an event or a
condition, or to wherever it calls `pause`. Who moves then is chosen, and time passes only when it is told to. So a life
with the same choices is the same life again.
"""

import math
import threading
from collections.abc import Callable
from typing import Any, Final

from .choices import Choices
from .life import Broken

MOVES_MAX: Final = 20_000
"""Whoever moves so often while no time passes goes in circles."""


class Unravelled(BaseException):
    """The life is over, and its threads end wherever they are."""


def at_once() -> bool:
    return True


class Strand:
    """A thread of a life."""

    def __init__(self, loom: "Loom", target: Callable[[], object], name: str) -> None:
        self.loom = loom
        self.name = name
        self.target = target
        self.started = False
        self.done = False
        self.ready: Callable[[], bool] = at_once
        """Whether what it waits for has come."""
        self.until: int | None = None
        """When it waits no longer."""
        self._baton = threading.Lock()
        self._baton.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self.loom.strands.append(self)

    @property
    def can_move(self) -> bool:
        return not self.done and (self.ready() or (self.until is not None and self.until <= self.loom.now))

    def move(self) -> None:
        """Up to its next pause. Only the life itself calls this."""
        self.loom.moving = self
        if self.started:
            self._baton.release()
        else:
            self.started = True
            self._thread.start()
        self.loom.paused.acquire()
        self.loom.moving = None

    def pause(self, ready: Callable[[], bool], until: int | None) -> None:
        self.ready, self.until = ready, until
        self.loom.paused.release()
        self._baton.acquire()
        if self.loom.over:
            raise Unravelled

    def _run(self) -> None:
        try:
            self.target()
        except Unravelled:
            pass
        except BaseException as error:
            self.loom.errors.append(error)
        self.done = True
        self.loom.paused.release()


class Loom:
    """All threads of one life, and its time in milliseconds. It stands in for the module `threading`."""

    def __init__(self, choices: Choices, now: int, switches: int) -> None:
        self.choices = choices
        self.now = now
        self.switches = switches
        """How often, in percent, another one goes on."""
        self.strands: list[Strand] = []
        self.moving: Strand | None = None
        self.paused = threading.Lock()
        self.paused.acquire()
        self.over = False
        self.errors: list[BaseException] = []

    # -- for the life

    def step(self) -> bool:
        """Let one of them move; False when all sleep."""
        able = [strand for strand in self.strands if strand.can_move]
        if not able:
            return False
        other = len(able) > 1 and self.choices.chance(self.switches)
        chosen = self.choices.of(able) if other else able[0]
        self.strands.remove(chosen)
        self.strands.insert(0, chosen)  # The one that is at work goes on, unless another one is chosen.
        chosen.move()
        if chosen.done:
            self.strands.remove(chosen)
        if self.errors:
            raise self.errors[0]
        return True

    def settle(self) -> None:
        """Until all sleep; no time passes."""
        for _ in range(MOVES_MAX):
            if not self.step():
                return
        raise Broken("LIVE", f"{self.strands[0].name} does not come to rest")

    def next_time(self) -> int | None:
        """When the first of those that sleep wakes."""
        return min((strand.until for strand in self.strands if strand.until is not None), default=None)

    def unravel(self) -> None:
        self.over = True
        if self.moving is not None:  # The life was cut off while this one moved.
            self.paused.acquire()
        for strand in self.strands:
            while strand.started and not strand.done:
                strand.move()

    # -- for those who think that it is `threading`

    def pause(self, ready: Callable[[], bool] = at_once, seconds: float | None = None) -> bool:
        """Let others go on until this is so, or for so long; whether it is so."""
        if self.over:
            raise Unravelled
        if self.moving is None:
            assert ready(), "only a strand can wait"
        else:
            forever = seconds is None or math.isinf(seconds)
            self.moving.pause(ready, None if forever else self.now + math.ceil(max(0, seconds or 0) * 1_000))
        return ready()

    def Thread(self, target: Callable[[], object], name: str, daemon: bool = True) -> Strand:  # noqa: N802
        return Strand(self, target, name)

    def Lock(self) -> "Lock":  # noqa: N802
        return Lock(self)

    RLock = Lock

    def Event(self) -> "Event":  # noqa: N802
        return Event(self)

    def Condition(self) -> "Condition":  # noqa: N802
        return Condition(self)


class Lock:
    """Whoever holds it may take it again."""

    def __init__(self, loom: Loom) -> None:
        self.loom = loom
        self.holder: Strand | None = None
        self.times = 0

    def __enter__(self) -> None:
        me = self.loom.moving
        if self.times and self.holder is me:
            self.times += 1
            return
        self.loom.pause()  # Somebody may come first.
        while self.times:
            self.loom.pause(lambda: not self.times)
        self.holder, self.times = me, 1

    def __exit__(self, *error: object) -> None:
        self.times -= 1


class Event:
    def __init__(self, loom: Loom) -> None:
        self.loom = loom
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self.loom.pause()
        self._is_set = True

    def clear(self) -> None:
        self.loom.pause()
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        self.loom.pause()
        return self._is_set or self.loom.pause(self.is_set, timeout)


class Condition:
    def __init__(self, loom: Loom) -> None:
        self.loom = loom
        self._lock = Lock(loom)
        self._waiting: set[object] = set()

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def notify_all(self) -> None:
        self._waiting.clear()

    def _notified(self, ticket: object) -> Callable[[], bool]:
        return lambda: ticket not in self._waiting

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else self.loom.now + timeout * 1_000
        while not (said := predicate()) and (end is None or self.loom.now < end):
            ticket = object()
            self._waiting.add(ticket)
            self._lock.__exit__()
            left = None if end is None else (end - self.loom.now) / 1_000
            self.loom.pause(self._notified(ticket), left)
            self._lock.__enter__()
        return said
