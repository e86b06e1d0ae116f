"""Kernels with a planted fault: each is caught, and called by its right name."""

from typing import Any

import pytest

from keepkernel import Accepted, Approve, CommitConsumer, Declaration, Deploy, FailMutation, Key, Resume, Run, State
from keepkernel.fuzz.check import Result, explore, shortest
from keepkernel.fuzz.report import told
from keepkernel.fuzz.setups import setup
from keepkernel.kernel import events, ledger, people, runs
from keepkernel.kernel.people import pause
from keepkernel.kernel.reasons import Refusal, require
from keepkernel.kernel.recover import recover
from keepkernel.kernel.types import EndStatus, GrantMode
from keepkernel.spec.readings import altered
from keepkernel.spec.variants import Swap, swapped


def broken(result: Result) -> list[str]:
    return [example.violation.invariant for example in result.counterexamples]


# --- deadlock ----------------------------------------------------------------------------------------


def resume_from_ready_only(state: State, command: Resume) -> Accepted:
    require(state.status != "paused", "workflow_edge", state.status)
    return resume(state, command)


resume = people.resume


@pytest.mark.rule("LIVE-001")
def test_a_deadlock_is_a_state_from_which_no_way_leads_to_rest() -> None:
    result = explore("consumer", swaps=(Swap(resume, resume_from_ready_only),))
    assert result.verdict == "violated"
    assert broken(result) == ["LIVE-001", "LIVE-002"]
    first = shortest(result)
    assert [moment.label.text for moment in first.moments] == ["pauses"]
    assert first.loop == first.length, "it stands still"


def test_without_anybody_who_pauses_the_deadlock_does_no_harm() -> None:
    chosen = setup("consumer", features=setup("consumer").features - {"pause"})
    explore(chosen, swaps=(Swap(resume, resume_from_ready_only),)).assert_holds()


# --- livelock ----------------------------------------------------------------------------------------


def approve_and_forget(state: State, command: Approve) -> Accepted:
    accepted = approve(state, command)
    return accepted._replace(state=accepted.state._replace(approvals=state.approvals))


approve = people.approve


@pytest.mark.rule("LIVE-002")
def test_a_livelock_is_a_stem_and_a_loop() -> None:
    """Whoever approves is asked again, for ever; but a person may reject, so rest stays reachable."""
    result = explore("consumer", swaps=(Swap(approve, approve_and_forget),))
    assert (result.verdict, broken(result)) == ("violated", ["LIVE-002"])
    lasso = result.counterexamples[0]
    assert 0 <= lasso.loop < lasso.length
    before = lasso.moments[lasso.loop - 1]
    assert (before.state, before.hand, before.world) == lasso.moments[-1][2:], "the loop is closed"
    assert "approves" in [moment.label.text for moment in lasso.moments[lasso.loop :]]


# --- vacuity -----------------------------------------------------------------------------------------


def refuse(state: State, command: Any) -> Accepted:
    require(False, "no_error")
    raise AssertionError


@pytest.mark.parametrize(
    ("transition", "untested"),
    [(people.abandon, ("INV-007",)), (people.pause, ("INV-031",))],
    ids=["abandon", "pause"],
)
def test_what_is_never_put_to_the_test_is_vacuous(transition: object, untested: tuple[str, ...]) -> None:
    with swapped(Swap(transition, refuse)):
        result = explore("consumer")
    assert (result.verdict, result.missing, result.counterexamples) == ("violated", untested, ())
    assert result.why.startswith("vacuous")
    with pytest.raises(AssertionError, match="vacuous"):
        result.assert_holds()


# --- consumers that nobody wakes ---------------------------------------------------------------------

publish, stopped = events.publish, runs.stopped


def publish_quietly(state: State, *arguments: Any) -> State:
    return publish(state, *arguments)._replace(handlers=state.handlers)


def stop_quietly(state: State, run: Run, status: EndStatus, message: str) -> tuple[State, Run]:
    after, ended = stopped(state, run, status, message)
    return after._replace(handlers=state.handlers), ended


def test_a_publication_that_wakes_no_consumer_is_caught() -> None:
    result = explore("main", swaps=(Swap(publish, publish_quietly),))
    assert broken(result) == ["LIVE-002"]
    last = shortest(result).moments[-1].state
    assert [event.status for event in last.events] == ["pending"]
    assert not any(row.dirty for row in last.handlers)


def test_a_release_that_wakes_no_consumer_is_caught() -> None:
    assert broken(explore("consumer", swaps=(Swap(stopped, stop_quietly),))) == ["INV-014"]


# --- what people grant, what scripts name, what callers make up --------------------------------------

