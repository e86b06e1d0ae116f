"""The transition function: the only way in which a workflow's state ever changes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from . import commands as c
from . import ledger, people, runs
from .reasons import Refusal, rejected
from .types import Accepted, Outcome, State

TRANSITIONS: Final[Mapping[type[c.Command], Callable[[State, Any], Accepted]]] = MappingProxyType(
    {
        c.StartSession: runs.start_session,
        c.CreateRun: runs.create_run,
        c.CreateRetry: runs.create_retry,
        c.FinishSession: runs.finish_session,
        c.RunNow: runs.run_now,
        c.Begin: runs.begin,
        c.Prepared: runs.prepared,
        c.Mutating: runs.mutating,
        c.Mutated: runs.mutated,
        c.Emitting: runs.emitting,
        c.CommitConsumer: runs.commit_consumer,
        c.CommitProducer: runs.commit_producer,
        c.RecordMutation: ledger.record_mutation,
        c.SendMutation: ledger.send_mutation,
        c.ApplyMutation: ledger.apply_mutation,
        c.FailMutation: ledger.fail_mutation,
        c.LoseTrack: ledger.lose_track,
        c.ReconcileRetry: ledger.reconcile_retry,
        c.Exhaust: ledger.exhaust,
        c.EndRun: runs.end_run,
        c.TryAgain: ledger.try_again,
        c.DidntHappen: ledger.didnt_happen,
        c.SkipMutation: ledger.skip_mutation,
        c.AssertApplied: ledger.assert_applied,
        c.SkipEvent: people.skip_event,
        c.Approve: people.approve,
        c.Reject: people.reject,
        c.Grant: people.grant,
        c.Reconnect: people.reconnect,
        c.Pause: people.pause,
        c.Resume: people.resume,
        c.ClearError: people.clear_error,
        c.Retry: people.retry,
        c.Abandon: people.abandon,
        c.Deploy: people.deploy,
        c.Publish: people.publish,
        c.BlockWorkflow: people.block_workflow,
        c.EnterMaintenance: people.enter_maintenance,
        c.ExitMaintenance: people.exit_maintenance,
    }
)


def step(state: State, command: c.Command) -> Outcome:
    """Apply one command to a workflow's state.

    Returns `Accepted(state, effects, rules, retired)` or `Rejected(reason, rule, detail)`. It never raises for
    a wrong command, never changes what it was given, and is safe for any caller in any order (STEP-001,
    STEP-002). Commit an accepted state durably, on top of the one you gave, before you perform its effects
    (HOST-001, HOST-008).

    >>> from keepkernel import Declaration, Deploy, Pause, Resume, new_workflow, step
    >>> poll = Declaration("poll", "producer", interval_ms=60_000)
    >>> state = step(new_workflow("demo"), Deploy(0, "v1", ("mail",), (poll,))).state
    >>> step(state, Resume(now=0)).state.status
    'active'
    >>> step(state, Pause(now=0))
    Rejected(reason='workflow_edge', rule='WORK-001', detail='ready')
    """
    try:
        accepted: Accepted = TRANSITIONS[type(command)](state, command)
    except Refusal as refusal:
        return rejected(*refusal.args)
    return accepted
