"""What must always hold, as predicates that can be run on any runtime of the model.

An invariant looks at one step of one workflow (`Step`), at a state, or at a state beside what really happened
outside (`Ghost`). It gives the rows that break it; none means that it holds. Each has a `sometimes`: a predicate
that is true where the invariant is put to the test, so that a search can show that it did not hold for lack
of occasion.

The predicates are written from the law, not from the kernel: they use none of its tables and functions.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ..kernel import commands as c
from ..kernel.types import Accepted, Event, Handler, Key, Mutation, Outcome, Rejected, Repair, Run, Send, State


class Step(NamedTuple):
    """One command, and what became of it."""

    before: State
    command: c.Command
    outcome: Outcome
    after: State
    """What the runtime holds now; its own store says it, not the outcome."""


class Ghost(NamedTuple):
    """What really happened outside, which no runtime can see and only a test's world knows."""

    landed: tuple[Key, ...] = ()
    """The inputs of every call that took effect, once for each time."""
    wrongly_denied: frozenset[Key] = frozenset()
    """Inputs of calls of which a person said that they did not happen, and that did."""
    wrongly_asserted: frozenset[Key] = frozenset()
    """Inputs of calls of which a person said that they happened, and that did not."""


class Violation(NamedTuple):
    invariant: str
    rule: str
    text: str
    rows: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.invariant} ({self.rule}): {self.text}: {'; '.join(self.rows)}"


Rows = Iterator[str]

UNRESOLVED: Final = ("in_flight", "needs_reconcile", "indeterminate")
FINAL: Final = ("consumed", "skipped")


class Invariant(NamedTuple):
    """`broken` gives the offending rows of a subject; `sometimes` tells whether the subject is a test of it."""

    id: str
    rule: str
    text: str
    broken: Callable[[Any], Rows]
    sometimes: Callable[[Any], bool]


class Outside(NamedTuple):
    """The subject of invariants that compare a state with what really happened."""

    state: State
    ghost: Ghost


ON_STATES: Final[list[Invariant]] = []
ON_STEPS: Final[list[Invariant]] = []
ON_OUTSIDE: Final[list[Invariant]] = []


def invariant(
    kinds: list[Invariant], name: str, rule: str, text: str, sometimes: Callable[[Any], bool]
) -> Callable[[Callable[[Any], Rows]], Callable[[Any], Rows]]:
    """Register a predicate; its place in the list is its kind."""

    def register(broken: Callable[[Any], Rows]) -> Callable[[Any], Rows]:
        kinds.append(Invariant(name, rule, text, broken, sometimes))
        return broken

    return register


# --- reading a step ----------------------------------------------------------------------------------


def gone(step: Step) -> Run | None:
    """The run that left the state in this step, as it was before."""
    run = step.before.run
    if run is None or (step.after.run is not None and step.after.run.id == run.id):
        return None
    return run


def started(step: Step) -> Run | None:
    """The run that came into the state in this step."""
    run = step.after.run
    if run is None or (step.before.run is not None and step.before.run.id == run.id):
        return None
    return run


def kept(step: Step) -> tuple[Run, Run] | None:
    """The run that was there before and is there after, at both times."""
    before, after = step.before.run, step.after.run
    return (before, after) if before is not None and after is not None and before.id == after.id else None


def last_form(step: Step) -> Run | None:
    """The run of the state before, as it is after the step: still live, or as it went into history."""
    both = kept(step)
    if both:
        return both[1]
    return step.outcome.retired.run if gone(step) and isinstance(step.outcome, Accepted) else None


def last_record(step: Step) -> Mutation | None:
    """The same for its ledger record."""
    record = step.before.mutation
    if record is None or not isinstance(step.outcome, Accepted):
        return None
    after = step.after.mutation
    return after if after is not None and after.run == record.run else step.outcome.retired.mutation


def changed_events(step: Step) -> Iterator[tuple[Event, Event]]:
    if step.before.events is step.after.events or step.before.events == step.after.events:
        return
    before = {event.key: event for event in step.before.events}
    for event in step.after.events:
        was = before.get(event.key)
        if was is not None and was != event:
            yield was, event


def moved_events(step: Step, source: str, target: str) -> tuple[Event, ...]:
    """Events, as they were before, that went from one status to another in this step."""
    return tuple(was for was, now in changed_events(step) if (was.status, now.status) == (source, target))


def rows_by_name(state: State) -> dict[str, Handler]:
    return {row.declared.name: row for row in state.handlers}


def unresolved(state: State) -> bool:
    return state.mutation is not None and state.mutation.status in UNRESOLVED


def side(state: State) -> str:
    """Where the live run stands, written a second time from the law."""
    run = state.run
    if run is None:
        return ""
    if unresolved(state):
        return "UNCERTAIN"
    return "AFTER" if run.outcome in ("success", "skipped") else "BEFORE"


def is_active(run: Run | None) -> bool:
    return run is not None and run.status == "active"


# --- phase and status --------------------------------------------------------------------------------

PHASE_EDGES: Final = {
    "consumer": {
        ("pending", "preparing"),
        ("preparing", "prepared"),
        ("prepared", "mutating"),
        ("prepared", "emitting"),
        ("mutating", "mutated"),
        ("mutated", "emitting"),
        ("emitting", "committed"),
    },
    "producer": {("pending", "executing"), ("executing", "committed")},
}


