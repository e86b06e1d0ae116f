"""Permissions: a tool is granted by name, a call may need an approval of its own."""

from hashlib import sha256

import pytest
from flow import FILE, TELL, TOOL, TOPICS, Flow, flow, mail

from keepkernel import (
    Approve,
    Deploy,
    EndRun,
    Error,
    FailMutation,
    Grant,
    Permission,
    Prepared,
    Reconnect,
    RecordMutation,
    Reject,
    Request,
    SendMutation,
    SkipEvent,
)
from keepkernel.kernel.ledger import digest

DIGEST = digest(TOOL, "{}")
NOT_ASKED = ("nothing_asked", "PERM-003")


def asked(*ids: str) -> Flow:
    """A run whose call waits for approval."""
    recorded = flow().deployed(mode="ask").event(*ids or ("m1",)).run_to("recorded")
    return recorded.end("paused:approval", cause="request", message="may I?")


@pytest.mark.rule("PERM-001")
def test_no_grant_no_call() -> None:
    deployed = flow().deployed().event("m1")
    other = deployed.run_to("mutating").do(RecordMutation, "mail.send", "{}", True)
    other.refuses("not_granted", "PERM-001", SendMutation)
    assert other.do(Grant, "mail.send").do(SendMutation).record.status == "in_flight"


@pytest.mark.rule("PERM-001")
def test_a_tool_has_one_grant() -> None:
    granted = flow().deployed().do(Grant, "mail.send", "ask").do(Grant, TOOL, "ask")
    assert granted.state.grants == (Permission("mail.send", "ask"), Permission(TOOL, "ask"))
    assert granted.do(Grant, TOOL).state.grants == (Permission("mail.send", "ask"), Permission(TOOL, "always"))


@pytest.mark.rule("PERM-002")
def test_an_approval_is_for_one_exact_call_and_its_events() -> None:
    not_approved = ("not_approved", "PERM-002")
    recorded = flow().deployed(mode="ask").event("m1", "m2").run_to("recorded").refuses(*not_approved, SendMutation)
    approved = recorded.end("paused:approval", cause="request").do(Approve, DIGEST)
    preparing = approved.run_to("preparing")
    same = preparing.do(Prepared, mail("m1", "m2")).run_to("mutating")
    assert same.do(RecordMutation, TOOL, "{}", True).do(SendMutation).record.status == "in_flight"
    same.do(RecordMutation, TOOL, "[]", True).refuses(*not_approved, SendMutation)
    for events in (mail("m1"), mail("m2", "m1")):
        preparing.do(Prepared, events).run_to("recorded").refuses(*not_approved, SendMutation)


@pytest.mark.rule("PERM-002")
def test_the_digest_names_tool_and_parameters() -> None:
    assert digest("a.b", '{"ü":1}') == sha256('a.b\n{"ü":1}'.encode()).hexdigest()
    assert len({digest("a", "1"), digest("a", "2"), digest("b", "1")}) == 3
    recorded = flow().deployed().event("m1").run_to("recorded")
    assert recorded.record.digest == DIGEST
    assert recorded.record.key not in recorded.record.digest
    assert len(digest("a", "\ud800")) == 64


@pytest.mark.rule("PERM-003")
def test_a_request_is_made_for_a_call_that_waits() -> None:
    waiting = asked("m1", "m2")
    request = Request(TOOL, DIGEST, mail("m1", "m2"))
    run = waiting.retired.run
    assert waiting.error == Error("approval", "request", run.id, "may I?", "", request)
    assert (waiting.events["m1"], waiting.retired.mutation.resolved_by) == ("pending", "never_sent")
    assert waiting.state.approvals == ()


@pytest.mark.rule("PERM-003")
def test_nothing_is_asked_that_needs_no_answer() -> None:
    request = ("paused:approval", "", "request")
    flow().deployed(mode="ask").event("m1").run_to("mutating").refuses(*NOT_ASKED, EndRun, *request)
    flow().deployed().event("m1").run_to("recorded").refuses(*NOT_ASKED, EndRun, *request)
    approved = asked().do(Approve, DIGEST).run_to("recorded")
    approved.refuses(*NOT_ASKED, EndRun, *request)
    sent = approved.do(SendMutation)
    refused = sent.do(FailMutation, "call")
    refused.refuses(*NOT_ASKED, EndRun, *request)
    preparing = flow().deployed().run_to("preparing")
    preparing.refuses(*NOT_ASKED, EndRun, "paused:approval", "", "permission")
    preparing.refuses(*NOT_ASKED, EndRun, "paused:approval", "", "permission", TOOL)
    preparing.do(EndRun, "paused:approval", "", "permission", "mail.send")


@pytest.mark.rule("PERM-004")
def test_a_request_is_answered_once_by_its_digest() -> None:
    waiting = asked()
    for answer in (Approve, Reject):
        waiting.refuses("no_request", "PERM-004", answer, "another digest")
        flow().deployed().refuses("no_request", "PERM-004", answer, DIGEST)
        answered = waiting.do(answer, DIGEST)
        assert answered.error is None
        answered.refuses("no_request", "PERM-004", answer, DIGEST)
    assert waiting.do(Approve, DIGEST).state.approvals == (Request(TOOL, DIGEST, mail("m1")),)
    assert waiting.do(Reject, DIGEST).state.approvals == ()


