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


@app.command()
def prove(
    only: Annotated[str, typer.Option(metavar="PATTERN", help="Prove contracts with such names, as in 'end_*'.")] = "*",
    seconds: Annotated[float, typer.Option(min=1, help="Processor time for each contract.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Prove the contracts of the kernel with CrossHair.

    Ends with 0 when all are confirmed, 1 when one is refuted or a planted bug was missed, 3 when one is unknown.
    """
    from .fuzz.prove import ProverMissing, run

    try:
        code = run(only, seconds, as_json)
    except (ProverMissing, LookupError) as error:
        typer.echo(f"keepkernel: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def main() -> None:
    """Run the command line; the entry point of the `keepkernel` script."""
    app(prog_name="keepkernel")