@invariant(
    ON_STEPS,
    "INV-001",
    "PHASE-001",
    "a phase moves along its edges only, and on a run that is over only from mutating to mutated",
    sometimes=lambda s: isinstance(s.outcome, Rejected) and s.outcome.reason == "phase",
)
def phase_edges(step: Step) -> Rows:
    new = started(step)
    if new is not None and new.phase != ("emitting" if new.retry_of else "pending"):
        yield f"run {new.id} was created at {new.phase}"
    run, last = step.before.run, last_form(step)
    if run is None or last is None or run.phase == last.phase:
        return
    if (run.phase, last.phase) not in PHASE_EDGES[run.kind]:
        yield f"run {run.id}: {run.phase} to {last.phase}"
    if not is_active(run) and (run.phase, last.phase) != ("mutating", "mutated"):
        yield f"run {run.id} is over and went from {run.phase} to {last.phase}"


@invariant(
    ON_STEPS,
    "INV-002",
    "RUN-001",
    "a change of status leaves the phase alone, and the reverse; a commit moves both",
    sometimes=lambda s: isinstance(s.command, c.EndRun) and isinstance(s.outcome, Accepted),
)
def status_apart_from_phase(step: Step) -> Rows:
    run, last = step.before.run, last_form(step)
    if run is None or last is None:
        return
    if (last.status == "committed") != (last.phase == "committed"):
        yield f"run {run.id} is {last.status} in {last.phase}"
    elif last.status not in (run.status, "committed") and last.phase != run.phase:
        yield f"run {run.id}: {run.status}/{run.phase} to {last.status}/{last.phase}"


@invariant(
    ON_STEPS,
    "INV-003",
    "RUN-002",
    "a run that is over keeps its status",
    sometimes=lambda s: isinstance(s.outcome, Rejected) and s.outcome.reason == "run_not_active",
)
def over_is_over(step: Step) -> Rows:
    run, last = step.before.run, last_form(step)
    if run is not None and last is not None and not is_active(run) and last.status != run.status:
        yield f"run {run.id}: {run.status} to {last.status}"


@invariant(
    ON_STEPS,
    "INV-004",
    "RUN-005",
    "a run starts only when none is active, and leaves only when it is over, into history",
    sometimes=lambda s: isinstance(s.outcome, Rejected) and s.outcome.reason == "run_active",
)
def one_active_run(step: Step) -> Rows:
    new, old, last = started(step), gone(step), last_form(step)
    if new is not None and is_active(step.before.run):
        yield f"run {new.id} started beside {old.id if old else ''}"
    elif old is not None and last is None:
        yield f"run {old.id} left without a trace"
    elif old is not None and is_active(last):
        yield f"run {old.id} vanished while it was active"


@invariant(
    ON_STEPS,
    "INV-005",
    "SCHED-001",
    "a run starts only through an open gate, in an open session with budget left, a fresh one only without a retry",
    sometimes=lambda s: isinstance(s.outcome, Rejected) and s.outcome.rule == "SCHED-001",
)
def gate_holds(step: Step) -> Rows:
    new, was = started(step), step.before
    if new is None:
        return
    if was.status != "active":
        yield f"run {new.id} started while the workflow is {was.status}"
    if was.error is not None:
        yield f"run {new.id} started over an error ({was.error.kind})"
    if was.maintenance is not None:
        yield f"run {new.id} started during maintenance"
    if step.command.now < was.backoff_until:
        yield f"run {new.id} started at {step.command.now}, before {was.backoff_until}"
    if was.session is None or was.session.id != new.session or was.session.runs >= was.policy.session_runs:
        yield f"run {new.id} started without a session that has budget left"
    if not new.retry_of and was.run is not None and not is_active(was.run):
        yield f"run {new.id} started before the pending retry {was.run.id}"


# --- events ------------------------------------------------------------------------------------------


@invariant(
    ON_STATES,
    "INV-006",
    "EVENT-003",
    "a reserved event belongs to the live run",
    sometimes=lambda s: s.run is not None and not is_active(s.run) and any(e.status == "reserved" for e in s.events),
)
def reserved_has_owner(state: State) -> Rows:
    for event in state.events:
        if event.status == "reserved" and (state.run is None or event.owner != state.run.id):
            yield f"event {event.key.topic}/{event.key.id} is reserved by {event.owner}, which is not live"


@invariant(
    ON_STEPS,
    "INV-007",
    "EVENT-006",
    "an event is consumed only by the commit of its owner, or by a person who abandons it",
    sometimes=lambda s: isinstance(s.command, c.Abandon) and bool(moved_events(s, "reserved", "consumed")),
)
def consumed_by_commit(step: Step) -> Rows:
    taken = [was for was, now in changed_events(step) if now.status == "consumed" != was.status]
    if not taken:
        return
    command, last = step.command, last_form(step)
    by = command.run if isinstance(command, c.CommitConsumer | c.Abandon) else ""
    if isinstance(command, c.CommitConsumer) and (last is None or last.status != "committed"):
        by = ""
    for event in taken:
        if event.status == "pending" or not by or event.owner != by:
            yield f"event {event.key.id} ({event.status}, owner {event.owner or 'nobody'}) is consumed"


@invariant(
    ON_STEPS,
    "INV-008",
    "EVENT-001",
    "consumed and skipped are final",
    sometimes=lambda s: any(e.status in FINAL and e.key in published(s.command) for e in s.before.events),
)
def finals_stay(step: Step) -> Rows:
    for was, now in changed_events(step):
        if was.status in FINAL and now.status != was.status:
            yield f"event {was.key.id}: {was.status} to {now.status}"


