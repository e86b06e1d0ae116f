"""How fast the conformance kit drives a runtime: commands per second, kit and driver together on one core.

The driver is the reference itself behind the protocol, with a file as its store. The time is that of the processor, of
both processes, so that other work on the machine does not count. Exits with 1 below a thousand commands per second.

    .venv/bin/python -m bench.conform [--json]
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

from keepkernel.fuzz.conformance import tours
from keepkernel.fuzz.conformance.play import Do, Player, Script
from keepkernel.fuzz.conformance.profile import PLAIN
from keepkernel.kernel.step import step
from keepkernel.kernel.types import Accepted, new_workflow

DRIVER = Path(__file__).resolve().parent.parent / "tests" / "conformance" / "drivers" / "wrapped.py"
COMMANDS = 10_000
WANTED_PER_S = 1_000


class Result(NamedTuple):
    commands: int
    per_processor_s: float
    per_s: float
    ratio: float
    """How many times as long a driven command takes as a step of the kernel alone."""


def processor_s() -> float:
    """Of this process, and of those that it has started and that are over."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(commands: int = COMMANDS) -> Result:
    walks = tours.walks()[1]
    player = Player([sys.executable, str(DRIVER)], PLAIN, 60)
    try:
        player.up()
        began, used = time.perf_counter(), processor_s()
        for walk in walks:
            found = player.play(Script(walk.policy, tuple(Do(command) for command in walk.commands)))
            if found is not None:
                raise RuntimeError(f"the reference diverges from itself: {found.divergence.text}")
            if player.commands >= commands:
                break
        seconds = time.perf_counter() - began
        player.channel.quit()
    finally:
        player.close()
    # The driver's start is counted with the rest, because its time is known only when it is over.
    busy = processor_s() - used
    return Result(player.commands, player.commands / busy, player.commands / seconds, busy / player.commands / alone())


def alone() -> float:
    """The processor time of one step without a driver."""
    walks = tours.walks()[1][:50]
    began, steps = time.process_time(), 0
    for walk in walks:
        state = new_workflow("w", walk.policy)
        for command in walk.commands:
            outcome = step(state, command)
            state = outcome.state if isinstance(outcome, Accepted) else state
            steps += 1
    return (time.process_time() - began) / steps


def table(result: Result) -> str:
    return "\n".join(
        [
            f"{result.commands:,} commands driven",
            f"{result.per_processor_s:,.0f} per second of one core (wanted: {WANTED_PER_S:,})",
            f"{result.per_s:,.0f} per second of this run",
            f"a driven command takes {result.ratio:.0f} times as long as a step of the kernel alone",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    result = measure()
    print(json.dumps(result._asdict(), indent=2) if arguments.json else table(result))
    return 0 if result.per_processor_s >= WANTED_PER_S else 1


if __name__ == "__main__":
    sys.exit(main())
