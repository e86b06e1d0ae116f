"""Makes DuckDB's CHECKPOINT safe against dying in the middle of it.

A checkpoint writes its data to free blocks, but its metadata over the block that holds them already, and only then the
header that makes all of it count. A process that is killed while it writes that block leaves half of the old one and
half of the new one, and DuckDB can not open such a file any more. (Seen with DuckDB 2.0: once in some thousand kills
that fall on checkpoints.) So the blocks of metadata are saved beside the file first, and put back when they are needed.
"""

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .mark import sync_folder

HEADER_BYTES: Final = 3 * 4096
"""What the file was made with, and two headers that take turns; the blocks follow."""
RECORD: Final = struct.Struct("<QQ")
"""Stands before each block: where it was, and its length."""


class Undo:
    """The saved blocks of a file; `file` is open for reading and writing, and locked."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    def save(self, blocks: Iterable[int], block_bytes: int) -> None:
        """Before a checkpoint; durable when this ends."""
        draft = self._path.with_name(f"{self._path.name}.new")
        with draft.open("wb") as saved:
            saved.write(os.pread(self._file, HEADER_BYTES, 0))
            for place in (HEADER_BYTES + block * block_bytes for block in blocks):
                content = os.pread(self._file, block_bytes, place)
                saved.write(RECORD.pack(place, len(content)) + content)
            saved.flush()
            os.fsync(saved.fileno())
        os.replace(draft, self._path)
        sync_folder(self._path.parent)

    def restore(self) -> None:
        """Before DuckDB opens the file. Headers that have changed say that the checkpoint came to its end."""
        if not self._path.exists():
            return
        saved = self._path.read_bytes()
        if os.pread(self._file, HEADER_BYTES, 0) == saved[:HEADER_BYTES]:
            at = HEADER_BYTES
            while at < len(saved):
                place, length = RECORD.unpack_from(saved, at)
                at += RECORD.size + length
                os.pwrite(self._file, saved[at - length : at], place)
            os.fsync(self._file)
        self.remove()

    def remove(self) -> None:
        """After a checkpoint."""
        self._path.unlink()
