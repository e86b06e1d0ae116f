"""The ledger record of a run: the one change outside that it attempts."""

import pytest
from flow import TOOL, flow

from keepkernel import (
    ApplyMutation,
    AssertApplied,
    CommitConsumer,
    DidntHappen,
    Exhaust,
    FailMutation,
    LoseTrack,
    Mutation,
    Policy,
    Reconcile,
    ReconcileRetry,
    RecordMutation,
    Send,
    SendMutation,
    SkipMutation,
    TryAgain,
)
from keepkernel.kernel.ledger import digest, idempotency_key
from keepkernel.kernel.tables import MUTATION_STATUS

EDGE = ("mutation_edge", "MUT-001")
AUTHOR = ("author", "MUT-008")
CALL = {"tool": TOOL, "params": "{}", "reconcilable": True}


def spent(attempts: int = 5):
    """A record that needs reconciling, of a run that is over, after this many attempts."""
    f = flow().deployed().uncertain()
    for _ in range(attempts):
        f = f.do(ReconcileRetry, "reconcile")
    return f


def indeterminate():
    return flow().deployed().uncertain(reconcilable=False)


@pytest.mark.rule("MUT-001")
def test_the_edges_of_the_ledger() -> None:
    assert {(a, b) for (a, _), b in MUTATION_STATUS.items()} == {
        ("pending", "in_flight"),
        ("pending", "failed"),
        ("in_flight", "applied"),
        ("in_flight", "failed"),
        ("in_flight", "needs_reconcile"),
        ("in_flight", "indeterminate"),
        ("needs_reconcile", "applied"),
        ("needs_reconcile", "failed"),
        ("needs_reconcile", "needs_reconcile"),
        ("needs_reconcile", "indeterminate"),
        ("indeterminate", "needs_reconcile"),
        ("indeterminate", "failed"),
        ("indeterminate", "applied"),
    }


@pytest.mark.rule("MUT-001")
def test_a_record_refuses_what_is_not_an_edge() -> None:
    recorded = flow().deployed().event("m1").run_to("recorded")
    recorded.refuses(*EDGE, ApplyMutation, "call").refuses(*EDGE, FailMutation, "call").refuses(*EDGE, LoseTrack)
    sent = recorded.do(SendMutation).refuses(*EDGE, SendMutation)
    sent.refuses(*EDGE, ApplyMutation, "inline").refuses(*EDGE, FailMutation, "inline")
    sent.refuses(*EDGE, ReconcileRetry, "inline")
    lost = sent.do(LoseTrack).refuses(*EDGE, LoseTrack)
    lost.refuses(*EDGE, ApplyMutation, "call").refuses(*EDGE, FailMutation, "call")
    over = lost.end("crashed").landed()
    for command in (TryAgain, DidntHappen, SkipMutation, AssertApplied):
        over.refuses(*EDGE, command)
    unknown = indeterminate().landed()
    for command in (ApplyMutation, FailMutation, ReconcileRetry):
        unknown.refuses(*EDGE, command, "reconcile")
    unknown.refuses(*EDGE, Exhaust)


@pytest.mark.rule("MUT-001")
def test_applied_is_final() -> None:
    applied = flow().deployed().after()
    for command in (TryAgain, DidntHappen, SkipMutation, AssertApplied, Exhaust):
        applied.refuses(*EDGE, command)
    for command in (ApplyMutation, FailMutation, ReconcileRetry):
        applied.refuses(*EDGE, command, "reconcile")


@pytest.mark.rule("MUT-002")
def test_a_record_is_made_and_sent_by_an_active_run_in_mutating() -> None:
    mutating = flow().deployed().event("m1").run_to("mutating")
    mutating.refuses("record_missing", "MUT-002", SendMutation)
    recorded = mutating.do(RecordMutation, **CALL)
    assert (recorded.record.run, recorded.record.status) == (recorded.run.id, "pending")
    assert recorded.do(SendMutation).record.status == "in_flight"
    for station in ("pending", "preparing", "prepared", "mutated", "emitting"):
        here = flow().deployed().event("m1").run_to(station)
        here.refuses("phase", "PHASE-001", RecordMutation, **CALL).refuses("phase", "PHASE-001", SendMutation)
    producer = flow().deployed().create("poll")
    producer.refuses("wrong_kind", "RUN-004", RecordMutation, **CALL).refuses("wrong_kind", "RUN-004", SendMutation)
    producer.refuses("wrong_kind", "RUN-004", LoseTrack)
    over = flow().deployed().after()
    over.refuses("run_not_active", "RUN-002", RecordMutation, **CALL)
    over.refuses("run_not_active", "RUN-002", SendMutation)


