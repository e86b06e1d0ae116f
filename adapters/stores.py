"""Opens a store by its URL; nothing of a driver is imported before somebody asks for it."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from ..kernel.ports import Store, StoreError
from .points import Reach, pass_by


class Kind(NamedTuple):
    """Where a kind of store is, and what it needs."""

    shape: str
    """How its URL looks."""
    module: str
    name: str
    """Called with the location, the points and, if one is given, the clock."""
    driver: str = ""
    """The module that must be installed for it."""
    extra: str = ""
    """The extra of this package that installs it."""


KINDS: Final = {
    "memory": Kind("memory:", ".memory", "MemoryStore"),
    "duckdb": Kind("duckdb:PATH", ".duckdb", "DuckDBStore", "duckdb", "duckdb"),
    "sqlite": Kind("sqlite:PATH", ".sqlite", "SQLiteStore"),
    "postgresql": Kind("postgresql://HOST/DATABASE", ".postgres", "PostgresStore", "psycopg", "postgres"),
}


def open_store(url: str, *, clock: Callable[[], int] | None = None, reach: Reach = pass_by) -> Store:
    """The store behind a URL, made when it is not there yet; a StoreError says what is wrong with it.

    Without a clock each store takes its own. A URL may hold a password, so messages show no more than its scheme.
    """
    scheme, colon, location = url.partition(":")
    kind = KINDS.get(scheme)
    shapes = ", ".join(k.shape for k in KINDS.values())
    if not colon or kind is None:
        raise StoreError(f"{scheme}{colon} does not name a store; write one of {shapes}")
    if (location == "") != (scheme == "memory"):
        raise StoreError(f"{url} does not name a place for its data; write {kind.shape}")
    # Bytes of a command line that are no UTF-8 come as lone surrogates.
    if re.search("[\0\ud800-\udfff]", location):
        raise StoreError(f"the place of this {scheme} store has a character that is no text; name it in UTF-8")
    try:
        make: Callable[..., Any] = getattr(import_module(kind.module, __package__), kind.name)
    except ModuleNotFoundError as error:
        if error.name != kind.driver:
            raise
        raise StoreError(
            f"{kind.shape} needs {kind.driver}: pip install 'keepkernel[{kind.extra}]'; "
            f"in a checkout: ./keep install {kind.extra}"
        ) from error
    places = {"memory": (), "postgresql": (url,)}.get(scheme, (location,))
    store: Store = make(*places, reach=reach, **({"clock": clock} if clock is not None else {}))
    return store
