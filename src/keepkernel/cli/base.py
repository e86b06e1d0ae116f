"""What every command shares: the application, and how a command ends."""

import os
import re
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated, Final

import typer
from typer.models import CommandInfo

PROGRAM: Final = os.environ.get("KEEPKERNEL_PROGRAM", "keepkernel")
"""What a person typed to come here: `./keep` tells its own name."""

app = typer.Typer(
    name="keepkernel",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"keepkernel {version('keepkernel')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Check, explore and run the crash-safe workflow kernel."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # A sign that a terminal does not have is no reason to stumble.
            stream.reconfigure(errors="replace")


def as_typed(text: str) -> str:
    """Commands in a message as whoever reads it can type them.

    >>> as_typed("keepkernel: see keepkernel status") == f"keepkernel: see {PROGRAM} status"
    True
    """
    names = "|".join(name_of(command) for command in app.registered_commands)
    return re.sub(rf"\bkeepkernel (?=({names})\b)", lambda _: f"{PROGRAM} ", text)


def name_of(command: CommandInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


def main() -> None:
    """Run the command line; the entry point of the `keepkernel` script."""
    for command in app.registered_commands:
        command.help = as_typed(command.callback.__doc__ or "") if command.callback else None
    app(prog_name=PROGRAM)


def on_screen(text: str) -> str:
    """Words of scripts and of the outside: no sign that steers a terminal, and no line that looks like one of ours.

    >>> on_screen("a\\033[2Jb\\nc")
    'a [2Jb\\n    c'
    """
    return "\n    ".join("".join(s if s.isprintable() else " " for s in line) for line in text.split("\n"))


def end(command: Callable[[], int]) -> None:
    """Run a command and end with its exit code."""
    from ..fuzz.commands import WRONG_USAGE, WrongUsage

    try:
        code = command()
    except WrongUsage as error:
        typer.echo(f"keepkernel: {error}", err=True)
        code = WRONG_USAGE
    raise typer.Exit(code)
