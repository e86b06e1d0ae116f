"""Reads `keepkernel.toml`: which connectors a host has, and where their secrets are.

    [connectors.reports]
    kind = "table"
    url = {env = "REPORTS_URL"}
    table = "reports"

A value `{env = "VAR"}` or `{file = "PATH"}` is a secret that stands elsewhere; it is read when the file is.
"""

import importlib
import importlib.util
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from .base import Connector
from .secrets import Mask

KINDS: Final = {
    "files": ".files:Files",
    "mail": ".mail:Mail",
    "table": ".table:Table",
    "webhook": ".webhook:Webhook",
}
"""Where each kind is. Nothing of a library is imported before somebody asks for it."""

EXTRAS: Final = {"httpx": "webhook", "psycopg": "postgres"}
NAME: Final = re.compile(r"[a-z][A-Za-z0-9_]*")
RESERVED: Final = ("peek", "getByIds", "publish", "constructor")
"""What scripts find in their context under these names is something else."""


class ConfigError(Exception):
    """What is wrong with a configuration, all of it, each with what to do about it."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__("\n".join([f"{path} can not be used:", *(f"  - {problem}" for problem in problems)]))
        self.problems = problems


class Loaded(NamedTuple):
    connectors: dict[str, Connector]
    secrets: tuple[str, ...]


class Problem(Exception):
    """One thing that is wrong."""


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Loaded:
    """The connectors that a file configures, ready for use."""
    tables = tables_of(path)
    reader = Reader(path.resolve().parent, environment)
    connectors = {name: reader.connector(name, table) for name, table in tables.items()}
    if reader.problems:
        mask = Mask(reader.secrets)
        raise ConfigError(path, [mask(problem) for problem in reader.problems])
    return Loaded({name: made for name, made in connectors.items() if made is not None}, tuple(reader.secrets))


def tables_of(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("connectors", {})
    except FileNotFoundError:
        raise ConfigError(path, ["there is no such file; write one, even if it is empty"]) from None
    except OSError as error:
        raise ConfigError(path, [f"it can not be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigError(path, ["it is not a text in UTF-8; save it as such"]) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, [f"it is not TOML: {error}"]) from None
    if not isinstance(tables, dict):
        raise ConfigError(path, ["connectors: write a table for each, as in [connectors.NAME]"])
    return tables


class Reader:
    """Collects what is wrong while it reads on."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.secrets: list[str] = []
        self.problems: list[str] = []

    def connector(self, name: str, table: Any) -> Connector | None:
        where = f"connectors.{name}"
        if not NAME.fullmatch(name) or name in RESERVED:
            self.problems.append(f"{where}: scripts can not call it so; take a name of letters and digits, like orders")
        if not isinstance(table, dict) or not isinstance(table.get("kind"), str):
            self.problems.append(f'{where}: say what it is, as in kind = "table"; kinds are {", ".join(KINDS)}')
            return None
        before = len(self.problems)
        settings = {key: self.resolved(f"{where}.{key}", value) for key, value in table.items() if key != "kind"}
        try:
            kind = self.kind(table["kind"])
        except Problem as problem:
            self.problems.append(f"{where}: {problem}")
            return None
        if len(self.problems) > before:
            return None
        try:
            return kind.model_validate(settings, context={"folder": self.folder})
        except ValidationError as error:
            fields = ", ".join(sorted(kind.model_fields))
            for wrong in error.errors():
                place = ".".join(map(str, (where, *wrong["loc"])))
                remedy = f"; settings of {table['kind']} are {fields}" if wrong["type"] == "extra_forbidden" else ""
                self.problems.append(f"{place}: {wrong['msg'].removeprefix('Value error, ')}{remedy}")
            return None

    def resolved(self, where: str, value: Any) -> Any:
        """The value with every reference to a secret replaced by the secret."""
        match value:
            case {"env": str(name)} if len(value) == 1:
                secret = self.environment.get(name, "")
                remedy = f"the environment variable {name} is not set; set it before the host starts"
            case {"file": str(place)} if len(value) == 1:
                secret, remedy = self.content(self.folder / place)
            case dict():
                return {key: self.resolved(f"{where}.{key}", item) for key, item in value.items()}
            case list():
                return [self.resolved(f"{where}.{n}", item) for n, item in enumerate(value)]
            case _:
                return value
        if secret:
            self.secrets.append(secret)
        else:
            self.problems.append(f"{where}: {remedy}")
        return secret

    def content(self, path: Path) -> tuple[str, str]:
        try:
            secret = path.read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
            return "", f"the secret can not be read from {path}: {reason}"
        return secret, f"{path} is empty; write the secret into it"

    def kind(self, named: str) -> type[Connector]:
        """A kind of our own, or `FILE.py:Class` or `module:Class` of somebody else's."""
        place, colon, name = KINDS.get(named, named).rpartition(":")
        if not colon:
            raise Problem(f"there is no kind {named}; take {', '.join(KINDS)}, or FILE.py:Class for one of your own")
        try:
            module = self.module(place)
        except ModuleNotFoundError as error:
            extra = EXTRAS.get(error.name or "")
            remedy = (
                f"pip install 'keepkernel[{extra}]'; in a checkout: ./keep install {extra}" if extra else "install it"
            )
            raise Problem(f"{named} needs {error.name}: {remedy}") from error
        except Problem:
            raise
        except Exception as error:  # It is somebody's own code, and anything may be wrong with it.
            raise Problem(f"{place} can not be loaded: {type(error).__name__}: {error}") from error
        found = getattr(module, name, None)
        if not (isinstance(found, type) and issubclass(found, Connector)):
            raise Problem(f"{place} has no connector {name}; derive a class of this name from Connector")
        return found

    def module(self, place: str) -> Any:
        if not place.endswith(".py"):
            return importlib.import_module(place, __package__)
        path = self.folder / place
        spec = importlib.util.spec_from_file_location(f"keepkernel_connector_{path.stem}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise Problem(f"there is no file {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # Annotations are looked up there.
        spec.loader.exec_module(module)
        return module
