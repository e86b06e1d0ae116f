"""Kernels with a planted fault that no single state shows: what never ends, and what never happens, is found."""

import pytest

from keepkernel.fuzz.check import Counterexample, Result, explore
from keepkernel.fuzz.mermaid import to_mermaid
from keepkernel.fuzz.report import story
from keepkernel.fuzz.setups import setup
from keepkernel.kernel import commands as c
from keepkernel.kernel import people, runs
from keepkernel.kernel.reasons import Refusal
from keepkernel.kernel.types import Accepted, Rejected, State
from keepkernel.spec.variants import Swap, swapped


def refused(state: State, command: c.Command) -> Accepted:
    raise Refusal("phase", "planted")


def searched(name: str, planted: object) -> Result:
    return explore(setup(name, features=frozenset({"failures"})), swaps=(Swap(planted, refused),))


def broken(result: Result) -> dict[str, Counterexample]:
    assert result.verdict == "violated"
    return {example.violation.invariant: example for example in result.counterexamples}


@pytest.mark.rule("LIVE-001")
def test_a_deadlock_is_found_where_it_begins() -> None:
    """Nobody can clear an internal error, so the first one is the end."""
    found = broken(searched("no-mutate", people.clear_error))
    assert {name: example.length for name, example in found.items()} == {"LIVE-001": 6, "LIVE-002": 6}
    deadlock = found["LIVE-001"]
    assert deadlock.moments[-1].label.command == c.EndRun(
        deadlock.moments[-1].label.command.now, "r1", "failed:internal"
    )
    assert "      from here no way leads to rest" in story(deadlock)
    assert "Note over kernel: from here no way leads to rest" in to_mermaid(deadlock)


@pytest.mark.rule("LIVE-001")
def test_a_kernel_that_can_not_even_start_is_stuck_from_the_first_state() -> None:
    stuck = broken(searched("no-mutate", runs.start_session))["LIVE-001"]
    assert (stuck.length, stuck.loop) == (0, 0)
    assert next(story(stuck)) == "LIVE-001 (SCHED-002) is broken after 0 steps:"


@pytest.mark.rule("LIVE-002")
def test_a_livelock_is_found_as_a_stem_and_a_loop() -> None:
    """A retry that is always refused is asked for again and again, while a person could still give it up."""
    found = broken(searched("consumer", runs.create_retry))
    assert found.keys() == {"LIVE-002"}
    lasso = found["LIVE-002"]
    assert 0 < lasso.loop < lasso.length
    before, after = lasso.moments[lasso.loop - 1], lasso.moments[-1]
    assert (before.state, before.hand, before.world) == (after.state, after.hand, after.world)
    loop = lasso.moments[lasso.loop :]
    assert [type(moment.label.command) for moment in loop] == [c.CreateRetry]
    assert isinstance(loop[0].outcome, Rejected)


@pytest.mark.rule("LIVE-001")
@pytest.mark.rule("LIVE-002")
def test_the_kernel_as_it_is_comes_to_rest_there() -> None:
    for name in ("no-mutate", "consumer"):
        found = explore(setup(name, features=frozenset({"failures"}))).assert_holds().invariants
        assert (found["LIVE-001"], found["LIVE-002"]) == ("holds", "holds")


def test_an_invariant_that_is_never_put_to_the_test_is_found() -> None:
    with swapped(Swap(people.pause, refused)):
        result = explore("no-mutate")
    assert (result.verdict, result.missing) == ("violated", ("INV-031",))
    assert result.why == "vacuous: never put to the test: INV-031"
    with pytest.raises(AssertionError, match="vacuous"):
        result.assert_holds()
