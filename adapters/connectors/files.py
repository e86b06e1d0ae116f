"""Files in a folder: written once and whole, or not at all.

Beside the files there is a folder `.keepkernel` with one entry for each call, under the name of its key:

- a folder with `call.json` and `data`: the file is written, and is not visible yet;
- the same without `data`: the file was moved to its place, in one step that no crash can halve;
- a folder with `void`, or a plain file: the call was made void, and its next step will fail.

So the entry always tells what happened, whatever other programs do with the files. It never has to be guessed, and a
writer that wakes after an hour still finds that it came too late.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, DirectoryPath, Field, StringConstraints

from ...kernel.failures import FailureClass
from ...kernel.respond import DidNotHappen
from .base import Call, Connector, NotDone, Place, Shape, changes, reads, reconciles

CALLS: Final = ".keepkernel"
NAME_MAX_BYTES: Final = 200
TEXT_MAX_BYTES: Final = 1_000_000


def short(name: str) -> str:
    if len(name.encode()) > NAME_MAX_BYTES:
        raise ValueError(f"more than {NAME_MAX_BYTES} bytes")
    return name


FileName = Annotated[str, StringConstraints(pattern=r"^[^./\\\x00-\x1f][^/\\\x00-\x1f]*$"), AfterValidator(short)]
"""No path, and not hidden."""


class WriteParams(Shape):
    name: FileName
    text: str


class Written(Shape):
    name: str
    """The given name with a mark of the call in it, so that no two calls ever write the same file."""


class ListParams(Shape):
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    after: str = ""
    """Only names that come later in their order: the last one of the page before."""


class FileEntry(Shape):
    name: str
    size: int
    modified: str


class Listing(Shape):
    files: list[FileEntry]


class ReadParams(Shape):
    name: FileName


class Content(Shape):
    name: str
    text: str


class Files(Connector):
    """A folder, which must exist."""

    folder: Annotated[DirectoryPath, Place]

    errors: ClassVar[Mapping[type[Exception], FailureClass]] = {PermissionError: "auth", OSError: "network"}

    @changes
    def write(self, params: WriteParams, call: Call) -> Written:
        """Write a new file with this text. Its name gets a mark; the result has the whole name."""
        written = Written(name=marked(params.name, call))
        target = self.folder / written.name
        with self.unsent():
            entry = self._calls() / call.name
            if target.exists():
                raise NotDone("refused", f"there is a file {written.name} already")
            new = Path(tempfile.mkdtemp(prefix="new-", dir=entry.parent))
            try:
                write_durably(new / "call.json", json.dumps({"key": call.key, "file": written.name}))
                write_durably(new / "data", params.text)
                call.reach("files: prepared")
                self._claim(new, entry)
            except OSError:
                shutil.rmtree(new, ignore_errors=True)
                raise
            sync_folder(entry.parent)
        call.leaves()
        os.rename(entry / "data", target)
        call.reach("files: visible")
        sync_folder(self.folder)
        sync_folder(entry)
        return written

    def _claim(self, new: Path, entry: Path) -> None:
        """The call's entry appears whole, unless there is one already, which is never empty."""
        try:
            os.rename(new, entry)
        except OSError as error:
            if entry.exists():
                raise NotDone("timeout", "the call was made void before it could leave") from error
            raise

    @reconciles("write")
    def find(self, params: WriteParams, call: Call) -> Written | DidNotHappen:
        """Whoever comes first decides: this makes the call void, or finds that the file was made visible."""
        entry = self._calls() / call.name
        if (self.folder / marked(params.name, call)).exists():  # Whatever became of the entry: here it is.
            sync_folder(self.folder)
            return Written(name=marked(params.name, call))
        try:
            with entry.open("x"):
                pass
        except FileExistsError:
            if entry.is_dir() and not self._void(entry):
                sync_folder(self.folder)
                sync_folder(entry)
                return Written(name=marked(params.name, call))
        sync_folder(entry.parent)
        return DidNotHappen(voided=True)

    def _void(self, entry: Path) -> bool:
        """Take the file away before it is visible; False when it has been."""
        try:
            os.rename(entry / "data", entry / "void")
        except FileNotFoundError:
            if not (entry / "void").exists():
                return False
        sync_folder(entry)
        return True

    @reads
    def list(self, params: ListParams) -> Listing:
        """Files of the folder in the order of their names; hidden ones and folders are left out."""
        with os.scandir(self.folder) as found:
            entries = {e.name: e for e in found if not e.name.startswith(".") and e.is_file()}
        names = sorted(name for name in entries if name > params.after and readable(name))[: params.limit]
        return Listing(files=[described(name, entries[name].stat()) for name in names])

    @reads
    def read(self, params: ReadParams) -> Content:
        """The text of one file."""
        path = self.folder / params.name
        try:
            with path.open("rb") as file:
                content = file.read(TEXT_MAX_BYTES + 1)
            if len(content) > TEXT_MAX_BYTES:
                raise NotDone("refused", f"{params.name} has more than {TEXT_MAX_BYTES} bytes")
            return Content(name=params.name, text=content.decode())
        except (FileNotFoundError, IsADirectoryError):
            raise NotDone("refused", f"there is no file {params.name}") from None
        except UnicodeDecodeError:
            raise NotDone("refused", f"{params.name} is not a text in UTF-8") from None

    def _calls(self) -> Path:
        calls = self.folder / CALLS
        if not calls.is_dir():
            calls.mkdir(exist_ok=True)
            sync_folder(self.folder)
        return calls


def marked(name: str, call: Call) -> str:
    """
    >>> marked("report.txt", Call("demo/run-1"))
    'report-25cf72957632b339fa5f98214d2090dc.txt'
    """
    path = Path(name)
    return f"{path.stem}-{call.name}{path.suffix}"


def readable(name: str) -> bool:
    """Whether a script can be told this name: one that is no text in UTF-8 could not be asked for."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def described(name: str, status: os.stat_result) -> FileEntry:
    modified = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="milliseconds")
    return FileEntry(name=name, size=status.st_size, modified=modified)


def write_durably(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """What was made, moved or removed in a folder stays so when the power fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
