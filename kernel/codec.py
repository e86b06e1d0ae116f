"""Canonical JSON for every value of the kernel: one text per value, and back without loss (CODEC rules).

Standard library only. It trusts its input to be well formed, as a store's own rows are; documents from
outside go through `keepkernel.spec.documents` first.
"""

import json
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .commands import COMMANDS, NAMES, Command
from .types import Accepted, CallHandler, Effect, Outcome, Reconcile, Rejected, Repair, Send, State

T = TypeVar("T")

TAGS: dict[type, str] = {
    **NAMES,
    Accepted: "accepted",
    Rejected: "rejected",
    CallHandler: "call_handler",
    Send: "send",
    Reconcile: "reconcile",
    Repair: "repair",
}
"""Members of a union carry their name in `type`."""

BY_TAG: dict[str, type] = {tag: kind for kind, tag in TAGS.items()}


class DecodeError(ValueError):
    """A text is not the canonical form of the expected value."""


def to_plain(value: Any) -> Any:
    """The JSON value of a kernel value."""
    if isinstance(value, tuple):
        if not hasattr(value, "_fields"):
            return [to_plain(item) for item in value]
        plain = {name: to_plain(item) for name, item in zip(value._fields, value, strict=True)}
        tag = TAGS.get(type(value))
        return plain if tag is None else {"type": tag, **plain}
    return value


def from_plain(kind: Any, plain: Any) -> Any:
    """The kernel value of a JSON value; raises DecodeError when it is not one."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _from_union(get_args(kind), plain)
    if origin is Literal:
        if plain not in get_args(kind) or not isinstance(plain, str):
            raise DecodeError(f"{plain!r} is not one of {get_args(kind)}")
        return plain
    if origin is tuple:
        if not isinstance(plain, list):
            raise DecodeError(f"expected a list, got {plain!r}")
        return tuple(from_plain(get_args(kind)[0], item) for item in plain)
    if hasattr(kind, "_fields"):
        return _from_object(kind, plain)
    if type(plain) is not kind and not (kind is NoneType and plain is None):
        raise DecodeError(f"expected {kind.__name__}, got {plain!r}")
    return plain


def _from_union(kinds: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and NoneType in kinds:
        return None
    if isinstance(plain, dict) and isinstance(plain.get("type"), str):
        tagged = BY_TAG.get(plain["type"])
        if tagged in kinds:
            return _from_object(tagged, plain)
    for kind in kinds:
        if kind not in TAGS and kind is not NoneType:
            try:
                return from_plain(kind, plain)
            except DecodeError:
                continue
    raise DecodeError(f"no member of the union fits {plain!r}")


def _from_object(kind: Any, plain: Any) -> Any:
    if not isinstance(plain, dict):
        raise DecodeError(f"expected an object for {kind.__name__}, got {plain!r}")
    expected = {*kind._fields} | ({"type"} if kind in TAGS else set())
    if plain.keys() != expected:
        raise DecodeError(f"{kind.__name__}: fields {sorted(plain.keys() ^ expected)} are missing or unknown")
    hints = get_type_hints(kind)
    return kind(*(from_plain(hints[name], plain[name]) for name in kind._fields))


def encode(value: State | Command | Outcome | Effect) -> str:
    """The canonical text: sorted keys, no spaces, ASCII, so that equal values have equal texts (CODEC-001).

    >>> from keepkernel import Pause
    >>> encode(Pause(now=5))
    '{"now":5,"type":"pause"}'
    """
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _decode(kind: Any, text: str) -> Any:
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from None
    return from_plain(kind, plain)


def decode_state(text: str) -> State:
    """The state behind a canonical text (CODEC-002)."""
    state: State = _decode(State, text)
    return state


def decode_command(text: str) -> Command:
    """The command behind a canonical text (CODEC-002)."""
    command: Command = _decode(Command, text)
    return command


def decode_outcome(text: str) -> Outcome:
    """The outcome behind a canonical text (CODEC-002)."""
    outcome: Outcome = _decode(Outcome, text)
    return outcome


__all__ = [
    "COMMANDS",
    "DecodeError",
    "decode_command",
    "decode_outcome",
    "decode_state",
    "encode",
    "from_plain",
    "to_plain",
]
