"""What a seeded fault is: a small exchange that a real team could make, and how it is put in place."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ...adapters import stores
from ...sandbox import engine
from ...spec.variants import Swap, swapped

Level = Literal["kernel", "store", "host", "service", "sandbox"]

ADAPTERS: Final = stores.__name__.rpartition(".")[0]


class Patch(NamedTuple):
    """An attribute of a class or a module outside the kernel, and what stands in its place."""

    owner: object
    name: str
    replacement: object


class Edit(NamedTuple):
    """A text in a file of the sandbox that runs in a process of its own, and what stands in its place."""

    file: str
    old: str
    new: str


class Fault(NamedTuple):
    name: str
    level: Level
    title: str
    """What is wrong."""
    why: str
    """Why a team would write it so."""
    swaps: tuple[Swap, ...] = ()
    """In the kernel."""
    shared: tuple[Swap, ...] = ()
    """In what the adapters share, under whatever name they import it."""
    patches: tuple[Patch, ...] = ()
    edits: tuple[Edit, ...] = ()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Run the block with the fault in place; afterwards, whatever happens, everything is as it was."""
        with ExitStack() as stack:
            if self.swaps:
                stack.enter_context(swapped(*self.swaps))
            if self.shared:
                load_adapters()
                stack.enter_context(swapped(*self.shared, package=ADAPTERS))
            for patch in self.patches:
                stack.enter_context(patched(patch))
            if self.edits:
                stack.enter_context(edited(self.edits))
            yield


def load_adapters() -> None:
    """Whoever is imported later would keep what it imports now; so all that can be imported is."""
    for kind in stores.KINDS.values():
        with suppress(ModuleNotFoundError):  # A store without its driver can not be broken either.
            import_module(kind.module, ADAPTERS)


@contextmanager
def patched(patch: Patch) -> Iterator[None]:
    before = vars(patch.owner)[patch.name]
    setattr(patch.owner, patch.name, patch.replacement)
    try:
        yield
    finally:
        setattr(patch.owner, patch.name, before)


@contextmanager
def edited(edits: tuple[Edit, ...]) -> Iterator[None]:
    """Workers that start from here on are started from a copy of their files."""
    files = Path(engine.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        for name in ("worker.py", "prelude.js", "rarely.js"):
            shutil.copy(files / name, folder)
        for edit in edits:
            path = Path(folder, edit.file)
            text = path.read_text()
            if text.count(edit.old) != 1:
                raise LookupError(f"{edit.file} has {edit.old!r} not once")
            path.write_text(text.replace(edit.old, edit.new))
        with patched(Patch(engine, "__file__", str(Path(folder, "engine.py")))):
            yield


def all_by_name(*groups: tuple[Fault, ...]) -> dict[str, Fault]:
    faults = [fault for group in groups for fault in group]
    named = {fault.name: fault for fault in faults}
    if len(named) != len(faults):
        raise ValueError("two faults have one name")
    return named
