"""The command `keepkernel conform`: what is wanted, and the way to a result."""

import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...kernel.codec import DecodeError, from_plain
from ...kernel.commands import Command
from ...kernel.policy import Policy
from ...kernel.types import State
from ..commands import WrongUsage
from . import result as results
from .behaviour import Behaviour, Worldly
from .channel import GaveUp, Trouble
from .fates import FATES
from .play import Do, Found, Kill, KillDuring, Meet, Move, Player, Recover, Script
from .profile import PLAIN, Profile, load
from .result import Result
from .suite import Cause, Progress, Suite
from .verdict import Divergence

Json = dict[str, Any]


class Wanted(NamedTuple):
    command: list[str]
    level: str = "transitions"
    seconds: float = 60
    profile: Path | None = None
    patience_s: float = 10
    seed: int = 0
    as_json: bool = False
    junit: Path | None = None
    html: Path | None = None
    repro: Path | None = None
    repro_folder: Path = Path()


def conform(wanted: Wanted) -> int:
    """Run, report, and say how it ended."""
    if not wanted.command:
        raise WrongUsage("say how to start the driver: keepkernel conform -- CMD ARG…")
    for folder in (wanted.repro_folder, *(file.parent for file in (wanted.junit, wanted.html) if file is not None)):
        if not folder.is_dir():  # Said before the run, and not when its result is lost by it.
            raise WrongUsage(f"there is no folder {folder} to write to")
    profile = load(wanted.profile) if wanted.profile is not None else PLAIN
    result = repeated(wanted, profile) if wanted.repro is not None else whole(wanted, profile)
    files = {} if wanted.repro is not None else dict(reproductions(wanted, result))
    if wanted.junit is not None:
        wanted.junit.write_text(results.junit(result))
    if wanted.html is not None:
        wanted.html.write_text(results.html(result))
    if wanted.as_json:
        print(json.dumps(results.as_json(result), indent=1, ensure_ascii=False))
    else:
        print(results.told(result, files))
    return result.code


