"""The clock of a store: one for all hosts, and it never goes back (HOST-004)."""

import time
from collections.abc import Callable
from typing import Final

AHEAD_S: Final = 60
"""A store's time may be so far ahead of a clock without anybody being told."""


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def ahead_of_clock_s(store_ms: int) -> int:
    """So many seconds is a store's time ahead of this machine's clock; 0 when nobody need be told."""
    ahead_s = (store_ms - wall_clock_ms()) // 1_000
    return ahead_s if ahead_s > AHEAD_S else 0


class ForwardClock:
    """Milliseconds that never go back, not even behind a time that the store has written down."""

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._latest = 0

    def now(self) -> int:
        return self.saw(self._clock())

    def saw(self, at: int) -> int:
        """Take note of a time, of this or another process, and give the latest one known."""
        self._latest = max(self._latest, at)
        return self._latest