@invariant(
    ON_STEPS,
    "INV-009",
    "USER-001",
    "only a person skips: an event nobody has taken, a rejected request's, or all those of a mutation given up",
    sometimes=lambda s: isinstance(s.command, c.SkipMutation) and isinstance(s.outcome, Accepted),
)
def skipped_by_person(step: Step) -> Rows:
    for was, now in changed_events(step):
        if now.status != "skipped" or was.status in FINAL:
            continue
        allowed: tuple[type, ...] = (c.SkipEvent, c.Reject) if was.status == "pending" else (c.SkipMutation,)
        if not isinstance(step.command, allowed):
            yield f"event {was.key.id} ({was.status}) is skipped by {type(step.command).__name__}"
    if isinstance(step.command, c.SkipMutation) and isinstance(step.outcome, Accepted):
        left = (event for event in step.after.events if event.status == "reserved")
        yield from (f"event {event.key.id} stays reserved when its mutation is skipped" for event in left)


@invariant(
    ON_STEPS,
    "INV-010",
    "BOUND-005",
    "inputs go back to pending only when their mutation is known not to have happened",
    sometimes=lambda s: bool(moved_events(s, "reserved", "pending")) and s.before.mutation is not None,
)
def released_only_before(step: Step) -> Rows:
    back = moved_events(step, "reserved", "pending")
    if not back:
        return
    where = side(step.before)
    record = last_record(step)
    known = record is not None and record.status == "failed" and record.resolved_by != "user_skip"
    if where == "AFTER" or (where == "UNCERTAIN" and not known):
        yield from (f"event {event.key.id} is released while its run is {where}" for event in back)


@invariant(
    ON_STEPS,
    "INV-011",
    "EVENT-004",
    "a run reserves the pending events of its topics that it names, each once, and they stay its own until it ends or "
    "its mutation is resolved",
    sometimes=lambda s: any(e.status == "reserved" and e.key in published(s.command) for e in s.before.events),
)
def reservations_fixed(step: Step) -> Rows:
    both = kept(step)
    if both is None:
        return
    before, after = both
    if before.phase in ("pending", "preparing"):
        if before.reserved != after.reserved:
            yield from unfit_to_reserve(step.before, after)
            for event in step.after.events:
                if event.status == "pending" and event.key in after.reserved:
                    yield f"run {after.id} names event {event.key.id}, which it does not hold"
        taken = {event.key for event in moved_events(step, "pending", "reserved")}
        yield from (
            f"run {after.id} holds event {key.id}, which it did not name" for key in sorted(taken - {*after.reserved})
        )
        return
    if before.reserved != after.reserved:
        yield f"run {before.id} reserved {before.reserved}, now {after.reserved}"
    if is_active(before) != is_active(after) or (unresolved(step.before) and not unresolved(step.after)):
        return
    for was, now in changed_events(step):
        if was.status == "reserved" and (now.status, now.owner) != (was.status, was.owner):
            yield f"event {was.key.id} left run {before.id}: {now.status}"


def unfit_to_reserve(state: State, run: Run) -> Rows:
    pending = {event.key for event in state.events if event.status == "pending"}
    topics = rows_by_name(state)[run.handler].declared.subscribes
    for key in sorted(set(run.reserved)):
        if key not in pending or key.topic not in topics:
            yield f"run {run.id} reserved event {key.topic}/{key.id}, which it can not have"
    if len(set(run.reserved)) < len(run.reserved):
        yield f"run {run.id} reserved an event twice"


def published(command: c.Command) -> tuple[Key, ...]:
    if isinstance(command, c.CommitConsumer | c.CommitProducer):
        return tuple(p.key for p in command.publications)
    return (command.publication.key,) if isinstance(command, c.Publish) else ()


@invariant(
    ON_STEPS,
    "INV-012",
    "EVENT-007",
    "a published event is never lost: every step keeps all events and numbers new ones in order; what a publish or a "
    "commit brings is there, and nothing else is new",
    sometimes=lambda s: len(s.after.events) > len(s.before.events),
)
def events_never_lost(step: Step) -> Rows:
    if isinstance(step.command, c.Publish) and isinstance(step.outcome, Accepted):
        key = step.command.publication.key
        if all(event.key != key for event in step.after.events):
            yield f"event {key.id} was published, and is not there"
    if step.before.events is step.after.events and step.before.next_seq == step.after.next_seq:
        return
    after = {event.key: event for event in step.after.events}
    before = {event.key: event for event in step.before.events}
    for key, was in before.items():
        if key not in after:
            yield f"event {key.id} ({was.status}) is gone"
        elif after[key].seq != was.seq:
            yield f"event {key.id}: number {was.seq} to {after[key].seq}"
    new = {event.seq: key for key, event in after.items() if key not in before}
    if sorted(new) != list(range(step.before.next_seq, step.after.next_seq)):
        yield f"new events are numbered {sorted(new)}, the counter went {step.before.next_seq} to {step.after.next_seq}"
    for key in new.values():
        if key not in published(step.command):
            yield f"event {key.id} came with {type(step.command).__name__}, which does not publish it"


