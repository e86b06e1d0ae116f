"""A fault at every step of a call, and at every step of the look that follows: no answer is ever untrue.

Every step fails once before it is done, and once after. The outside is looked at by other means than the connector's.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from connectors.conftest import Place
from connectors.effects import Heard, alone, reconcile, send

from keepkernel.adapters.connectors import Connections, files, table
from keepkernel.kernel.respond import Answer, AskAgain, DidNotHappen, Failed, Happened, Unknown


def busy() -> Exception:
    error = sqlite3.OperationalError()
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


TROUBLES = {"sqlite": busy, "duckdb": duckdb.IOException, "postgresql": psycopg.OperationalError}
"""What each driver raises when its database is in trouble."""


class Fault:
    """The n-th step fails, before or after it is done."""

    def __init__(self) -> None:
        self.at, self.after, self.steps = -1, False, 0
        self.error: Callable[[], Exception] = OSError

    def set(self, at: int, after: bool = False) -> None:
        self.at, self.after, self.steps = at, after, 0

    def step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.steps += 1
        if self.steps == self.at and not self.after:
            raise self.error()
        result = function(*args, **kwargs)
        if self.steps == self.at:
            raise self.error()
        return result


class FaultySystem:
    """The module `os`, whose calls that touch the disk are steps."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("rename", "fsync"):
            return real
        return lambda *args, **kwargs: self._fault.step(real, *args, **kwargs)


def judge(connections: Connections, tool: str, params: Any, key: str, landed: Callable[[], int], fault: Fault) -> None:
    """Send with the fault that is set, then look, with a fault at every step of that, and send once more."""
    answer = send(connections, tool, params, key)
    happened = landed()
    assert happened in (0, 1)
    match answer:
        case Happened():
            assert happened == 1
        case Failed():
            assert happened == 0
        case _:
            assert isinstance(answer, Unknown)
    for said in looks(connections, tool, params, key, fault):
        assert landed() == happened
        if happened:
            assert isinstance(said, Happened | AskAgain)
        else:
            assert said == DidNotHappen(voided=True) or isinstance(said, AskAgain)
    assert not isinstance(said, AskAgain)
    assert not isinstance(send(connections, tool, params, key), Happened)  # Void, or done already.
    assert landed() == happened


def looks(connections: Connections, tool: str, params: Any, key: str, fault: Fault) -> Iterator[Answer]:
    for after in (False, True):
        for at in range(1, 4):
            fault.set(at, after)
            yield reconcile(connections, tool, params, key)
    fault.set(-1)
    yield reconcile(connections, tool, params, key)


@pytest.mark.parametrize("error", [OSError, RuntimeError])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], after: bool) -> None:
    fault = Fault()
    fault.error = error
    monkeypatch.setattr(files, "os", FaultySystem(fault))
    it = alone(files.Files(folder=tmp_path), tell=Heard())
    faults = 0
    for at in range(1, 100):
        name = f"f{at}"
        fault.set(at, after)
        send(it, "it.write", {"name": "probe", "text": ""}, f"demo/probe-{at}")
        if fault.steps < at:
            break
        faults += 1
        fault.set(at, after)
        judge(
            it, "it.write", {"name": name, "text": "x"}, f"demo/{at}",
            lambda name=name: len(list(tmp_path.glob(f"{name}-*"))), fault,
        )  # fmt: skip
    assert faults >= 7  # Two files and four folders are synced, and two things are renamed.


@pytest.mark.parametrize(
    ("after", "bug"), [(False, False), (True, False), (True, True)], ids=["before", "after", "after, by a bug"]
)
def test_table(place: Place, monkeypatch: pytest.MonkeyPatch, after: bool, bug: bool) -> None:
    fault = Fault()
    real = table.Session.run
    monkeypatch.setattr(table.Session, "run", lambda *args: fault.step(real, *args))
    fault.error = RuntimeError if bug else TROUBLES[place.kind]
    it = alone(table.Table(url=place.url, table="reports"), tell=Heard())
    held = place.connect()  # DuckDB is much faster while somebody has the file open.
    send(it, "it.insert", {"row": {"name": "first"}}, "demo/first")  # It finds no table of calls, and makes one.
    for at, statement in enumerate(("look", "begin", "insert", "claim", "commit"), 1):
        fault.set(at, after)
        landed = f"SELECT count(*) FROM reports WHERE name = '{statement}'"
        judge(
            it, "it.insert", {"row": {"name": statement}}, f"demo/{statement}",
            lambda landed=landed: place.ask(landed)[0][0], fault,
        )  # fmt: skip
    held.close()


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_call_that_wakes_after_its_deadline_does_not_land(tmp_path: Path, kind: str) -> None:
    """It stands still right before the step that counts, and nobody waits for it any more."""
    wakes, ended = threading.Event(), threading.Event()

    def reach(point: str) -> None:
        if point == "call: leaves":
            wakes.wait()

    def tell(tool: str, message: str, key: str) -> None:
        if "nobody waited for any more" in message:
            assert "its time had passed" in message
            ended.set()

    if kind == "files":
        params: Any = {"name": "late", "text": ""}
        connector: Any = files.Files(folder=tmp_path, deadline_ms=200)
    else:
        with sqlite3.connect(tmp_path / "late.db") as database:
            database.execute("CREATE TABLE reports (name TEXT)")
        params = {"row": {"name": "late"}}
        connector = table.Table(url=f"sqlite:{tmp_path / 'late.db'}", table="reports", deadline_ms=200)
    tool = f"it.{'write' if kind == 'files' else 'insert'}"
    assert isinstance(send(alone(connector, reach=reach, tell=tell), tool, params), Unknown)
    wakes.set()
    assert ended.wait(60)
    assert reconcile(alone(connector.model_copy(update={"deadline_ms": 60_000})), tool, params) == DidNotHappen(True)
    assert not list(tmp_path.glob("late-*"))
