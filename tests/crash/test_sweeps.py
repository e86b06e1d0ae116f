"""Sweeps: every workflow survives every death, and real and simulated deaths are the same."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from keepkernel.adapters.host import Grain
from keepkernel.cli import app
from keepkernel.fuzz import crash as sweeps
from keepkernel.fuzz.crash import Swept, Wanted, crash, sweep, swept_in_process
from keepkernel.fuzz.lives import Way
from keepkernel.fuzz.trials import NotReached, ground, killed, pictured, revived, simulated
from keepkernel.fuzz.workflows import WORKFLOWS


def swept(scheme: str, name: str, folder: Path, depth: int = 1, grain: Grain = "coalesced") -> Swept:
    return swept_in_process(WORKFLOWS[name], ground(scheme, folder, Way(grain)), depth, 0, 1)


@pytest.mark.parametrize("name", WORKFLOWS)
@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
@pytest.mark.parametrize("grain", ["fine", "coalesced"])
def test_every_point_holds_in_process(grain: Grain, scheme: str, name: str, folder: Path) -> None:
    result = swept(scheme, name, folder, grain=grain)
    assert result.failures == ()
    assert result.points > (30 if grain == "fine" else 20)
    if scheme == "memory":
        assert result.trials == 1 + result.points


def test_every_pair_of_points_holds_in_process(folder: Path) -> None:
    result = swept("memory", "no-mutate", folder, depth=2)
    assert result.failures == ()
    assert result.pairs == result.all_pairs == result.trials - 1 - result.points
    assert result.pairs > result.points**2 / 2


def test_points_that_leave_the_same_files_are_one_trial_and_all_count(folder: Path) -> None:
    result = swept("sqlite", "no-mutate", folder, depth=2)
    assert result.failures == ()
    assert (result.pairs, result.all_pairs, result.trials) == (3_862, 3_862, 460)


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_killed_simulated_and_pictured_deaths_agree_point_by_point(scheme: str, folder: Path) -> None:
    workflow, where = WORKFLOWS["silent"], ground(scheme, folder, Way("fine"))
    clean = killed(workflow, where)
    really = [killed(workflow, where, (n,)) for n in range(1, len(clean.points) + 1)]
    assert [simulated(workflow, where, (n,)) for n in range(1, len(really) + 1)] == really
    names, deaths = pictured(workflow, where, None, 0)
    assert tuple(names) == clean.points
    by_picture = {death.point: revived(workflow, where, death.picture, (death.name,)) for death in deaths}
    for n, trial in enumerate(really, 1):
        same = by_picture[max(point for point in by_picture if point <= n)]
        assert same._replace(died=()) == trial._replace(died=())
    assert len({trial.fingerprint for trial in really}) > 20


def test_a_second_kill_falls_into_what_follows_the_first(folder: Path) -> None:
    where = ground("sqlite", folder)
    workflow = WORKFLOWS["happened"]
    sent = simulated(workflow, where).points.index("outside: after silent") + 1
    recovered = simulated(workflow, where, (sent,)).points.index("recover: one step done") + 1
    trial = killed(workflow, where, (sent, recovered))
    assert trial.died == ("outside: after silent", "recover: one step done")
    assert trial.violations == ()
    assert trial == simulated(workflow, where, (sent, recovered))


def test_a_point_that_is_never_reached_is_said(folder: Path) -> None:
    where = ground("sqlite", folder)
    for die in (killed, simulated):
        with pytest.raises(NotReached, match="points, not 9999"):
            die(WORKFLOWS["no-mutate"], where, (9999,))


# --- the command line --------------------------------------------------------------------------------


def test_a_sweep_with_kills_reports_a_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Wanted(f"sqlite:{folder / 'store'}", workflow="no-mutate", depth=2, seconds=1)
    assert crash(wanted, as_json_text=True) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["workflows"]
    assert (document["verdict"], row["verdict"], row["failures"]) == ("holds", "holds", [])
    assert row["trials"] == 1 + row["points"] + row["pairs"]
    assert 0 < row["pairs"] < row["all_pairs"]
    assert list(folder.iterdir()) == []


def test_a_sample_has_pairs_of_every_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("no-call", "no-mutate", "empty")
    monkeypatch.setattr(sweeps, "chosen", lambda name: [WORKFLOWS[n] for n in few])
    rows = sweep(Wanted("memory:", depth=2, in_process=True, seconds=0.001))["workflows"]
    assert [row["workflow"] for row in rows] == [*few]
    assert all(0 < row["pairs"] < row["all_pairs"] for row in rows)


def test_the_table_tells_what_was_tried() -> None:
    result = CliRunner().invoke(app, ["crash", "--store", "sqlite:", "--workflow", "no-call", "--in-process"])
    assert result.exit_code == 0
    assert "no-call" in result.output
    assert "holds: " in result.output
    assert "crashes simulated in one process" in result.output


def test_one_trial_is_told_step_by_step() -> None:
    line = ["crash", "--store", "memory:", "--workflow", "success", "--in-process", "--point", "40,3"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0
    assert "life 1 dies at point 40" in result.output
    assert "life 2 dies at point 3" in result.output
    assert '"type":"commit_consumer"' in result.output


@pytest.mark.parametrize(
    "line",
    [
        ["--store", "memory:"],
        ["--store", "nonsense"],
        ["--store", "sqlite:/no/such/folder/store"],
        ["--workflow", "nonsense"],
        ["--store", "memory:", "--in-process", "--point", "3"],
        ["--store", "memory:", "--in-process", "--workflow", "success", "--point", "0"],
        ["--store", "memory:", "--in-process", "--workflow", "success", "--point", "1,2,3"],
        ["--store", "memory:", "--in-process", "--workflow", "success", "--point", "9999"],
    ],
)
def test_wrong_usage_ends_with_2(line: list[str]) -> None:
    result = CliRunner().invoke(app, ["crash", *line])
    assert result.exit_code == 2
    assert "keepkernel: " in result.output


def test_ctrl_c_tells_what_is_known_and_leaves_nothing_behind(folder: Path) -> None:
    line = [sys.executable, "-m", "keepkernel", "crash", "--store", f"sqlite:{folder / 'store'}", "--json"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, process_group=0)
    while len(list(folder.glob("*/*"))) < 2:  # Trials are under way.
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    document = json.loads(process.communicate()[0])
    assert process.returncode == 3
    assert document["verdict"] == "not decided"
    assert {row["verdict"] for row in document["workflows"]} == {"not decided"}
    assert list(folder.iterdir()) == []


def test_workflows_are_listed() -> None:
    result = CliRunner().invoke(app, ["crash", "--list"])
    assert result.exit_code == 0
    assert [text.split()[0] for text in result.output.splitlines()] == list(WORKFLOWS)
