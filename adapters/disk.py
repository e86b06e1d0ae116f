"""What the system says about a file, in words that say what to do."""

import errno
from pathlib import Path

from ..kernel.ports import ReadOnlyStore, StoreError, StoreFull


def trouble_with(path: Path, error: OSError) -> StoreError:
    """The error of a store for one of the system."""
    place = error.filename or path
    match error.errno:
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return ReadOnlyStore(f"{place}: no permission; let this user write there ({error.strerror})")
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return StoreFull(f"the disk under {path} is full; make room, then try again")
        case errno.EISDIR:
            return StoreError(f"{place} is a folder; name a file in it, or move it away")
        case _:
            return StoreError(f"{place}: {error.strerror}; name another file, or see to its disk")
