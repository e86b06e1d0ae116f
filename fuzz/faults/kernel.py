"""Faults in the kernel: the literal readings of the source texts, the bugs of their time, and slips of the pen."""

from typing import Final

from ...kernel import commands as c
from ...kernel.commands import Command
from ...kernel.events import consume, publish, release, reserve, skip
from ...kernel.failures import count_transient, replace_row
from ...kernel.gate import closed
from ...kernel.ledger import (
    apply_mutation,
    didnt_happen,
    idempotency_key,
    require_author,
    require_landed,
    send_mutation,
    try_again,
)
from ...kernel.people import abandon, clear_error, deploy, grant, retry
from ...kernel.policy import Policy, clamp_wake, send_window
from ...kernel.reasons import require
from ...kernel.recover import recover
from ...kernel.runs import (
    accept,
    charged,
    commit_consumer,
    lost,
    open_session,
    permission,
    prepared,
    require_session,
    retry_of,
)
from ...kernel.schedule import is_due
from ...kernel.tables import MUTATION_STATUS
from ...kernel.types import (
    Accepted,
    Declaration,
    GrantMode,
    Handler,
    Key,
    Mutation,
    Publication,
    Run,
    Session,
    State,
)
from ...spec.readings import READINGS, all_swaps, altered, ledger
from ...spec.variants import Swap
from .base import Fault

LITERAL: Final = "the source text says so, and nobody asked what follows"
OF_ITS_TIME: Final = "a runtime of the time had it"


def from_reading(name: str) -> Fault:
    reading = READINGS[name]
    why = OF_ITS_TIME if reading.decision.startswith("B") else LITERAL
    return Fault(name, "kernel", reading.text, f"{reading.decision}: {why}", all_swaps(reading))


def slip(name: str, title: str, why: str, original: object, replacement: object) -> Fault:
    return Fault(name, "kernel", title, why, (Swap(original, replacement),))


# --- events ------------------------------------------------------------------------------------------


def release_nothing(state: State) -> State:
    return state


def release_the_first(state: State) -> State:
    freed = release(state)
    first = next((e.key for e in state.events if e.status == "reserved"), None)
    return state._replace(
        events=tuple(new if old.key == first else old for old, new in zip(state.events, freed.events, strict=True))
    )


def consume_the_first(state: State) -> State:
    done = consume(state)
    first = next((e.key for e in state.events if e.status == "reserved"), None)
    rest = tuple(
        new if old.key == first or old == new else old._replace(status="pending", owner="")
        for old, new in zip(state.events, done.events, strict=True)
    )
    return done._replace(events=rest)


def reserve_what_is_done(state: State, run: str, consumer: Declaration, keys: tuple[Key, ...]) -> State:
    done = {e.key for e in state.events if e.status == "consumed"} & {*keys}
    again = tuple(e._replace(status="pending", owner="") if e.key in done else e for e in state.events)
    return reserve(state._replace(events=again), run, consumer, keys)


def republished_is_new(state: State, publications: tuple[Publication, ...], run: str, causes: tuple[Key, ...]) -> State:
    named = {p.key for p in publications}
    kept = tuple(e for e in state.events if e.key not in named or e.status == "reserved")
    return publish(state._replace(events=kept), publications, run, causes)


def release_the_skipped(state: State) -> State:
    return release(state)


# --- runs --------------------------------------------------------------------------------------------


def commit_is_quiet(state: State, command: c.CommitConsumer) -> Accepted:
    accepted = commit_consumer(state, command)
    before = {row.declared.name: row for row in state.handlers}
    own = state.run.handler if state.run else ""
    rows = tuple(
        row._replace(dirty=before[row.declared.name].dirty) if row.declared.name == own else row
        for row in accepted.state.handlers
    )
    return altered(accepted, handlers=rows)


def dirty_until_the_end(state: State, command: c.CommitConsumer) -> Accepted:
    accepted = commit_consumer(state, command)
    own = state.run.handler if state.run else ""
    rows = tuple(row._replace(dirty=False) if row.declared.name == own else row for row in accepted.state.handlers)
    return altered(accepted, handlers=rows)


def state_saved_early(state: State, command: c.Prepared) -> Accepted:
    accepted = prepared(state, command)
    own = state.run.handler if state.run else ""
    row = next(row for row in accepted.state.handlers if row.declared.name == own)
    return accepted._replace(state=replace_row(accepted.state, row._replace(state=command.data)))


def no_budget(state: State, session_id: str) -> Session:
    return open_session(state, session_id)


def crash_is_free(state: State, run: Run, now: int, inline_failed: bool) -> State:
    return state if run.status == "crashed" else charged(state, run, now, inline_failed)


def retry_from_the_call(failed: Run, command: c.CreateRetry, version: str) -> Run:
    return retry_of(failed, command, version)._replace(phase="mutating")


def recover_the_pending(state: State, now: int) -> tuple[Command, ...]:
    if state.run is not None:
        return (c.EndRun(now, state.run.id, "crashed", "the host died"),)
    return recover(state, now)


