"""Scheduling: what should happen next, asked of the state."""

import pytest
from flow import FILE, POLL, TELL, TOOL, TOPICS, Flow, flow, mail

from keepkernel import (
    Begin,
    CommitConsumer,
    CommitProducer,
    CreateRetry,
    CreateRun,
    Declaration,
    Deploy,
    EnterMaintenance,
    Exhaust,
    FailMutation,
    FinishSession,
    Idle,
    Key,
    Pause,
    Prepared,
    Publication,
    Publish,
    Reconcile,
    ReconcileRetry,
    Repair,
    Resume,
    RunNow,
    StartSession,
    Wait,
    schedule,
    upkeep,
)


def next_command(f: Flow):
    return schedule(f.state, f.now, "new")


def is_next(f: Flow, expected: object) -> bool:
    """Commands are tuples, and tuples of two classes can be equal, so the class is compared too."""
    return (type(next_command(f)), next_command(f)) == (type(expected), expected)


def closed_gates() -> list[tuple[str, Flow]]:
    failed = flow().deployed().run_to("preparing")
    return [
        ("workflow_not_active", flow().do(Deploy, "v1", TOPICS, (FILE,))),
        ("workflow_not_active", flow().deployed().do(Pause)),
        ("mutation_unresolved", flow().deployed().uncertain()),
        ("error_stands", failed.end("failed:internal")),
        ("in_maintenance", failed.end("failed:logic")),
        ("backing_off", failed.end("crashed")),
    ]


@pytest.mark.rule("SCHED-001")
@pytest.mark.parametrize(("reason", "closed"), closed_gates())
def test_nothing_starts_through_a_closed_gate(reason: str, closed: Flow) -> None:
    closed.refuses(reason, "SCHED-001", StartSession, "s")
    closed.refuses(reason, "SCHED-001", CreateRun, run="r", session="s", handler="file")
    closed.refuses(reason, "SCHED-001", CreateRetry, run="r", session="s", retry_of="x")
    closed.refuses(reason, "SCHED-001", RunNow, "file")
    until = closed.state.backoff_until
    assert is_next(closed, (Wait(until, reason) if reason == "backing_off" else Idle(reason)))


@pytest.mark.rule("SCHED-001")
def test_an_active_run_closes_the_gate_and_its_reason_comes_first() -> None:
    active = flow().deployed().create().do(Pause)
    for command, fields in (
        (StartSession, {"session": "s"}),
        (CreateRun, {"run": "r", "session": "s", "handler": "file"}),
        (RunNow, {"handler": "file"}),
    ):
        active.refuses("run_active", "SCHED-001", command, **fields)
    assert is_next(active, Idle("run_active"))


@pytest.mark.rule("SCHED-001")
def test_a_closed_gate_names_the_first_reason_in_order() -> None:
    uncertain = flow().deployed().uncertain()
    uncertain.do(Pause).refuses("workflow_not_active", "SCHED-001", StartSession, "s")
    assert uncertain.error.kind == "uncertain"
    uncertain.refuses("mutation_unresolved", "SCHED-001", StartSession, "s")
    internal = flow().deployed().run_to("preparing").end("failed:internal").do(EnterMaintenance)
    internal.refuses("error_stands", "SCHED-001", StartSession, "s")
    backing_off = flow().deployed().run_to("preparing").end("crashed")
    backing_off.do(EnterMaintenance).refuses("in_maintenance", "SCHED-001", StartSession, "s")
    over = backing_off.at(backing_off.state.backoff_until)
    over.later(-1).refuses("backing_off", "SCHED-001", StartSession, "s")
    over.do(StartSession, "s")


@pytest.mark.rule("SCHED-002")
def test_a_session_first_then_the_run_then_the_end_of_the_session() -> None:
    ready = flow().deployed(FILE).event("m1")
    assert is_next(ready, StartSession(ready.now, "new"))
    opened = ready.session()
    assert is_next(opened, CreateRun(ready.now, "new", "id1", "file"))
    committed = opened.run_to("committed").run_to("committed")
    assert is_next(committed, FinishSession(ready.now, "id1"))
    finished = committed.do(FinishSession, "id1")
    assert is_next(finished, Idle("nothing_due"))


@pytest.mark.rule("SCHED-002")
def test_the_pending_retry_goes_first() -> None:
    after = flow().deployed().event("d0", topic="done").after().later(10_000)
    assert is_next(after, StartSession(after.now, "new"))
    opened = after.session()
    assert is_next(opened, CreateRetry(after.now, "new", opened.state.session.id, opened.run.id))


