"""`keepkernel score`: every seeded fault against every detector, and how long it takes until somebody notices.

A detector is handed a system with something wrong in it, or with nothing: it does not know which. Each works in a
process of its own, into which the fault is put before it begins. What finds something in a sound system counts for
nothing, so each one that found a fault looks at such a system too, for twice the time that it ever needed.
"""

import json
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, NamedTuple

from .check import explore
from .commands import aligned, known, wrong_usage
from .crash import fast_folder, swept_in_process
from .explorer import Progress
from .faults import CATALOGUE, LEVELS, Level
from .incidents import swept_by_incidents
from .lives import Way
from .progress import Watch
from .report import plural
from .setups import setup
from .simulate import counted, name_of, simulate
from .system import Caller
from .trials import Ground, ground
from .workflows import WORKFLOWS

LIMITS: Final[dict[Level, float]] = {"kernel": 60.0, "store": 120.0, "host": 120.0, "service": 120.0, "sandbox": 120.0}
"""In so many seconds a detector must have found a fault of this level."""
SOUND: Final = ""
"""No fault at all."""
SOUND_SECONDS: Final = 10.0
SOUND_TIMES: Final = 2
"""A detector must find nothing there in so many times what it needed at most for a fault, and in no less than that."""
ROOT: Final = Path(__file__).resolve().parents[1]
"""The repository, when this is one: the suites are not installed."""

Search = Callable[[float], str]
"""Looks until a time, by the clock that never goes back; what it found, or nothing."""


class Detector(NamedTuple):
    name: str
    text: str
    search: Callable[[Level, float], str]
    levels: tuple[Level, ...]
    suites: tuple[str, ...] = ()
    """The folders of tests that it needs."""


# --- search, walks, sweeps ---------------------------------------------------------------------------

SEARCHES: Final[tuple[tuple[str, Caller], ...]] = (
    ("no-mutate", "honest"),
    ("no-reconcile", "honest"),
    ("consumer", "honest"),
    ("consumer", "adversary"),
    ("bookkeeping", "adversary"),
    ("batch", "honest"),
    ("main", "honest"),
    ("main", "adversary"),
    ("bookkeeping", "honest"),
    ("chain", "honest"),
)
WALKS: Final = (("main", 2), ("chain", 2), ("bookkeeping", 2), ("batch", 3), ("consumer", 3))
WALK_SECONDS: Final = 2.0


def by_search(level: Level, until: float) -> str:
    """The checker: stops at the first violation, and compares the sizes of whole spaces with those that are pinned."""

    def report(progress: Progress) -> None:
        if time.monotonic() > until:
            raise KeyboardInterrupt

    for name, caller in SEARCHES:
        result = explore(setup(name), caller=caller, to_law=True, stop_at_first=True, report=report)
        if result.counterexamples:
            example = result.counterexamples[0]
            return f"{example.violation.invariant} after {plural(example.length, 'step')} ({name}, {caller})"
        if not result.complete:
            return ""
        pinned = counted().get(name_of(setup(name), caller), [])
        if pinned and result.missing:
            return f"never put to the test: {', '.join(result.missing)} ({name}, {caller})"
        if pinned and pinned != [result.states, result.transitions, result.depth]:
            return f"another space than the one that is pinned ({name}, {caller})"
    return ""


def by_walks(level: Level, until: float) -> str:
    """Random walks through larger set-ups, a little of each in turn."""
    for seed in count():
        for name, events in WALKS:
            callers: tuple[Caller, ...] = ("honest", "adversary")
            for caller in callers:
                left = until - time.monotonic()
                if left <= 0:
                    return ""
                done = simulate(setup(name, events), caller, seed=seed, seconds=min(WALK_SECONDS, left))
                if done.counterexample is not None:
                    example = done.counterexample
                    return f"{example.violation.invariant} in walk {done.broken_walk} of seed {seed} ({name}, {caller})"
    return ""


def grounds(schemes: Sequence[str]) -> Iterator[Ground]:
    for scheme in schemes:
        with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
            yield ground(scheme, Path(folder), Way("coalesced"))
            yield ground(scheme, Path(folder), Way("fine"))


