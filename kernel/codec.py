"""Canonical JSON for every value of the kernel: one text per value, and back without loss (CODEC rules).

Standard library only. A store reads and writes its own rows with it. Documents from outside go through
`keepkernel.spec.documents`, which knows the limits and explains what is wrong.
"""

import json
import re
from collections.abc import Callable
from functools import cache, lru_cache
from operator import itemgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from .commands import COMMANDS, NAMES, Command
from .policy import Policy
from .types import Accepted, CallHandler, Declaration, Effect, Outcome, Reconcile, Rejected, Repair, Send, State

TAGS: Final[dict[type, str]] = {
    **NAMES,
    Accepted: "accepted",
    Rejected: "rejected",
    CallHandler: "call_handler",
    Send: "send",
    Reconcile: "reconcile",
    Repair: "repair",
}
"""Members of a union carry their name in `type`."""

CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
"""Sorted keys, no spaces, ASCII: one text for each value."""

SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""How half a surrogate pair looks in ASCII; whole pairs look so too."""


class DecodeError(ValueError):
    """A text does not spell the expected value."""


class EncodeError(ValueError):
    """A value has no canonical text: half a surrogate pair, or a number of thousands of digits."""


def encode(value: State | Command | Outcome | Effect) -> str:
    """The canonical text: sorted keys, no spaces, ASCII, so that equal values have equal texts (CODEC-001).

    >>> from keepkernel import Pause
    >>> encode(Pause(now=5))
    '{"now":5,"type":"pause"}'
    """
    try:
        text = text_of(value)
        if SURROGATE.search(text):
            require_unicode(text, to_plain(value))
    except ValueError as error:
        raise EncodeError(f"{type(value).__name__} has no canonical text: {error}") from None
    return text


def text_of(value: Any) -> str:
    """The canonical text of any part of a kernel value."""
    return WRITERS[type(value)](value)


Writer = Callable[[Any], str]

STEADY: Final = (Policy, Declaration)
"""What is the same in one head after the other: its text is kept."""
STEADY_KEPT: Final = 256


class Writers(dict[type, Writer]):
    """The function that writes one type, made when it is first wanted: durable steps are made of texts."""

    def __missing__(self, kind: type) -> Writer:
        made = _record_writer(kind) if hasattr(kind, "_fields") else CANONICAL.encode
        self[kind] = made = lru_cache(STEADY_KEPT)(made) if kind in STEADY else made
        return made


def _write_list(items: tuple[Any, ...]) -> str:
    return f"[{','.join([WRITERS[type(item)](item) for item in items])}]"


def _record_writer(kind: Any) -> Writer:
    order = sorted(range(len(kind._fields)), key=lambda at: kind._fields[at])
    pick = itemgetter(*order) if len(order) > 1 else tuple  # Of one alone it would give no tuple.
    members = dict.fromkeys(kind._fields, "%s") | ({"type": f'"{TAGS[kind]}"'} if kind in TAGS else {})
    form = "{" + ",".join(f'"{name}":{members[name]}' for name in sorted(members)) + "}"

    def write(record: Any) -> str:
        return form % tuple([WRITERS[type(item)](item) for item in pick(record)])

    return write


WRITERS: Final = Writers(
    {
        str: json.encoder.encode_basestring_ascii,
        int: int.__repr__,
        bool: {False: "false", True: "true"}.__getitem__,
        NoneType: lambda nothing: "null",
        tuple: _write_list,
    }
)


def decode_state(text: str) -> State:
    """The state behind a text: `decode_state(encode(state)) == state` (CODEC-002)."""
    state: State = _decode(State, text)
    return state


def decode_command(text: str) -> Command:
    """The command behind a text (CODEC-002)."""
    command: Command = _decode(Command, text)
    return command


def decode_outcome(text: str) -> Outcome:
    """The outcome behind a text (CODEC-002)."""
    outcome: Outcome = _decode(Outcome, text)
    return outcome


def _decode(kind: Any, text: str) -> Any:
    """Any text gives a value or a DecodeError, never another exception (CODEC-003)."""
    try:
        plain = json.loads(text)
        require_unicode(text, plain)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from None
    return from_plain(kind, plain)


def require_unicode(text: str, plain: Any) -> None:
    """Refuse half a surrogate pair, in values and as an escape (CODEC-003).

    Two halves that stand side by side would come back as one character, so they can not be kept apart.
    """
    if not text.isascii():
        text.encode()
    if SURROGATE.search(text):
        json.dumps(plain, ensure_ascii=False).encode()


def to_plain(value: Any) -> Any:
    """The JSON value of a kernel value."""
    if not isinstance(value, tuple):
        return value
    fields = getattr(value, "_fields", None)
    if fields is None:
        return [to_plain(item) for item in value]
    plain = dict(zip(fields, map(to_plain, value), strict=True))
    return {"type": TAGS[type(value)], **plain} if type(value) in TAGS else plain


def from_plain(kind: Any, plain: Any) -> Any:
    """The kernel value of a JSON value; raises DecodeError when it is not one."""
    return reader(kind)(plain)


Reader = Callable[[Any], Any]


@cache
def reader(kind: Any) -> Reader:
    """The function that reads one type, made once from its type hints."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _union(get_args(kind))
    if origin is Literal:
        return _word(frozenset(get_args(kind)))
    if origin is tuple:
        return _list(reader(get_args(kind)[0]))
    if hasattr(kind, "_fields"):
        return _object(kind)
    return _scalar(kind)