@pytest.mark.rule("MUT-002")
@pytest.mark.parametrize("command", [ApplyMutation, FailMutation, ReconcileRetry])
def test_without_a_record_there_is_nothing_to_report(command) -> None:
    by = "inline" if command is ReconcileRetry else "call"
    flow().deployed().event("m1").run_to("mutating").refuses("record_missing", "MUT-002", command, by)


@pytest.mark.rule("MUT-003")
def test_a_run_has_one_record_and_a_retry_has_none() -> None:
    recorded = flow().deployed().event("m1").run_to("recorded")
    recorded.refuses("record_exists", "MUT-003", RecordMutation, **CALL)
    retry = flow().deployed().after().later(10_000).retry()
    assert retry.record is None
    retry.refuses("phase", "PHASE-001", RecordMutation, **CALL)


@pytest.mark.rule("MUT-004")
def test_a_record_knows_until_when_it_may_be_sent_and_may_land() -> None:
    mutating = flow().deployed().event("m1").run_to("mutating")
    record = mutating.do(RecordMutation, **CALL).record
    assert record == Mutation(
        run=mutating.run.id,
        status="pending",
        tool=TOOL,
        params="{}",
        digest=digest(TOOL, "{}"),
        key=f"w/{mutating.run.id}",
        reconcilable=True,
        send_by=mutating.now + 30_000,
        may_land_until=mutating.now + 95_000,
        attempts=0,
        next_attempt_at=0,
        resolved_by="",
    )
    slow = mutating.do(RecordMutation, **CALL, deadline_ms=1).record
    assert slow.may_land_until == slow.send_by + 1 + Policy().clock_skew_ms
    mutating.refuses("bad_deadline", "MUT-004", RecordMutation, **CALL, deadline_ms=0)
    mutating.refuses("bad_deadline", "MUT-004", RecordMutation, **CALL, deadline_ms=-1)


@pytest.mark.rule("MUT-005")
def test_nothing_is_sent_after_send_by() -> None:
    recorded = flow().deployed().event("m1").run_to("recorded")
    last_moment = recorded.at(recorded.record.send_by)
    sent = last_moment.do(SendMutation)
    assert sent.effects == (Send(sent.run.id, TOOL, "{}", sent.record.key, sent.record.send_by),)
    too_late = last_moment.later(1).refuses("send_by_passed", "MUT-005", SendMutation)
    assert too_late.end("paused:transient").events["m1"] == "pending"


@pytest.mark.rule("MUT-006")
def test_a_record_that_was_never_sent_fails_with_its_run_and_in_no_other_way() -> None:
    recorded = flow().deployed().event("m1").run_to("recorded")
    recorded.refuses(*EDGE, FailMutation, "call")
    ended = recorded.end("failed:logic")
    assert (ended.record, ended.events["m1"]) == (None, "pending")
    assert (ended.retired.mutation.status, ended.retired.mutation.resolved_by) == ("failed", "never_sent")
    assert ended.retired.run.outcome == ""
    refused = flow().deployed().event("m1").run_to("in_flight").do(FailMutation, "call").end("failed:logic")
    assert refused.retired.mutation.resolved_by == "call"


@pytest.mark.rule("MUT-007")
def test_a_lost_call_goes_to_reconciliation_or_to_a_person() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight").later(7)
    lost = sent.do(LoseTrack)
    record = lost.record
    assert (record.status, record.attempts, record.next_attempt_at) == ("needs_reconcile", 0, sent.now)
    assert lost.effects == (Reconcile(lost.run.id, TOOL, "{}", record.key, "inline", lost.now),)
    hopeless = flow().deployed().event("m1").run_to("in_flight", reconcilable=False).do(LoseTrack)
    assert (hopeless.record.status, hopeless.effects) == ("indeterminate", ())
    crashed = sent.end("crashed").record
    assert (crashed.status, crashed.attempts, crashed.next_attempt_at) == ("needs_reconcile", 0, sent.now)
    assert indeterminate().record.status == "indeterminate"
    sent.do(ApplyMutation, "call").refuses(*EDGE, LoseTrack)


@pytest.mark.rule("MUT-008")
def test_the_call_and_its_inline_reconcile_speak_only_while_the_run_is_active() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    sent.refuses(*AUTHOR, ApplyMutation, "reconcile").refuses(*AUTHOR, FailMutation, "reconcile")
    assert sent.do(ApplyMutation, "call").record.resolved_by == "call"
    assert sent.do(FailMutation, "call").record.resolved_by == "call"
    lost = sent.do(LoseTrack).landed().refuses(*AUTHOR, ReconcileRetry, "reconcile").refuses(*AUTHOR, Exhaust)
    assert lost.do(ApplyMutation, "inline").record.resolved_by == "inline"
    assert lost.do(FailMutation, "inline").record.resolved_by == "inline"
    assert lost.do(ReconcileRetry, "inline").record.attempts == 1


