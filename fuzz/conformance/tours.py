"""Traces in the Informal Trace Format: a tour of every transition, and a crash at every kind of point."""

import json
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from ...kernel import commands as c
from ...kernel.codec import encode, to_plain
from ...kernel.commands import Command
from ...kernel.policy import Policy
from ...kernel.recover import recover
from ...kernel.respond import advance
from ...kernel.schedule import schedule
from ...kernel.step import step
from ...kernel.types import Accepted, State, new_workflow
from ..setups import setup
from .space import Path, Place, Space, Walk, one_event, tour

Json = dict[str, Any]

VARIABLES: Final = ["op", "now", "command", "outcome", "effects", "state"]
WORKFLOW: Final = "w"
DIED: Final = "the host died"


class Tour(NamedTuple):
    documents: Iterator[Json]
    summary: Json


@cache
def walks(events: int = 1) -> tuple[Space, tuple[Walk, ...], tuple[str, ...]]:
    """The tour as commands, and the transitions that it leaves out."""
    space = one_event(events)
    made, missing = tour(space)
    left_out = sorted(encode(way) for number, n in missing if (way := space.ways[number][n].command) is not None)
    return space, tuple(made), tuple(left_out)


NO_ORDER: Final = "it needs deadlines to pass in an order that none of the policies here gives"


def tour_documents(events: int = 1) -> Tour:
    space, made, left_out = walks(events)
    documents = (
        document(f"tour-{n:04}", space, [reset(walk.policy), *played(walk.policy, walk.commands)])
        for n, walk in enumerate(made, 1)
    )
    return Tour(
        documents,
        {
            "setup": space.setup.name,
            "traces": len(made),
            "transitions": space.transitions,
            "taken": space.transitions - len(left_out),
            "left_out": dict.fromkeys(left_out, NO_ORDER),
            "steps": sum(len(walk.commands) for walk in made),
        },
    )


def document(name: str, space: Space, states: list[Json], **meta: object) -> Json:
    return {
        "#meta": {"format": "ITF", "id": name, "setup": space.setup.name, **meta},
        "vars": VARIABLES,
        "states": [{"#meta": {"index": n}, **state} for n, state in enumerate(states)],
    }


def reset(policy: Policy) -> Json:
    state = new_workflow(WORKFLOW, policy)
    return moment("reset", 0, text(policy), "", (), state)


def text(value: object) -> str:
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"))


def moment(op: str, now: int, command: str, outcome: str, effects: tuple[object, ...], state: State) -> Json:
    return {
        "op": op,
        "now": {"#bigint": str(now)},
        "command": command,
        "outcome": outcome,
        "effects": text(effects),
        "state": state_text(state),
    }


def state_text(state: State) -> str:
    """The canonical text of a state; of its parts most were written before.

    >>> state_text(new_workflow("w")) == encode(new_workflow("w"))
    True
    """
    return f"{{{','.join(f'{name}{part_text(state[at])}' for name, at in FIELDS)}}}"


FIELDS: Final = sorted((f'"{name}":', at) for at, name in enumerate(State._fields))


@lru_cache(maxsize=10_000)
def part_text(part: object) -> str:
    return text(part)


def played(policy: Policy, commands: Path) -> Iterator[Json]:
    state = new_workflow(WORKFLOW, policy)
    for command in commands:
        state, told = did(state, command)
        yield told


def did(state: State, command: Command) -> tuple[State, Json]:
    outcome = step(state, command)
    if isinstance(outcome, Accepted):
        told = moment("do", command.now, encode(command), "accepted", outcome.effects, outcome.state)
        return outcome.state, told
    return state, moment("do", command.now, encode(command), outcome.reason, (), state)


# --- crashes -----------------------------------------------------------------------------------------


def point(state: State) -> str:
    """Where a host died, in words; empty where its death changes nothing."""
    if not recover(state, 0):
        return ""
    run, record = state.run, state.mutation
    if run is None or run.status != "active":
        waits = "with a pending retry" if run is not None else "between runs"
        return f"session open, {waits}"
    words = [f"{run.kind} in {run.phase}"]
    words += [f"outcome {run.outcome}"] if run.outcome else []
    words += [f"record {record.status}"] if record is not None else []
    words += ["a retry"] if run.retry_of else []
    pinned = run.kind == "consumer" and run.phase not in ("pending", "preparing")
    words += ["nothing reserved"] if pinned and not run.reserved else []
    return ", ".join(words)


@cache
def crash_points(space: Space) -> dict[str, tuple[Place, Path]]:
    """The shortest way to each kind of point."""
    found: dict[str, tuple[Place, Path]] = {}
    for place, path in sorted(space.shortest.values(), key=lambda one: len(one[1])):
        where = point(place.state)
        if where:
            found.setdefault(where, (place, path))
    return found


def crashes() -> list[Json]:
    """A trace for each kind of point in each of the set-ups that differ in what a host can die with."""
    made: list[Json] = []
    known: set[str] = set()
    for space in (walks()[0], *(Space(setup(name)) for name in OTHERS)):
        for where, (place, path) in sorted(crash_points(space).items()):
            if where not in known:
                known.add(where)
                states = [reset(space.policy), *played(space.policy, (*space.preamble(), *path)), *crashed(place)]
                rules = sorted({"REC-003", "HOST-007", *(RECOVERS[type(one)] for one in recoveries(place))})
                made.append(document(f"crash-{len(made) + 1:03}", space, states, point=where, rules=rules))
    return made


OTHERS: Final = ("no-reconcile", "main")
RECOVERS: Final[dict[type[Command], str]] = {c.EndRun: "REC-001", c.FinishSession: "REC-002"}


def recoveries(place: Place) -> list[Command]:
    """All commands of a recovery."""
    state, made = place.state, []
    while commands := recover(state, place.clock):
        made.append(commands[0])
        outcome = step(state, commands[0])
        state = outcome.state if isinstance(outcome, Accepted) else state
    return made


def crashed(place: Place) -> Iterator[Json]:
    """The death, the recovery, the same once more, which changes nothing, and what an honest host does next."""
    state, clock, _ = place
    yield moment("crash", clock, "", "", (), state)
    effects: tuple[object, ...] = ()
    for command in recoveries(place):
        outcome = step(state, command)
        if isinstance(outcome, Accepted):
            state, effects = outcome.state, (*effects, *outcome.effects)
    yield moment("recover", clock, "", "", effects, state)
    yield moment("recover", clock, "", "", (), state)
    for n in range(ONWARD):
        following = advance(state, clock) or schedule(state, clock, f"after{n}")
        if not isinstance(following, RUNNABLE):
            return
        state, told = did(state, following)
        yield told


ONWARD: Final = 4
RUNNABLE: Final = (c.StartSession, c.CreateRun, c.CreateRetry, c.FinishSession, c.Begin)
