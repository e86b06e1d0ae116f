"""One line on a terminal that says how far a long work is, and a way to stop it that leaves a partial result."""

import signal
import sys
import threading
import time
from types import FrameType
from typing import Final

from .explorer import Progress

QUIET_SECONDS: Final = 2.0
"""What is over sooner needs no progress line."""


def show(text: str) -> None:
    """Put a text in the place of the last one; a log gets none."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Watch:
    """Stands by a search: shows its progress, and lets Ctrl-C end it between two states.

    A second Ctrl-C is an ordinary interrupt.
    """

    def __init__(self, title: str = "") -> None:
        self.title = f"{title}: " if title else ""
        self.stopped = False
        self.began = time.monotonic()

    def __enter__(self) -> "Watch":
        # Only the main thread may say what a signal does.
        self._in_charge = threading.current_thread() is threading.main_thread()
        if self._in_charge:
            self._before = signal.signal(signal.SIGINT, self._stop)
        return self

    def __exit__(self, *error: object) -> None:
        if self._in_charge:
            signal.signal(signal.SIGINT, self._before)
        show("")

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped = True

    def __call__(self, progress: Progress) -> None:
        """What a search reports to; ends the search when it was asked to stop."""
        if self.stopped:
            raise KeyboardInterrupt
        rate = progress.states / max(progress.seconds, 0.001)
        self.show(f"{progress.states:,} states, depth {progress.depth}, {rate:,.0f} states/s")

    def show(self, text: str) -> None:
        if time.monotonic() - self.began > QUIET_SECONDS:
            show(f"{self.title}{text} …")