def by_crashes(level: Level, until: float) -> str:
    """A death at every point of every workflow, on each store that needs no server."""
    for where in grounds(("memory", "sqlite", "duckdb")):
        for workflow in WORKFLOWS.values():
            if time.monotonic() > until:
                return ""
            swept = swept_in_process(workflow, where, 1, 0, 1)
            if swept.failures:
                failure = swept.failures[0]
                died = f"died at {failure.died[0]}" if failure.died else "nobody died"
                return f"{failure.violations[0][:100]} ({workflow.name}, {where.scheme}, {died})"
    return ""


def by_incidents(level: Level, until: float) -> str:
    """A stall, a click, a takeover and a broken connection at every point of every workflow."""
    for where in grounds(("memory", "sqlite")):
        for workflow in WORKFLOWS.values():
            if time.monotonic() > until:
                return ""
            for failure in swept_by_incidents(workflow, where):
                return f"{failure.violations[0][:100]} ({workflow.name}, {where.scheme}, {failure.died[0]})"
    return ""


def by_fuzzing(level: Level, until: float) -> str:
    """The machine of the level lives by chance."""
    from .machines.levels import beginning
    from .machines.machine import Watcher, scout

    watcher = Watcher(until)
    begin = beginning("host" if level == "sandbox" else level)
    scout(begin, watcher, (f"score/{n}" for n in count()))
    failure = watcher.first
    return f"{failure.what}: {failure.text.splitlines()[0][:100]}" if failure is not None else ""


# --- suites ------------------------------------------------------------------------------------------


class FirstFailure:
    """Remembers the first test that failed."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = str(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = f"{report.nodeid} can not be collected"


def by_tests(*paths: str, **options: str) -> Callable[[Level, float], str]:
    """Tests that were written for every kernel, store or sandbox, and for no fault in particular."""

    def search(level: Level, until: float) -> str:
        import pytest

        os.chdir(ROOT)
        first = FirstFailure()
        chosen = [word for name, value in options.items() for word in (f"-{name}", value)]
        quiet = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
        code = pytest.main([*quiet, *chosen, *paths], plugins=[first])
        if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return first.name
        return first.name or f"the tests could not be run: {code!r}"

    return search


KERNEL_SUITES: Final = ("tests/kernel", "tests/scenarios")
SANDBOX_SUITES: Final = tuple(
    f"tests/sandbox/test_{n}.py" for n in ("bridge", "handlers", "border", "loader", "hostile")
)
"""From the shortest to the longest."""
SERVICE_SUITES: Final = ("tests/work/test_service.py",)
SUITES: Final[dict[Level, tuple[str, ...]]] = {
    "kernel": KERNEL_SUITES,
    "service": SERVICE_SUITES,
    "sandbox": SANDBOX_SUITES,
}
CONTRACT: Final = ("tests/contract/test_stores.py",)


def by_suites(level: Level, until: float) -> str:
    return by_tests(*SUITES[level])(level, until)


DETECTORS: Final[dict[str, Detector]] = {
    detector.name: detector
    for detector in (
        Detector("check", "exhaustive search with one event", by_search, ("kernel",)),
        Detector("simulate", "random walks with more events", by_walks, ("kernel",)),
        Detector("fuzz", "the machine of the level", by_fuzzing, LEVELS),
        Detector("crash", "a death at every point", by_crashes, ("kernel", "store", "host")),
        Detector("incident", "a mishap at every point", by_incidents, ("kernel", "store", "host")),
        Detector(
            "contract",
            "what every store must keep",
            by_tests(*CONTRACT, k="memory or sqlite or duckdb"),
            ("store",),
            CONTRACT,
        ),
        Detector(
            "suite", "properties, scenarios, threads, hostile scripts", by_suites, tuple(SUITES),
            (*KERNEL_SUITES, *SERVICE_SUITES, *SANDBOX_SUITES),
        ),
    )
}  # fmt: skip


# --- one attempt -------------------------------------------------------------------------------------


class Task(NamedTuple):
    """A detector that is to look for a fault."""

    fault: str
    detector: str
    level: Level
    seconds: float


class Attempt(NamedTuple):
    """A detector that looked for a fault."""

    fault: str
    detector: str
    level: Level
    found: str
    """What it found; empty when nothing."""
    seconds: float


def attempt(fault: str, detector: str, level: Level, seconds: float, tell: Connection) -> None:
    """In a process of its own: put the fault in place and look. An error is found as well: a sound system has none."""
    os.setpgid(0, 0)  # So that its own children can be ended with it.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    began = time.monotonic()
    with CATALOGUE[fault].installed() if fault else nullcontext():
        try:
            found = DETECTORS[detector].search(level, began + seconds)
        except Exception:
            found = f"fails: {traceback.format_exc().strip().splitlines()[-1][:200]}"
        tell.send((found, time.monotonic() - began))
    tell.close()


class Running(NamedTuple):
    process: Any
    task: Task
    until: float

    def end(self) -> None:
        """It and whatever it has started; nobody else is in its group."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self.process.kill()
        self.process.join()


