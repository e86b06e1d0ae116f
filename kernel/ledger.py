"""Transitions of the ledger record: the one change outside that a run may attempt."""

from hashlib import sha256

from . import events, failures
from .commands import (
    ApplyMutation,
    AssertApplied,
    DidntHappen,
    Exhaust,
    FailMutation,
    LoseTrack,
    ReconcileRetry,
    RecordMutation,
    SendMutation,
    SkipMutation,
    TryAgain,
)
from .policy import backoff_ms, send_window
from .reasons import present, require
from .runs import accept, active_run, live_run, lost, moved, permission
from .tables import MUTATION_STATUS
from .types import (
    Accepted,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Reconcile,
    Request,
    ResolvedBy,
    Retired,
    Run,
    Send,
    State,
)


def digest(tool: str, params: str) -> str:
    """The name of one exact call: a hash of tool and parameters, without the idempotency key (PERM-002)."""
    return sha256(f"{tool}\n{params}".encode("utf-8", "surrogatepass")).hexdigest()


def idempotency_key(workflow: str, run: str) -> str:
    """The same for every look at one run's call, and for no other (MUT-014)."""
    escaped = workflow.replace("%", "%25").replace("/", "%2F")  # So that the first slash ends the workflow's name.
    return f"{escaped}/{run}"


def record_of(state: State) -> Mutation:
    return present(state.mutation, "record_missing")


def moved_record(record: Mutation, trigger: str) -> Mutation:
    """One edge of the ledger (MUT-001)."""
    status: MutationStatus = present(MUTATION_STATUS.get((record.status, trigger)), "mutation_edge", record.status)
    return record._replace(status=status)


def require_author(run: Run, by: str) -> None:
    """Who may speak of a sent mutation, and when (MUT-008)."""
    require((run.status == "active") == (by in ("call", "inline")), "author", by)


def require_landed(record: Mutation, seen_at: int, voided: bool = False) -> None:
    """Whoever looked while the call might still land does not know that it failed (MUT-009)."""
    require(voided or seen_at >= record.may_land_until, "too_early", str(record.may_land_until))


# --- sending -----------------------------------------------------------------------------------------


def record_mutation(state: State, c: RecordMutation) -> Accepted:
    run = active_run(state, c.run, "consumer")
    require(run.phase == "mutating", "phase", run.phase)
    require(state.mutation is None, "record_exists")
    deadline_ms = state.policy.call_deadline_ms if c.deadline_ms is None else c.deadline_ms
    require(deadline_ms > 0, "bad_deadline", str(deadline_ms))
    events.require_size(state.policy, c.params)
    send_by, may_land_until = send_window(c.now, deadline_ms, state.policy)
    record = Mutation(
        run.id, "pending", c.tool, c.params, digest(c.tool, c.params), idempotency_key(state.workflow, run.id),
        c.reconcilable, send_by, may_land_until, 0, 0, "",
    )  # fmt: skip
    return accept(state._replace(mutation=record), "MUT-002", "MUT-003", "MUT-004")


def send_mutation(state: State, c: SendMutation) -> Accepted:
    run = active_run(state, c.run, "consumer")
    require(run.phase == "mutating", "phase", run.phase)
    record = moved_record(record_of(state), "call_sent")
    require(c.now <= record.send_by, "send_by_passed", str(record.send_by))
    mode = permission(state, record.tool)
    require(mode is not None, "not_granted", record.tool)
    approval = Request(record.tool, record.digest, run.reserved)
    require(mode == "always" or approval in state.approvals, "not_approved", record.digest)
    approvals = tuple(a for a in state.approvals if a != approval)  # Used up by this one call (PERM-005).
    effect = Send(run.id, record.tool, record.params, record.key, record.send_by)
    return accept(
        state._replace(mutation=record, approvals=approvals),
        "MUT-005",
        "PERM-001",
        "PERM-002",
        effects=(effect,),
    )


# --- what became of it -------------------------------------------------------------------------------


def settled(
    state: State,
    run: Run,
    record: Mutation,
    outcome: MutationOutcome,
    resolved_by: ResolvedBy,
    result: str = "",
) -> State:
    """The outcome is known: ledger, run and phase say so together, and its own error is answered (MUT-010)."""
    run = moved(run, "settle")._replace(outcome=outcome, result=result)
    return clear_own_error(state, run)._replace(run=run, mutation=record._replace(resolved_by=resolved_by))


def clear_own_error(state: State, run: Run) -> State:
    """A resolution clears the uncertainty of its own run, and nothing else (WORK-002)."""
    own = state.error is not None and state.error.kind == "uncertain" and state.error.run == run.id
    return state._replace(error=None) if own else state


