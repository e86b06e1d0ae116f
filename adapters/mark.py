"""The mark of a store: how far it has come, written beside it, so that a part that went missing is missed."""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from ..kernel.ports import DamagedStore


def sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Mark:
    """A file that names a position of the journal which the store must reach."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def read(self) -> int | None:
        """The position; None when there is no mark."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if not re.fullmatch(rb"\d{20}\n", text):
            raise DamagedStore(f"{self.path} is damaged; restore it and the store from a copy")
        return int(text)

    def write(self, position: int) -> None:
        """Durable when this ends."""
        if self._file == -1:
            draft = self.path.with_name(f"{self.path.name}.new")
            self._file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
            self.hint(position)
            os.fsync(self._file)
            os.replace(draft, self.path)
            sync_folder(self.path.parent)
        else:
            self.hint(position)
            os.fsync(self._file)

    def hint(self, position: int) -> None:
        """Not synced, so it costs next to nothing; it outlives the death of the process, if not of the machine."""
        os.pwrite(self._file, f"{position:020d}\n".encode(), 0)

    def remove(self) -> None:
        self.release()
        self.path.unlink()
        sync_folder(self.path.parent)

    def release(self) -> None:
        if self._file != -1:
            os.close(self._file)
            self._file = -1


class LastCommit:
    """A file that names the last commit of whoever made one, for stores that several processes share.

    A hint, as good as it gets: it outlives the death of a process, and where it can not be written it says less.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def read(self) -> tuple[str, int] | None:
        """A workflow and the version that it must have reached; None when nothing is said."""
        try:
            workflow, version = json.loads(self.path.read_bytes().partition(b"\n")[0])
        except (FileNotFoundError, TypeError, ValueError):
            return None
        return workflow, version

    def write(self, workflow: str, version: int) -> None:
        """One write, so that it is never half there; what follows its line is left of a longer one."""
        with suppress(OSError):  # The commit is durable already, and nobody may say that it is not.
            if self._file == -1:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
            os.pwrite(self._file, f"{json.dumps([workflow, version])}\n".encode(), 0)

    def remove(self) -> None:
        self.release()
        self.path.unlink(missing_ok=True)

    def release(self) -> None:
        if self._file != -1:
            os.close(self._file)
            self._file = -1
