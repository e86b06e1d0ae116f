"""What should happen next: asked of the state, so that no crash can forget it."""

from typing import NamedTuple

from . import gate
from .boundary import unresolved
from .commands import Command, CreateRetry, CreateRun, Exhaust, FinishSession, StartSession
from .failures import row_of
from .runs import repairs
from .types import Effect, Handler, Reconcile, State


class Wait(NamedTuple):
    """Nothing to do before this time, unless a command comes in."""

    until: int
    reason: str


class Idle(NamedTuple):
    """Nothing to do until a command comes in; the reason says which."""

    reason: str


def schedule(state: State, now: int, fresh_id: str) -> Command | Wait | Idle:
    """The scheduler's next command (SCHED-002).

    Order: the pending retry; then consumers, the one with the oldest pending event first; then producers
    that are due. `fresh_id` names the session or run that it starts.
    """
    reason = gate.closed(state, now)
    if reason == "run_active":
        return Idle(reason)
    work = None if reason else next_work(state, now, fresh_id)
    session = state.session
    if session is not None and (not isinstance(work, CreateRun | CreateRetry) or spent(state)):
        return FinishSession(now, session.id)
    if reason == "backing_off":
        return Wait(state.backoff_until, reason)
    if reason:
        return Idle(reason)
    if work is None:
        return next_time(state)
    if session is None and not isinstance(work, Idle):
        return StartSession(now, fresh_id)
    return work


def spent(state: State) -> bool:
    return state.session is not None and state.session.runs >= state.policy.session_runs


def next_work(state: State, now: int, fresh_id: str) -> CreateRun | CreateRetry | Idle | None:
    session = state.session.id if state.session else ""
    retry = gate.pending_retry(state)
    if retry is not None:
        if row_of(state, retry) is None:
            return Idle("handler_removed")
        return CreateRetry(now, fresh_id, session, retry.id)
    due = [h for h in state.handlers if is_due(h, now)]
    if not due:
        return None
    return CreateRun(now, fresh_id, session, min(due, key=lambda h: precedence(state, h)).declared.name)


def is_due(row: Handler, now: int) -> bool:
    """Whether a handler has a reason to run (SCHED-004)."""
    if row.declared.kind == "consumer":
        return row.dirty or 0 < row.wake_at <= now
    return 0 <= row.due_at <= now


def precedence(state: State, row: Handler) -> tuple[bool, float]:
    """Consumers before producers; among them the oldest pending event, or the longest overdue (SCHED-002)."""
    if row.declared.kind == "producer":
        return True, row.due_at
    topics = row.declared.subscribes
    pending = [e.seq for e in state.events if e.status == "pending" and e.key.topic in topics]
    return False, min(pending, default=float("inf"))


def next_time(state: State) -> Wait | Idle:
    times = [h.wake_at for h in state.handlers if h.wake_at > 0] + [h.due_at for h in state.handlers if h.due_at >= 0]
    return Wait(min(times), "nothing_due") if times else Idle("nothing_due")


def upkeep(state: State, now: int) -> Command | Effect | Wait | Idle:
    """What the background owes this workflow: reconcile what is uncertain, repair what failed (SCHED-008)."""
    record = state.mutation
    if record is not None and unresolved(record) and not gate.active(state):
        if record.status == "indeterminate":
            return Idle("mutation_unresolved")
        if not record.reconcilable or record.attempts >= state.policy.reconcile_attempts:
            return Exhaust(now, record.run)
        if now < record.next_attempt_at:
            return Wait(record.next_attempt_at, "mutation_unresolved")
        return Reconcile(record.run, record.tool, record.params, record.key, "reconcile", now)
    work = repairs(state)
    return work[0] if work else Idle("nothing_due")
