"""What an answer tells: an acceptance the rules that it kept, a refusal what it is about."""

from collections import defaultdict

import pytest
from walks import Tried

from keepkernel import COMMANDS, Accepted, ClearError, Command, Exhaust, Rejected, step

NAMES = {kind: name for name, kind in COMMANDS.items()}

RULES = {
    "start_session": {"SESS-002"},
    "create_run": {"RUN-005 SCHED-003 SCHED-006"},
    "create_retry": {"RETRY-001 RETRY-002 RETRY-003"},
    "finish_session": {"SESS-004"},
    "run_now": {"USER-003"},
    "begin": {"PHASE-003"},
    "prepared": {"PHASE-004 EVENT-003 SCHED-007"},
    "mutating": {"PHASE-005"},
    "mutated": {"PHASE-008"},
    "emitting": {"PHASE-006 PHASE-007"},
    "commit_consumer": {"COMMIT-001 COMMIT-002"},
    "commit_producer": {"COMMIT-003 PROD-002 PROD-003"},
    "record_mutation": {"MUT-002 MUT-003 MUT-004"},
    "send_mutation": {"MUT-005 PERM-001 PERM-002"},
    "apply_mutation": {"MUT-008 MUT-010"},
    "fail_mutation": {"MUT-008 MUT-010 EVENT-005", "MUT-008 MUT-010 EVENT-005 FAIL-006"},
    "lose_track": {"MUT-007"},
    "reconcile_retry": {"MUT-011"},
    "exhaust": {"MUT-012"},
    "end_run": {"RUN-007 BOUND-004 SESS-005", "RUN-007 BOUND-005 SESS-005", "RUN-007 BOUND-006 SESS-005"},
    "try_again": {"MUT-013"},
    "didnt_happen": {"MUT-008 MUT-010 EVENT-005 FAIL-006"},
    "skip_mutation": {"MUT-008 MUT-015 EVENT-006"},
    "assert_applied": {"MUT-008 MUT-016"},
    "skip_event": {"USER-001 USER-002"},
    "approve": {"PERM-004 PERM-005"},
    "reject": {"PERM-004 PERM-006"},
    "grant": {"PERM-001 PERM-007"},
    "reconnect": {"PERM-008"},
    "pause": {"WORK-001"},
    "resume": {"WORK-001"},
    "clear_error": {"WORK-004"},
    "retry": {"USER-004"},
    "abandon": {"RETRY-005"},
    "deploy": {"WORK-006 WORK-007"},
    "publish": {"EVENT-007 EVENT-010"},
    "block_workflow": {"WORK-003"},
    "enter_maintenance": {"WORK-005"},
    "exit_maintenance": {"WORK-005"},
}
"""Command -> the rules that its acceptance may cite, by situation."""


def publications(command: Command) -> tuple:
    return getattr(command, "publications", None) or (command.publication,)


def keys(command: Command) -> tuple:
    return getattr(command, "reservations", None) or (command.key,)


DETAILS = {
    "run_unknown": lambda state, command: {command.run},
    "run_not_active": lambda state, command: {state.run.status},
    "wrong_kind": lambda state, command: {state.run.kind},
    "handler_unknown": lambda state, command: {command.handler},
    "handler_removed": lambda state, command: {state.run.handler},
    "id_in_use": lambda state, command: {command.run},
    "not_pending_retry": lambda state, command: {command.retry_of},
    "session_unknown": lambda state, command: {command.session},
    "session_spent": lambda state, command: {command.session},
    "phase": lambda state, command: {state.run.phase},
    "event_unknown": lambda state, command: {key.id for key in keys(command)},
    "event_not_pending": lambda state, command: {key.id for key in keys(command)},
    "not_subscribed": lambda state, command: {key.topic for key in keys(command)},
    "topic_unknown": lambda state, command: {p.key.topic for p in publications(command)} - {*state.topics},
    "title_missing": lambda state, command: {p.key.id for p in publications(command)},
    "too_large": lambda state, command: {"21 characters"},
    "cron_time": lambda state, command: {state.run.handler},
    "mutation_edge": lambda state, command: {state.mutation.status},
    "send_by_passed": lambda state, command: {str(state.mutation.send_by)},
    "not_granted": lambda state, command: {state.mutation.tool},
    "not_approved": lambda state, command: {state.mutation.digest},
    "bad_deadline": lambda state, command: {str(command.deadline_ms)},
    "author": lambda state, command: {getattr(command, "by", "reconcile" if isinstance(command, Exhaust) else "user")},
    "too_early": lambda state, command: {str(state.mutation.may_land_until)},
    "asked_later": lambda state, command: {str(command.asked_at)},
    "not_early": lambda state, command: {str(state.mutation.may_land_until)},
    "no_reconcile": lambda state, command: {state.mutation.tool},
    "cause_mismatch": lambda state, command: {command.cause},
    "nothing_asked": lambda state, command: {command.tool, state.mutation.tool if state.mutation else "", ""},
    "no_error": lambda state, command: {state.error.kind if state.error and isinstance(command, ClearError) else ""},
    "workflow_edge": lambda state, command: {state.status},
    "preparing": lambda state, command: {command.key.topic},
    "no_request": lambda state, command: {command.digest},
}
"""Reason -> what its detail may be; a reason that is not here says it all without one."""


@pytest.mark.rule("STEP-002")
def test_an_acceptance_cites_the_rules_of_its_situation(tries: list[Tried]) -> None:
    cited = defaultdict(set)
    for state, command, _ in tries:
        outcome = step(state, command)
        if isinstance(outcome, Accepted):
            cited[NAMES[type(command)]].add(" ".join(outcome.rules))
    assert cited == RULES


@pytest.mark.rule("STEP-002")
def test_the_detail_of_a_refusal_says_what_it_is_about(tries: list[Tried]) -> None:
    for state, command, _ in tries:
        outcome = step(state, command)
        if isinstance(outcome, Rejected) and outcome.reason != "bad_declaration":
            expected = DETAILS.get(outcome.reason, lambda state, command: {""})(state, command)
            assert outcome.detail in expected, (outcome, command)