@pytest.mark.rule("PERM-004")
def test_an_error_without_a_request_has_no_answer() -> None:
    auth = flow().deployed().run_to("preparing").end("paused:approval", cause="auth")
    auth.refuses("no_request", "PERM-004", Approve, DIGEST).refuses("no_request", "PERM-004", Reject, DIGEST)


@pytest.mark.rule("PERM-005")
def test_an_approval_is_used_up_by_its_call() -> None:
    approved = asked().do(Approve, DIGEST)
    sent = approved.run_to("in_flight")
    assert sent.state.approvals == ()
    again = sent.do(FailMutation, "call").end("paused:transient").later(10_000).run_to("recorded")
    again.refuses("not_approved", "PERM-002", SendMutation)


@pytest.mark.rule("PERM-005")
def test_sending_one_call_leaves_the_approvals_of_others() -> None:
    approved = asked("m1").do(Approve, DIGEST)
    both = approved.event("m2").run_to("recorded", "m2").end("paused:approval", cause="request").do(Approve, DIGEST)
    assert [a.events for a in both.state.approvals] == [mail("m1"), mail("m2")]
    assert [a.events for a in both.run_to("in_flight", "m1").state.approvals] == [mail("m2")]


@pytest.mark.rule("PERM-005")
def test_an_approval_dies_with_the_first_of_its_events() -> None:
    approved = asked("m1", "m2").do(Approve, DIGEST)
    assert approved.do(SkipEvent, *mail("m2")).state.approvals == ()
    assert approved.event("m3").do(SkipEvent, *mail("m3")).state.approvals == approved.state.approvals
    always = approved.do(Grant, TOOL)
    assert always.run_to("committed", "m1").state.approvals == ()
    kept = approved.event("m3").do(Grant, TOOL).run_to("committed", "m3")
    assert kept.state.approvals == approved.state.approvals
    skipped_before = asked("m1", "m2").do(SkipEvent, *mail("m1")).do(Approve, DIGEST)
    assert (skipped_before.state.approvals, skipped_before.error) == ((), None)


@pytest.mark.rule("PERM-005")
def test_a_new_approval_replaces_those_that_share_an_event() -> None:
    approved = asked("m1", "m2").do(Approve, DIGEST)
    one = approved.run_to("recorded", "m1").end("paused:approval", cause="request").do(Approve, DIGEST)
    assert [a.events for a in one.state.approvals] == [mail("m1")]
    other = one.run_to("recorded", "m2").end("paused:approval", cause="request").do(Approve, DIGEST)
    assert [a.events for a in other.state.approvals] == [mail("m1"), mail("m2")]


@pytest.mark.rule("PERM-006")
def test_a_rejection_skips_the_inputs_that_are_still_pending() -> None:
    rejected = asked("m1", "m2").event("m3").do(Reject, DIGEST)
    assert rejected.events == {"m1": "skipped", "m2": "skipped", "m3": "pending"}
    assert rejected.state.events[0].owner == ""
    stale = asked("m1", "m2")
    taken = stale.state.events[0]._replace(status="consumed", owner="someone")
    changed = Flow(stale.state._replace(events=(taken, *stale.state.events[1:])), stale.now).do(Reject, DIGEST)
    assert (changed.state.events[0], changed.events["m2"]) == (taken, "skipped")


@pytest.mark.rule("PERM-007")
def test_a_grant_clears_the_error_that_names_its_tool() -> None:
    preparing = flow().deployed().run_to("preparing")
    missing = preparing.end("paused:approval", cause="permission", tool="mail.send")
    assert missing.do(Grant, "mail.read").error == missing.error
    for mode in ("always", "ask"):
        assert missing.do(Grant, "mail.send", mode).error is None
    auth = preparing.end("paused:approval", cause="auth", tool="mail.send")
    assert auth.do(Grant, "mail.send").error == auth.error
    assert asked().do(Grant, TOOL).error == asked().error
    internal = preparing.end("failed:internal")
    assert internal.do(Grant, "mail.send").error == internal.error


@pytest.mark.rule("PERM-008")
def test_reconnecting_answers_an_auth_error_and_no_other() -> None:
    preparing = flow().deployed().run_to("preparing")
    assert preparing.end("paused:approval", cause="auth", tool="mail.send").do(Reconnect).error is None
    no_error = ("no_error", "WORK-004")
    flow().deployed().refuses(*no_error, Reconnect)
    asked().refuses(*no_error, Reconnect)
    preparing.end("failed:internal").refuses(*no_error, Reconnect)
    preparing.end("paused:approval", cause="permission", tool="mail.send").refuses(*no_error, Reconnect)
    flow().deployed().uncertain().do(Deploy, "v2", TOPICS, (FILE, TELL)).refuses(*no_error, Reconnect)
