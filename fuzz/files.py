"""`keepkernel crash --workflow FILE.js`: a workflow file, in the real sandbox and with its real connectors, dies at
every point of its work.

Every trial works on a copy of the file's folder, with all that is in it: mail, tables, files to write to. What is in
these in the end must be what is in them after a run in which nobody died: no row twice, no file missing. They are
looked at as they are, and no connector is asked.
"""

import re
import shutil
import sqlite3
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import duckdb

from ..adapters.connectors import ConfigError, Connections
from ..adapters.host import Grain, Host, at_once
from ..kernel import commands as c
from ..kernel.policy import Policy
from ..kernel.ports import Store
from ..kernel.schedule import Wait
from ..kernel.types import Accepted
from ..sandbox.bridge import Tool
from ..sandbox.engine import Workers
from ..sandbox.handlers import Scripts
from ..sandbox.loader import BadScript, load
from ..spec.invariants import Step, check_step
from .commands import wrong_usage
from .judge import History, differences, replayed
from .lives import NAME, RESTART_MS, TURNS_MAX, Place, Points, Stuck, kill
from .outside import Clock
from .trials import Ended, NotReached, in_a_process

CONFIG: Final = "keepkernel.toml"
STORE: Final = ".keepkernel-crash"
"""The store's folder in a copy; `keepkernel run` keeps its own elsewhere, and no trial looks at it."""
HIDDEN: Final = (STORE, CONFIG, ".keep", ".keepkernel")
"""What is in a folder for keepkernel itself."""
CALLS: Final = "keepkernel_calls"
LARGE_BYTES: Final = 100_000_000
VARYING: Final = re.compile(r"^(Message-ID|Date):.*\r?\n", re.IGNORECASE | re.MULTILINE)
AWAY: Final = re.compile(r"://(?!(?:[^/@]*@)?(?:127\.0\.0\.1|localhost)[:/])|(?:^|:)/(?!/)|(?:^|[:/])\.\.(?:/|$)")
"""A server elsewhere, or a path that leads out of the folder."""

Evidence = dict[str, list[str]]
"""What is found in the folder: rows by their table, contents of files by their folder."""


class Tools:
    """The connectors as the sandbox knows them."""

    def __init__(self, connections: Connections) -> None:
        self._tools = {name: Tool(*tool) for name, tool in connections.catalogue().items()}
        self.read = connections.read

    def catalogue(self) -> dict[str, Tool]:
        return self._tools


class Trial(NamedTuple):
    """A workflow file that was brought to rest, or to where it asks a person."""

    died: tuple[str, ...]
    points: tuple[str, ...]
    violations: tuple[str, ...]
    events: dict[str, str]
    """The status of each event, by topic and id."""
    evidence: Evidence
    asks: str
    """What it asks a person; empty when it needs nobody."""


# --- a life ------------------------------------------------------------------------------------------


def live(file: Path, scheme: str, points: Points, life: int, grain: Grain) -> Trial:
    """Begin where the last life ended, in this copy of the folder, and go on until rest."""
    folder = file.parent / STORE
    folder.mkdir(exist_ok=True)
    clock = Clock(folder / "clock")
    clock.wait_until(clock.now + RESTART_MS)
    store = Place(scheme, folder).open(clock, points)
    connections = Connections.from_config(
        file.parent / CONFIG, tell=lambda tool, text, key: None, reach=points, clock=clock
    )  # fmt: skip
    workers = Workers()
    try:
        source, tools = file.read_text(), Tools(connections)
        script = load(source, tools.catalogue(), workers)
        numbers = count(1)
        host = Host(
            store,
            Scripts(workers, lambda workflow, version: source, store, tools, lambda workflow, run, lines: None),
            connections,
            name="host",
            fresh_id=lambda: f"{'abcdefgh'[life]}{next(numbers)}",
            clock=clock,
            reach=points,
            grain=grain,
        )
        store.create(NAME, Policy())
        state = store.load(NAME).state
        if not state.version:
            submit(host, c.Deploy(0, "1", script.topics, script.handlers))
        for tool in tools.catalogue():
            if tool not in {grant.tool for grant in store.load(NAME).state.grants}:
                submit(host, c.Grant(0, tool, "always"))
        if store.load(NAME).state.status == "ready":
            submit(host, c.Resume(0))
        asks = work(host, clock)
        return seen(store, file.parent, points, asks)
    finally:
        workers.close()
        connections.close()
        store.close()


