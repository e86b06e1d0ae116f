"""The texts of the source documents, taken at their word: each as a variant of the kernel, with what it breaks.

`13-decisions.md` tells for each hole in the texts what was chosen. Here is the other choice, so that a search can
show what comes of it. A reading replaces a few small functions; everything else is the kernel as it is. The bugs
that the consolidation document reports of its time are readings as well.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from ..kernel import commands as c
from ..kernel.boundary import Side, boundary, side
from ..kernel.events import mark_dirty, publish, reserve, transfer
from ..kernel.failures import block, count_logic
from ..kernel.gate import pending_retry
from ..kernel.ledger import (
    clear_own_error,
    fail_mutation,
    failed,
    lose_track,
    record_mutation,
    require_author,
    require_landed,
    topics,
)
from ..kernel.people import abandon, block_workflow, preparing, reconnect, reject, resume
from ..kernel.reasons import Refusal, require
from ..kernel.respond import Answer, DidNotHappen, reconciled
from ..kernel.runs import (
    accept,
    active_run,
    create_run,
    end_run,
    end_uncertain,
    finish_session,
    live_run,
    may_commit,
    moved,
    require_gate,
    retry_of,
    start_session,
    status_error,
    stopped,
)
from ..kernel.tables import CONSUMER_PHASE, MUTATION_STATUS
from ..kernel.types import (
    Accepted,
    Declaration,
    EndStatus,
    Error,
    ErrorCause,
    Event,
    Key,
    Mutation,
    MutationOutcome,
    MutationStatus,
    Phase,
    Publication,
    Reconcile,
    ResolvedBy,
    Run,
    Session,
    State,
)
from .variants import Swap


class Reading(NamedTuple):
    name: str
    decision: str
    """The decision that chose otherwise, `D01` and so on; of a bug its number in the report, `B1` and so on."""
    text: str
    """What the text says, or what the runtime of its time did."""
    swaps: tuple[Swap, ...]
    breaks: str
    """The invariant that fails first; LIVE-002 when it does no harm but never ends."""
    setup: str = "consumer"
    """A set-up in which it shows."""
    features: tuple[str, ...] = ()
    """What must be explored, beside the plain course of things, for it to show."""
    caller: Literal["honest", "adversary"] = "honest"
    """Whose commands show it; an honest host never comes into some of the situations."""
    needs: tuple[str, ...] = ()
    """Other readings without which it does no harm."""


def all_swaps(reading: Reading) -> tuple[Swap, ...]:
    """The variant in which a reading shows: with the readings that it needs."""
    return (*(swap for name in reading.needs for swap in READINGS[name].swaps), *reading.swaps)


def altered(accepted: Accepted, **fields: Any) -> Accepted:
    return accepted._replace(state=accepted.state._replace(**fields))


# --- the boundary ------------------------------------------------------------------------------------


def phase_first(run: Run, record: Mutation | None) -> Side:
    return "BEFORE" if run.phase in ("pending", "preparing", "prepared", "mutating") else side(run, record)


def empty_is_after(run: Run, record: Mutation | None) -> Side:
    return "AFTER" if run.phase in ("mutated", "emitting") and run.outcome != "failure" else side(run, record)


def retry_of_known_outcome(failed: Run, command: c.CreateRetry, version: str) -> Run:
    require(failed.outcome in ("success", "skipped"), "not_after")
    return retry_of(failed, command, version)


def indeterminate_is_before(outcome: MutationOutcome, record: MutationStatus | None) -> Side:
    return "BEFORE" if record == "indeterminate" else boundary(outcome, record)


def left_in_flight(state: State, run: Run, command: c.EndRun) -> Accepted:
    return altered(end_uncertain(state, run, command), mutation=state.mutation)


def last_error_stands(state: State, run: Run, command: c.EndRun) -> Accepted:
    accepted = end_uncertain(state, run, command)
    return altered(accepted, error=status_error(state, run, command) or accepted.state.error)


def reconnect_clears_all(state: State, command: c.Reconnect) -> Accepted:
    require(state.error is not None, "no_error")
    return accept(state._replace(error=None), "PERM-008")


def block_over_anything(state: State, command: c.BlockWorkflow) -> Accepted:
    return accept(state._replace(error=Error("blocked", "host", "", command.message, "", None)), "WORK-003")


def status_as_reported(state: State, run: Run, command: c.EndRun) -> Accepted:
    accepted = end_uncertain(state, run, command)
    if command.status == "crashed":
        return accepted
    ended = run._replace(status=command.status, message=command.message)
    state = accepted.state._replace(run=ended)
    return accepted._replace(state=count_logic(state, ended) if ended.status == "failed:logic" else state)


# --- the ledger --------------------------------------------------------------------------------------


def anybody_speaks(run: Run, by: str) -> None:
    """No condition."""


def clear_any_error(state: State, run: Run) -> State:
    return state._replace(error=None)


def any_time_will_do(record: Mutation, seen_at: int, voided: bool = False) -> None:
    """No condition."""


def taken_at_its_word(state: State, effect: Reconcile, answer: Answer, now: int) -> tuple[c.Command, ...]:
    if not isinstance(answer, DidNotHappen):
        return reconciled(state, effect, answer, now)
    end = c.EndRun(now, effect.run, "paused:transient", "the mutation did not happen")
    failure = c.FailMutation(now, effect.run, effect.by, answer.voided, effect.asked_at)
    return (failure, end) if effect.by == "inline" else (failure,)


def taken_for_a_refusal(state: State, command: c.LoseTrack) -> Accepted:
    return fail_mutation(state, c.FailMutation(command.now, command.run, "call"))


def failed_for_free(state: State, run: Run, record: Mutation, resolved_by: ResolvedBy, now: int) -> Accepted:
    accepted = failed(state, run, record, resolved_by, now)
    if run.status == "active":
        return accepted
    return altered(accepted, handlers=mark_dirty(state.handlers, topics(run)), backoff_until=state.backoff_until)


def mutate_again(state: State, command: c.RecordMutation) -> Accepted:
    run = active_run(state, command.run, "consumer")
    if run.outcome == "failure":
        state = state._replace(run=run._replace(phase="mutating", outcome=""), mutation=None)
    return record_mutation(state, command)


def ledger(added: tuple[str, ...], removed: tuple[tuple[str, str], ...] = ()) -> Mapping[tuple[str, str], str]:
    """The ledger's table, in which some triggers may come at any unresolved status, and without some edges."""
    unresolved = ("in_flight", "needs_reconcile", "indeterminate")
    target = {trigger: status for (_, trigger), status in MUTATION_STATUS.items()}
    more = {(status, trigger): target[trigger] for status in unresolved for trigger in added}
    return MappingProxyType({edge: s for edge, s in {**MUTATION_STATUS, **more}.items() if edge not in removed})


