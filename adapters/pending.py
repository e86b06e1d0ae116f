"""What is pending in a topic, in memory: in order of publication, and read from anywhere."""

from bisect import bisect_left
from collections.abc import Iterator

from ..kernel.types import Event, Key


class Pending:
    """Keys of pending events by their numbers. New events have the highest, so they are put at the end.

    >>> pending = Pending()
    >>> for number, status in ((2, "pending"), (1, "pending"), (3, "pending"), (2, "reserved"), (2, "consumed")):
    ...     pending.put(Event(Key("mail", f"m{number}"), number, status, "", "", "", "", ()))
    >>> [key.id for key in pending.after(0)], [key.id for key in pending.after(1)]
    (['m1', 'm3'], ['m3'])
    """

    def __init__(self) -> None:
        self._keys: list[tuple[int, Key]] = []

    def put(self, event: Event) -> None:
        """Take note of an event as it is now."""
        entry = event.seq, event.key
        at = bisect_left(self._keys, entry)
        there = self._keys[at : at + 1] == [entry]
        if event.status == "pending" and not there:
            self._keys.insert(at, entry)
        elif event.status != "pending" and there:
            del self._keys[at]

    def after(self, seq: int) -> Iterator[Key]:
        """Those with higher numbers, in order."""
        return (self._keys[at][1] for at in range(bisect_left(self._keys, (seq + 1,)), len(self._keys)))
