"""What happens, as it happens: a line for each change that matters to somebody who looks on."""

from collections.abc import Iterator
from typing import Final

from .kernel import commands as c
from .kernel.ports import Change
from .kernel.types import Event
from .story import Document, listed, when, why_stopped


def news(change: Change) -> Iterator[Document]:
    """What a change that is durable now means to somebody who looks on."""
    shared = {"workflow": change.workflow}
    for command, _, retired in change.done:
        at = {**shared, "at": when(command.now)}
        run = retired.run or change.head.run
        match command:
            case c.CommitProducer(publications=made) if made and run:
                new = [e for e in change.events if e.created_by == command.run]
                if new:
                    yield {
                        **at,
                        "kind": "inputs",
                        "run": command.run,
                        "text": f"{run.handler}: {plural(len(new), 'new input')}: {titles_of(new)}",
                        "count": len(new),
                    }
            case c.Publish(publication=made):
                if any(e.key == made.key for e in change.events):
                    yield {**at, "kind": "inputs", "text": f"a person published: {made.title}", "count": 1}
            case c.CommitConsumer(publications=made) if retired.run and retired.run.reserved:
                held = frozenset(retired.run.reserved)
                taken = [e for e in change.events if e.key in held]
                titles = [e.title for e in taken]
                came = [p.title for p in made] or [retired.run.title or f"done by {retired.run.handler}"]
                yield {
                    **at,
                    "kind": "done",
                    "run": command.run,
                    "text": f"{listed(titles) or retired.run.title or retired.run.handler} → {listed(came)}",
                    "count": sum(not e.causes for e in taken),  # What came of an input is not one more.
                }
            case c.EndRun(status=status, message=message):
                ended = retired.run or change.head.run
                handler = ended.handler if ended else "?"
                yield {
                    **at,
                    "kind": "stopped",
                    "run": command.run,
                    "text": f"{handler} stopped: {why_stopped(ended.status if ended else status, message)}",
                }
            case c.ReconcileRetry() | c.Exhaust() | c.FailMutation() | c.ApplyMutation(by="inline" | "reconcile"):
                words = ended_words(command)
                yield {**at, "kind": "mutation", "run": command.run, "text": words}
            case c.Grant(tool=tool, mode=mode):
                asking = ", with an approval for each call" if mode == "ask" else ""
                yield {**at, "kind": "person", "text": f"may use {tool}{asking}"}
            case c.Resume():
                yield {**at, "kind": "person", "text": "started"}
            case c.Pause():
                yield {**at, "kind": "person", "text": "paused"}
            case c.Deploy(version=version):
                yield {**at, "kind": "deploy", "text": f"version {version} deployed"}
            case command if type(command) in PERSONS:
                yield {**at, "kind": "person", "text": f"a person: {c.NAMES[type(command)].replace('_', ' ')}"}


PERSONS: Final = (
    c.TryAgain,
    c.DidntHappen,
    c.SkipMutation,
    c.AssertApplied,
    c.SkipEvent,
    c.Approve,
    c.Reject,
    c.Reconnect,
    c.ClearError,
    c.Retry,
    c.Abandon,
    c.RunNow,
)


def ended_words(command: c.Command) -> str:
    match command:
        case c.ReconcileRetry():
            return "the target was asked whether it happened; not settled yet"
        case c.Exhaust():
            return "nobody can tell whether it happened: a person decides"
        case c.FailMutation():
            return "the change outside did not happen"
    return "the change outside was found: it happened"


def titles_of(events: list[Event]) -> str:
    return listed([event.title for event in events])


def plural(count: int, what: str) -> str:
    """
    >>> plural(1, "new input"), plural(2, "new input")
    ('1 new input', '2 new inputs')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