ASSERTED_EARLY: Final = ledger(("assert_applied",), (("indeterminate", "assert_applied"),))
ANY_STATUS: Final = ledger(
    ("call_applied", "call_refused", "reconcile_applied", "reconcile_failed", "didnt_happen"),
    (("indeterminate", "call_applied"), ("indeterminate", "reconcile_applied")),
)


# --- events ------------------------------------------------------------------------------------------


def last_write_wins(state: State, publications: tuple[Publication, ...], run: str, causes: tuple[Key, ...]) -> State:
    state = publish(state, publications, run, causes)
    written = {p.key: p for p in publications}

    def rewritten(event: Event) -> Event:
        new = written.get(event.key, event)
        return event._replace(title=new.title, payload=new.payload)

    return state._replace(events=tuple(rewritten(event) for event in state.events))


def reserve_unchecked(state: State, run: str, consumer: Declaration, keys: tuple[Key, ...]) -> State:
    return state._replace(
        events=tuple(e._replace(status="reserved", owner=run) if e.key in keys else e for e in state.events)
    )


def nobody_prepares(state: State, topic: str) -> bool:
    return False


def stopped_without_a_look(state: State, run: Run, status: EndStatus, message: str) -> tuple[State, Run]:
    after, ended = stopped(state, run, status, message)
    return after._replace(handlers=state.handlers), ended


def reject_leaves_inputs(state: State, command: c.Reject) -> Accepted:
    return altered(reject(state, command), events=state.events)


# --- phases, runs and sessions -----------------------------------------------------------------------

ORDER: Final[tuple[Phase, ...]] = (
    "pending", "preparing", "prepared", "mutating", "mutated", "emitting", "committed",
)  # fmt: skip
TARGET: Final = {trigger: phase for (_, trigger), phase in CONSUMER_PHASE.items()}


def any_later_phase(run: Run, trigger: str) -> Run:
    if run.kind == "producer" or trigger == "commit":
        return moved(run, trigger)
    require(ORDER.index(TARGET[trigger]) > ORDER.index(run.phase), "phase", run.phase)
    return run._replace(phase=TARGET[trigger])


