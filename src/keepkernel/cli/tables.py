"""Documents for people: tables that fit the terminal, and stories."""

import json
import os
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .base import as_typed

Document = dict[str, Any]

PIPE_WIDTH: Final = 10_000

COLUMNS = {
    "inputs": ("title", "came_of_it", "id"),
    "outputs": ("title", "from", "what", "run"),
    "runs": ("run", "handler", "status", "inputs", "title", "message"),
}
HEADS = {
    "title": "",
    "came_of_it": "what came of it",
    "from": "came of",
    "what": "what",
    "message": "why it stopped",
}
MADE = {
    "try_again": "the target is asked again whether it happened",
    "didnt_happen": "it did not happen; the inputs are taken up afresh",
    "skip_mutation": "the inputs are given up; what follows is told so",
    "assert_applied": "it happened; what follows comes next",
    "approve": "the call is approved",
    "reject": "the call is refused, and its inputs are given up",
    "grant": "granted",
    "skip_event": "the input is given up",
    "pause": "paused; no new run starts",
    "resume": "goes on",
    "run_now": "it runs at the next opportunity",
    "retry": "failures are forgotten, and nothing waits any more",
    "abandon": "what follows is given up",
    "reconnect": "goes on",
    "clear_error": "goes on",
    "publish": "published",
}
NOTHING_FOLLOWS = frozenset({"grant", "pause", "skip_event", "reject", "abandon"})
ARROW = {"inputs": "input", "outputs": "output", "runs": "what for"}


def console() -> Console:
    """Words of scripts are never taken for markup, and nothing is shown that moves the cursor."""
    return Console(markup=False, highlight=False, emoji=False)


def plain(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "".join(sign if sign.isprintable() else " " for sign in text)


def as_sent(params: Any) -> str:
    """Parameters as they went out: JSON, whatever they are."""
    return plain(json.dumps(params, ensure_ascii=False))


def show_rows(what: str, rows: list[Document]) -> None:
    if not rows:
        console().print(f"There are no {what} yet.")
        return
    several = len({row["workflow"] for row in rows}) > 1
    columns = (*(("workflow",) if several else ()), *COLUMNS[what])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        head = ARROW[what] if column == "title" else HEADS.get(column, column)
        short = column in ("run", "status", "what", "inputs")
        table.add_column(head, no_wrap=short, overflow="ellipsis" if short else "fold", ratio=None if short else 1)
    for row in rows:
        cells = [f"→ {plain(row[c])}" if c == "came_of_it" else plain(row[c]) for c in columns]
        table.add_row(*map(Text, cells))
    screen = console()
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = PIPE_WIDTH  # A file or a pipe has no edge at which a row would have to break.
    screen.print(table)


def say(screen: Console, depth: int, text: str) -> None:
    """Words that stay behind their margin where a line is too long."""
    screen.print(Padding(Text(plain(text)), (0, 0, 0, depth), expand=False))


def propose(screen: Console, remedies: list[str]) -> None:
    for remedy in remedies:
        screen.print(f"  you can: {as_typed(remedy)}", soft_wrap=True)


def show_status(answer: Document) -> None:
    screen = console()
    host = answer["host"]
    screen.print(f"A host is running (process {host['pid']})." if host else "No host is running.")
    if answer["ahead_s"]:
        screen.print(f"The store's time is {answer['ahead_s']} s ahead of this machine's clock, and waits for it.")
    if not answer["workflows"]:
        screen.print(as_typed("The store is empty; begin with keepkernel run FILE."))
    for one in answer["workflows"]:
        count = one["inputs"]
        waiting = f"{count['waiting']} waiting" if count["waiting"] < 1_000 else "1000 or more waiting"
        screen.print()
        screen.print(Text(f"{plain(one['workflow'])}", "bold"), f"({one['status']}):", plain(one["standing"]))
        if host and one["workflow"] not in host["workflows"]:
            say(screen, 2, "the host that is running does not drive it")
        say(screen, 2, f"inputs and events: {count['published']} in all, {waiting}, {count['in_work']} in work")
        if one["request"]:
            request = one["request"]
            say(screen, 2, f"waits for approval: {request['tool']} with {as_sent(request['params'])}")
            say(screen, 4, f"for {plain(request['inputs'])}; digest {request['digest'][:12]}")
        if one["escalation"]:
            show_escalation(screen, one["escalation"])
        propose(screen, one["remedies"])


def show_escalation(screen: Console, record: Document) -> None:
    say(screen, 2, f"mutation {record['mutation']}: {record['tool']} with {as_sent(record['attempted'])}")
    say(screen, 4, f"for {plain(record['inputs'])}")
    say(screen, 4, f"why it is unknown: {record['why']}")
    for words in record["told"]:
        say(screen, 6, words)
    say(screen, 4, f"can it be verified: {record['verification']}")
    say(screen, 4, f"what to check: {record['check']}")
    for choice in record["choices"]:
        if choice["possible"]:
            say(screen, 4, f"--as {choice['as']}: {choice['means']}")
        else:
            refused = choice["why_not"]
            word = "not now" if refused["reason"] == "too_early" else "not possible"
            say(screen, 4, f"--as {choice['as']}: {word}: {refused['why']} ({refused['detail']}, {refused['rule']})")


def show_story(answer: Document) -> None:
    screen = console()
    screen.print(
        Text(plain(answer["title"]), "bold"), f"({answer['kind']} {plain(answer['name'])} of {answer['workflow']})"
    )
    for line in answer["story"]:
        say(screen, 2, line)
    if answer["escalation"]:
        show_escalation(screen, answer["escalation"])
    propose(screen, answer["remedies"])


def decided(answer: Document) -> str:
    if answer.get("unchanged"):
        return f"{answer['workflow']}: version {answer['version']} is deployed already"
    warnings = "".join(f"\nwarning: {warning}" for warning in answer.get("warnings", ()))
    if "version" in answer:
        return f"{answer['workflow']}: version {answer['version']} deployed{warnings}"
    told = f"{answer['workflow']}: {MADE[answer['command']]}{taken_up_by(answer)}{warnings}"
    if "standing" in answer:
        told += f"\nIt stands so all the same: {plain(answer['standing'])}"
        told += "".join(f"\n  you can: {remedy}" for remedy in answer["remedies"])
    return as_typed(told)


def taken_up_by(answer: Document) -> str:
    """Who goes on with what was decided, where something is to be done."""
    host = answer["host"]
    if answer["command"] in NOTHING_FOLLOWS or (host and answer["workflow"] in host["workflows"]):
        return ""
    if host:
        return (
            "\nThe host that is running does not drive this workflow: name its file in `keepkernel run FILE…` as well."
        )
    return "\nNo host is running; the next `keepkernel run` takes it up."
