"""What holds for every command on every state, shown on thousands of them.

Two sources: fixed walks, whose states are the same in every run, and walks that Hypothesis draws and shrinks. A third
test takes states that no walk can reach, because `step` promises to be total.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from values import tame
from walks import Tried, walk

from keepkernel import (
    COMMANDS,
    REASONS,
    Accepted,
    Command,
    Idle,
    Rejected,
    State,
    Wait,
    decode_command,
    decode_outcome,
    decode_state,
    encode,
    named,
    recover,
    schedule,
    step,
    upkeep,
)

NEVER_REFUSED = {"grant"}
"""A grant is the one command without a condition."""
some_walks = settings(derandomize=True, deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def states(tries: list[Tried]) -> list[State]:
    return list(dict.fromkeys(t.state for t in tries))


def drawn_walks(test):
    """Run a test of a list of tries on walks that Hypothesis draws."""
    walks = st.builds(lambda random: list(walk(random, 30)), st.randoms(use_true_random=False))
    return some_walks(given(tries=walks)(test))


# --- the walks are worth something -------------------------------------------------------------------


def test_the_walks_see_every_command_accepted_and_refused(tries: list[Tried], states: list[State]) -> None:
    names = {kind: name for name, kind in COMMANDS.items()}
    accepted = Counter(names[type(t.command)] for t in tries if isinstance(t.outcome, Accepted))
    refused = Counter(names[type(t.command)] for t in tries if isinstance(t.outcome, Rejected))
    assert accepted.keys() == COMMANDS.keys()
    assert refused.keys() == COMMANDS.keys() - NEVER_REFUSED
    assert len(states) > 5_000


def test_the_walks_see_most_reasons(tries: list[Tried]) -> None:
    seen = {t.outcome.reason for t in tries if isinstance(t.outcome, Rejected)}
    assert len(seen) > 40


# --- step --------------------------------------------------------------------------------------------


def check_outcome(tried: Tried) -> None:
    """A refusal is a reason with its rule; an acceptance cites rules; the question is not changed by asking."""
    state, command, outcome = tried
    before = hash(state)
    assert step(state, command) == outcome
    assert hash(state) == before
    if isinstance(outcome, Rejected):
        assert outcome.rule == REASONS[outcome.reason].rule
    else:
        assert outcome.rules
        hash(outcome)


@pytest.mark.rule("STEP-001")
@pytest.mark.rule("STEP-002")
def test_step_is_deterministic_and_refuses_with_reasons(tries: list[Tried]) -> None:
    for tried in tries:
        check_outcome(tried)


@pytest.mark.rule("STEP-001")
@pytest.mark.rule("STEP-002")
@drawn_walks
def test_step_is_deterministic_on_drawn_walks(tries: list[Tried]) -> None:
    for tried in tries:
        check_outcome(tried)


@pytest.mark.rule("STEP-001")
@settings(derandomize=True, deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
@given(state=tame(State), command=tame(Command))
def test_step_is_total_even_on_states_that_nobody_can_reach(state: State, command: Command) -> None:
    if state.run is not None and "run" in command._fields:
        command = command._replace(run=state.run.id)
    if state.session is not None and "session" in command._fields:
        command = command._replace(session=state.session.id)
    assert isinstance(step(state, command), Accepted | Rejected)


@pytest.mark.rule("CODEC-002")
def test_what_comes_out_of_a_walk_survives_the_codec(tries: list[Tried], states: list[State]) -> None:
    for state in states[::5]:
        assert decode_state(encode(state)) == state
    for tried in tries[::10]:
        command, outcome = decode_command(encode(tried.command)), decode_outcome(encode(tried.outcome))
        assert (type(command), command) == (type(tried.command), tried.command)
        assert (type(outcome), outcome) == (type(tried.outcome), tried.outcome)


# --- windows -----------------------------------------------------------------------------------------


def window(state: State, command: Command) -> State:
    """The least that a store must bring for this command."""
    needed = set(named(state, command))
    needed |= {e.key for e in state.events if state.run and e.status == "reserved" and e.owner == state.run.id}
    for topic in state.topics:
        pending = (e for e in state.events if e.status == "pending" and e.key.topic == topic)
        needed |= {e.key for e in [min(pending, key=lambda e: e.seq, default=None)] if e}
    return state._replace(events=tuple(e for e in state.events if e.key in needed))


def merged(state: State, small: State) -> State:
    """The whole state after a step on a window: the events of the window, put back among the others."""
    changed = {e.key: e for e in small.events}
    kept = [changed.pop(e.key, e) for e in state.events]
    return small._replace(events=(*kept, *changed.values()))


def check_window(tried: Tried) -> None:
    state, command, outcome = tried
    small = step(window(state, command), command)
    if isinstance(outcome, Rejected):
        assert small == outcome
    else:
        assert small._replace(state=merged(state, small.state)) == outcome
    assert schedule(window(state, command), command.now, "new") == schedule(state, command.now, "new")


@pytest.mark.rule("STEP-003")
def test_a_larger_window_changes_nothing(tries: list[Tried]) -> None:
    for tried in tries:
        check_window(tried)


@pytest.mark.rule("STEP-003")
@drawn_walks
def test_a_larger_window_changes_nothing_on_drawn_walks(tries: list[Tried]) -> None:
    for tried in tries:
        check_window(tried)


# --- schedule and recover ----------------------------------------------------------------------------


def check_plans(state: State, now: int) -> None:
    """What the scheduler and the background want is always accepted; a wait is always for a later time."""
    for plan in (schedule(state, now, "new"), upkeep(state, now)):
        if type(plan) in COMMANDS.values():
            assert isinstance(step(state, plan), Accepted), plan
        elif isinstance(plan, Wait):
            assert plan.until > now
        elif isinstance(plan, Idle):
            assert plan.reason in {*REASONS, "nothing_due"}


def check_recovery(state: State, now: int) -> None:
    """Recovery comes to its end in two commands at the most, each accepted, and then has nothing more to say."""
    commands = 0
    while wanted := recover(state, now):
        assert recover(state, now) == wanted
        outcome = step(state, wanted[0])
        assert isinstance(outcome, Accepted), wanted
        state = outcome.state
        commands += 1
        assert commands <= 2
    assert state.session is None
    assert state.run is None or state.run.status != "active"


@pytest.mark.rule("SCHED-002")
@pytest.mark.rule("SCHED-008")
def test_what_is_planned_is_accepted(tries: list[Tried]) -> None:
    for tried in tries:
        check_plans(tried.state, tried.command.now)


@pytest.mark.rule("REC-003")
def test_recovery_ends_after_any_prefix(tries: list[Tried]) -> None:
    for tried in tries:
        check_recovery(tried.state, tried.command.now)


@pytest.mark.rule("SCHED-002")
@pytest.mark.rule("REC-003")
@drawn_walks
def test_plans_and_recovery_on_drawn_walks(tries: list[Tried]) -> None:
    for tried in tries:
        check_plans(tried.state, tried.command.now)
        check_recovery(tried.state, tried.command.now)
