"""What `keepkernel crash` does: every workflow dies at every point, or at every pair of points, and must come to rest.

Exit codes: 0 everything holds, 1 something is violated, 2 wrong usage, 3 not decided.
"""

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ..adapters.host import Grain
from ..adapters.stores import KINDS
from ..kernel.ports import StoreError
from . import files
from .commands import EXIT_CODES, aligned, wrong_usage
from .explorer import Verdict
from .judge import changed
from .lives import STORES_WITH_FILES, Way
from .progress import Watch
from .report import plural, wrapped
from .servers import without_password
from .trials import Ground, NotReached, Picture, Trial, ground, killed, pictured, revived, simulated
from .workflows import WORKFLOWS, Workflow

Deaths = tuple[int, ...]
Task = TypeVar("Task")
Result = TypeVar("Result")

PAIRS_SECONDS: Final = 600.0
"""For so long pairs are tried with real kills, when nothing else is said."""
SHOWN: Final = 5
"""So many failures of a workflow are told in full; the rest is counted."""


class Wanted(NamedTuple):
    """What to try, as the command line says it."""

    store: str = "duckdb:"
    depth: int = 1
    in_process: bool = False
    workflow: str = ""
    seconds: float = 0
    """A limit for pairs; what is tried until then is a sample."""
    seed: int = 1
    grain: Grain = "coalesced"
    """Whether each step is a commit of its own, or the host gathers those that may wait."""


class Failure(NamedTuple):
    deaths: Deaths
    died: tuple[str, ...]
    violations: tuple[str, ...]


class Swept(NamedTuple):
    """What became of one workflow."""

    workflow: str
    points: int
    """The crash points of a life in which nobody dies."""
    pairs: int
    """Pairs that were tried, with those that leave the same files behind."""
    all_pairs: int
    """Pairs that there are; 0 when none were wanted."""
    trials: int
    """Trials that were brought to rest and judged."""
    seconds: float
    failures: tuple[Failure, ...]
    complete: bool = True

    @property
    def verdict(self) -> Verdict:
        return "violated" if self.failures else "holds" if self.complete else "not decided"


def failures_of(clean: Trial, trial: Trial, deaths: Deaths) -> tuple[Failure, ...]:
    """What is wrong with a trial, by itself and beside one in which nobody died."""
    found = trial.violations
    if clean.ending is not None and trial.ending is not None:
        found += changed(clean.ending, trial.ending)
    return (Failure(deaths, trial.died, found),) if found else ()


# --- in one process ----------------------------------------------------------------------------------


class First(NamedTuple):
    """A first death, and the life after it."""

    point: int
    width: int
    """So many points, from this one on, leave the same behind."""
    picture: Picture | None
    """None when the store has no files."""
    trial: Trial


def swept_in_process(workflow: Workflow, where: Ground, depth: int, pair_seconds: float, seed: int) -> Swept:
    """Every point, or pair of points, of one workflow; pairs for so long, or 0 for all of them."""
    began = time.monotonic()
    clean = simulated(workflow, where)
    failures = failures_of(clean, clean, ())
    firsts = list(first_deaths(workflow, where, clean)) if not failures else []
    for first in firsts:
        failures += failures_of(clean, first.trial, (first.point,))
    trials, pairs, all_pairs = 1 + len(firsts), 0, 0
    if depth > 1 and not failures:
        all_pairs = sum(first.width * len(first.trial.points) for first in firsts)
        random.Random(seed).shuffle(firsts)
        until = time.monotonic() + pair_seconds
        for first in firsts:
            if pair_seconds and time.monotonic() > until:
                break
            for point, trial in second_deaths(workflow, where, first):
                failures += failures_of(clean, trial, (first.point, point))
                trials += 1
            pairs += first.width * len(first.trial.points)
    seconds = time.monotonic() - began
    return Swept(workflow.name, len(clean.points), pairs, all_pairs, trials, seconds, failures)


def first_deaths(workflow: Workflow, where: Ground, clean: Trial) -> Iterator[First]:
    if not where.has_files:
        for point in range(1, len(clean.points) + 1):
            yield First(point, 1, None, simulated(workflow, where, (point,)))
        return
    names, deaths = pictured(workflow, where, None, 0)
    ends = [death.point for death in deaths[1:]] + [len(names) + 1]
    for death, end in zip(deaths, ends, strict=True):
        trial = revived(workflow, where, death.picture, (death.name,))
        yield First(death.point, end - death.point, death.picture, trial)


