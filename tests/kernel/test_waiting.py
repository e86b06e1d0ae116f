"""Steps that may share a commit with a later one."""

from collections.abc import Iterator

import pytest
from walks import Tried

from keepkernel import Accepted, CommitConsumer, CreateRetry, EndRun, Prepared, step
from keepkernel.kernel.respond import MAY_WAIT, may_wait, must_be_durable


def accepted(tries: list[Tried]) -> Iterator[tuple[Tried, Accepted]]:
    for tried in tries:
        outcome = step(tried.state, tried.command)
        if isinstance(outcome, Accepted):
            yield tried, outcome


@pytest.mark.rule("HOST-011")
def test_a_step_that_may_wait_asks_for_nothing_but_a_handler(tries: list[Tried]) -> None:
    waiting = [(t.command, outcome) for t, outcome in accepted(tries) if may_wait(t.command)]
    assert {type(command) for command, _ in waiting} == MAY_WAIT
    assert not [effect for _, outcome in waiting for effect in outcome.effects if must_be_durable(effect)]


@pytest.mark.rule("HOST-011")
def test_what_prepare_reads_is_not_touched_by_steps_that_wait_before_it(tries: list[Tried]) -> None:
    """Those that touch events belong to a run past its prepare, and the end of that run may not wait."""
    touching = {type(t.command) for t, outcome in accepted(tries) if outcome.state.events != t.state.events}
    assert touching & MAY_WAIT == {Prepared, CreateRetry}
    assert not any(may_wait(command) for command in (EndRun(0, "r", "crashed"), CommitConsumer(0, "r")))
