"""The workflow: what the user wants, what the system found, what is deployed."""

import pytest
from flow import FILE, POLL, TELL, TOPICS, flow

from keepkernel import (
    Abandon,
    ApplyMutation,
    Approve,
    AssertApplied,
    Begin,
    BlockWorkflow,
    ClearError,
    CommitConsumer,
    CommitProducer,
    Declaration,
    Deploy,
    EnterMaintenance,
    Error,
    ExitMaintenance,
    FailMutation,
    Grant,
    LoseTrack,
    Maintenance,
    Pause,
    Prepared,
    Reconnect,
    Reject,
    Rejected,
    Repair,
    Resume,
    Retry,
    new_workflow,
    step,
)
from keepkernel.kernel.tables import WORKFLOW_STATUS


def blocked_by(cause: str):
    if cause == "host":
        return flow().deployed().do(BlockWorkflow, "stop")
    if cause == "transient":
        return flow(transient_retries=0).deployed().run_to("preparing").end("paused:transient")
    return flow(logic_failures=1).deployed().run_to("preparing").end("failed:logic", message="oops")


@pytest.mark.rule("WORK-001")
def test_the_status_of_a_workflow_is_moved_by_the_user_alone() -> None:
    assert {(a, b) for (a, _), b in WORKFLOW_STATUS.items()} == {
        ("draft", "ready"),
        ("ready", "active"),
        ("paused", "active"),
        ("active", "paused"),
    }
    draft = flow().refuses("workflow_edge", "WORK-001", Pause).refuses("workflow_edge", "WORK-001", Resume)
    assert (draft.state, draft.state.version) == (new_workflow("w"), "")
    ready = draft.do(Deploy, "v1", TOPICS, (FILE,)).refuses("workflow_edge", "WORK-001", Pause)
    active = ready.do(Resume).refuses("workflow_edge", "WORK-001", Resume)
    paused = active.do(Pause).refuses("workflow_edge", "WORK-001", Pause)
    again = paused.do(Resume)
    deployed_again = [f.do(Deploy, "v2", TOPICS, (FILE,)).state.status for f in (ready, active, paused)]
    assert [f.state.status for f in (draft, ready, active, paused, again)] == [
        "draft",
        "ready",
        "active",
        "paused",
        "active",
    ]
    assert deployed_again == ["ready", "active", "paused"]


@pytest.mark.rule("WORK-001")
def test_pause_and_resume_change_the_status_alone() -> None:
    running = flow().deployed().event("m1").run_to("prepared")
    paused = running.do(Pause)
    assert paused.state == running.state._replace(status="paused")
    assert paused.run_to("committed").events["m1"] == "consumed"
    uncertain = flow().deployed().uncertain()
    assert uncertain.do(Pause).do(Resume).state == uncertain.state


@pytest.mark.rule("WORK-002")
def test_an_uncertain_error_is_cleared_only_by_its_resolution() -> None:
    over = flow().deployed().uncertain().landed()
    for untouched in (over.do(Grant, "mail.send"), over.do(Retry), over.do(Deploy, "v2", TOPICS, (FILE,))):
        assert untouched.error == over.error
    over.refuses("no_error", "WORK-004", Reconnect).refuses("no_error", "WORK-004", ClearError)
    over.refuses("no_request", "PERM-004", Approve, "").refuses("no_request", "PERM-004", Reject, "")
    assert over.do(ApplyMutation, "reconcile").error is None
    assert over.do(FailMutation, "reconcile").error is None
    assert flow().deployed().uncertain(reconcilable=False).do(AssertApplied).error is None


@pytest.mark.rule("WORK-002")
def test_a_resolution_clears_no_error_but_its_own() -> None:
    over = flow().deployed().uncertain().landed()
    others = (over.error._replace(run="another"), over.error._replace(kind="internal"))
    for error in others:
        strange = type(over)(over.state._replace(error=error), over.now)
        assert strange.do(ApplyMutation, "reconcile").error == error


