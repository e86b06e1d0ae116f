"""Trials of the crash harness: a workflow lives, dies at chosen points, lives again, comes to rest, and is judged.

There are two ways to die. `killed` forks a process for every life and lets SIGKILL end it. `simulated` stays in one
process and raises SimulatedCrash; the next life begins with a copy of the files that was made at that very instant,
so that nothing which happens while the exception travels can matter, as nothing happens in a dead process.

`pictured` gets all points of a life from living it once: at every point it looks at the files, and what a life would
find after a death there is what is in them. Points between which nothing was written are one and the same death.
"""

import hashlib
import os
import pickle
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from ..adapters import stores
from ..adapters.points import SimulatedCrash
from ..kernel.codec import encode
from ..kernel.ports import StoreError
from . import servers
from .judge import Ending, judged
from .lives import SHARED_MEMORY, STORES_WITH_FILES, WAY, Place, Points, Way, journal_of, kill, live
from .outside import entries
from .workflows import Workflow

Picture = dict[str, bytes]
"""The files of a place, by name."""


class Trial(NamedTuple):
    """One workflow that was brought to rest."""

    died: tuple[str, ...]
    """The names of the points at which it died."""
    points: tuple[str, ...]
    """The points of its last life."""
    violations: tuple[str, ...]
    ending: Ending | None
    fingerprint: str
    """Of the whole journal and the outside's record: equal trials are equal in every step."""
    story: tuple[str, ...]
    """The journal and the record, line by line."""


