"""The main job: which searches it runs, what it makes of their results, and how it ends."""

import json
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from keepkernel.cli import app
from keepkernel.fuzz import verify
from keepkernel.fuzz.check import as_json, explore, explore_reading
from keepkernel.fuzz.crash import Wanted
from keepkernel.fuzz.setups import SETUPS
from keepkernel.fuzz.verify import PLAN, Search
from keepkernel.kernel.recover import recover
from keepkernel.spec.invariants import INVARIANTS
from keepkernel.spec.variants import Swap, swapped

SMALL = (Search("no-mutate", 1), Search("no-reconcile", 1))


def test_the_plan_is_every_setup_and_main_with_two_events_and_adversaries() -> None:
    honest = {(s.setup, s.events) for s in PLAN if s.caller == "honest"}
    assert honest == {(s.name, s.events) for s in SETUPS.values()} | {("main", 2)}
    assert {(s.setup, s.events) for s in PLAN if s.caller == "adversary"} == {("main", 1), ("consumer", 1)}
    assert len(set(PLAN)) == len(PLAN)


def test_the_command_runs_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "searched", lambda plan: {s: verify.undecided(s, "not run") for s in plan})
    done = CliRunner().invoke(app, ["verify", "--json"])
    assert done.exit_code == 3
    found = json.loads(done.stdout)["searches"]
    assert [(s["setup"], s["events"], s["caller"]) for s in found] == [tuple(search) for search in PLAN]


def test_searches_that_hold_end_with_0_and_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert verify.verify(plan=SMALL) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == list(verify.HEAD)
    for line, search in zip(lines[2:4], SMALL, strict=True):
        result = explore(search.setup)
        row = [search.setup, "1", "honest", "holds", f"{result.states:,}", f"{result.transitions:,}", str(result.depth)]
        assert line.split()[:-1] == row
    assert any(line.startswith("holds: ") for line in lines)
    assert f"Checked: {len(INVARIANTS)} invariants on states and steps" in "\n".join(lines)
    assert any(line.startswith("Not checked here: ") for line in lines)


def test_what_holds_is_killed_at_every_point_as_well(capfd: pytest.CaptureFixture[str]) -> None:
    deaths = Wanted("memory:", in_process=True, workflow="no-mutate", grain="fine")
    assert verify.verify(as_json_text=True, plan=SMALL[:1], deaths=deaths) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["verdict"], found["crash"]["verdict"]) == ("holds", "holds")
    assert [row["workflow"] for row in found["crash"]["workflows"]] == ["no-mutate"]
    with swapped(Swap(recover, lambda state, now: ())):
        assert verify.verify(plan=SMALL[:1], deaths=deaths) == 1
    assert "keepkernel crash --store memory: --workflow no-mutate --point " in capfd.readouterr().out


def test_what_does_not_hold_is_not_killed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(verify, "searched", lambda plan: {s: verify.undecided(s, "not run") for s in plan})
    assert verify.verify(as_json_text=True, plan=SMALL, deaths=Wanted("memory:", in_process=True)) == 3
    assert "crash" not in json.loads(capfd.readouterr().out)


def test_the_whole_table_fits_on_a_screen() -> None:
    results = [verify.undecided(search, "") | {"verdict": "holds"} for search in PLAN]
    lines = list(verify.lines(PLAN, verify.summary(results, 60.0)))
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120


def test_json_holds_every_search(capfd: pytest.CaptureFixture[str]) -> None:
    assert verify.verify(as_json_text=True, plan=SMALL) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["verdict"] == "holds"
    expected = [as_json(explore(search.setup, to_law=True)) | {"seconds": 0} for search in SMALL]
    assert [search | {"seconds": 0} for search in found["searches"]] == json.loads(json.dumps(expected))
    witnessed = {name for search in expected for name in search["witnesses"]}
    assert found["untested"] == [name for name in INVARIANTS if name not in witnessed]
    both = set.intersection(*(set(search["unreached"]["edges"]) for search in expected))
    assert found["unreached"]["edges"] == sorted(both)


def test_one_violation_is_enough() -> None:
    broken = as_json(explore_reading("empty-outcome-retried"))
    results = [broken, verify.undecided(SMALL[1], "interrupted")]
    document = verify.summary(results, 1.0)
    assert document["verdict"] == "violated"
    text = "\n".join(verify.lines(SMALL, document))
    assert "no-mutate: INV-022 (BOUND-004) is broken after 8 steps\n" in text
    assert "  keepkernel check no-mutate --events 1 --caller honest tells how\n" in text
    assert "no-reconcile: interrupted\n" in text
    assert "Checked: " not in text


def test_a_search_that_is_killed_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def killed(search: Search) -> "subprocess.Popen[str]":
        code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True)

    monkeypatch.setattr(verify, "started", killed)
    assert verify.verify(plan=SMALL[:1]) == 3
    text = capfd.readouterr().out
    assert "no-mutate: its process ended with -9: it said nothing\n" in text
    assert "not decided: 0 states" in text


def test_ctrl_c_stops_every_search_and_each_tells_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes stand in for searches: the first is running when Ctrl-C comes, the other has not begun."""
    code = (
        "import signal, time\n"
        'def stop(*_): print(\'{"verdict": "not decided", "states": 7}\'); raise SystemExit(3)\n'
        "signal.signal(signal.SIGINT, stop)\n"
        "print('ready', file=__import__('sys').stderr, flush=True)\n"
        "while True: time.sleep(0.1)\n"
    )
    began: list[Search] = []

    def running(search: Search) -> "subprocess.Popen[str]":
        began.append(search)
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True, process_group=0)
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(verify, "started", running)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    found = verify.searched(SMALL)
    assert began == [SMALL[1]]
    assert found[SMALL[1]] == {"verdict": "not decided", "states": 7}
    assert found[SMALL[0]]["why"] == "interrupted before it began"
