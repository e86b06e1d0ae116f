"""What happened and what can be done, as documents for programs with words for people in them. It decides nothing.

Where a document says that something can be done, the kernel was asked: the command was stepped, and not committed.
"""

import json
import re
import shlex
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from .adapters.connectors.base import Call
from .book import Book, Chapter, NotFound
from .kernel import commands as c
from .kernel import gate
from .kernel.boundary import side, unresolved
from .kernel.ports import Transition
from .kernel.reasons import REASONS
from .kernel.respond import UNCERTAIN
from .kernel.schedule import Idle, Wait, schedule
from .kernel.step import step
from .kernel.types import Accepted, Event, Key, Mutation, Rejected, Run, State

Document = dict[str, Any]

SECRET: Final = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api[-_]?key|authori[sz]ation|credential", re.IGNORECASE
)
COVER: Final = "•••"
TOLD_MAX: Final = 5
DIGEST: Final = re.compile(r"\b[0-9a-f]{64}\b")
RESOLUTIONS: Final = {
    "try-again": (c.TryAgain, "ask the target again whether it happened"),
    "didnt-happen": (c.DidntHappen, "it did not happen: the inputs are taken up afresh"),
    "skip": (c.SkipMutation, "give the inputs up; what follows runs, and is told so"),
    "happened": (c.AssertApplied, "it did happen: go on with what follows"),
}


def when(ms: int) -> str:
    """A time in the words of ISO 8601.

    >>> when(1_500)
    '1970-01-01T00:00:01Z'
    """
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def masked(value: Any) -> Any:
    """A JSON value in which whatever is named like a secret is covered.

    >>> masked({"to": "ann", "auth": {"api_key": "1234"}})
    {'to': 'ann', 'auth': {'api_key': '•••'}}
    """
    match value:
        case dict():
            return {k: COVER if SECRET.search(k) and isinstance(v, str) else masked(v) for k, v in value.items()}
        case list():
            return [masked(item) for item in value]
    return value


def parsed(text: str) -> Any:
    return masked(json.loads(text)) if text else None


def shortly(value: Any, limit: int = 200) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}…"


