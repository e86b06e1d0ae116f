"""keepkernel: the formally specified kernel of automations that survive crashes.

The public names, all of them pure:

- `step(state, command)` applies one command: `Accepted` or `Rejected`.
- `schedule(state, now, fresh_id)` and `upkeep(state, now)` say what should happen next.
- `recover(state, now)` says what a restart does first.
- `boundary`, `classify`, `allowed` and the policy arithmetic are the decisions inside, one function each.
- `encode` and `decode_*` turn values into canonical JSON and back.
- `explore(setup)` searches every reachable state of a set-up; `explore("consumer").assert_holds()` makes it a test.

>>> from keepkernel import Declaration, Deploy, Key, Publication, Publish, Resume, new_workflow, step
>>> consumer = Declaration("file", "consumer", ("mail",), has_mutate=True)
>>> state = new_workflow("demo")
>>> for command in (
...     Deploy(0, "v1", ("mail",), (consumer,)),
...     Resume(0),
...     Publish(0, Publication(Key("mail", "m1"), "Mail from alice", "{}")),
... ):
...     state = step(state, command).state
>>> schedule(state, now=0, fresh_id="s1")
StartSession(now=0, session='s1')
"""

from typing import TYPE_CHECKING, Any

from .kernel.boundary import boundary
from .kernel.capabilities import CAPABILITIES, allowed
from .kernel.codec import DecodeError, EncodeError, decode_command, decode_outcome, decode_state, encode
from .kernel.commands import (
    COMMANDS,
    Abandon,
    ApplyMutation,
    Approve,
    AssertApplied,
    Begin,
    BlockWorkflow,
    ClearError,
    Command,
    CommitConsumer,
    CommitProducer,
    CreateRetry,
    CreateRun,
    Deploy,
    DidntHappen,
    Emitting,
    EndRun,
    EnterMaintenance,
    Exhaust,
    ExitMaintenance,
    FailMutation,
    FinishSession,
    Grant,
    LoseTrack,
    Mutated,
    Mutating,
    Pause,
    Prepared,
    Publish,
    ReconcileRetry,
    Reconnect,
    RecordMutation,
    Reject,
    Resume,
    Retry,
    RunNow,
    SendMutation,
    SkipEvent,
    SkipMutation,
    StartSession,
    TryAgain,
)
from .kernel.failures import classify
from .kernel.policy import Policy, backoff_ms, clamp_wake, interval_ms, send_window
from .kernel.reasons import REASONS
from .kernel.recover import orphans, recover
from .kernel.schedule import Idle, Wait, schedule, upkeep
from .kernel.step import step
from .kernel.types import (
    Accepted,
    CallHandler,
    Declaration,
    Effect,
    Error,
    Event,
    Handler,
    Key,
    Maintenance,
    Mutation,
    Outcome,
    Permission,
    Publication,
    Reconcile,
    Rejected,
    Repair,
    Request,
    Retired,
    Run,
    Send,
    Session,
    State,
    new_workflow,
)
from .kernel.window import named

if TYPE_CHECKING:
    from .fuzz.check import explore

__all__ = [
    "CAPABILITIES",
    "COMMANDS",
    "REASONS",
    "Abandon",
    "Accepted",
    "ApplyMutation",
    "Approve",
    "AssertApplied",
    "Begin",
    "BlockWorkflow",
    "CallHandler",
    "ClearError",
    "Command",
    "CommitConsumer",
    "CommitProducer",
    "CreateRetry",
    "CreateRun",
    "Declaration",
    "DecodeError",
    "Deploy",
    "DidntHappen",
    "Effect",
    "Emitting",
    "EncodeError",
    "EndRun",
    "EnterMaintenance",
    "Error",
    "Event",
    "Exhaust",
    "ExitMaintenance",
    "FailMutation",
    "FinishSession",
    "Grant",
    "Handler",
    "Idle",
    "Key",
    "LoseTrack",
    "Maintenance",
    "Mutated",
    "Mutating",
    "Mutation",
    "Outcome",
    "Pause",
    "Permission",
    "Policy",
    "Prepared",
    "Publication",
    "Publish",
    "Reconcile",
    "ReconcileRetry",
    "Reconnect",
    "RecordMutation",
    "Reject",
    "Rejected",
    "Repair",
    "Request",
    "Resume",
    "Retired",
    "Retry",
    "Run",
    "RunNow",
    "Send",
    "SendMutation",
    "Session",
    "SkipEvent",
    "SkipMutation",
    "StartSession",
    "State",
    "TryAgain",
    "Wait",
    "__version__",
    "allowed",
    "backoff_ms",
    "boundary",
    "clamp_wake",
    "classify",
    "decode_command",
    "decode_outcome",
    "decode_state",
    "encode",
    "explore",
    "interval_ms",
    "named",
    "new_workflow",
    "orphans",
    "recover",
    "schedule",
    "send_window",
    "step",
    "upkeep",
]


def __getattr__(name: str) -> Any:
    # A host needs no checker, and pays for none.
    if name == "explore":
        from .fuzz.check import explore

        return explore
    # Reading the metadata takes longer than all other imports here, and few ask for it.
    if name == "__version__":
        from importlib.metadata import version

        return version("keepkernel")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