def recovery_settles(state: State, now: int) -> tuple[Command, ...]:
    run, record = state.run, state.mutation
    if run is not None and run.status == "active" and record is not None and record.status == "in_flight":
        return (c.FailMutation(now, run.id, "call"),)
    return recover(state, now)


# --- the ledger --------------------------------------------------------------------------------------


def late_answer_counts(run: Run, by: str) -> None:
    if by != "call":
        require_author(run, by)


def person_knows_early(state: State, command: c.DidntHappen) -> Accepted:
    landed = state.mutation._replace(may_land_until=command.now) if state.mutation is not None else None
    return didnt_happen(state._replace(mutation=landed), command)


def attempts_stay_spent(state: State, command: c.TryAgain) -> Accepted:
    accepted = try_again(state, command)
    record, before = accepted.state.mutation, state.mutation
    if record is None or before is None:
        return accepted
    return altered(accepted, mutation=record._replace(attempts=before.attempts))


def approval_stays(state: State, command: c.SendMutation) -> Accepted:
    return altered(send_mutation(state, command), approvals=state.approvals)


def sent_at_any_time(state: State, command: c.SendMutation) -> Accepted:
    at = min(command.now, state.mutation.send_by) if state.mutation is not None else command.now
    return send_mutation(state, command._replace(now=at))


def granted_unless_asked(state: State, tool: str) -> GrantMode | None:
    return permission(state, tool) or "always"


def one_key_for_all(workflow: str, run: str) -> str:
    return idempotency_key(workflow, "")


def no_time_to_travel(now: int, deadline_ms: int, policy: Policy) -> tuple[int, int]:
    send_by, _ = send_window(now, deadline_ms, policy)
    return send_by, send_by


def result_dropped(state: State, command: c.ApplyMutation) -> Accepted:
    return apply_mutation(state, command._replace(result="null"))


def lost_for_good(record: Mutation, now: int) -> Mutation:
    return lost(record._replace(reconcilable=True), now)._replace(reconcilable=record.reconcilable)


# --- time, counts and people -------------------------------------------------------------------------


def due_a_tick_late(row: Handler, now: int) -> bool:
    return is_due(row, now - 1)


def clamped_below_only(wake_at: int, now: int, policy: Policy) -> int:
    return max(now + policy.wake_min_ms, wake_at)


def backoff_from_the_start(state: State, run: Run, now: int) -> State:
    return count_transient(state, run, run.created_at)


def pause_is_ignored(state: State, now: int) -> str:
    return closed(state._replace(status="active"), now)


def backoff_is_ignored(state: State, now: int) -> str:
    return closed(state, max(now, state.backoff_until))


def clear_any_kind(state: State, command: c.ClearError) -> Accepted:
    require(state.error is not None, "no_error")
    return accept(state._replace(error=None), "WORK-004")


def any_grant_answers(state: State, command: c.Grant) -> Accepted:
    return altered(grant(state, command), error=None)


def retry_clears_doubt(state: State, command: c.Retry) -> Accepted:
    return altered(retry(state, command), error=None)


def abandon_releases(state: State, command: c.Abandon) -> Accepted:
    return altered(abandon(state, command), events=release(state).events)


def deploy_under_a_run(state: State, command: c.Deploy) -> Accepted:
    return altered(deploy(state._replace(run=None, mutation=None), command), run=state.run, mutation=state.mutation)


def resolved_by_word_alone(record: Mutation, seen_at: int, voided: bool = False) -> None:
    if not voided and seen_at < record.send_by:
        require_landed(record, seen_at)


