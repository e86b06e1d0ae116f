"""How fast stores are: transitions against raw durable commits on the same disk, and with a long history.

A transition is a command of a real consumer run: loaded, stepped and committed. The raw loop appends one row of the
length of a journal line, one statement and one durable commit each, with the same driver and settings. All loops
take turns, so that what else the machine does falls on each of them. Exits with 1 when a number is not met.

    .venv/bin/python -m bench.stores [--json] [--runs N] [--history N] [URL …]

A URL without a place (`sqlite:`, the default with `memory:`) gets a folder of its own on the disk of --folder.
"""

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from keepkernel import (
    Accepted,
    Command,
    Declaration,
    Deploy,
    Event,
    Grant,
    Key,
    Policy,
    Publication,
    Publish,
    Resume,
    Run,
    StartSession,
    step,
)
from keepkernel.adapters.stores import open_store
from keepkernel.kernel.ports import Change, Done, Store, change_of
from keepkernel.kernel.types import Retired

from .step import TOOL, commands_of

RAW_ROW: Final = "x" * 400
SHORT_HISTORY: Final = 1_000
EVENTS_PER_RUN: Final = 100
ROUNDS: Final = 10
WANTED_RATE: Final = {"duckdb": 0.6, "sqlite": 0.5, "postgresql": 0.5}
WANTED_GROWTH: Final = 1.3
WANTED_OPENING_S: Final = 2.0

Append = Callable[[], object]
"""Makes one row durable."""


class Result(NamedTuple):
    store: str
    transitions: int
    transitions_per_s: float
    """Commits alone, as the raw loop counts them."""
    whole_per_s: float
    """With loading and stepping."""
    raw_per_s: float
    """0 when nothing is durable."""
    rate: float
    """Commits by raw commits."""
    history: int
    commit_short_us: float
    commit_long_us: float
    growth: float
    load_short_us: float
    load_long_us: float
    load_growth: float
    opening_s: float

    @property
    def met(self) -> bool:
        fast = self.raw_per_s == 0 or self.rate >= WANTED_RATE[self.store]
        return fast and self.growth <= WANTED_GROWTH and self.opening_s <= WANTED_OPENING_S


# --- raw loops ---------------------------------------------------------------------------------------


@contextmanager
def raw_nothing(folder: Path, url: str) -> Iterator[None]:
    """Nothing to compare with: the store is not durable."""
    yield None