@invariant(
    ON_STEPS,
    "INV-013",
    "EVENT-010",
    "title and payload of an event change only while it is pending, by a publish; it comes from the run that commits "
    "it and from that run's inputs, or from nowhere, and this never changes",
    sometimes=lambda s: any(e.status == "reserved" and e.key in published(s.command) for e in s.before.events),
)
def content_fixed(step: Step) -> Rows:
    for was, now in changed_events(step):
        if (was.title, was.payload) != (now.title, now.payload) and (
            was.status != "pending" or was.key not in published(step.command)
        ):
            yield f"event {was.key.id} ({was.status}) was rewritten"
        if (was.created_by, was.causes) != (now.created_by, now.causes):
            yield f"event {was.key.id} has another origin"
    both = kept(step)
    if both is not None and (both[0].causes, both[0].reserved) != (both[1].causes, both[1].reserved):
        was_run, run = both
        expected = roots(step.before, run) if was_run.phase in ("pending", "preparing") else was_run.causes
        if run.causes != expected:
            yield f"run {run.id} has the causes {run.causes}, and not those of its inputs"
    if not published(step.command):
        return
    there, last = {event.key for event in step.before.events}, last_form(step)
    origin = ("", ()) if last is None or isinstance(step.command, c.Publish) else (last.id, last.causes)
    for event in step.after.events:
        if event.key not in there and (event.created_by, event.causes) != origin:
            yield f"event {event.key.id} is said to come from {event.created_by or 'nowhere'} and {event.causes}"


@invariant(
    ON_STEPS,
    "INV-014",
    "SCHED-005",
    "inputs that are released wake their consumer, now or at the end of the run that still holds them",
    sometimes=lambda s: bool(moved_events(s, "reserved", "pending")) and not is_active(s.after.run),
)
def released_wakes(step: Step) -> Rows:
    if is_active(step.after.run):
        return
    for event in moved_events(step, "reserved", "pending"):
        for row in step.after.handlers:
            if event.key.topic in row.declared.subscribes and not row.dirty:
                yield f"event {event.key.id} is pending again and {row.declared.name} is not dirty"


def roots(state: State, run: Run) -> tuple[Key, ...]:
    """The root inputs behind what a run reserved, in order of publication (EVENT-011)."""
    inputs = sorted((event for event in state.events if event.key in run.reserved), key=lambda event: event.seq)
    return tuple(dict.fromkeys(root for event in inputs for root in event.causes or (event.key,)))


# --- the ledger --------------------------------------------------------------------------------------

LEDGER_EDGES: Final = {
    ("pending", "in_flight"),
    ("pending", "failed"),
    ("in_flight", "applied"),
    ("in_flight", "failed"),
    ("in_flight", "needs_reconcile"),
    ("in_flight", "indeterminate"),
    ("needs_reconcile", "applied"),
    ("needs_reconcile", "failed"),
    ("needs_reconcile", "indeterminate"),
    ("indeterminate", "needs_reconcile"),
    ("indeterminate", "failed"),
    ("indeterminate", "applied"),
}


@invariant(
    ON_STEPS,
    "INV-015",
    "MUT-001",
    "a ledger record moves along its edges only, and leaves only when it is applied or failed",
    sometimes=lambda s: isinstance(s.outcome, Rejected) and s.outcome.reason == "mutation_edge",
)
def ledger_edges(step: Step) -> Rows:
    record, last = step.before.mutation, last_record(step)
    if record is None or not isinstance(step.outcome, Accepted):
        return
    if last is None:
        yield f"the record of run {record.run} ({record.status}) is gone"
        return
    if last.status != record.status and (record.status, last.status) not in LEDGER_EDGES:
        yield f"record of run {record.run}: {record.status} to {last.status}"
    if step.after.mutation is None and last.status not in ("applied", "failed"):
        yield f"record of run {record.run} left while it was {last.status}"


@invariant(
    ON_STEPS,
    "INV-016",
    "MUT-002",
    "one record per run: it is made by the active run in mutating, and what it says of the call never changes",
    sometimes=lambda s: isinstance(s.command, c.RecordMutation) and s.before.mutation is not None,
)
def one_record(step: Step) -> Rows:
    record, new = step.before.mutation, step.after.mutation
    if new is None or new is record:
        return
    if record is None or record.run != new.run:
        run = step.before.run
        if run is None or run.id != new.run or not is_active(run) or run.phase != "mutating":
            yield f"a record of run {new.run} appeared outside an active run in mutating"
    elif call_of(record) != call_of(new):
        yield f"record of run {record.run} changed from {call_of(record)} to {call_of(new)}"


def call_of(record: Mutation) -> tuple[object, ...]:
    return record.tool, record.params, record.digest, record.key, record.send_by, record.may_land_until


@invariant(
    ON_STATES,
    "INV-017",
    "MUT-003",
    "the ledger record in the state is the live run's own",
    sometimes=lambda s: s.mutation is not None,
)
def record_has_run(state: State) -> Rows:
    if state.mutation is not None and (state.run is None or state.run.id != state.mutation.run):
        yield f"record of run {state.mutation.run} beside run {state.run.id if state.run else 'none'}"


@invariant(
    ON_STEPS,
    "INV-018",
    "MUT-005",
    "a call is sent only by send_mutation of an active run in mutating, in time, once, granted and approved",
    sometimes=lambda s: isinstance(s.outcome, Rejected) and s.outcome.reason == "send_by_passed",
)
def sends_are_lawful(step: Step) -> Rows:
    if not isinstance(step.outcome, Accepted):
        return
    for effect in step.outcome.effects:
        if isinstance(effect, Send):
            yield from unlawful_send(step, effect)


