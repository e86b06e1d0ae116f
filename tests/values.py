"""Hypothesis strategies for every type of the kernel, made from its fields and their types."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from keepkernel import Accepted
from keepkernel.spec.documents import JSON, LIMITS, NAME, NO_JSON, NO_NAME
from keepkernel.spec.moves import Seen, walk

Leaf = Callable[[str, str], st.SearchStrategy[Any]]
"""(type, field) -> the texts or numbers that may stand there."""


def values(kind: Any, texts: Leaf, numbers: Leaf, owner: str = "", name: str = "") -> st.SearchStrategy[Any]:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return st.one_of([values(member, texts, numbers, owner, name) for member in get_args(kind)])
    if origin is Literal:
        return st.sampled_from(get_args(kind))
    if origin is tuple:
        return st.lists(values(get_args(kind)[0], texts, numbers, owner, name), max_size=3).map(tuple)
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        return st.builds(kind, *[values(hints[f], texts, numbers, kind.__name__, f) for f in kind._fields])
    return {
        str: lambda: texts(owner, name),
        int: lambda: numbers(owner, name),
        bool: st.booleans,
        NoneType: st.none,
    }[kind]()


@cache
def wild(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of the type, however strange its texts and numbers."""
    return values(kind, lambda owner, name: st.text(), lambda owner, name: st.integers())


NAMES = st.sampled_from(["a", "b", "mail", "Zoë 🎈"])
JSONS = st.sampled_from(["null", "{}", '[1, -2.5e3, "\\u00e9", "\\ud83c\\udf88"]', '{"a": {"b": [true]}}'])


def _tame_text(owner: str, name: str) -> st.SearchStrategy[str]:
    limit = LIMITS.get(f"{owner}.{name}") or LIMITS[name]
    if limit in (JSON, NO_JSON):
        return JSONS | st.just("") if limit is NO_JSON else JSONS
    if limit in (NAME, NO_NAME):
        return NAMES | st.just("") if limit is NO_NAME else NAMES
    return st.text(min_size=1, max_size=20)


def _tame_number(owner: str, name: str) -> st.SearchStrategy[int]:
    # Small numbers meet each other; the large ones stand for times. Each of them fits every limit.
    return st.integers(1, 3) | st.sampled_from([1, 1_000, 60_000, 10_000_000])


@cache
def tame(kind: Any) -> st.SearchStrategy[Any]:
    """Values within the limits of documents, of few names, so that rows meet."""
    return values(kind, _tame_text, _tame_number)


@cache
def seen() -> tuple[Seen, ...]:
    """What the kernel does in a small workflow: each command accepted thirty times, and some of all other steps."""
    chosen: list[Seen] = []
    times: Counter[type] = Counter()
    for number, step in enumerate(walk()):
        rare = isinstance(step.outcome, Accepted) and times[type(step.command)] < 30
        if rare or number % 500 == 0:
            times[type(step.command)] += rare
            chosen.append(step)
    return tuple(chosen)
