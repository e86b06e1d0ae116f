"""The commands: everything that can ever change a workflow's state.

Time (`now`, milliseconds) and ids come in with the command. The kernel has neither a clock nor a generator:
the host gives one clock (HOST-004) and fresh ids (HOST-005).
"""

from typing import Literal, NamedTuple, get_args

from .types import Author, Declaration, EndStatus, ErrorCause, GrantMode, Key, Publication

# --- scheduler ---------------------------------------------------------------------------------------


class StartSession(NamedTuple):
    now: int
    session: str


class CreateRun(NamedTuple):
    now: int
    run: str
    session: str
    handler: str


class CreateRetry(NamedTuple):
    """Take the pending retry up again, from `emitting`."""

    now: int
    run: str
    session: str
    retry_of: str


class FinishSession(NamedTuple):
    now: int
    session: str


class RunNow(NamedTuple):
    """A person wants a handler to run at the next opportunity."""

    now: int
    handler: str


# --- handler progress --------------------------------------------------------------------------------


class Begin(NamedTuple):
    now: int
    run: str


class Prepared(NamedTuple):
    """Prepare returned: pin the inputs."""

    now: int
    run: str
    reservations: tuple[Key, ...] = ()
    data: str = "null"
    title: str = ""
    wake_at: int | None = None


class Mutating(NamedTuple):
    now: int
    run: str


class Mutated(NamedTuple):
    """Mutate returned without calling a tool."""

    now: int
    run: str


class Emitting(NamedTuple):
    now: int
    run: str


class CommitConsumer(NamedTuple):
    now: int
    run: str
    state: str | None = None
    publications: tuple[Publication, ...] = ()


class CommitProducer(NamedTuple):
    now: int
    run: str
    state: str | None = None
    publications: tuple[Publication, ...] = ()
    due_at: int | None = None
    """The next time of a cron schedule, which the host computes."""


# --- mutation ----------------------------------------------------------------------------------------


class RecordMutation(NamedTuple):
    now: int
    run: str
    tool: str
    params: str
    reconcilable: bool
    deadline_ms: int | None = None


class SendMutation(NamedTuple):
    now: int
    run: str


class ApplyMutation(NamedTuple):
    now: int
    run: str
    by: Author
    result: str = "null"


class FailMutation(NamedTuple):
    """It did not happen: the target refused it, or reconcile proved it."""

    now: int
    run: str
    by: Author
    voided: bool = False
    """The connector has made the call's key unusable at the target, so the call can not land later."""
    asked_at: int = 0
    """When reconcile was asked, by the store's clock: an answer is no younger than its question."""


class LoseTrack(NamedTuple):
    """The call was sent and nobody knows what became of it."""

    now: int
    run: str
    message: str = ""
    """Why, for the people who read the journal (MUT-007)."""


class ReconcileRetry(NamedTuple):
    """Reconcile could not tell yet."""

    now: int
    run: str
    by: Literal["inline", "reconcile"]
    early: bool = False
    """It answered `failed` while the call may still land."""
    message: str = ""
    """Why it could not tell, likewise."""


class Exhaust(NamedTuple):
    """Reconcile will not tell any more."""

    now: int
    run: str
    no_method: bool = False


# --- run status --------------------------------------------------------------------------------------


class EndRun(NamedTuple):
    """The run failed, paused or crashed."""

    now: int
    run: str
    status: EndStatus
    message: str = ""
    cause: ErrorCause = ""
    """Which approval is missing, for paused:approval."""
    tool: str = ""


# --- person ------------------------------------------------------------------------------------------


class TryAgain(NamedTuple):
    now: int
    run: str


class DidntHappen(NamedTuple):
    now: int
    run: str


class SkipMutation(NamedTuple):
    now: int
    run: str


class AssertApplied(NamedTuple):
    now: int
    run: str
    result: str = "null"


class SkipEvent(NamedTuple):
    now: int
    key: Key


class Approve(NamedTuple):
    now: int
    digest: str


class Reject(NamedTuple):
    now: int
    digest: str


class Grant(NamedTuple):
    now: int
    tool: str
    mode: GrantMode = "always"


class Reconnect(NamedTuple):
    now: int


class Pause(NamedTuple):
    now: int


class Resume(NamedTuple):
    now: int


class ClearError(NamedTuple):
    now: int


class Retry(NamedTuple):
    """Start afresh after a block."""

    now: int


class Abandon(NamedTuple):
    """Give up a retry whose `next` can never pass."""

    now: int
    run: str


class Deploy(NamedTuple):
    now: int
    version: str
    topics: tuple[str, ...]
    handlers: tuple[Declaration, ...]


# --- host --------------------------------------------------------------------------------------------


class Publish(NamedTuple):
    """Ingress outside a run, for tests and tools."""

    now: int
    publication: Publication


class BlockWorkflow(NamedTuple):
    now: int
    message: str


class EnterMaintenance(NamedTuple):
    now: int


class ExitMaintenance(NamedTuple):
    now: int


Command = (
    StartSession
    | CreateRun
    | CreateRetry
    | FinishSession
    | RunNow
    | Begin
    | Prepared
    | Mutating
    | Mutated
    | Emitting
    | CommitConsumer
    | CommitProducer
    | RecordMutation
    | SendMutation
    | ApplyMutation
    | FailMutation
    | LoseTrack
    | ReconcileRetry
    | Exhaust
    | EndRun
    | TryAgain
    | DidntHappen
    | SkipMutation
    | AssertApplied
    | SkipEvent
    | Approve
    | Reject
    | Grant
    | Reconnect
    | Pause
    | Resume
    | ClearError
    | Retry
    | Abandon
    | Deploy
    | Publish
    | BlockWorkflow
    | EnterMaintenance
    | ExitMaintenance
)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:]


COMMANDS: dict[str, type[Command]] = {_snake(c.__name__): c for c in get_args(Command)}
"""Command by the name it has in documents: `create_run`, `end_run`, …"""

NAMES: dict[type[Command], str] = {command: name for name, command in COMMANDS.items()}