@contextmanager
def raw_sqlite(folder: Path, url: str) -> Iterator[Append]:
    with closing(sqlite3.connect(folder / "raw", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, line TEXT NOT NULL)")
        yield lambda: connection.execute("INSERT INTO lines (line) VALUES (?)", (RAW_ROW,))


@contextmanager
def raw_duckdb(folder: Path, url: str) -> Iterator[Append]:
    duckdb: Any = import_module("duckdb")
    with closing(duckdb.connect(str(folder / "raw"), config={"threads": 1})) as connection:
        connection.execute("CREATE TABLE lines (number BIGINT, line VARCHAR)")
        numbers = count()
        yield lambda: connection.execute("INSERT INTO lines VALUES (?, ?)", (next(numbers), RAW_ROW))


@contextmanager
def raw_postgresql(folder: Path, url: str) -> Iterator[Append]:
    psycopg: Any = import_module("psycopg")
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("DROP TABLE IF EXISTS keepkernel_bench_lines")
        connection.execute("CREATE TABLE keepkernel_bench_lines (number BIGSERIAL PRIMARY KEY, line TEXT NOT NULL)")
        yield lambda: connection.execute("INSERT INTO keepkernel_bench_lines (line) VALUES (%s)", (RAW_ROW,))
        connection.execute("DROP TABLE keepkernel_bench_lines")


RAW: Final[dict[str, Callable[[Path, str], AbstractContextManager[Append | None]]]] = {
    "sqlite": raw_sqlite,
    "duckdb": raw_duckdb,
    "postgresql": raw_postgresql,
}


# --- stores at work ----------------------------------------------------------------------------------


class Bench:
    """One store with one workflow, and how long everything took."""

    def __init__(self, store: Store, workflow: str) -> None:
        self.store = store
        self.workflow = workflow
        self.commits: list[float] = []
        self.loads: list[float] = []
        self.steps: list[float] = []
        self._ids = count()
        store.create(self.workflow, Policy(session_runs=10**9))
        consumer = Declaration("file", "consumer", ("mail",), has_mutate=True)
        for command in (Deploy(0, "v1", ("mail",), (consumer,)), Resume(0), Grant(0, TOOL), StartSession(0, "s1")):
            self.transit(command)

    def transit(self, command: Command) -> Change:
        started = time.perf_counter()
        loaded = self.store.load(self.workflow, command)
        at_load = time.perf_counter()
        outcome = step(loaded.state, command)
        if not isinstance(outcome, Accepted):
            raise RuntimeError(f"{command} was rejected: {outcome}")
        change = change_of(f"c{next(self._ids)}", loaded, (command, outcome))
        at_step = time.perf_counter()
        self.store.commit(change)
        at_commit = time.perf_counter()
        self.loads.append(at_load - started)
        self.steps.append(at_step - at_load)
        self.commits.append(at_commit - at_step)
        return change

    def run(self) -> Change:
        """An event comes in and a whole run consumes it; the last of its changes."""
        number = next(self._ids)
        self.transit(Publish(0, Publication(Key("mail", f"m{number}"), "Mail", "{}")))
        return [self.transit(command) for command in commands_of(number)][-1]

    def forget_times(self) -> None:
        self.commits, self.loads, self.steps = [], [], []

    def fill(self, events: int) -> None:
        """Finished events, a hundred to each finished run."""
        finished = self.run().done[-1].retired.run
        if finished is None:
            raise RuntimeError("the run did not come to its end")
        for _ in range(0, events, EVENTS_PER_RUN):
            self._add(finished)

    def _add(self, run: Run) -> None:
        state, version = self.store.load(self.workflow)
        ids = range(state.next_seq, state.next_seq + EVENTS_PER_RUN)
        old = tuple(Event(Key("mail", f"old{n}"), n, "consumed", run.id, "Mail", "{}", "", ()) for n in ids)
        head = state._replace(events=(), next_seq=state.next_seq + EVENTS_PER_RUN)
        name = f"c{next(self._ids)}"
        retired = Retired(run=run._replace(id=name, reserved=tuple(event.key for event in old)))
        self.store.commit(Change(name, self.workflow, version, (Done(Resume(0), (), retired),), head, old))


# --- measuring ---------------------------------------------------------------------------------------


def place(url: str, folder: Path, name: str) -> str:
    """A URL that has no place yet gets one of its own."""
    return f"{url}{folder / name}" if url.endswith(":") and url != "memory:" else url


class Rates(NamedTuple):
    transitions: int
    transitions_per_s: float
    whole_per_s: float
    raw_per_s: float
    rate: float


def measure_rates(url: str, folder: Path, runs: int) -> Rates:
    """Medians over rounds: some runs, then as many raw appends as they made commits. The first round warms up."""
    raw = RAW.get(url.partition(":")[0], raw_nothing)
    commits, wholes, appends = [], [], []
    with closing(open_store(place(url, folder, "rate"))) as store, raw(folder, url) as append:
        bench = Bench(store, "rate")
        for _ in range(ROUNDS + 1):
            bench.forget_times()
            for _ in range(max(1, runs // ROUNDS)):
                bench.run()
            commits.append(statistics.mean(bench.commits))
            wholes.append(statistics.mean(map(sum, zip(bench.loads, bench.steps, bench.commits, strict=True))))
            appends.append(time_appends(append, len(bench.commits)) if append is not None else 0.0)
        transitions = ROUNDS * len(bench.commits)
    commit_s, whole_s, append_s = (statistics.median(seconds[1:]) for seconds in (commits, wholes, appends))
    rate = statistics.median(a / c for a, c in zip(appends[1:], commits[1:], strict=True))
    return Rates(transitions, 1 / commit_s, 1 / whole_s, 1 / append_s if append_s else 0.0, rate)


def time_appends(append: Append, times: int) -> float:
    """Seconds of one append."""
    started = time.perf_counter()
    for _ in range(times):
        append()
    return (time.perf_counter() - started) / times


class Growth(NamedTuple):
    commit_short_us: float
    commit_long_us: float
    load_short_us: float
    load_long_us: float
    opening_s: float


def measure_growth(url: str, folder: Path, runs: int, history: int) -> Growth:
    """Median commits and loads of two workflows, each in a store of its own when stores are files."""
    with closing(open_store(place(url, folder, "short"))) as short_store:
        short = Bench(short_store, "short")
        short.fill(SHORT_HISTORY)
        long_url = place(url, folder, "long")
        long_store = open_store(long_url)
        long = Bench(long_store, "long")
        long.fill(history)
        opening_s = 0.0
        if long_url != "memory:":
            long_store.close()
            started = time.perf_counter()
            long.store = long_store = open_store(long_url)
            opening_s = time.perf_counter() - started
        with closing(long_store):
            for bench in (short, long):
                bench.run()
                bench.forget_times()
            for _ in range(runs):
                short.run()
                long.run()
    medians = [statistics.median(seconds) * 1e6 for b in (short, long) for seconds in (b.commits, b.loads)]
    return Growth(medians[0], medians[2], medians[1], medians[3], opening_s)


def measure(url: str, folder: Path, runs: int, history: int) -> Result:
    rates = measure_rates(url, folder, runs)
    growth = measure_growth(url, folder, runs, history)
    return Result(
        url.partition(":")[0],
        *rates,
        history,
        growth.commit_short_us,
        growth.commit_long_us,
        growth.commit_long_us / growth.commit_short_us,
        growth.load_short_us,
        growth.load_long_us,
        growth.load_long_us / growth.load_short_us,
        growth.opening_s,
    )


def table(results: list[Result]) -> str:
    lines = [f"{'store':<12}{'commits/s':>11}{'whole/s':>10}{'raw/s':>10}{'ratio':>8}{'wanted':>8}"]
    for r in results:
        wanted = f"{WANTED_RATE[r.store]:>8.2f}" if r.raw_per_s else ""
        raw = f"{r.raw_per_s:>10,.0f}{r.rate:>8.2f}" if r.raw_per_s else ""
        lines.append(f"{r.store:<12}{r.transitions_per_s:>11,.0f}{r.whole_per_s:>10,.0f}{raw}{wanted}")
    for r in results:
        commit = f"{r.commit_long_us:8.1f} µs and {r.commit_short_us:8.1f} µs: {r.growth:.2f} times as long"
        load = f"{r.load_long_us:8.1f} µs and {r.load_short_us:8.1f} µs: {r.load_growth:.2f} times as long"
        lines += [
            "",
            f"{r.store} with {r.history:,} finished events in history, and with {SHORT_HISTORY:,}",
            f"  commit {commit} (at most {WANTED_GROWTH})",
            f"  load   {load}",
            f"  opened in {r.opening_s:.3f} s (at most {WANTED_OPENING_S:.0f})",
        ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("urls", nargs="*", metavar="URL", default=["memory:", "sqlite:"])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--runs", type=int, default=300, help="consumer runs of each loop; ten transitions each")
    parser.add_argument("--history", type=int, default=1_000_000, help="finished events of the long history")
    parser.add_argument("--folder", type=Path, help="where to make files; the disk counts")
    arguments = parser.parse_args()
    results = []
    for url in arguments.urls:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            results.append(measure(url, Path(folder), arguments.runs, arguments.history))
    print(json.dumps([r._asdict() for r in results], indent=2) if arguments.json else table(results))
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
