"""Events: durable records in topics."""

import pytest
from flow import FILE, done, flow, mail

from keepkernel import (
    REASONS,
    ApplyMutation,
    Begin,
    CommitConsumer,
    CommitProducer,
    FailMutation,
    Key,
    Prepared,
    Publication,
    Publish,
    RecordMutation,
    SkipEvent,
    SkipMutation,
)
from keepkernel.kernel.tables import EVENT_STATUS


@pytest.mark.rule("EVENT-001")
def test_an_event_is_pending_then_reserved_then_done_for_good() -> None:
    assert {(a, b) for (a, _), b in EVENT_STATUS.items()} == {
        ("pending", "reserved"),
        ("reserved", "pending"),
        ("reserved", "reserved"),
        ("reserved", "consumed"),
        ("reserved", "skipped"),
        ("pending", "skipped"),
    }
    for finished in (
        flow().deployed().event("m1").run_to("committed"),
        flow().deployed().event("m1").do(SkipEvent, *mail("m1")),
    ):
        assert finished.events["m1"] in ("consumed", "skipped")
        finished.refuses("event_not_pending", "EVENT-004", SkipEvent, *mail("m1"))
        finished.run_to("preparing").refuses("event_not_pending", "EVENT-004", Prepared, mail("m1"))


@pytest.mark.rule("EVENT-002")
def test_an_event_changes_only_with_the_run_that_holds_it() -> None:
    reserved = flow().deployed().event("m1", "m2").run_to("prepared", "m1")
    reserved.refuses("event_not_pending", "EVENT-004", SkipEvent, *mail("m1"))
    assert reserved.event("m1").state.events == reserved.state.events
    assert reserved.run_to("committed").events == {"m1": "consumed", "m2": "pending"}


@pytest.mark.rule("EVENT-003")
def test_prepare_reserves_for_its_run_all_or_nothing() -> None:
    preparing = flow().deployed().event("m1", "m2").run_to("preparing")
    prepared = preparing.do(Prepared, mail("m2", "m1"))
    assert [(e.status, e.owner) for e in prepared.state.events] == [("reserved", prepared.run.id)] * 2
    preparing.refuses("event_unknown", "EVENT-004", Prepared, mail("m1", "m2", "m3"))
    assert preparing.do(Prepared, ()).events == {"m1": "pending", "m2": "pending"}


@pytest.mark.rule("EVENT-004")
def test_only_subscribed_pending_known_events_are_reserved_each_once() -> None:
    preparing = flow().deployed().event("m1").event("d1", topic="done").run_to("preparing")
    preparing.refuses("event_unknown", "EVENT-004", Prepared, mail("unknown"))
    preparing.refuses("not_subscribed", "EVENT-004", Prepared, (Key("done", "d1"),))
    preparing.refuses("reserved_twice", "EVENT-004", Prepared, mail("m1", "m1"))
    for reason in ("event_unknown", "not_subscribed", "reserved_twice", "event_not_pending"):
        assert REASONS[reason].fault == "script"
    preparing.do(Prepared, mail("m1"))


@pytest.mark.rule("EVENT-004")
def test_an_event_that_is_taken_or_done_is_not_reserved() -> None:
    skipped = flow().deployed().event("m1").do(SkipEvent, *mail("m1")).run_to("preparing")
    skipped.refuses("event_not_pending", "EVENT-004", Prepared, mail("m1"))


@pytest.mark.rule("EVENT-005")
def test_a_release_makes_inputs_pending_and_wakes_their_consumer() -> None:
    ended = flow().deployed().event("m1").run_to("prepared").end("paused:transient")
    refused = flow().deployed().event("m1").run_to("in_flight").do(FailMutation, "call")
    for released in (ended, refused.end("failed:logic")):
        (event,) = released.state.events
        assert (event.status, event.owner) == ("pending", "")
        assert released.row().dirty
    assert refused.events["m1"] == "pending"
    applied = flow().deployed().event("m1").run_to("mutated").end("crashed")
    assert applied.events["m1"] == "reserved"


@pytest.mark.rule("EVENT-006")
def test_inputs_are_consumed_by_the_commit_and_skipped_by_a_person() -> None:
    committed = flow().deployed().event("m1", "m2").run_to("committed", "m1")
    assert committed.events == {"m1": "consumed", "m2": "pending"}
    assert committed.state.events[0].owner == committed.retired.run.id
    skipped = flow().deployed().event("m2").uncertain(reconcilable=False).do(SkipMutation)
    assert set(skipped.events.values()) == {"skipped"}