def submit(host: Host, command: c.Command) -> None:
    said = host.submit(NAME, at_once(command), leased=False)
    if said is None or not isinstance(said.outcome, Accepted):
        raise Stuck(f"{type(command).__name__} is refused: {said and said.outcome}")


def work(host: Host, clock: Clock) -> str:
    """Go on until nothing is due, or until a person is asked; say what they are asked."""
    if not host.start(NAME):
        raise Stuck("the lease of the dead host keeps its successor out")
    for _ in range(TURNS_MAX):
        rest = host.turn(NAME)
        if rest is None:
            continue
        if rest.reason == "nothing_due":
            return ""
        if not isinstance(rest, Wait):
            error = host.store.load(NAME).state.error
            return f"{rest.reason}: {error.message if error is not None else 'no error'}"
        clock.wait_until(rest.until)
    raise Stuck(f"still busy after {TURNS_MAX} turns")


# --- the verdict -------------------------------------------------------------------------------------


def seen(store: Store, folder: Path, points: Points, asks: str) -> Trial:
    found: list[str] = []
    history = replayed(store, found)
    if history is not None:
        found += differences(store, history)
        found += broken_invariants(history)
    events: dict[str, str] = {}
    if history is not None:
        events = {f"{e.key.topic}/{e.key.id}": e.status for e in history.end.events}
    return Trial((), tuple(points.names), tuple(found), events, evidence(folder), asks)


def broken_invariants(history: History) -> Iterator[str]:
    for n, transition in enumerate(history.journal, 1):
        taken = Step(history.states[n - 1], transition.command, history.outcomes[n - 1], history.states[n])
        for violation in check_step(taken):
            yield f"transition {n}, {type(transition.command).__name__}: {violation}"


def compared(clean: Trial, trial: Trial, repeatable: bool) -> tuple[str, ...]:
    """What is wrong with a trial, by itself and beside one in which nobody died."""
    found = [*trial.violations]
    for name, there in clean.evidence.items():
        here = trial.evidence.get(name, [])
        if repeatable:
            before, after = Counter(there), Counter(here)
            found += [f"{name}: there are {n} too many of {what}" for what, n in (after - before).items()]
            missing = before - after
        else:
            found += [f"{name}: there are {len(here) - len(there)} too many"] if len(here) > len(there) else []
            missing = Counter({"something": len(there) - len(here)} if len(here) < len(there) else {})
        if not trial.asks:  # Who asks a person has said that something may be missing.
            found += [f"{name}: {n} of {what} is missing" for what, n in missing.items()]
    if not trial.asks and trial.events != clean.events:
        found.append(f"events: {trial.events} instead of {clean.events}, as without a crash")
    return tuple(found)


def evidence(folder: Path) -> Evidence:
    """All that is in the folder, but for what belongs to the store and to calls: names of files may come from keys."""
    found: Evidence = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or any(part in HIDDEN for part in path.relative_to(folder).parts):
            continue
        place = str(path.relative_to(folder))
        head = path.read_bytes()[:16]
        if head.startswith(b"SQLite format 3"):
            with closing(sqlite3.connect(path)) as database:
                found |= tables(place, database, "SELECT name FROM sqlite_master WHERE type = 'table'")
        elif head[8:12] == b"DUCK":
            with closing(duckdb.connect(str(path), read_only=True)) as database:
                found |= tables(place, database, "SELECT table_name FROM duckdb_tables()")
        elif path.suffix not in (".db-wal", ".db-shm", ".wal"):
            found.setdefault(str(path.parent.relative_to(folder)), []).append(content(path))
    return found