def unlawful_send(step: Step, effect: Send) -> Rows:
    was, record, run = step.before, step.before.mutation, step.before.run
    if run is None or record is None or effect.run != run.id or record.status != "pending":
        yield f"run {effect.run} sends without a record of its own that was not sent"
        return
    if not isinstance(step.command, c.SendMutation) or not is_active(run) or run.phase != "mutating":
        yield f"run {effect.run} ({run.status}, {run.phase}) sends at {type(step.command).__name__}"
    if step.command.now > record.send_by or effect.send_by != record.send_by:
        yield f"run {effect.run} sends at {step.command.now}, after {record.send_by}"
    mode = {grant.tool: grant.mode for grant in was.grants}.get(effect.tool)
    approved = [a for a in was.approvals if (a.tool, a.digest, a.events) == (record.tool, record.digest, run.reserved)]
    if mode is None or (mode == "ask" and not approved):
        yield f"run {effect.run} sends {effect.tool}, which is granted: {mode}"
    if any(a in step.after.approvals for a in approved):
        yield f"the approval of {effect.tool} is not used up"
    if step.after.mutation is None or step.after.mutation.status != "in_flight":
        yield f"run {effect.run} sends and its record does not say so"


@invariant(
    ON_STEPS,
    "INV-019",
    "MUT-008",
    "the call and its inline reconcile speak while the run is active, people and the background when it is over: "
    "the call of what is in flight, reconcile of needs_reconcile, people of indeterminate",
    sometimes=lambda s: isinstance(s.outcome, Rejected) and s.outcome.reason == "author",
)
def author_matches(step: Step) -> Rows:
    who, run, record = speaker(step.command), step.before.run, step.before.mutation
    if not who or run is None or not isinstance(step.outcome, Accepted):
        return
    if is_active(run) != (who in ("call", "inline")):
        yield f"{who} speaks of run {run.id}, which is {run.status}"
    if record is None or record.status != SPEAKS_OF[who]:
        yield f"{who} speaks of run {run.id}, whose record is {record.status if record else 'missing'}"


SPEAKS_OF: Final = {
    "call": "in_flight",
    "inline": "needs_reconcile",
    "reconcile": "needs_reconcile",
    "person": "indeterminate",
}


def speaker(command: c.Command) -> str:
    """Who says with this command what became of a call; empty when it says nothing of the kind."""
    if isinstance(command, c.ApplyMutation | c.FailMutation | c.ReconcileRetry):
        return command.by
    if isinstance(command, c.Exhaust):
        return "reconcile"
    return "person" if isinstance(command, c.TryAgain | c.DidntHappen | c.SkipMutation | c.AssertApplied) else ""


@invariant(
    ON_STEPS,
    "INV-020",
    "MUT-009",
    "nobody declares a sent call failed while it may still land, but its target or who voided its key",
    sometimes=lambda s: isinstance(s.outcome, Rejected) and s.outcome.reason == "too_early",
)
def failed_in_time(step: Step) -> Rows:
    record, last = step.before.mutation, last_record(step)
    if record is None or last is None or last.status != "failed" or record.status == "failed":
        return
    command = step.command
    seen_at = command.now
    if isinstance(command, c.FailMutation):
        if command.by == "call" or command.voided:
            return
        seen_at = command.asked_at
    if last.resolved_by not in ("never_sent", "user_skip") and seen_at < record.may_land_until:
        yield f"run {record.run}: called failed by a look at {seen_at}, and may land until {record.may_land_until}"


@invariant(
    ON_STATES,
    "INV-021",
    "MUT-010",
    "outcome and ledger agree on the run that owns the record",
    sometimes=lambda s: s.run is not None and s.run.outcome == "skipped" and s.mutation is not None,
)
def outcome_matches_ledger(state: State) -> Rows:
    run, record = state.run, state.mutation
    if run is None or (record is None and run.retry_of):
        return
    expected = ""
    if record is not None and record.status == "applied":
        expected = "success"
    elif record is not None and record.status == "failed" and record.resolved_by != "never_sent":
        expected = "skipped" if record.resolved_by == "user_skip" else "failure"
    if run.outcome != expected:
        yield f"run {run.id}: outcome {run.outcome or 'empty'}, ledger says {expected or 'empty'}"


# --- the boundary ------------------------------------------------------------------------------------


@invariant(
    ON_STATES,
    "INV-022",
    "BOUND-004",
    "the pending retry is past its mutation, or uncertain, and it has not committed",
    sometimes=lambda s: s.run is not None and not is_active(s.run),
)
def retry_is_after(state: State) -> Rows:
    run = state.run
    if run is None or is_active(run):
        return
    if side(state) == "BEFORE":
        yield f"run {run.id} ({run.status}, {run.phase}) is pending retry and BEFORE"
    if run.status == "committed":
        yield f"run {run.id} has committed, and is pending retry"


@invariant(
    ON_STATES,
    "INV-023",
    "BOUND-006",
    "an unresolved mutation of a run that is over blocks the workflow, and somebody is asked about it",
    sometimes=lambda s: unresolved(s) and not is_active(s.run),
)
def unresolved_blocks(state: State) -> Rows:
    record, run = state.mutation, state.run
    if record is None or run is None or is_active(run) or not unresolved(state):
        return
    if state.error is None or (state.error.kind, state.error.run) != ("uncertain", run.id):
        stands = (
            "there is no error" if state.error is None else f"the error is {state.error.kind}, of run {state.error.run}"
        )
        yield f"record of run {run.id} is {record.status} and {stands}"
    if record.status == "in_flight":
        yield f"record of run {run.id} is in_flight and nobody will ask about it"
    if run.status != "paused:reconciliation":
        yield f"run {run.id} is {run.status} with a record {record.status}"


@invariant(
    ON_STEPS,
    "INV-024",
    "BOUND-006",
    "an unresolved mutation never goes to repair",
    sometimes=lambda s: isinstance(s.command, c.EndRun) and s.command.status == "failed:logic" and unresolved(s.before),
)
def unresolved_is_not_repaired(step: Step) -> Rows:
    if not unresolved(step.after):
        return
    if step.after.maintenance is not None:
        yield f"maintenance over the record of run {step.after.mutation.run if step.after.mutation else ''}"
    if isinstance(step.outcome, Accepted) and any(isinstance(e, Repair) for e in step.outcome.effects):
        yield "a repair is asked for over an unresolved record"


