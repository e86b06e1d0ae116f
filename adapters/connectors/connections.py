"""The configured connectors of one host: the kernel's port `Connectors`, and what the sandbox reads with.

Whatever a connector does, the answer is one that is true: a change is `Failed` only when it is certain that nothing
happened, and `Unknown` for every exception that nobody foresaw and for every call that outlasts its deadline.
"""

import json
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from ...kernel.failures import classify
from ...kernel.respond import Answer, AskAgain, Failed, Happened, NoMethod, Unknown
from ...kernel.runs import permission
from ...kernel.types import Reconcile, Send, State
from ..clock import wall_clock_ms
from ..points import Reach, pass_by
from . import config
from .base import NOT_FOUND, Call, Connector, Method, NotDone, Refused, Unclear
from .secrets import Mask, declared_secrets

MESSAGE_MAX: Final = 500

Tell = Callable[[str, str, str], None]
"""Takes what a person may want to know of a call: its tool, the words, and the key of a change, empty for a read."""


def log(tool: str, message: str, key: str) -> None:
    logging.getLogger("keepkernel.connectors").warning("%s: %s", tool, message)


class Tool(NamedTuple):
    """One method of a connector as scripts and hosts know it; its name, `connector.method`, is what is granted."""

    kind: Literal["read", "mutate"]
    reconcilable: bool
    deadline_ms: int


class BadParams(ValueError):
    """Parameters that are not of the declared shape; the message says all that is wrong with them."""


class Overdue(Exception):
    """The time is over and the work is not; it goes on by itself, and nobody waits for it."""


