"""Room for stores on a PostgreSQL server: a schema for every trial, which is gone afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from ..kernel.ports import StoreError


def without_password(url: str) -> str:
    """
    >>> without_password("postgresql://keep:swordfish@127.0.0.1:5432/keep"), without_password("sqlite:/tmp/w.db")
    ('postgresql://keep@127.0.0.1:5432/keep', 'sqlite:/tmp/w.db')
    """
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}").geturl()


@contextmanager
def schema(server: str, name: str) -> Iterator[str]:
    """The URL of a new schema in the database of a server."""
    if "options=" in server:
        raise StoreError("name the database without ?options=, because every trial gets a schema of its own in it")
    import psycopg
    from psycopg.sql import SQL, Identifier

    quoted = Identifier(f"keepkernel_crash_{name}".lower())
    try:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(SQL("CREATE SCHEMA {}").format(quoted))
    except psycopg.Error as error:
        raise StoreError(f"there is no room for a trial in the database: {str(error).strip()}") from error
    try:
        yield f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{quoted.as_string().strip(chr(34))}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(SQL("DROP SCHEMA {} CASCADE").format(quoted))