@pytest.mark.rule("MUT-008")
def test_people_and_the_background_speak_only_when_the_run_is_over() -> None:
    over = flow().deployed().uncertain().landed()
    for by in ("call", "inline"):
        over.refuses(*AUTHOR, ApplyMutation, by).refuses(*AUTHOR, FailMutation, by)
    over.refuses(*AUTHOR, ReconcileRetry, "inline")
    assert over.do(ApplyMutation, "reconcile").record.resolved_by == "reconcile"
    active = flow().deployed().event("m1").run_to("in_flight", reconcilable=False).do(LoseTrack).landed()
    for command in (TryAgain, DidntHappen, SkipMutation, AssertApplied):
        active.refuses(*AUTHOR, command)


@pytest.mark.rule("MUT-009")
def test_nobody_knows_that_a_call_failed_while_it_may_still_land() -> None:
    early = ("too_early", "MUT-009")
    lost = flow().deployed().event("m1").run_to("in_flight").do(LoseTrack)
    over = lost.end("paused:reconciliation")
    for here, by in ((lost, "inline"), (over, "reconcile")):
        here.landed().later(-1).refuses(*early, FailMutation, by)
        here.landed().refuses(*early, FailMutation, by, asked_at=here.record.may_land_until - 1)
        here.landed().refuses("asked_later", "MUT-009", FailMutation, by, asked_at=here.record.may_land_until + 1)
        assert here.landed().do(FailMutation, by).events["m1"] == "pending"
        assert here.do(FailMutation, by, voided=True).events["m1"] == "pending"
    unknown = indeterminate()
    unknown.landed().later(-1).refuses(*early, DidntHappen)
    assert unknown.landed().do(DidntHappen).events["m1"] == "pending"


@pytest.mark.rule("MUT-009")
def test_the_targets_own_refusal_and_a_skip_need_not_wait() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    assert sent.do(FailMutation, "call").record.status == "failed"
    assert indeterminate().do(SkipMutation).record.status == "failed"


@pytest.mark.rule("MUT-010")
def test_a_resolution_moves_ledger_outcome_and_phase_together() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    assert (sent.run.phase, sent.run.outcome) == ("mutating", "")
    applied = sent.do(ApplyMutation, "call", '"row 7"')
    assert (applied.record.status, applied.run.phase, applied.run.outcome) == ("applied", "mutated", "success")
    assert (applied.run.result, applied.run.status, applied.events["m1"]) == ('"row 7"', "active", "reserved")
    failed = sent.do(FailMutation, "call")
    assert (failed.record.status, failed.run.phase, failed.run.outcome) == ("failed", "mutated", "failure")
    assert (failed.run.result, failed.run.status, failed.events["m1"]) == ("", "active", "pending")


@pytest.mark.rule("MUT-010")
def test_a_late_failure_lets_the_run_leave_and_a_late_success_makes_it_the_pending_retry() -> None:
    over = flow().deployed().uncertain().landed()
    failed = over.do(FailMutation, "reconcile")
    assert (failed.run, failed.record, failed.error) == (None, None, None)
    assert (failed.retired.run.outcome, failed.retired.run.phase) == ("failure", "mutated")
    assert (failed.retired.mutation.status, failed.retired.mutation.resolved_by) == ("failed", "reconcile")
    assert failed.row().dirty
    denied = indeterminate().landed().do(DidntHappen)
    assert (denied.run, denied.record, denied.error, denied.row().dirty) == (None, None, None, True)
    assert (denied.retired.mutation.status, denied.retired.mutation.resolved_by) == ("failed", "user_assert_failed")
    applied = over.do(ApplyMutation, "reconcile", '"found"')
    assert (applied.run.status, applied.run.outcome) == ("paused:reconciliation", "success")
    assert (applied.run.result, applied.error, applied.events["m1"]) == ('"found"', None, "reserved")


@pytest.mark.rule("MUT-011")
def test_a_reconcile_that_can_not_tell_is_repeated_with_backoff_up_to_the_limit() -> None:
    waits = []
    for attempts in range(1, 6):
        f = spent(attempts)
        assert (f.record.status, f.record.attempts) == ("needs_reconcile", attempts)
        waits.append(f.record.next_attempt_at - f.now)
    assert waits == [10_000, 20_000, 40_000, 80_000, 160_000]
    spent(5).refuses("attempts_spent", "MUT-011", ReconcileRetry, "reconcile")


