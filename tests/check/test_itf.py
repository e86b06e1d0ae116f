"""Counterexamples in the Informal Trace Format: another library reads them, and the kernel plays them again."""

import json
from pathlib import Path
from typing import Any

import itf_py
import pytest
from typer.testing import CliRunner, Result

from keepkernel.cli import app
from keepkernel.fuzz import itf
from keepkernel.fuzz.check import Counterexample, explore_reading, shortest
from keepkernel.spec.readings import READINGS

BY_STEP = "phase-before-ledger"  # The last step itself breaks an invariant.
LASSO = "reject-leaves-inputs"
DEAD_END = "never-abandoned"

Json = dict[str, Any]


def found(reading: str) -> tuple[Counterexample, Json]:
    result = explore_reading(reading)
    example = shortest(result)
    return example, json.loads(json.dumps(itf.to_itf(result, example)))


def replayed(tmp_path: Path, document: Json, *options: str) -> Result:
    path = tmp_path / "trace.itf.json"
    path.write_text(json.dumps(document))
    return CliRunner().invoke(app, ["replay", str(path), *options])


@pytest.mark.parametrize("reading", READINGS)
def test_itf_py_reads_and_writes_it_without_loss(reading: str) -> None:
    example, document = found(reading)
    trace = itf_py.trace_from_json(document)
    assert trace.vars == list(itf.VARIABLES)
    assert len(trace.states) == example.length + 1
    assert trace.loop == (example.loop if example.loop >= 0 else None)
    assert itf_py.trace_to_json(trace)["states"] == document["states"]


def test_itf_py_sees_the_values() -> None:
    example, document = found(BY_STEP)
    last = itf_py.trace_from_json(document).states[-2]
    state = example.moments[-2].state
    assert state.run is not None
    assert state.mutation is not None
    assert last.values["kernel"].run.phase == state.run.phase == "mutating"
    assert last.values["kernel"].mutation.may_land_until == state.mutation.may_land_until
    assert [event.status for event in last.values["kernel"].events] == ["reserved"]


@pytest.mark.parametrize("reading", READINGS)
def test_a_replay_in_its_reading_ends_where_the_search_ended(reading: str) -> None:
    example, document = found(reading)
    done = itf.replay(itf.read(json.dumps(document)), with_reading=True)
    assert done.divergence is None
    assert done.moments == example.moments
    if example.loop < 0:
        assert example.violation in done.broken


@pytest.mark.parametrize("reading", READINGS)
def test_the_kernel_as_it_is_diverges_from_every_reading(reading: str) -> None:
    example, document = found(reading)
    done = itf.replay(itf.read(json.dumps(document)))
    assert done.divergence is not None
    assert done.moments == example.moments[: len(done.moments)]


def test_check_writes_what_replay_reads(tmp_path: Path) -> None:
    path = tmp_path / "trace.itf.json"
    assert CliRunner().invoke(app, ["check", "--reading", BY_STEP, "--itf", str(path)]).exit_code == 1
    same = CliRunner().invoke(app, ["replay", str(path), "--reading"])
    assert same.exit_code == 0
    assert "every step is as the trace tells it; it ends in what breaks INV-010 (BOUND-005): " in same.stdout
    other = CliRunner().invoke(app, ["replay", str(path)])
    assert other.exit_code == 1
    assert "diverges at step 12: the trace tells it otherwise than it is\n" in other.stdout
    assert '  kernel.events[0].status: "pending" in the trace, "reserved" here\n' in other.stdout
    assert f"The trace was found in the reading {BY_STEP}; --reading replays it there." in other.stdout


def test_a_lasso_is_replayed_with_its_loop(tmp_path: Path) -> None:
    example, document = found(LASSO)
    assert document["loop"] == example.loop
    done = replayed(tmp_path, document, "--reading")
    assert done.exit_code == 0
    assert f"it ends in a loop from step {example.loop + 1} on" in done.stdout
    document["loop"] -= 1
    done = replayed(tmp_path, document, "--reading")
    assert done.exit_code == 1
    assert f"the loop does not come back to where it was after step {example.loop - 1}" in done.stdout


def test_a_dead_end_is_one_only_while_nobody_goes_on(tmp_path: Path) -> None:
    example, document = found(DEAD_END)
    done = replayed(tmp_path, document, "--reading")
    assert (done.exit_code, "a state of no return" in done.stdout) == (0, True)
    done = replayed(tmp_path, document)
    assert done.exit_code == 1
    assert f"diverges at step {example.length}: it goes on from here; user: abandons the retry" in done.stdout