def second_deaths(workflow: Workflow, where: Ground, first: First) -> Iterator[tuple[int, Trial]]:
    if first.picture is None:
        for point in range(1, len(first.trial.points) + 1):
            yield point, simulated(workflow, where, (first.point, point))
        return
    for death in pictured(workflow, where, first.picture, 1)[1]:
        yield death.point, revived(workflow, where, death.picture, (*first.trial.died, death.name))


# --- with real kills ---------------------------------------------------------------------------------


def timed(workflow: Workflow, where: Ground, deaths: Deaths) -> tuple[Trial, float]:
    began = time.monotonic()
    return killed(workflow, where, deaths), time.monotonic() - began


def swept_by_kills(workflows: list[Workflow], wanted: Wanted, pool: "Pool") -> list[Swept]:
    """All workflows at once: a run of each without a death, then all points, then pairs as long as there is time."""
    tried = {w.name: Tried(w) for w in workflows}
    for (w, _), (trial, seconds) in pool.each(timed, [(w, ()) for w in workflows], "clean runs"):
        tried[w.name].add((), trial, seconds)
    points = [(t.workflow, (n,)) for t in tried.values() for n in t.points_of()]
    for (w, deaths), (trial, seconds) in pool.each(timed, points, "points"):
        tried[w.name].add(deaths, trial, seconds)
    if wanted.depth > 1:
        pairs = [(t.workflow, (n, m)) for t in tried.values() for n in t.points_of() for m in t.points_of(n)]
        random.Random(wanted.seed).shuffle(pairs)
        until = time.monotonic() + (wanted.seconds or PAIRS_SECONDS)
        for (w, deaths), (trial, seconds) in pool.each(timed, pairs, "pairs", until):
            tried[w.name].add(deaths, trial, seconds)
    return [t.swept(wanted.depth) for t in tried.values()]


