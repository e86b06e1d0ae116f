"""A host that runs, in a process of its own: commands reach it, signals end it, kills do no harm."""

import fcntl
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from desk import KEEPKERNEL, Project

from keepkernel.adapters import control
from keepkernel.cli.running import Screen, Stop, Stops
from keepkernel.runtime import Runtime
from keepkernel.settings import place_of

LONG_S = 60.0


@contextmanager
def hosting(project: Project, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A host at work on the project, which listens already."""
    command = [*KEEPKERNEL, "run", str(project.file), "--json", *words]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        eventually(lambda: project.ask("status")["host"] is not None)
        yield host
    finally:
        host.kill()
        host.communicate()


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def on_duckdb(project: Project) -> Project:
    """A store that only one process may open, so that every command must go through the host."""
    project.config.write_text(project.config.read_text().replace("sqlite:work.db", "duckdb:work.duckdb"))
    project.store = f"duckdb:{project.folder / 'work.duckdb'}"
    project.run()
    return project


def test_commands_reach_a_host_that_runs(on_duckdb: Project) -> None:
    project = on_duckdb
    with hosting(project) as host:
        assert project.ask("status")["host"]["pid"] == host.pid
        project.publish("m1")
        assert host.stdout is not None
        new = json.loads(next(line for line in host.stdout if '"inputs"' in line))
        assert (new["text"], new["count"]) == ("a person published: Mail m1", 1)
        told = json.loads(next(line for line in host.stdout if '"done"' in line))
        assert told["text"] == "Mail m1 → Line 1 written"
        assert project.ask("inputs")["rows"][0]["came_of_it"] == "Line 1 written"
        assert project.ask("grant", "desk.apend")["warnings"] != []
        project.keep("pause")
        project.publish("m2")
        project.publish("m3")
        project.keep("skip", "m2")
        project.file.write_text(project.file.read_text().replace("written`", "noted`"))
        assert project.ask("deploy", str(project.file))["accepted"] is True
        assert "workflow_edge" in project.keep("pause", code=1).stderr
        project.keep("resume")
        eventually(lambda: project.ask("inputs")["rows"][2]["came_of_it"] == "Line 2 noted")
        assert project.ask("explain", "mail/m2")["story"][-1].endswith("A person gave it up.")
        second = project.keep("run", str(project.file), code=2).stderr
        assert "a host is at work on this store already" in second
        host.send_signal(signal.SIGTERM)
        assert host.wait(LONG_S) == 0
    assert project.lines() == ["m1", "m3"]
    assert project.status()["standing"] == "idle"
    assert not list(project.folder.glob("*.sock"))


def test_a_host_that_died_is_in_nobodys_way(on_duckdb: Project) -> None:
    with hosting(on_duckdb) as host:
        host.kill()
        host.wait()
        assert list(on_duckdb.folder.glob("*.sock"))
        on_duckdb.publish("m1")
        assert on_duckdb.ask("status")["host"] is None
    on_duckdb.run()
    assert on_duckdb.lines() == ["m1"]


def test_a_host_that_finds_the_store_by_another_way_waits(project: Project) -> None:
    """Its lock is another one, and the lease in the store is the same."""
    (project.folder / "alias.db").symlink_to(project.folder / "work.db")
    told = project.folder / "told"
    with hosting(project), told.open("w") as output:
        command = [*KEEPKERNEL, "run", str(project.file), "--store", f"sqlite:{project.folder / 'alias.db'}", "--json"]
        second = subprocess.Popen(command, stdout=output)
        try:
            eventually(lambda: "another host drives it; this one waits" in told.read_text())
        finally:
            second.kill()
            second.wait()
    project.publish("m1")
    project.run()  # The dead host's successor has its name, and waits for nobody.
    assert project.lines() == ["m1"]


def test_many_people_at_once(on_duckdb: Project) -> None:
    """Publishing, looking, pausing and deploying beside a host at work: nothing is lost, and nothing done twice."""
    project = on_duckdb
    place = place_of(project.store).socket
    assert place is not None
    names = [[f"m{person}-{number}" for number in range(8)] for person in range(4)]
    source = project.file.read_text()

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        answer = control.ask(place, {"workflow": "desk-work", **request})
        assert "error" not in answer, answer
        return answer

    def publish(mine: list[str]) -> None:
        for name in mine:
            assert ask({"do": "publish", "topic": "mail", "id": name, "title": name})["accepted"]

    def meddle(number: int) -> None:
        assert ask({"do": "deploy", "source": f"{source}//{number}\n", "file": str(project.file)})["accepted"]
        for what in ("pause", "status", "inputs", "resume", "outputs", "runs"):
            ask({"do": what})

    with hosting(project) as host, ThreadPoolExecutor(8) as people:
        work = [*(people.submit(publish, mine) for mine in names), people.submit(lambda: [*map(meddle, range(3))])]
        for one in work:
            one.result(LONG_S)
        eventually(lambda: len(project.lines()) == 32 and project.status()["standing"] == "idle")
        host.send_signal(signal.SIGTERM)
        assert host.wait(LONG_S) == 0
    assert sorted(project.lines()) == sorted(name for mine in names for name in mine)


# --- a terminal --------------------------------------------------------------------------------------


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *words: str, columns: int = 72) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ.pop("COLUMNS", None)
            os.environ["TERM"] = "xterm"
            os.execv(sys.executable, [*KEEPKERNEL, *words])
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        self.shown = ""

    def read_until(self, pattern: str) -> str:
        """What was shown up to a text; an empty pattern reads to the end."""
        end = time.monotonic() + LONG_S
        while not pattern or not re.search(pattern, self.shown):
            ready, _, _ = select.select([self.file], [], [], end - time.monotonic())
            assert ready, self.shown
            try:
                got = os.read(self.file, 65_536)
            except OSError:  # The other end is closed.
                got = b""
            if not got:
                assert not pattern, self.shown
                break
            self.shown += got.decode(errors="replace")
        return self.shown

    def end(self) -> int:
        self.read_until("")
        os.close(self.file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def plain(shown: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r\n", "\n").split("\n")


@pytest.mark.parametrize("columns", [60, 120])
def test_tables_fit_the_terminal(project: Project, columns: int) -> None:
    long = "A title that is much longer than a terminal is wide " * 3
    project.keep("publish", "mail", "m1", "--title", long)
    terminal = Terminal("inputs", columns=columns)
    assert terminal.end() == 0
    lines = plain(terminal.shown)
    assert max(map(len, lines)) <= columns
    assert "m1" in terminal.shown
    assert "→ waits" in terminal.shown


def test_a_row_that_goes_to_a_program_is_one_line(project: Project) -> None:
    long = "A title that is much longer than a terminal is wide " * 3
    project.keep("publish", "mail", "m1", "--title", long)
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    shown = subprocess.run([*KEEPKERNEL, "inputs"], check=True, capture_output=True, env=environment).stdout.decode()
    [row] = [line for line in shown.splitlines() if "m1" in line]
    assert long.strip() in row
    assert "→ waits" in row


def test_a_terminal_without_arrows_shows_something_else(project: Project) -> None:
    project.publish("m1")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    for words in (["run", str(project.file), "--until-idle"], ["inputs"]):
        shown = subprocess.run([*KEEPKERNEL, *words], check=True, capture_output=True, env=environment).stdout
        assert b"Mail m1" in shown
        assert b"? Line 1 written" in shown


def test_commands_are_named_as_they_were_typed(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        typed = {**os.environ, "KEEPKERNEL_PROGRAM": "../keep"}
        shown = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return str(subprocess.run([*KEEPKERNEL, *words], check=False, cwd=tmp_path, env=typed, **shown).stdout)

    assert "begin with ../keep run FILE" in said("status")
    assert "Run it: ../keep run demo/workflow.js --until-idle" in said("init", "demo")
    assert "Example: ../keep resolve" in said("resolve", "--help")


def test_no_line_of_the_help_is_cut_and_work_comes_first(monkeypatch: pytest.MonkeyPatch, project: Project) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = project.keep("--help").stdout.partition("Commands:\n")[2].splitlines()
    assert listed[0].split()[0] == "run"
    assert [line for line in listed if line.endswith("...")] == []


def test_the_shell_completes_commands() -> None:
    environment = {
        **os.environ,
        "_KEEPKERNEL_COMPLETE": "complete_bash",
        "COMP_WORDS": "keepkernel res",
        "COMP_CWORD": "1",
    }
    shown = subprocess.run(KEEPKERNEL, check=True, capture_output=True, text=True, env=environment).stdout
    assert shown.split() == ["resolve", "resume"]


def test_a_pipe_that_closes_ends_the_host_in_order(project: Project) -> None:
    for name in ("m1", "m2"):
        project.publish(name)
    host = subprocess.Popen([*KEEPKERNEL, "run", str(project.file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert host.stdout is not None
    assert host.stderr is not None
    host.stdout.close()
    assert b"Traceback" not in host.stderr.read()
    assert host.wait(LONG_S) == 0
    host.stderr.close()
    project.run()
    assert project.lines() == ["m1", "m2"]


def test_progress_is_counted_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    screen = Screen(as_json=False)
    for kind, count in (("inputs", 1), ("done", 1), ("done", 0), ("inputs", 2)):
        screen.news({"at": "2026-01-01T00:00:00Z", "workflow": "w", "kind": kind, "text": "t", "count": count})
    shown = capsys.readouterr().err.replace("\r\033[K", "\n").split("\n")
    assert shown[1:3] == ["1 new input, 0 done …", "1 new input, 1 done …"]
    assert shown[3:] == ["1 new input, 1 done …", "3 new inputs, 1 done …"]


def test_ctrl_c_ends_a_host_in_order(project: Project) -> None:
    project.publish("m1")
    terminal = Terminal("run", str(project.file))
    terminal.read_until(r"1 done …")
    assert "Mail m1 → Line 1 written" in terminal.shown
    os.write(terminal.file, b"\x03")
    terminal.read_until("the run in hand comes to its end")
    assert terminal.end() == 0
    assert "Traceback" not in terminal.shown
    assert project.ask("status")["host"] is None


def test_ctrl_c_twice_stops_in_the_middle_and_loses_nothing(project: Project) -> None:
    slow = project.file.read_text().replace("console.log", "while (payload(mail)) {} console.log")
    project.file.write_text(f"const payload = (mail) => mail.payload?.slow;\n{slow}")
    project.publish("m1", {"slow": True})
    terminal = Terminal("run", str(project.file), "--until-idle")
    eventually(lambda: bool(list(project.folder.glob("*.sock"))))  # From now on it works, and listens.
    os.write(terminal.file, b"\x03")
    terminal.read_until("the run in hand comes to its end")
    os.write(terminal.file, b"\x03")
    assert terminal.end() in (130, 3)
    assert "Traceback" not in terminal.shown
    project.file.write_text(project.file.read_text().replace("mail.payload?.slow", "false"))
    project.run()
    assert project.lines() == ["m1"]


# --- kills -------------------------------------------------------------------------------------------


def rows_of(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "reports.db")) as database:
        return [message for (message,) in database.execute("SELECT message FROM reports ORDER BY message")]


def test_kill_in_the_middle_and_the_same_command_again(tmp_path: Path) -> None:
    """What the README shows: mail files become rows, each exactly once, however often it is killed."""
    demo = tmp_path / "demo"
    subprocess.run([*KEEPKERNEL, "init", str(demo)], check=True, stdout=subprocess.DEVNULL)
    with (demo / "keepkernel.toml").open("a") as file:
        file.write("policy = {backoff_base_ms = 10, transient_retries = 100}\n")
    inbox = demo / "mail" / "new"
    for number in range(60):  # Enough to be killed in the middle of, however late this process is.
        shutil.copy(inbox / "1700000000.00.example", inbox / f"18000000{number:02d}.{number:02d}.example")
    mails = sorted(os.listdir(inbox))
    command = [*KEEPKERNEL, "run", str(demo / "workflow.js"), "--until-idle"]
    chance = random.Random(5)
    kills = 0
    for rows in (1, 7, 14):
        host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert host.stdout is not None
        for line in host.stdout:
            if "→" in line and len(rows_of(demo)) >= rows:
                break
        time.sleep(chance.uniform(0, 0.02))
        host.kill()
        kills += host.wait() == -signal.SIGKILL
        host.stdout.close()
    assert kills == 3
    assert len(rows_of(demo)) < len(mails)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert rows_of(demo) == mails
    late = inbox / "1600000000.00.example"  # Its delivery began before that of all others, and ended now.
    shutil.copy(inbox / mails[0], late)
    subprocess.run([*KEEPKERNEL, "run-now", "pollMail"], check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert rows_of(demo) == [late.name, *mails]
    mails = rows_of(demo)
    told = subprocess.run(
        [*KEEPKERNEL, "inputs", "-n", "100"], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout
    assert len(re.findall(r"→ Row \d+ added", told)) == len(mails)


def test_a_signal_is_kept_while_the_store_is_at_work() -> None:
    """A driver in C would make an error of its own of what a handler raises."""
    stops = Stops()
    with stops.kept():
        stops(signal.SIGTERM, None)
    assert stops.heard == 1
    with pytest.raises(Stop):
        stops(signal.SIGTERM, None)


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_stop_while_the_store_is_opened_ends_in_order(
    point: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Runtime.open

    def stopped(runtime: Runtime) -> None:
        if point == "before":
            os.kill(os.getpid(), signal.SIGTERM)
        opened(runtime)
        if point == "after":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Runtime, "open", stopped)
    project.run(3)
    monkeypatch.setattr(Runtime, "open", opened)
    project.run(0)