class Connections:
    """Connectors by name. Nothing that it returns or logs shows a secret."""

    def __init__(
        self,
        connectors: Mapping[str, Connector],
        *,
        secrets: Iterable[str] = (),
        tell: Tell = log,
        reach: Reach = pass_by,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.connectors = dict(connectors)
        self.masked = Mask([*secrets, *declared_secrets(self.connectors.values())])
        """A text for display: every secret in it is covered."""
        self._tell = tell
        self.reach = reach
        self._clock = clock
        self._tools = {
            f"{name}.{method}": (connector, declared)
            for name, connector in self.connectors.items()
            for method, declared in connector.methods.items()
            if connector.offers(method)
        }

    @classmethod
    def from_config(
        cls,
        path: str | Path,
        *,
        tell: Tell = log,
        reach: Reach = pass_by,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> "Connections":
        """The connectors that a TOML file configures; a `ConfigError` tells all that is wrong with it."""
        loaded = config.load(Path(path))
        return cls(loaded.connectors, secrets=loaded.secrets, tell=tell, reach=reach, clock=clock)

    def close(self) -> None:
        for connector in self.connectors.values():
            connector.close()

    def __enter__(self) -> "Connections":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- what there is

    def catalogue(self) -> Mapping[str, Tool]:
        """Every tool by its name, which is also the name of its permission."""
        return {
            tool: Tool(
                method.kind, method.kind == "mutate" and connector.reconcilable(method.name), connector.deadline_ms
            )
            for tool, (connector, method) in self._tools.items()
        }

    def documents(self) -> dict[str, dict[str, Any]]:
        """What whoever writes a script needs to know of every tool, with JSON schemas."""
        return {
            tool: {
                "kind": method.kind,
                "does": (method.function.__doc__ or "").strip(),
                "params": method.params.model_json_schema(),
                "result": method.result.model_json_schema(),
            }
            for tool, (_, method) in self._tools.items()
        }

    # -- what is done

    def read(self, state: State, tool: str, params: str) -> str | Failed:
        """The result of a read as JSON, or a classified failure. A workflow reads only with what it is granted."""
        found = self._tools.get(tool)
        if found is None:
            return Failed("script", f"no connector provides {tool}")
        connector, method = found
        if method.kind != "read":
            return Failed("forbidden", f"{tool} changes something; call it in mutate")
        if permission(state, tool) is None:
            return Failed("permission", f"{tool} is not granted", tool)
        try:
            given = shaped(method, params)
            return self._result(method, within(connector.deadline_ms, partial(method.function, connector, given)))
        except BadParams as error:
            return Failed("bad_result", self._words(f"{tool}: {error}"), tool)
        except NotDone as error:
            return Failed(error.failure, self._words(f"{tool}: {error}"), tool)
        except Overdue:
            return Failed("timeout", f"{tool} gave no answer in {connector.deadline_ms} ms", tool)
        except Exception as error:
            failure = connector.failure(error)
            if failure is None:
                self._report(tool, "", "failed in a way that its connector does not foresee", error)
            return Failed(failure or "connector", self._words(f"{tool}: {described(error)}"), tool)

    def send(self, effect: Send) -> Answer:
        """Make the call, once: Happened, Failed when it is certain that nothing happened, else Unknown."""
        tool, key = effect.tool, effect.key
        found = self._tools.get(tool)
        if found is None or found[1].kind != "mutate":
            return Failed("host", f"no connector provides {tool} as a change; nothing was sent", tool)
        connector, method = found
        try:
            given = shaped(method, effect.params)
        except BadParams as error:
            return Failed("bad_result", self._words(f"{tool}: {error}; nothing was sent"), tool)
        # To connect may take long: the host's look at the clock was one before the call, this one is in it (HOST-002).
        # The clock shows whole milliseconds: in the one in which the deadline ends, nobody may wait any more.
        leave_by = min(effect.send_by, self._clock() + connector.deadline_ms - 1)
        work = partial(method.function, connector, given, Call(effect.key, leave_by, self.reach, self._clock))
        try:
            late = partial(self._late, tool, key)
            return Happened(self._result(method, within(connector.deadline_ms, work, late)))
        except NotDone as error:
            sent = isinstance(error, Refused)
            if classify(error.failure, sent=sent, declared_refusal=sent).certain:
                return Failed(error.failure, self._words(f"{tool}: {error}"), tool)
            why = f"a refusal of class {error.failure} proves nothing, so it is unknown"
            return Unknown(self._report(tool, key, why, error))
        except Overdue:
            why = f"no answer in {connector.deadline_ms} ms, so it is unknown whether it happened"
            return Unknown(self._say(tool, key, why))
        except Unclear as error:
            return Unknown(self._say(tool, key, f"{error}; so it is unknown whether it happened"))
        except Exception as error:
            return Unknown(self._report(tool, key, "it broke off, so it is unknown whether it happened", error))

    def reconcile(self, effect: Reconcile) -> Answer:
        """Ask whether it happened: Happened, DidNotHappen, AskAgain or NoMethod."""
        tool, key = effect.tool, effect.key
        found = self._tools.get(tool)
        if found is None:
            why = "no connector provides it any more, so nobody can be asked whether it happened"
            return AskAgain(self._say(tool, key, why))
        connector, method = found
        if method.reconcile is None or not connector.reconcilable(method.name):
            return NoMethod()
        try:
            given = shaped(method, effect.params)
            call = Call(effect.key, reach=self.reach)
            answer = within(connector.deadline_ms, partial(method.reconcile, connector, given, call))
            if isinstance(answer, AskAgain):
                return AskAgain(self._words(answer.message))
            return answer if isinstance(answer, NOT_FOUND) else Happened(self._result(method, answer))
        except Overdue:
            why = f"no answer in {connector.deadline_ms} ms to the question whether it happened"
            return AskAgain(self._say(tool, key, why))
        except Unclear as error:
            return AskAgain(self._say(tool, key, str(error)))
        except Exception as error:
            return AskAgain(self._report(tool, key, "nobody could tell whether it happened", error))

    # -- words

    def _result(self, method: Method, result: Any) -> str:
        """A result as JSON. A target that gives our secrets back does not bring them into the journal."""
        if not isinstance(result, method.result):
            raise TypeError(f"{method.name} gave {type(result).__name__} and not {method.result.__name__}")
        return json.dumps(
            self.masked.within(result.model_dump(mode="json", by_alias=True)), separators=(",", ":"), allow_nan=False
        )

    def _words(self, message: str) -> str:
        text = self.masked(message)
        return text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}…"

    def _say(self, tool: str, key: str, message: str) -> str:
        """Tell it, and give it as it may stand in the journal."""
        words = self._words(message)
        self._tell(tool, words, key)
        return words

    def _report(self, tool: str, key: str, message: str, error: BaseException) -> str:
        """The same, and where the error comes from is told besides."""
        message, told = f"{message}: {described(error)}", "".join(traceback.format_exception(error))
        self._tell(tool, self.masked(f"{message}\n{told}"), key)
        return self._words(message)

    def _late(self, tool: str, key: str, error: BaseException | None) -> None:
        ended = described(error) if error else "it is done"
        self._say(tool, key, f"a call that nobody waited for any more ended: {ended}")


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def shaped(method: Method, params: str) -> BaseModel:
    """The parameters of a call in their declared shape; whatever is wrong is told at once."""
    try:
        value = json.loads(params)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return method.params.model_validate(value)
    except ValidationError as error:
        told = (f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg'].lower()}" for e in error.errors())
        form = ", ".join(n if f.is_required() else f"{n}?" for n, f in method.params.model_fields.items())
        raise BadParams(f"{'; '.join(told)}; it takes {{{form}}}") from None
    except (ValueError, RecursionError) as error:
        raise BadParams(f"its parameters are not JSON that can be sent: {described(error)}") from None


Result = TypeVar("Result")
Late = Callable[[BaseException | None], None]


def within(deadline_ms: int, work: Callable[[], Result], late: Late | None = None) -> Result:
    """The result of a piece of work, or what it raised, or `Overdue` when it is not over in time.

    Nothing can stop a thread that waits for a system call, so the work goes on, in a thread that does not keep the
    process alive; `late` hears how it ended.
    """
    future: Future[Result] = Future()
    Thread(target=perform, args=(future, work), daemon=True, name="keepkernel connector").start()
    wait([future], timeout=deadline_ms / 1_000)
    if not future.done():
        if late is not None:
            future.add_done_callback(lambda ended: late(ended.exception()))
        raise Overdue
    try:
        return future.result()
    finally:
        del future


def perform(future: Future[Result], work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # Whatever it is, it is raised again where the work is waited for.
        future.set_exception(error)
    finally:
        # What was raised refers to this frame, and the future to what was raised: a circle, in which open cursors,
        # and the locks that they hold, would wait for the collector of garbage. The same is true of `within`.
        del future
