"""Commands that hold another runtime against the law."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from .base import app, end


@app.command()
def vectors(
    events: Annotated[int, typer.Option(min=1, max=2, help="How many input events the tour has.")] = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to write.", show_default="spec/vectors")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare with what is there; write nothing.")] = False,
) -> None:
    """Write the test vectors for other runtimes.

    Single steps, a tour of every transition, crashes. Ends with 0 when they are written or fresh, 1 when --check finds
    stale ones, 2 for wrong usage.
    """
    from ..fuzz.conformance import vectors

    end(lambda: vectors.run(events, out, check=check))


@app.command(context_settings={"allow_interspersed_args": False})
def conform(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD ARG…", help="What starts the driver.", show_default=False)
    ] = None,
    level: Annotated[
        Literal["transitions", "behaviour"], typer.Option(help="Single steps, or the runtime as its own host.")
    ] = "transitions",
    seconds: Annotated[float, typer.Option(min=0, help="After the suite, go on by chance until so long.")] = 60,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Names, scope and latitude of the runtime, in TOML.")
    ] = None,
    patience: Annotated[float, typer.Option(min=0.1, help="How many seconds an answer may take.")] = 10,
    seed: Annotated[int, typer.Option(help="Which walks chance takes.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report for build servers.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report for browsers.")] = None,
    repro: Annotated[Path | None, typer.Option(metavar="FILE", help="Play one reproduction again.")] = None,
    repro_folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where reproductions are written.", show_default="here")
    ] = Path(),
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Check a recorded log instead of a driver.")] = None,
) -> None:
    """Hold another runtime against the law.

    It is asked through its driver, or judged by its log. spec/conformance/ has the protocol, the profile and the
    vectors. Ends with 0 when it conforms, 1 when it diverges, 2 for wrong usage, 3 when it is not decided. Ctrl-C stops
    it and tells what is known.
    """
    from ..fuzz.conformance import logs, run

    wanted = run.Wanted(
        command or [], level, seconds, profile, patience, seed, as_json, junit, html, repro, repro_folder
    )  # fmt: skip
    end(lambda: run.conform(wanted) if log is None else logs.check(log, wanted))
