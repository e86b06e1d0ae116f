"""The log beside a store: what happened and what scripts said, one JSON document a line, the oldest dropped in time."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

FILE_MAX_BYTES: Final = 10_000_000


class Log:
    """Appends lines; a file that is full makes way for a new one, and the one before it is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, line: dict[str, Any]) -> None:
        if self._path is None:
            return
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > FILE_MAX_BYTES:
                self._path.replace(before(self._path))
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def before(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Lines from the oldest."""
    for part in (before(path), path):
        if part.exists():
            for line in part.read_bytes().splitlines():
                # What a death cut short is no document, and neither is the line that was written behind it.
                with suppress(ValueError):
                    yield json.loads(line)
