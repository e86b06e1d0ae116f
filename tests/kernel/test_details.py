"""Details of refusals that random walks seldom come to."""

import pytest
from flow import FILE, START, TOOL, TOPICS

from keepkernel import (
    Begin,
    Command,
    CommitProducer,
    CreateRetry,
    CreateRun,
    Declaration,
    Deploy,
    EndRun,
    Grant,
    RecordMutation,
    Rejected,
    Resume,
    StartSession,
    State,
    new_workflow,
    step,
)
from keepkernel.kernel.ledger import record_mutation
from keepkernel.kernel.types import Run

NIGHTLY = Declaration("nightly", "producer", cron="0 3 * * *")


def after(*commands: Command, state: State | None = None) -> State:
    state = state or new_workflow("w")
    for command in commands:
        state = step(state, command).state
    return state


STARTED = after(
    Deploy(START, "v1", TOPICS, (FILE, NIGHTLY)), Resume(START), Grant(START, TOOL), StartSession(START, "s1")
)
RUNNING = after(CreateRun(START, "r1", "s1", "file"), Begin(START, "r1"), state=STARTED)
PRODUCING = after(CreateRun(START, "r1", "s1", "nightly"), Begin(START, "r1"), state=STARTED)


def with_run(state: State, **fields: object) -> State:
    assert isinstance(state.run, Run)
    return state._replace(run=state.run._replace(**fields))


PENDING = with_run(RUNNING, status="paused:transient", phase="mutated", outcome="success")
MUTATING = with_run(RUNNING, phase="mutating")
SPENT = STARTED._replace(session=STARTED.session._replace(runs=STARTED.policy.session_runs))


def recorded(state: State) -> State:
    return record_mutation(state, RecordMutation(START, "r1", TOOL, "{}", True)).state


@pytest.mark.rule("STEP-002")
@pytest.mark.parametrize(
    ("state", "command", "reason", "detail"),
    [
        (SPENT, CreateRun(START, "r1", "s1", "file"), "session_spent", "s1"),
        (PENDING, CreateRetry(START, "r2", "s1", "other"), "not_pending_retry", "other"),
        (PENDING, CreateRetry(START, "r1", "s1", "r1"), "id_in_use", "r1"),
        (PENDING._replace(handlers=()), CreateRetry(START, "r2", "s1", "r1"), "handler_removed", "file"),
        (PRODUCING, CommitProducer(START, "r1", None, (), START), "cron_time", "nightly"),
        (RUNNING, EndRun(START, "r1", "paused:approval", "", "permission", TOOL), "nothing_asked", TOOL),
        (recorded(MUTATING), EndRun(START, "r1", "paused:approval", "", "request"), "nothing_asked", TOOL),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_names_what_it_is_about(state: State, command: Command, reason: str, detail: str) -> None:
    refused = step(state, command)
    assert isinstance(refused, Rejected)
    assert (refused.reason, refused.detail) == (reason, detail)
