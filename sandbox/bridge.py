"""The host's half of the bridge: one call of a function, from its start to its answer.

The worker pumps the script until nothing moves and hands its moves over; here they are judged by the kernel's table
of capabilities, all of them before any is done. What is forbidden, and the one mutation call, is never answered: the
context is dropped, so there is nothing that the script could catch (SCRIPT-003). Nothing that comes from the worker is
trusted.
"""

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ..kernel.capabilities import Function, Operation, allowed
from ..kernel.failures import FailureClass
from ..kernel.respond import Failed
from . import border
from .engine import OVERDUE, Killed, NoWorker, Stopped, Worker, Workers

MESSAGE_MAX: Final = 2_000
LOG_END: Final = 100
"""A log that is full may say so."""
STRANGE: Final = "the engine no longer keeps to its protocol"
OPERATIONS: Final = ("peek", "getByIds", "publish")
"""What every script finds in its context beside the connectors."""


class Tool(NamedTuple):
    """One method of a connector, as the host's catalogue lists it under `connector.method`."""

    kind: Literal["read", "mutate"]
    reconcilable: bool = False
    deadline_ms: int | None = None


class Job(NamedTuple):
    """A function to call, with what it is given."""

    source: str
    function: Function | Literal["describe"]
    handler: str = ""
    values: tuple[str, ...] = ()
    """JSON texts; an empty one is `undefined`."""
    tools: Mapping[str, Tool] = {}
    wall_ms: int = 1_000


class Asked(NamedTuple):
    """An operation that the function asked for."""

    operation: Operation
    tool: str
    args: tuple[Any, ...]


class Returned(NamedTuple):
    """The function came to its end; `value` is JSON, or None when it returned nothing."""

    value: str | None


Perform = Callable[[Asked], str | Failed]
"""Does what an operation asks for; the JSON text that settles it, or the failure that ends the run."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class LogLine(Strict):
    log: str


class Broken(Strict):
    failed: Literal["script", "limit", "bad_result"]
    message: str
    stack: str


class Move(Strict):
    call: int
    operation: Literal["peek", "get", "publish", "tool", "time", "chance"]
    tool: str
    args: list[str]
    broken: Broken | None = None
    """Why its values are not fit to be sent."""


class End(Strict):
    returned: str | None


class Frame(Strict):
    moves: list[LogLine | Move]
    end: End | Broken | None = Field(...)
    over: bool
    """The script has come to its end, and waits for nothing."""


FRAME: Final = TypeAdapter(Frame)
PLACE: Final = re.compile(r"<input>:(\d{1,7}):(\d{1,7})\b")
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that steer a terminal or turn the direction of a text."""


def readable(text: str) -> str:
    """A script's words for people and stores: whole characters, none that steers, not endless."""
    text = CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.encode(errors="replace").decode())
    return text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}…"


def failure(broken: Broken) -> Failed:
    place = PLACE.search(broken.stack)
    where = f" (line {place[1]}, column {place[2]})" if place else ""
    return Failed(broken.failed, f"{readable(broken.message)}{where}")


def run(workers: Workers, job: Job, perform: Perform, log: list[str]) -> Returned | Asked | Failed:
    """Call a function in a fresh context: what it returned, the mutation that ended it, or why it failed.

    It never raises for what a script does. Lines that the script logs are added to `log`.
    """
    try:
        with workers.lent() as worker:
            deadline = time.monotonic() + job.wall_ms / 1_000
            worker.send(_order(job, worker), deadline)
            made: list[Operation] = []
            while True:
                frame = _frame(worker.receive(deadline))
                worker.over = frame.over
                asked = _judge(job, frame, made, log)
                if sum(len(line) + 1 for line in log) > workers.limits.log_chars + LOG_END:
                    raise Stopped(STRANGE)
                if isinstance(asked, Failed):
                    return asked
                if "mutate" in made:
                    [mutation] = asked.values()
                    return _last(frame, mutation)
                if isinstance(frame.end, Broken):
                    return failure(frame.end)
                if not asked:
                    return _finished(frame)
                settled = _perform(asked, perform, deadline, workers.limits.memory_bytes)
                if isinstance(settled, Failed):
                    return settled
                if not settled:
                    return _finished(frame)
                worker.send({"settle": settled}, deadline)
    except NoWorker as trouble:
        return Failed("host", str(trouble))
    except Stopped as stopped:
        blamed: FailureClass = "network" if isinstance(stopped, Killed) else "limit"  # The line to it broke.
        return Failed(blamed, f"{job.function} of {job.handler} was stopped: {stopped}")


