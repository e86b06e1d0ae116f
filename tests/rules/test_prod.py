"""Producers: when they run."""

import pytest
from flow import FILE, POLL, TOPICS, flow

from keepkernel import Begin, CommitProducer, Declaration, Deploy, RunNow

CRON = Declaration("nightly", "producer", cron="0 3 * * *")
ONCE = Declaration("once", "producer")


def executing(producer: Declaration):
    return flow().deployed(producer).create(producer.name).do(Begin).later(1_000)


@pytest.mark.rule("PROD-001")
def test_a_producer_has_at_most_one_schedule_and_a_consumer_none() -> None:
    bad = ("bad_declaration", "WORK-006", Deploy, "v1", TOPICS)
    for good in (POLL, CRON, ONCE):
        flow().do(Deploy, "v1", TOPICS, (good,))
    flow().refuses(*bad, (CRON._replace(interval_ms=1),))
    flow().refuses(*bad, (FILE._replace(interval_ms=1),))
    flow().refuses(*bad, (FILE._replace(cron="0 3 * * *"),))


@pytest.mark.rule("PROD-002")
def test_a_producer_that_failed_stays_due() -> None:
    started = flow().deployed(POLL)
    assert started.row("poll").due_at == started.now
    for status in ("paused:transient", "crashed", "failed:internal", "failed:logic"):
        ended = started.create("poll").do(Begin).end(status)
        assert ended.row("poll").due_at == started.now
    assert started.create("poll").do(Begin).do(CommitProducer).row("poll").due_at == started.now + 300_000


@pytest.mark.rule("PROD-003")
def test_the_next_time_counts_from_the_start_of_the_run() -> None:
    poll = executing(POLL)
    assert poll.do(CommitProducer).row("poll").due_at == poll.run.created_at + 300_000
    assert poll.later(10**9).do(CommitProducer).row("poll").due_at == poll.run.created_at + 300_000
    once = executing(ONCE).do(CommitProducer)
    assert once.row("once").due_at == -1
    assert once.later(5).do(RunNow, "once").row("once").due_at == once.now + 5


@pytest.mark.rule("PROD-003")
def test_a_cron_schedule_and_no_other_is_given_its_next_time() -> None:
    wrong = ("cron_time", "PROD-003", CommitProducer)
    nightly = executing(CRON)
    started_at = nightly.run.created_at
    nightly.refuses(*wrong).refuses(*wrong, due_at=started_at)
    assert nightly.do(CommitProducer, due_at=started_at + 1).row("nightly").due_at == started_at + 1
    executing(POLL).refuses(*wrong, due_at=started_at + 1)
    executing(ONCE).refuses(*wrong, due_at=started_at + 1)