@pytest.mark.rule("WORK-003")
def test_a_block_never_overwrites_an_error() -> None:
    blocked = flow().deployed().do(BlockWorkflow, "the disk is full")
    assert blocked.error == Error("blocked", "host", "", "the disk is full", "", None)
    blocked.refuses("error_stands", "SCHED-001", BlockWorkflow, "again")
    flow().deployed().uncertain().refuses("error_stands", "SCHED-001", BlockWorkflow, "again")
    flow().deployed().create().refuses("run_active", "SCHED-001", BlockWorkflow, "now")


@pytest.mark.rule("WORK-003")
def test_an_error_that_an_end_raises_says_more_than_the_block_that_follows() -> None:
    late = flow(transient_retries=0).deployed().event("m1").run_to("in_flight").do(ApplyMutation, "call")
    assert late.end("paused:transient").error.cause == "transient"
    lost = flow(transient_retries=0).deployed().event("m1").run_to("in_flight")
    inline = lost.do(LoseTrack).landed().do(FailMutation, "inline")
    ended = inline.end("failed:internal", message="a bug")
    assert (ended.error.kind, ended.row().transient_failures) == ("internal", 1)


@pytest.mark.rule("WORK-004")
def test_clear_error_clears_what_is_internal_or_blocked_but_not_by_logic() -> None:
    internal = flow().deployed().run_to("preparing").end("failed:internal")
    for f in (internal, blocked_by("host"), blocked_by("transient")):
        cleared = f.do(ClearError)
        assert cleared.state == f.state._replace(error=None)
    blocked_by("logic").refuses("logic_block", "WORK-004", ClearError)
    flow().deployed().refuses("no_error", "WORK-004", ClearError)
    auth = flow().deployed().run_to("preparing").end("paused:approval", cause="auth")
    auth.refuses("no_error", "WORK-004", ClearError)


@pytest.mark.rule("WORK-005")
def test_maintenance_of_a_failed_run_asks_for_a_repair() -> None:
    failed = flow().deployed().run_to("preparing").end("failed:logic", message="x is undefined")
    run = failed.retired.run.id
    assert failed.state.maintenance == Maintenance(run, "file", "x is undefined")
    assert failed.effects == (Repair(run, "file", "x is undefined"),)
    assert blocked_by("logic").effects == ()
    assert failed.do(ExitMaintenance).state.maintenance is None
    flow().deployed().refuses("not_in_maintenance", "WORK-005", ExitMaintenance)


@pytest.mark.rule("WORK-005")
def test_maintenance_by_hand_needs_rest_and_certainty() -> None:
    by_hand = flow().deployed().do(EnterMaintenance)
    assert (by_hand.state.maintenance, by_hand.effects) == (Maintenance("", "", ""), ())
    flow().deployed().create().refuses("run_active", "SCHED-001", EnterMaintenance)
    uncertain = flow().deployed().uncertain()
    uncertain.refuses("mutation_unresolved", "SCHED-001", EnterMaintenance)
    failed = flow().deployed().run_to("preparing").end("failed:logic", message="oops")
    assert failed.do(EnterMaintenance).state.maintenance == failed.state.maintenance
    after = flow().deployed().after()
    assert after.do(EnterMaintenance).do(ExitMaintenance).state == after.state


