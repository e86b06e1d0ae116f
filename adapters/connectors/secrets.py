"""Secrets: where they come from, and how they are kept out of everything that is shown or stored."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pydantic import BaseModel, SecretStr

COVER: Final = "•••"
RARE_MIN: Final = 12
"""A secret of so many characters does not stand in ordinary data by chance."""


class Mask:
    """Covers every known secret in a text, also where it is escaped for JSON or for a URL."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {form for secret in secrets for part in parts(secret) for form in forms(part)}
        self._known = pattern(known)
        self._rare = pattern(secret for secret in known if len(secret) >= RARE_MIN)

    def __call__(self, text: str) -> str:
        """
        >>> Mask(["s3cr3t/1"])('GET /?token=s3cr3t%2F1 with "s3cr3t/1"')
        'GET /?token=••• with "•••"'
        """
        return self._known.sub(COVER, text) if self._known else text

    def within(self, value: Any) -> Any:
        """A value of JSON without secrets. Short ones stay: they may be words of the data, which must not change.

        >>> Mask(["Bearer 0123456789", "keep"]).within({"headers": ["Bearer 0123456789", "keep", 2]})
        {'headers': ['•••', 'keep', 2]}
        """
        if self._rare is None:
            return value
        match value:
            case str():
                return self._rare.sub(COVER, value)
            case list():
                return [self.within(item) for item in value]
            case dict():
                return {self.within(name): self.within(item) for name, item in value.items()}
        return value


def pattern(secrets: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(secrets, key=len, reverse=True)  # A secret may be a part of another one.
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def parts(secret: str) -> Iterator[str]:
    """A secret, and the password in it when it is a URL."""
    yield secret
    if "://" in secret:
        password = urlsplit(secret).password
        if password:
            yield password
            yield unquote(password)


def forms(secret: str) -> Iterator[str]:
    if secret:
        yield from (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
        yield from (quote(secret), quote(secret, safe=""), quote_plus(secret))


def declared_secrets(values: Iterable[Any]) -> Iterator[str]:
    """The values of all fields that models declare as secret."""
    for value in values:
        match value:
            case SecretStr():
                yield value.get_secret_value()
            case BaseModel():
                yield from declared_secrets(getattr(value, name) for name in type(value).model_fields)
            case dict():
                yield from declared_secrets(value.values())
            case list() | tuple():
                yield from declared_secrets(value)