class Tried:
    """The trials of one workflow, as they come in."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self._clean: Trial | None = None
        self._after: dict[int, int] = {}
        """First point -> how many points the second life has."""
        self._pairs = 0
        self._seconds = 0.0
        self._failures: tuple[Failure, ...] = ()

    def add(self, deaths: Deaths, trial: Trial, seconds: float) -> None:
        self._seconds += seconds
        if not deaths:
            self._clean = trial
        elif len(deaths) == 1:
            self._after[deaths[0]] = len(trial.points)
        else:
            self._pairs += 1
        self._failures += failures_of(self._clean or trial, trial, deaths)

    def points_of(self, first: int = 0) -> range:
        """The points of the life without a death, or of the one after a first death; none when that one failed."""
        if first:
            failed = any(failure.deaths == (first,) for failure in self._failures)
            return range(0) if failed else range(1, self._after.get(first, 0) + 1)
        return range(1, len(self._clean.points) + 1) if self._clean is not None else range(0)

    def swept(self, depth: int) -> Swept:
        points = len(self.points_of())
        all_pairs = sum(self._after.values()) if depth > 1 else 0
        trials = 1 + len(self._after) + self._pairs
        whole = self._clean is not None and len(self._after) == points
        failures = tuple(sorted(self._failures))
        return Swept(self.workflow.name, points, self._pairs, all_pairs, trials, self._seconds, failures, whole)


# --- a workflow file ---------------------------------------------------------------------------------


def tried(deaths: Deaths, project: files.Project) -> tuple[files.Trial, float]:
    began = time.monotonic()
    return project.killed(deaths), time.monotonic() - began


def swept_file(file: Path, project: files.Project, wanted: Wanted, watch: Watch) -> Swept:
    """Every point of one workflow file, and pairs as long as there is time, each by real kills."""
    pool = Pool(project, watch)
    try:
        (clean, seconds), (again, _) = (found for _, found in pool.each(tried, [((),), ((),)], "clean runs"))
        repeatable = clean.evidence == again.evidence and clean.events == again.events
        failures = [Failure((), (), found)] if (found := files.compared(clean, again, repeatable)) else []
        after: dict[int, int] = {}
        pairs = all_pairs = 0
        if not failures:
            points = [((n,),) for n in range(1, len(clean.points) + 1)]
            for (deaths,), (trial, took) in pool.each(tried, points, "points"):
                seconds += took
                after[deaths[0]] = len(trial.points)
                if found := files.compared(clean, trial, repeatable):
                    failures.append(Failure(deaths, trial.died, found))
        if wanted.depth > 1 and not failures:
            every = [((n, m),) for n, points_after in after.items() for m in range(1, points_after + 1)]
            all_pairs = len(every)
            random.Random(wanted.seed).shuffle(every)
            until = time.monotonic() + (wanted.seconds or PAIRS_SECONDS)
            for (deaths,), (trial, took) in pool.each(tried, every, "pairs", until):
                seconds += took
                pairs += 1
                if found := files.compared(clean, trial, repeatable):
                    failures.append(Failure(deaths, trial.died, found))
        whole = bool(failures) or len(after) == len(clean.points)
        count = 2 + len(after) + pairs
        return Swept(str(file), len(clean.points), pairs, all_pairs, count, seconds, tuple(sorted(failures)), whole)
    finally:
        pool.close()


# --- many at a time ----------------------------------------------------------------------------------

SHARED: dict[str, Any] = {}
"""What the processes of the pool know of their ground; they are forked, so that nothing is copied."""


def start_worker(where: Ground | files.Project) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which lets them finish.
    SHARED["ground"] = where


def at_work(function: Callable[..., Result], what: Any, rest: tuple[Any, ...]) -> Result:
    return function(what, SHARED["ground"], *rest)


class Pool:
    """A process for every core, each forked from this one while no store is open."""

    def __init__(self, where: Ground | files.Project, watch: Watch) -> None:
        self._watch = watch
        self.size = os.cpu_count() or 1
        self._executor = ProcessPoolExecutor(self.size, get_context("fork"), start_worker, (where,))

    def each(
        self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], what: str, until: float = 0
    ) -> Iterator[tuple[tuple[Any, ...], Result]]:
        """Results as they come; nothing new is begun after a time, or after Ctrl-C."""
        queue, done = iter(tasks), 0
        running: dict[Future[Result], tuple[Any, ...]] = {}
        while True:
            over = self._watch.stopped or (until and time.monotonic() > until)
            for task in islice(queue, 0 if over else 2 * self.size - len(running)):
                running[self._executor.submit(at_work, function, task[0], task[1:])] = task
            if not running:
                return
            for future in wait(running, timeout=0.2, return_when=FIRST_COMPLETED).done:
                done += 1
                yield running.pop(future), future.result()
            self._watch.show(f"{done:,} of {len(tasks):,} {what}")

    def close(self) -> None:
        self._executor.shutdown()


# --- the command -------------------------------------------------------------------------------------


def crash(wanted: Wanted, *, point: str = "", as_json_text: bool = False) -> int:
    """Sweep, or repeat one trial; print what came of it, and return the exit code."""
    if point:
        return one_trial(wanted, point)
    document = sweep(wanted)
    print(json.dumps(document, indent=2, ensure_ascii=False) if as_json_text else told(document), flush=True)
    verdict: Verdict = document["verdict"]
    return EXIT_CODES[verdict]


def sweep(wanted: Wanted) -> dict[str, Any]:
    """The one object that `--json` prints."""
    began = time.monotonic()
    if wanted.workflow.endswith(".js"):
        with project_of(wanted) as project, Watch("crash") as watch:
            rows, stopped = [swept_file(project.file, project, wanted, watch)], watch.stopped
    else:
        workflows = chosen(wanted.workflow)
        with scratch(wanted) as where:
            rows, stopped = swept(workflows, where, wanted)
    return summary(rows, wanted, time.monotonic() - began, stopped)


@contextmanager
def project_of(wanted: Wanted) -> Iterator[files.Project]:
    """A workflow file, and a folder for copies of its own."""
    scheme, file = wanted.store.partition(":")[0], Path(wanted.workflow)
    if wanted.in_process or scheme not in STORES_WITH_FILES:
        wrong_usage("a workflow file is swept by real kills, with --store sqlite: or duckdb:")
    files.usable(file)
    with scratch(wanted) as where:
        yield files.Project(file, scheme, where.folder, wanted.grain)


def swept(workflows: list[Workflow], where: Ground, wanted: Wanted) -> tuple[list[Swept], bool]:
    """A row for each workflow, and whether somebody stopped it."""
    with Watch("crash") as watch:
        pool = Pool(where, watch)
        try:
            if not wanted.in_process:
                return swept_by_kills(workflows, wanted, pool), watch.stopped
            share = wanted.seconds * pool.size / len(workflows)
            tasks = [(w, wanted.depth, share, wanted.seed) for w in workflows]
            found = {task[0].name: row for task, row in pool.each(swept_in_process, tasks, "workflows")}
            return [found.get(w.name, Swept(w.name, 0, 0, 0, 0, 0.0, (), False)) for w in workflows], watch.stopped
        finally:
            pool.close()


def listing() -> str:
    """The workflows, in a line each."""
    return "\n".join(f"{workflow.name:<14}{workflow.text}" for workflow in WORKFLOWS.values())


def chosen(name: str) -> list[Workflow]:
    if name and name not in WORKFLOWS:
        wrong_usage(f"there is no workflow {name!r}; there are: {', '.join(WORKFLOWS)}")
    return [WORKFLOWS[name]] if name else list(WORKFLOWS.values())


def deaths_of(text: str) -> Deaths:
    """
    >>> deaths_of("57"), deaths_of("57,3")
    ((57,), (57, 3))
    """
    words = text.split(",")
    if len(words) > 2 or not all(word.strip().isdecimal() and int(word) for word in words):
        wrong_usage(f"--point takes N or N,M, counted from 1, and not {text!r}")
    return tuple(map(int, words))


@contextmanager
def scratch(wanted: Wanted) -> Iterator[Ground]:
    """A folder for stores, beside the one that the URL names, which is never touched.

    A kill leaves to the system what it was given to write, so that nothing depends on a disk: without a place, and
    always in one process, memory does for it where the system offers that.
    """
    scheme, colon, location = wanted.store.partition(":")
    server = wanted.store if scheme == "postgresql" else ""
    if not colon or scheme not in KINDS:
        wrong_usage(
            f"{scheme}{colon} can not be swept; write memory:, sqlite: or duckdb:, with a PATH beside which to work, "
            "or postgresql://HOST/DATABASE, in which every trial gets a schema of its own"
        )
    if scheme == "memory" and not wanted.in_process:
        wrong_usage("a store in memory dies with its process; add --in-process")
    beside = Path(location).absolute().parent if location and not server else fast_folder()
    if not os.access(beside, os.W_OK):
        wrong_usage(f"{beside} is no folder that can be written")
    folder = fast_folder() if wanted.in_process else beside
    with tempfile.TemporaryDirectory(prefix="keepkernel-crash-", dir=folder) as name:
        try:
            where = ground(scheme, Path(name), Way(wanted.grain), server)
        except StoreError as error:
            wrong_usage(str(error))
        yield where


def fast_folder() -> Path:
    """Where files are in memory, if there is such a place."""
    in_memory = Path("/dev/shm")
    return in_memory if os.access(in_memory, os.W_OK) else Path(tempfile.gettempdir())


def one_trial(wanted: Wanted, point: str) -> int:
    """The same trial again, told step by step."""
    if not wanted.workflow:
        wrong_usage("--point goes with --workflow: each has its own points")
    if wanted.workflow.endswith(".js"):
        return one_file_trial(wanted, deaths_of(point))
    (workflow,), deaths = chosen(wanted.workflow), deaths_of(point)
    die = simulated if wanted.in_process else killed
    with scratch(wanted) as where:
        clean = die(workflow, where)
        try:
            trial = die(workflow, where, deaths)
        except NotReached as error:
            wrong_usage(str(error))
    failures = failures_of(clean, trial, deaths) or failures_of(clean, clean, ())
    print(f"{workflow.name}: {workflow.text}")
    for life, (at, name) in enumerate(zip(deaths, trial.died, strict=True), 1):
        print(f"  life {life} dies at point {at}: {name}")
    print(*(f"  {line}" for line in trial.story), sep="\n")
    for failure in failures:
        print(*(f"  broken: {violation}" for violation in failure.violations), sep="\n")
    print("violated" if failures else "holds")
    return EXIT_CODES["violated" if failures else "holds"]


def one_file_trial(wanted: Wanted, deaths: Deaths) -> int:
    with project_of(wanted) as project:
        clean, again = project.killed(), project.killed()
        try:
            trial = project.killed(deaths)
        except NotReached as error:
            wrong_usage(str(error))
    found = files.compared(clean, trial, clean.evidence == again.evidence)
    for life, (at, name) in enumerate(zip(deaths, trial.died, strict=True), 1):
        print(f"  life {life} dies at point {at}: {name}")
    for place, things in trial.evidence.items():
        print(f"  {place}:", *(f"    {thing}" for thing in things), sep="\n")
    print(
        *(f"  broken: {violation}" for violation in found), *([f"  asks: {trial.asks}"] if trial.asks else []), sep="\n"
    )
    print("violated" if found else "holds")
    return EXIT_CODES["violated" if found else "holds"]


# --- telling -----------------------------------------------------------------------------------------


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """
    >>> worst(["holds", "not decided", "holds"])
    'not decided'
    """
    found = {*verdicts}
    return "violated" if "violated" in found else "not decided" if "not decided" in found else "holds"


def summary(rows: list[Swept], wanted: Wanted, seconds: float, stopped: bool) -> dict[str, Any]:
    return {
        "verdict": worst([*(row.verdict for row in rows), "not decided" if stopped else "holds"]),
        "store": without_password(wanted.store),
        "depth": wanted.depth,
        "in_process": wanted.in_process,
        "grain": wanted.grain,
        "seed": wanted.seed,
        "seconds": round(seconds, 1),
        "points": sum(row.points for row in rows),
        "pairs": sum(row.pairs for row in rows),
        "all_pairs": sum(row.all_pairs for row in rows),
        "trials": sum(row.trials for row in rows),
        "workflows": [
            {
                "workflow": row.workflow,
                "text": WORKFLOWS[row.workflow].text if row.workflow in WORKFLOWS else "a workflow file",
                "points": row.points,
                "pairs": row.pairs,
                "all_pairs": row.all_pairs,
                "trials": row.trials,
                "seconds": round(row.seconds, 2),
                "verdict": row.verdict,
                "failures": [
                    {**failure._asdict(), "reproduce": reproduce(row.workflow, failure, wanted)}
                    for failure in row.failures
                ],
            }
            for row in rows
        ],
    }


def reproduce(workflow: str, failure: Failure, wanted: Wanted) -> str:
    """The one command that shows this failure again."""
    way = " --in-process" if wanted.in_process else ""
    way += f" --grain {wanted.grain}" if wanted.grain != Wanted().grain else ""
    point = f" --point {','.join(map(str, failure.deaths))}" if failure.deaths else ""
    return f"keepkernel crash --store {without_password(wanted.store)} --workflow {workflow}{point}{way}"


HEAD: Final = ("workflow", "store", "points", "pairs", "trials", "seconds", "verdict")


def told(document: dict[str, Any]) -> str:
    """The whole result as text."""
    return "\n".join(lines(document))


def lines(document: dict[str, Any]) -> Iterator[str]:
    store = document["store"].partition(":")[0]
    rows: list[tuple[str, ...]] = [HEAD]
    for r in document["workflows"]:
        rows.append((
            r["workflow"], store, f"{r['points']:,}", tried_pairs(r), f"{r['trials']:,}", f"{r['seconds']:.1f}",
            r["verdict"],
        ))  # fmt: skip
    yield from aligned(rows, right=(2, 3, 4, 5))
    yield ""
    for row in document["workflows"]:
        yield from troubles(row)
    sample = f", a sample by seed {document['seed']}" if document["pairs"] < document["all_pairs"] else ""
    counted = f"{plural(document['points'], 'point')}, {tried_pairs(document)} pairs{sample}"
    trials = plural(document["trials"], "trial")
    way = "crashes simulated in one process" if document["in_process"] else "processes killed by SIGKILL"
    grain = "each step a commit" if document["grain"] == "fine" else "steps that may wait gathered"
    yield f"{document['verdict']}: {counted}, {trials} in {document['seconds']:.0f} s, {way}, {grain}"
    if document["in_process"] and store in STORES_WITH_FILES:
        yield "Points between which nothing is written leave the same files behind, and are one trial."


def tried_pairs(counts: dict[str, Any]) -> str:
    tried, there = counts["pairs"], counts["all_pairs"]
    return f"{tried:,}" if tried == there else f"{tried:,} of {there:,}"


def troubles(row: dict[str, Any]) -> Iterator[str]:
    failures = row["failures"]
    for failure in failures[:SHOWN]:
        places = " then ".join(f"{n} ({name})" for n, name in zip(failure["deaths"], failure["died"], strict=True))
        yield f"{row['workflow']}, {f'death at {places}' if places else 'without a death'}:"
        for violation in failure["violations"][:SHOWN]:
            yield from wrapped("  ", violation)
        yield f"  {failure['reproduce']}"
    if len(failures) > SHOWN:
        yield f"{row['workflow']}: and {len(failures) - SHOWN} more"
    if failures:
        yield ""