# --- traces that were tampered with ------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 4, 9])
@pytest.mark.parametrize("variable", ["kernel", "hand", "world"])
def test_another_state_diverges_at_its_step(tmp_path: Path, step: int, variable: str) -> None:
    _, document = found(BY_STEP)
    place, field, value = {
        "kernel": (document["states"][step]["kernel"], "next_seq", {"#bigint": "77"}),
        "hand": (document["states"][step]["hand"], "kind", "voided"),
        "world": (document["states"][step]["world"], "current", "void"),
    }[variable]
    place[field] = value
    done = replayed(tmp_path, document, "--reading")
    assert done.exit_code == 1
    assert f"diverges at step {step}: the trace tells it otherwise than it is\n  {variable}.{field}: " in done.stdout


def test_a_command_that_is_rejected_diverges_with_the_reason(tmp_path: Path) -> None:
    _, document = found(BY_STEP)
    state = document["states"][5]
    state["actor"], state["action"], state["command"] = "user", "resumes", '{"now":10000000,"type":"resume"}'
    done = replayed(tmp_path, document, "--reading")
    assert done.exit_code == 1
    assert "diverges at step 5: the kernel rejects it: workflow_edge (WORK-001); user: resumes" in done.stdout


def test_an_act_that_nobody_can_do_diverges(tmp_path: Path) -> None:
    _, document = found(BY_STEP)
    document["states"][3] |= {"actor": "world", "action": "the call lands", "command": ""}
    done = replayed(tmp_path, document, "--reading")
    assert done.exit_code == 1
    assert "diverges at step 3: nobody can do this here; world: the call lands" in done.stdout


def test_a_step_that_is_left_out_diverges_where_it_is_missed(tmp_path: Path) -> None:
    _, document = found(BY_STEP)
    del document["states"][6]
    done = replayed(tmp_path, document, "--reading")
    assert (done.exit_code, "diverges at step 6: " in done.stdout) == (1, True)


def test_a_trace_that_ends_too_soon_breaks_nothing(tmp_path: Path) -> None:
    _, document = found(BY_STEP)
    del document["states"][-1]
    done = replayed(tmp_path, document, "--reading")
    assert done.exit_code == 1
    assert "diverges at step 11: it is said to break INV-010, and does not" in done.stdout
    document["#meta"]["invariant"] = ""
    done = replayed(tmp_path, document, "--reading")
    assert (done.exit_code, "it ends in a state that breaks nothing" in done.stdout) == (0, True)


def test_nothing_follows_a_broken_step(tmp_path: Path) -> None:
    _, document = found(BY_STEP)
    document["states"].append(document["states"][-1])
    done = replayed(tmp_path, document, "--reading")
    assert done.exit_code == 1
    assert "diverges at step 13: the step before breaks an invariant, and nothing follows it" in done.stdout


# --- what is no trace --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["#meta"], [], "#meta is missing"),
        (["#meta", "setup"], "nowhere", "the set-up 'nowhere' is not known"),
        (["#meta", "events"], 0, "it does not say how many events there are"),
        (["#meta", "features"], ["rain"], "unknown features ['rain']"),
        (["#meta", "features"], "crash", "its features are no list"),
        (["#meta", "caller"], "nobody", "the caller 'nobody' is not known"),
        (["#meta", "reading"], "none", "the reading 'none' is not known"),
        (["#meta", "reading"], [], "the reading [] is not known"),
        (["#meta", "invariant"], None, "it does not say what it breaks"),
        (["vars"], ["x"], "its variables are not actor, action"),
        (["states"], [], "it has no states"),
        (["states", 2], 7, "state 2 is not one"),
        (["states", 2], {"#meta": {}}, "state 2 lacks variables"),
        (["states", 2, "actor"], 7, "state 2 does not say who did what"),
        (["states", 3, "command"], "{}", "the command of state 3 can not be read"),
        (["loop"], 99, "its loop begins nowhere"),
    ],
)
def test_what_is_no_trace_is_wrong_usage(tmp_path: Path, path: list[Any], value: object, message: str) -> None:
    _, document = found(BY_STEP)
    place: Any = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    done = replayed(tmp_path, document)
    assert done.exit_code == 2
    assert f"is not a trace of this checker: {message}" in done.stderr


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_even_json_is_wrong_usage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.itf.json"
    path.write_bytes(content)
    done = CliRunner().invoke(app, ["replay", str(path)])
    assert done.exit_code == 2
    assert "is not a trace of this checker: " in done.stderr


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "nothing")])
    assert done.exit_code == 2
    assert "can not be read: No such file or directory" in done.stderr


def test_a_trace_of_the_chosen_reading_has_no_other(tmp_path: Path) -> None:
    _, document = found(BY_STEP)
    document["#meta"]["reading"] = ""
    done = replayed(tmp_path, document, "--reading")
    assert done.exit_code == 2
    assert "names no reading; replay it without --reading" in done.stderr