def commit_from_anywhere(run: Run, trigger: str) -> Run:
    return run._replace(phase="committed") if trigger == "commit" else moved(run, trigger)


def commit_with_any_record(record: Mutation | None) -> bool:
    return True


def late_report_counts(state: State, command: c.EndRun) -> Accepted:
    run = live_run(state, command.run)
    if run.status == "active":
        return end_run(state, command)
    as_it_was = state._replace(run=run._replace(status="active"), session=Session(run.session, "open", 1, 0))
    return altered(end_run(as_it_was, command), session=state.session)


def dropped_when_spent(state: State, run: Run, cause: ErrorCause) -> State:
    blocked = block(state, run, cause)
    return blocked._replace(run=None, mutation=None) if cause == "transient" else blocked


def resume_clears_error(state: State, command: c.Resume) -> Accepted:
    return altered(resume(state, command), error=None)


def result_from_own_ledger(failed: Run, command: c.CreateRetry, version: str) -> Run:
    retry = retry_of(failed, command, version)
    return retry._replace(outcome="", result="") if failed.retry_of else retry


def repaired_run_is_retried(state: State, command: c.EndRun) -> Accepted:
    accepted = end_run(state, command)
    run = accepted.retired.run
    if run is None or run.kind == "producer" or run.status != "failed:logic":
        return accepted
    return altered(accepted, run=run)._replace(retired=accepted.retired._replace(run=None))


def always_completed(state: State, command: c.FinishSession) -> Accepted:
    accepted = finish_session(state, command)
    closed = accepted.retired.session
    completed = closed._replace(status="completed") if closed else None
    return accepted._replace(retired=accepted.retired._replace(session=completed))


def finish_under_a_run(state: State, command: c.FinishSession) -> Accepted:
    return altered(finish_session(state._replace(run=None), command), run=state.run)


def no_gate(state: State, now: int) -> None:
    """No condition."""


def run_beside_a_run(state: State, command: c.CreateRun) -> Accepted:
    return create_run(state._replace(run=None, mutation=None), command)


def never_abandoned(state: State, command: c.Abandon) -> Accepted:
    raise Refusal("not_after", command.run)


# --- the bugs of the time ----------------------------------------------------------------------------


def forgotten_after_logic_failure(state: State, command: c.EndRun) -> Accepted:
    accepted = end_run(state, command)
    run, record = accepted.state.run, accepted.state.mutation
    if run is None or run.status != "failed:logic":
        return accepted
    history = accepted.retired._replace(run=run, mutation=record)
    return altered(accepted, run=None, mutation=None)._replace(retired=history)


def status_first(state: State, command: c.EndRun) -> Accepted:
    return altered(end_run(state, command), events=state.events)


def events_later(state: State, command: c.StartSession) -> Accepted:
    owner = state.run.id if state.run else ""
    released = tuple(
        e._replace(status="pending", owner="") if e.status == "reserved" and e.owner != owner else e
        for e in state.events
    )
    return start_session(state._replace(events=released), command)


def dead_is_not_pending(state: State) -> Run | None:
    run = pending_retry(state)
    return None if run is not None and run.status == "failed:logic" else run


def transfer_nothing(state: State, retry: str) -> State:
    return state


def status_alone(state: State, command: c.EndRun) -> Accepted:
    end_run(state, command)
    _, ended = stopped(state, active_run(state, command.run), command.status, command.message)
    return accept(state._replace(run=ended), "RUN-007")


# --- the table ---------------------------------------------------------------------------------------

