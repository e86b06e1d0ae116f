"""Faults in the sandbox: what a script may do that it may not, what it keeps, and what it is told wrongly."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ...kernel.capabilities import CAPABILITIES, Function, Operation
from ...kernel.respond import Failed
from ...kernel.types import Event, Run
from ...sandbox import border, bridge, engine, handlers
from ...sandbox.bridge import Asked, Frame, Job
from ...sandbox.handlers import Performer, as_seen
from ...spec.variants import Swap
from .base import Edit, Fault, Patch

judge, topic_read, outcome = bridge._judge, Performer.topic_read, handlers.outcome

CAREFREE: Final[Mapping[Function, frozenset[Operation]]] = MappingProxyType(
    {**CAPABILITIES, "mutate": frozenset({"mutate", "read"})}
)


def allowed_before(function: Function, operation: Operation, made: tuple[Operation, ...] = ()) -> bool:
    return operation in CAPABILITIES[function]


def first_call_counts(job: Job, frame: Frame, made: list[Operation], log: list[str]) -> dict[int, Asked] | Failed:
    """The first mutation is taken, and the rest of the frame goes unseen."""
    for n, move in enumerate(frame.moves):
        if isinstance(move, bridge.Move) and move.tool in job.tools and job.tools[move.tool].kind == "mutate":
            return judge(job, frame.model_copy(update={"moves": frame.moves[: n + 1]}), made, log)
    return judge(job, frame, made, log)


def read_any_topic(self: Performer, asked: Asked, read: Callable[[str, Any], list[Event | None]]) -> str | Failed:
    topic, rest = (*asked.args, None, None)[:2]
    if not isinstance(topic, str):
        return topic_read(self, asked, read)
    return f"[{','.join(as_seen(event) for event in read(topic, rest) if event is not None)}]"


def skipped_is_none(run: Run) -> str:
    return '{"status":"none"}' if run.outcome == "skipped" else outcome(run)


def told_the_title_only(event: Event) -> str:
    return border.dumps({"topic": event.key.topic, "messageId": event.key.id, "title": event.title, "payload": None})


def no_deadline(deadline: float) -> float:
    return engine.START_S


FAULTS: Final = (
    Fault(
        "second-call-unseen",
        "sandbox",
        "A script that calls a second time is not stopped; its first call is made.",
        "the first call ends the script, so whatever follows can be ignored",
        patches=(Patch(bridge, "_judge", first_call_counts),),
    ),
    Fault(
        "second-call-allowed",
        "sandbox",
        "Whether a call is allowed does not depend on the calls before it.",
        "the table of capabilities says all, it was thought",
        patches=(Patch(bridge, "allowed", allowed_before),),
    ),
    Fault(
        "context-reused",
        "sandbox",
        "All calls of a worker share one context.",
        "a fresh context costs a millisecond",
        edits=(
            Edit(
                "worker.py",
                "        context, bridge = fresh()  # Made before it is wanted; nobody waits for it.\n",
                "        context, bridge = vars().get('one') or fresh()\n        one = context, bridge\n",
            ),
        ),
    ),
    Fault(
        "mutate-reads",
        "sandbox",
        "Mutate may read from outside.",
        "a read does no harm",
        swaps=(Swap(CAPABILITIES, CAREFREE),),
    ),
    Fault(
        "any-topic",
        "sandbox",
        "A consumer may read topics that it does not subscribe to.",
        "whoever knows the name of a topic may read it",
        patches=(Patch(Performer, "topic_read", read_any_topic),),
    ),
    Fault(
        "endless-log",
        "sandbox",
        "A script may log as much as it likes.",
        "the limit was in the way of a test, and never came back",
        edits=(Edit("worker.py", 'setting["log_chars"]', "10**9"),),
    ),
    Fault(
        "no-deadline",
        "sandbox",
        "The host waits for a script as long as it takes.",
        "the worker has a timer of its own",
        patches=(Patch(engine, "_left", no_deadline),),
    ),
    Fault(
        "open-context",
        "sandbox",
        "A script can rewrite what it is given.",
        "freezing was taken for a matter of taste",
        edits=(
            Edit("prelude.js", "    return freeze(ctx);", "    return ctx;"),
            Edit("prelude.js", "      freeze(ctx[connector]);\n", ""),
        ),
    ),
    Fault(
        "rounded-numbers",
        "sandbox",
        "Whole numbers of more than 53 bits are rounded on their way.",
        "the library's own decoder is faster",
        patches=(Patch(border, "DECODER", json.JSONDecoder(parse_int=float)),),
    ),
    Fault(
        "skipped-is-none",
        "sandbox",
        "Next is told that nothing was called when a person gave the call up.",
        "two words for nothing",
        patches=(Patch(handlers, "outcome", skipped_is_none),),
    ),
    Fault(
        "payload-withheld",
        "sandbox",
        "A peek shows events without their payloads.",
        "lists are for titles; the payload is in the details",
        patches=(Patch(handlers, "as_seen", told_the_title_only),),
    ),
)