def tables(place: str, database: Any, names: str) -> Evidence:
    wanted = sorted(name for (name,) in database.execute(names).fetchall() if name != CALLS)
    return {
        f"{name} in {place}": [repr(row) for row in database.execute(f'SELECT * FROM "{name}"').fetchall()]
        for name in wanted
    }


def content(path: Path) -> str:
    """A file's text without the headers of a mail that are of its sending, and not of what was sent."""
    return VARYING.sub("", path.read_bytes().decode(errors="backslashreplace"))


# --- trials ------------------------------------------------------------------------------------------


class Project:
    """A workflow file, its folder, and where to copy it."""

    def __init__(self, file: Path, scheme: str, scratch: Path, grain: Grain) -> None:
        self.file = file
        self.scheme = scheme
        self.scratch = scratch
        self.grain = grain

    @contextmanager
    def copy(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self.scratch)) / "copy"
        shutil.copytree(self.file.parent, folder, symlinks=True)
        try:
            yield folder / self.file.name
        finally:
            shutil.rmtree(folder.parent)

    def killed(self, deaths: tuple[int, ...] = ()) -> Trial:
        """Die at these points, the n-th life at the n-th, and come to rest afterwards; a process for every life."""
        with self.copy() as file:
            died = tuple(self._killed_at(file, life, point) for life, point in enumerate(deaths))
            ended = in_a_process(lambda tell: tell(live(file, self.scheme, Points(), len(died), self.grain)))
            if not isinstance(ended.told, Trial):
                return Trial(died, (), (f"the last life ended with {ended.code}: {ended.told}",), {}, {}, "")
            return ended.told._replace(died=died)

    def _killed_at(self, file: Path, life: int, point: int) -> str:
        def job(tell: Callable[[object], None]) -> None:
            def die() -> NoReturn:
                tell(points.names[-1])
                kill()

            points = Points(point, die)
            live(file, self.scheme, points, life, self.grain)
            tell(NotReached(f"life {life + 1} has {len(points.names)} points, not {point}"))

        ended: Ended = in_a_process(job)
        if isinstance(ended.told, NotReached):
            raise ended.told
        if not isinstance(ended.told, str) or ended.code >= 0:
            raise RuntimeError(f"life {life + 1} of {self.file.name} ended with {ended.code}: {ended.told}")
        return ended.told


def usable(file: Path) -> None:
    """Say what is wrong with a file before anything is copied."""
    if not file.is_file():
        wrong_usage(f"there is no file {file}")
    config = file.parent / CONFIG
    if not config.is_file():
        wrong_usage(f"{config} is missing, which says what its connectors are; `keepkernel init` writes an example")
    size = sum(f.stat().st_size for f in file.parent.rglob("*") if f.is_file())
    if size > LARGE_BYTES:
        wrong_usage(f"{file.parent} holds {size:,} bytes, and every trial copies them; try with a smaller one")
    away = [text for text in texts(tomllib.loads(config.read_text())) if AWAY.search(text)]
    if away:
        wrong_usage(
            f"{config} names {', '.join(away)}, and a sweep would call it from hundreds of trials; let it name files "
            "and folders beside it, or servers on 127.0.0.1"
        )
    try:
        connections = Connections.from_config(config, tell=lambda tool, text, key: None)
    except ConfigError as error:
        wrong_usage(str(error))
    workers = Workers()
    try:
        load(file.read_text(), Tools(connections).catalogue(), workers)
    except BadScript as bad:
        wrong_usage("\n".join(f"{file}: {problem}" for problem in bad.problems))
    finally:
        workers.close()
        connections.close()


def texts(value: Any) -> Iterator[str]:
    """All texts in a configuration."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)
