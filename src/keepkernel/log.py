"""The log beside a store: what happened and what scripts said, one JSON document a line, the oldest dropped in time."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

FILE_MAX_BYTES: Final = 10_000_000


class Log:
    """Appends lines; a file that is full makes way for a new one, and the one before it is kept."""

    def __init__(self, path: Path | None, trouble: Callable[[str], None]) -> None:
        self._path = path
        self._trouble = trouble
        self._told = False
        self._lock = threading.Lock()

    def write(self, line: dict[str, Any]) -> None:
        if self._path is None:
            return
        with self._lock:
            try:
                self._append(self._path, json.dumps(line))
            except OSError as error:  # What is done is done, and stands in the store; the log only tells of it.
                if not self._told:
                    self._trouble(f"{self._path} can not be written: {error.strerror}; the log has gaps")
                self._told = True

    def _append(self, path: Path, line: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > FILE_MAX_BYTES:
            path.replace(before(path))
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def before(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def read_log(path: Path, having: str = "") -> Iterator[dict[str, Any]]:
    """Lines from the oldest; those with a word in them, if one is given, which ids are."""
    word = having.encode()
    for part in (before(path), path):
        if part.exists():
            for line in part.read_bytes().splitlines():
                if word not in line:
                    continue
                # What a death cut short is no document, and neither is the line that was written behind it.
                with suppress(ValueError):
                    document = json.loads(line)
                    if isinstance(document, dict):
                        yield document