def _order(job: Job, worker: Worker) -> dict[str, Any]:
    """What to do; a script and its surroundings only when the worker does not know them yet."""
    worker.over = False
    order = {
        "function": job.function,
        "handler": job.handler,
        "values": job.values,
        "wall_s": job.wall_ms / 1_000,
    }
    setting = (job.source, *job.tools)
    if worker.setting != setting:
        worker.setting = setting
        names = border.dumps(list(connectors(job.tools).items()))
        order["setting"] = {**worker.limits._asdict(), "source": job.source, "connectors": names}
    return order


def connectors(tools: Collection[str]) -> dict[str, list[str]]:
    """Methods by connector, as scripts see them: `sheets.append` is `ctx.sheets.append`.

    >>> connectors(["sheets.append", "sheets.read"])
    {'sheets': ['append', 'read']}
    """
    found: dict[str, list[str]] = {}
    for name in tools:
        connector, dot, method = name.partition(".")
        if not dot or not connector or not method or "." in method or connector in OPERATIONS:
            raise ValueError(f"{name!r} can not be the name of a tool; use connector.method")
        found.setdefault(connector, []).append(method)
    return found


def _frame(body: bytes) -> Frame:
    try:
        return FRAME.validate_json(body)
    except ValidationError:
        raise Stopped(STRANGE) from None


def _judge(job: Job, frame: Frame, made: list[Operation], log: list[str]) -> dict[int, Asked] | Failed:
    """The operations of a frame, if the function may do all of them after what it has done (SCRIPT-001, SCRIPT-002)."""
    asked: dict[int, Asked] = {}
    for move in frame.moves:
        if isinstance(move, LogLine):
            if "mutate" not in made:  # After its last call nothing is heard of a script.
                log.append(readable(move.log))
            continue
        operation = _operation(job, move)
        if isinstance(operation, Failed):
            return operation
        if job.function == "describe" or not allowed(job.function, operation, tuple(made)):
            return _forbidden(job, move, operation, made)
        if move.broken is not None:
            return failure(move.broken)
        try:
            asked[move.call] = Asked(operation, move.tool, tuple(border.loads(text) for text in move.args))
        except border.NotExact as error:
            return Failed("bad_result", f"what was given to {_name(move)} can not leave the script: {error}")
        made.append(operation)
    return asked


def _perform(
    asked: Mapping[int, Asked], perform: Perform, deadline: float, size_max: int
) -> list[tuple[int, str]] | Failed:
    """What the operations of a frame give. A script may ask for any number at once, so the limits hold among them."""
    settled: list[tuple[int, str]] = []
    size = 0
    for call, operation in asked.items():
        if time.monotonic() > deadline:
            raise Stopped(OVERDUE)
        answer = perform(operation)
        if isinstance(answer, Failed):
            return answer
        size += len(answer)
        if size > size_max:
            return Failed("limit", f"it asked for more than {size_max} bytes at once; ask for less, and await it")
        if operation.operation != "publish":  # The script does not wait for that.
            settled.append((call, answer))
    return settled


def _operation(job: Job, move: Move) -> Operation | Failed:
    match move.operation:
        case "time" | "chance" as what:
            problem = f"{job.function} asked for {what}; take it in prepare and pass it in data (SCRIPT-004)"
            return Failed("forbidden", problem)
        case "tool" if move.tool not in job.tools:
            return Failed("script", f"no connector provides {readable(move.tool)}")
        case "tool":
            return job.tools[move.tool].kind
        case operation:
            return operation


def _name(move: Move) -> str:
    return readable(move.tool) or {"get": "getByIds"}.get(move.operation, move.operation)


WORDS: Final[Mapping[Operation, str]] = {
    "read": "read from outside",
    "mutate": "change anything outside",
    "peek": "peek at topics",
    "get": "get events",
    "publish": "publish",
}


def _forbidden(job: Job, move: Move, operation: Operation, made: list[Operation]) -> Failed:
    if "mutate" in made:
        return Failed("forbidden", f"{_name(move)} was called beside or after the mutation call (SCRIPT-002)")
    return Failed("forbidden", f"{job.function} may not {WORDS[operation]}: {_name(move)} (SCRIPT-001)")


def _last(frame: Frame, mutation: Asked) -> Asked | Failed:
    """The mutation that ends the script, unless it went on and broke; nothing has been sent (SCRIPT-002)."""
    if isinstance(frame.end, Broken):
        return Failed("forbidden", f"mutate went on after its call (SCRIPT-002): {failure(frame.end).message}")
    return mutation


def _finished(frame: Frame) -> Returned | Failed:
    if frame.end is None:
        return Failed("script", "it waits for something that never comes; await only calls of ctx")
    assert isinstance(frame.end, End)
    return Returned(frame.end.returned)
