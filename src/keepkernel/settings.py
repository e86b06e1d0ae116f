"""Where things are: the store, what stands beside it, and the settings of `keepkernel.toml` that are not connectors.

[host]
store = "sqlite:reports.db"        # instead of .keep/store.duckdb
repair = "./mend"                  # called when a script fails
limits = {memory_bytes = 134217728}  # what one call of a script may use

[workflows.mail-to-reports]
grant = ["inbox.list", "reports.insert"]
ask = ["boss.send"]                # each call needs an approval
policy = {backoff_base_ms = 1000}  # taken when the workflow is created
"""

import os
import tomllib
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .adapters.control import private_folder, socket_of
from .kernel.policy import Policy
from .kernel.types import GrantMode
from .sandbox.engine import Limits

CONFIG: Final = "keepkernel.toml"
FOLDER: Final = ".keep"
DEFAULT: Final = "store.duckdb"
VARIABLE: Final = "KEEPKERNEL_STORE"


class Unusable(Exception):
    """What was given can not be used; `problems` has all that is wrong, each with what to do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class HostSettings(Strict):
    store: str = ""
    repair: str = ""
    repair_seconds: Annotated[int, Field(gt=0, le=86_400)] = 600
    limits: dict[str, Annotated[int, Field(gt=0, lt=2**31)]] = {}


class WorkflowSettings(Strict):
    grant: list[str] = []
    ask: list[str] = []
    policy: dict[str, Annotated[int, Field(ge=0)]] = {}

    def modes(self) -> Iterator[tuple[str, GrantMode]]:
        yield from ((tool, "always") for tool in self.grant)
        yield from ((tool, "ask") for tool in self.ask)


class Settings(Strict):
    connectors: dict[str, object] = {}
    """Read by the connectors themselves."""
    host: HostSettings = HostSettings()
    workflows: dict[str, WorkflowSettings] = {}

    def of(self, workflow: str) -> WorkflowSettings:
        return self.workflows.get(workflow, WorkflowSettings())

    @property
    def limits(self) -> Limits:
        return Limits(**self.host.limits)

    def policy(self, workflow: str) -> Policy:
        return Policy(**self.of(workflow).policy)


def require_file(config: Path | None) -> None:
    """Settings that were asked for by name are there; those beside a workflow file need not be."""
    if config is not None and not config.is_file():
        raise Unusable(f"{config}: there is no such file; mend --config, or leave it out")


def read_settings(path: Path) -> Settings:
    """The settings of a file; without a file the defaults."""
    try:
        settings = Settings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}; see to its permissions") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Unusable(f"{path} is not TOML in UTF-8: {error}") from None
    except ValidationError as error:
        told = (f"{path}: {'.'.join(map(str, e['loc']))}: {e['msg'].lower()}; mend it" for e in error.errors())
        raise Unusable(*told) from None
    wrong = [*unknown("host.limits", settings.host.limits, Limits._fields)]
    for name, of in settings.workflows.items():
        wrong += (f"workflows.{name} has {tool} in grant and in ask; choose one" for tool in of.grant if tool in of.ask)
        wrong += unknown(f"workflows.{name}.policy", of.policy, Policy._fields)
    if wrong:
        raise Unusable(*(f"{path}: {problem}" for problem in wrong))
    return settings


def unknown(where: str, given: Iterable[str], known: Collection[str]) -> Iterator[str]:
    for word in given:
        if word not in known:
            yield f"{where} has no {word}; numbers are {', '.join(sorted(known))}"


class Place(NamedTuple):
    """A store and what belongs to it on this machine."""

    url: str
    socket: Path | None
    """Where its host listens; None for a store that is gone with its process."""
    log: Path | None


def place_of(url: str) -> Place:
    scheme, _, location = url.partition(":")
    if scheme == "memory":
        return Place(url, None, None)
    if scheme in ("duckdb", "sqlite"):
        path = Path(location).absolute()
        return Place(f"{scheme}:{path}", socket_of(path), path.with_name(f"{path.name}.log"))
    name = sha256(url.encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "keepkernel"
    return Place(url, private_folder() / f"{name}.sock", base / f"{name}.log")


def exists(place: Place) -> bool:
    scheme, _, location = place.url.partition(":")
    return scheme not in ("duckdb", "sqlite") or os.path.exists(location)


def store_beside(folder: Path, settings: Settings) -> str:
    """The store of the workflows in a folder, unless the command line names another."""
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    scheme, colon, location = settings.host.store.partition(":")
    if scheme in ("duckdb", "sqlite"):
        return f"{scheme}:{folder / location}"
    return settings.host.store if colon else f"duckdb:{folder / FOLDER / DEFAULT}"


def is_beside(url: str, file: Path) -> bool:
    """Whether a workflow file goes into this store when none is named."""
    try:
        return place_of(store_beside(file.parent, read_settings(file.parent / CONFIG))).url == url
    except Unusable:
        return False


def find_store(folder: Path) -> str:
    """The store that is meant where none is named: of this folder, or of the only one right below it.

    Not of one above it: a folder that has no store yet would change that of another project.
    """
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    if found := store_in(folder):
        return found
    children = sorted({child.resolve() for child in folder.iterdir() if child.is_dir() and os.access(child, os.X_OK)})
    below = {child: found for child in children if (found := store_in(child))}
    if len(below) == 1:
        return next(iter(below.values()))
    if below:
        names = [*(str(child) for child in below)][:5]
        raise Unusable(f"several folders have a store: go into one, or use --store: {', '.join(names)}")
    raise Unusable(f"there is no store here; begin with keepkernel run FILE, or name one with --store or {VARIABLE}")


def store_in(folder: Path) -> str:
    """The store of a folder, if it has one."""
    config = folder / CONFIG
    if config.is_file():
        url = store_beside(folder, read_settings(config))
        return url if exists(place_of(url)) else ""
    default = folder / FOLDER / DEFAULT
    return f"duckdb:{default}" if default.is_file() else ""
