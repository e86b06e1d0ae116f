"""The workflows of the crash harness do what their names say, when nobody dies."""

from pathlib import Path

import pytest

from keepkernel.adapters.host import Grain
from keepkernel.fuzz.judge import Ending
from keepkernel.fuzz.lives import Way
from keepkernel.fuzz.trials import Ground, Trial, ground, simulated
from keepkernel.fuzz.workflows import WORKFLOWS
from keepkernel.kernel.commands import NAMES


@pytest.fixture
def memory(folder: Path) -> Ground:
    return ground("memory", folder)


def ended(trial: Trial) -> Ending:
    assert trial.violations == ()
    assert trial.ending is not None
    return trial.ending


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_about_what_its_name_says(name: str, memory: Ground) -> None:
    trial = simulated(WORKFLOWS[name], memory)
    ended(trial)
    story = "\n".join(trial.story)
    missing = [kind for kind in WORKFLOWS[name].expects if f'"type":"{NAMES[kind]}"' not in story]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "statuses", "landed"),
    [
        ("success", {"m1": "consumed", "m2": "consumed"}, {"m1": 1, "m2": 1}),
        ("skip", {"m1": "skipped", "m2": "consumed"}, {"m2": 1}),
        ("lost", {"m1": "consumed"}, {"m1": 1}),
        ("void", {"m1": "consumed"}, {"m1": 1}),
        ("no-call", {"m1": "consumed"}, {}),
        ("no-mutate", {"m1": "consumed"}, {}),
        ("batch", dict.fromkeys(("m1", "m2", "m3"), "consumed"), {"m1": 1, "m2": 1, "m3": 1}),
        ("chain", {"m1": "consumed", "m1-out": "consumed"}, {"m1": 1, "m1-out": 1}),
        ("producer", dict.fromkeys(("m1", "m2", "m3"), "consumed"), {"m1": 1, "m2": 1, "m3": 1}),
    ],
)
def test_inputs_end_as_planned(name: str, statuses: dict[str, str], landed: dict[str, int], memory: Ground) -> None:
    ending = ended(simulated(WORKFLOWS[name], memory))
    assert {event[0].id: event[2] for event in ending.events} == statuses
    assert {key.id: times for key, times in ending.landed} == landed


def test_three_inputs_are_one_commit_in_a_batch_and_two_with_a_producer_that_finds_two_at_a_time(
    memory: Ground,
) -> None:
    assert [len(commit[1]) for commit in ended(simulated(WORKFLOWS["batch"], memory)).commits] == [3]
    assert [len(commit[1]) for commit in ended(simulated(WORKFLOWS["producer"], memory)).commits] == [2, 1]


def test_a_repair_deploys_the_second_version(memory: Ground) -> None:
    assert ended(simulated(WORKFLOWS["repair"], memory)).version == "v2"


@pytest.mark.parametrize(("grain", "points"), [("fine", 84), ("coalesced", 50)])
def test_points_are_counted_alike_each_time(grain: Grain, points: int, memory: Ground) -> None:
    where = memory._replace(way=Way(grain))
    first, second = (simulated(WORKFLOWS["success"], where) for _ in range(2))
    assert first == second
    assert len(first.points) == points
    assert first.points[:2] == ("commit: before", "commit: after")
    assert {"CallHandler: before", "Send: after", "outside: before applied", "outside: after applied"} <= {
        *first.points
    }


def test_a_run_with_a_call_outside_takes_three_commits_when_steps_are_gathered(memory: Ground) -> None:
    points = simulated(WORKFLOWS["success"], memory).points
    begin, end = points.index("CallHandler: before"), len(points) - points[::-1].index("CallHandler: after")
    # Two inputs make two such runs. A third run finds nothing, and its only commit follows the last call of all.
    assert points[begin:end].count("commit: after") == 2 * 3
    assert points[end:].count("commit: after") == 2


def test_recovery_has_points_of_its_own(memory: Ground) -> None:
    sent = simulated(WORKFLOWS["success"], memory).points.index("Send: after") + 1
    assert "recover: one step done" in simulated(WORKFLOWS["success"], memory, (sent,)).points
