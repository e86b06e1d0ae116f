"""Ways to run a script in the sandbox, for the tests of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keepkernel.kernel.respond import Failed
from keepkernel.sandbox import bridge
from keepkernel.sandbox.bridge import Asked, Job, Returned, Tool
from keepkernel.sandbox.engine import MEGABYTE, Limits, Worker, Workers

TOOLS = {
    "gmail.search": Tool("read"),
    "gmail.send": Tool("mutate", reconcilable=True, deadline_ms=5_000),
    "sheets.appendRow": Tool("mutate"),
}
LIMITS = Limits(memory_bytes=16 * MEGABYTE, log_chars=2_000, frame_bytes=2 * MEGABYTE)
LONG_MS = 60_000
"""Longer than any script here takes that comes to an end, on any machine."""


class Watched(Workers):
    """Workers that tell which one was lent last."""

    last: Worker

    def _take(self) -> Worker:
        self.last = super()._take()
        return self.last


class Ran(NamedTuple):
    """What became of a call, with what was asked and logged on the way."""

    said: Returned | Asked | Failed
    asked: list[Asked]
    log: list[str]


def workflow(function: str, body: str, top: str = "") -> str:
    """A file in which this function has this body, which finds `ctx` and its values as `first` and `second`."""
    code = f"async (ctx, first, second) => {{ {body} }}"
    parts = f"producers: {{h: {code}}}" if function == "producer" else f"consumers: {{h: {{{function}: {code}}}}}"
    return f"{top}\nexport default Keep.workflow({{name: 'w', topics: {{}}, {parts}}});"


Answer = str | Failed | Callable[[Asked], str | Failed]


def run_body(
    workers: Workers,
    function: Any,
    body: str,
    *values: str,
    top: str = "",
    answer: Answer = "null",
    wall_ms: int = LONG_MS,
) -> Ran:
    """Run `body` as a function of a handler; every operation is answered with `answer`."""
    asked: list[Asked] = []
    log: list[str] = []

    def perform(operation: Asked) -> str | Failed:
        asked.append(operation)
        return answer(operation) if callable(answer) else answer

    job = Job(workflow(function, body, top), function, "h", values or ("",), TOOLS, wall_ms)
    return Ran(bridge.run(workers, job, perform, log), asked, log)
