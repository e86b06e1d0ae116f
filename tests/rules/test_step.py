"""The transition function itself. The random walks in tests/kernel show the same on thousands of states."""

import pytest
from flow import FILE, TOPICS, Flow, flow, mail

from keepkernel import (
    COMMANDS,
    REASONS,
    Accepted,
    Approve,
    CommitConsumer,
    CommitProducer,
    Deploy,
    EndRun,
    Key,
    Pause,
    Prepared,
    Publication,
    Publish,
    Reject,
    Rejected,
    Resume,
    Retired,
    SkipEvent,
    named,
    new_workflow,
    step,
)
from keepkernel.kernel.step import TRANSITIONS


@pytest.mark.rule("STEP-001")
def test_every_command_has_its_transition() -> None:
    assert TRANSITIONS.keys() == {*COMMANDS.values()}


@pytest.mark.rule("STEP-001")
def test_the_same_question_has_the_same_answer_and_changes_nothing() -> None:
    state = flow().deployed().event("m1").state
    before = hash(state)
    first, second = step(state, Pause(5)), step(state, Pause(5))
    assert (first, hash(state)) == (second, before)
    assert isinstance(first, Accepted)


@pytest.mark.rule("STEP-001")
def test_even_a_state_that_contradicts_itself_gets_an_answer() -> None:
    running = flow().deployed().event("m1").run_to("preparing")
    state, session = running.state, running.state.session
    end = EndRun(0, running.run.id, "failed:logic")
    closed = Rejected("session_unknown", "SESS-003", session.id)
    assert step(state._replace(session=None), end) == closed._replace(detail="")
    assert step(state._replace(session=session._replace(status="failed")), end) == closed
    assert step(state._replace(handlers=()), end) == Rejected("handler_unknown", "RUN-004", "file")


@pytest.mark.rule("STEP-002")
def test_a_command_is_accepted_as_a_whole_or_refused_with_a_reason() -> None:
    state = step(new_workflow("w"), Deploy(0, "v1", TOPICS, (FILE,))).state
    assert step(state, Resume(0)) == Accepted(state._replace(status="active"), (), ("WORK-001",), Retired())
    assert step(state, Pause(0)) == Rejected("workflow_edge", "WORK-001", "ready")


@pytest.mark.rule("STEP-002")
def test_every_reason_says_why_and_what_to_do() -> None:
    for reason in REASONS.values():
        assert all((reason.rule, reason.fault, reason.why, reason.remedy))


@pytest.mark.rule("STEP-003")
def test_a_command_names_the_events_that_it_needs() -> None:
    state = flow().deployed().state
    one, two = mail("m1", "m2")
    publications = (Publication(one, "title", "{}"), Publication(two, "title", "{}"))
    assert named(state, Prepared(0, "r", (one, two))) == {one, two}
    assert named(state, CommitConsumer(0, "r", None, publications)) == {one, two}
    assert named(state, CommitProducer(0, "r", None, publications)) == {one, two}
    assert named(state, Publish(0, publications[0])) == {one}
    assert named(state, SkipEvent(0, one)) == {one}
    assert named(state, Pause(0)) == named(state, Approve(0, "x")) == named(state, Reject(0, "x")) == set()
    asked = flow().deployed(mode="ask").event("m1").run_to("recorded").end("paused:approval", cause="request").state
    assert named(asked, Approve(0, "x")) == named(asked, Reject(0, "x")) == {one}
    assert named(flow().deployed().uncertain().state, Approve(0, "x")) == set()


@pytest.mark.rule("STEP-003")
def test_more_events_in_the_window_change_nothing() -> None:
    full = flow().deployed().event("m1", "m2", "m3").run_to("preparing")
    window = Flow(full.state._replace(events=full.state.events[:1]), full.now)
    wide, narrow = full.do(Prepared, mail("m1")), window.do(Prepared, mail("m1"))
    assert wide.state._replace(events=()) == narrow.state._replace(events=())
    assert wide.state.events == (*narrow.state.events, *full.state.events[1:])
    assert Key("mail", "m1") in named(full.state, full.command(Prepared, mail("m1")))
