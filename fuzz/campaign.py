"""Campaigns of the fuzzer: several processes live as many lives as there is time for, and what breaks is made small.

A campaign has a corpus, a folder in which every failure is kept: as choices that are lived again when the next
campaign begins, as a trace for `keepkernel replay`, as a test, and in the example database of Hypothesis. It also
knows which lives were lived and which states are known, so that the next campaign goes on and does not begin again.
"""

import hashlib
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from itertools import count, product
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any, Final, Literal, NamedTuple, get_args

from hypothesis.database import DirectoryBasedExampleDatabase

from ..adapters import stores
from ..kernel.reasons import REASONS
from . import itf
from .check import Counterexample, Result, explore, named_rules, shortest
from .commands import CORPUS, known, wrong_usage
from .explorer import Progress
from .machines import levels
from .machines.kinds import LIVED
from .machines.levels import LEVELS, Level, Trace
from .machines.life import Coverage
from .machines.machine import Failure, Watcher, run, scout
from .machines.places import ALL
from .machines.values import COURSE
from .report import plural, step_in_words, story
from .setups import SETUPS
from .system import LAW, Caller

SLICE_SECONDS: Final = 1.0
"""For so long a process stays with one machine, before it tells what it saw and takes up the next."""
CHECKED_SETUPS: Final = ("consumer", "no-reconcile", "main", "bookkeeping", "chain")
CHECKED_STATES: Final = 40_000
CHECKED_S: Final = 20.0
"""For so long the checker may look for a shorter way to what was found."""
"""So far the checker looks for a shorter way."""


class Profile(NamedTuple):
    seconds: float
    steps: int
    """How many things happen in a life, before nothing goes wrong any more."""
    shrink_seconds: float
    backend: str = ""
    """Another backend of Hypothesis, which then draws the lives itself."""


PROFILES: Final[dict[str, Profile]] = {
    "ci": Profile(60, 60, 15),
    "dev": Profile(300, 100, 60),
    "campaign": Profile(3_600, 200, 300),
    "crosshair": Profile(60, len(COURSE), 30, "crosshair"),
}


class Wanted(NamedTuple):
    """What to attack, as the command line says it."""

    level: Level | Literal[""] = ""
    store: str = ALL
    seconds: float = 0
    workers: int = 0
    seed: int = 0
    corpus: Path = CORPUS
    fault: str = ""
    profile: str = "ci"

    @property
    def levels(self) -> tuple[Level, ...]:
        if PROFILES[self.profile].backend:
            return ("values",)
        if self.fault and not self.level:
            return (machine_of(self.fault),)
        return (self.level,) if self.level else LEVELS


def machine_of(fault: str) -> Level:
    """The machine that attacks where a seeded fault sits; scripts run in the machine of the host."""
    from .faults import CATALOGUE

    level = CATALOGUE[fault].level
    return "host" if level == "sandbox" else level


class Report(NamedTuple):
    """What a process tells now and then: all that it has seen of one level since the last time."""

    worker: int
    level: Level
    steps: int
    examples: int
    rules: Counter[str]
    rejects: Counter[str]
    kinds: Counter[str]
    states: frozenset[str]
    points: Counter[str]


class Found(NamedTuple):
    """A failure, and what became of it."""

    trace: Trace
    seconds: float
    """From the start of the campaign until it was found."""
    cpu_seconds: float
    """The time of its process until then."""
    first_steps: int
    checked: Result | None
    """The search in which the checker found a shorter way."""

    @property
    def example(self) -> Counterexample | None:
        return shortest(self.checked) if self.checked is not None else None


# --- one process ---------------------------------------------------------------------------------------