@pytest.mark.rule("EVENT-007")
def test_publishing_appends_to_a_declared_topic() -> None:
    published = flow().deployed().event("m1", "m2")
    assert [(e.key.id, e.seq, e.status, e.owner) for e in published.state.events] == [
        ("m1", 1, "pending", ""),
        ("m2", 2, "pending", ""),
    ]
    assert published.state.next_seq == 3
    published.refuses("topic_unknown", "EVENT-007", Publish, Publication(Key("spam", "s1"), "title", "{}"))


@pytest.mark.rule("EVENT-007")
def test_an_event_knows_the_run_that_published_it() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    emitted = emitting.do(CommitConsumer, publications=(done("d1"),)).state.events[-1]
    assert (emitted.key.id, emitted.created_by, emitted.status) == ("d1", emitting.run.id, "pending")
    assert emitting.state.events[0].created_by == ""


@pytest.mark.rule("EVENT-008")
@pytest.mark.parametrize(("name", "title"), [("", "title"), ("d1", ""), ("d1", " \n")])
def test_an_event_has_an_id_and_a_title(name: str, title: str) -> None:
    emitting = flow().deployed().run_to("emitting")
    emitting.refuses("title_missing", "EVENT-008", CommitConsumer, publications=(done(name, title),))
    assert emitting.do(CommitConsumer, publications=(done("d1", "title"),)).state.events[0].title == "title"


@pytest.mark.rule("EVENT-009")
def test_every_text_of_a_script_has_a_size_limit() -> None:
    fits, too_long = '"1234567"', '"12345678"'
    small = flow(json_max_chars=len(fits)).deployed()
    large = ("too_large", "EVENT-009")
    small.do(Publish, done("d1", payload=fits))
    small.refuses(*large, Publish, done("d1", payload=too_long))
    preparing = small.event("m1").run_to("preparing")
    preparing.do(Prepared, data=fits)
    preparing.refuses(*large, Prepared, data=too_long)
    mutating = preparing.do(Prepared, mail("m1")).run_to("mutating")
    mutating.do(RecordMutation, "sheets.append", fits, True)
    mutating.refuses(*large, RecordMutation, "sheets.append", too_long, True)
    sent = mutating.run_to("in_flight")
    sent.do(ApplyMutation, "call", fits)
    sent.refuses(*large, ApplyMutation, "call", too_long)
    emitting = sent.run_to("emitting")
    emitting.do(CommitConsumer, state=fits)
    emitting.refuses(*large, CommitConsumer, state=too_long)


@pytest.mark.rule("EVENT-010")
def test_a_republish_changes_title_and_payload_only_while_the_event_is_pending() -> None:
    pending = flow().deployed().event("m1", "m2")
    new = Publication(Key("mail", "m1"), "a new title", '"new"')
    changed = pending.do(Publish, new)
    old = pending.state.events[0]
    assert changed.state.events == (old._replace(title="a new title", payload='"new"'), pending.state.events[1])
    assert changed.state.next_seq == pending.state.next_seq
    for taken in (pending.run_to("prepared", "m1"), pending.run_to("committed", "m1")):
        assert taken.do(Publish, new).state == taken.state


@pytest.mark.rule("EVENT-010")
def test_a_list_of_publications_is_taken_whole_even_when_one_is_old_news() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    committed = emitting.do(
        CommitConsumer, publications=(Publication(Key("mail", "m1"), "again", "{}"), done("d1"), done("d1", "twice"))
    )
    assert [(e.key.id, e.title, e.seq) for e in committed.state.events] == [
        ("m1", "title of m1", 1),
        ("d1", "twice", 2),
    ]


@pytest.mark.rule("EVENT-011")
def test_events_carry_the_root_inputs_that_they_came_from() -> None:
    handlers = (FILE, FILE._replace(name="tell", subscribes=("done",), has_mutate=False))
    first = flow().deployed(*handlers).event("m1", "m2").run_to("emitting")
    emitted = first.do(CommitConsumer, publications=(done("d1"), done("d2")))
    assert [e.causes for e in emitted.state.events] == [(), (), mail("m1", "m2"), mail("m1", "m2")]
    second = emitted.event("d3", topic="done").create("tell").run_to("preparing")
    chosen = second.do(Prepared, (Key("done", "d1"), Key("done", "d2"), Key("done", "d3")))
    assert chosen.run.causes == (*mail("m1", "m2"), Key("done", "d3"))


@pytest.mark.rule("EVENT-011")
def test_what_a_producer_publishes_is_a_root() -> None:
    published = flow().deployed().create("poll").do(Begin).do(CommitProducer, publications=(done("d1"),))
    (event,) = published.state.events
    assert (event.causes, event.created_by) == ((), published.retired.run.id)
