"""A variant is in place everywhere while its block lasts, and nowhere afterwards."""

import sys
from types import MappingProxyType, ModuleType

import pytest
from flow import flow

from keepkernel import Accepted, Command, Pause, Rejected, Resume, State, step
from keepkernel.kernel import boundary, events, gate, ledger, people, runs, tables
from keepkernel.kernel import step as step_module
from keepkernel.spec.variants import NotInKernel, Swap, swapped


def bindings() -> dict[tuple[str, str], int]:
    """What every name of the kernel stands for."""
    modules = {n: m for n, m in sys.modules.items() if n.startswith("keepkernel.kernel") and isinstance(m, ModuleType)}
    return {(n, name): id(value) for n, m in modules.items() for name, value in vars(m).items()}


def always_closed(state: State, now: int) -> str:
    return "in_maintenance"


def lose_nothing(record: object, now: int) -> object:
    return record


def stay(state: State, command: Command) -> Accepted:
    return runs.accept(state, "WORK-001")


def test_every_binding_is_replaced() -> None:
    assert ledger.lost is runs.lost
    with swapped(Swap(runs.lost, lose_nothing)):
        assert runs.lost is lose_nothing
        assert ledger.lost is lose_nothing


def test_the_kernel_runs_on_the_replacement() -> None:
    state = flow().deployed().state
    paused = step(state, Pause(0))
    assert isinstance(paused, Accepted)
    with swapped(Swap(people.pause, stay)):
        assert step(state, Pause(0)) == runs.accept(state, "WORK-001")
        assert step(paused.state, Resume(0)) == runs.accept(state, "WORK-001")
    assert step(state, Pause(0)) == paused


def test_a_table_can_be_replaced() -> None:
    table = MappingProxyType({**tables.WORKFLOW_STATUS, ("paused", "pause"): "paused"})
    paused = flow().deployed().do(Pause).state
    assert isinstance(step(paused, Pause(0)), Rejected)
    with swapped(Swap(tables.WORKFLOW_STATUS, table)):
        assert isinstance(step(paused, Pause(0)), Accepted)


def test_all_is_as_before_afterwards() -> None:
    before = bindings()
    with swapped(Swap(runs.lost, lose_nothing), Swap(people.pause, stay)):
        assert bindings() != before
    assert bindings() == before


def test_all_is_as_before_after_an_exception() -> None:
    before = bindings()
    with pytest.raises(ZeroDivisionError), swapped(Swap(gate.closed, always_closed), Swap(people.resume, stay)):
        1 / 0  # noqa: B018
    assert bindings() == before


def test_variants_nest() -> None:
    before = bindings()
    with swapped(Swap(gate.closed, always_closed)):
        outer = bindings()
        with swapped(Swap(people.pause, stay), Swap(people.resume, stay)):
            assert gate.closed is always_closed
            assert step_module.TRANSITIONS[Pause] is stay
            assert step_module.TRANSITIONS[Resume] is stay
        assert bindings() == outer
    assert bindings() == before


def test_a_replacement_can_build_on_what_it_replaces() -> None:
    release = events.release

    def release_and_pause(state: State) -> State:
        return release(state)._replace(status="paused")

    prepared = flow().deployed().event("m1").run_to("prepared")
    with swapped(Swap(events.release, release_and_pause)):
        after = prepared.end("crashed")
    assert (after.events, after.state.status) == ({"m1": "pending"}, "paused")


def test_what_is_not_in_the_kernel_is_refused() -> None:
    before = bindings()
    with pytest.raises(NotInKernel, match=r"lose_nothing is not in keepkernel\.kernel"), swapped(Swap(lose_nothing, 1)):
        raise AssertionError("the block must not run")
    assert bindings() == before


def test_what_is_replaced_already_is_refused_and_the_rest_restored() -> None:
    before = bindings()
    twice = (Swap(boundary.side, lambda run, record: "AFTER"), Swap(boundary.side, lambda run, record: "BEFORE"))
    with pytest.raises(NotInKernel, match="side"), swapped(*twice):
        raise AssertionError("the block must not run")
    assert bindings() == before
