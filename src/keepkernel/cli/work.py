"""Commands that run workflows, tell what became of them, and let a person decide.

Exit codes: 0 done; 1 refused by the kernel, or a workflow stands still and needs a person; 2 wrong usage or a file that
can not be used; 3 not finished: it was stopped before.
"""

import json
import shlex
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .base import app, as_typed, on_screen

Document = dict[str, Any]

Store = Annotated[
    str, typer.Option("--store", metavar="URL", help="The store; else KEEPKERNEL_STORE, or the one of this folder.")
]
Workflow = Annotated[
    str, typer.Option("--workflow", "-w", metavar="NAME", help="Which workflow; not needed when there is only one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="So many of each workflow, the newest.")]

BUSY_S = 10.0
"""A store that is open elsewhere, where no host listens, is waited for so long."""

DONE, REFUSED, WRONG_USAGE, NOT_FINISHED = range(4)


def fail(message: str, code: int = WRONG_USAGE) -> typer.Exit:
    for line in message.splitlines():
        typer.echo(f"keepkernel: {as_typed(line)}", err=True)
    return typer.Exit(code)


def ask(store: str, request: Document, config: Path | None = None) -> Document:
    """Ask the host that runs, or the store itself when none does."""
    from ..adapters import control
    from ..kernel.ports import StoreBusy, StoreError
    from ..runtime import checked_alone, office_on
    from ..settings import Unusable, exists, find_store, place_of, require_file

    try:
        require_file(config)
        place = place_of(store or find_store(Path.cwd()))
        if place.socket is None:
            raise fail("memory: is gone with its process; name another store")
        end = time.monotonic() + BUSY_S
        while True:
            try:
                answer = control.ask(place.socket, request)
                break
            except control.NoHost:
                if not exists(place):
                    if request["do"] != "deploy":
                        raise fail(f"there is no store {place.url}; begin with keepkernel run FILE") from None
                    checked_alone(request["source"], request["file"], config)  # A bad file leaves no store behind.
            try:
                with office_on(place, config) as office:
                    answer = office.answer(request)
                break
            except StoreBusy:  # Another command is about to end, or a host has started and listens in a moment.
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
    except (Unusable, StoreError, control.ControlError) as error:
        raise fail(str(error)) from None
    if "error" in answer:
        raise fail(str(answer["error"]))
    told: Document = for_store(answer, store, place.url)
    return told


def for_store(value: Any, store: str, url: str, proposed: bool = False) -> Any:
    """What is proposed is for the store that was asked for, and says so; no file of another store is proposed."""
    if isinstance(value, dict):
        return {name: for_store(inner, store, url, name in ("remedies", "command")) for name, inner in value.items()}
    if isinstance(value, list):
        return [for_store(inner, store, url, proposed) for inner in value]
    if proposed and isinstance(value, str) and value.startswith("keepkernel "):
        return f"{typed(value, url)} --store {shlex.quote(store)}" if store else typed(value, url)
    return value


def typed(command: str, url: str) -> str:
    """A command that is proposed; a store that was copied still knows the file that it came with."""
    from ..settings import is_beside

    deploy = "keepkernel deploy "
    named = shlex.split(command.removeprefix(deploy)) if command.startswith(deploy) else ["FILE"]
    return command if named == ["FILE"] or is_beside(url, Path(*named)) else f"{deploy}FILE"


def print_json(document: Document) -> None:
    typer.echo(json.dumps(document, indent=2))


def do(store: str, as_json: bool, request: Document, config: Path | None = None) -> None:
    """Let a person's command be decided upon, and tell what came of it."""
    answer = ask(store, request, config)
    if as_json:
        print_json(answer)
    elif answer["accepted"]:
        from .tables import decided

        typer.echo(decided(answer))
    else:
        refused = answer["refused"]
        detail = f" ({refused['detail']})" if refused["detail"] else ""
        typer.echo(f"keepkernel: refused: {refused['why']}{detail} [{refused['reason']}, {refused['rule']}]", err=True)
        typer.echo(f"keepkernel: what helps: {refused['remedy']}", err=True)
        typer.echo(f"keepkernel: {answer['workflow']} stands so: {on_screen(answer['standing'])}", err=True)
        for remedy in answer["remedies"]:
            typer.echo(f"keepkernel:   you can: {as_typed(remedy)}", err=True)
    raise typer.Exit(DONE if answer["accepted"] else REFUSED)


# --- run ---------------------------------------------------------------------------------------------


@app.command()
def run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Workflow files.")],
    store: Annotated[
        str,
        typer.Option("--store", metavar="URL", help="The store.", show_default=".keep/store.duckdb beside FILE"),
    ] = "",
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is due any more.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Connectors and settings.", show_default="keepkernel.toml beside FILE"),
    ] = None,
    repair: Annotated[
        str, typer.Option(metavar="COMMAND", help="Called with JSON on its input when a script fails.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:
    """Run workflows until Ctrl-C.

    It deploys what is new, takes up what a crash left, and works.

    Ctrl-C and SIGTERM let the run in hand come to its end; a second one stops at once, and loses nothing either.

    Ends with 0 when it was stopped or everything is done, 1 when a workflow needs a person or the store failed, 2 for
    a file that can not be used, 3 when --until-idle was stopped before.

    Example: keepkernel run demo/workflow.js --until-idle
    """
    from .running import run_files

    raise typer.Exit(run_files(files, store, until_idle=until_idle, config=config, repair=repair, as_json=as_json))


# --- questions ---------------------------------------------------------------------------------------


@app.command()
def status(store: Store = "", workflow: Workflow = "", as_json: AsJson = False) -> None:
    """Tell how every workflow stands, and what can be done.

    Ends with 0, or with 1 when a workflow needs a person.

    Example: keepkernel status --workflow mail-to-reports
    """
    answer = ask(store, {"do": "status", "workflow": workflow})
    if as_json:
        print_json(answer)
    else:
        from .tables import show_status

        show_status(answer)
    raise typer.Exit(REFUSED if any(one["needs_person"] for one in answer["workflows"]) else DONE)


def rows(what: str, store: str, workflow: str, limit: int, as_json: bool) -> None:
    answer = ask(store, {"do": what, "workflow": workflow, "limit": limit})
    if as_json:
        print_json(answer)
    else:
        from .tables import show_rows

        show_rows(what, answer["rows"])


@app.command()
def inputs(store: Store = "", workflow: Workflow = "", limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the inputs by title, each with what came of it.

    Example: keepkernel inputs --limit 10
    """
    rows("inputs", store, workflow, limit, as_json)


@app.command()
def outputs(store: Store = "", workflow: Workflow = "", limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the changes made outside, and the events that came.

    Example: keepkernel outputs --json
    """
    rows("outputs", store, workflow, limit, as_json)


@app.command()
def runs(store: Store = "", workflow: Workflow = "", limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the runs of handlers, and why some stopped.

    Example: keepkernel runs --limit 5
    """
    rows("runs", store, workflow, limit, as_json)


@app.command()
def logs(
    store: Store = "",
    workflow: Workflow = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The last so many lines.")] = 100,
    run_id: Annotated[str, typer.Option("--run", metavar="RUN", help="Only what this run said.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:
    """Show what the host told, and what scripts said.

    Example: keepkernel logs --run 7k2m --json
    """
    from collections import deque

    from ..log import read_log
    from ..settings import Unusable, exists, find_store, place_of

    try:
        place = place_of(store or find_store(Path.cwd()))
    except Unusable as error:
        raise fail(str(error)) from None
    if not exists(place):
        raise fail(f"there is no store {place.url}; begin with keepkernel run FILE")
    lines = deque(
        (
            line
            for line in (read_log(place.log) if place.log else ())
            if (not workflow or line["workflow"] == workflow) and line.get("run", "").startswith(run_id)
        ),
        limit,
    )
    if not lines and (run_id or workflow):
        raise fail(f"the log has no line of {' and '.join(filter(None, (run_id, workflow)))}")
    for line in lines:
        typer.echo(json.dumps(line) if as_json else f"{line['at']}  {line['workflow']}  {on_screen(line['text'])}")


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="RUN|EVENT|MUTATION", help="An id, or the beginning of a run's.")],
    store: Store = "",
    workflow: Workflow = "",
    as_json: AsJson = False,
) -> None:
    """Tell the whole story of a run, an input or a mutation.

    What was selected, what was attempted, why it stands still, and what can be done.

    Example: keepkernel explain 7k2mx0q4t9aa
    """
    answer = ask(store, {"do": "explain", "name": name, "workflow": workflow})
    if as_json:
        print_json(answer)
    else:
        from .tables import show_story

        show_story(answer)


# --- decisions ---------------------------------------------------------------------------------------


@app.command()
def resolve(
    mutation: Annotated[str, typer.Argument(metavar="MUTATION", help="Its run, as `status` names it.")],
    as_: Annotated[
        Literal["try-again", "didnt-happen", "skip", "happened"], typer.Option("--as", help="What is to be held true.")
    ],
    result: Annotated[str, typer.Option(metavar="JSON", help="The result, with --as happened.")] = "",
    store: Store = "",
    workflow: Workflow = "",
    as_json: AsJson = False,
) -> None:
    """Say what became of a mutation that nobody knows about.

    `try-again` asks the target once more; `didnt-happen` starts over; `skip` gives the inputs up; `happened` goes on.

    Example: keepkernel resolve 7k2mx0q4t9aa --as didnt-happen
    """
    if result:
        try:
            json.loads(result)
        except ValueError as error:
            raise fail(f"--result is not JSON: {error}") from None
        if as_ != "happened":
            raise fail("--result goes with --as happened alone")
    do(store, as_json, {"do": "resolve", "mutation": mutation, "as": as_, "result": result, "workflow": workflow})


Digest = Annotated[str, typer.Argument(metavar="DIGEST", help="Which call, when several wait; see `status`.")]


@app.command()
def approve(digest: Digest = "", store: Store = "", workflow: Workflow = "", as_json: AsJson = False) -> None:
    """Approve the one call that waits for it.

    `status` shows what it would do.

    Example: keepkernel approve --workflow mail-to-reports
    """
    do(store, as_json, {"do": "approve", "digest": digest, "workflow": workflow})


@app.command()
def reject(digest: Digest = "", store: Store = "", workflow: Workflow = "", as_json: AsJson = False) -> None:
    """Refuse the call that waits for it, and give its inputs up.

    Example: keepkernel reject --workflow mail-to-reports
    """
    do(store, as_json, {"do": "reject", "digest": digest, "workflow": workflow})


@app.command()
def grant(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="connector.method")],
    asking: Annotated[bool, typer.Option("--ask", help="Each call needs an approval.")] = False,
    store: Store = "",
    workflow: Workflow = "",
    as_json: AsJson = False,
) -> None:
    """Let a workflow use a tool.

    Example: keepkernel grant reports.insert --ask
    """
    do(store, as_json, {"do": "grant", "tool": tool, "ask": asking, "workflow": workflow})


@app.command()
def skip(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="ID or TOPIC/ID of an input that waits.")],
    store: Store = "",
    workflow: Workflow = "",
    as_json: AsJson = False,
) -> None:
    """Give up an input that no run has taken.

    Example: keepkernel skip mail/m-17
    """
    do(store, as_json, {"do": "skip", "event": event, "workflow": workflow})


@app.command()
def pause(store: Store = "", workflow: Workflow = "", as_json: AsJson = False) -> None:
    """Start no new runs; the one in hand comes to its end.

    Example: keepkernel pause
    """
    do(store, as_json, {"do": "pause", "workflow": workflow})


@app.command()
def resume(store: Store = "", workflow: Workflow = "", as_json: AsJson = False) -> None:
    """Go on after a pause.

    Example: keepkernel resume
    """
    do(store, as_json, {"do": "resume", "workflow": workflow})


@app.command("run-now")
def run_now(
    handler: Annotated[str, typer.Argument(metavar="HANDLER", help="A producer or consumer.")],
    store: Store = "",
    workflow: Workflow = "",
    as_json: AsJson = False,
) -> None:
    """Let a handler run, whatever its schedule.

    Example: keepkernel run-now pollMail
    """
    do(store, as_json, {"do": "run-now", "handler": handler, "workflow": workflow})


@app.command()
def retry(store: Store = "", workflow: Workflow = "", as_json: AsJson = False) -> None:
    """Start afresh after a block, a failed script or a wait.

    Example: keepkernel retry
    """
    do(store, as_json, {"do": "retry", "workflow": workflow})


@app.command()
def abandon(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run whose mutation is done and that can not go on.")],
    store: Store = "",
    workflow: Workflow = "",
    as_json: AsJson = False,
) -> None:
    """Give up what follows a mutation that is done.

    Example: keepkernel abandon 7k2mx0q4t9aa
    """
    do(store, as_json, {"do": "abandon", "run": run_id, "workflow": workflow})


@app.command()
def reconnect(store: Store = "", workflow: Workflow = "", as_json: AsJson = False) -> None:
    """Go on after access was refused and you have put it right.

    Example: keepkernel reconnect
    """
    do(store, as_json, {"do": "reconnect", "workflow": workflow})


@app.command("clear-error")
def clear_error(store: Store = "", workflow: Workflow = "", as_json: AsJson = False) -> None:
    """Go on after a fault of the host.

    Example: keepkernel clear-error
    """
    do(store, as_json, {"do": "clear-error", "workflow": workflow})


@app.command()
def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    event: Annotated[str, typer.Argument(metavar="ID")],
    title: Annotated[str, typer.Option(help="What a person calls it.")],
    payload: Annotated[str, typer.Option(metavar="JSON")] = "null",
    store: Store = "",
    workflow: Workflow = "",
    as_json: AsJson = False,
) -> None:
    """Put an input into a topic by hand.

    Example: keepkernel publish mail m-17 --title "Mail from alice" --payload '{"from": "alice"}'
    """
    request = {"do": "publish", "topic": topic, "id": event, "title": title, "payload": payload, "workflow": workflow}
    do(store, as_json, request)


@app.command()
def deploy(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow file.")],
    store: Annotated[
        str,
        typer.Option("--store", metavar="URL", help="The store.", show_default=".keep/store.duckdb beside FILE"),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Connectors and settings.", show_default="keepkernel.toml beside FILE"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a new version in place; all inputs stay.

    While a run is active it waits for its end, up to a minute.

    Example: keepkernel deploy demo/workflow.js
    """
    from ..settings import CONFIG, Unusable, read_settings, store_beside

    folder = file.absolute().parent
    try:
        source = file.read_text(encoding="utf-8")
        url = store or store_beside(folder, read_settings(config or folder / CONFIG))
    except OSError as error:
        raise fail(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise fail(f"{file}: it is not a text in UTF-8") from None
    except Unusable as error:
        raise fail(str(error)) from None
    do(url, as_json, {"do": "deploy", "source": source, "file": str(file.absolute())}, config)


@app.command()
def init(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")], as_json: AsJson = False) -> None:
    """Write a small working project.

    Mail files, a table, and a workflow that turns one into the other.

    Example: keepkernel init demo
    """
    from .project import write_project

    try:
        made = write_project(folder)
    except FileExistsError:
        raise fail(f"{folder} is there already; name a new folder") from None
    except OSError as error:
        raise fail(f"{folder}: {error.strerror}") from None
    if as_json:
        print_json({"made": [str(path) for path in made], "run": str(folder / "workflow.js")})
        return
    for path in made:
        typer.echo(path)
    typer.echo(as_typed(f"Run it: keepkernel run {folder / 'workflow.js'} --until-idle"))
