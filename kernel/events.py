"""What happens to events, always inside another transition and never by itself (EVENT-002)."""

from .policy import Policy
from .reasons import require
from .tables import EVENT_STATUS
from .types import (
    Declaration,
    Event,
    Handler,
    Key,
    Publication,
    Request,
    State,
)


def _moved(event: Event, trigger: str, owner: str) -> Event:
    status = EVENT_STATUS[event.status, trigger]
    return event._replace(status=status, owner=owner)


def _move_reserved(state: State, trigger: str, owner: str | None = None) -> State:
    """Move every event that the live run holds; `owner` stays unless another is given."""
    run = state.run.id if state.run else ""
    return state._replace(
        events=tuple(
            _moved(e, trigger, e.owner if owner is None else owner) if e.status == "reserved" and e.owner == run else e
            for e in state.events
        )
    )


def release(state: State) -> State:
    """The run's inputs are pending again, and its consumer has something to look at (EVENT-005)."""
    return _move_reserved(state, "release", "")


def consume(state: State) -> State:
    """The run's inputs are done (EVENT-006)."""
    return drop_approvals(_move_reserved(state, "consume"))


def skip(state: State) -> State:
    """A person gave the run's inputs up (EVENT-006)."""
    return drop_approvals(_move_reserved(state, "skip"))


def transfer(state: State, retry: str) -> State:
    """The retry run takes the inputs over (RETRY-003)."""
    return _move_reserved(state, "transfer", retry)


def skip_pending(state: State, keys: tuple[Key, ...]) -> State:
    """A person gives up those of these events that nobody has taken (USER-001)."""
    given_up = frozenset(keys)
    return drop_approvals(
        state._replace(
            events=tuple(
                _moved(e, "skip", "") if e.key in given_up and e.status == "pending" else e for e in state.events
            )
        )
    )


def reserve(state: State, run: str, consumer: Declaration, keys: tuple[Key, ...]) -> State:
    """Pin a run's inputs: all of them, or none (EVENT-003, EVENT-004)."""
    known = {e.key: e for e in state.events}
    for key in keys:
        require(key.topic in consumer.subscribes, "not_subscribed", key.topic)
        require(key in known, "event_unknown", key.id)
        require(known[key].status == "pending", "event_not_pending", key.id)
    chosen = frozenset(keys)
    require(len(chosen) == len(keys), "reserved_twice")
    return state._replace(events=tuple(_moved(e, "reserve", run) if e.key in chosen else e for e in state.events))


def roots(state: State, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """The root inputs behind these events, each once, in order (EVENT-011)."""
    chosen = frozenset(keys)
    return tuple(dict.fromkeys(root for e in state.events if e.key in chosen for root in e.causes or (e.key,)))


def publish(state: State, publications: tuple[Publication, ...], run: str, causes: tuple[Key, ...]) -> State:
    """Append events; a known id changes only while it is pending (EVENT-007 to EVENT-010)."""
    if not publications:
        return state
    events = {e.key: e for e in state.events}
    seq = state.next_seq
    touched: set[str] = set()
    for key, title, payload in publications:
        require(key.topic in state.topics, "topic_unknown", key.topic)
        require(bool(key.id) and bool(title.strip()), "title_missing", key.id)
        require_size(state.policy, payload)
        known = events.get(key)
        if known is None:
            events[key] = Event(key, seq, "pending", "", title, payload, run, causes)
            seq += 1
        elif known.status == "pending":
            events[key] = known._replace(title=title, payload=payload)
        else:
            continue
        touched.add(key.topic)
    return state._replace(
        events=tuple(events.values()),
        next_seq=seq,
        handlers=mark_dirty(state.handlers, frozenset(touched)),
    )


def mark_dirty(handlers: tuple[Handler, ...], topics: frozenset[str]) -> tuple[Handler, ...]:
    """The consumers of these topics have something to look at (SCHED-005)."""
    return tuple(h._replace(dirty=True) if not topics.isdisjoint(h.declared.subscribes) else h for h in handlers)


def drop_approvals(state: State) -> State:
    """An approval dies with the first of its events that is done: it could never be used (PERM-005)."""
    if not state.approvals:
        return state
    done = frozenset(e.key for e in state.events if e.status in ("consumed", "skipped"))
    return state._replace(approvals=_without(state.approvals, done))


def _without(approvals: tuple[Request, ...], keys: frozenset[Key]) -> tuple[Request, ...]:
    return tuple(a for a in approvals if keys.isdisjoint(a.events))


def add_approval(state: State, request: Request) -> State:
    """A new approval replaces what was approved for any of the same events (PERM-005)."""
    return state._replace(approvals=(*_without(state.approvals, frozenset(request.events)), request))


def require_size(policy: Policy, *texts: str) -> None:
    """Script data has a size limit (EVENT-009)."""
    for text in texts:
        require(len(text) <= policy.json_max_chars, "too_large", f"{len(text)} characters")
