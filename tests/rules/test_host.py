"""What the kernel gives a host so that it can do its duties."""

import pytest
from flow import TOOL, Flow, done, flow, mail

from keepkernel import (
    COMMANDS,
    REASONS,
    Accepted,
    ApplyMutation,
    Begin,
    CallHandler,
    CommitConsumer,
    CommitProducer,
    CreateRetry,
    CreateRun,
    Emitting,
    EndRun,
    FailMutation,
    Grant,
    Idle,
    LoseTrack,
    Mutated,
    Mutating,
    Prepared,
    Publish,
    Reconcile,
    ReconcileRetry,
    RecordMutation,
    Rejected,
    Repair,
    Send,
    SendMutation,
    SkipEvent,
    StartSession,
    orphans,
    recover,
    step,
    upkeep,
)
from keepkernel.kernel.respond import (
    UNCERTAIN,
    AskAgain,
    Called,
    CalledNothing,
    DidNotHappen,
    Failed,
    Finished,
    Happened,
    NoMethod,
    Pinned,
    Unknown,
    advance,
    after_rejection,
    may_wait,
    must_be_durable,
    respond,
)


def refusal(f: Flow, command: object) -> Rejected:
    outcome = step(f.state, command)
    assert isinstance(outcome, Rejected)
    return outcome


def same(one: object, other: object) -> bool:
    """Commands are tuples, and tuples of two classes can be equal, so the class is compared too."""
    return (type(one), one) == (type(other), other)


def told(f: Flow, command: object) -> object:
    """What a host does after this command was refused."""
    return after_rejection(f.state, command, refusal(f, command), f.now)


@pytest.mark.rule("HOST-001")
def test_effects_come_beside_the_state_that_must_be_durable_first() -> None:
    recorded = flow().deployed().event("m1").run_to("recorded")
    outcome = step(recorded.state, recorded.command(SendMutation))
    assert isinstance(outcome, Accepted)
    assert outcome.state.mutation.status == "in_flight"
    assert isinstance(outcome.effects[0], Send)


@pytest.mark.rule("HOST-001")
def test_all_that_reaches_outside_waits_for_the_commit_and_handlers_need_not() -> None:
    effects = (*CALLS.values(), SENT, Reconcile("r", TOOL, "{}", "w/r", "inline", 5), Repair("r", "file", "why"))
    assert [type(effect) for effect in effects if not must_be_durable(effect)] == [CallHandler] * 4
    assert {type(effect) for effect in effects if must_be_durable(effect)} == {Send, Reconcile, Repair}


@pytest.mark.rule("HOST-011")
def test_what_was_said_outside_what_sends_a_call_and_what_ends_a_run_may_not_wait() -> None:
    assert {name for name, command in COMMANDS.items() if may_wait(command(*[0] * len(command._fields)))} == {
        "start_session",
        "finish_session",
        "create_run",
        "create_retry",
        "begin",
        "prepared",
        "mutating",
        "record_mutation",
        "mutated",
        "emitting",
    }


@pytest.mark.rule("HOST-002")
def test_a_send_carries_its_last_moment_and_its_key() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    assert sent.effects == (Send(sent.run.id, TOOL, "{}", sent.record.key, sent.record.send_by),)


@pytest.mark.rule("HOST-003")
def test_every_fault_but_the_callers_ends_the_run_with_its_class() -> None:
    preparing = flow().deployed().event("m1").run_to("preparing")
    bad = preparing.command(Prepared, mail("unknown"))
    assert told(preparing, bad) == EndRun(preparing.now, preparing.run.id, "failed:logic", "event_unknown: unknown")
    recorded = flow().deployed().event("m1").run_to("recorded").later(30_001)
    late = told(recorded, recorded.command(SendMutation))
    assert late == EndRun(
        recorded.now, recorded.run.id, "paused:transient", f"send_by_passed: {recorded.record.send_by}"
    )
    strange = flow().deployed().event("m1").run_to("mutating").do(RecordMutation, "mail.send", "{}", True)
    missing = told(strange, strange.command(SendMutation))
    assert (missing.status, missing.cause, missing.tool) == ("paused:approval", "permission", "mail.send")
    asking = flow().deployed(mode="ask").event("m1").run_to("recorded")
    wanted = told(asking, asking.command(SendMutation))
    assert (wanted.status, wanted.cause, wanted.tool) == ("paused:approval", "request", "")
    mutating = flow().deployed().event("m1").run_to("mutating")
    timeless = told(mutating, mutating.command(RecordMutation, TOOL, "{}", True, 0))
    assert timeless == EndRun(mutating.now, mutating.run.id, "failed:internal", "bad_deadline: 0")
    ends = ((preparing, told(preparing, bad)), (recorded, late), (strange, missing), (asking, wanted))
    for f, end in (*ends, (mutating, timeless)):
        assert f.apply(end).run is None