GRACE: Final = 10.0
"""A detector looks at the clock between two steps; what takes longer than this is ended."""


def attempts(queue: deque[Task], watch: Watch) -> Iterator[Attempt]:
    """Two at a time; each ends when it has found something, or when its time is over."""
    context = multiprocessing.get_context("fork")
    running = dict[Connection, Running]()
    over = 0
    try:
        while queue or running:
            while queue and len(running) < 2 and not watch.stopped:
                task = queue.popleft()
                heard, told = context.Pipe(duplex=False)
                process = context.Process(target=attempt, args=(*task, told))
                process.start()
                told.close()
                running[heard] = Running(process, task, time.monotonic() + task.seconds + GRACE)
            if watch.stopped:
                return
            names = ", ".join(f"{one.task.fault or 'nothing'} by {one.task.detector}" for one in running.values())
            watch.show(f"{plural(over, 'attempt')}, at most {len(queue) + len(running)} more, {names}")
            ready = wait(list(running), timeout=0.2)
            for heard, one in list(running.items()):
                if heard in ready:
                    found, seconds = said(heard)
                elif time.monotonic() > one.until:
                    found, seconds = "", one.task.seconds
                else:
                    continue
                running.pop(heard).end()
                over += 1
                yield Attempt(*one.task[:3], found, seconds)
    finally:
        for one in running.values():
            one.end()


def said(heard: Connection) -> tuple[str, float]:
    """What a detector told; one that died has found something too."""
    try:
        told: tuple[str, float] = heard.recv()
    except EOFError:
        return "its process died", 0.0
    return told


# --- the command -------------------------------------------------------------------------------------


def score(*, only: str, detector: str, seconds: float, matrix: bool, as_json_text: bool) -> int:
    """Every fault, or one, against every detector, or one: 0 when all are found and nothing is found in soundness."""
    faults = chosen_faults(only)
    detectors = chosen_detectors(detector)
    load_machines()
    tasks = planned(faults, detectors, seconds)
    if not tasks:
        wrong_usage(f"{detector or 'no detector'} does not look at faults of this level")
    began = time.monotonic()
    with Watch("score") as watch:
        done = [*looked(tasks, matrix, watch)]
        done += attempts(deque(soundness(done)), watch)
        document = summary(faults, detectors, tasks, done, stopped=watch.stopped, seconds=time.monotonic() - began)
    print(json.dumps(document, indent=2, ensure_ascii=False) if as_json_text else "\n".join(lines(document)))
    return {"complete": 0, "incomplete": 1, "void": 1}.get(document["verdict"], 3)


def looked(tasks: Sequence[Task], matrix: bool, watch: Watch) -> Iterator[Attempt]:
    """All tasks; without the matrix, those for a fault only until a detector has found it."""
    queue = deque(tasks)
    for one in attempts(queue, watch):
        yield one
        if one.found and not matrix:
            left = [task for task in queue if task.fault != one.fault]
            queue.clear()
            queue.extend(left)


def soundness(done: Sequence[Attempt]) -> list[Task]:
    """Whoever found something looks at a sound system as well, and for longer than it ever needed."""
    longest: dict[tuple[str, Level], float] = {}
    for one in done:
        if one.found:
            found_by = one.detector, one.level
            longest[found_by] = max(one.seconds, longest.get(found_by, 0.0))
    return [
        Task(SOUND, detector, level, max(SOUND_SECONDS, SOUND_TIMES * seconds))
        for (detector, level), seconds in longest.items()
    ]


def load_machines() -> None:
    """Once, before any process is forked, so that all of them have the same."""
    try:
        import_module(".machines.levels", __package__)
    except ModuleNotFoundError as error:
        wrong_usage(f"{error.name} is missing: pip install 'keepkernel[test]'")