@pytest.mark.rule("SCHED-002")
def test_then_consumers_by_their_oldest_event_then_producers_by_their_time() -> None:
    early, late = Declaration("early", "producer"), Declaration("late", "producer")
    handlers = (late, early, TELL, FILE)
    f = flow().do(Deploy, "v1", TOPICS, (early,)).later(5).do(Deploy, "v2", TOPICS, handlers).do(Resume)
    both = f.event("m1").event("d1", topic="done").event("m2").session()
    assert next_command(both).handler == "file"
    no_mail = f.event("d1", topic="done").session()
    assert next_command(no_mail).handler == "tell"
    tie = f.session()
    assert next_command(tie).handler == "tell"
    idle = f.session().create("tell").run_to("committed").run_to("committed")
    assert next_command(idle).handler == "early"
    assert next_command(idle.create("early").do(Begin).do(CommitProducer)).handler == "late"


@pytest.mark.rule("SCHED-002")
def test_an_event_that_is_taken_does_not_count_as_the_oldest() -> None:
    f = flow().deployed(TELL, FILE).event("m1").event("d1", topic="done").event("m2")
    consumed = f.run_to("committed", "m1")
    assert next_command(consumed).handler == "tell"


@pytest.mark.rule("SCHED-002")
def test_an_open_session_is_finished_when_no_run_is_to_start_in_it() -> None:
    finish = FinishSession(flow().now, "id1")
    spent = flow(session_runs=1).deployed(FILE).event("m1", "m2").run_to("committed", "m1")
    assert is_next(spent, finish)
    assert is_next(spent.do(FinishSession, "id1"), StartSession(spent.now, "new"))
    assert is_next(flow().deployed(FILE).event("m1").session().do(Pause), finish)
    gone = flow().deployed(FILE).after().later(10_000).do(Deploy, "v2", TOPICS, (TELL,)).session()
    assert is_next(gone, FinishSession(gone.now, gone.state.session.id))


@pytest.mark.rule("SCHED-003")
def test_a_run_starts_only_without_a_pending_retry() -> None:
    after = flow().deployed().after().later(10_000).session()
    session = after.state.session.id
    after.refuses("retry_pending", "SCHED-003", CreateRun, run="r", session=session, handler="tell")
    ready = flow().deployed().session()
    run = ready.do(CreateRun, run="r", session="id1", handler="file").run
    assert (run.status, run.phase, run.kind, run.handler) == ("active", "pending", "consumer", "file")
    assert (run.session, run.created_at, run.outcome, run.reserved) == ("id1", ready.now, "", ())
    assert (run.causes, run.data, run.title, run.result, run.message) == ((), "null", "", "", "")
    assert (run.retry_of, run.abandoned) == ("", False)


@pytest.mark.rule("SCHED-003")
def test_create_run_does_not_ask_whether_the_handler_is_due() -> None:
    rested = flow().deployed(FILE).run_to("committed")
    assert is_next(rested, FinishSession(rested.now, "id1"))
    assert rested.create().state.session.runs == 2


@pytest.mark.rule("SCHED-004")
def test_a_consumer_is_due_when_dirty_or_when_its_wake_time_has_come() -> None:
    asleep = flow().deployed(FILE).run_to("preparing").do(Prepared, wake_at=0).run_to("committed")
    asleep = asleep.do(FinishSession, "id1")
    wake_at = asleep.now + 30_000
    assert is_next(asleep, Wait(wake_at, "nothing_due"))
    assert is_next(asleep.at(wake_at - 1), Wait(wake_at, "nothing_due"))
    assert is_next(asleep.at(wake_at), StartSession(wake_at, "new"))
    assert is_next(asleep.event("m1"), StartSession(asleep.now, "new"))


@pytest.mark.rule("SCHED-004")
def test_a_producer_is_due_when_its_time_is_set_and_has_come() -> None:
    once = Declaration("once", "producer")
    polled = flow().deployed(POLL, once).create("poll").do(Begin).do(CommitProducer)
    assert next_command(polled).handler == "once"
    rested = polled.create("once").do(Begin).do(CommitProducer).do(FinishSession, "id1")
    due_at = rested.now + 300_000
    assert rested.row("once").due_at == -1
    assert is_next(rested.at(due_at - 1), Wait(due_at, "nothing_due"))
    assert next_command(rested.at(due_at).session()).handler == "poll"


@pytest.mark.rule("SCHED-004")
def test_the_earliest_wake_time_is_a_wake_time() -> None:
    asleep = flow(wake_min_ms=1).at(0).deployed(FILE).run_to("preparing").do(Prepared, wake_at=1).run_to("committed")
    asleep = asleep.do(FinishSession, "id1")
    assert is_next(asleep, Wait(1, "nothing_due"))
    assert is_next(asleep.at(1), StartSession(1, "new"))


@pytest.mark.rule("SCHED-004")
def test_time_zero_is_a_time_like_any_other_for_producers() -> None:
    zero = flow().at(0).deployed(POLL)
    assert is_next(zero, StartSession(0, "new"))
    assert is_next(flow().at(0).deployed(FILE).run_to("committed").do(FinishSession, "id1"), Idle("nothing_due"))