SLIPS: Final = (
    slip(
        "lost-release",
        "A run that ends before its mutation keeps its inputs.",
        "the release stood in the function that wrote the status, and was left behind when that was split",
        release,
        release_nothing,
    ),
    slip(
        "release-of-one",
        "Of a batch only the first input is released.",
        "it was written when a run had one input",
        release,
        release_the_first,
    ),
    slip(
        "consume-of-one",
        "Of a batch only the first input is consumed; the others are pending again.",
        "it was written when a run had one input",
        consume,
        consume_the_first,
    ),
    slip(
        "double-consume",
        "An event that was consumed can be reserved once more.",
        "the check asked whether somebody holds the event, not whether it is done",
        reserve,
        reserve_what_is_done,
    ),
    slip(
        "republished-is-new",
        "A known event that is published again is a new one.",
        "delete and insert were easier than an update",
        publish,
        republished_is_new,
    ),
    slip(
        "skip-releases",
        "A person gives an input up, and it is pending again.",
        "to give up was taken for to let go",
        skip,
        release_the_skipped,
    ),
    slip(
        "quiet-commit",
        "A consumer that has committed does not look for more.",
        "what is published marks it; that more may have been waiting was forgotten",
        commit_consumer,
        commit_is_quiet,
    ),
    slip(
        "dirty-cleared-at-the-end",
        "What is published during a run wakes nobody: the mark is cleared when the run ends.",
        "a run has looked, so there is nothing more to look at",
        commit_consumer,
        dirty_until_the_end,
    ),
    slip(
        "state-saved-early",
        "A handler's state is written when prepare returns.",
        "it was at hand there, and the commit had enough to do",
        prepared,
        state_saved_early,
    ),
    slip(
        "no-budget",
        "A session has no limit of runs.",
        "the limit is the scheduler's, so nobody asks for it here",
        require_session,
        no_budget,
    ),
    slip(
        "crash-is-free",
        "A crash is no failure: it neither counts nor backs off.",
        "it is not the handler's fault",
        charged,
        crash_is_free,
    ),
    slip(
        "retry-calls-again",
        "A retry begins with the call.",
        "a retry was understood as trying the mutation again",
        retry_of,
        retry_from_the_call,
    ),
    slip(
        "recovery-runs-twice",
        "Recovery ends a run that was ended already.",
        "it looks for a run that is there, not for one that is active",
        recover,
        recover_the_pending,
    ),
    slip(
        "recovery-settles",
        "Recovery takes a call without an answer for one that failed.",
        "no answer came, so nothing can have happened",
        recover,
        recovery_settles,
    ),
    Fault(
        "late-answer-counts",
        "kernel",
        "The call's own answer is taken although its run is over.",
        "an answer is an answer, whenever it comes",
        (Swap(require_author, late_answer_counts), Swap(MUTATION_STATUS, ledger(("call_applied", "call_refused")))),
    ),
    slip(
        "person-knows-early",
        "A person may say that a call did not happen while it may still land.",
        "the user is always right",
        didnt_happen,
        person_knows_early,
    ),
    slip(
        "attempts-stay-spent",
        "Trying again leaves the attempts as they are.",
        "the status was moved, and the count overlooked",
        try_again,
        attempts_stay_spent,
    ),
    slip(
        "approval-stays",
        "An approval can be used for more than one call.",
        "whoever approved it once will approve it again",
        send_mutation,
        approval_stays,
    ),
    slip(
        "sent-at-any-time",
        "A call may be sent although its time is over.",
        "the host looks at the clock anyway",
        send_mutation,
        sent_at_any_time,
    ),
    slip(
        "granted-unless-asked",
        "A tool about which nothing was said may be used.",
        "a default had to be chosen",
        permission,
        granted_unless_asked,
    ),
    slip(
        "one-key-for-all",
        "All calls of a workflow have one idempotency key.",
        "the key was made from what was at hand",
        idempotency_key,
        one_key_for_all,
    ),
    slip(
        "no-time-to-travel",
        "A call is taken for landed or lost as soon as nobody may send it any more.",
        "the connector's own deadline was forgotten",
        send_window,
        no_time_to_travel,
    ),
    slip(
        "looked-too-early",
        "A reconcile that looked before the call had to land is believed.",
        "sent by then was taken for landed by then",
        require_landed,
        resolved_by_word_alone,
    ),
    slip(
        "result-dropped",
        "The result of a call is not kept.",
        "nobody reads it, said the review",
        apply_mutation,
        result_dropped,
    ),
    slip(
        "lost-without-reconcile",
        "A lost call of a tool without reconcile waits for a reconcile.",
        "every tool that was tried had one",
        lost,
        lost_for_good,
    ),
    slip(
        "due-a-tick-late",
        "A handler that is due now is due a tick later.",
        "less, or less or equal",
        is_due,
        due_a_tick_late,
    ),
    slip(
        "clamped-below-only",
        "A time to wake may be a hundred years away.",
        "the lower bound was asked for first, and the upper one forgotten",
        clamp_wake,
        clamped_below_only,
    ),
    slip(
        "backoff-from-the-start",
        "The wait after a failure is counted from the start of the run.",
        "the run has a time of its own, and it was nearer",
        count_transient,
        backoff_from_the_start,
    ),
    slip(
        "pause-is-ignored",
        "A paused workflow starts new runs.",
        "the scheduler asks; whoever else creates a run does not",
        closed,
        pause_is_ignored,
    ),
    slip(
        "backoff-is-ignored",
        "Nobody waits after a failure.",
        "the time was stored, and nobody compared it",
        closed,
        backoff_is_ignored,
    ),
    slip(
        "clear-any-kind",
        "Clearing an error clears also the one that says that nobody knows.",
        "a button that clears errors clears errors",
        clear_error,
        clear_any_kind,
    ),
    slip(
        "any-grant-answers",
        "Granting any tool clears whatever error stands.",
        "the grant was what the workflow waited for, most of the time",
        grant,
        any_grant_answers,
    ),
    slip(
        "retry-clears-doubt",
        "A person's retry clears also the error that says that nobody knows.",
        "to retry means to start afresh",
        retry,
        retry_clears_doubt,
    ),
    slip(
        "abandon-releases",
        "An abandoned run gives its inputs back.",
        "every other end before the commit does",
        abandon,
        abandon_releases,
    ),
    slip(
        "deploy-under-a-run",
        "A new version is deployed under an active run.",
        "a deploy must always work",
        deploy,
        deploy_under_a_run,
    ),
)

FAULTS: Final[tuple[Fault, ...]] = (*map(from_reading, READINGS), *SLIPS)
