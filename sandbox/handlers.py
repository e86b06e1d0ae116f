"""A workflow's functions for the host: what each is given, what its operations do, what its result means.

What a script asks for or returns is checked here; whatever is wrong is a `Failed` that says what, and what to do.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Protocol, TypeVar

from cronsim import CronSim
from pydantic import Field, StringConstraints, ValidationError

from ..kernel.codec import shown
from ..kernel.failures import handler_row
from ..kernel.respond import Answer, Called, CalledNothing, Failed, Finished, Pinned
from ..kernel.types import CallHandler, Event, Handler, Key, Publication, Run, State
from . import border, bridge
from .bridge import Asked, Job, Returned, Strict, Tool, readable
from .engine import Workers

LIST_MAX: Final = 10_000
PUBLISHED_MAX: Final = 64_000_000
"""Characters that one call may publish: they stay in the host's memory until it returns."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)

Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class Events(Protocol):
    """Where topics are read: a store."""

    def peek(self, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
        """Pending events of a topic in order of publication."""

    def get(self, workflow: str, key: Key) -> Event | None:
        """One event, whatever its status."""


class Tools(Protocol):
    """The connectors, as far as scripts can read with them."""

    def catalogue(self) -> Mapping[str, Tool]:
        """Every tool by its name, `connector.method`."""

    def read(self, state: State, tool: str, params: str) -> str | Failed:
        """The result of a read as JSON, or a classified failure, which ends the run."""


Sources = Callable[[str, str], str]
"""The text of a workflow's script by workflow and version."""

LogSink = Callable[[str, str, tuple[str, ...]], None]
"""Takes the lines that a call has logged, by workflow and run."""


class Scripts:
    """Implements the kernel's port `Handlers` with workflow files."""

    def __init__(self, workers: Workers, sources: Sources, events: Events, tools: Tools, log: LogSink) -> None:
        self.workers = workers
        self.sources = sources
        self.events = events
        self.tools = tools
        self.log = log

    def call(self, state: State, effect: CallHandler) -> Answer:
        """Run one function to its end. It never raises for what a script does; that is `Failed`."""
        run, row = state.run, handler_row(state, effect.handler)
        if run is None or run.id != effect.run or row is None:
            raise ValueError(f"{effect.function} of {effect.handler} is asked for a run that is not there")
        job = Job(
            self.sources(state.workflow, effect.version),
            effect.function,
            effect.handler,
            given(effect, run, row),
            self.tools.catalogue(),
            state.policy.handler_call_ms,
        )
        performer = Performer(state, row, self.events, self.tools)
        lines: list[str] = []
        said = bridge.run(self.workers, job, performer, lines)
        if lines:
            self.log(state.workflow, effect.run, tuple(lines))
        try:
            return answer(said, job, run, row, tuple(performer.publications))
        except BadResult as bad:
            return Failed("bad_result", f"{effect.function} of {effect.handler}: {bad}")


# --- what a function is given ------------------------------------------------------------------------


def given(effect: CallHandler, run: Run, row: Handler) -> tuple[str, ...]:
    """The values after `ctx`, as JSON (SCRIPT-004, SCRIPT-005, SCRIPT-007)."""
    if effect.function in ("producer", "prepare"):
        return (row.state,)
    prepared = prepared_again(run)
    return (prepared,) if effect.function == "mutate" else (prepared, outcome(run))


def prepared_again(run: Run) -> str:
    """What prepare returned, made from what was stored of it."""
    reserved: dict[str, list[str]] = {}
    for key in run.reserved:
        reserved.setdefault(key.topic, []).append(key.id)
    reservations = border.dumps([{"topic": topic, "ids": ids} for topic, ids in reserved.items()])
    ui = border.dumps({"title": run.title})
    return f'{{"reservations":{reservations},"data":{run.data},"ui":{ui}}}'


def outcome(run: Run) -> str:
    """What became of the mutation (SCRIPT-007)."""
    if run.outcome == "success":
        return f'{{"status":"applied","result":{run.result or "null"}}}'
    return '{"status":"skipped"}' if run.outcome == "skipped" else '{"status":"none"}'


# --- what its operations do --------------------------------------------------------------------------


class BadResult(ValueError):
    """What a script gave is not what it must be; the message says where, and what to do."""


class Message(Strict):
    """What is published."""

    messageId: Name  # noqa: N815 - the script's word
    title: Annotated[str, StringConstraints(max_length=1_000, pattern=r"\S")]
    payload: Any = None


class PeekOptions(Strict):
    limit: Annotated[int, Field(ge=1)] | None = None


class Reservation(Strict):
    topic: Name
    ids: Annotated[list[Name], Field(max_length=LIST_MAX)]


class Ui(Strict, extra="ignore"):
    title: Annotated[str, StringConstraints(max_length=1_000)] = ""


class Prepare(Strict):
    """What prepare returns."""

    reservations: Annotated[list[Reservation], Field(max_length=LIST_MAX)]
    data: Any = None
    ui: Ui | None = None
    wakeAt: str | None = None  # noqa: N815 - the script's word


Shape = TypeVar("Shape", bound=Strict)


def shaped(shape: type[Shape], value: Any, form: str) -> Shape:
    """A value of a script in its expected shape; what is wrong is told all at once."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg'].lower()}" for problem in error.errors()
        ]
        raise BadResult(f"{readable('; '.join(problems[:10]))}. Expected: {form}") from None


class Performer:
    """Does the operations of one call, and keeps what it publishes until it has returned."""

    def __init__(self, state: State, row: Handler, events: Events, tools: Tools) -> None:
        self.state = state
        self.row = row
        self.events = events
        self.tools = tools
        self.publications: list[Publication] = []
        self.published_chars = 0

    def __call__(self, asked: Asked) -> str | Failed:
        match asked.operation:
            case "peek":
                return self.topic_read(asked, self.peek)
            case "get":
                return self.topic_read(asked, self.get)
            case "publish":
                return self.publish(asked)
            case "read":
                return self.read(asked)
        raise AssertionError("a mutation is not for the sandbox to perform")

    def topic_read(self, asked: Asked, read: Callable[[str, Any], list[Event | None]]) -> str | Failed:
        """Events of a topic that the consumer subscribes to (SCRIPT-006)."""
        topic, rest = (*asked.args, None, None)[:2]
        if topic not in self.row.declared.subscribes:
            name = self.row.declared.name
            return Failed("forbidden", f"{name} does not subscribe to {shown(topic)} (SCRIPT-006)")
        try:
            events = read(topic, rest)
        except BadResult as bad:
            return Failed("bad_result", f"{asked.operation}: {bad}")
        return f"[{','.join(as_seen(event) for event in events if event is not None)}]"

    def peek(self, topic: str, options: Any) -> list[Event | None]:
        policy = self.state.policy
        asked = shaped(PeekOptions, options or {}, "peek(topic, {limit})").limit
        limit = min(asked or policy.peek_default, policy.peek_max)
        return list(self.events.peek(self.state.workflow, topic, limit))

    def get(self, topic: str, ids: Any) -> list[Event | None]:
        keys = shaped(Reservation, {"topic": topic, "ids": ids}, "getByIds(topic, [id, …])").ids
        if len(keys) > self.state.policy.peek_max:
            raise BadResult(f"{len(keys)} ids at once; at most {self.state.policy.peek_max} are allowed")
        return [self.events.get(self.state.workflow, Key(topic, name)) for name in keys]

    def publish(self, asked: Asked) -> str | Failed:
        topic, message = (*asked.args, None, None)[:2]
        if topic not in self.state.topics:
            return Failed("bad_result", f"publish: the workflow declares no topic {shown(topic)}")
        if len(self.publications) >= LIST_MAX:
            return Failed("limit", f"publish: more than {LIST_MAX} events in one call")
        try:
            event = shaped(Message, message, "publish(topic, {messageId, title, payload})")
        except BadResult as bad:
            return Failed("bad_result", f"publish: {bad}")
        payload = border.dumps(event.payload)
        self.published_chars += len(payload)
        if len(payload) > self.state.policy.json_max_chars:
            return Failed("bad_result", f"publish: a payload of {len(payload)} characters is too large (EVENT-009)")
        if self.published_chars > PUBLISHED_MAX:
            return Failed("limit", f"publish: more than {PUBLISHED_MAX} characters in one call")
        self.publications.append(Publication(Key(topic, event.messageId), event.title, payload))
        return ""

    def read(self, asked: Asked) -> str | Failed:
        params = parameters(asked)
        if isinstance(params, Failed):
            return params
        result = self.tools.read(self.state, asked.tool, params)
        if isinstance(result, Failed):
            return result
        try:
            border.loads(result)
        except border.NotExact as error:
            return Failed("connector", f"{asked.tool} gave what no script can be given: {error}", asked.tool)
        return result


def as_seen(event: Event) -> str:
    """An event as a script sees it; its payload goes as the text that it is."""
    head = border.dumps({"topic": event.key.topic, "messageId": event.key.id, "title": event.title})
    return f'{head[:-1]},"payload":{event.payload}}}'


def parameters(asked: Asked) -> str | Failed:
    """A tool takes one value; none means no parameters."""
    if len(asked.args) > 1:
        return Failed("bad_result", f"{asked.tool} was given {len(asked.args)} values; give it one object")
    return border.dumps(asked.args[0]) if asked.args else "{}"


# --- what its result means ---------------------------------------------------------------------------


def answer(
    said: Returned | Asked | Failed, job: Job, run: Run, row: Handler, publications: tuple[Publication, ...]
) -> Answer:
    match said:
        case Failed():
            return said
        case Asked(_, name):
            params = parameters(said)
            if isinstance(params, Failed):
                return params
            tool = job.tools[name]
            return Called(name, params, tool.reconcilable, tool.deadline_ms)
        case Returned(value) if job.function == "prepare":
            return pinned(value)
        case Returned() if job.function == "mutate":
            return CalledNothing()
        case Returned(value):
            state = None if value is None else border.dumps(read_back(value))
            due_at = cron_after(row.declared.cron, run.created_at) if row.declared.cron else None
            return Finished(state, publications, due_at)


def read_back(value: str) -> Any:
    try:
        return border.loads(value)
    except border.NotExact as error:
        raise BadResult(f"what it returned can not be kept: {error}") from None


def pinned(value: str | None) -> Pinned:
    form = "{reservations: [{topic, ids}], data, ui: {title}, wakeAt}"
    prepare = shaped(Prepare, None if value is None else read_back(value), form)
    keys = tuple(Key(taken.topic, name) for taken in prepare.reservations for name in taken.ids)
    title = prepare.ui.title if prepare.ui else ""
    wake_at = None if prepare.wakeAt is None else wake_time(prepare.wakeAt)
    return Pinned(keys, border.dumps(prepare.data), title, wake_at)


def wake_time(text: str) -> int:
    """An ISO 8601 time in milliseconds; without a zone it is UTC, as everywhere in the sandbox.

    >>> wake_time("1970-01-01T00:00:01.5Z"), wake_time("1970-01-02"), wake_time("1970-01-01T02:00+01:00")
    (1500, 86400000, 3600000)
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadResult(f"wakeAt: {shown(text)} is not a time in ISO 8601; use toISOString()") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, (moment - EPOCH) // MILLISECOND)


def cron_after(expression: str, time_ms: int) -> int:
    """The first time of a cron schedule, in UTC, after this one.

    >>> cron_after("0 9 * * *", 0), cron_after("* * * * *", 59_999)
    (32400000, 60000)
    """
    return (next(CronSim(expression, EPOCH + time_ms * MILLISECOND)) - EPOCH) // MILLISECOND