def listed(titles: list[str], limit: int = 3) -> str:
    """
    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    more = len(titles) - limit
    return ", ".join(titles) if more <= 0 else f"{', '.join(titles[:limit])} and {more} more"


STOPPED: Final = {
    "paused:transient": "it may be tried again",
    "paused:approval": "it needs a person",
    "paused:reconciliation": UNCERTAIN,
    "failed:logic": "the script failed",
    "failed:internal": "a fault of the host or a connector",
    "crashed": "it broke off",
}


def why_stopped(status: str, message: str) -> str:
    """Why a run ended without a commit.

    >>> why_stopped("paused:approval", "not_granted: reports.insert")
    'it needs a person: the tool is not granted (reports.insert)'
    """
    return ": ".join(dict.fromkeys(part for part in (STOPPED.get(status, status), in_words(message)) if part))


def in_words(message: str) -> str:
    """What a run says at its end; a refusal of the kernel says so by its name, and a call goes by a digest."""
    reason, _, detail = message.partition(": ")
    if reason not in REASONS:
        return message
    short = DIGEST.sub(lambda digest: digest[0][:12], detail)
    return f"{REASONS[reason].why}{f' ({short})' if short else ''}"


# --- a workflow --------------------------------------------------------------------------------------


def status_of(chapter: Chapter, now: int) -> Document:
    state = chapter.state
    words, remedies = standing(chapter, now)
    waiting = chapter.waiting()
    held = sum(event.status == "reserved" for event in state.events)
    error = state.error
    return {
        "workflow": state.workflow,
        "status": state.status,
        "version": state.version,
        "standing": words,
        "remedies": remedies,
        "needs_person": needs_person(state),
        "inputs": {"published": state.next_seq - 1, "waiting": waiting, "in_work": held},
        "grants": {grant.tool: grant.mode for grant in state.grants},
        "handlers": [
            {
                "name": row.declared.name,
                "kind": row.declared.kind,
                "failures": row.transient_failures + row.logic_failures,
                "next": when(max(row.wake_at, row.due_at)) if max(row.wake_at, row.due_at) > 0 else None,
            }
            for row in state.handlers
        ],
        "error": None
        if error is None
        else {"kind": error.kind, "cause": error.cause, "run": error.run, "message": error.message},
        "maintenance": None if state.maintenance is None else state.maintenance._asdict(),
        "escalation": escalation(chapter, now),
        "request": request_of(chapter),
    }


def needs_person(state: State) -> bool:
    """Whether it stands still until somebody does something; a reconcile that still asks may settle it by itself."""
    if unresolved(state.mutation) and state.mutation and state.mutation.status != "indeterminate":
        return False
    removed = isinstance(plan := schedule(state, 2**62, "x"), Idle) and plan.reason == "handler_removed"
    return state.error is not None or state.maintenance is not None or removed


def standing(chapter: Chapter, now: int) -> tuple[str, list[str]]:
    """How a workflow stands, in a sentence, and what a person can do about it, as commands."""
    state = chapter.state
    on = f"--workflow {state.workflow}"
    run, error = state.run, state.error
    give_up = giving_up(chapter)
    if gate.active(state) and run:
        return f"{run.handler} is at work ({run.phase})", []
    if run and unresolved(state.mutation) and state.mutation:
        return uncertain(state, state.mutation, now)
    if error is not None:
        match error.kind, error.cause:
            case "approval", "permission":
                return f"{error.tool} is not granted", [f"keepkernel grant {error.tool} {on}"]
            case "approval", "request":
                return "a call waits for approval", [f"keepkernel approve {on}", f"keepkernel reject {on}"]
            case "approval", _:
                return f"access was refused: {in_words(error.message)}", [f"keepkernel reconnect {on}"]
            case "blocked", "logic":
                return f"blocked: the script keeps failing: {in_words(error.message)}", [
                    deploying(chapter),
                    f"keepkernel retry {on}",
                    *give_up,
                ]
            case "blocked", "host":
                return f"blocked: {in_words(error.message)}", [f"keepkernel retry {on}", *give_up]
            case "blocked", _:
                words = f"blocked after too many failures: {in_words(error.message)}"
                return words, [f"keepkernel retry {on}", *give_up]
        return f"a fault of the host: {in_words(error.message)}", [f"keepkernel clear-error {on}"]
    if state.maintenance is not None:
        what = f"the script failed in {state.maintenance.handler}: {in_words(state.maintenance.message)}"
        remedies = [deploying(chapter), f"keepkernel retry {on}", *give_up]
        return (what if state.maintenance.run else "in maintenance, set by hand"), remedies
    if state.status != "active":
        told = {"draft": "nothing is deployed", "ready": "deployed, and not started", "paused": "paused by a person"}
        return told[state.status], [f"keepkernel resume {on}"] if state.status != "draft" else []
    plan = schedule(state, now, "x")
    if isinstance(plan, Idle) and plan.reason == "handler_removed" and run:
        return f"{run.handler} has work to finish and is not in the script any more", [
            deploying(chapter),
            f"keepkernel abandon {run.id}",
        ]
    if now < state.backoff_until:
        failed = next((past.message for past in chapter.past_runs() if past.status != "committed"), "")
        words = f"waits until {when(state.backoff_until)} after a failure{f': {in_words(failed)}' if failed else ''}"
        return words, [f"keepkernel retry {on}"]
    if run is not None:
        return f"{run.handler} goes on with what follows its mutation", []
    due = [max(row.wake_at, row.due_at) for row in state.handlers if max(row.wake_at, row.due_at) > now]
    ready = not isinstance(plan, Idle | Wait)
    return ("has work to do" if ready else f"idle until {when(min(due))}" if due else "idle"), []


def giving_up(chapter: Chapter) -> list[str]:
    """What a person may give up who does not want a failed run to be tried again: what follows, or its only input."""
    state = chapter.state
    if state.run is not None:
        return [f"keepkernel abandon {state.run.id}"]
    failed = chapter.run(state.maintenance.run if state.maintenance else state.error.run if state.error else "")
    inputs = [event for key in (failed.reserved if failed else ()) if (event := chapter.event(key))]
    return [skipping(chapter, event) for event in inputs if len(inputs) == 1 and event.status == "pending"]


def deploying(chapter: Chapter) -> str:
    file = chapter.file()
    return f"keepkernel deploy {shlex.quote(str(file)) if file else 'FILE'}"


def skipping(chapter: Chapter, event: Event) -> str:
    """Events of two topics may have one id, and often do."""
    return f"keepkernel skip {shlex.quote(f'{event.key.topic}/{event.key.id}')} --workflow {chapter.workflow}"


def uncertain(state: State, record: Mutation, now: int) -> tuple[str, list[str]]:
    choices = [choice(state, record.run, name, now) for name in RESOLUTIONS]
    remedies = [f"keepkernel explain {record.run}", *(one["command"] for one in choices if one["possible"])]
    if record.status == "indeterminate":
        return f"nobody knows whether {record.tool} happened", remedies
    due = max(record.next_attempt_at, now)
    return f"finds out whether {record.tool} happened; asks at {when(due)}", remedies


def request_of(chapter: Chapter) -> Document | None:
    """The call that waits for approval, as the host saw it (SCRIPT-008)."""
    error = chapter.state.error
    if error is None or error.request is None:
        return None
    run = chapter.run(error.run)
    record = chapter.record(run) if run else None
    return {
        "digest": error.request.digest,
        "tool": error.request.tool,
        "params": parsed(record.params) if record else None,
        "inputs": chapter.titles(error.request.events),
        "run": error.run,
    }


def escalation(chapter: Chapter, now: int) -> Document | None:
    """All that a person needs who must say what became of a mutation; None when nothing is unknown."""
    state, run, record = chapter.state, chapter.state.run, chapter.state.mutation
    if run is None or record is None or not unresolved(record) or gate.active(state):
        return None
    asked = sum(isinstance(line.command, c.ReconcileRetry) for line in chapter.transitions_of(run))
    times = f"it was asked {asked} times, and did not settle it" if asked else "it was not asked yet"
    way = f"the target can be asked; {times}" if record.reconcilable else "the target can not be asked"
    landed = now >= record.may_land_until
    return {
        "mutation": record.run,
        "workflow": state.workflow,
        "handler": run.handler,
        "tool": record.tool,
        "attempted": parsed(record.params),
        "key": record.key,
        "sent_as": Call(record.key).name,
        "claim": run.title,
        "inputs": chapter.titles(run.reserved),
        "status": record.status,
        "why": "the call was sent, and no answer came that settles whether it happened",
        "told": what_was_told(chapter, run),
        "ended": in_words(run.message),
        "verifiable": record.reconcilable,
        "verification": way,
        "may_land_until": when(record.may_land_until),
        "check": (
            f"look at the target of {record.tool} for a change with these parameters, or with the mark "
            f"{Call(record.key).name}, which was sent along; "
            + ("it can not land any more" if landed else f"it may still land until {when(record.may_land_until)}")
        ),
        "choices": [choice(state, record.run, name, now) for name in RESOLUTIONS],
    }


def what_was_told(chapter: Chapter, run: Run) -> list[str]:
    """What connectors said of a call that nobody knows about, the latest last."""
    commands = (line.command for line in chapter.transitions_of(run))
    doubts = (command.message for command in commands if isinstance(command, c.LoseTrack | c.ReconcileRetry))
    return list(dict.fromkeys(filter(None, doubts)))[:TOLD_MAX][::-1]


def choice(state: State, run: str, name: str, now: int) -> Document:
    command, means = RESOLUTIONS[name]
    outcome = step(state, command(now, run))
    refused = isinstance(outcome, Rejected)
    return {
        "as": name,
        "means": means,
        "possible": not refused,
        "why_not": refusal(outcome) if isinstance(outcome, Rejected) else None,
        "command": f"keepkernel resolve {run} --as {name}",
    }


def refusal(outcome: Rejected) -> Document:
    reason = REASONS[outcome.reason]
    detail = outcome.detail
    if outcome.reason == "too_early" and detail.isdigit():
        detail = when(int(detail))
    return {
        "reason": outcome.reason,
        "rule": outcome.rule,
        "detail": detail,
        "why": reason.why,
        "remedy": reason.remedy,
    }


# --- lists -------------------------------------------------------------------------------------------


def inputs(chapter: Chapter, limit: int) -> list[Document]:
    """The newest inputs, each with what came of it; the oldest of them first."""
    came: dict[Key, list[Event]] = {}
    rows: list[Document] = []
    for event in chapter.events():
        for cause in event.causes:
            came.setdefault(cause, []).append(event)
        if not event.causes:
            outputs = [after.title for after in reversed(came.get(event.key, []))]
            rows.append(
                {
                    "workflow": chapter.workflow,
                    "topic": event.key.topic,
                    "id": event.key.id,
                    "title": event.title,
                    "status": event.status,
                    "came_of_it": outcome_of(chapter, event, outputs),
                    "outputs": outputs,
                    "run": event.owner or None,
                }
            )
            if len(rows) == limit:
                break
    return rows[::-1]


def outcome_of(chapter: Chapter, event: Event, outputs: list[str]) -> str:
    """What became of an event, in a few words."""
    if event.status == "pending":
        return "waits"
    run = chapter.run(event.owner) if event.owner else None
    record = chapter.record(run) if run else None
    if event.status == "skipped":
        return "skipped" if not outputs else f"skipped; {listed(outputs)}"
    if event.status == "reserved" and run is not None:
        if side(run, record) == "UNCERTAIN" and record and run.status != "active":
            return f"nobody knows whether {record.tool} happened"
        if run.outcome == "success" and record:
            return f"{record.tool} is done; what follows is not"
        return f"in work ({run.phase})"
    if outputs:
        return listed(outputs)
    if run is not None and run.title:
        return run.title
    return f"{record.tool} done" if record is not None and record.status == "applied" else "done"


def outputs(chapter: Chapter, limit: int) -> list[Document]:
    """The newest changes outside and events that came of inputs; the oldest of them first."""
    emitted = islice((output_event(chapter, event) for event in chapter.events() if event.causes), limit)
    made = islice((output_change(chapter, run, record) for run, record in chapter.applied()), limit)
    rows = sorted([*reversed([*made]), *reversed([*emitted])], key=lambda timed: timed[0])
    return [row for _, row in rows[-limit:]]


def output_event(chapter: Chapter, event: Event) -> tuple[int, Document]:
    run = chapter.run(event.created_by)
    at = run.created_at if run else 0
    return at, {
        "workflow": chapter.workflow,
        "what": "event",
        "at": when(at),
        "run": event.created_by,
        "title": event.title,
        "from": chapter.titles(event.causes),
        "topic": event.key.topic,
        "id": event.key.id,
    }


def output_change(chapter: Chapter, run: Run, record: Mutation) -> tuple[int, Document]:
    return run.created_at, {
        "workflow": chapter.workflow,
        "what": "change",
        "at": when(run.created_at),
        "run": run.id,
        "title": run.title or record.tool,
        "from": chapter.titles(run.causes),
        "tool": record.tool,
        "params": parsed(record.params),
        "result": parsed(run.result),
    }


def runs(chapter: Chapter, limit: int) -> list[Document]:
    return [run_row(chapter, run) for run in islice(chapter.runs(), limit)][::-1]


def run_row(chapter: Chapter, run: Run) -> Document:
    return {
        "workflow": chapter.workflow,
        "run": run.id,
        "handler": run.handler,
        "status": run.status,
        "phase": run.phase,
        "began": when(run.created_at),
        "inputs": len(run.reserved),
        "title": run.title,
        "message": in_words(run.message),
        "retry_of": run.retry_of or None,
    }


# --- the whole story ---------------------------------------------------------------------------------


def explain(book: Book, wanted: str, workflow: str, now: int) -> Document:
    """The story of a run, an event or a mutation, whichever has this name."""
    try:
        chapter, event = book.find_event(wanted, workflow)
    except NotFound as no_event:
        try:
            chapter, run = book.find_run(wanted.rpartition("/")[2], workflow)
        except NotFound as no_run:
            told = no_run if "may mean" in str(no_run) or "may mean" not in str(no_event) else no_event
            raise NotFound(str(told).replace("a run;", "a run, an event or a mutation;")) from None
        return explain_run(chapter, run, now)
    return explain_event(chapter, event, now)


def explain_event(chapter: Chapter, event: Event, now: int) -> Document:
    maker = chapter.run(event.created_by) if event.created_by else None
    causes = chapter.titles(event.causes)
    came = f"Came of {listed(causes)}" if causes else "An input from outside"
    lines = [f"{came}, published by {maker.handler} in run {maker.id}." if maker else f"{came}."]
    earlier = [run for run in chapter.runs() if event.key in run.reserved and run.id != event.owner]
    for before in reversed(earlier):
        words = why_stopped(before.status, before.message)
        lines.append(f"{when(before.created_at)}  Run {before.id} took it and stopped: {words}.")
        lines += [f"{when(line.at)}  {words}" for line, words in timeline(chapter, before) if settles(line.command)]
    run = chapter.run(event.owner) if event.owner else None
    if event.status == "pending":
        words, remedies = standing(chapter, now)
        lines += ["It was given back, and waits." if earlier else "No run has taken it yet.", f"The workflow: {words}."]
        remedies = [*remedies, skipping(chapter, event)]
        return story("event", chapter, f"{event.key.topic}/{event.key.id}", event.title, lines, remedies)
    if run is None:
        lines.append(who_gave_up(chapter, event))
        return story("event", chapter, f"{event.key.topic}/{event.key.id}", event.title, lines, [])
    of_run = explain_run(chapter, run, now)
    lines += [f"It is {event.status}, by run {run.id}:", *of_run["story"]]
    document = story("event", chapter, f"{event.key.topic}/{event.key.id}", event.title, lines, of_run["remedies"])
    return {**document, "escalation": of_run["escalation"]}


def who_gave_up(chapter: Chapter, event: Event) -> str:
    """How an event ended that belongs to no run: its own words, or those that refused its call (PERM-004)."""
    for line in chapter.transitions():
        if line.command == c.SkipEvent(line.command.now, event.key):
            return f"{when(line.at)}  A person gave it up."
    return f"It is {event.status}: a person refused the call that was to be made for it."


def explain_run(chapter: Chapter, run: Run, now: int) -> Document:
    lines = [f"{when(line.at)}  {words}" for line, words in timeline(chapter, run)]
    live = chapter.state.run
    mine = live is not None and live.id == run.id
    if mine or (chapter.state.error and chapter.state.error.run == run.id):
        words, remedies = standing(chapter, now)
        remedies = [remedy for remedy in remedies if remedy != f"keepkernel explain {run.id}"]
        lines.append(f"Now: {words}.")
    else:
        remedies = []
        retry = next((later for later in chapter.runs() if later.retry_of == run.id), None)
        lines.append(f"It was taken up again by run {retry.id}." if retry else f"It is over: {run.status}.")
    document = story("run", chapter, run.id, run.title or run.handler, lines, remedies)
    return {**document, **run_row(chapter, run), "escalation": escalation(chapter, now) if mine else None}


def story(kind: str, chapter: Chapter, name: str, title: str, lines: list[str], remedies: list[str]) -> Document:
    return {
        "kind": kind,
        "workflow": chapter.workflow,
        "name": name,
        "title": title,
        "story": lines,
        "remedies": remedies,
        "escalation": None,
    }


def timeline(chapter: Chapter, run: Run) -> list[tuple[Transition, str]]:
    """What the journal says of a run, from its beginning."""
    lines = [(line, words_of(chapter, run, line.command)) for line in chapter.transitions_of(run)]
    return [(line, words) for line, words in reversed(lines) if words]


def settles(command: c.Command) -> bool:
    """Whether somebody says with it what became of a call that nobody knew about."""
    told = isinstance(command, c.ApplyMutation | c.FailMutation) and command.by != "call"
    return told or isinstance(command, c.DidntHappen | c.AssertApplied | c.SkipMutation)


BY: Final = {
    "call": "its own answer says so",
    "inline": "asked at once, the target says so",
    "reconcile": "asked later, the target says so",
}


def words_of(chapter: Chapter, run: Run, command: c.Command) -> str:
    """A command of a run in words; none for those that only lead from one phase to the next."""
    match command:
        case c.CreateRun():
            return f"{run.handler} begins."
        case c.CreateRetry(retry_of=before):
            return f"{run.handler} takes up run {before} again, after its mutation."
        case c.Prepared(reservations=()):
            return "It found nothing to do."
        case c.Prepared(reservations=keys, title=title):
            return f"It selected {listed(chapter.titles(keys))}{f', for: {title}' if title else ''}."
        case c.RecordMutation(tool=tool, params=params):
            return f"It wants to call {tool} with {shortly(parsed(params))}."
        case c.SendMutation():
            return "The call was sent."
        case c.ApplyMutation(by=by, result=result):
            return f"It happened: {BY[by]}{f', with {shortly(parsed(result))}' if result != 'null' else ''}."
        case c.FailMutation(by=by):
            return f"It did not happen: {BY[by]}."
        case c.LoseTrack(message=message):
            return f"No answer came that settles whether it happened{f': {message}' if message else ''}."
        case c.ReconcileRetry(early=True):
            return "The target was asked, while the call may still land."
        case c.ReconcileRetry(message=message):
            return f"The target was asked, and could not tell{f': {message}' if message else ''}."
        case c.Exhaust():
            return "The target will not be asked any more: a person decides."
        case c.TryAgain():
            return "A person wants the target to be asked again."
        case c.DidntHappen():
            return "A person says that it did not happen."
        case c.SkipMutation():
            return "A person gave the inputs up."
        case c.AssertApplied():
            return "A person says that it happened."
        case c.EndRun(message=message):
            return f"It stopped: {why_stopped(run.status, message)}."
        case c.CommitConsumer(publications=made) | c.CommitProducer(publications=made):
            return f"It is done{f', and published {listed([p.title for p in made])}' if made else ''}."
        case c.Abandon():
            return "A person gave up what follows its mutation."
    return ""


def accepted(outcome: Accepted | Rejected) -> Document:
    """What a person is told whose command was decided upon."""
    if isinstance(outcome, Accepted):
        return {"accepted": True, "rules": list(outcome.rules)}
    return {"accepted": False, "refused": refusal(outcome)}
