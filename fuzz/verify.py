"""`keepkernel verify`: the searches that stand for the whole, one process for each core.

Each search is a `keepkernel check` of its own, so that its memory is given back when it ends, and so that one that is
killed takes no other with it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, NamedTuple

from ..spec.invariants import INVARIANTS
from . import crash, rounds
from .commands import EXIT_CODES, aligned
from .progress import Watch
from .report import plural, wrapped
from .setups import SETUPS
from .system import Caller

Json = dict[str, Any]


class Search(NamedTuple):
    setup: str
    events: int
    caller: Caller = "honest"

    def __str__(self) -> str:
        more = f" with {self.events} events" if self.events > SETUPS[self.setup].events else ""
        return f"{self.setup}{more}{' (adversary)' if self.caller == 'adversary' else ''}"

    @property
    def command(self) -> list[str]:
        return ["check", self.setup, "--events", str(self.events), "--caller", self.caller]


PLAN: Final = (
    Search("no-mutate", 1),
    Search("no-reconcile", 1),
    Search("permission", 1),
    Search("consumer", 1),
    Search("batch", 2),
    Search("coalesced", 1),
    Search("main", 1),
    Search("consumer", 1, "adversary"),
    Search("main", 1, "adversary"),
    Search("main", 2),
    Search("bookkeeping", 1),
    Search("chain", 1),
)
"""From the smallest to the largest; the largest start first, so that the cores end together."""


def verify(
    *,
    as_json_text: bool = False,
    plan: tuple[Search, ...] = PLAN,
    deaths: crash.Wanted | None = None,
    fuzz_seconds: float = 0,
) -> int:
    """Run the plan; when it holds, sweep the crash points of a store, then fuzz. Print tables, return the exit code."""
    began = time.monotonic()
    found = searched(plan)
    results = [found[search] for search in plan]
    document = summary(results, time.monotonic() - began)
    if not as_json_text:
        print("\n".join(lines(plan, document)), flush=True)
    if deaths is not None and document["verdict"] == "holds":
        document["crash"] = crash.sweep(deaths)
        document["verdict"] = document["crash"]["verdict"]
        document["seconds"] = round(time.monotonic() - began, 1)
        if not as_json_text:
            print("", crash.told(document["crash"]), sep="\n", flush=True)
    if fuzz_seconds and document["verdict"] == "holds":
        document["fuzz"] = rounds.attacked(seconds=fuzz_seconds)
        document["verdict"] = rounds.verdict(document["fuzz"])
        document["seconds"] = round(time.monotonic() - began, 1)
        if not as_json_text:
            print("", *rounds.lines(document["fuzz"]), sep="\n", flush=True)
    if as_json_text:
        print(json.dumps(document, indent=2, ensure_ascii=False))
    return EXIT_CODES[document["verdict"]]


# --- running -----------------------------------------------------------------------------------------


def searched(plan: tuple[Search, ...]) -> dict[Search, Json]:
    """The result of each search; Ctrl-C stops them all, and each tells how far it came."""
    running: dict[Search, subprocess.Popen[str]] = {}
    asked_to_stop: set[Search] = set()
    with Watch() as watch, ThreadPoolExecutor(os.cpu_count()) as pool:

        def run(search: Search) -> Json:
            if watch.stopped:
                return undecided(search, "interrupted before it began")
            process = running[search] = started(search)
            try:
                return read(search, *process.communicate(), process.returncode)
            finally:
                del running[search]

        futures: dict[Future[Json], Search] = {pool.submit(run, search): search for search in reversed(plan)}
        waiting = set(futures)
        try:
            while waiting:
                waiting = wait(waiting, timeout=0.2).not_done
                for search in [*running] if watch.stopped else []:
                    if search not in asked_to_stop and (process := running.get(search)):
                        asked_to_stop.add(search)
                        process.send_signal(signal.SIGINT)
                seconds, names = time.monotonic() - watch.began, ", ".join(map(str, [*running]))
                watch.show(f"{len(plan) - len(waiting)} of {len(plan)} searches, {seconds:.0f} s, {names}")
        finally:
            for process in [*running.values()]:
                process.kill()
    return {search: future.result() for future, search in futures.items()}


def started(search: Search) -> "subprocess.Popen[str]":
    """A search in a process group of its own, so that Ctrl-C reaches it once, from here."""
    command = [sys.executable, "-P", "-m", "keepkernel", *search.command, "--json"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, process_group=0)


def read(search: Search, output: str, errors: str, code: int) -> Json:
    """What a search printed; one that was killed or failed has decided nothing."""
    try:
        result: Json = json.loads(output)
    except ValueError:
        said = errors.strip().splitlines()[-1:] or ["it said nothing"]
        return undecided(search, f"its process ended with {code}: {said[0]}")
    return result


def undecided(search: Search, why: str) -> Json:
    return {
        "verdict": "not decided", "why": why, "setup": search.setup, "caller": search.caller, "events": search.events,
        "states": 0, "transitions": 0, "depth": 0, "seconds": 0.0, "violations": [], "witnesses": [], "unreached": {},
    }  # fmt: skip


# --- telling -----------------------------------------------------------------------------------------


def summary(results: list[Json], seconds: float) -> Json:
    """All results, and what is true of them together."""
    tested = {name for result in results for name in result["witnesses"]}
    kinds = dict.fromkeys(kind for result in results for kind in result["unreached"])
    unreached = {
        kind: sorted(set.intersection(*(set(r["unreached"][kind]) for r in results if kind in r["unreached"])))
        for kind in kinds
    }
    return {
        "verdict": crash.worst(result["verdict"] for result in results),
        "seconds": round(seconds, 1),
        "untested": [name for name in INVARIANTS if name not in tested],
        "unreached": unreached,
        "searches": results,
    }


HEAD: Final = ("set-up", "events", "caller", "verdict", "states", "transitions", "depth", "seconds")


def lines(plan: tuple[Search, ...], document: Json) -> Iterator[str]:
    results: list[Json] = document["searches"]
    rows: list[tuple[str, ...]] = [HEAD]
    for r in results:
        sizes = (f"{r['states']:,}", f"{r['transitions']:,}", str(r["depth"]), f"{r['seconds']:.1f}")
        rows.append((r["setup"], str(r["events"]), r["caller"], r["verdict"], *sizes))
    yield from aligned(rows, right=(1, 4, 5, 6, 7))
    yield ""
    troubles = [line for search, result in zip(plan, results, strict=True) for line in trouble(search, result)]
    yield from (*troubles, "") if troubles else ()
    yield f"{document['verdict']}: {plural(sum(r['states'] for r in results), 'state')} in {document['seconds']:.0f} s"
    if document["verdict"] == "holds":
        yield from checked(document)
    yield from wrapped(
        "Not checked here: ",
        "more events than these (`keepkernel check --events`, and at random `keepkernel simulate`), the readings "
        "(`keepkernel check --readings`), the contracts of single functions (`keepkernel prove`).",
    )


def checked(document: Json) -> Iterator[str]:
    """What the searches showed together, and what none of them came to."""
    yield from wrapped(
        "Checked: ",
        f"{len(INVARIANTS)} invariants on states and steps, {len(INVARIANTS) - len(document['untested'])} of them put "
        "to the test, and every answer of the kernel against the law as it is written a second time, with any number "
        "of crashes, faults and retries, against honest hosts and adversaries; with honest hosts also that rest is "
        "reachable from every state, and comes when faults stop.",
    )
    nowhere = {"Put to the test nowhere": document["untested"]}
    nowhere |= {f"Reached nowhere, {kind}": names for kind, names in document["unreached"].items()}
    for title, names in nowhere.items():
        if names:
            yield from wrapped(f"{title}: ", ", ".join(names))


def trouble(search: Search, result: Json) -> Iterator[str]:
    if result["verdict"] == "holds":
        return
    if result["why"]:
        yield from wrapped(f"{search}: ", result["why"])
    for violation in result["violations"]:
        name, rule, length = violation["invariant"], violation["rule"], violation["length"]
        yield f"{search}: {name} ({rule}) is broken after {plural(length, 'step')}"
    if result["violations"]:
        yield f"  keepkernel {' '.join(search.command)} tells how"
