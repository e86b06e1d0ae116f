"""Commands that attack the system: fuzz, score."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from .base import app, end


@app.command()
def fuzz(
    level: Annotated[
        Literal["kernel", "store", "host", "service"] | None, typer.Option(help="Which machine.", show_default="all")
    ] = None,
    store: Annotated[
        str, typer.Option(metavar="URL", help="memory:, sqlite:, duckdb: or a PostgreSQL URL.", show_default="all")
    ] = "all",
    seconds: Annotated[float, typer.Option(min=0, help="For how long.", show_default="as the profile has it")] = 0,
    workers: Annotated[int, typer.Option(min=0, help="How many processes.", show_default="one for each core")] = 0,
    seed: Annotated[int, typer.Option(help="Another seed lives other lives.")] = 0,
    corpus: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where failures are kept.", show_default=".hypothesis/keepkernel")
    ] = None,
    fault: Annotated[str, typer.Option(metavar="NAME", help="Attack the system with this seeded fault in it.")] = "",
    profile: Annotated[str, typer.Option(help="ci (60 s), dev, campaign, or crosshair for the kernel machine.")] = "ci",
    dask: Annotated[str, typer.Option(metavar="ADDRESS", help="Work on this Dask cluster, tcp://HOST:PORT.")] = "",
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report to look at.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Attack kernel, stores, host and service at every step.

    Workflows, faults and crashes are drawn. What breaks is shrunk, told as a story, and written to the corpus: for
    `replay`, and as a test. A campaign that is started again goes on where it stopped. Ends with 0 when nothing was
    found, which proves nothing, 1 when something was, 2 for wrong usage, 3 when a process failed. Ctrl-C ends it and
    tells what is known.
    """
    try:
        from ..fuzz import campaign
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        typer.echo("keepkernel: fuzz needs Hypothesis: pip install 'keepkernel[verify]'", err=True)
        raise typer.Exit(2) from None
    from ..fuzz.commands import CORPUS

    wanted = campaign.Wanted(
        level or "", store, seconds, workers, seed, corpus or CORPUS, fault, profile
    )  # fmt: skip
    end(lambda: campaign.fuzz(wanted, as_json_text=as_json, html=html, dask=dask))


@app.command()
def score(
    only: Annotated[
        str, typer.Option(metavar="NAME", help="Only this fault, or this level; see --list.", show_default="all")
    ] = "",
    detector: Annotated[str, typer.Option(metavar="NAME", help="Only this detector.", show_default="all")] = "",
    seconds: Annotated[
        float, typer.Option(min=0, help="For how long each may look.", show_default="60 for kernel, else 120")
    ] = 0,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Ask every detector about every fault, which takes hours.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    what: Annotated[bool, typer.Option("--list", help="List the faults and the detectors.")] = False,
) -> None:
    """Put seeded faults in place, and see who notices how soon.

    One detector after the other is asked about a fault until one finds it. It counts only if the detector finds
    nothing where nothing is wrong.

    Ends with 0 when every fault is found, 1 when one is not or when something is found where nothing is wrong,
    2 for wrong usage, 3 when it was stopped.
    """
    from ..fuzz import score

    if what:
        typer.echo(score.listing())
        return
    end(lambda: score.score(only=only, detector=detector, seconds=seconds, matrix=matrix, as_json_text=as_json))
