"""A target that is called by HTTP: one URL to post to, and to get from.

Certain is only what the target certainly did not do. It was not reached; or it answered with a status that says, of
itself, that nothing was done (`REFUSALS`, and those that the settings declare for this target). Every other answer but
a 2xx, and no answer, leaves the outcome unknown: a 500 or a 503 may come from a target that has done half of it, or
from a gateway in front of one that has done it all.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, NoReturn
from urllib.parse import urlsplit

import httpx
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, StringConstraints

from ...kernel.failures import FailureClass
from ...kernel.respond import DidNotHappen
from .base import Call, Connector, NotDone, Refused, Shape, Unclear, changes, give_up_after, reads, reconciles

BODY_MAX_BYTES: Final = 1_000_000
CONNECTED: Final = "connection.connect_tcp.complete"
LEAVES: Final = "http11.send_request_headers.started"
UNREACHED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)

Definite = Literal["auth", "rate_limit", "refused"]

REFUSALS: Final[Mapping[int, Definite]] = {
    **dict.fromkeys((307, 308), "refused"),  # Repeat it elsewhere: it was not done here.
    **dict.fromkeys((400, 404, 405, 410, 411, 413, 414, 415, 422, 431, 451), "refused"),
    **dict.fromkeys((401, 403), "auth"),
    429: "rate_limit",
}
"""Not among them: 408 and 409, which a target may answer while it works on the call; 406, when it is done; all 5xx."""


def plain_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write a URL like https://HOST/PATH")
    if parts.username or parts.password:
        raise ValueError("put no user and no password into a URL; give headers instead")
    return url


def with_key(url: str) -> str:
    if "{key}" not in url:
        raise ValueError("write {key} where the target wants to see the key of the call")
    return url


Url = Annotated[str, AfterValidator(plain_url)]
Status = Annotated[int, Field(ge=300, le=599)]
Header = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]+$")]


def one_line(value: SecretStr) -> SecretStr:
    if not (value.get_secret_value().isascii() and value.get_secret_value().isprintable()):
        raise ValueError("a header is one line of plain characters")
    return value


class Look(BaseModel):
    """Where the target tells whether it has done a call."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Annotated[Url, AfterValidator(with_key)]
    missing: Status | None = None
    """The status that the target answers only when it has not done the call, and is not at it. Without it, nothing
    that the target answers proves that the call did not happen."""


class PostParams(Shape):
    body: Any = None


class Answered(Shape):
    status: int
    body: Any
    """What the target sent: JSON if it is that, else text; null when it is too long."""


class GetParams(Shape):
    path: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_~%-][A-Za-z0-9._~%-]*(/|$))*$")] = ""
    """To be added to the URL."""
    query: dict[str, str] = Field(default={})


class Webhook(Connector):
    url: Url
    headers: dict[Header, Annotated[SecretStr, AfterValidator(one_line)]] = Field(default={})
    reconcile: Look | None = None
    definite: dict[Annotated[int, Field(ge=300, le=599)], Definite] = Field(default={})
    """More statuses with which this target says that nothing was done, as in `503 = "rate_limit"`."""

    errors: ClassVar[Mapping[type[Exception], FailureClass]] = {
        httpx.TimeoutException: "timeout",
        httpx.TransportError: "network",
        httpx.InvalidURL: "refused",
    }

    def reconcilable(self, method: str) -> bool:
        return self.reconcile is not None

    @changes
    def post(self, params: PostParams, call: Call) -> Answered:
        """Post a body as JSON."""
        left: list[str] = []

        def trace(event: str, info: Mapping[str, Any]) -> None:
            if event == CONNECTED:
                give_up_after(self.deadline_ms, info["return_value"].get_extra_info("socket"))
            if event == LEAVES:
                call.leaves()
                left.append(event)

        headers = {"Idempotency-Key": call.name}
        try:
            with self._asked(
                "POST", self.url, headers=headers, json=params.body, extensions={"trace": trace}
            ) as answer:
                call.reach("webhook: answered")
                answered = Answered(status=answer.status_code, body=body_of(answer))
        except httpx.RequestError as error:
            if left:
                raise Unclear(f"the call had left, and then: {type(error).__name__}: {error}") from error
            if isinstance(error, UNREACHED):
                raise NotDone(self.failure(error) or "network", f"the target was not reached: {error}") from error
            raise
        if answer.is_success:
            return answered
        failure = {**REFUSALS, **self.definite}.get(answer.status_code)
        if failure is None:
            raise Unclear(f"the target answered {told(answered)}, which leaves open what it did")
        raise Refused(failure, f"the target answered {told(answered)}")

    @reconciles("post")
    def find(self, params: PostParams, call: Call) -> Answered | DidNotHappen:
        """Ask the target, where it can be asked."""
        look = self.reconcile
        assert look is not None
        try:
            with self._asked("GET", look.url.replace("{key}", call.name)) as answer:
                answered = Answered(status=answer.status_code, body=body_of(answer))
        except httpx.RequestError as error:
            raise Unclear(f"the target gave no answer: {type(error).__name__}: {error}") from error
        if answer.is_success:
            return answered
        if answer.status_code == look.missing:
            return DidNotHappen()
        raise Unclear(f"the target answered {told(answered)} to the question whether it happened")

    @reads
    def get(self, params: GetParams) -> Answered:
        """Get what is at the URL, or at a path below it."""
        url = f"{self.url.rstrip('/')}/{params.path}" if params.path else self.url
        with self._asked("GET", url, params=params.query or None) as answer:
            answered = Answered(status=answer.status_code, body=body_of(answer))
        return answered if answer.is_success else fail(answered)

    @contextmanager
    def _asked(
        self, method: str, url: str, headers: Mapping[str, str] = MappingProxyType({}), **request: Any
    ) -> Iterator[httpx.Response]:
        """One request on a connection of its own, which nobody repeats or redirects."""
        all_s = self.deadline_ms / 1_000
        timeout = httpx.Timeout(all_s, connect=min(10.0, all_s / 2))
        given = {name: value.get_secret_value() for name, value in self.headers.items()}
        with (
            httpx.Client(timeout=timeout, follow_redirects=False) as client,
            client.stream(method, url, headers={**given, **headers}, **request) as answer,
        ):
            yield answer


def fail(answered: Answered) -> NoReturn:
    """What the answer to a read means that is none."""
    failure: FailureClass = REFUSALS.get(answered.status, "refused")
    raise NotDone("network" if answered.status >= 500 else failure, f"the target answered {told(answered)}")


def told(answered: Answered) -> str:
    """All of it: whoever shortens a text before its secrets are covered lets a half of one through."""
    text = answered.body if isinstance(answered.body, str) else json.dumps(answered.body)
    return f"{answered.status}: {text}"


def body_of(answer: httpx.Response) -> Any:
    """What was sent, as far as JSON can hold it."""
    content = bytearray()
    for chunk in answer.iter_bytes():
        content += chunk
        if len(content) > BODY_MAX_BYTES:
            return None
    text = content.decode(errors="replace")
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return text
    return value