@pytest.mark.rule("WORK-006")
@pytest.mark.parametrize(
    ("why", "version", "topics", "handlers"),
    [
        ("a version needs a name", "", TOPICS, (FILE,)),
        ("a topic or handler has no name", "v1", ("mail", ""), (FILE,)),
        ("a topic or handler has no name", "v1", TOPICS, (FILE._replace(name=""),)),
        ("a topic stands twice", "v1", ("mail", "mail"), (FILE,)),
        ("a handler stands twice", "v1", TOPICS, (FILE, FILE._replace(subscribes=("done",)))),
        ("a topic has two consumers", "v1", TOPICS, (FILE, TELL._replace(subscribes=("mail",)))),
        ("a topic has two consumers", "v1", TOPICS, (FILE._replace(subscribes=("mail", "mail")),)),
        ("a subscribed topic is not declared", "v1", ("done",), (FILE,)),
        ("file subscribes to nothing", "v1", TOPICS, (FILE._replace(subscribes=()),)),
        ("file is a consumer with a schedule", "v1", TOPICS, (FILE._replace(interval_ms=1),)),
        ("file is a consumer with a schedule", "v1", TOPICS, (FILE._replace(cron="* * * * *"),)),
        ("poll is a producer that consumes", "v1", TOPICS, (POLL._replace(subscribes=("mail",)),)),
        ("poll is a producer that consumes", "v1", TOPICS, (POLL._replace(has_mutate=True),)),
        ("poll has a negative interval", "v1", TOPICS, (POLL._replace(interval_ms=-1),)),
        ("poll has two schedules", "v1", TOPICS, (POLL._replace(cron="* * * * *"),)),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(why, version, topics, handlers) -> None:
    assert step(flow().state, Deploy(0, version, topics, handlers)) == Rejected("bad_declaration", "WORK-006", why)


@pytest.mark.rule("WORK-006")
def test_a_declaration_that_makes_sense_is_deployed_when_no_run_is_active() -> None:
    handlers = (FILE, TELL, POLL, Declaration("nightly", "producer", cron="0 3 * * *"), Declaration("once", "producer"))
    deployed = flow().do(Deploy, "v1", TOPICS, handlers)
    assert (deployed.state.version, deployed.state.topics) == ("v1", TOPICS)
    assert tuple(h.declared for h in deployed.state.handlers) == handlers
    flow().do(Deploy, "v1", (), ())
    flow().deployed().create().refuses("run_active", "SCHED-001", Deploy, "v2", TOPICS, handlers)


@pytest.mark.rule("WORK-007")
def test_a_handler_keeps_what_it_earned_through_a_deploy() -> None:
    worked = flow().deployed().event("m1").run_to("emitting").do(CommitConsumer, "1")
    failed = worked.event("m2").run_to("preparing").do(Prepared, wake_at=worked.now)
    failed = failed.end("paused:transient")
    before = failed.row()
    assert (before.state, before.transient_failures, before.wake_at) == ("1", 1, failed.now + 30_000)
    changed = FILE._replace(subscribes=("mail", "done"))
    after = failed.do(Deploy, "v2", TOPICS, (changed,))
    assert after.row() == before._replace(declared=changed, dirty=True)
    assert [h.declared.name for h in after.state.handlers] == ["file"]
    replaced = failed.do(Deploy, "v2", TOPICS, (Declaration("file", "producer"),)).row()
    assert (replaced.state, replaced.transient_failures, replaced.wake_at) == ("", 0, 0)
    assert (replaced.dirty, replaced.due_at) == (False, failed.now)


@pytest.mark.rule("WORK-007")
def test_a_deploy_wakes_consumers_and_producers_with_a_new_schedule() -> None:
    committed = flow().deployed().create("poll").do(Begin).do(CommitProducer).run_to("committed").later(1_000)
    due_at = committed.row("poll").due_at
    assert (committed.row().dirty, due_at > committed.now) == (False, True)
    same = committed.do(Deploy, "v2", TOPICS, (FILE, POLL))
    assert (same.row().dirty, same.row().due_at, same.row("poll").dirty) == (True, -1, False)
    assert same.row("poll").due_at == due_at
    for changed in (POLL._replace(interval_ms=1), POLL._replace(interval_ms=0, cron="* * * * *")):
        assert committed.do(Deploy, "v2", TOPICS, (changed,)).row("poll").due_at == committed.now


@pytest.mark.rule("WORK-007")
def test_a_deploy_ends_maintenance_and_a_logic_block_and_no_other_error() -> None:
    blocked = blocked_by("logic")
    fixed = blocked.do(Deploy, "v2", TOPICS, (FILE,))
    assert (fixed.error, fixed.state.maintenance, fixed.row().logic_failures) == (None, None, 1)
    for f in (blocked_by("host"), blocked_by("transient"), flow().deployed().uncertain()):
        assert f.do(Deploy, "v2", TOPICS, (FILE,)).error == f.error
    assert flow().deployed().after().do(Deploy, "v2", TOPICS, (FILE,)).do(Abandon).events["m1"] == "consumed"