@invariant(
    ON_STEPS,
    "INV-025",
    "RETRY-002",
    "after an application or a skip the run keeps what it knows, and leaves only by its commit, by a retry that knows "
    "all it knew, or abandoned",
    sometimes=lambda s: isinstance(s.command, c.CreateRetry) and isinstance(s.outcome, Accepted),
)
def next_runs_once(step: Step) -> Rows:
    run, last, new = step.before.run, last_form(step), started(step)
    if run is None or not past_mutation(step):
        return
    if not gone(step):
        if side(step.before) == "AFTER" and last is not None and known_to(last) != known_to(run):
            yield f"run {run.id} does not know any more what it knew"
    elif new is not None and not is_active(run):
        if new.retry_of != run.id or known_to(new) != known_to(run):
            yield f"run {new.id} takes over from {run.id} and does not know what it knew"
    elif last is None or not (last.status == "committed" or last.abandoned):
        yield f"run {run.id} left after its mutation, neither committed nor abandoned"


def past_mutation(step: Step) -> bool:
    """Whether `next` is owed: the run was AFTER its mutation, or its mutation is applied or skipped in this step."""
    record = last_record(step)
    settled = record is not None and (record.status == "applied" or record.resolved_by == "user_skip")
    return settled or side(step.before) == "AFTER"


def known_to(run: Run) -> tuple[object, ...]:
    return run.handler, run.reserved, run.causes, run.data, run.title, run.outcome, run.result


# --- commit, handlers, sessions, workflow ------------------------------------------------------------


@invariant(
    ON_STEPS,
    "INV-026",
    "COMMIT-002",
    "a commit is one step: status, consumption of all inputs, publications and the session's count move together",
    sometimes=lambda s: isinstance(s.command, c.CommitConsumer) and bool(moved_events(s, "reserved", "consumed")),
)
def commit_is_one_step(step: Step) -> Rows:
    last = last_form(step)
    if last is None or last.status != "committed":
        return
    for event in step.after.events:
        if (event.status == "reserved" and event.owner == last.id) or (
            event.key in last.reserved and event.status not in FINAL
        ):
            yield f"run {last.id} committed, and its event {event.key.id} is {event.status}"
    before, after = step.before.session, step.after.session
    if before is None or after is None or after.commits != before.commits + 1:
        yield f"run {last.id} committed and its session does not count it"
    there = {event.key for event in step.after.events}
    yield from (
        f"run {last.id} committed without event {key.id}" for key in published(step.command) if key not in there
    )


@invariant(
    ON_STEPS,
    "INV-027",
    "COMMIT-001",
    "a run goes on to next, and commits, only without a record, or with its own record applied",
    sometimes=lambda s: isinstance(s.command, c.CommitConsumer) and s.before.mutation is not None,
)
def commit_needs_ledger(step: Step) -> Rows:
    run, last, record = step.before.run, last_form(step), step.before.mutation
    if run is None or last is None or record is None or record.status == "applied":
        return
    if last.phase != run.phase and last.phase in ("emitting", "committed"):
        yield f"run {last.id} is {last.phase} with a record that is {record.status}"


@invariant(
    ON_STEPS,
    "INV-028",
    "COMMIT-004",
    "a handler's state is what its last commit returned, and changes at no other time; handlers go by a deploy alone",
    sometimes=lambda s: isinstance(s.command, c.CommitConsumer) and s.command.state is not None,
)
def handler_state_at_commit(step: Step) -> Rows:
    command, after, last = step.command, rows_by_name(step.after), last_form(step)
    returned = command.state if isinstance(command, c.CommitConsumer | c.CommitProducer) else None
    for name, row in rows_by_name(step.before).items():
        now = after.get(name)
        if now is None or now.declared.kind != row.declared.kind:
            if not isinstance(command, c.Deploy):
                yield f"handler {name} is gone"
            continue
        commits = returned is not None and last is not None and (last.status, last.handler) == ("committed", name)
        expected = returned if commits else row.state
        if now.state != expected:
            yield f"handler {name}: state {now.state or 'empty'}, should be {expected or 'empty'}"


@invariant(
    ON_STATES,
    "INV-029",
    "SESS-003",
    "an active run's session is open, and no other",
    sometimes=lambda s: is_active(s.run),
)
def session_is_open(state: State) -> Rows:
    run = state.run
    if run is not None and is_active(run) and (state.session is None or state.session.id != run.session):
        yield f"run {run.id} is active, its session {run.session} is not open"


@invariant(
    ON_STEPS,
    "INV-030",
    "SESS-005",
    "a session closes before the next one opens: completed if it has a commit and no run failed in it, else failed",
    sometimes=lambda s: isinstance(s.command, c.FinishSession) and isinstance(s.outcome, Accepted),
)
def session_verdict(step: Step) -> Rows:
    session = step.before.session
    if session is None or not isinstance(step.outcome, Accepted):
        return
    if step.after.session is not None:
        if step.after.session.id != session.id:
            yield f"session {session.id} did not close, and {step.after.session.id} is open"
        return
    closed = step.outcome.retired.session
    good = isinstance(step.command, c.FinishSession) and session.commits > 0
    expected = "completed" if good else "failed"
    if closed is None or closed.id != session.id or closed.status != expected:
        yield f"session {session.id} should close as {expected}, closed as {closed.status if closed else 'nothing'}"


