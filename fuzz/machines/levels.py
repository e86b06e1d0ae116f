"""The machines by name, and failures as files: written, read, and lived again."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from .choices import Choices
from .host import HostLife
from .kernel import KernelLife
from .life import Coverage, Scene
from .machine import Begin, Failure, again
from .places import ALL
from .service import ServiceLife
from .store import StoreLife
from .values import ValuesLife

Level = Literal["kernel", "store", "host", "service", "values"]
LEVELS: Final[tuple[Level, ...]] = ("kernel", "store", "host", "service")
"""The machines of a campaign; `values` is for a solver."""
FORMAT: Final = "keepkernel fuzz 1"


def beginning(level: Level, store: str = ALL) -> Begin:
    """How lives of a machine begin."""
    lives: dict[Level, Any] = {
        "kernel": KernelLife,
        "store": partial(StoreLife, url=store),
        "host": partial(HostLife, url=store),
        "service": ServiceLife,
        "values": ValuesLife,
    }

    def begin(choices: Choices, coverage: Coverage) -> Any:
        return lives[level](choices, coverage)

    return begin


class Trace(NamedTuple):
    """A life that broke something, as it stands in a file."""

    level: Level
    store: str
    fault: str
    """The seeded fault with which it was found; empty when there was none."""
    failure: Failure

    @property
    def name(self) -> str:
        return f"{self.level}-{self.failure.what.lower()}"


def story(scenes: tuple[Scene, ...]) -> Iterator[str]:
    """A life in words, line by line; times count from its beginning, in milliseconds."""
    began = scenes[0].at if scenes else 0
    for number, (at, actor, text) in enumerate(scenes, 1):
        yield f"{number:4}  {at - began:+8,} ms  {actor}: {text}"


def told(trace: Trace) -> str:
    failure = trace.failure
    head = f"The {trace.level} machine broke {failure.what} after {len(failure.story)} steps:"
    lines = [head, *story(failure.story), f"breaks {failure.what}: {failure.text}"]
    return "\n".join([*lines, failure.trace] if failure.trace else lines)


def to_json(trace: Trace) -> dict[str, Any]:
    failure = trace.failure
    return {
        "format": FORMAT,
        "level": trace.level,
        "store": trace.store,
        "fault": trace.fault,
        "breaks": failure.what,
        "text": failure.text,
        "steps": failure.steps,
        "choices": list(failure.choices),
        "story": [list(scene) for scene in failure.story],
    }


class NotALife(ValueError):
    """A document is not the life of a machine."""


def from_json(document: Any) -> Trace:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise NotALife(f"its format is not {FORMAT!r}")
    try:
        story = tuple(Scene(int(at), str(actor), str(text)) for at, actor, text in document["story"])
        choices = tuple(int(number) for number in document["choices"])
        failure = Failure(document["breaks"], document["text"], int(document["steps"]), choices, story, "")
        if document["level"] not in get_args(Level) or min(choices, default=0) < 0:
            raise NotALife(f"there is no machine {document['level']!r}, or a choice is negative")
        return Trace(document["level"], str(document["store"]), str(document["fault"]), failure)
    except (KeyError, TypeError, ValueError) as error:
        raise NotALife(f"it is not whole: {error!r}") from None


def live_again(level: Level, steps: int, choices: tuple[int, ...] | list[int], store: str = ALL) -> Failure | None:
    """What a life breaks now; None when it breaks nothing any more. For tests."""
    return again(beginning(level, store), steps, tuple(choices))


def replay(path: Path, text: str) -> int:
    """Play a life again: 0 when every step is as the file tells it and it breaks the same, else 1."""
    try:
        trace = from_json(json.loads(text))
    except ValueError as error:
        raise NotALife(str(error)) from None
    meant = trace.failure
    print(f"{path}: {trace.level} machine, {len(meant.story)} steps, against the system as it is")
    found = live_again(trace.level, meant.steps, meant.choices, trace.store)
    if found is not None and found.story == meant.story:
        print(told(trace._replace(failure=found)))
        if found.what == meant.what:
            print("every step is as the file tells it")
            return 0
    elif found is None:
        print("it breaks nothing here")
    else:
        pairs = enumerate(zip(found.story, meant.story, strict=False), 1)
        place = next((n for n, (here, there) in pairs if here != there), min(len(found.story), len(meant.story)) + 1)
        print(f"diverges at step {place}; here it breaks {found.what}: {found.text}")
    if trace.fault:
        print(f"It was found with the fault {trace.fault}: keepkernel fuzz --level {trace.level} --fault {trace.fault}")
    return 1


def as_test(trace: Trace) -> str:
    """The same as a test for pytest."""
    failure, name = trace.failure, trace.name.replace("-", "_")
    numbers = json.dumps(list(failure.choices))
    lines = [f"    {line}" for line in story(failure.story)]
    return "\n".join((
        f'"""Found by keepkernel fuzz: {failure.what}."""',
        "",
        "from keepkernel.fuzz.machines.levels import live_again",
        "",
        f"CHOICES = {numbers}",
        "",
        "",
        f"def test_{name}() -> None:",
        f'    """It broke {failure.what}:',
        "",
        *(line.replace("\\", "\\\\").replace('"""', "'''") for line in lines),
        '    """',
        f"    found = live_again({trace.level!r}, {failure.steps}, CHOICES, {trace.store!r})",
        '    assert found is None, f"{found.what}: {found.text}"',
        "",
    ))  # fmt: skip