@pytest.mark.rule("MUT-011")
def test_the_reconcile_backoff_has_a_limit() -> None:
    over = flow(reconcile_base_ms=30, reconcile_max_ms=50).deployed().uncertain()
    once = over.do(ReconcileRetry, "reconcile")
    assert [f.record.next_attempt_at - f.now for f in (once, once.do(ReconcileRetry, "reconcile"))] == [30, 50]


@pytest.mark.rule("MUT-011")
def test_an_answer_that_came_too_early_costs_no_attempt() -> None:
    over = spent(1)
    early = over.landed().later(-1).do(ReconcileRetry, "reconcile", early=True)
    assert (early.record.attempts, early.record.next_attempt_at) == (1, over.record.may_land_until)
    over.landed().refuses("not_early", "MUT-011", ReconcileRetry, "reconcile", early=True)
    inline = flow().deployed().event("m1").run_to("in_flight").do(LoseTrack).do(ReconcileRetry, "inline", early=True)
    assert (inline.record.attempts, inline.record.status) == (0, "needs_reconcile")


@pytest.mark.rule("MUT-012")
def test_reconciliation_is_given_up_only_at_the_limit_or_without_a_method() -> None:
    spent(4).refuses("attempts_left", "MUT-012", Exhaust)
    exhausted = spent(5).do(Exhaust)
    assert (exhausted.record.status, exhausted.record.reconcilable) == ("indeterminate", True)
    no_method = spent(0).do(Exhaust, no_method=True)
    assert (no_method.record.status, no_method.record.reconcilable) == ("indeterminate", False)
    for given_up in (exhausted, no_method):
        assert (given_up.error.kind, given_up.events["m1"]) == ("uncertain", "reserved")


@pytest.mark.rule("MUT-013")
def test_a_person_may_try_again_only_with_a_reconcile_method() -> None:
    again = spent(5).do(Exhaust).later(99).do(TryAgain)
    assert (again.record.status, again.record.attempts) == ("needs_reconcile", 0)
    assert again.record.next_attempt_at == again.now
    assert again.error.kind == "uncertain"
    indeterminate().refuses("no_reconcile", "MUT-013", TryAgain)
    spent(0).do(Exhaust, no_method=True).refuses("no_reconcile", "MUT-013", TryAgain)


@pytest.mark.rule("MUT-014")
def test_the_idempotency_key_names_one_runs_call_and_no_other() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    assert sent.record.key == sent.effects[0].key == f"w/{sent.run.id}"
    lost = sent.do(LoseTrack)
    assert lost.effects[0].key == sent.record.key
    fresh = lost.end("crashed").landed().do(FailMutation, "reconcile").later(10_000).run_to("recorded")
    assert fresh.record.key != sent.record.key
    assert idempotency_key("a/b%", "c") == "a%2Fb%25/c"
    assert idempotency_key("a", "b/c") == "a/b/c"


@pytest.mark.rule("MUT-015")
def test_a_skip_gives_the_inputs_up_and_next_still_runs() -> None:
    skipped = indeterminate().do(SkipMutation)
    assert (skipped.record.status, skipped.record.resolved_by) == ("failed", "user_skip")
    assert (skipped.run.outcome, skipped.run.phase, skipped.run.result) == ("skipped", "mutated", "")
    assert (skipped.events["m1"], skipped.error) == ("skipped", None)
    committed = skipped.retry().do(CommitConsumer)
    assert (committed.retired.run.outcome, committed.events["m1"]) == ("skipped", "skipped")
    spent(5).refuses(*EDGE, SkipMutation)


@pytest.mark.rule("MUT-016")
def test_a_person_may_say_that_it_happened() -> None:
    unknown = indeterminate()
    asserted = unknown.do(AssertApplied)
    assert (asserted.record.status, asserted.record.resolved_by) == ("applied", "user_assert_applied")
    assert (asserted.run.outcome, asserted.run.result, asserted.events["m1"]) == ("success", "null", "reserved")
    assert asserted.error is None
    assert unknown.do(AssertApplied, '"row 7"').run.result == '"row 7"'
    assert asserted.retry().do(CommitConsumer).events["m1"] == "consumed"
    flow().deployed().uncertain().refuses(*EDGE, AssertApplied)


@pytest.mark.rule("MUT-016")
def test_an_asserted_result_has_the_size_limit_of_any_result() -> None:
    unknown = flow(json_max_chars=7).deployed().uncertain(reconcilable=False)
    assert unknown.do(AssertApplied, '"12345"').run.result == '"12345"'
    unknown.refuses("too_large", "EVENT-009", AssertApplied, '"123456"')
