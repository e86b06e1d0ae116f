"""The situations that the contracts speak of: one small workflow, in any condition."""

from typing import Any, Literal

from ..kernel.ledger import digest
from ..kernel.policy import Policy
from ..kernel.types import (
    Declaration,
    Error,
    Event,
    EventStatus,
    Handler,
    HandlerKind,
    Key,
    Maintenance,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Permission,
    Phase,
    Request,
    Run,
    RunStatus,
    Session,
    State,
)

Record = Literal["none"] | MutationStatus
Life = Literal["none"] | RunStatus
"""The status of the live run, or that there is none."""
Trouble = Literal[
    "none",
    "uncertain",
    "auth",
    "permission",
    "request",
    "internal",
    "blocked:transient",
    "blocked:logic",
    "blocked:host",
]
Obstacle = Literal["none", "run", "draft", "ready", "paused", "unresolved", "error", "maintenance", "backoff"]
SessionShape = Literal["open", "spent", "other", "none"]
NewId = Literal["fresh", "empty"]

INPUT = Key("mail", "m1")
TOOL, PARAMS = "sheets.append", "{}"
REQUEST = Request(TOOL, digest(TOOL, PARAMS), (INPUT,))
SEND_BY, LANDS = 100, 200
CONSUMER, PRODUCER = "file", "poll"
UNRESOLVED = ("in_flight", "needs_reconcile", "indeterminate")


def scene(
    phase: Phase = "mutating",
    status: RunStatus = "active",
    record: Record = "none",
    outcome: MutationOutcome = "",
    *,
    kind: HandlerKind = "consumer",
    reserved: bool = True,
    has_mutate: bool = True,
) -> State:
    """A workflow with one run `r1` of a consumer or a producer, and one event that the consumer may hold."""
    handler = CONSUMER if kind == "consumer" else PRODUCER
    held = (INPUT,) if reserved else ()
    return State(
        workflow="w",
        status="active",
        version="v1",
        topics=("mail",),
        error=None,
        maintenance=None,
        backoff_until=0,
        grants=(Permission(TOOL, "always"),),
        approvals=(),
        session=Session("s1", "open", 1, 0) if status == "active" else None,
        run=Run(
            "r1", handler, kind, "s1", "v1", status, phase, outcome, "", 0, held, held, "null", "", "", "", False
        ),
        mutation=None if record == "none" else ledger_record(record),
        handlers=(
            Handler(Declaration(CONSUMER, "consumer", ("mail",), has_mutate), "", False, 0, -1, 0, 0),
            Handler(Declaration(PRODUCER, "producer", interval_ms=60), "", False, 0, 7, 0, 0),
        ),
        events=(Event(INPUT, 1, "reserved" if reserved else "pending", "r1" if reserved else "", "t", "{}", "", ()),),
        next_seq=2,
        policy=Policy(),
    )  # fmt: skip


def ledger_record(status: MutationStatus) -> Mutation:
    return Mutation("r1", status, TOOL, PARAMS, REQUEST.digest, "w/r1", True, SEND_BY, LANDS, 0, 0, "")


def idle() -> State:
    """The same workflow between two runs, in an open session."""
    return without_run(scene(reserved=False))


def without_run(state: State) -> State:
    return state._replace(run=None, mutation=None)


def living(life: Life) -> State:
    return idle() if life == "none" else scene(status=life)


def with_run(state: State, /, **changes: Any) -> State:
    assert state.run is not None
    return state._replace(run=state.run._replace(**changes))


def with_record(state: State, /, **changes: Any) -> State:
    assert state.mutation is not None
    return state._replace(mutation=state.mutation._replace(**changes))


def with_session(state: State, /, **changes: Any) -> State:
    assert state.session is not None
    return state._replace(session=state.session._replace(**changes))


def with_consumer(state: State, /, **changes: Any) -> State:
    consumer, producer = state.handlers
    return state._replace(handlers=(consumer._replace(**changes), producer))


def with_producer(state: State, /, **changes: Any) -> State:
    consumer, producer = state.handlers
    return state._replace(handlers=(consumer, producer._replace(**changes)))


def with_input(state: State, status: EventStatus, owner: str = "") -> State:
    (event,) = state.events
    return state._replace(events=(event._replace(status=status, owner=owner),))


def in_trouble(state: State, trouble: Trouble) -> State:
    errors: dict[Trouble, Error | None] = {
        "none": None,
        "uncertain": Error("uncertain", "", "r1", "", "", None),
        "auth": Error("approval", "auth", "r0", "", "", None),
        "permission": Error("approval", "permission", "r0", "", TOOL, None),
        "request": Error("approval", "request", "r0", "", "", REQUEST),
        "internal": Error("internal", "", "r0", "", "", None),
        "blocked:transient": Error("blocked", "transient", "r0", "", "", None),
        "blocked:logic": Error("blocked", "logic", "r0", "", "", None),
        "blocked:host": Error("blocked", "host", "", "", "", None),
    }
    return state._replace(error=errors[trouble])


def obstructed(state: State, obstacle: Obstacle) -> State:
    """The state with one thing in the way of a new run."""
    match obstacle:
        case "none":
            return state
        case "run":
            return state._replace(run=scene().run)
        case "draft" | "ready" | "paused":
            return state._replace(status=obstacle)
        case "unresolved":
            return state._replace(mutation=ledger_record("indeterminate"))
        case "error":
            return in_trouble(state, "internal")
        case "maintenance":
            return state._replace(maintenance=Maintenance("", "", ""))
        case "backoff":
            return state._replace(backoff_until=1)


def in_session(state: State, shape: SessionShape) -> State:
    shapes: dict[SessionShape, Session | None] = {
        "open": Session("s1", "open", 99, 0),
        "spent": Session("s1", "open", 100, 0),
        "other": Session("s2", "open", 0, 0),
        "none": None,
    }
    return state._replace(session=shapes[shape])
