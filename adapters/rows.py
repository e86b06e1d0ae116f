"""What the stores that speak SQL share: how the values of the kernel become rows, and come back without loss.

Columns that a person or an index asks for are typed; the rest is canonical JSON. `workflows` has one row per
workflow with its head, `events` one per event, `transitions` one per accepted command together with what that
command sent into history. Runs, mutations and sessions of the past are therefore views of `transitions`.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ..kernel.codec import decode_command, encode, from_plain, text_of
from ..kernel.commands import NAMES
from ..kernel.ports import Change, Conflict, Lease, LeaseLost, Transition, UnknownWorkflow
from ..kernel.types import Event, Key

Value = TypeVar("Value")
Row = Sequence[Any]


def value_of(kind: type[Value], text: str) -> Value:
    """The value behind a text that `text_of` or `encode` wrote."""
    value: Value = from_plain(kind, json.loads(text))
    return value


def text_or_null(value: Any) -> str | None:
    return None if value is None else text_of(value)


# --- events ------------------------------------------------------------------------------------------


class EventRow(NamedTuple):
    """An event as columns of its own; `causes` is a JSON list of [topic, id]."""

    topic: str
    id: str
    seq: int
    status: str
    owner: str
    title: str
    payload: str
    created_by: str
    causes: str


EVENT_COLUMNS: Final = EventRow._fields


def event_row(event: Event) -> EventRow:
    (topic, name), seq, status, owner, title, payload, created_by, causes = event
    origin = json.dumps(causes) if causes else "[]"
    return EventRow(topic, name, seq, status, owner, title, payload, created_by, origin)


def event_of(row: Row) -> Event:
    topic, name, seq, status, owner, title, payload, created_by, causes = row
    roots = tuple(Key(*key) for key in json.loads(causes)) if causes != "[]" else ()
    return Event(Key(topic, name), seq, status, owner, title, payload, created_by, roots)


# --- transitions -------------------------------------------------------------------------------------


class TransitionRow(NamedTuple):
    """One line of the journal, with the rows that it sent into history."""

    workflow: str
    version: int
    change: str
    at: int
    name: str
    """The command's name, as in documents."""
    command: str
    rules: str
    """The rules that fired, with blanks between them."""
    run: str | None
    mutation: str | None
    session: str | None


TRANSITION_COLUMNS: Final = TransitionRow._fields


def transition_rows(change: Change) -> list[TransitionRow]:
    """A line for each command, in order."""
    return [
        TransitionRow(
            change.workflow,
            version,
            change.id,
            done.command.now,
            NAMES[type(done.command)],
            encode(done.command),
            " ".join(done.rules),
            *map(text_or_null, done.retired),
        )
        for version, done in enumerate(change.done, change.base + 1)
    ]


def transition_of(version: int, at: int, command: str, rules: str) -> Transition:
    return Transition(version, at, decode_command(command), tuple(rules.split()))


# --- decisions that every store takes alike ----------------------------------------------------------


def next_lease(held: Lease, workflow: str, host: str, now: int, ttl_ms: int) -> Lease | None:
    """The lease that a host gets; None while another holds it. A new holder gets a higher token (HOST-008)."""
    over = held.host == "" or now >= held.expires_at
    if held.host != host and not over:
        return None
    return Lease(workflow, host, held.token + over, now + ttl_ms)


def refusal(change: Change, version: int, lease: Lease | None, held: Lease) -> Conflict | LeaseLost:
    """Why a change was not written on top of a workflow that is at this version and driven under this lease."""
    if lease is not None and lease.token != held.token:
        return LeaseLost(f"host {held.host or 'nobody'} drives {change.workflow} now; stop this one")
    return Conflict(f"{change.workflow} is at version {version}, not {change.base}; load it again")


def unknown(workflow: str) -> UnknownWorkflow:
    return UnknownWorkflow(f"no workflow is called {workflow}; create it, or look at the list")