class Telling:
    """One line of progress on standard error, now and then, when somebody looks."""

    def __init__(self) -> None:
        self.next = time.monotonic() + 2
        self.live = sys.stderr.isatty()
        self.last = ""

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        due = now >= self.next if self.live else progress.what != self.last
        if due:
            self.next, self.last = now + 1, progress.what
            of = f" {progress.done:,}{f' of {progress.of:,}' if progress.of else ''}" if progress.done else ""
            line = results.printable(f"keepkernel: {progress.what}{of}"[:100].replace("\n", " "))
            print(f"\r{line:<100}" if self.live else line, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.live and self.last:
            print(f"\r{'':<100}\r", end="", file=sys.stderr, flush=True)


def whole(wanted: Wanted, profile: Profile) -> Result:
    began = time.monotonic()
    until = began + wanted.seconds
    player = make_player(wanted, profile)
    telling = Telling()
    undecided = ""
    causes: list[Cause] = []
    suite = (Behaviour if wanted.level == "behaviour" else Suite)(player, telling, wanted.seed)
    try:
        suite.run(until)
        causes = suite.causes()
        farewell(player, causes)
    except GaveUp as error:
        undecided, causes = str(error), causes or suite.unshortened()
    except KeyboardInterrupt:
        undecided, causes = "it was stopped", causes or suite.unshortened()
    finally:
        telling.end()
        player.close()
    if not undecided and not player.rules:
        undecided = "nothing was checked"
    return made(wanted, profile, player, causes, suite.parts, began, undecided)


def make_player(wanted: Wanted, profile: Profile) -> Player:
    kind = Worldly if wanted.level == "behaviour" else Player
    return kind(wanted.command, profile, wanted.patience_s, wanted.level)


def farewell(player: Player, causes: list[Cause]) -> None:
    """A driver that does not end when it is told to is reported, too."""
    try:
        player.up()
        player.channel.quit()
    except Trouble as trouble:
        divergence = Divergence(trouble.kind, (), "quit", f"{trouble.detail}, at quit")
        causes.append(Cause(divergence, Script(Policy(), ()), None, 1, True))


def made(
    wanted: Wanted, profile: Profile, player: Player, causes: list[Cause], parts: dict[str, int], began: float, why: str
) -> Result:
    hello = player.hello
    used = {*player.judge.excused, *player.translator.used}
    return Result(
        wanted.command,
        f"{hello.name} {hello.version}" if hello is not None else shlex.join(wanted.command),
        wanted.level,
        profile.name,
        tuple(causes),
        tuple(sorted(player.rules)),
        tuple(sorted(rule for rule in profile.rules if not rule.startswith("INV-"))),
        dict(player.judge.excused),
        tuple(unused(profile, used)),
        parts,
        player.commands,
        player.crashes,
        time.monotonic() - began,
        why,
    )


def unused(profile: Profile, used: set[str]) -> Iterator[str]:
    """The lines of a profile that excused nothing."""
    lines = [f"names.{name.rpartition('.')[2]}" for name, ours in profile.names.items()]
    lines += [f"values.{field}" for field in profile.values]
    lines += [f"none.{field.rpartition('.')[2]}" for field, word in profile.none.items() if word == "null"]
    lines += [f"state.ignore {path}" for path in profile.ignore]
    lines += [f"scope.commands {name}" for name in sorted(profile.commands)]
    lines += [f"scope.rules {rule}" for rule in sorted(profile.rules)]
    lines += [f"latitude.readings {name}" for name in profile.readings]
    lines += [f"joined {' + '.join(steps)}" for steps in profile.joined]
    # What is counted may say more after a line, as of a trace that ends there.
    yield from (line for line in lines if not any(one == line or one.startswith(f"{line}:") for one in used))


# --- reproductions -----------------------------------------------------------------------------------


def reproductions(wanted: Wanted, result: Result) -> Iterator[tuple[int, str]]:
    """A file for each divergence, and the command that plays it again."""
    options = ["--level", wanted.level] if wanted.level != "transitions" else []
    options += ["--profile", str(wanted.profile)] if wanted.profile is not None else []
    for number, cause in enumerate(result.causes, 1):
        if not cause.script.moves:
            continue
        file = wanted.repro_folder / f"conform-{number}.json"
        document = {
            "rule": cause.divergence.rule,
            "text": cause.divergence.text,
            **results.script_document(cause.script),
        }
        file.write_text(json.dumps(document, indent=1) + "\n")
        yield number, shlex.join(["keepkernel", "conform", "--repro", str(file), *options, "--", *wanted.command])


def repeated(wanted: Wanted, profile: Profile) -> Result:
    """Play one reproduction again."""
    began = time.monotonic()
    assert wanted.repro is not None
    script = read_script(wanted.repro)
    if wanted.level != "behaviour" and any(isinstance(move, Meet) for move in script.moves):
        raise WrongUsage(f"{wanted.repro} was written at level behaviour: say --level behaviour")
    player = make_player(wanted, profile)
    undecided = ""
    found: Found | None = None
    try:
        player.up()
        found = player.play(script)
    except GaveUp as error:
        undecided = str(error)
    finally:
        player.close()
    causes = [] if found is None else [Cause(found.divergence, found.script, found.before, 1, True)]
    return made(wanted, profile, player, causes, {"reproduction": 1}, began, undecided)


def read_script(file: Path) -> Script:
    """The script in a file that a run has written."""
    try:
        document = json.loads(file.read_text())
        moves = tuple(read_move(one) for one in document["moves"])
        start = None if document["start"] is None else from_plain(State, document["start"])
        return Script(from_plain(Policy, document["policy"]), moves, start)
    except OSError as error:
        raise WrongUsage(f"{file} can not be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, DecodeError) as error:
        raise WrongUsage(f"{file} is not a reproduction: {error}") from None


def read_move(document: Json) -> Move:
    op = document["op"]
    if op == "do":
        return Do(from_plain(Command, document["command"]), document.get("crash_at", -1))
    if op == "kill":
        return Kill()
    if op == "kill_during":
        return KillDuring(from_plain(Command, document["command"]), document["after_us"])
    if op == "recover":
        return Recover(document["now"])
    if op == "meet" and document["fate"] in FATES:
        return Meet(document["fate"])
    raise ValueError(f"{op!r} is not a move")