@pytest.mark.rule("HOST-003")
@pytest.mark.rule("PERM-003")
def test_a_grant_that_comes_before_the_pause_ends_the_run_as_transient() -> None:
    recorded = flow().deployed().event("m1").run_to("mutating").do(RecordMutation, "mail.send", "{}", True)
    asking = told(recorded, recorded.command(SendMutation))
    granted = recorded.do(Grant, "mail.send")
    ended = granted.apply(told(granted, asking))
    assert (ended.retired.run.status, ended.error, ended.events["m1"]) == ("paused:transient", None, "pending")


@pytest.mark.rule("HOST-003")
def test_a_mistaken_caller_ends_nothing() -> None:
    preparing = flow().deployed().event("m1").run_to("preparing")
    assert told(preparing, preparing.command(Begin)) is None
    for click in (preparing.command(SkipEvent, *mail("m9")), preparing.command(Publish, done("d1", ""))):
        assert REASONS[refusal(preparing, click).reason].fault == "script"
        assert told(preparing, click) is None
    over = flow(json_max_chars=7).deployed().uncertain()
    assert told(over, over.command(ApplyMutation, "reconcile", '"too long"')) is None


@pytest.mark.rule("HOST-003")
def test_a_refused_answer_of_a_sent_call_ends_as_uncertain() -> None:
    sent = flow(json_max_chars=7).deployed().event("m1").run_to("in_flight")
    end = told(sent, sent.command(ApplyMutation, "call", '"too long"'))
    assert end.status == "failed:logic"
    assert sent.apply(end).run.status == "paused:reconciliation"


@pytest.mark.rule("HOST-004")
def test_every_command_carries_the_time() -> None:
    assert all(command._fields[0] == "now" for command in COMMANDS.values())


@pytest.mark.rule("HOST-005")
def test_ids_come_from_the_host_and_the_kernel_refuses_the_reuse_that_it_sees() -> None:
    assert all("session" in command._fields for command in (StartSession, CreateRun, CreateRetry))
    waiting = flow().deployed().after().later(10_000).session()
    fields = {"run": waiting.run.id, "session": waiting.state.session.id, "retry_of": waiting.run.id}
    waiting.refuses("id_in_use", "RUN-006", CreateRetry, **fields)


@pytest.mark.rule("HOST-006")
def test_a_send_is_asked_for_once_and_never_derived_from_a_state() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    sent.refuses("mutation_edge", "MUT-001", SendMutation)
    assert advance(sent.state, sent.now) == EndRun(sent.now, sent.run.id, "paused:reconciliation", UNCERTAIN)
    assert upkeep(sent.state, sent.now) == Idle("nothing_due")
    over = sent.end("crashed")
    assert isinstance(upkeep(over.state, over.now), Reconcile)


@pytest.mark.rule("HOST-007")
def test_a_start_recovers_then_looks_after_what_is_open() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    (crash,) = recover(sent.state, sent.now)
    over = sent.apply(crash)
    assert recover(over.state, over.now) == ()
    assert isinstance(upkeep(over.state, over.now), Reconcile)
    assert orphans(over.state) == ()


@pytest.mark.rule("HOST-008")
def test_an_outcome_belongs_to_the_state_it_was_computed_from() -> None:
    running = flow().deployed().event("m1").run_to("emitting")
    other = running.end("crashed")
    running.do(CommitConsumer)
    other.refuses("run_not_active", "RUN-002", CommitConsumer)