def _scalar(kind: type) -> Reader:
    def read(plain: Any) -> Any:
        if type(plain) is not kind:  # A boolean is no number here, though Python thinks so.
            raise DecodeError(f"expected {kind.__name__}, got {shown(plain)}")
        return plain

    return read


def _word(words: frozenset[str]) -> Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, str) or plain not in words:
            raise DecodeError(f"{shown(plain)} is not one of {sorted(words)}")
        return plain

    return read


def _list(read_item: Reader) -> Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, list):
            raise DecodeError(f"expected a list, got {shown(plain)}")
        return tuple(map(read_item, plain))

    return read


def _object(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    readers = {name: reader(hints[name]) for name in kind._fields}
    expected = {*readers} | ({"type"} if kind in TAGS else set())
    tag = TAGS.get(kind)

    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise DecodeError(f"expected an object for {kind.__name__}, got {shown(plain)}")
        if plain.keys() != expected or plain.get("type") != tag:
            wrong = sorted(map(shown, plain.keys() ^ expected)) or ["type"]
            raise DecodeError(f"{kind.__name__}: missing, unknown or wrong: {', '.join(wrong)}")
        return kind(*[read_field(plain[name]) for name, read_field in readers.items()])

    return read


def _union(kinds: tuple[Any, ...]) -> Reader:
    tagged = {TAGS[kind]: reader(kind) for kind in kinds if kind in TAGS}
    others = [reader(kind) for kind in kinds if kind not in TAGS and kind is not NoneType]
    optional = NoneType in kinds

    def read(plain: Any) -> Any:
        if plain is None and optional:
            return None
        if isinstance(plain, dict) and isinstance(tag := plain.get("type"), str) and tag in tagged:
            return tagged[tag](plain)
        trouble = DecodeError(f"{shown(plain)} is none of the kinds expected here")
        for read_one in others:
            try:
                return read_one(plain)
            except DecodeError as error:
                trouble = error
        raise trouble

    return read


def shown(plain: Any) -> str:
    """A JSON value for an error message: short, however long or deep the value is.

    >>> shown([[1], [2]]), shown("x" * 1_000)
    ('a list of 2', "'xxxxxxxxxxxxxxxxxxxx…'")
    """
    if isinstance(plain, list):
        return f"a list of {len(plain)}"
    if isinstance(plain, dict):
        return f"an object with {len(plain)} fields"
    if isinstance(plain, str):
        return ascii(plain) if len(plain) <= 20 else f"{ascii(plain[:20])[:-1]}…'"
    if isinstance(plain, int) and abs(plain) >= 10**20:
        return "a huge number"
    return json.dumps(plain)


__all__ = [
    "COMMANDS",
    "DecodeError",
    "EncodeError",
    "decode_command",
    "decode_outcome",
    "decode_state",
    "encode",
    "from_plain",
    "shown",
    "to_plain",
]
