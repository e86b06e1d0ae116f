"""What scripts may do, as far as the kernel says it; the sandbox keeps the rest."""

from itertools import product
from typing import get_args

import pytest
from flow import flow, mail

from keepkernel import (
    CAPABILITIES,
    ApplyMutation,
    AssertApplied,
    CallHandler,
    Emitting,
    Mutated,
    Policy,
    Prepared,
    SkipMutation,
    allowed,
    classify,
)
from keepkernel.kernel.capabilities import Function, Operation

ALLOWED = {
    ("producer", "read"),
    ("producer", "publish"),
    ("prepare", "read"),
    ("prepare", "peek"),
    ("prepare", "get"),
    ("mutate", "mutate"),
    ("next", "publish"),
}


@pytest.mark.rule("SCRIPT-001")
def test_each_function_has_its_operations_and_no_others() -> None:
    table = product(get_args(Function), get_args(Operation))
    assert {(function, operation) for function, operation in table if allowed(function, operation)} == ALLOWED
    assert {(f, o) for f, operations in CAPABILITIES.items() for o in operations} == ALLOWED
    assert classify("forbidden", sent=False).status == "failed:logic"


@pytest.mark.rule("SCRIPT-002")
def test_nothing_comes_after_the_mutation() -> None:
    for operation in get_args(Operation):
        assert not allowed("mutate", operation, ("mutate",))
    assert allowed("prepare", "read", ("read", "peek"))


@pytest.mark.rule("SCRIPT-003")
def test_the_call_is_the_hosts_and_its_answer_never_goes_back_to_mutate() -> None:
    recorded = flow().deployed().event("m1").run_to("recorded")
    answered = recorded.run_to("in_flight").do(ApplyMutation, "call")
    assert (recorded.effects, answered.effects) == ((), ())
    assert answered.do(Emitting).effects[0].function == "next"


@pytest.mark.rule("SCRIPT-004")
def test_mutate_may_decide_to_call_nothing() -> None:
    mutating = flow().deployed().event("m1").run_to("mutating")
    assert mutating.effects == (CallHandler(mutating.run.id, "file", "v1", "mutate"),)
    assert mutating.run.data == '{"a":1}'
    assert mutating.do(Mutated).run.outcome == ""


@pytest.mark.rule("SCRIPT-005")
def test_only_state_prepared_data_and_result_outlive_a_call() -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    assert (emitting.run.data, emitting.run.result, emitting.row().state) == ('{"a":1}', '"ok"', "")
    fresh = emitting.run_to("committed").create()
    assert (fresh.run.data, fresh.run.result) == ("null", "")


@pytest.mark.rule("SCRIPT-006")
def test_a_prepare_takes_from_its_own_topics_and_a_peek_has_limits() -> None:
    preparing = flow().deployed().event("m1").create("tell").run_to("preparing")
    preparing.refuses("not_subscribed", "EVENT-004", Prepared, mail("m1"))
    assert (Policy().peek_default, Policy().peek_max) == (100, 1_000)


@pytest.mark.rule("SCRIPT-007")
def test_next_is_told_what_became_of_the_mutation() -> None:
    applied = flow().deployed().event("m1").run_to("emitting").run
    assert (applied.outcome, applied.result) == ("success", '"ok"')
    unknown = flow().deployed().uncertain(reconcilable=False)
    asserted = unknown.do(AssertApplied).retry().run
    assert (asserted.outcome, asserted.result) == ("success", "null")
    skipped = unknown.do(SkipMutation).retry().run
    assert (skipped.outcome, skipped.result) == ("skipped", "")
    nothing = flow().deployed().event("m1").run_to("mutating").do(Mutated).do(Emitting).run
    assert (nothing.outcome, nothing.result) == ("", "")


@pytest.mark.rule("SCRIPT-008")
def test_a_request_shows_what_the_host_saw_and_not_the_scripts_title() -> None:
    preparing = flow().deployed(mode="ask").event("m1").run_to("preparing")
    recorded = preparing.do(Prepared, mail("m1"), title="A harmless note").run_to("recorded")
    request = recorded.end("paused:approval", cause="request").error.request
    assert (request.tool, request.digest) == (recorded.record.tool, recorded.record.digest)
    assert recorded.run.title not in request


@pytest.mark.rule("SCRIPT-009")
def test_a_call_of_a_function_has_a_time_limit() -> None:
    assert Policy().handler_call_ms == 300_000
    assert classify("limit", sent=False).status == "failed:logic"
