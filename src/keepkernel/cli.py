"""The command line. Commands import what they need when they run, so that help stays fast."""

from typing import Annotated

import typer

app = typer.Typer(
    name="keepkernel",
    no_args_is_help=True,
    add_completion=False,
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


def main() -> None:
    """Run the command line; the entry point of the `keepkernel` script."""
    app(prog_name="keepkernel")
