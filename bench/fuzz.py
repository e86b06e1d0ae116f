"""How long the fuzzer takes to find each seeded fault, with the machine of its level, in time of one core.

    .venv/bin/python -m bench.fuzz [--seeds 10] [--level kernel] [--limit 30] [NAME …]

Prints the median and the worst over the seeds, and ends with 1 when one is not found within its limit.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import count

from keepkernel.fuzz.campaign import machine_of
from keepkernel.fuzz.faults import CATALOGUE
from keepkernel.fuzz.machines.levels import beginning
from keepkernel.fuzz.machines.machine import STEPS, Failure, Watcher, scout
from keepkernel.fuzz.machines.sandboxed import workers_of

LIMITS = {"kernel": 30.0, "store": 120.0, "host": 120.0, "service": 120.0, "sandbox": 120.0}


class Clocked(Watcher):
    """Counts the time of this process, so that a busy machine does not matter."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.began = time.process_time()
        self.limit = limit

    def example(self) -> None:
        super().example()
        if time.process_time() - self.began > self.limit:
            self.until = 0.0


def found(name: str, seed: int, limit: float) -> tuple[float, Failure | None]:
    """Time of one core until a fault is found."""
    level = machine_of(name)
    workers_of.cache_clear()  # Workers that were started with one fault in place are not for the next.
    with CATALOGUE[name].installed():
        watcher = Clocked(limit)
        scout(beginning(level), watcher, (f"{seed}/{level}/0/{n}" for n in count()), STEPS)
    return (watcher.first_cpu if watcher.first else time.process_time()) - watcher.began, watcher.first


def row(name: str, seeds: int, limit: float) -> tuple[str, bool]:
    times: list[float] = []
    whats: set[str] = set()
    for seed in range(seeds):
        seconds, failure = found(name, seed, limit)
        times.append(seconds)
        whats.add(failure.what if failure else "not found")
    worst, middle = max(times), statistics.median(times)
    said = ", ".join(sorted(whats))
    return f"{CATALOGUE[name].level:<8}{name:<34}{middle:8.2f}{worst:8.2f}  {said}", "not found" not in whats


def lines(names: list[str], seeds: int, limit: float) -> Iterator[tuple[str, bool]]:
    for name in names:
        yield row(name, seeds, limit or LIMITS[CATALOGUE[name].level])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--level", choices=sorted(LIMITS))
    parser.add_argument("--limit", type=float, default=0.0, help="seconds of one core for each seed")
    wanted = parser.parse_args()
    chosen = [f.name for f in CATALOGUE.values() if not wanted.level or f.level == wanted.level]
    missed = 0
    print(f"{'level':<8}{'fault':<34}{'median':>8}{'worst':>8}  breaks")
    for text, whole in lines(wanted.names or chosen, wanted.seeds, wanted.limit):
        print(text, flush=True)
        missed += not whole
    print(f"{missed} not found" if missed else "all found")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
