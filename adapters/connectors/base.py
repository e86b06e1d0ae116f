"""How a connector is declared: a pydantic model of its settings, with methods marked as reads or changes.

The shapes of parameters and results are read off the methods' annotations. A change is given the `Call`, with the
idempotency key that no script sees, and says by what it raises how much is certain:

- `NotDone`: the call never left. `Refused`: it did, and the target itself said a definite no.
- Anything else that is raised leaves the outcome unknown, `Unclear` with words of its own. Nobody has to think of every
  error for that to be right.
"""

import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from ...kernel.failures import FailureClass
from ...kernel.respond import AskAgain, DidNotHappen, NoMethod
from ..clock import wall_clock_ms
from ..points import Reach, pass_by

NOT_FOUND: Final = (AskAgain, DidNotHappen, NoMethod)
"""What a reconcile returns when it does not return the result of the change that it found."""


class Shape(BaseModel):
    """Parameters or a result: nothing but what is declared, and nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class Call(NamedTuple):
    """One change outside, as its connector sees it."""

    key: str
    """The idempotency key: the same for the call and for every look at it, and for no other call."""
    leave_by: float = float("inf")
    """By `clock`; a request that leaves later may land when nobody expects it any more (POLICY-005)."""
    reach: Reach = pass_by
    clock: Callable[[], int] = wall_clock_ms

    @property
    def name(self) -> str:
        """The key for file names and headers: short, of plain letters, and as unique.

        >>> Call("demo/run-1").name
        '25cf72957632b339fa5f98214d2090dc'
        """
        return sha256(self.key.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def leaves(self) -> None:
        """To be called right before the step that can not be taken back."""
        self.reach("call: leaves")
        if self.clock() > self.leave_by:
            raise NotDone("timeout", "its time had passed before it could leave")


class NotDone(Exception):
    """It is certain that nothing happened, because the call never left; or a read failed."""

    def __init__(self, failure: FailureClass, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class Refused(NotDone):
    """The call left and the target itself refused it, in a way that its connector declares definite."""


class Unclear(Exception):
    """The call left, and what came back does not settle what became of it. The message says what came back."""


def give_up_after(deadline_ms: int, sock: socket.socket) -> None:
    """What has not arrived by the deadline must not arrive at all (MUT-009).

    The system goes on by itself to resend what nobody acknowledged, for minutes, even when the process has ended.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, deadline_ms)
    else:  # Then at least not when the socket is closed.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def beside_the_file(value: Any, info: ValidationInfo) -> Any:
    """A path in a configuration counts from the folder of its file."""
    folder = (info.context or {}).get("folder", Path())
    return folder / value if isinstance(value, str | Path) else value


Place = BeforeValidator(beside_the_file)


class Connector(BaseModel):
    """Settings of one target, as a configuration gives them. Subclasses add settings and methods."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    deadline_ms: Annotated[int, Field(gt=0, le=3_600_000)] = 60_000
    """What was sent has landed by then, or never will. No call is waited for any longer."""

    errors: ClassVar[Mapping[type[Exception], FailureClass]] = {
        ConnectionError: "network",
        TimeoutError: "timeout",
        socket.gaierror: "network",
    }
    """What an exception of a library means when it proves that nothing happened, or when it ends a read."""

    methods: ClassVar[Mapping[str, "Method"]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.methods = declared_methods(cls)

    def offers(self, method: str) -> bool:
        """Whether a method can be called, with these settings."""
        return True

    def reconcilable(self, method: str) -> bool:
        """Whether a change can be looked for later, with these settings."""
        return self.methods[method].reconcile is not None

    def failure(self, error: Exception) -> FailureClass | None:
        """The class of an exception; None when nobody foresaw it."""
        found = (self.errors[kind] for kind in type(error).__mro__ if kind in self.errors)
        return next(found, None)

    @contextmanager
    def unsent(self) -> Iterator[None]:
        """What fails in here has failed before anything left."""
        try:
            yield
        except NotDone:
            raise
        except Exception as error:
            failure = self.failure(error)
            if failure is None:
                raise
            raise NotDone(failure, str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Let go of what is held open."""


class Method(NamedTuple):
    """One method as it is declared."""

    name: str
    kind: Literal["read", "mutate"]
    function: Callable[..., Any]
    params: type[BaseModel]
    result: type[BaseModel]
    reconcile: Callable[..., Any] | None = None


Function = TypeVar("Function", bound=Callable[..., Any])


def reads(function: Function) -> Function:
    """Marks `method(self, params) -> result`, which changes nothing outside."""
    function.__dict__["marked"] = "read"
    return function


def changes(function: Function) -> Function:
    """Marks `method(self, params, call) -> result`, which makes one change outside."""
    function.__dict__["marked"] = "mutate"
    return function


def reconciles(method: str) -> Callable[[Function], Function]:
    """Marks `look(self, params, call)`, which finds out whether a change was made.

    It returns the result of the change, `DidNotHappen` or `AskAgain`. It may say `DidNotHappen(voided=True)` only when
    it has made sure, at the target, that the call can never land.
    """

    def mark(function: Function) -> Function:
        function.__dict__["reconciles"] = method
        return function

    return mark


def declared_methods(connector: type[Connector]) -> dict[str, Method]:
    """The marked methods by name, with the shapes that their annotations give."""
    functions = {name: value for kind in reversed(connector.__mro__) for name, value in vars(kind).items()}
    looks = {f.reconciles: f for f in functions.values() if hasattr(f, "reconciles")}
    found = {}
    for name, function in functions.items():
        kind = getattr(function, "marked", None)
        if kind is not None:
            hints = get_type_hints(function)
            params, result = (model_of(connector, name, hints.get(place)) for place in ("params", "return"))
            look = looks.pop(name, None) if kind == "mutate" else None
            found[name] = Method(name, kind, function, params, result, look)
    if looks:
        raise TypeError(f"{connector.__name__} reconciles {', '.join(looks)}, which is no method that changes anything")
    return found


def model_of(connector: type[Connector], name: str, hint: Any) -> type[BaseModel]:
    if not (isinstance(hint, type) and issubclass(hint, BaseModel)):
        raise TypeError(f"{connector.__name__}.{name} must take params and give a result that are models")
    return hint
