"""The verdict on a workflow that came to rest after any number of deaths.

It believes nobody. The journal is stepped through the kernel again, and what the store shows must be what comes
out. Every transition and the end are held against the invariants, beside the outside's own record of what happened.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..kernel import commands as c
from ..kernel.policy import Policy
from ..kernel.ports import Store, Transition
from ..kernel.step import step
from ..kernel.types import Accepted, Declaration, Key, Mutation, Permission, Run, Session, State, new_workflow
from ..spec.invariants import ON_OUTSIDE, Ghost, Step, check_step, violations
from ..spec.invariants import Outside as Beside
from .lives import NAME, PAGE, every_event, journal_of
from .outside import Entry, landed_at
from .workflows import Workflow

CALLS: Final = ("applied", "refused", "silent", "lost", "late")


class History(NamedTuple):
    """A journal, and all that follows from it."""

    journal: tuple[Transition, ...]
    states: tuple[State, ...]
    """The state after so many transitions, with every event that there ever was."""
    outcomes: tuple[Accepted, ...]
    runs: tuple[tuple[int, Run], ...]
    """What went into history, and with which transition."""
    mutations: tuple[tuple[int, Mutation], ...]
    sessions: tuple[tuple[int, Session], ...]

    @property
    def end(self) -> State:
        return self.states[-1]


class Ending(NamedTuple):
    """What a crash may not change.

    Left out are ids of runs and sessions, times, counts of failures, runs that came to nothing or had no inputs,
    sessions, and who was asked how often what became of a call. All else is here.
    """

    status: str
    version: str
    open: tuple[str, ...]
    """What is not done."""
    grants: tuple[Permission, ...]
    handlers: tuple[tuple[Declaration, str, bool, bool, bool], ...]
    """Declaration, state, and whether it is dirty, asked to be woken, and is planned."""
    events: tuple[tuple[Key, int, str, str, str, str, tuple[Key, ...]], ...]
    """Key, number, status, title, payload, the handler that published it, causes."""
    commits: tuple[tuple[str, tuple[Key, ...], str, str, str], ...]
    """Handler, inputs, data, title and outcome of each commit that had inputs, in their order."""
    landed: tuple[tuple[Key, int], ...]
    """How often each input was applied outside."""


class Verdict(NamedTuple):
    violations: tuple[str, ...]
    ending: Ending | None
    """None when the journal makes no sense."""


def judged(workflow: Workflow, store: Store, record: tuple[Entry, ...]) -> Verdict:
    """All that is wrong; nothing when all is well."""
    found: list[str] = []
    history = replayed(store, found)
    if history is None:
        return Verdict(tuple(found), None)
    found += differences(store, history)
    found += broken_invariants(history, record)
    found += unlawful_calls(history, record)
    found += mishandled(workflow, history, record)
    return Verdict(tuple(dict.fromkeys(found)), ending(history, record))


# --- the journal -------------------------------------------------------------------------------------


def replayed(store: Store, found: list[str]) -> History | None:
    """Step the journal through the kernel again; None when it can not have been written by it."""
    journal = journal_of(store)
    states = [new_workflow(NAME, Policy())]
    outcomes: list[Accepted] = []
    for n, transition in enumerate(journal, 1):
        outcome = step(states[-1], transition.command)
        where = f"transition {n}, {type(transition.command).__name__}"
        if transition.version != n or transition.at != transition.command.now:
            found.append(f"{where}: the journal calls it {transition.version}, at {transition.at}")
        if not isinstance(outcome, Accepted):
            found.append(f"{where}: the kernel refuses it on what came before: {outcome.reason}")
            return None
        if outcome.rules != transition.rules:
            found.append(f"{where}: the journal names other rules")
        states.append(outcome.state)
        outcomes.append(outcome)
    retired = [(n, outcome.retired) for n, outcome in enumerate(outcomes, 1)]
    return History(
        journal,
        tuple(states),
        tuple(outcomes),
        tuple((n, rows.run) for n, rows in retired if rows.run is not None),
        tuple((n, rows.mutation) for n, rows in retired if rows.mutation is not None),
        tuple((n, rows.session) for n, rows in retired if rows.session is not None),
    )


def differences(store: Store, history: History) -> Iterator[str]:
    """What the store shows, and what its own journal says."""
    loaded, end = store.load(NAME), history.end
    shown = {
        "version": (loaded.version, len(history.journal)),
        "state": (loaded.state._replace(events=()), end._replace(events=())),
        "events": (every_event(store), tuple(sorted(end.events, key=lambda event: event.seq))),
        "runs": (store.runs(NAME, 0, PAGE), history.runs),
        "mutations": (store.mutations(NAME, 0, PAGE), history.mutations),
        "sessions": (store.sessions(NAME, 0, PAGE), history.sessions),
    }
    for name, (is_there, should_be) in shown.items():
        if is_there != should_be:
            yield f"the store's {name}: {is_there}, by its journal: {should_be}"


# --- the law -----------------------------------------------------------------------------------------


def broken_invariants(history: History, record: tuple[Entry, ...]) -> Iterator[str]:
    landings = [(entry, at) for entry in record if (at := landed_at(entry, record)) is not None]
    for n, transition in enumerate(history.journal, 1):
        known = [entry for entry, at in landings if entry.version < n and at <= transition.at]
        taken = Step(history.states[n - 1], transition.command, history.outcomes[n - 1], history.states[n])
        for violation in check_step(taken, ghost(known)):
            yield f"transition {n}, {type(transition.command).__name__}: {violation}"
    for violation in violations(ON_OUTSIDE, Beside(history.end, ghost([entry for entry, _ in landings]))):
        yield f"in the end: {violation}"


def ghost(landed: list[Entry]) -> Ghost:
    """What really happened outside. The person always tells the truth, so that nothing is excused."""
    return Ghost(tuple(key for entry in landed for key in entry.inputs))


def unlawful_calls(history: History, record: tuple[Entry, ...]) -> Iterator[str]:
    """Every call that arrived was sent by a transition that was durable before it, in time, and once."""
    sent = {
        state.mutation.key: (n, state.mutation, state.run)
        for n, (transition, state) in enumerate(zip(history.journal, history.states[1:], strict=True), 1)
        if isinstance(transition.command, c.SendMutation) and state.mutation is not None and state.run is not None
    }
    calls = [entry for entry in record if entry.what in CALLS]
    for entry in calls:
        n, call, run = sent.get(entry.about, (0, None, None))
        if call is None or run is None or n > entry.version:
            yield f"call {entry.about} arrived after {entry.version} transitions, and none of them had sent it"
        elif entry.at > call.send_by or entry.inputs != run.reserved:
            yield f"call {entry.about} arrived at {entry.at} for {entry.inputs}, and is not what was sent: {call}"
    for key, times in Counter(entry.about for entry in calls).items():
        if times > 1:
            yield f"call {key} arrived {times} times"


def mishandled(workflow: Workflow, history: History, record: tuple[Entry, ...]) -> Iterator[str]:
    """Every input, and all that came of it, is done; one run, and no other, did it; and a success is a real one.

    What is no input came with the commit of a run.
    """
    end = history.end
    left = [name for name in OPEN if getattr(end, name)]
    if left:
        yield f"at rest, and there is still: {', '.join(left)}"
    done = [run for _, run in history.runs if run.status == "committed" and run.reserved]
    committed = {run.id for _, run in history.runs if run.status == "committed"}
    events = {event.key: event for event in end.events}
    landed = Counter(key for entry in record if landed_at(entry, record) is not None for key in entry.inputs)
    for key in (*workflow.keys, *(key for key in events if key not in workflow.keys)):
        event = events.get(key)
        if event is None or event.status not in ("consumed", "skipped"):
            yield f"input {key.id} is {event.status if event else 'missing'}"
        outcomes = [run.outcome for run in done if key in run.reserved]
        if len(outcomes) != 1:
            yield f"input {key.id} was handled {len(outcomes)} times"
        elif outcomes[0] == "success" and landed[key] != 1:
            yield f"input {key.id} was handled with success, and was applied {landed[key]} times"
        elif outcomes[0] != "success" and landed[key]:
            yield f"input {key.id} was handled without success, and was applied {landed[key]} times"
        if event is not None and key not in workflow.keys and event.created_by not in committed:
            yield f"event {key.id} was published by no run that committed"


# --- comparing ---------------------------------------------------------------------------------------

OPEN: Final = ("error", "maintenance", "session", "run", "mutation", "approvals")


def ending(history: History, record: tuple[Entry, ...]) -> Ending:
    end = history.end
    handlers = {run.id: run.handler for _, run in history.runs}
    done = [run for _, run in history.runs if run.status == "committed" and run.reserved]
    landed = Counter(key for entry in record if landed_at(entry, record) is not None for key in entry.inputs)
    return Ending(
        end.status,
        end.version,
        tuple(name for name in OPEN if getattr(end, name)),
        end.grants,
        tuple((h.declared, h.state, h.dirty, h.wake_at > 0, h.due_at >= 0) for h in end.handlers),
        tuple(
            (e.key, e.seq, e.status, e.title, e.payload, handlers.get(e.created_by, ""), e.causes) for e in end.events
        ),
        tuple((run.handler, run.reserved, run.data, run.title, run.outcome) for run in done),
        tuple(sorted(landed.items())),
    )


def changed(clean: Ending, other: Ending) -> tuple[str, ...]:
    """In what a run with crashes ended differently."""
    return tuple(
        f"{name}: {there} instead of {here}, as without a crash"
        for name, here, there in zip(Ending._fields, clean, other, strict=True)
        if here != there
    )
