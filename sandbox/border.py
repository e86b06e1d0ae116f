"""JSON across the border between host and script: exact for every value, or refused; never changed in silence.

Python and JavaScript read JSON alike but for whole numbers of more than 53 bits, `-0`, half surrogate pairs, names
that stand twice, and numbers beyond the largest. The first two are carried over exactly, the others are refused.
"""

import json
import math
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from ..kernel.codec import require_unicode

DEPTH_MAX: Final = 64
DIGITS_MAX: Final = 300


class NotExact(ValueError):
    """A value can not cross the border as it is; the message says why."""


def loads(text: str) -> Any:
    """The value of a JSON text; `dumps` gives its text again, and no reader sees another value.

    >>> dumps(loads('[-0, 12345678901234567890, "\\\\u0000"]'))
    '[-0.0,12345678901234567890,"\\\\u0000"]'
    >>> loads('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    keepkernel.sandbox.border.NotExact: a name stands twice in one object
    """
    try:
        value = DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise NotExact(f"not JSON: {error.msg}") from None
    except RecursionError:
        raise NotExact(f"it nests deeper than {DEPTH_MAX} levels") from None
    if text.count("[") + text.count("{") > DEPTH_MAX:  # With fewer it can not nest so deep, whatever they belong to.
        _require_depth(value)
    try:
        require_unicode(text, value)
    except UnicodeEncodeError:
        raise NotExact("a text contains half a surrogate pair") from None
    return value


def dumps(value: Any) -> str:
    """One line of ASCII, so that no layer below has a character to stumble over."""
    return ENCODER.encode(value)


def _require_depth(value: Any) -> None:
    """Level by level and without recursion, so that the check can not fail by itself."""
    level, depth = _boxes([value]), 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise NotExact(f"it nests deeper than {DEPTH_MAX} levels")
        level = [inner for box in level for inner in _boxes(box.values() if isinstance(box, dict) else box)]


def _boxes(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, list | dict)]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise NotExact("a name stands twice in one object")
    return fields


def _whole(digits: str) -> int | float:
    if len(digits.lstrip("-")) > DIGITS_MAX:
        raise NotExact("a number is too large")
    return -0.0 if digits == "-0" else int(digits)


def _fraction(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotExact("a number is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise NotExact(f"{name} is not JSON")


ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_whole, parse_float=_fraction, parse_constant=_constant
)
