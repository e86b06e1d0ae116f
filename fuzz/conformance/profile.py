"""The profile of a runtime: other names and another grain, what it leaves out, and what it takes the liberty of."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from ...kernel.commands import COMMANDS
from ...kernel.types import Accepted, Retired, State
from ...spec.invariants import INVARIANTS
from ...spec.readings import READINGS
from ..commands import WrongUsage
from .rules import titles

Json = dict[str, Any]


class Profile(NamedTuple):
    name: str = ""
    names: dict[str, str] = {}  # noqa: RUF012 - read only
    """Their name -> ours."""
    values: dict[str, dict[str, str]] = {}  # noqa: RUF012
    """Our field -> their value -> ours."""
    none: dict[str, str] = {}  # noqa: RUF012
    ignore: tuple[str, ...] = ()
    commands: frozenset[str] = frozenset()
    rules: frozenset[str] = frozenset()
    reasons: str = "applying"
    messages: str = "exact"
    readings: tuple[str, ...] = ()
    joined: tuple[tuple[str, ...], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether documents need no translation."""
        return not (self.names or self.values or self.none)


PLAIN: Final = Profile()
MESSAGES: Final = ("run.message", "error.message", "maintenance.message", "retired.run.message", "effects.message")


def load(file: Path) -> Profile:
    """The profile in a file, or WrongUsage that names the line."""
    try:
        return read(tomllib.loads(file.read_text()))
    except OSError as error:
        raise WrongUsage(f"the profile {file} can not be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongUsage(f"the profile {file} is not TOML: {error}") from None
    except WrongUsage as error:
        raise WrongUsage(f"the profile {file}: {error}") from None


TABLES: Final[dict[str, frozenset[str] | None]] = {
    "name": None,
    "names": None,
    "values": None,
    "none": None,
    "state": frozenset({"ignore"}),
    "scope": frozenset({"commands", "rules"}),
    "latitude": frozenset({"reasons", "messages", "readings"}),
    "joined": None,
}


def read(table: Json) -> Profile:
    for key, inner in table.items():
        require(key in TABLES, f"[{key}] is not known; there are {', '.join(TABLES)}")
        if key == "joined":
            require(isinstance(inner, list) and all(isinstance(one, dict) for one in inner), "joined is [[joined]]")
        elif key != "name":
            require(isinstance(inner, dict), f"{key} is not a table")
        for name in inner if (allowed := TABLES[key]) is not None else ():
            require(name in (allowed or ()), f"{key}.{name} is not known; there are {', '.join(sorted(allowed or ()))}")
    state, scope, latitude = (table.get(name, {}) for name in ("state", "scope", "latitude"))
    profile = Profile(
        name=text(table.get("name", ""), "name"),
        names={str(k): text(v, f"names.{k}") for k, v in table.get("names", {}).items()},
        values={k: valued(v, f"values.{k}") for k, v in table.get("values", {}).items()},
        none={str(k): text(v, f"none.{k}") for k, v in table.get("none", {}).items()},
        ignore=listed(state, "state", "ignore"),
        commands=frozenset(listed(scope, "scope", "commands")),
        rules=frozenset(listed(scope, "scope", "rules")),
        reasons=text(latitude.get("reasons", "applying"), "latitude.reasons"),
        messages=text(latitude.get("messages", "exact"), "latitude.messages"),
        readings=listed(latitude, "latitude", "readings"),
        joined=tuple(listed(one, "joined", "steps") for one in table.get("joined", [])),
    )
    check(profile)
    return profile


def check(profile: Profile) -> None:
    fields = paths()
    leaves = {path.rpartition(".")[2] for path in fields}
    for theirs, ours in profile.names.items():
        name = ours.rpartition(".")[2]
        require(name in leaves or name in COMMANDS, f"names.{theirs}: {ours} is neither a field nor a command")
    require_one_each("names", {theirs: (theirs.rpartition(".")[0], ours) for theirs, ours in profile.names.items()})
    for field, values in profile.values.items():
        require_one_each(f"values.{field}", {theirs: ("", ours) for theirs, ours in values.items()})
    for field in (*profile.values, *profile.none):
        known = field in fields or field in leaves or field in ("reason", "type")
        require(known, f"{field} is not a field")
    for word in profile.none.values():
        require(word in ("null", ""), f"[none] takes 'null' or an empty text, not {word!r}")
    for path in profile.ignore:
        require(path in fields, f"state.ignore: {path} is not a field")
    for command in (*profile.commands, *(step for steps in profile.joined for step in steps)):
        require(command in COMMANDS, f"{command} is not a command")
    for rule in profile.rules:
        require(rule in titles() or rule in INVARIANTS, f"scope.rules: {rule} is not a rule")
    require(profile.reasons in ("applying", "exact", "free"), "latitude.reasons is applying, exact or free")
    require(profile.messages in ("exact", "free"), "latitude.messages is exact or free")
    for reading in profile.readings:
        require(reading in READINGS, f"latitude.readings: {reading} is not known; see `keepkernel check --list`")
    for steps in profile.joined:
        require(len(steps) > 1, "joined: two steps at least belong together")


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise WrongUsage(otherwise)


def require_one_each(where: str, ours_of: dict[str, tuple[str, Any]]) -> None:
    """What the kit says goes the other way, so in one place two of theirs can not stand for one of ours."""
    theirs_of: dict[str, str] = {}
    for theirs, (place, ours) in ours_of.items():
        other = theirs_of.setdefault(repr((place, ours)), theirs)
        require(other == theirs, f"{where}: {other} and {theirs} both stand for {ours}; one of ours has one name")


def text(value: object, where: str) -> str:
    require(isinstance(value, str), f"{where} is not a text")
    return str(value)


def valued(value: object, where: str) -> dict[str, str]:
    require(isinstance(value, dict), f"{where} is not a table")
    return {str(k): text(v, f"{where}.{k}") for k, v in (value.items() if isinstance(value, dict) else ())}


def listed(table: Json, name: str, key: str) -> tuple[str, ...]:
    values = table.get(key, [])
    require(
        isinstance(values, list) and all(isinstance(v, str) for v in values), f"{name}.{key} is not a list of texts"
    )
    return tuple(values)


def paths() -> frozenset[str]:
    """Every field that is compared, by its dotted path: of a state, of effects, and of rows that left."""
    found = set(below(State, ""))
    found |= {f"retired.{path}" for path in below(Retired, "")} | {"retired", "effects"}
    effects = get_args(get_args(get_type_hints(Accepted)["effects"])[0])
    found |= {f"effects.{path}" for kind in effects for path in below(kind, "")}
    return frozenset(found)


def below(kind: Any, place: str) -> set[str]:
    found: set[str] = set()
    for name, hint in get_type_hints(kind).items():
        path = f"{place}.{name}" if place else name
        found.add(path)
        for inner in (hint, *get_args(hint)):
            if hasattr(inner, "_fields"):
                found |= below(inner, path)
            elif get_origin(inner) is tuple and hasattr(get_args(inner)[0], "_fields"):
                found |= below(get_args(inner)[0], path)
    return found


# --- translation -------------------------------------------------------------------------------------


ENVELOPES: Final = ("state", "outcome", "command")
"""What documents stand in; paths begin below them."""


def inverse(names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Our path of each name, and theirs of its last part."""
    for theirs, ours in names.items():
        place, _, leaf = theirs.rpartition(".")
        known = ours.rpartition(".")[2]
        yield f"{place}.{known}" if place else known, leaf


class Translator:
    """Documents of the runtime as ours, and commands of ours as the runtime's; it counts what it was used for."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.used: Counter[str] = Counter()
        self._theirs = dict(inverse(profile.names))
        self._values_out = {
            field: {ours: theirs for theirs, ours in values.items()} for field, values in profile.values.items()
        }

    def ours(self, document: Any) -> Any:
        """A document of the runtime, in our words."""
        return document if self.profile.plain else self._walk(document, "", self._in_name, self._in_value)

    def theirs(self, command: Json) -> Json:
        """A command or state of ours, in the runtime's words."""
        if self.profile.plain:
            return command
        made: Json = self._walk(command, "", self._out_name, self._out_value)
        return made

    def _walk(
        self, value: Any, place: str, name: Callable[[str, str], tuple[str, str]], leaf: Callable[[str, Any], Any]
    ) -> Any:
        if isinstance(value, dict):
            made = {}
            for key, inner in value.items():
                ours, written = name(place, key)
                path = f"{place}.{ours}" if place else ours
                if ours in ENVELOPES and isinstance(inner, dict):
                    path = ""
                made[written] = self._walk(inner, path, name, leaf)
            return made
        if isinstance(value, list):
            return [self._walk(inner, place, name, leaf) for inner in value]
        return leaf(place, value)

    def _in_name(self, place: str, key: str) -> tuple[str, str]:
        dotted = f"{place}.{key}" if place else key
        ours = self.profile.names.get(dotted) or self.profile.names.get(key)
        if ours is None:
            return key, key
        self.used[f"names.{key}"] += 1
        ours = ours.rpartition(".")[2]
        return ours, ours

    def _out_name(self, place: str, key: str) -> tuple[str, str]:
        dotted = f"{place}.{key}" if place else key
        theirs = self._theirs.get(dotted) or self._theirs.get(key)
        return key, key if theirs is None else theirs

    def _in_value(self, path: str, value: Any) -> Any:
        field = path.rpartition(".")[2]
        if value is None and "null" in (self.profile.none.get(path), self.profile.none.get(field)):
            self.used[f"none.{field}"] += 1
            return ""
        if field == "type" and isinstance(value, str):
            return self.profile.names.get(value, value)
        for name in (path, field):
            values = self.profile.values.get(name)
            if values is not None and isinstance(value, str) and value in values:
                self.used[f"values.{name}"] += 1
                return values[value]
        return value

    def _out_value(self, path: str, value: Any) -> Any:
        field = path.rpartition(".")[2]
        if value == "" and "null" in (self.profile.none.get(path), self.profile.none.get(field)):
            return None
        if field == "type" and isinstance(value, str) and value in self._theirs:
            self.used[f"names.{self._theirs[value]}"] += 1
            return self._theirs[value]
        for name in (path, field):
            values = self._values_out.get(name)
            if values is not None and isinstance(value, str) and value in values:
                return values[value]
        return value
