"""Commands that hold another runtime against the law."""

from pathlib import Path
from typing import Annotated

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
    """Write the test vectors for other runtimes: single steps, a tour of every transition, crashes.

    Ends with 0 when they are written or fresh, 1 when --check finds stale ones, 2 for wrong usage.
    """
    from ..fuzz.conformance import vectors

    end(lambda: vectors.run(events, out, check=check))