def apply_mutation(state: State, c: ApplyMutation) -> Accepted:
    run = live_run(state, c.run)
    require_author(run, c.by)
    record = moved_record(record_of(state), "call_applied" if c.by == "call" else "reconcile_applied")
    events.require_size(state.policy, c.result)
    return accept(settled(state, run, record, "success", c.by, c.result), "MUT-008", "MUT-010")


def fail_mutation(state: State, c: FailMutation) -> Accepted:
    run = live_run(state, c.run)
    require_author(run, c.by)
    record = moved_record(record_of(state), "call_refused" if c.by == "call" else "reconcile_failed")
    if c.by != "call":  # The target's own refusal is final at once.
        require(c.asked_at <= c.now, "asked_later", str(c.asked_at))
        require_landed(record, c.asked_at, c.voided)
    return failed(state, run, record, c.by, c.now)


def failed(state: State, run: Run, record: Mutation, resolved_by: ResolvedBy, now: int) -> Accepted:
    """It did not happen: the inputs are free again, and a run that is over leaves (MUT-010)."""
    state = events.release(settled(state, run, record, "failure", resolved_by))
    if run.status == "active":
        return accept(state, "MUT-008", "MUT-010", "EVENT-005")
    retired = Retired(run=state.run, mutation=state.mutation)
    state = state._replace(run=None, mutation=None, handlers=events.mark_dirty(state.handlers, topics(run)))
    state = failures.count_transient(state, run, now)
    return accept(state, "MUT-008", "MUT-010", "EVENT-005", "FAIL-006", retired=retired)


def topics(run: Run) -> frozenset[str]:
    return frozenset(key.topic for key in run.reserved)


def lose_track(state: State, c: LoseTrack) -> Accepted:
    run = active_run(state, c.run, "consumer")
    record = record_of(state)
    require(record.status == "in_flight", "mutation_edge", record.status)
    record = lost(record, c.now)
    inline = Reconcile(run.id, record.tool, record.params, record.key, "inline", c.now)
    effects = (inline,) if record.reconcilable else ()
    return accept(state._replace(mutation=record), "MUT-007", effects=effects)


def reconcile_retry(state: State, c: ReconcileRetry) -> Accepted:
    run = live_run(state, c.run)
    require_author(run, c.by)
    record = moved_record(record_of(state), "reconcile_retry")
    if c.early:  # It answered before anybody could know; that costs no attempt (MUT-011).
        require(c.now < record.may_land_until, "not_early", str(record.may_land_until))
        return accept(
            state._replace(mutation=record._replace(next_attempt_at=record.may_land_until)),
            "MUT-011",
        )
    require(record.attempts < state.policy.reconcile_attempts, "attempts_spent")
    attempts = record.attempts + 1
    wait = backoff_ms(attempts, state.policy.reconcile_base_ms, state.policy.reconcile_max_ms)
    record = record._replace(attempts=attempts, next_attempt_at=c.now + wait)
    return accept(state._replace(mutation=record), "MUT-011")


def exhaust(state: State, c: Exhaust) -> Accepted:
    run = live_run(state, c.run)
    require_author(run, "reconcile")
    record = moved_record(record_of(state), "exhaust")
    reconcilable = record.reconcilable and not c.no_method
    require(not reconcilable or record.attempts >= state.policy.reconcile_attempts, "attempts_left")
    return accept(state._replace(mutation=record._replace(reconcilable=reconcilable)), "MUT-012")


# --- a person decides --------------------------------------------------------------------------------


def try_again(state: State, c: TryAgain) -> Accepted:
    run = live_run(state, c.run)
    require_author(run, "user")
    record = moved_record(record_of(state), "try_again")
    require(record.reconcilable, "no_reconcile", record.tool)
    return accept(state._replace(mutation=record._replace(attempts=0, next_attempt_at=c.now)), "MUT-013")


def didnt_happen(state: State, c: DidntHappen) -> Accepted:
    run = live_run(state, c.run)
    require_author(run, "user")
    record = moved_record(record_of(state), "didnt_happen")
    require_landed(record, c.now)
    return failed(state, run, record, "user_assert_failed", c.now)


def skip_mutation(state: State, c: SkipMutation) -> Accepted:
    run = live_run(state, c.run)
    require_author(run, "user")
    record = moved_record(record_of(state), "skip")
    state = events.skip(settled(state, run, record, "skipped", "user_skip"))
    return accept(state, "MUT-008", "MUT-015", "EVENT-006")


def assert_applied(state: State, c: AssertApplied) -> Accepted:
    run = live_run(state, c.run)
    require_author(run, "user")
    record = moved_record(record_of(state), "assert_applied")
    events.require_size(state.policy, c.result)
    return accept(
        settled(state, run, record, "success", "user_assert_applied", c.result),
        "MUT-008",
        "MUT-016",
    )