READINGS: Final[dict[str, Reading]] = {
    reading.name: reading
    for reading in (
        Reading(
            "phase-before-ledger",
            "D01",
            "A run in a phase before mutated is reset, and its inputs are released, before anybody asks the ledger.",
            (Swap(side, phase_first),),
            "INV-010",
            features=("crash",),
        ),
        Reading(
            "empty-outcome-retried",
            "D02",
            "A run that fails in mutated or emitting is to be retried unless its outcome is failure; "
            "the retry is refused unless a mutation is known to have happened.",
            (Swap(side, empty_is_after), Swap(retry_of, retry_of_known_outcome)),
            "INV-022",
            "no-mutate",
            features=("failures",),
        ),
        Reading(
            "indeterminate-forgotten",
            "D03",
            "Recovery looks for records in flight and for those that need reconcile, and for no others.",
            (Swap(boundary, indeterminate_is_before),),
            "INV-010",
            "no-reconcile",
            features=("crash",),
        ),
        Reading(
            "left-in-flight",
            "D04",
            "The end of a run leaves its record as it is, and reconcile looks for needs_reconcile only.",
            (Swap(end_uncertain, left_in_flight),),
            "INV-023",
            features=("crash",),
        ),
        Reading(
            "last-error-stands",
            "D05",
            "The workflow has one error text, and the last writer's stands.",
            (Swap(end_uncertain, last_error_stands),),
            "INV-023",
            caller="adversary",
        ),
        Reading(
            "reconnect-clears-all",
            "D05",
            "When the user has reconnected, the error is cleared, whatever it says.",
            (Swap(reconnect, reconnect_clears_all),),
            "INV-032",
            features=("probe",),
        ),
        Reading(
            "block-over-anything",
            "D05",
            "A host may set the error at any time, over an error that stands and under an active run.",
            (Swap(block_workflow, block_over_anything),),
            "INV-032",
            features=("manual",),
        ),
        Reading(
            "status-as-reported",
            "D06",
            "A run takes the status that is reported, and a logic failure sets maintenance, whatever the ledger says.",
            (Swap(end_uncertain, status_as_reported),),
            "INV-024",
            features=("failures",),
        ),
        Reading(
            "anybody-resolves",
            "D07",
            "Tool, reconciler and user may resolve a mutation, whether its run is active or over.",
            (Swap(require_author, anybody_speaks),),
            "INV-019",
            features=("probe",),
        ),
        Reading(
            "any-error-cleared",
            "D08",
            "Resolving a mutation clears the workflow's error, if one is set.",
            (Swap(clear_own_error, clear_any_error),),
            "INV-032",
            features=("manual",),
            needs=("block-over-anything",),
        ),
        Reading(
            "last-write-wins",
            "D09",
            "Publishing is deduplicated by id, and the last write wins.",
            (Swap(publish, last_write_wins),),
            "INV-013",
            features=("republish",),
        ),
        Reading(
            "any-later-phase",
            "D11",
            "A new phase must be later than the present one.",
            (Swap(moved, any_later_phase),),
            "INV-001",
            caller="adversary",
        ),
        Reading(
            "commit-from-anywhere",
            "D12",
            "A commit consumes, stores and ends, with no condition on phase or ledger.",
            (Swap(moved, commit_from_anywhere), Swap(may_commit, commit_with_any_record)),
            "INV-001",
            caller="adversary",
        ),
        Reading(
            "late-report-counts",
            "D13",
            "A status report is taken whatever the run's status is.",
            (Swap(end_run, late_report_counts),),
            "INV-003",
            features=("probe",),
        ),
        Reading(
            "failed-at-any-time",
            "D15",
            "When reconcile or a person says that the call did not happen, it did not happen.",
            (Swap(require_landed, any_time_will_do), Swap(reconciled, taken_at_its_word)),
            "INV-020",
            features=("late",),
        ),
        Reading(
            "asserted-before-given-up",
            "D16",
            "That a call was applied is accepted from in_flight and needs_reconcile, also from a person, "
            "and refused once it is indeterminate.",
            (Swap(MUTATION_STATUS, ASSERTED_EARLY),),
            "INV-019",
            features=("probe",),
        ),
        Reading(
            "retry-dropped-when-spent",
            "D17",
            "When the retries are spent, the scheduler gives up, and the pending retry with it.",
            (Swap(block, dropped_when_spent),),
            "INV-025",
            features=(
                "failures",
                "counts",
            ),
        ),
        Reading(
            "resume-clears-error",
            "D19",
            "To resume means to go on: the error is cleared.",
            (Swap(resume, resume_clears_error),),
            "INV-032",
            features=("pause",),
        ),
        Reading(
            "reserve-unchecked",
            "D20",
            "What prepare returns is reserved as it is, and a person may skip a pending event at any time.",
            (Swap(reserve, reserve_unchecked), Swap(preparing, nobody_prepares)),
            "INV-011",
            features=("probe",),
        ),
        Reading(
            "result-from-own-ledger",
            "D22",
            "A retry takes its result from the ledger record of the run that it retries.",
            (Swap(retry_of, result_from_own_ledger),),
            "INV-025",
            features=("failures",),
        ),
        Reading(
            "repaired-run-retried",
            "D23",
            "A run that failed by its logic is repaired and then retried.",
            (Swap(end_run, repaired_run_is_retried),),
            "INV-022",
            features=("failures",),
        ),
        Reading(
            "error-means-failed",
            "D24",
            "A call whose answer is an error has failed.",
            (Swap(lose_track, taken_for_a_refusal),),
            "INV-020",
        ),
        Reading(
            "always-completed",
            "D25",
            "A session none of whose runs is open is completed.",
            (Swap(finish_session, always_completed),),
            "INV-030",
            features=(
                "crash",
                "budget",
            ),
        ),
        Reading(
            "no-gate",
            "D28",
            "Whoever creates a run gets one; only the scheduler looks at the workflow first.",
            (Swap(require_gate, no_gate), Swap(create_run, run_beside_a_run)),
            "INV-004",
            features=("probe",),
        ),
        Reading(
            "released-wakes-nobody",
            "D29",
            "New events wake a consumer; the end of a run does not.",
            (Swap(stopped, stopped_without_a_look),),
            "INV-014",
        ),
        Reading(
            "never-abandoned",
            "D30",
            "A pending retry goes first until it commits.",
            (Swap(abandon, never_abandoned),),
            "LIVE-002",
            features=("failures", "redeploy"),
        ),
        Reading(
            "reject-leaves-inputs",
            "D31",
            "A refused approval ends the wait; its inputs stay as they are.",
            (Swap(reject, reject_leaves_inputs),),
            "LIVE-002",
            features=("approval",),
        ),
        Reading(
            "failed-for-free",
            "D32",
            "After a mutation that did not happen the scheduler goes on at once.",
            (Swap(failed, failed_for_free),),
            "INV-037",
        ),
        Reading(
            "finish-under-a-run",
            "D33",
            "A session can be finished at any time, since nobody decides by it.",
            (Swap(finish_session, finish_under_a_run),),
            "INV-029",
            caller="adversary",
        ),
        Reading(
            "any-unresolved-record",
            "D42",
            "Success is accepted of a record in flight or in need of reconcile, failure of any that is unresolved, "
            "whoever reports it.",
            (Swap(MUTATION_STATUS, ANY_STATUS),),
            "INV-019",
            features=("probe",),
        ),
        Reading(
            "mutate-again",
            "D54",
            "After a definite failure mutate runs again, under the same run identifier.",
            (Swap(record_mutation, mutate_again),),
            "INV-001",
            features=("probe",),
        ),
        Reading(
            "bug-logic-failure-orphans",
            "B1",
            "A logic failure after the mutation goes to maintenance, and nobody remembers that it must be retried.",
            (Swap(end_run, forgotten_after_logic_failure),),
            "INV-025",
            features=("failures",),
        ),
        Reading(
            "bug-two-writes",
            "B2",
            "The end of a run writes its status; its events are released by a later write, before the next session.",
            (Swap(end_run, status_first), Swap(start_session, events_later)),
            "INV-006",
        ),
        Reading(
            "bug-dead-run-holds",
            "B3",
            "Whether reserved events are given back is decided by the phase of the run that holds them: "
            "a dead run in emitting keeps them, and nobody takes it up.",
            (Swap(pending_retry, dead_is_not_pending),),
            "INV-005",
            features=("failures",),
        ),
        Reading(
            "bug-nothing-transferred",
            "B4",
            "A retry run is created, and the events stay reserved by the run that it retries.",
            (Swap(transfer, transfer_nothing),),
            "INV-006",
            features=("failures",),
        ),
        Reading(
            "bug-status-alone",
            "B5",
            "The host dies after the status was written and before anything else was, "
            "and recovery looks for active runs only.",
            (Swap(end_run, status_alone),),
            "INV-022",
        ),
    )
}

NOT_MODELLED: Final[dict[str, str]] = {
    "D10": "A person who can not try again can still skip, assert or deny: no property fails, only an edge is missing.",
    "D14": "Publications travel inside the commit; no command lets a run publish before it.",
    "D18": "Every command of a recovery is one transition, so there is no half of one to be cut off.",
    "D21": "Reservations are a list of events; an empty list per topic can not be told from none.",
    "D26": "Pausing moves the workflow's status; what is done to a script that runs is done by its host.",
    "D27": "One state is one workflow; that it leaves room for others is a matter between them.",
}
"""Decisions whose other choice this kernel can not be given by exchanging functions, and why."""