@invariant(
    ON_STEPS,
    "INV-031",
    "WORK-001",
    "the workflow's status moves by the user's hand alone",
    sometimes=lambda s: s.before.status != s.after.status,
)
def status_by_user(step: Step) -> Rows:
    if step.before.status == step.after.status:
        return
    edges: dict[type, set[tuple[str, str]]] = {
        c.Deploy: {("draft", "ready")},
        c.Resume: {("ready", "active"), ("paused", "active")},
        c.Pause: {("active", "paused")},
    }
    if (step.before.status, step.after.status) not in edges.get(type(step.command), set()):
        yield f"{type(step.command).__name__}: workflow {step.before.status} to {step.after.status}"


@invariant(
    ON_STEPS,
    "INV-032",
    "WORK-002",
    "an error is cleared only by what answers it, and uncertain is never overwritten",
    sometimes=lambda s: s.before.error is not None and s.before.error.kind == "uncertain" and s.before != s.after,
)
def error_is_answered(step: Step) -> Rows:
    error = step.before.error
    if error is None or step.after.error == error:
        return
    now = step.after.error
    # A resolution may be the last failure in a row, which blocks (FAIL-006).
    blocked_at_once = error.kind == "uncertain" and now is not None and (now.kind, now.run) == ("blocked", error.run)
    if now is not None and not blocked_at_once:
        yield f"error {error.kind}/{error.cause} of run {error.run or 'none'} was replaced by {now.kind}/{now.cause}"
    elif not answers(step, error.kind, error.cause):
        yield f"{type(step.command).__name__} cleared {error.kind}/{error.cause} of run {error.run or 'none'}"


def answers(step: Step, kind: str, cause: str) -> bool:
    command, error = step.command, step.before.error
    if kind == "uncertain":
        return unresolved(step.before) and not unresolved(step.after)
    if kind == "internal":
        return isinstance(command, c.ClearError)
    if kind == "blocked":
        return isinstance(command, c.Retry | (c.Deploy if cause == "logic" else c.ClearError))
    if cause == "auth":
        return isinstance(command, c.Reconnect)
    if cause == "permission":
        return isinstance(command, c.Grant) and error is not None and command.tool == error.tool
    return isinstance(command, c.Approve | c.Reject)


@invariant(
    ON_STEPS,
    "INV-033",
    "FAIL-004",
    "a logic failure and its maintenance are one step, and no other end of a run enters maintenance",
    sometimes=lambda s: isinstance(s.outcome, Accepted) and s.before.maintenance is None is not s.after.maintenance,
)
def logic_means_maintenance(step: Step) -> Rows:
    if not isinstance(step.command, c.EndRun) or not isinstance(step.outcome, Accepted):
        return
    last, maintenance = last_form(step), step.after.maintenance
    if last is None:
        return
    if last.status == "failed:logic" and (maintenance is None or maintenance.run != last.id):
        yield f"run {last.id} failed by its logic, maintenance is {maintenance}"
    if last.status != "failed:logic" and maintenance != step.before.maintenance:
        yield f"run {last.id} is {last.status} and entered maintenance"


@invariant(
    ON_STEPS,
    "INV-037",
    "FAIL-006",
    "a mutation found not to have happened costs its handler one transient failure, when its run leaves",
    sometimes=lambda s: isinstance(s.command, c.DidntHappen) and isinstance(s.outcome, Accepted),
)
def not_happening_costs(step: Step) -> Rows:
    run, record = gone(step), last_record(step)
    if run is None or record is None or record.status != "failed":
        return
    if record.resolved_by not in ("inline", "reconcile", "user_assert_failed"):
        return
    before, after = rows_by_name(step.before).get(run.handler), rows_by_name(step.after).get(run.handler)
    if before is not None and after is not None and before.declared.kind == run.kind:
        cost = after.transient_failures - before.transient_failures
        if cost != 1:
            yield f"run {run.id}: the mutation did not happen, and handler {run.handler} is charged {cost} times"


@invariant(
    ON_STEPS,
    "INV-034",
    "STEP-002",
    "a rejected command changes nothing, and an accepted one changes what it says and nothing else",
    sometimes=lambda s: isinstance(s.outcome, Rejected),
)
def all_or_nothing(step: Step) -> Rows:
    if isinstance(step.outcome, Rejected):
        if step.after != step.before:
            yield f"rejected with {step.outcome.reason}, and the state changed"
    elif step.after != step.outcome.state or step.after.workflow != step.before.workflow:
        yield "what is held is not what was accepted"


# --- the ways of a run ---------------------------------------------------------------------------------


@invariant(
    ON_STEPS,
    "INV-038",
    "PHASE-005",
    "a prepared run with inputs and a mutate mutates, any other emits; mutate ends resolved, or without a record",
    sometimes=lambda s: isinstance(s.command, c.Emitting) and s.before.run is not None and not s.before.run.reserved,
)
def phase_choice(step: Step) -> Rows:
    both = kept(step)
    if both is None or both[0].phase == both[1].phase:
        return
    run, after = both
    row = rows_by_name(step.before).get(run.handler)
    if run.phase == "prepared" and row is not None:
        expected = "mutating" if run.reserved and row.declared.has_mutate else "emitting"
        if after.phase != expected:
            yield f"run {run.id}: prepared to {after.phase}, should be {expected}"
    record = last_record(step)
    if run.phase == "mutating" and record is not None and record.status not in ("applied", "failed"):
        yield f"run {run.id} is {after.phase}, and its record is {record.status}"