@pytest.mark.rule("HOST-009")
def test_rows_that_leave_are_handed_out_in_their_final_form() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    committed = emitting.do(CommitConsumer)
    assert (committed.retired.run.status, committed.retired.mutation) == ("committed", emitting.record)
    assert committed.events == {"m1": "consumed"}
    ended = flow().deployed().event("m1").run_to("recorded").end("crashed")
    assert ended.retired.run.status == "crashed"
    assert (ended.retired.mutation.status, ended.retired.session.status) == ("failed", "failed")


@pytest.mark.rule("HOST-010")
def test_advance_moves_the_active_run_when_nothing_is_in_hand() -> None:
    ready = flow().deployed().event("m1")
    assert advance(ready.state, 7) is None
    assert advance(ready.after().state, 7) is None
    steps = {
        "pending": Begin,
        "preparing": None,
        "prepared": Mutating,
        "mutating": None,
        "recorded": SendMutation,
        "mutated": Emitting,
        "emitting": None,
    }
    for station, kind in steps.items():
        f = ready.run_to(station)
        assert same(advance(f.state, 7), kind and kind(7, f.run.id)), station
    empty = flow().deployed().run_to("prepared")
    assert same(advance(empty.state, 7), Emitting(7, empty.run.id))
    executing = ready.create("poll").do(Begin)
    assert advance(executing.state, 7) is None


@pytest.mark.rule("HOST-010")
def test_advance_ends_a_run_whose_mutation_failed_or_is_lost() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    refused = sent.do(FailMutation, "call")
    assert same(advance(refused.state, 7), EndRun(7, sent.run.id, "paused:transient", "the mutation failed"))
    for lost in (sent.do(LoseTrack), sent.do(LoseTrack).do(ReconcileRetry, "inline")):
        assert same(advance(lost.state, 7), EndRun(7, sent.run.id, "paused:reconciliation", UNCERTAIN))


CALLS = {name: CallHandler("r", "file", "v1", name) for name in ("prepare", "mutate", "next", "producer")}
SENT = Send("r", TOOL, "{}", "w/r", 5)


@pytest.mark.rule("HOST-010")
@pytest.mark.parametrize(
    ("effect", "answer", "commands"),
    [
        (CALLS["prepare"], Pinned(mail("m1"), "1", "t", 9), (Prepared(7, "r", mail("m1"), "1", "t", 9),)),
        (CALLS["mutate"], Called(TOOL, "{}", True, 9), (RecordMutation(7, "r", TOOL, "{}", True, 9),)),
        (CALLS["mutate"], CalledNothing(), (Mutated(7, "r"),)),
        (CALLS["next"], Finished("1", (done("d1"),)), (CommitConsumer(7, "r", "1", (done("d1"),)),)),
        (CALLS["producer"], Finished("1", (done("d1"),), 9), (CommitProducer(7, "r", "1", (done("d1"),), 9),)),
        (CALLS["next"], Failed("script", "why"), (EndRun(7, "r", "failed:logic", "why"),)),
        (
            CALLS["producer"],
            Failed("auth", "why", "gmail"),
            (EndRun(7, "r", "paused:approval", "why", "auth", "gmail"),),
        ),
        (SENT, Happened('"ok"'), (ApplyMutation(7, "r", "call", '"ok"'),)),
        (SENT, Failed("refused", "no"), (FailMutation(7, "r", "call"), EndRun(7, "r", "failed:logic", "no"))),
        (SENT, Unknown("why"), (LoseTrack(7, "r", "why"),)),
    ],
)
def test_an_answer_becomes_commands(effect, answer, commands) -> None:
    given = respond(flow().state, effect, answer, 7)
    assert [type(command) for command in given] == [type(command) for command in commands]
    assert given == commands


@pytest.mark.rule("HOST-010")
@pytest.mark.rule("MUT-010")
def test_a_result_that_is_too_large_is_left_out_and_the_change_is_told() -> None:
    state = flow().deployed().event("m1").run_to("in_flight").state
    state = state._replace(policy=state.policy._replace(json_max_chars=4))
    asked = Reconcile("r", TOOL, "{}", "w/r", "reconcile", 5)
    for effect in (SENT, asked):
        for result, told in (("1234", "1234"), ("12345", "null")):
            (command,) = respond(state, effect, Happened(result), 7)
            assert (type(command), command.result) == (ApplyMutation, told)


