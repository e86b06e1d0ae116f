"""Random walks through the states of a workflow.

A walk takes its choices from a `random.Random`, so that a seed repeats it and Hypothesis can shrink it. Commands are
drawn mostly plausible, from small pools of names: what the host would do next, or any command at all with fields
that often fit the state and sometimes do not.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple, get_args, get_type_hints

from flow import FILE, POLL, START, TELL, TOOL, TOPICS

from keepkernel import (
    COMMANDS,
    Accepted,
    Command,
    Declaration,
    Deploy,
    Grant,
    Key,
    Outcome,
    Policy,
    Publication,
    Resume,
    State,
    new_workflow,
    schedule,
    step,
    upkeep,
)
from keepkernel.kernel.respond import advance, after_rejection

POLICY = Policy(
    backoff_base_ms=10,
    backoff_max_ms=30,
    transient_retries=2,
    logic_failures=2,
    reconcile_base_ms=10,
    reconcile_attempts=2,
    send_within_ms=50,
    call_deadline_ms=20,
    clock_skew_ms=5,
    wake_min_ms=10,
    session_runs=4,
    json_max_chars=8,
)
CRON = Declaration("nightly", "producer", cron="0 3 * * *")
VERSIONS = ((FILE, TELL, POLL), (FILE, TELL, POLL), (FILE, CRON), (TELL,), (FILE, FILE))
MODES = (*4 * ("always",), "ask")
KEYS = (*(Key("mail", f"m{n}") for n in range(4)), Key("done", "d0"), Key("done", "d1"), Key("spam", "s0"))
TEXTS = ("null", "{}", "[]", "0", "1", "true", "7", '"longer than allowed"')
HINTS = {kind: get_type_hints(kind) for kind in COMMANDS.values()}
ANSWERS = ("apply_mutation", "fail_mutation", "lose_track", "reconcile_retry", "end_run")
REPORTS = {
    "preparing": (*8 * ("prepared",), "end_run"),
    "executing": (*8 * ("commit_producer",), "end_run"),
    "mutating": (*8 * ("record_mutation",), "mutated", "end_run"),
    "emitting": (*4 * ("commit_consumer",), "end_run"),
}
"""What a host reports when a run is in a phase."""
PEOPLE = (
    "try_again",
    "didnt_happen",
    "skip_mutation",
    "assert_applied",
    "skip_event",
    "publish",
    "publish",
    "approve",
    "reject",
    "grant",
    "reconnect",
    "resume",
    "clear_error",
    "retry",
    "abandon",
    "run_now",
    "exit_maintenance",
    "exhaust",
)


class Tried(NamedTuple):
    """One command on one state, and what came of it."""

    state: State
    command: Command
    outcome: Outcome


def walk(random: Random, turns: int) -> Iterator[Tried]:
    """So many turns; in each, commands are drawn until one is accepted or patience ends."""
    state, now = new_workflow("w", POLICY), START
    for kind in (Deploy(now, "v1", TOPICS, VERSIONS[0]), Resume(now), Grant(now, TOOL, random.choice(MODES))):
        yield (tried := Tried(state, kind, step(state, kind)))
        state = tried.outcome.state
    for turn in range(turns):
        now += random.choice((0, 0, 0, 1, 5, 60))
        reaction = None
        for _ in range(4):
            command = reaction or draw(random, state, now, f"id{turn}")
            outcome = step(state, command)
            yield Tried(state, command, outcome)
            if isinstance(outcome, Accepted):
                state = outcome.state
                break
            reaction = after_rejection(state, command, outcome, now) if random.random() < 0.5 else None


def draw(random: Random, state: State, now: int, fresh: str) -> Command:
    """What the host plans, what it reports, what people do, or anything."""
    intent = random.choices(("plan", "report", "person", "anything"), (6, 8, 2, 1))[0]
    plan = [advance(state, now), schedule(state, now, fresh), upkeep(state, now)]
    commands = [command for command in plan if type(command) in HINTS]
    reported = reports(state)
    if commands and (intent == "plan" or (intent == "report" and not reported)):
        return commands[0]
    names = {"report": reported, "anything": tuple(COMMANDS)}.get(intent) or wishes(state)
    return made(random, COMMANDS[random.choice(names)], state, now, fresh)


def wishes(state: State) -> tuple[str, ...]:
    """What people ask for; most of all an answer, when they alone can give it."""
    asked = state.mutation is not None and state.mutation.status == "indeterminate"
    return (*PEOPLE, *4 * PEOPLE[:4]) if asked else PEOPLE


def reports(state: State) -> tuple[str, ...]:
    """What a host may have to report; nothing when the next command is its own."""
    if state.mutation is not None and state.run.phase == "mutating":
        return () if state.mutation.status == "pending" else ANSWERS
    return REPORTS.get(state.run.phase, ()) if state.run else ()


def made(random: Random, kind: type[Command], state: State, now: int, fresh: str) -> Command:
    """A command of this class whose fields mostly fit the state."""
    values = {name: value(random, name, hint, state, now, fresh) for name, hint in HINTS[kind].items()}
    if kind.__name__ in ("CreateRun", "CreateRetry"):
        values["run"] = random.choice((fresh, fresh, fresh, ""))
    if values.get("status") == "paused:approval":
        values["cause"] = random.choice(("auth", "permission", "request", "request", "host"))
    return kind(**values)


def value(random: Random, name: str, hint: Any, state: State, now: int, fresh: str) -> Any:
    live = state.run.id if state.run else "nobody"
    pending = [e.key for e in state.events if e.status == "pending"]
    mails = [key for key in pending if key.topic == "mail"]
    keys = pending or KEYS
    asked = state.error.request if state.error else None
    session = state.session.id if state.session else fresh
    pools: dict[str, tuple[Any, ...]] = {
        "now": (now,),
        "asked_at": (now, now, now - 50, now + 1),
        "run": (live, live, live, live, "nobody"),
        "retry_of": (live, live, live, "nobody"),
        "session": (session, session, session, "none", ""),
        "handler": ("file", "tell", "poll", "nightly", "gone"),
        "reservations": (
            (),
            tuple(pending),
            tuple(mails),
            tuple(mails[:1]),
            (random.choice(keys),),
            (keys[0], keys[0]),
        ),
        "wake_at": (None, now, now + 20),
        "due_at": (None, None, now + 100, 0),
        "state": (None, *TEXTS),
        "publications": ((), (publication(random),), (publication(random), publication(random))),
        "publication": (publication(random),),
        "tool": (*8 * (TOOL,), "mail.send", ""),
        "deadline_ms": (None, 1, 40, 0),
        "message": ("", "why"),
        "title": ("", "title"),
        "key": (random.choice(keys), random.choice(KEYS)),
        "digest": (asked.digest if asked else "none", asked.digest if asked else "none", "other"),
        "mode": MODES,
        "reconcilable": (True, True, True, False),
        "cause": ("", "", "", "auth"),
        "version": ("v1", "v2", "v3", ""),
        "topics": (TOPICS, TOPICS, TOPICS, ("mail",), ("mail", "mail")),
        "handlers": VERSIONS,
    }
    if name in ("data", "params", "result"):
        return random.choice(TEXTS)
    if name in pools:
        return random.choice(pools[name])
    return random.choice((False, False, True) if hint is bool else get_args(hint))


def publication(random: Random) -> Publication:
    return Publication(random.choice(KEYS), random.choice(("title", "title", "title", " ")), random.choice(TEXTS))
