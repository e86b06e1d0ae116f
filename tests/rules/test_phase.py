"""The phase of a run: how far it has come."""

import pytest
from flow import FILE, STATIONS, TOOL, flow

from keepkernel import (
    Begin,
    CallHandler,
    CommitConsumer,
    CommitProducer,
    Emitting,
    FailMutation,
    Mutated,
    Mutating,
    Prepared,
    RecordMutation,
)

PHASES = ("pending", "preparing", "prepared", "mutating", "mutated", "emitting")
EDGES = {
    "pending": {Begin},
    "preparing": {Prepared},
    "prepared": {Mutating},
    "mutating": {Mutated},
    "mutated": {Emitting},
    "emitting": {CommitConsumer},
}


@pytest.mark.rule("PHASE-001")
@pytest.mark.parametrize("phase", PHASES)
def test_a_consumer_run_moves_along_one_edge_and_never_leaps(phase: str) -> None:
    here = flow().deployed().event("m1").run_to("mutating" if phase == "mutating" else phase)
    assert here.run.phase == phase
    for command in (Begin, Prepared, Mutating, Mutated, Emitting, CommitConsumer):
        if command in EDGES[phase]:
            here.do(command)
        elif (phase, command) == ("prepared", Emitting):
            here.refuses("mutate_required", "PHASE-006", command)
        else:
            here.refuses("phase", "PHASE-001", command)


@pytest.mark.rule("PHASE-001")
def test_the_stations_end_in_a_commit() -> None:
    end = flow().deployed().event("m1").run_to("committed")
    assert end.run is None
    assert end.retired.run.phase == end.retired.run.status == STATIONS[-1]


@pytest.mark.rule("PHASE-002")
def test_a_producer_run_goes_from_pending_over_executing_to_committed() -> None:
    pending = flow().deployed().create("poll")
    assert pending.run.phase == "pending"
    executing = pending.refuses("phase", "PHASE-001", CommitProducer).do(Begin)
    assert executing.run.phase == "executing"
    committed = executing.refuses("phase", "PHASE-001", Begin).do(CommitProducer)
    assert committed.retired.run.phase == "committed"


@pytest.mark.rule("PHASE-003")
def test_begin_asks_for_the_handlers_first_function() -> None:
    deployed = flow().deployed()
    consumer = deployed.create("file").do(Begin)
    assert consumer.effects == (CallHandler(consumer.run.id, "file", "v1", "prepare"),)
    producer = deployed.create("poll").do(Begin)
    assert producer.effects == (CallHandler(producer.run.id, "poll", "v1", "producer"),)
    assert (consumer.run.phase, producer.run.phase) == ("preparing", "executing")


@pytest.mark.rule("PHASE-004")
def test_prepared_pins_inputs_data_and_title() -> None:
    preparing = flow().deployed().event("m1", "m2").run_to("preparing")
    keys = tuple(e.key for e in preparing.state.events[:1])
    prepared = preparing.do(Prepared, keys, '{"row":7}', "File m1")
    assert prepared.run.phase == "prepared"
    assert (prepared.run.reserved, prepared.run.data, prepared.run.title) == (keys, '{"row":7}', "File m1")
    assert prepared.events == {"m1": "reserved", "m2": "pending"}


@pytest.mark.rule("PHASE-005")
def test_mutating_needs_something_reserved_and_a_mutate() -> None:
    mutating = flow().deployed().event("m1").run_to("mutating")
    assert mutating.run.phase == "mutating"
    assert mutating.effects == (CallHandler(mutating.run.id, "file", "v1", "mutate"),)
    empty = flow().deployed().run_to("prepared")
    empty.refuses("nothing_reserved", "PHASE-005", Mutating)
    plain = flow().deployed(FILE._replace(has_mutate=False)).event("m1").run_to("prepared")
    plain.refuses("no_mutate", "PHASE-005", Mutating)


@pytest.mark.rule("PHASE-006")
def test_emitting_follows_prepared_only_when_there_is_nothing_to_mutate() -> None:
    nothing_reserved = flow().deployed().run_to("prepared").do(Emitting)
    no_mutate = flow().deployed(FILE._replace(has_mutate=False)).event("m1").run_to("prepared").do(Emitting)
    for emitting in (nothing_reserved, no_mutate):
        assert emitting.run.phase == "emitting"
        assert emitting.effects == (CallHandler(emitting.run.id, "file", "v1", "next"),)
    flow().deployed().event("m1").run_to("prepared").refuses("mutate_required", "PHASE-006", Emitting)


@pytest.mark.rule("PHASE-007")
def test_emitting_follows_mutated_unless_the_mutation_failed() -> None:
    applied = flow().deployed().event("m1").run_to("mutated").do(Emitting)
    assert applied.run.phase == "emitting"
    refused = flow().deployed().event("m1").run_to("in_flight").do(FailMutation, "call")
    assert (refused.run.phase, refused.run.outcome) == ("mutated", "failure")
    refused.refuses("mutation_failed", "PHASE-007", Emitting)


@pytest.mark.rule("PHASE-008")
def test_mutated_by_hand_only_when_no_tool_was_called() -> None:
    mutating = flow().deployed().event("m1").run_to("mutating")
    mutated = mutating.do(Mutated)
    assert (mutated.run.phase, mutated.run.outcome, mutated.record) == ("mutated", "", None)
    mutated.do(Emitting).do(CommitConsumer)
    mutating.do(RecordMutation, TOOL, "{}", True).refuses("record_exists", "MUT-003", Mutated)