deploy, permission, reserve = people.deploy, runs.permission, events.reserve
commit_consumer, fail_mutation = runs.commit_consumer, ledger.fail_mutation


def granted_by_default(state: State, tool: str) -> GrantMode | None:
    return permission(state, tool) or "always"


def test_a_tool_that_nobody_granted_is_caught() -> None:
    result = explore("permission", swaps=(Swap(permission, granted_by_default),), stop_at_first=True)
    assert broken(result) == ["INV-018"]


def reserve_of_any_topic(state: State, run: str, consumer: Declaration, keys: tuple[Key, ...]) -> State:
    return reserve(state, run, consumer._replace(subscribes=tuple({key.topic for key in keys})), keys)


def test_an_input_of_another_topic_is_caught() -> None:
    chosen = setup("chain", features=frozenset({"probe"}))
    result = explore(chosen, swaps=(Swap(reserve, reserve_of_any_topic),), stop_at_first=True)
    assert broken(result) == ["INV-011"]
    assert "to which it does not subscribe" in shortest(result).moments[-1].label.text


def asked_at_any_time(state: State, command: FailMutation) -> Accepted:
    return fail_mutation(state, command._replace(now=max(command.now, command.asked_at)))


def test_a_look_into_the_future_is_caught() -> None:
    result = explore(
        "consumer", caller="adversary", swaps=(Swap(fail_mutation, asked_at_any_time),), stop_at_first=True
    )
    assert broken(result) == ["INV-035"]


# --- a kernel that raises ----------------------------------------------------------------------------


def commit_without_publications(state: State, command: CommitConsumer) -> Accepted:
    return commit_consumer(state, command._replace(publications=(command.publications[0],)))


@pytest.mark.rule("STEP-001")
def test_a_step_that_raises_is_a_violation_like_any_other() -> None:
    result = explore("no-mutate", swaps=(Swap(commit_consumer, commit_without_publications),), stop_at_first=True)
    assert (result.verdict, broken(result)) == ("violated", ["RAISES"])
    example = shortest(result)
    assert example.violation.rows[0] == "IndexError: tuple index out of range"
    assert example.violation.rows[1].startswith("in commit_without_publications, line ")
    assert isinstance(example.moments[-1].label.command, CommitConsumer)
    assert "breaks RAISES (STEP-001): the kernel never raises" in told(result)


def deploy_under_a_run(state: State, command: Deploy) -> Accepted:
    return altered(deploy(state._replace(run=None), command), run=state.run)


def test_so_is_a_scheduler_that_raises() -> None:
    chosen = setup("consumer", features=frozenset({"redeploy"}))
    result = explore(chosen, swaps=(Swap(deploy, deploy_under_a_run),), stop_at_first=True)
    assert (result.verdict, broken(result)) == ("violated", ["RAISES"])
    example = shortest(result)
    assert example.violation.rows[0] == "Refusal: ('handler_unknown', 'file')"
    assert example.moments[-1].label.text == "asks what to do"


# --- the law, a second time --------------------------------------------------------------------------


def resume_ends_maintenance(state: State, c: Any) -> Accepted:
    return altered(resume(state, c), maintenance=None)


def test_what_no_invariant_forbids_is_held_against_the_law() -> None:
    swaps = (Swap(resume, resume_ends_maintenance),)
    assert broken(explore("no-mutate", swaps=swaps)) == []
    result = explore("no-mutate", swaps=swaps, to_law=True, stop_at_first=True)
    assert broken(result) == ["LAW"]
    rows = result.counterexamples[0].violation.rows
    assert rows[0] == "resume leads elsewhere than the law says"
    assert rows[1].startswith("maintenance: None, should be Maintenance(")


def never_finishes(state: State, now: int) -> tuple[()]:
    return ()


def test_what_should_happen_next_is_held_against_the_law() -> None:
    result = explore("no-mutate", swaps=(Swap(recover, never_finishes),), to_law=True, stop_at_first=True)
    assert [row.partition(" asks")[0] for row in result.counterexamples[0].violation.rows] == ["recovery"]


def refuses_everybody(state: State, c: Any) -> Accepted:
    raise Refusal("workflow_edge", state.status)


def test_a_refusal_that_the_law_does_not_know_is_found() -> None:
    result = explore("no-mutate", swaps=(Swap(pause, refuses_everybody),), to_law=True, stop_at_first=True)
    assert broken(result) == ["LAW"]
    assert result.counterexamples[0].violation.rows == ("pause is refused (workflow_edge), and the law allows it",)


def test_the_kernel_as_it_is_keeps_to_the_law() -> None:
    result = explore("consumer", caller="adversary", to_law=True).assert_holds()
    assert result.invariants["LAW"] == "holds"
    assert "is as the second writing says" in told(result)
