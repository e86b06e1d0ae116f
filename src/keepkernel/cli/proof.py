"""Commands that show that the law holds: search, prove, walk, kill, replay."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from .base import app, end


@app.command()
def prove(
    only: Annotated[str, typer.Option(metavar="PATTERN", help="Prove contracts with such names, as in 'end_*'.")] = "*",
    seconds: Annotated[float, typer.Option(min=1, help="Processor time for each contract.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Prove the contracts of the kernel with CrossHair.

    Ends with 0 when all are confirmed, 1 when one is refuted or a planted bug was missed, 3 when one is unknown.
    """
    from ..fuzz.prove import ProverMissing, run

    try:
        code = run(only, seconds, as_json)
    except (ProverMissing, LookupError) as error:
        typer.echo(f"keepkernel: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


@app.command()
def check(
    setup: Annotated[
        str, typer.Argument(metavar="SETUP", help="What to search; see --list.", show_default="main")
    ] = "",
    events: Annotated[
        int | None, typer.Option(min=1, help="How many input events there are.", show_default="1")
    ] = None,
    caller: Annotated[
        Literal["honest", "adversary"] | None, typer.Option(help="Who sends commands.", show_default="honest")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="What is explored: a,b,c or all, or +a,-b against the set-up's own."),
    ] = None,
    reading: Annotated[str, typer.Option(metavar="NAME", help="Search another reading of the law.")] = "",
    readings: Annotated[bool, typer.Option("--readings", help="Show what each other reading breaks.")] = False,
    max_states: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many states.", show_default="no limit")
    ] = None,
    law: Annotated[
        bool | None,
        typer.Option(
            "--law/--no-law",
            help="Hold every answer also against the law as it is written a second time.",
            show_default="on, but not with --reading",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    itf: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the counterexample for `replay`.")] = None,
    mermaid: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the counterexample as a diagram.")] = None,
    what: Annotated[bool, typer.Option("--list", help="List set-ups, features and readings.")] = False,
) -> None:
    """Search every reachable state of kernel and world.

    Ends with 0 when everything holds, 1 when something is violated or was never put to the test, 2 for wrong usage,
    3 when it is not decided. Ctrl-C stops the search and tells what is known.
    """
    from ..fuzz import commands

    if what:
        typer.echo(commands.listing())
    elif readings:
        if (
            setup
            or events
            or caller
            or features is not None
            or reading
            or max_states
            or law is not None
            or itf
            or mermaid
        ):
            end(lambda: commands.wrong_usage("--readings goes with --json alone: each reading has its own set-up"))
        end(lambda: commands.readings(as_json_text=as_json))
    else:
        to_law = not reading if law is None else law
        wanted = commands.Wanted(setup, events or 0, caller, features, reading, max_states or 0, to_law)
        end(lambda: commands.check(wanted, as_json_text=as_json, itf_file=itf, mermaid_file=mermaid))


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A trace that `check --itf` wrote.")],
    reading: Annotated[bool, typer.Option("--reading", help="Replay in the reading that the trace names.")] = False,
) -> None:
    """Play a counterexample against the kernel, step by step.

    It stops where the kernel diverges. Ends with 0 when every step is as the trace tells it, 1 when one is not, 2 for
    wrong usage.
    """
    from ..fuzz import commands

    end(lambda: commands.replay(file, with_reading=reading))


@app.command()
def verify(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Search every set-up, and an adversary: the main job.

    The main set-up with two events. When all of it holds, a process with a DuckDB store is killed at every point as
    well (see `keepkernel crash`), and kernel, stores, host and service are attacked for 20 s each (see
    `keepkernel fuzz`). Ends with 0 when everything holds, 1 when something is violated or was never put to the test, 3
    when it is not decided.
    """
    from ..fuzz.crash import Wanted
    from ..fuzz.rounds import SECONDS
    from ..fuzz.verify import verify

    end(lambda: verify(as_json_text=as_json, deaths=Wanted("duckdb:"), fuzz_seconds=SECONDS))


@app.command()
def simulate(
    setup: Annotated[str, typer.Argument(metavar="SETUP", help="Where to walk.", show_default="main")] = "",
    seconds: Annotated[float, typer.Option(min=0.1, help="Start no walk after so many seconds.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same walks.")] = 0,
    walks: Annotated[
        int | None, typer.Option(min=1, help="Make so many walks, however long it takes.", show_default="by time")
    ] = None,
    walk: Annotated[int | None, typer.Option(min=0, help="Tell this one walk, step by step.")] = None,
    events: Annotated[
        int | None, typer.Option(min=1, help="How many input events there are.", show_default="1")
    ] = None,
    caller: Annotated[
        Literal["honest", "adversary"] | None, typer.Option(help="Who sends commands.", show_default="honest")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="What may happen: a,b,c or all, or +a,-b against the set-up's own."),
    ] = None,
    reading: Annotated[str, typer.Option(metavar="NAME", help="Walk in another reading of the law.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Walk at random where a search would not end.

    Faults come in every mix.

    Ends with 0 when nothing broke, which proves nothing, 1 when something did, 2 for wrong usage. Ctrl-C ends it
    after the walk that it is in.
    """
    from ..fuzz import commands, simulate

    wanted = commands.Wanted(setup, events or 0, caller, features, reading)
    end(
        lambda: simulate.run(
            wanted, seed=seed, walks=walks or 0, seconds=0 if walks else seconds, only=walk, as_json_text=as_json
        )
    )


@app.command()
def crash(
    store: Annotated[
        str,
        typer.Option(
            metavar="URL", help="memory:, sqlite:PATH or duckdb:PATH (the sweep works beside PATH), or postgresql://…"
        ),
    ] = "duckdb:",
    depth: Annotated[int, typer.Option(min=1, max=2, help="Die once or twice.")] = 1,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Simulate crashes, much faster, instead of killing processes.")
    ] = False,
    workflow: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.js",
            help="Only this workflow (see --list), or a workflow file with its real connectors.",
            show_default="all",
        ),
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=0, help="Try pairs for so long: a sample.", show_default="600 with kills, else all")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Which sample of pairs.")] = 1,
    grain: Annotated[
        Literal["coalesced", "fine"], typer.Option(help="Gather the steps that may wait, or commit each by itself.")
    ] = "coalesced",
    point: Annotated[str, typer.Option(metavar="N[,M]", help="Repeat one trial and tell it step by step.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    what: Annotated[bool, typer.Option("--list", help="List the workflows.")] = False,
) -> None:
    """Kill a process at every point of its work, and restart it.

    What became of every input is judged. Ends with 0 when everything holds, 1 when something is violated, 2 for wrong
    usage, 3 when it is not decided. Ctrl-C stops the sweep and tells what is known.
    """
    from ..fuzz import crash

    if what:
        typer.echo(crash.listing())
        return
    wanted = crash.Wanted(store, depth, in_process, workflow, seconds, seed, grain)
    end(lambda: crash.crash(wanted, point=point, as_json_text=as_json))