@pytest.mark.rule("SCHED-005")
def test_what_makes_a_consumer_dirty() -> None:
    rested = flow().deployed().run_to("committed")
    assert not rested.row().dirty
    assert rested.event("m1").row().dirty
    assert not rested.event("d1", topic="done").row().dirty
    assert rested.do(RunNow, "file").row().dirty
    assert rested.do(Deploy, "v2", TOPICS, (FILE,)).row().dirty
    assert rested.run_to("preparing").end("paused:transient").row().dirty
    assert rested.event("m1").run_to("committed").row().dirty
    over = rested.uncertain().landed()
    assert over.row().dirty
    clean = Flow(over.state._replace(handlers=tuple(h._replace(dirty=False) for h in over.state.handlers)), over.now)
    failed = clean.do(FailMutation, "reconcile")
    assert (failed.row().dirty, failed.row("tell").dirty) == (True, False)


@pytest.mark.rule("SCHED-005")
def test_what_does_not_make_a_consumer_dirty() -> None:
    rested = flow().deployed().run_to("committed")
    assert not rested.run_to("committed").row().dirty
    assert not rested.create("poll").end("crashed").row().dirty
    assert not rested.create("poll").end("crashed").row("poll").dirty
    running = rested.event("m1").run_to("prepared")
    again = running.do(Publish, Publication(Key("mail", "m1"), "old news", "{}"))
    assert not again.row().dirty
    changed = flow().deployed().event("m1").create().do(Publish, Publication(Key("mail", "m1"), "news", "{}"))
    assert changed.row().dirty


@pytest.mark.rule("SCHED-006")
def test_dirty_is_cleared_when_a_run_of_that_consumer_is_created() -> None:
    ready = flow().deployed().event("m1")
    created = ready.create("file")
    assert (created.row().dirty, created.row("tell").dirty) == (False, True)
    assert created.event("m2").run_to("emitting", "m1").row().dirty
    other = ready.create("tell")
    assert (other.row().dirty, other.row("tell").dirty) == (True, False)
    after = flow().deployed().after().later(10_000)
    assert (after.row().dirty, after.retry().row().dirty) == (True, False)


@pytest.mark.rule("SCHED-007")
def test_each_prepare_sets_or_clears_the_wake_time() -> None:
    preparing = flow().deployed().event("m1").run_to("preparing")
    empty = preparing.do(Prepared, wake_at=preparing.now + 60_000)
    taking = preparing.do(Prepared, mail("m1"), wake_at=preparing.now + 60_000)
    for prepared in (empty, taking):
        assert prepared.row().wake_at == preparing.now + 60_000
        assert prepared.row("tell").wake_at == 0
        done_with = prepared.run_to("emitting").do(CommitConsumer)
        assert (done_with.row().state, done_with.row().wake_at) == ("", preparing.now + 60_000)
        assert done_with.run_to("preparing").row().wake_at == preparing.now + 60_000
        assert done_with.run_to("preparing").do(Prepared).row().wake_at == 0
    assert preparing.do(Prepared, wake_at=0).row().wake_at == preparing.now + 30_000


@pytest.mark.rule("SCHED-008")
def test_the_background_reconciles_until_it_gives_up() -> None:
    over = flow().deployed().uncertain().do(Pause)
    record = over.record
    assert upkeep(over.state, over.now) == Reconcile(record.run, TOOL, "{}", record.key, "reconcile", over.now)
    waiting = over.do(ReconcileRetry, "reconcile")
    due_at = waiting.record.next_attempt_at
    assert upkeep(waiting.state, due_at - 1) == Wait(due_at, "mutation_unresolved")
    assert isinstance(upkeep(waiting.state, due_at), Reconcile)
    for _ in range(4):
        waiting = waiting.do(ReconcileRetry, "reconcile")
    assert upkeep(waiting.state, waiting.now) == Exhaust(waiting.now, record.run)
    exhausted = waiting.do(Exhaust)
    assert upkeep(exhausted.state, exhausted.now + 10**9) == Idle("mutation_unresolved")


@pytest.mark.rule("SCHED-008")
def test_the_background_keeps_away_from_a_call_in_the_air_and_asks_for_repairs() -> None:
    sent = flow().deployed().event("m1").run_to("in_flight")
    assert upkeep(sent.state, sent.now) == Idle("nothing_due")
    failed = flow().deployed().run_to("preparing").end("failed:logic", message="oops")
    assert upkeep(failed.state, failed.now) == Repair("id2", "file", "oops")
    assert upkeep(flow().deployed().do(EnterMaintenance).state, 0) == Idle("nothing_due")
    applied = flow().deployed().after("failed:logic")
    assert upkeep(applied.state, applied.now) == Repair(applied.run.id, "file", "it went wrong")