class Ground(NamedTuple):
    """Where trials take place, and how."""

    scheme: str
    folder: Path
    empty: Picture
    """The files of a store in which there is nothing yet."""
    way: Way = WAY
    server: str = ""
    """The URL of the database in which each place gets a schema, when the stores are on a server."""

    @property
    def has_files(self) -> bool:
        return self.scheme in STORES_WITH_FILES

    @contextmanager
    def place(self, workflow: Workflow, start: Picture | None = None) -> Iterator[Place]:
        """A place with these files; without any, as the workflow begins."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, folder)
            url = undo.enter_context(servers.schema(self.server, folder.name)) if self.server else ""
            place = Place(self.scheme, folder / "0", url)
            place.folder.mkdir()
            if self.server and not workflow.from_nothing:
                place.open().close()
            beginning = {} if workflow.from_nothing else self.empty
            for name, content in (beginning if start is None else start).items():
                (place.folder / name).write_bytes(content)
            yield place


def ground(scheme: str, folder: Path, way: Way = WAY, server: str = "") -> Ground:
    """Everything that trials share: the driver is loaded, and an empty store is there to be copied."""
    with suppress(ModuleNotFoundError):  # The process that opens a store says what is missing, and what helps.
        import_module(stores.KINDS[scheme].module, stores.__package__)
    bare = Ground(scheme, folder, {}, way, server)
    if scheme == "memory":
        return bare

    def make(tell: Callable[[object], None]) -> None:
        try:
            with bare.place(NOTHING) as place:
                place.open().close()
                tell(picture_of(place))
        except StoreError as error:
            tell(error)

    ended = in_a_process(make)
    if isinstance(ended.told, StoreError):
        raise ended.told
    if not isinstance(ended.told, dict):
        raise RuntimeError(f"a store could not be made: {ended.told}")
    return bare._replace(empty=ended.told if bare.has_files else {})


NOTHING: Final = Workflow("nothing", "no workflow at all", from_nothing=True)


class NotReached(Exception):
    """A life was over before the point at which it should have died."""


# --- the last life, and the verdict ------------------------------------------------------------------


def brought_to_rest(workflow: Workflow, ground: Ground, place: Place, died: tuple[str, ...]) -> Trial:
    points = Points()
    try:
        live(workflow, place, points, len(died), ground.way)
        store = place.open()
        verdict = judged(workflow, store, entries(place.record))
        story = (*(f"{t.version:4} {encode(t.command)}" for t in journal_of(store)), *told(place))
        store.drop()
    except Exception as error:
        # Whatever goes wrong after a mere death is a violation: a store that complains, a host or a kernel that fails.
        return Trial(died, tuple(points.names), (f"{type(error).__name__}: {error}",), None, "", tuple(told(place)))
    fingerprint = hashlib.sha256("\n".join(story).encode()).hexdigest()
    return Trial(died, tuple(points.names), verdict.violations, verdict.ending, fingerprint, story)


def told(place: Place) -> list[str]:
    return [f"outside: {' '.join(map(str, entry))}" for entry in entries(place.record)]


# --- dying in one process ----------------------------------------------------------------------------


def simulated(workflow: Workflow, ground: Ground, deaths: tuple[int, ...] = ()) -> Trial:
    """Die at these points, the n-th life at the n-th, and come to rest afterwards."""
    died: list[str] = []
    with ground.place(workflow) as first:
        place = first
        for life, point in enumerate(deaths):
            points, place = died_at(workflow, ground, place, life, point)
            died.append(points.names[-1])
        return brought_to_rest(workflow, ground, place, tuple(died))


def died_at(workflow: Workflow, ground: Ground, place: Place, life: int, point: int) -> tuple[Points, Place]:
    left: list[Place] = []

    def crash() -> NoReturn:
        left.append(place.copied(place.folder.with_name(str(life + 1))))
        raise SimulatedCrash

    points = Points(point, crash)
    try:
        live(workflow, place, points, life, ground.way)
    except SimulatedCrash:
        return points, left[0]
    raise NotReached(f"life {life + 1} has {len(points.names)} points, not {point}")


# --- dying for real ----------------------------------------------------------------------------------


def killed(workflow: Workflow, ground: Ground, deaths: tuple[int, ...] = ()) -> Trial:
    """The same with a process for every life."""
    with ground.place(workflow) as place:
        died: list[str] = []
        for life, point in enumerate(deaths):
            died.append(killed_at(workflow, ground, place, life, point))
        ended = in_a_process(lambda tell: tell(brought_to_rest(workflow, ground, place, tuple(died))))
        if not isinstance(ended.told, Trial):
            raise RuntimeError(f"the last life of {workflow.name} ended with {ended.code}: {ended.told}")
        return ended.told


def killed_at(workflow: Workflow, ground: Ground, place: Place, life: int, point: int) -> str:
    def job(tell: Callable[[object], None]) -> None:
        def die() -> NoReturn:
            tell(points.names[-1])
            kill()

        points = Points(point, die)
        live(workflow, place, points, life, ground.way)
        tell(NotReached(f"life {life + 1} has {len(points.names)} points, not {point}"))

    ended = in_a_process(job)
    if isinstance(ended.told, NotReached):
        raise ended.told
    if ended.code != -signal.SIGKILL or not isinstance(ended.told, str):
        raise RuntimeError(f"life {life + 1} of {workflow.name} ended with {ended.code}: {ended.told}")
    return ended.told


class Ended(NamedTuple):
    told: object
    """What it said at last."""
    code: int
    """Its exit code; of a signal the negative number."""


def in_a_process(job: Callable[[Callable[[object], None]], None]) -> Ended:
    """Fork a process for one life, and hear what it tells; this one must not have a store open."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:

                def tell(what: object) -> None:
                    pipe.write(pickle.dumps(what))
                    pipe.flush()

                try:
                    job(tell)
                    code = 0
                except BaseException:
                    tell(traceback.format_exc())
        finally:
            os._exit(code)  # Whatever the parent has planned for its own end is not for this process.
    os.close(writer)
    with os.fdopen(reader, "rb") as heard:
        said = heard.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(pickle.loads(said) if said else None, code)


# --- all deaths of a life at once --------------------------------------------------------------------


class Death(NamedTuple):
    """A point, and what a death there leaves behind."""

    point: int
    """The first of those that leave the same."""
    name: str
    picture: Picture


def pictured(workflow: Workflow, ground: Ground, start: Picture | None, life: int) -> tuple[list[str], list[Death]]:
    """Live once, from these files on; give all points, and the deaths that differ."""
    deaths: list[Death] = []
    names: list[str] = []
    with ground.place(workflow, start) as place:

        def look(name: str) -> None:
            names.append(name)
            picture = picture_of(place)
            if not deaths or deaths[-1].picture != picture:
                deaths.append(Death(len(names), name, picture))

        live(workflow, place, look, life, ground.way)
    return names, deaths


def revived(workflow: Workflow, ground: Ground, start: Picture, died: tuple[str, ...]) -> Trial:
    """Come to rest from these files on."""
    with ground.place(workflow, start) as place:
        return brought_to_rest(workflow, ground, place, died)


def picture_of(place: Place) -> Picture:
    return {f.name: f.read_bytes() for f in place.folder.iterdir() if not fnmatch(f.name, SHARED_MEMORY)}