@invariant(
    ON_STEPS,
    "INV-039",
    "MUT-010",
    "outcome and ledger agree also on what goes into history",
    sometimes=lambda s: (
        isinstance(s.outcome, Accepted)
        and s.outcome.retired.mutation is not None
        and s.outcome.retired.mutation.status == "failed"
    ),
)
def history_agrees(step: Step) -> Rows:
    if isinstance(step.outcome, Accepted) and step.outcome.retired.mutation is not None:
        run, record, _ = step.outcome.retired
        yield from outcome_matches_ledger(step.after._replace(run=run, mutation=record))


@invariant(
    ON_STEPS,
    "INV-040",
    "RUN-007",
    "a run ends as reported, with the error of that status, or paused for reconciliation just when it is uncertain",
    sometimes=lambda s: isinstance(s.command, c.EndRun) and s.command.status == "crashed" and unresolved(s.before),
)
def ends_as_reported(step: Step) -> Rows:
    last = last_form(step)
    if not isinstance(step.command, c.EndRun) or not isinstance(step.outcome, Accepted) or last is None:
        return
    uncertain = side(step.before) == "UNCERTAIN"
    expected = "paused:reconciliation" if uncertain else step.command.status
    if last.status != expected or (last.status == "paused:reconciliation") != uncertain:
        yield f"run {last.id} is {last.status}, reported as {step.command.status}, {side(step.before)}"
    kind = ERROR_OF.get(last.status)
    if kind is not None and (
        step.after.error is None or (step.after.error.kind, step.after.error.run) != (kind, last.id)
    ):
        yield f"run {last.id} is {last.status}, and no {kind} error says so"


ERROR_OF: Final = {"failed:internal": "internal", "paused:approval": "approval"}


@invariant(
    ON_STEPS,
    "INV-041",
    "PERM-004",
    "a call is approved or rejected only as the standing request says, and a tool is granted by a grant alone",
    sometimes=lambda s: isinstance(s.command, c.Approve) and isinstance(s.outcome, Accepted),
)
def permitted_by_person(step: Step) -> Rows:
    before, after, command = step.before, step.after, step.command
    request = before.error.request if before.error is not None else None
    for approval in after.approvals:
        if approval not in before.approvals and not (isinstance(command, c.Approve) and approval == request):
            yield f"{approval.tool} is approved by {type(command).__name__}, and nobody was asked"
    if isinstance(command, c.Reject):
        for event in moved_events(step, "pending", "skipped"):
            if request is None or event.key not in request.events:
                yield f"event {event.key.id} is skipped, and the request was not about it"
    if after.grants != before.grants and not isinstance(command, c.Grant):
        yield f"grants are changed by {type(command).__name__}"


@invariant(
    ON_STEPS,
    "INV-042",
    "RUN-009",
    "a run is of the version deployed at its creation, and stays what it was created as; none is deployed under it",
    sometimes=lambda s: started(s) is not None,
)
def run_stays_itself(step: Step) -> Rows:
    new, run, last = started(step), step.before.run, last_form(step)
    if new is not None and new.version != step.before.version:
        yield f"run {new.id} is of version {new.version}, and {step.before.version} is deployed"
    if run is None or last is None:
        return
    if created_as(last) != created_as(run):
        yield f"run {run.id} was created as {created_as(run)}, now {created_as(last)}"
    if is_active(run) and step.after.version != step.before.version:
        yield f"version {step.after.version} is deployed under run {run.id}"


def created_as(run: Run) -> tuple[object, ...]:
    return run.handler, run.kind, run.session, run.version, run.retry_of, run.created_at


# --- beside what really happened ---------------------------------------------------------------------


@invariant(
    ON_OUTSIDE,
    "INV-035",
    "MUT-009",
    "no input is applied twice outside, unless a person wrongly said that it did not happen",
    sometimes=lambda o: bool(o.ghost.landed) and unresolved(o.state),
)
def applied_once(outside: Outside) -> Rows:
    landed, denied = outside.ghost.landed, outside.ghost.wrongly_denied
    for key in sorted(set(landed)):
        if landed.count(key) > 1 and key not in denied:
            yield f"event {key.id} was applied {landed.count(key)} times"


@invariant(
    ON_OUTSIDE,
    "INV-036",
    "MUT-016",
    "what is called a success happened, unless a person wrongly said that it did",
    sometimes=lambda o: o.state.run is not None and o.state.run.outcome == "success",
)
def success_is_true(outside: Outside) -> Rows:
    run = outside.state.run
    if run is None or run.outcome != "success":
        return
    for key in run.reserved:
        if key not in outside.ghost.landed and key not in outside.ghost.wrongly_asserted:
            yield f"run {run.id} says success, and the call for event {key.id} never happened"


# --- asking --------------------------------------------------------------------------------------------

INVARIANTS: Final = {i.id: i for i in sorted((*ON_STATES, *ON_STEPS, *ON_OUTSIDE), key=lambda i: i.id)}


def violations(kinds: list[Invariant], subject: State | Step | Outside) -> tuple[Violation, ...]:
    """The invariants of one kind that a subject breaks."""
    broken = [(i, rows) for i in kinds if (rows := tuple(i.broken(subject)))]
    return tuple([Violation(i.id, i.rule, i.text, rows) for i, rows in broken]) if broken else ()


def check_step(step: Step, ghost: Ghost | None = None) -> tuple[Violation, ...]:
    """Everything that one step breaks: the step itself, the state that it leads to, and what happened outside."""
    outside = violations(ON_OUTSIDE, Outside(step.after, ghost)) if ghost is not None else ()
    return violations(ON_STEPS, step) + violations(ON_STATES, step.after) + outside
