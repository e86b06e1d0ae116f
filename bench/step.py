"""How fast the kernel is: a full consumer run through `step`, against the same edges through the interpreters.

The interpreters are the machines that the kernel's tables are compiled from. They only walk the edges; `step`
also checks every guard, moves the event and keeps the books. Exits with 1 when `step` is not ten times faster.

    .venv/bin/python -m bench.step [--json]
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from keepkernel import (
    Accepted,
    ApplyMutation,
    Begin,
    Command,
    CommitConsumer,
    CreateRun,
    Declaration,
    Deploy,
    Emitting,
    Grant,
    Key,
    Mutating,
    Policy,
    Prepared,
    Publication,
    Publish,
    RecordMutation,
    Resume,
    Retired,
    SendMutation,
    StartSession,
    State,
    new_workflow,
    step,
)
from keepkernel.kernel.machines import ConsumerPhase, EventStatus, MutationStatus, RunStatus

WANTED_RATIO = 10
ROUNDS = 25
RUNS_PER_ROUND = 40
HISTORY_RUNS = 10_000
SAMPLE_RUNS = 1_000

TOOL = "sheets.append"
END = {"phase": "committed", "run": "committed", "event": "consumed", "mutation": "applied"}


class Result(NamedTuple):
    commands: int
    edges: int
    step_us_per_run: float
    machines_us_per_run: float
    ratio: float
    history_runs: int
    first_us_per_run: float
    last_us_per_run: float
    growth: float


def advance(state: State, *commands: Command) -> tuple[State, Retired]:
    """Apply commands that must be accepted; returns what the last one retired."""
    retired = Retired()
    for command in commands:
        outcome = step(state, command)
        if not isinstance(outcome, Accepted):
            raise RuntimeError(f"{command} was rejected: {outcome}")
        state, retired = outcome.state, outcome.retired
    return state, retired


def prepared_workflow() -> State:
    """An active workflow with one consumer, in a session that lasts for the whole benchmark."""
    consumer = Declaration("file", "consumer", ("mail",), has_mutate=True)
    return advance(
        new_workflow("bench", Policy(session_runs=10**9)),
        Deploy(0, "v1", ("mail",), (consumer,)),
        Resume(0),
        Grant(0, TOOL),
        StartSession(0, "s1"),
    )[0]


def with_next_event(state: State, number: int) -> State:
    """The window that a store brings: what is done has left it, and the next event has come in."""
    live = tuple(e for e in state.events if e.status in ("pending", "reserved"))
    event = Publication(Key("mail", f"m{number}"), "Mail", "{}")
    return advance(state._replace(events=live), Publish(0, event))[0]


def commands_of(number: int) -> tuple[Command, ...]:
    """One whole run of the consumer."""
    run = f"r{number}"
    return (
        CreateRun(0, run, "s1", "file"),
        Begin(0, run),
        Prepared(0, run, (Key("mail", f"m{number}"),)),
        Mutating(0, run),
        RecordMutation(0, run, TOOL, "{}", True),
        SendMutation(0, run),
        ApplyMutation(0, run, "call"),
        Emitting(0, run),
        CommitConsumer(0, run, "{}"),
    )


Instances = tuple[ConsumerPhase, RunStatus, EventStatus, MutationStatus]


def instances() -> Instances:
    return ConsumerPhase(), RunStatus(), EventStatus(), MutationStatus()


def edges_of(machines: Instances) -> list[tuple[Callable[[str], object], str]]:
    """The edges that the run takes, in its order."""
    phase, run, event, mutation = machines
    return [
        (phase.send, "begin"),
        (phase.send, "pin"),
        (event.send, "reserve"),
        (phase.send, "mutate"),
        (mutation.send, "call_sent"),
        (mutation.send, "call_applied"),
        (phase.send, "settle"),
        (phase.send, "emit"),
        (phase.send, "commit"),
        (event.send, "consume"),
        (run.send, "commit"),
    ]


def time_steps(state: State, first: int, runs: int) -> tuple[State, list[float]]:
    """Seconds of each run; making commands and windows is not counted."""
    seconds = []
    for number in range(first, first + runs):
        state, commands = with_next_event(state, number), commands_of(number)
        started = time.perf_counter()
        state, retired = advance(state, *commands)
        seconds.append(time.perf_counter() - started)
        if retired.run is None or retired.mutation is None:
            raise RuntimeError("the run did not come to its end")
        require_end(retired.run.phase, retired.run.status, state.events[0].status, retired.mutation.status)
    return state, seconds


def time_machines(runs: int) -> list[float]:
    """Seconds of each run; making the instances is not counted."""
    seconds = []
    for _ in range(runs):
        machines = instances()
        edges = edges_of(machines)
        started = time.perf_counter()
        for send, trigger in edges:
            send(trigger)
        seconds.append(time.perf_counter() - started)
        require_end(*(machine.current_state_value for machine in machines))
    return seconds


def require_end(*reached: object) -> None:
    """Both sides must have done the same work."""
    if reached != tuple(END.values()):
        raise RuntimeError(f"came to {reached}, not to {tuple(END.values())}")


def measure() -> Result:
    state, _ = time_steps(prepared_workflow(), 0, RUNS_PER_ROUND)
    time_machines(RUNS_PER_ROUND)
    stepped: list[float] = []
    sent: list[float] = []
    # The rounds alternate, so that what else the machine does falls on both.
    for number in range(ROUNDS):
        state, seconds = time_steps(state, (number + 1) * RUNS_PER_ROUND, RUNS_PER_ROUND)
        stepped += seconds
        sent += time_machines(RUNS_PER_ROUND)
    by_step, by_machines = median_us(stepped), median_us(sent)

    state, history = time_steps(prepared_workflow(), 0, HISTORY_RUNS + SAMPLE_RUNS)
    first, last = median_us(history[:SAMPLE_RUNS]), median_us(history[-SAMPLE_RUNS:])
    commands, edges = len(commands_of(0)), len(edges_of(instances()))
    return Result(commands, edges, by_step, by_machines, by_machines / by_step, HISTORY_RUNS, first, last, last / first)


def median_us(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1e6


def table(result: Result) -> str:
    def row(name: str, us_per_run: float, transitions: int) -> str:
        return f"{name:<34}{1e6 / us_per_run:>9,.0f}{us_per_run:>12.1f}{us_per_run / transitions:>19.2f}"

    return "\n".join(
        [
            f"{'a consumer run':<34}{'runs/s':>9}{'µs per run':>12}{'µs per transition':>19}",
            row(f"step, {result.commands} commands", result.step_us_per_run, result.commands),
            row(f"interpreters, {result.edges} edges", result.machines_us_per_run, result.edges),
            f"step is {result.ratio:.1f} times faster (wanted: {WANTED_RATIO})",
            "",
            row("step, runs 1 to 1,000", result.first_us_per_run, result.commands),
            row(f"step, after {result.history_runs:,} runs", result.last_us_per_run, result.commands),
            f"a run after {result.history_runs:,} others takes {result.growth:.2f} times as long",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    result = measure()
    print(json.dumps(result._asdict(), indent=2) if arguments.json else table(result))
    return 0 if result.ratio >= WANTED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