class Worker:
    """Lives lives until time is over or something breaks."""

    def __init__(self, number: int, wanted: Wanted, offset: int, tell: Callable[[Report | Found], None]) -> None:
        self.number = number
        self.wanted = wanted
        self.offset = offset
        self.tell = tell
        self.profile = PROFILES[wanted.profile]
        self.began = time.monotonic()
        self.until = self.began + (wanted.seconds or self.profile.seconds)

    def work(self) -> None:
        with installed(self.wanted.fault):
            names = {level: self.names(level) for level in self.wanted.levels}
            fresh = True
            while time.monotonic() < self.until:
                for level in self.wanted.levels:
                    if self.slice(level, names[level], fresh):
                        return
                fresh = False

    def names(self, level: Level) -> Iterator[str]:
        """A name for every life, which is all that is needed to live it: no two processes or campaigns share one."""
        return (f"{self.wanted.seed}/{level}/{self.number}/{n}" for n in count(self.offset))

    def slice(self, level: Level, names: Iterator[str], fresh: bool) -> bool:
        """Lives of one machine, for a while; True when something broke."""
        watcher = Watcher(min(self.until, time.monotonic() + SLICE_SECONDS), self.profile.shrink_seconds)
        if self.profile.backend:
            watcher.until = self.until
            failure = self.drawn(level, watcher, 10_000, backend=self.profile.backend)
        else:
            # What was found before comes first; Hypothesis has it in its database.
            failure = self.drawn(level, watcher, 1) if fresh and self.number == 0 else None
            begin = levels.beginning(level, self.wanted.store)
            name = "" if failure else scout(begin, watcher, names, self.profile.steps)
            failure = failure or (self.drawn(level, watcher, 5, scout=name) if name else None)
        self.report(level, watcher.coverage)
        if failure is None or watcher.first is None:
            return False
        trace = Trace(level, self.wanted.store, self.wanted.fault, failure)
        checked = shorter(failure) if level == "kernel" else None
        self.tell(Found(trace, watcher.first_at - self.began, watcher.first_cpu, len(watcher.first.story), checked))
        return True

    def drawn(self, level: Level, watcher: Watcher, examples: int, **how: str) -> Failure | None:
        """Lives that Hypothesis draws, and shrinks when they break something."""
        begin = levels.beginning(level, self.wanted.store)
        database = DirectoryBasedExampleDatabase(self.wanted.corpus / "examples" / level)
        number = self.wanted.seed * 1_000_003 + self.number * 1_009 + self.offset
        steps = self.profile.steps
        return run(begin, watcher, number=number, examples=examples, steps=steps, database=database, **how)

    def report(self, level: Level, saw: Coverage) -> None:
        states = frozenset(repr(state) for state in saw.states)
        lists = saw.rules, saw.rejects, saw.kinds
        self.tell(Report(self.number, level, saw.steps, saw.examples, *lists, states, saw.points))


def installed(fault: str) -> AbstractContextManager[None]:
    """A seeded fault in its place; without a name, the system as it is."""
    if not fault:
        return nullcontext()
    from .faults import CATALOGUE

    return CATALOGUE[fault].installed()


def shorter(failure: Failure) -> Result | None:
    """The search in which the checker breaks the same in fewer steps, if there is one among its finite set-ups."""
    best: Result | None = None
    most = len(failure.story)
    until = time.monotonic() + CHECKED_S

    def watch(progress: Progress) -> None:
        if time.monotonic() > until:
            raise KeyboardInterrupt

    for name, caller in product(CHECKED_SETUPS, get_args(Caller)):
        result = explore(
            SETUPS[name],
            caller=caller,
            to_law=failure.what == LAW,
            max_states=CHECKED_STATES,
            stop_at_first=True,
            report=watch,
        )
        for example in result.counterexamples:
            same = example.violation.invariant == failure.what or not failure.what.startswith("INV")
            if same and example.length < most:
                best, most = result, example.length
    return best


def start_worker(number: int, wanted: Wanted, offset: int, queue: "Queue[Report | Found | str]") -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent.
    try:
        Worker(number, wanted, offset, queue.put).work()
    except BaseException:
        queue.put(traceback.format_exc())
        raise
    finally:
        queue.put(f"{DONE}{number}")


DONE: Final = "done "


# --- all together --------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """How far a campaign was at some time."""

    seconds: float
    examples: int
    steps: int
    states: int
    rules: int
    rejects: int