def chosen_faults(only: str) -> list[str]:
    if only in LEVELS:
        return [name for name, fault in CATALOGUE.items() if fault.level == only]
    if only:
        known("fault or level", only, dict(CATALOGUE))
    return [only] if only else list(CATALOGUE)


def chosen_detectors(name: str) -> list[Detector]:
    if name:
        known("detector", name, DETECTORS)
    there = [d for d in DETECTORS.values() if all((ROOT / suite).exists() for suite in d.suites)]
    return [d for d in there if name in ("", d.name)]


def planned(faults: list[str], detectors: list[Detector], seconds: float) -> list[Task]:
    """One detector after the other, so that most faults are found before those that take long are asked."""
    levels = {fault: CATALOGUE[fault].level for fault in faults}
    return [
        Task(fault, one.name, level, seconds or LIMITS[level])
        for one in detectors
        for fault, level in levels.items()
        if level in one.levels
    ]


def summary(
    faults: list[str],
    detectors: list[Detector],
    tasks: list[Task],
    done: list[Attempt],
    *,
    stopped: bool,
    seconds: float,
) -> dict[str, Any]:
    """The one object that `--json` prints."""
    false = [one._asdict() for one in done if one.fault == SOUND and one.found]
    rows = [row(name, [one for one in done if one.fault == name]) for name in faults]
    missed = [one["fault"] for one in rows if not one["found_by"]]
    verdict = "void" if false else "not decided" if stopped else "incomplete" if missed else "complete"
    limits = {task.level: task.seconds for task in tasks}
    return {
        "verdict": verdict,
        "score": (len(rows) - len(missed)) / len(rows),
        "faults": rows,
        "missed": missed,
        "false_alarms": false,
        "detectors": {one.name: one.text for one in detectors},
        "limits_seconds": limits,
        "seconds": round(seconds, 1),
    }


def row(name: str, tried: list[Attempt]) -> dict[str, Any]:
    fault = CATALOGUE[name]
    found = sorted((one for one in tried if one.found), key=lambda one: one.seconds)
    return {
        "fault": name,
        "level": fault.level,
        "title": fault.title,
        "why": fault.why,
        "found_by": found[0].detector if found else None,
        "seconds": round(found[0].seconds, 2) if found else None,
        "what": found[0].found if found else None,
        "detectors": {one.detector: round(one.seconds, 2) if one.found else None for one in tried},
    }


def lines(document: dict[str, Any]) -> Iterator[str]:
    names = list(document["detectors"])
    rows: list[tuple[str, ...]] = [("fault", "level", *names)]
    for one in document["faults"]:
        rows.append((one["fault"], one["level"], *(cell(one["detectors"], name) for name in names)))
    yield from aligned(rows, right=tuple(range(2, len(names) + 2)))
    yield ""
    yield "Seconds until the fault was found; – not found in time, blank: the detector was not asked."
    yield "; ".join(f"{name}: {text}" for name, text in document["detectors"].items()) + "."
    limits = ", ".join(f"{level} {seconds:g} s" for level, seconds in document["limits_seconds"].items())
    yield f"Limits: {limits}."
    for one in document["false_alarms"]:
        yield f"{one['detector']} finds something where nothing is wrong: {one['found']}"
    if document["missed"]:
        yield f"Not found: {', '.join(document['missed'])}."
    found = len(document["faults"]) - len(document["missed"])
    yield f"{document['score']:.0%}: {found} of {plural(len(document['faults']), 'fault')} found, {document['verdict']}"


def cell(seconds: dict[str, float | None], name: str) -> str:
    if name not in seconds:
        return ""
    return "–" if seconds[name] is None else f"{seconds[name]:.1f}"


def listing() -> str:
    """What can be chosen, one line each."""
    faults = [(fault.name, f"{fault.level}: {fault.title}") for fault in CATALOGUE.values()]
    lines: list[str] = []
    for title, rows in (("Detectors", [(d.name, d.text) for d in DETECTORS.values()]), ("Faults", faults)):
        width = max(len(name) for name, _ in rows)
        lines += [title, *(f"  {name:<{width}}  {text}" for name, text in rows), ""]
    return "\n".join(lines).rstrip()
