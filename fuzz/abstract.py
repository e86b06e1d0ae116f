"""The finite picture of an unbounded world: names and times that can no longer matter are forgotten.

The kernel compares times and never measures them, and it compares a run's id with the live run's and no other.
So a state is as good as its picture, in which the clock stands at `NOW`, every time is over, soon, or later,
the live run is called r1, whoever is over r0, and counts stop where their limit is reached. Time passes by one
deadline at a time, in any order that the law allows, whatever the policy's numbers are.

That the picture loses nothing is tested: the pictures of all states that keep their history are the states that
are reached through pictures.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

from ..kernel.types import Error, Event, EventStatus, Handler, Key, Maintenance, Mutation, Request, Run, Session, State
from .setups import Setup

NOW: Final = 10_000_000
OVER: Final = NOW - 1
SOON: Final = 2 * NOW
LATER: Final = 3 * NOW

FRESH_RUN: Final = "r2"
STALE_RUN: Final = "r0"


def picture(state: State, setup: Setup) -> State:
    """What can still matter of a state."""
    live = state.run.id if state.run is not None else ""
    counts = setup.has("counts")
    policy = setup.policy
    limits = (policy.transient_retries + 1, policy.logic_failures) if counts else (0, 0)
    return state._replace(
        error=error(state.error, live),
        maintenance=maintenance(state.maintenance, live),
        backoff_until=ahead(state.backoff_until, 0) if counts else 0,
        grants=tuple(sorted(state.grants)),
        approvals=tuple(sorted(request(a) for a in state.approvals)),
        session=session(state.session, setup),
        run=run(state.run),
        mutation=record(state.mutation),
        handlers=tuple([handler(h, *limits) for h in state.handlers]),
        events=events(state.events, live, ordered=bool(setup.outputs)),
        next_seq=len(state.events) + 1,
    )


def timed(state: State) -> State:
    """A state that forgets nothing but the sizes of its times."""
    return state._replace(
        backoff_until=ahead(state.backoff_until, 0),
        mutation=None if state.mutation is None else timed_record(state.mutation),
        handlers=tuple(timed_row(h) for h in state.handlers),
    )


def ahead(time: int, over: int) -> int:
    return SOON if time > NOW else over


def renamed(run_id: str, live: str) -> str:
    return "" if not run_id else "r1" if run_id == live else STALE_RUN


def error(value: Error | None, live: str) -> Error | None:
    if value is None:
        return None
    asked = None if value.request is None else request(value.request)
    return value._replace(run=renamed(value.run, live), message="", request=asked)


def request(value: Request) -> Request:
    return value._replace(events=tuple(sorted(value.events)))


def maintenance(value: Maintenance | None, live: str) -> Maintenance | None:
    return None if value is None else value._replace(run=renamed(value.run, live), message="")


def session(value: Session | None, setup: Setup) -> Session | None:
    if value is None:
        return None
    runs = min(value.runs, setup.policy.session_runs) if setup.has("budget") else 0
    commits = min(value.commits, 1) if setup.has("budget") else 1
    return Session("s1", value.status, runs, commits)


@cache
def run(value: Run | None) -> Run | None:
    if value is None:
        return None
    return value._replace(
        id="r1",
        session="s1",
        retry_of=STALE_RUN if value.retry_of else "",
        created_at=NOW,
        reserved=tuple(sorted(value.reserved)),
        causes=(),
        message="",
    )


@cache
def record(value: Mutation | None) -> Mutation | None:
    if value is None:
        return None
    if value.status in ("applied", "failed"):
        return value._replace(run="r1", key="", send_by=OVER, may_land_until=OVER, attempts=0, next_attempt_at=0)
    return timed_record(value)._replace(run="r1", key="")


def timed_record(value: Mutation) -> Mutation:
    return value._replace(
        send_by=SOON if value.send_by >= NOW else OVER,
        may_land_until=LATER if value.may_land_until > NOW else OVER,
        next_attempt_at=next_attempt(value),
    )


def next_attempt(value: Mutation) -> int:
    """An attempt that waits for `may_land_until` is tied to it; any other time is on its own."""
    if value.next_attempt_at <= NOW:
        return 0
    return LATER if value.next_attempt_at == value.may_land_until else SOON


@cache
def handler(value: Handler, most_transient: int, most_logic: int) -> Handler:
    return timed_row(value)._replace(
        state="",
        transient_failures=min(value.transient_failures, most_transient),
        logic_failures=min(value.logic_failures, most_logic),
    )


def timed_row(value: Handler) -> Handler:
    return value._replace(
        wake_at=ahead(value.wake_at, 1) if value.wake_at else 0,
        due_at=ahead(value.due_at, 0) if value.due_at >= 0 else -1,
    )


def events(values: tuple[Event, ...], live: str, ordered: bool) -> tuple[Event, ...]:
    """Events in the order of their keys; their order of arrival matters only between two consumers."""
    known = sorted(values)
    rank = sorted(e.seq for e in known)
    return tuple(
        event(e.key, rank.index(e.seq) + 1 if ordered else n, e.status, renamed(e.owner, live))
        for n, e in enumerate(known, 1)
    )


@cache
def event(key: Key, seq: int, status: EventStatus, owner: str) -> Event:
    """An event of which only its place and status matter, and its owner while it has one."""
    return Event(key, seq, status, owner if status == "reserved" else "", "t", "1", "", ())


# --- time --------------------------------------------------------------------------------------------


def passing(state: State) -> Iterator[tuple[str, State]]:
    """Each deadline that may be the next to pass, but `may_land_until`, which waits for the call to settle."""
    if state.backoff_until > NOW:
        yield "the backoff", state._replace(backoff_until=0)
    if state.mutation is not None:
        if state.mutation.send_by > NOW and state.mutation.status != "failed":
            yield "the time to send", state._replace(mutation=state.mutation._replace(send_by=OVER))
        if state.mutation.next_attempt_at == SOON:
            yield "the wait for the next reconcile", state._replace(mutation=state.mutation._replace(next_attempt_at=0))
    for n, row in enumerate(state.handlers):
        if row.wake_at > NOW:
            yield f"the wait of {row.declared.name}", with_row(state, n, row._replace(wake_at=1))
        if row.due_at > NOW:
            yield f"the interval of {row.declared.name}", with_row(state, n, row._replace(due_at=0))


def with_row(state: State, n: int, row: Handler) -> State:
    return state._replace(handlers=(*state.handlers[:n], row, *state.handlers[n + 1 :]))


def landing_over(state: State) -> State | None:
    """`may_land_until` passes, and with it the attempt that waits for it; None when it is not the next to pass."""
    value = state.mutation
    if value is None or value.may_land_until <= NOW or value.send_by > NOW:
        return None
    due = 0 if value.next_attempt_at == LATER else value.next_attempt_at
    return state._replace(mutation=value._replace(may_land_until=OVER, next_attempt_at=due))


# --- symmetry ----------------------------------------------------------------------------------------


def exchanged(state: State, order: tuple[Key, ...]) -> State:
    """The state with its inputs renamed: the n-th takes the name of the n-th in `order`."""
    names = dict(zip(order, sorted(order), strict=True))

    def keys(values: tuple[Key, ...]) -> tuple[Key, ...]:
        return tuple(sorted(names.get(k, k) for k in values))

    def asked(value: Request) -> Request:
        return value._replace(events=keys(value.events))

    was = state.error
    return state._replace(
        events=tuple(
            event(names.get(e.key, e.key), n, e.status, e.owner)
            for n, e in enumerate(sorted(state.events, key=lambda e: names.get(e.key, e.key)), 1)
        ),
        run=None if state.run is None else state.run._replace(reserved=keys(state.run.reserved)),
        error=None if was is None else was._replace(request=asked(was.request) if was.request else None),
        approvals=tuple(sorted(asked(a) for a in state.approvals)),
    )