class Campaign:
    """What all processes have seen together."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.began = time.monotonic()
        self.memory = remembered(wanted.corpus)
        self.known = frozenset(self.memory["states"])
        self.states: set[str] = set()
        self.steps: Counter[str] = Counter()
        self.examples: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.rejects: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.found: list[Found] = []
        self.troubles: list[str] = []
        self.samples: list[Sample] = []
        self.stopped = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def add(self, told: Report | Found | str) -> None:
        match told:
            case Report():
                self.steps[told.level] += told.steps
                self.examples[told.level] += told.examples
                self.rules.update(told.rules)
                self.rejects.update(told.rejects)
                self.kinds.update(told.kinds)
                self.points.update(told.points)
                self.states |= told.states
                self.samples.append(self.sample())
            case Found():
                self.found.append(told)
            case str():
                self.troubles.append(told)

    @property
    def unreached(self) -> list[str]:
        """What no life came to, and should."""
        return sorted(LIVED - self.kinds.keys())

    def sample(self) -> Sample:
        steps, examples = sum(self.steps.values()), sum(self.examples.values())
        return Sample(self.seconds, examples, steps, len(self.states), len(self.rules), len(self.rejects))

    def run(self, show: Callable[["Campaign"], None]) -> None:
        """Until time is over, somebody stops it, or a process has found something."""
        wanted, context = self.wanted, get_context("fork")
        queue: Queue[Report | Found | str] = context.Queue()
        number = wanted.workers or os.cpu_count() or 1
        offset = self.memory["lives"].get(str(wanted.seed), 0)
        workers = [
            context.Process(target=start_worker, args=(n, wanted, offset, queue), daemon=True) for n in range(number)
        ]
        for worker in workers:
            worker.start()
        working = number
        try:
            while working:
                try:
                    told = queue.get(timeout=0.2)
                except Empty:
                    if not any(worker.is_alive() for worker in workers):
                        self.troubles.append("a process ended without a word; it may have been killed for its memory")
                        break
                else:
                    if isinstance(told, str) and told.startswith(DONE):
                        working -= 1
                        continue
                    self.add(told)
                    if isinstance(told, Found):
                        break
                show(self)
        except KeyboardInterrupt:
            self.stopped = True
        for worker in workers:
            worker.terminate()
            worker.join()
        self.remember(offset)

    def remember(self, offset: int) -> None:
        """Leave in the corpus what the next campaign should know."""
        lives = self.memory["lives"] | {str(self.wanted.seed): offset + max(self.examples.values(), default=0)}
        corpus = self.wanted.corpus
        corpus.mkdir(parents=True, exist_ok=True)
        states = sorted(self.known | self.states) if not self.wanted.fault else sorted(self.known)
        memory = {"lives": lives if not self.wanted.fault else self.memory["lives"], "states": states}
        beside = corpus / f"memory.{os.getpid()}.new"
        beside.write_text(json.dumps(memory))
        beside.replace(corpus / "memory.json")

    def write_failures(self) -> list[Path]:
        """Every failure as files: to be replayed, and as a test."""
        written: list[Path] = []
        for found in self.found:
            trace, example = found.trace, found.example
            mark = hashlib.sha256(repr(trace.failure.choices).encode()).hexdigest()[:8]
            place = self.wanted.corpus / "failures" / f"{trace.name}-{mark}"
            place.parent.mkdir(parents=True, exist_ok=True)
            files = {".json": json.dumps(levels.to_json(trace), indent=1), "_test.py": levels.as_test(trace)}
            if found.checked is not None and example is not None:
                files[".itf.json"] = json.dumps(itf.to_itf(found.checked, example), indent=1)
            for ending, text in files.items():
                path = place.with_name(place.name + ending)
                path.write_text(text, encoding="utf-8")
                written.append(path)
        return written


def remembered(corpus: Path) -> dict[str, Any]:
    try:
        memory = json.loads((corpus / "memory.json").read_text())
    except FileNotFoundError:
        return {"lives": {}, "states": []}
    except (OSError, ValueError) as error:
        wrong_usage(f"{corpus} is no corpus that can be used: {error}")
    if not isinstance(memory, dict) or {*memory} != {"lives", "states"}:
        wrong_usage(f"{corpus / 'memory.json'} was not written by keepkernel fuzz")
    return memory


# --- the command ---------------------------------------------------------------------------------------


def fuzz(wanted: Wanted, *, as_json_text: bool = False, html: Path | None = None, dask: str = "") -> int:
    """`keepkernel fuzz`: prints what it found, and returns the exit code."""
    checked(wanted)
    campaign = Campaign(wanted)
    with dashboard() as show:
        if dask:
            on_dask(campaign, dask, show)
        else:
            campaign.run(show)
    written = campaign.write_failures()
    if html is not None:
        from .page import page

        html.write_text(page(campaign), encoding="utf-8")
    print(
        json.dumps(as_json(campaign, written), indent=2, ensure_ascii=False)
        if as_json_text
        else told(campaign, written)
    )
    if campaign.troubles:
        return WRONG
    return 1 if campaign.found else 0


def on_dask(campaign: Campaign, address: str, show: Callable[[Campaign], None]) -> None:
    if find_spec("distributed") is None:
        wrong_usage("--dask needs Dask distributed: pip install 'keepkernel[dask]'")
    from .spread import run as run_spread

    try:
        run_spread(campaign, address, show)
    except (OSError, ValueError) as error:
        wrong_usage(f"no Dask scheduler answers at {address}: {error}")


WRONG: Final = 3
"""Something went wrong that is no answer to the question."""


def checked(wanted: Wanted) -> None:
    """Say what is wrong with what is wanted, before any process starts."""
    known("profile", wanted.profile, dict(PROFILES))
    if wanted.store != ALL:
        scheme = wanted.store.partition(":")[0]
        known("store", scheme, dict(stores.KINDS))
        if wanted.level in ("kernel", "service"):
            wrong_usage(f"the {wanted.level} machine has no other store; --store goes with --level store or host")
    if PROFILES[wanted.profile].backend:
        if wanted.level not in ("", "kernel"):
            wrong_usage("the profile crosshair is for --level kernel")
        if find_spec("hypothesis_crosshair_provider") is None:
            wrong_usage("the profile crosshair needs hypothesis-crosshair: pip install 'keepkernel[verify]'")
    if wanted.fault:
        from .faults import CATALOGUE

        known("fault", wanted.fault, dict(CATALOGUE))
        if wanted.level not in ("", machine_of(wanted.fault)):
            wrong_usage(f"{wanted.fault} is attacked with --level {machine_of(wanted.fault)}; leave --level out")
    try:
        wanted.corpus.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong_usage(f"--corpus {wanted.corpus} can not be made: {error.strerror}")


@contextmanager
def dashboard() -> Iterator[Callable[[Campaign], None]]:
    """A live view on a terminal; a log gets none."""
    if not sys.stderr.isatty():
        yield lambda campaign: None
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield lambda campaign: live.update("\n".join(overview(campaign)))


def overview(campaign: Campaign) -> Iterator[str]:
    """How far a campaign is."""
    now, seconds = campaign.sample(), max(campaign.seconds, 0.001)
    wanted = campaign.wanted
    limit = wanted.seconds or PROFILES[wanted.profile].seconds
    yield f"keepkernel fuzz  {', '.join(wanted.levels)}  {seconds:5.0f} of {limit:.0f} s, seed {wanted.seed}"
    yield f"  {'steps':<12}{now.steps:>12,}  {now.steps / seconds:,.0f} in a second"
    lives = ", ".join(f"{level} {number:,}" for level, number in campaign.examples.items())
    yield f"  {'examples':<12}{now.examples:>12,}  {lives}"
    yield f"  {'rules':<12}{now.rules:>12,}  of {len(named_rules())}"
    yield f"  {'rejects':<12}{now.rejects:>12,}  of {len(REASONS)} reasons"
    yield f"  {'kinds':<12}{len(campaign.kinds):>12,}  of {len(LIVED)} of commands, effects, answers and refusals"
    fresh = len(campaign.states - campaign.known)
    yield f"  {'states':<12}{now.states:>12,}  of {len(campaign.known | campaign.states):,} known ones, {fresh:,} new"
    yield f"  {'points':<12}{len(campaign.points):>12,}  to die at, passed {sum(campaign.points.values()):,} times"
    yield f"  {'failures':<12}{len(campaign.found):>12,}"


def told(campaign: Campaign, written: list[Path]) -> str:
    """The summary."""
    lines = list(overview(campaign))
    for found in campaign.found:
        lines += ["", *told_failure(found)]
    lines += [f"  {path}" for path in written]
    lines += [f"  keepkernel replay {path}" for path in written if path.suffix == ".json"]
    lines += ["", *campaign.troubles] if campaign.troubles else []
    ended = "stopped" if campaign.stopped else "over"
    verdict = "something is broken" if campaign.found else "nothing found"
    return "\n".join([*lines, "", f"{ended}: {verdict}"])


def told_failure(found: Found) -> Iterator[str]:
    """The shorter of the two stories: the machine's own, or the checker's."""
    failure, example = found.trace.failure, found.example
    yield f"found after {found.seconds:.1f} s, in {plural(found.first_steps, 'step')}, shrunk to {len(failure.story)}"
    if example is None:
        yield levels.told(found.trace)
        return
    assert found.checked is not None
    yield f"the checker needs {plural(example.length, 'step')}, in the set-up {found.checked.setup.name}:"
    yield from story(example)


def as_json(campaign: Campaign, written: list[Path]) -> dict[str, Any]:
    """The one object that `--json` prints."""
    now, wanted = campaign.sample(), campaign.wanted
    return {
        "verdict": "violated" if campaign.found else "not decided",
        "levels": list(wanted.levels),
        "store": wanted.store,
        "seed": wanted.seed,
        "profile": wanted.profile,
        "fault": wanted.fault or None,
        "seconds": round(campaign.seconds, 2),
        "steps": now.steps,
        "steps_per_second": round(now.steps / max(campaign.seconds, 0.001)),
        "examples": dict(campaign.examples),
        "rules": dict(sorted(campaign.rules.items())),
        "rejects": dict(sorted(campaign.rejects.items())),
        "kinds": dict(sorted(campaign.kinds.items())),
        "unreached": campaign.unreached,
        "states": now.states,
        "known_states": len(campaign.known | campaign.states),
        "points": dict(sorted(campaign.points.items())),
        "stopped": campaign.stopped,
        "troubles": campaign.troubles,
        "failures": [
            {
                **levels.to_json(found.trace),
                "seconds": round(found.seconds, 2),
                "cpu_seconds": round(found.cpu_seconds, 2),
                "checker": None if found.example is None else [step_in_words(m) for m in found.example.moments],
            }
            for found in campaign.found
        ],
        "files": [str(path) for path in written],
    }