@pytest.mark.rule("HOST-010")
@pytest.mark.parametrize(
    ("effect", "answer"),
    [
        (CALLS["prepare"], Finished()),
        (CALLS["next"], Pinned()),
        (SENT, AskAgain()),
        (Reconcile("r", TOOL, "{}", "w/r", "inline", 5), Unknown()),
        (Repair("r", "file", "why"), Finished()),
    ],
)
def test_an_answer_that_does_not_fit_is_a_bug_of_the_host(effect, answer) -> None:
    whom = "a reconcile" if isinstance(effect, Reconcile) else type(effect).__name__
    with pytest.raises(TypeError, match=f"^{type(answer).__name__} does not answer {whom}$"):
        respond(flow().state, effect, answer, 7)


def reconcile_answers(f: Flow, answer: object, asked_at: int | None = None) -> Flow:
    """The flow after a reconcile was asked, and its answer was reported at `f.now`; every command is accepted."""
    by = "inline" if f.run.status == "active" else "reconcile"
    effect = Reconcile(f.run.id, TOOL, "{}", f.record.key, by, f.now if asked_at is None else asked_at)
    for command in respond(f.state, effect, answer, f.now):
        assert command.now == f.now
        f = f.apply(command)
    return f


@pytest.mark.rule("HOST-010")
def test_what_an_inline_reconcile_means() -> None:
    lost = flow().deployed().event("m1").run_to("in_flight").do(LoseTrack)
    assert reconcile_answers(lost, Happened('"x"')).run.result == '"x"'
    for over in (reconcile_answers(lost, DidNotHappen(voided=True)), reconcile_answers(lost.landed(), DidNotHappen())):
        assert (over.run, over.retired.run.status, over.row().transient_failures) == (None, "paused:transient", 1)
        assert over.retired.run.message == "the mutation did not happen"
    early = reconcile_answers(lost, DidNotHappen())
    assert (early.run.status, early.record.attempts) == ("paused:reconciliation", 0)
    assert early.record.next_attempt_at == early.record.may_land_until
    asked_early = reconcile_answers(lost.landed(), DidNotHappen(), asked_at=lost.now)
    assert (asked_early.run.status, asked_early.record) == ("paused:reconciliation", lost.record)
    again = reconcile_answers(lost, AskAgain("why"))
    assert same(
        respond(lost.state, lost.effects[0], AskAgain("why"), 7)[0],
        ReconcileRetry(7, lost.run.id, "inline", False, "why"),
    )
    assert (again.run.status, again.record.attempts, again.run.message) == ("paused:reconciliation", 1, UNCERTAIN)
    (stop,) = respond(lost.state, lost.effects[0], NoMethod(), 7)
    assert same(stop, EndRun(7, lost.run.id, "paused:reconciliation", UNCERTAIN))
    none = reconcile_answers(lost, NoMethod())
    assert (none.run.status, none.record.status) == ("paused:reconciliation", "needs_reconcile")


@pytest.mark.rule("HOST-010")
def test_what_a_background_reconcile_means() -> None:
    over = flow().deployed().uncertain()
    assert reconcile_answers(over, Happened('"x"')).run.outcome == "success"
    for failed in (
        reconcile_answers(over, DidNotHappen(voided=True)),
        reconcile_answers(over.landed(), DidNotHappen()),
    ):
        assert (failed.run, failed.retired.mutation.resolved_by) == (None, "reconcile")
    early = reconcile_answers(over.landed().later(-1), DidNotHappen())
    assert (early.record.attempts, early.record.next_attempt_at) == (0, over.record.may_land_until)
    assert reconcile_answers(over.landed(), DidNotHappen(), asked_at=over.now).state == over.state
    assert reconcile_answers(over, AskAgain()).record.attempts == 1
    assert reconcile_answers(over, NoMethod()).record.status == "indeterminate"


@pytest.mark.rule("HOST-010")
def test_an_answer_about_a_record_that_is_gone_is_refused_by_the_kernel_and_not_by_the_host() -> None:
    late = Reconcile("id2", TOOL, "{}", "w/id2", "reconcile", 5)
    deployed = flow().deployed()
    (command,) = respond(deployed.state, late, DidNotHappen(), 7)
    assert same(command, FailMutation(7, "id2", "reconcile", False, 5))
    assert refusal(deployed, command).reason == "run_unknown"
