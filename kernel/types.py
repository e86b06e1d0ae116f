"""The values that the kernel reads and returns.

One shape: NamedTuples of strings, whole numbers, booleans and tuples. They hash, compare and copy fast, and
they can not change. Script data (payloads, states, results) are JSON texts that the kernel never opens.

A `State` is what can still matter of one workflow. Runs, records and sessions that are over leave it and
become history (`Retired`). Its `events` are a window, not the whole store; see `window.py`.
"""

from typing import Literal, NamedTuple

from .capabilities import Function
from .policy import Policy

Phase = Literal["pending", "preparing", "executing", "prepared", "mutating", "mutated", "emitting", "committed"]
EndStatus = Literal[
    "paused:transient",
    "paused:approval",
    "paused:reconciliation",
    "failed:logic",
    "failed:internal",
    "crashed",
]
RunStatus = Literal["active", "committed"] | EndStatus
EventStatus = Literal["pending", "reserved", "consumed", "skipped"]
MutationStatus = Literal["pending", "in_flight", "needs_reconcile", "indeterminate", "applied", "failed"]
SessionStatus = Literal["open", "completed", "failed"]
WorkflowStatus = Literal["draft", "ready", "active", "paused"]
HandlerKind = Literal["producer", "consumer"]
MutationOutcome = Literal["", "success", "failure", "skipped"]
"""What became of the mutate phase; empty while unknown and when no tool was called."""

Author = Literal["call", "inline", "reconcile"]
"""Who speaks for a sent mutation: the call's own answer, the reconcile right after it, the background loop."""

ResolvedBy = Literal[
    "",
    "never_sent",
    "call",
    "inline",
    "reconcile",
    "user_assert_failed",
    "user_skip",
    "user_assert_applied",
]
ErrorKind = Literal["uncertain", "approval", "internal", "blocked"]
ErrorCause = Literal["", "auth", "permission", "request", "transient", "logic", "host"]
GrantMode = Literal["always", "ask"]


class Key(NamedTuple):
    """An event's name within its workflow."""

    topic: str
    id: str


class Event(NamedTuple):
    """A durable record in a topic."""

    key: Key
    seq: int
    """Order of first publication within the workflow, from 1."""
    status: EventStatus
    owner: str
    """The run that reserved it last; empty while it is pending."""
    title: str
    payload: str
    created_by: str
    """The run that published it; empty for an ingress from outside a run."""
    causes: tuple[Key, ...]
    """The root inputs that it came from; empty when it is a root itself."""


class Publication(NamedTuple):
    """What a handler asks to publish."""

    key: Key
    title: str
    payload: str


class Mutation(NamedTuple):
    """A ledger record: the one change outside that a run attempts."""

    run: str
    status: MutationStatus
    tool: str
    params: str
    digest: str
    """Names this exact call: tool and parameters, without the idempotency key."""
    key: str
    """Idempotency key, made from workflow and run."""
    reconcilable: bool
    send_by: int
    """No host sends after this time."""
    may_land_until: int
    """Before this time nobody can know that a sent call did not happen."""
    attempts: int
    next_attempt_at: int
    resolved_by: ResolvedBy


class Run(NamedTuple):
    """One execution of a handler."""

    id: str
    handler: str
    kind: HandlerKind
    session: str
    version: str
    """The script version that it began with (RUN-009)."""
    status: RunStatus
    phase: Phase
    outcome: MutationOutcome
    retry_of: str
    created_at: int
    reserved: tuple[Key, ...]
    causes: tuple[Key, ...]
    data: str
    title: str
    result: str
    """The mutation's result as JSON; empty when there is none."""
    message: str
    """Why it ended."""
    abandoned: bool
    """A person gave up its `next`."""


class Session(NamedTuple):
    id: str
    status: SessionStatus
    runs: int
    commits: int


class Declaration(NamedTuple):
    """What a script says of one handler."""

    name: str
    kind: HandlerKind
    subscribes: tuple[str, ...] = ()
    has_mutate: bool = False
    interval_ms: int = 0
    """A producer's interval; 0 when it has none."""
    cron: str = ""
    """A producer's cron expression; the host computes its times."""


class Handler(NamedTuple):
    """A handler's row: its declaration, and what outlives its runs."""

    declared: Declaration
    state: str
    """What the last commit returned, as JSON; empty before the first."""
    dirty: bool
    """A consumer that should look at its topics."""
    wake_at: int
    """When a consumer asked to be woken; 0 when it did not."""
    due_at: int
    """When a producer runs next; -1 when nothing is planned."""
    transient_failures: int
    logic_failures: int


class Request(NamedTuple):
    """A call that waits for a person's approval."""

    tool: str
    digest: str
    events: tuple[Key, ...]


class Error(NamedTuple):
    """Why the workflow needs a person."""

    kind: ErrorKind
    cause: ErrorCause
    run: str
    message: str
    tool: str
    request: Request | None


class Permission(NamedTuple):
    """A tool that the workflow may call: always, or asking for each call."""

    tool: str
    mode: GrantMode


class Maintenance(NamedTuple):
    """The workflow waits for a repair. Of a failed run, or set by hand when `run` is empty."""

    run: str
    handler: str
    message: str


class State(NamedTuple):
    """All that can still matter of one workflow."""

    workflow: str
    status: WorkflowStatus
    version: str
    topics: tuple[str, ...]
    error: Error | None
    maintenance: Maintenance | None
    backoff_until: int
    grants: tuple[Permission, ...]
    approvals: tuple[Request, ...]
    session: Session | None
    run: Run | None
    """The active run or, when it is not active, the pending retry. Never both (RUN-005)."""
    mutation: Mutation | None
    """The ledger record of `run`."""
    handlers: tuple[Handler, ...]
    events: tuple[Event, ...]
    next_seq: int
    policy: Policy


def new_workflow(workflow: str, policy: Policy = Policy()) -> State:  # noqa: B008 - an immutable value
    """A workflow as it is created: a draft, with nothing deployed (WORK-001)."""
    return State(workflow, "draft", "", (), None, None, 0, (), (), None, None, None, (), (), 1, policy)


class Retired(NamedTuple):
    """Rows that left the state, in their final form, for history (HOST-009)."""

    run: Run | None = None
    mutation: Mutation | None = None
    session: Session | None = None


class CallHandler(NamedTuple):
    """Effect: run a handler's function in the sandbox and report what it returned."""

    run: str
    handler: str
    version: str
    function: Function


class Send(NamedTuple):
    """Effect: make the external call, once, unless `send_by` has passed on the sender's clock (HOST-002, HOST-006)."""

    run: str
    tool: str
    params: str
    key: str
    send_by: int


class Reconcile(NamedTuple):
    """Effect: ask the connector whether the call happened."""

    run: str
    tool: str
    params: str
    key: str
    by: Literal["inline", "reconcile"]
    asked_at: int
    """To be given back with the answer."""


class Repair(NamedTuple):
    """Effect: hand a logic failure to the repair hook."""

    run: str
    handler: str
    message: str


Effect = CallHandler | Send | Reconcile | Repair


class Accepted(NamedTuple):
    """The command is law-abiding: commit `state`, then perform `effects` (HOST-001)."""

    state: State
    effects: tuple[Effect, ...]
    rules: tuple[str, ...]
    retired: Retired


class Rejected(NamedTuple):
    """The command is refused and nothing changes (STEP-002)."""

    reason: str
    rule: str
    detail: str


Outcome = Accepted | Rejected
