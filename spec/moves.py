"""Which command moves which machine, seen by running the kernel and not written down by hand.

A small workflow (one producer, one consumer with a mutate, one event) is driven by every command that its states
give a meaning to. Of the states that look alike to the machines, one stands for all, so the walk ends soon.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from ..kernel.commands import COMMANDS, NAMES, Command
from ..kernel.policy import Policy
from ..kernel.step import step
from ..kernel.tables import TABLES
from ..kernel.types import (
    Accepted,
    Declaration,
    Event,
    Key,
    Mutation,
    Publication,
    Rejected,
    Run,
    Session,
    State,
    new_workflow,
)

Row = State | Run | Mutation | Session | Event

START: Final = "[*]"
"""Where a row comes from when it is made; Mermaid draws it as a dot."""

POLICY: Final = Policy(
    backoff_base_ms=1,
    transient_retries=1,
    logic_failures=2,
    reconcile_base_ms=1,
    reconcile_attempts=1,
    send_within_ms=1,
    call_deadline_ms=1,
    clock_skew_ms=1,
    session_runs=2,
)
EARLY, LATE = 0, 100
POLL: Final = Declaration("poll", "producer", interval_ms=1)
FILE: Final = Declaration("file", "consumer", ("mail",), has_mutate=True)
MAIL: Final = Key("mail", "m1")
LETTER: Final = Publication(MAIL, "Mail", "{}")


class Move(NamedTuple):
    """One edge of one machine, or the making of a row."""

    machine: str
    source: str
    target: str


class Seen(NamedTuple):
    """One command on one state, and what came of it."""

    state: State
    command: Command
    outcome: Accepted | Rejected


FIELDS: Final = {kind: get_type_hints(kind) for kind in COMMANDS.values()}


def walk() -> Iterator[Seen]:
    """Every meaningful command on every kind of state, from a draft on."""
    states = [new_workflow("demo", POLICY)]
    known = {likeness(states[0])}
    for state in states:
        for command in commands(state):
            outcome = step(state, command)
            yield Seen(state, command, outcome)
            if isinstance(outcome, Accepted) and likeness(outcome.state) not in known:
                known.add(likeness(outcome.state))
                states.append(outcome.state)


def likeness(state: State) -> tuple[Any, ...]:
    """What the machines, the gate and the boundary can tell apart."""
    run, record, error = state.run, state.mutation, state.error
    return (
        state.status,
        run and (run.kind, run.status, run.phase, run.outcome, bool(run.reserved), bool(run.retry_of)),
        record and (record.status, record.reconcilable, record.attempts),
        tuple(e.status for e in state.events),
        state.session and bool(state.session.commits),
        error and (error.kind, error.cause),
        state.maintenance is not None,
        bool(state.approvals),
        state.grants,
    )


def commands(state: State) -> Iterator[Command]:
    """Each command, with every combination of the values that mean something to this state."""
    values = meaningful(state)
    for kind, hints in FIELDS.items():
        fields = [values.get(f"{kind.__name__}.{name}") or values.get(name) or words(hints[name]) for name in hints]
        yield from (kind(*chosen) for chosen in product(*fields))


def words(hint: Any) -> tuple[Any, ...]:
    """All values of a type that has few."""
    if hint is bool:
        return (False, True)
    if get_origin(hint) is Literal:
        return get_args(hint)
    raise TypeError(f"say in meaningful() what stands for {hint}")


def meaningful(state: State) -> Mapping[str, tuple[Any, ...]]:
    live = state.run.id if state.run else "none"
    request = state.error.request if state.error else None
    return {
        "now": (EARLY, LATE),
        "asked_at": (EARLY, LATE),
        "run": (live,),
        "CreateRun.run": ("b" if live == "a" else "a",),
        "CreateRetry.run": ("b" if live == "a" else "a",),
        "retry_of": (live,),
        "session": ("s",),
        "handler": ("poll", "file"),
        "reservations": ((), (MAIL,)),
        "data": ("null",),
        "title": ("",),
        "wake_at": (None,),
        "state": (None,),
        "publications": ((), (LETTER,)),
        "due_at": (None,),
        "tool": ("mail.send",),
        "params": ("{}",),
        "deadline_ms": (None,),
        "result": ("null",),
        "message": ("",),
        "key": (MAIL,),
        "digest": (request.digest if request else "none",),
        "version": ("v1",),
        "topics": (("mail",),),
        "handlers": ((POLL, FILE),),
        "publication": (LETTER,),
    }


def moves(state: State, accepted: Accepted) -> frozenset[Move]:
    """The edges that a transition went along, read off the rows before and after it."""
    before, retired = rows(state), accepted.retired
    # A row that left the state has its final form in history.
    after = rows(accepted.state) | named(retired.run, retired.mutation, retired.session)
    found = set()
    for name, row in after.items():
        was, now = positions(before.get(name)), positions(row)
        found |= {
            Move(machine, was.get(machine, START), now[machine])
            for machine in now
            if row != before.get(name) and (was.get(machine) != now[machine] or (machine, now[machine]) in LOOPS)
        }
    return frozenset(found)


def rows(state: State) -> dict[object, Row]:
    return named(state, state.run, state.mutation, state.session, *state.events)


def named(*present: Row | None) -> dict[object, Row]:
    """Rows by type and name, so that one can be found again after a transition."""
    return {(type(row), row.key if isinstance(row, Event) else row[0]): row for row in present if row is not None}


def positions(row: Row | None) -> dict[str, str]:
    """Where a row stands in the machines that it goes through."""
    match row:
        case Run():
            return {f"{row.kind.capitalize()}Phase": row.phase, "RunStatus": row.status}
        case Event():
            return {"EventStatus": row.status}
        case Mutation():
            return {"MutationStatus": row.status}
        case Session():
            return {"SessionStatus": row.status}
        case State():
            return {"WorkflowStatus": row.status}
        case None:
            return {}


LOOPS: Final = {
    (machine, source) for machine, table in TABLES.items() for (source, _), target in table.items() if source == target
}
"""Edges that lead back: the row changes and its status does not."""


@cache
def observed() -> Mapping[str, frozenset[Move]]:
    """The moves of each command, by its name, over the whole walk."""
    found: dict[str, frozenset[Move]] = {name: frozenset() for name in COMMANDS}
    for state, command, outcome in walk():
        if isinstance(outcome, Accepted):
            found[NAMES[type(command)]] |= moves(state, outcome)
    return found
