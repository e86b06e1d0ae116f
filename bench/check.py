"""How fast the checker is: a search of the main set-up, against a bare breadth-first search of the same size.

The bare search has a dict, tuples and no logic: its graph has as many states and edges as the model's, drawn before
the clock starts from the numbers in `check.json`. Its states are tuples of as many small numbers as a plain model of
this set-up would need, and each successor is made afresh, as every search must make its successors. The checker runs
the kernel, checks every invariant on every state and step, folds what is alike, and keeps traces. Exits with 1 when it
is not a fifth as fast.

    .venv/bin/python -m bench.check [--json] [--events 1 2]
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

from keepkernel.fuzz.explorer import explore
from keepkernel.fuzz.setups import setup
from keepkernel.fuzz.system import Model

WANTED_RATIO = 1 / 5
ROUNDS = 3
BASELINE = Path(__file__).with_name("check.json")

State = tuple[int, ...]


class Size(NamedTuple):
    states: int
    edges: int
    depth: int


class Result(NamedTuple):
    events: int
    states: int
    edges: int
    checker_states_per_s: float
    bare_states_per_s: float
    ratio: float


def baseline(events: int) -> tuple[Size, int, int]:
    """The size of the bare graph, the seed that it is made of, and how many fields its states have."""
    document = json.loads(BASELINE.read_text())
    return Size(*document["sizes"][str(events)]), document["seed"], document["fields"]


def bare_graph(size: Size, seed: int, fields: int) -> dict[State, list[list[int]]]:
    """A graph without meaning: about as deep as the model, all states in reach, the other edges at random."""
    random = Random(seed)

    def name(number: int) -> State:
        """A state as a plain model would have it: a few small numbers, a new tuple each time."""
        return tuple(number >> 3 * place & 7 for place in range(fields))

    edges: list[list[int]] = [[] for _ in range(size.states)]
    level = max(1, (size.states - 1) // size.depth)
    for number in range(1, size.states):
        first = max(0, (number - 1) // level - 1) * level
        edges[random.randrange(first, max(first + 1, (number - 1) // level * level))].append(number)
    for _ in range(size.edges - size.states + 1):
        source = random.randrange(size.states)
        edges[source].append(random.randrange(min(size.states, source + level)))
    return {name(number): [list(name(target)) for target in targets] for number, targets in enumerate(edges)}


def bare_search(graph: dict[State, list[list[int]]], start: State) -> tuple[int, int]:
    """States and edges seen."""
    parent: dict[State, State | None] = {start: None}
    todo = [start]
    edges = 0
    for state in todo:
        for fields in graph[state]:
            target = tuple(fields)
            edges += 1
            if target not in parent:
                parent[target] = state
                todo.append(target)
    return len(parent), edges


def measure(events: int) -> Result:
    size, seed, fields = baseline(events)
    graph = bare_graph(size, seed, fields)
    checker: list[float] = []
    bare: list[float] = []
    # The rounds alternate, so that what else the machine does falls on both.
    for _ in range(ROUNDS):
        began = time.process_time()
        found = bare_search(graph, (0,) * fields)
        bare.append(time.process_time() - began)
        require_size(found, size)
        began = time.process_time()
        searched = explore(Model(setup("main", events)))
        checker.append(time.process_time() - began)
        require_size((len(searched.states), searched.transitions), size)
    fast, bare_fast = (size.states / statistics.median(seconds) for seconds in (checker, bare))
    return Result(events, size.states, size.edges, fast, bare_fast, fast / bare_fast)


def require_size(found: tuple[int, int], size: Size) -> None:
    """Both sides must have seen the same number of states and edges."""
    if found != size[:2]:
        raise RuntimeError(f"{found} states and edges, but {BASELINE.name} says {size[:2]}")


def table(results: list[Result]) -> str:
    lines = [f"{'main, honest host':<19}{'states':>9}{'edges':>11}{'checker/s':>11}{'bare/s':>11}{'ratio':>7}"]
    for one in results:
        name = f"{one.events} event{'s' if one.events > 1 else ''}"
        speeds = f"{one.checker_states_per_s:>11,.0f}{one.bare_states_per_s:>11,.0f}"
        lines.append(f"{name:<19}{one.states:>9,}{one.edges:>11,}{speeds}{one.ratio:>7.2f}")
    return "\n".join([*lines, f"wanted: at least {WANTED_RATIO:.2f} of the bare search"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--events", type=int, nargs="+", choices=(1, 2), default=[1, 2], help="how many events")
    arguments = parser.parse_args()
    results = [measure(events) for events in arguments.events]
    print(json.dumps([one._asdict() for one in results], indent=2) if arguments.json else table(results))
    return 0 if all(one.ratio >= WANTED_RATIO for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
