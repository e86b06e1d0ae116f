"""Telling what a search found, in words.

In the pictures that the checker explores the live run is always called r1 and whatever is over r0. In a story every
run has a name of its own, r1, r2 and so on in the order of their starts.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..kernel.commands import NAMES, CreateRetry, CreateRun
from ..kernel.types import Accepted, Error, Event, Handler, Key, Mutation, Rejected, Retired, Run, State
from ..spec.invariants import INVARIANTS
from .abstract import FRESH_RUN, NOW, STALE_RUN
from .check import LIVENESS, Counterexample, Moment, Result, shortest
from .setups import FEATURES, SETUPS, Setup
from .unreached import EXPECTED
from .world import World

LIVE_RUN = "r1"
WIDTH = 118


def told(result: Result) -> str:
    """The whole result as text."""
    return "\n".join(lines(result))


def lines(result: Result) -> Iterator[str]:
    yield headline(result)
    yield f"  {size(result)}"
    yield ""
    yield from scope(result)
    yield ""
    if result.counterexamples:
        first = shortest(result)
        yield from story(first)
        for other in result.counterexamples:
            if other is not first:
                name, rule, text, _ = other.violation
                yield from wrapped(f"also broken after {plural(other.length, 'step')}: ", f"{name} ({rule}): {text}")
    else:
        yield from findings(result)


def headline(result: Result) -> str:
    why = f": {result.why}" if result.why else ""
    return f"{result.setup.name}, {whom(result)}: {result.verdict}{why}"


def whom(result: Result) -> str:
    caller = "honest host" if result.caller == "honest" else "an adversary who sends any command at any time"
    reading = f", in the reading {result.reading}" if result.reading else ""
    return f"{plural(result.setup.events, 'event')}, {caller}{reading}"


def size(result: Result) -> str:
    return (
        f"{plural(result.states, 'state')}, {plural(result.transitions, 'transition')}, depth {result.depth}, "
        f"{result.seconds:.1f} s"
    )


def plural(number: int, one: str, more: str = "") -> str:
    """
    >>> plural(1, "state"), plural(1200, "state"), plural(2, "retry", "retries")
    ('1 state', '1,200 states', '2 retries')
    """
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


# --- what was explored -------------------------------------------------------------------------------


def scope(result: Result) -> Iterator[str]:
    """What the search explores, what of it has no bound, and what bounds the rest."""
    setup = result.setup
    yield f"Explored: {SETUPS[setup.name].text if setup.name in SETUPS else setup.text}, with"
    yield from (f"  {name:<10}  {text}" for name, text in FEATURES.items() if setup.has(name))
    if not setup.features:
        yield "  nothing but the plain course of things"
    yield from wrapped("Left out: ", ", ".join(name for name in FEATURES if not setup.has(name)) or "nothing")
    yield from wrapped("Not bounded: ", ", ".join(unbounded(result)))
    yield from wrapped("Bounded: ", "; ".join(bounded(setup)))


def unbounded(result: Result) -> Iterator[str]:
    if result.caller == "adversary":
        yield "commands"
    elif result.setup.has("crash"):
        yield "crashes and restarts"
    yield from ("faults", "retries", "runs", "sessions", "time (deadlines pass in any order that the law allows)")


def bounded(setup: Setup) -> Iterator[str]:
    policy = setup.policy
    yield f"{plural(setup.events, 'input event')}, by --events"
    yield "one workflow, one tool"
    counts = [plural(policy.reconcile_attempts, "reconcile attempt")]
    if setup.has("counts"):
        counts += [plural(policy.transient_retries, "transient retry", "transient retries")]
        counts += [plural(policy.logic_failures, "logic failure")]
    if setup.has("budget"):
        counts += [f"{plural(policy.session_runs, 'run')} in a session"]
    yield f"counts by the limits of the policy, set low: {', '.join(counts)}"


def findings(result: Result) -> Iterator[str]:
    """What holds, and how much it was put to the test."""
    if result.verdict == "not decided":
        yield "No invariant is broken in the states that were seen; of the others nothing is known."
        return
    live = "" if result.caller == "adversary" else "; rest is reachable from every state, and comes when faults stop"
    yield f"Invariants: all {len(INVARIANTS)} hold, on states and on steps{live}."
    if result.to_law:
        yield "Law: every answer of the kernel, and what it wants to happen next, is as the second writing says."
    yield f"Put to the test: {len(result.witnesses)} of {len(INVARIANTS)}."
    excuses = EXPECTED.get(result.setup.name, {})
    untested = [name for name in INVARIANTS if name not in result.witnesses]
    for reason in dict.fromkeys(excuses.get(name, "") for name in untested):
        names = [name for name in untested if excuses.get(name, "") == reason]
        yield from wrapped("  not: ", f"{', '.join(names)}{f' ({reason})' if reason else ''}")
    for kind, missed in result.unreached.items():
        if missed:
            yield from wrapped(f"Never reached, {kind}: ", ", ".join(missed))


def wrapped(title: str, text: str) -> Iterator[str]:
    from textwrap import wrap

    yield from wrap(text, WIDTH, initial_indent=title, subsequent_indent=" " * 4, break_on_hyphens=False)


# --- a story -----------------------------------------------------------------------------------------


class Scene(NamedTuple):
    """One step of a story: what is done, and what it changes."""

    words: str
    changes: tuple[str, ...]


def story(example: Counterexample) -> Iterator[str]:
    """A counterexample: numbered steps in words, what changed, what is broken."""
    violation = example.violation
    yield f"{violation.invariant} ({violation.rule}) is broken after {plural(example.length, 'step')}:"
    for number, scene in enumerate(scenes(example), 1):
        if number - 1 == example.loop:
            yield "      from here on it goes round for ever:"
        yield f"{number:4}  {scene.words}"
        yield from (f"        {change}" for change in scene.changes)
    if example.loop >= 0:
        yield f"      {last_words(example)}"
    yield f"breaks {violation.invariant} ({violation.rule}): {violation.text}"
    yield from (f"        {row}" for row in last_rows(example))


def last_words(example: Counterexample) -> str:
    """How a story without end ends."""
    if example.loop < example.length:
        return f"and so on from step {example.loop + 1}"
    if example.violation.invariant == LIVENESS["rest is reachable"].invariant:
        return "from here no way leads to rest"
    return "here it stands still for ever"


def scenes(example: Counterexample) -> Iterator[Scene]:
    """The steps, with a name of its own for every run."""
    state, world, started = example.start, World(()), 0
    for n, moment in enumerate(example.moments):
        names = names_in(state, started)
        retired = rows_of(moment.outcome.retired, names) if isinstance(moment.outcome, Accepted) else {}
        before = rows(state, names)
        started += starts_a_run(moment)
        # A step that breaks an invariant ends in the state as the kernel gave it, with the names from before.
        as_given = example.by_step and n + 1 == example.length
        after = rows(moment.state, names if as_given else names_in(moment.state, started))
        yield Scene(step_in_words(moment), (*changes(before, after, retired), *landings(world, moment.world)))
        state, world = moment.state, moment.world


def starts_a_run(moment: Moment) -> bool:
    return isinstance(moment.label.command, CreateRun | CreateRetry) and isinstance(moment.outcome, Accepted)


def names_in(state: State, started: int) -> dict[str, str]:
    """What the runs of a picture are called when so many have been started; the last one may be over."""
    over = started if state.run is None else started - 1
    return {LIVE_RUN: f"r{started}", STALE_RUN: f"r{max(over, 0)}", FRESH_RUN: f"r{started + 1}"}


def last_rows(example: Counterexample) -> list[str]:
    """The offending rows, with the names of the story."""
    states = (example.start, *(moment.state for moment in example.moments))
    told = example.moments[:-1] if example.by_step else example.moments
    # A broken step is judged with the names from before it.
    names = names_in(states[len(told)], sum(map(starts_a_run, told)))
    return [re.sub(r"\br[012]\b", lambda found: names[found[0]], row) for row in example.violation.rows]


def step_in_words(moment: Moment) -> str:
    """
    >>> from keepkernel import Begin, Rejected
    >>> from keepkernel.fuzz.system import IDLE, Label
    >>> refusal = Rejected("not_active", "RUN-001", "")
    >>> step_in_words(Moment(Label("host", "goes on", Begin(0, "r1")), refusal, None, IDLE, World(())))
    'host: goes on (begin, rejected: not_active)'
    """
    actor, text, command = moment.label
    if command is None:
        return f"{actor}: {text}"
    said = f", rejected: {moment.outcome.reason}" if isinstance(moment.outcome, Rejected) else ""
    return f"{actor}: {text} ({NAMES[type(command)]}{said})"


# --- rows and what changes in them -------------------------------------------------------------------

Row = dict[str, str]
"""What is to be said of a row: facet -> words. A facet in brackets goes without saying its name."""


def rows(state: State, names: Mapping[str, str]) -> dict[str, Row]:
    """The state in words, row by row."""
    found: dict[str, Row] = {"workflow": {"()": state.status, "version": state.version}}
    if state.error is not None:
        found["error"] = error_row(state.error, names)
    if state.maintenance is not None:
        found["maintenance"] = {"()": f"for {state.maintenance.handler}" if state.maintenance.handler else "by hand"}
    found["backoff"] = {"()": "set" if state.backoff_until > NOW else ""}
    found |= {f"grant of {grant.tool}": {"()": grant.mode} for grant in state.grants}
    found |= {f"approval of {a.tool}": {"()": f"for {ids(a.events)}"} for a in state.approvals}
    found |= rows_of(Retired(state.run, state.mutation, state.session), names)
    found |= {f"handler {h.declared.name}": handler_row(h) for h in state.handlers}
    found |= {f"event {event.key.id}": event_row(event, names) for event in state.events}
    return found


def rows_of(retired: Retired, names: Mapping[str, str]) -> dict[str, Row]:
    """The rows that come and go: session, run and record."""
    found: dict[str, Row] = {}
    if retired.session is not None:
        found["session"] = {"()": retired.session.status}
    if retired.run is not None:
        found[f"run {named(retired.run.id, names)}"] = run_row(retired.run, names)
    if retired.mutation is not None:
        found[f"record of {named(retired.mutation.run, names)}"] = record_row(retired.mutation)
    return found


def named(run: str, names: Mapping[str, str]) -> str:
    return names.get(run, run)


def ids(keys: tuple[Key, ...]) -> str:
    return ", ".join(key.id for key in keys)


def error_row(error: Error, names: Mapping[str, str]) -> Row:
    asked = f"{error.request.tool} for {ids(error.request.events)}" if error.request is not None else ""
    return {"()": error.kind, "(cause)": error.cause, "of run": named(error.run, names), "asks for": asked}


def run_row(run: Run, names: Mapping[str, str]) -> Row:
    return {
        "()": run.phase,
        "(status)": "" if run.status in ("active", "committed") else run.status,
        "of": run.handler,
        "retry of": named(run.retry_of, names),
        "outcome": run.outcome,
        "holds": ids(run.reserved),
        "abandoned": "yes" if run.abandoned else "",
    }


def record_row(record: Mutation) -> Row:
    attempts = plural(record.attempts, "attempt") if record.attempts else ""
    return {"()": record.status, "asked": attempts, "resolved by": record.resolved_by}


def handler_row(handler: Handler) -> Row:
    return {
        "()": "dirty" if handler.dirty else "clean",
        "wake": "" if not handler.wake_at else "later" if handler.wake_at > NOW else "now",
        "due": "" if handler.due_at < 0 else "later" if handler.due_at > NOW else "now",
        "transient failures": str(handler.transient_failures or ""),
        "logic failures": str(handler.logic_failures or ""),
    }


def event_row(event: Event, names: Mapping[str, str]) -> Row:
    by = f" by {named(event.owner, names)}" if event.status == "reserved" else ""
    return {"()": f"{event.status}{by}", "payload": "" if event.payload == "1" else event.payload}


def changes(before: dict[str, Row], after: dict[str, Row], retired: dict[str, Row]) -> Iterator[str]:
    """What is new, what is different, and what left and how it was at last."""
    for name, was in before.items():
        if name in after:
            now = after[name]
            if was != now:
                yield f"{name}: {difference(was, now)}"
        elif name in retired:
            yield f"{name}: {difference(was, retired[name]) or whole(was)} (over)"
        else:
            yield f"{name}: gone (was {whole(was)})"
    yield from (f"{name}: new: {whole(row)}" for name, row in after.items() if name not in before)


def difference(was: Row, now: Row) -> str:
    """
    >>> difference({"()": "preparing", "holds": ""}, {"()": "prepared", "holds": "m1"})
    'preparing → prepared, holds m1'
    """
    changed = {facet: (was.get(facet, ""), words) for facet, words in now.items() if was.get(facet, "") != words}
    return ", ".join(said(facet, f"{a} → {b or 'nothing'}" if a else b) for facet, (a, b) in changed.items())


def whole(row: Row) -> str:
    return ", ".join(said(facet, words) for facet, words in row.items() if words) or "nothing"


def said(facet: str, words: str) -> str:
    return words if facet.startswith("(") else f"{facet} {words}"


def landings(before: World, after: World) -> Iterator[str]:
    """What took effect outside, which nobody inside can see."""
    for n, count in enumerate(after.landed):
        if count > (before.landed[n] if n < len(before.landed) else 0):
            yield f"outside: input {n + 1} is applied{' again' if count > 1 else ''}"
