"""Commits: all that a handler did becomes true at once."""

import pytest
from flow import done, flow

from keepkernel import Begin, CommitConsumer, CommitProducer, Declaration, EndRun, Retired, SkipMutation


@pytest.mark.rule("COMMIT-001")
@pytest.mark.parametrize("station", ["pending", "preparing", "prepared", "mutating", "in_flight", "mutated"])
def test_a_consumer_commits_from_emitting_only(station: str) -> None:
    flow().deployed().event("m1").run_to(station).refuses("phase", "PHASE-001", CommitConsumer)
    flow().deployed().event("m1").run_to("emitting").do(CommitConsumer)


@pytest.mark.rule("COMMIT-001")
@pytest.mark.parametrize("status", ["pending", "in_flight", "needs_reconcile", "indeterminate", "failed"])
def test_a_run_with_an_open_or_failed_record_does_not_commit(status: str) -> None:
    """Such a state is not reachable; the guard is a second lock on the same door."""
    emitting = flow().deployed().event("m1").run_to("emitting")
    broken = emitting.state._replace(mutation=emitting.record._replace(status=status))
    type(emitting)(broken, emitting.now).refuses("record_open", "COMMIT-001", CommitConsumer)


@pytest.mark.rule("COMMIT-001")
def test_after_a_skip_the_retry_commits() -> None:
    retry = flow().deployed().uncertain(reconcilable=False).do(SkipMutation).retry()
    assert retry.record is None
    retry.do(CommitConsumer)


@pytest.mark.rule("COMMIT-002")
def test_a_consumers_commit_is_one_step() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    committed = emitting.do(CommitConsumer, '{"count":1}', (done("d1"),))
    assert committed.retired == Retired(
        run=emitting.run._replace(phase="committed", status="committed"), mutation=emitting.record
    )
    assert (committed.run, committed.record, committed.state.session.commits) == (None, None, 1)
    assert (committed.row().state, committed.events) == ('{"count":1}', {"m1": "consumed", "d1": "pending"})


@pytest.mark.rule("COMMIT-002")
def test_one_bad_publication_leaves_everything_as_it_was() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    emitting.refuses("title_missing", "EVENT-008", CommitConsumer, "1", (done("d1"), done("d2", "")))
    assert emitting.end("failed:logic").events == {"m1": "reserved"}


@pytest.mark.rule("COMMIT-003")
def test_a_producers_commit_is_one_step() -> None:
    executing = flow().deployed().create("poll").do(Begin).later(1_000)
    committed = executing.do(CommitProducer, '"cursor"', (done("d1"),))
    assert committed.retired == Retired(run=executing.run._replace(phase="committed", status="committed"))
    assert (committed.run, committed.state.session.commits) == (None, 1)
    row = committed.row("poll")
    assert (row.state, row.due_at, committed.events) == (
        '"cursor"',
        executing.run.created_at + 300_000,
        {"d1": "pending"},
    )
    executing.refuses("title_missing", "EVENT-008", CommitProducer, '"cursor"', (done("d1", ""),))


@pytest.mark.rule("COMMIT-004")
def test_handler_state_changes_at_a_commit_only() -> None:
    first = flow().deployed().event("m1").run_to("emitting").do(CommitConsumer, "1")
    assert (first.row().state, first.row("tell").state) == ("1", "")
    kept = first.event("m2").run_to("emitting").do(CommitConsumer)
    assert kept.row().state == "1"
    assert kept.event("m3").run_to("emitting").do(CommitConsumer, "2").row().state == "2"
    assert kept.event("m3").run_to("emitting").do(EndRun, "crashed").row().state == "1"


@pytest.mark.rule("COMMIT-004")
def test_a_producer_that_returns_nothing_keeps_its_state_too() -> None:
    once = Declaration("once", "producer")
    committed = flow().deployed(once).create("once").do(Begin).do(CommitProducer, "1")
    assert committed.create("once").do(Begin).do(CommitProducer).row("once").state == "1"
