"""Where lives keep their stores: a fresh place for each, in memory where the system offers that."""

import atexit
import shutil
import tempfile
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from ..crash import fast_folder
from ..lives import Place
from ..trials import Ground, ground
from ..workflows import Workflow
from .choices import Choices

EMPTY = Workflow("empty", "a store in which there is nothing yet")
ALL = "all"
"""Stands for every store that needs no server; each life draws one."""


@cache
def scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="keepkernel-fuzz-", dir=fast_folder()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def ground_of(url: str) -> Ground:
    scheme = url.partition(":")[0]
    return ground(scheme, scratch(), server=url if scheme == "postgresql" else "")


STORES = ((4, "memory:"), (3, "sqlite:"), (1, "duckdb:"))
"""How often a life that is about its store has which."""
FAST_STORES = ((12, "memory:"), (1, "sqlite:"))
"""The same where the store only has to be there."""


def new_place(
    choices: Choices, url: str, stores: tuple[tuple[int, str], ...] = STORES
) -> AbstractContextManager[Place]:
    """A place for one life in a store of this kind."""
    return ground_of(choices.weighted(stores) if url == ALL else url).place(EMPTY)
