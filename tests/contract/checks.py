"""The contract of stores, one check each. `test_stores.py` runs them on every store, `test_broken.py` on broken ones.

A check takes a place, opens stores there as it likes, and fails when a promise of `kernel.ports.Store` is broken.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from contract.places import Dies, Kind, Place
from flow import FILE, POLL, START, TELL, TOOL, TOPICS, mail
from walks import POLICY, walk

from keepkernel import (
    Accepted,
    Begin,
    Command,
    CreateRun,
    Deploy,
    EndRun,
    Event,
    FinishSession,
    Grant,
    Key,
    Pause,
    Policy,
    Prepared,
    Publication,
    Publish,
    RecordMutation,
    Resume,
    Retired,
    StartSession,
    State,
    new_workflow,
    step,
)
from keepkernel.adapters.points import SimulatedCrash
from keepkernel.kernel.commands import Mutating
from keepkernel.kernel.ports import (
    Change,
    Conflict,
    Done,
    LeaseLost,
    Loaded,
    Store,
    Transition,
    UnknownWorkflow,
    change_of,
)

Check = Callable[[Place], None]


# --- helpers -----------------------------------------------------------------------------------------


@contextmanager
def opened(place: Place) -> Iterator[Store]:
    """A store that is closed in order."""
    store = place.open()
    yield store
    store.close()


def change_for(store: Store, command: Command, name: str, workflow: str = "w") -> Change:
    """What an accepted command asks the store to write."""
    return change_for_all(store, (command,), name, workflow)


def change_for_all(store: Store, commands: Sequence[Command], name: str, workflow: str = "w") -> Change:
    """The same for several, of which only the first names events that are there already."""
    loaded = store.load(workflow, commands[0])
    state, steps = loaded.state, []
    for command in commands:
        outcome = step(state, command)
        assert isinstance(outcome, Accepted), f"{command} was refused: {outcome}"
        steps.append((command, outcome))
        state = outcome.state
    return change_of(name, loaded, *steps)


def do(store: Store, *commands: Command, workflow: str = "w") -> None:
    """Commands that are accepted, each under an id of its own."""
    for command in commands:
        change = change_for(store, command, f"change {store.load(workflow).version}", workflow)
        assert store.commit(change) == change.base + 1


def publish(topic: str, name: str, title: str = "a title", payload: str = "{}") -> Publish:
    return Publish(START, Publication(Key(topic, name), title, payload))


BEGINNING = (Deploy(START, "v1", TOPICS, (FILE, TELL, POLL)), Resume(START), Grant(START, TOOL))
RUN = (StartSession(START, "s1"), CreateRun(START, "r1", "s1", "file"), Begin(START, "r1"))
CRASHED = EndRun(START, "r1", "crashed", "why")


def begun(store: Store, workflow: str = "w") -> Store:
    """A workflow at work."""
    store.create(workflow, Policy())
    do(store, *BEGINNING, workflow=workflow)
    return store


def pages(page: Callable[[int], tuple[Any, ...]], place_of: Callable[[Any], int]) -> list[Any]:
    """All of a list, page by page."""
    found: list[Any] = []
    while more := page(place_of(found[-1]) if found else 0):
        found += more
    return found


def contents(store: Store, workflow: str = "w", limit: int = 100) -> tuple[Any, ...]:
    """Everything that a store tells of a workflow."""
    loaded = store.load(workflow)
    return (
        loaded,
        pages(lambda after: store.events(workflow, after, limit), lambda event: event.seq),
        *(
            pages(lambda after, of=of: of(workflow, after, limit), lambda row: row[0])
            for of in (store.runs, store.mutations, store.sessions, store.transitions)
        ),
    )


# --- workflows ---------------------------------------------------------------------------------------


def creates_and_lists(place: Place) -> None:
    with opened(place) as store:
        names = ["b", "a", "ä", "Z", "🎈", "a b", "a'b", "\uffff"]
        assert [store.create(name, Policy()) for name in (*names, "a")] == [True] * len(names) + [False]
        ordered = tuple(sorted(names))
        assert store.workflows() == ordered
        assert store.workflows(limit=3) == ordered[:3]
        assert store.workflows(after=ordered[2], limit=3) == ordered[3:6]
        assert store.workflows(after=ordered[-1]) == ()


def a_new_workflow_is_a_draft(place: Place) -> None:
    with opened(place) as store:
        store.create("w", POLICY)
        store.create("w", Policy())
        assert store.load("w") == Loaded(new_workflow("w", POLICY), 0)
        assert contents(store)[1:] == ([], [], [], [], [])


def an_unknown_workflow_is_named(place: Place) -> None:
    with opened(place) as store:
        begun(store, "other")
        change = change_for(store, Pause(START), "change", "other")
        for ask in (
            lambda: store.load("w"),
            lambda: store.commit(change._replace(workflow="w", head=change.head._replace(workflow="w"))),
            lambda: store.lease("w", "host", 10),
            lambda: store.peek("w", "mail", 10),
            lambda: store.get("w", Key("mail", "m")),
            lambda: store.events("w"),
            lambda: store.runs("w"),
            lambda: store.mutations("w"),
            lambda: store.sessions("w"),
            lambda: store.transitions("w"),
        ):
            with pytest.raises(UnknownWorkflow, match="w"):
                ask()


def workflows_do_not_mix(place: Place) -> None:
    with opened(place) as store:
        begun(store, "one")
        begun(store, "two")
        do(store, publish("mail", "m1", "of one"), *RUN, workflow="one")
        do(store, publish("mail", "m1", "of two"), workflow="two")
        do(store, CRASHED, workflow="one")
        assert [event_of(store, "m1", name).title for name in ("one", "two")] == ["of one", "of two"]
        assert (len(store.runs("one")), store.runs("two")) == (1, ())
        assert [len(store.transitions(name)) for name in ("one", "two")] == [8, 4]
        assert [event.title for event in store.load("two").state.events] == ["of two"]


# --- commits -----------------------------------------------------------------------------------------


def a_commit_is_seen(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        before = store.load("w")
        change = change_for(store, publish("mail", "m1"), "change")
        assert store.commit(change) == before.version + 1
        after = store.load("w")
        assert after == Loaded(change.head._replace(events=change.events), before.version + 1)
        [(command, rules, _)] = change.done
        line = Transition(after.version, command.now, command, rules)
        assert store.transitions("w", before.version) == (line,)


def of_two_commits_on_one_version_one_wins(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        first = change_for(store, publish("mail", "m1"), "first")
        second = change_for(store, Pause(START), "second")
        store.commit(first)
        there = contents(store)
        with pytest.raises(Conflict, match="load it again"):
            store.commit(second)
        assert contents(store) == there
        store.commit(change_for(store, Pause(START), "second, again"))
        assert store.load("w").state.status == "paused"


def a_commit_from_the_future_is_a_conflict(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        there = contents(store)
        change = change_for(store, Pause(START), "change")
        with pytest.raises(Conflict):
            store.commit(change._replace(base=change.base + 1))
        assert contents(store) == there


def a_lost_answer_is_recognised(place: Place) -> None:
    """The same change again is the same version, also when others came in between or took the lease over."""
    with opened(place) as store:
        begun(store)
        lease = store.lease("w", "host", 10)
        change = change_for(store, publish("mail", "m1"), "change")
        version = store.commit(change, lease)
        there = contents(store)
        assert store.commit(change, lease) == version
        assert contents(store) == there
        do(store, publish("mail", "m2"), Pause(START))
        place.clock.at += 10
        assert store.lease("w", "another", 10) is not None
        there = contents(store)
        assert store.commit(change, lease) == version
        assert contents(store) == there
        with pytest.raises(LeaseLost):
            store.commit(change._replace(id="another"), lease)


def a_change_of_several_commands_is_one_whole(place: Place) -> None:
    """A line for each command, each with the rows that went into history with it; all of them, or none."""
    with opened(place) as store:
        begun(store)
        do(store, publish("mail", "m1"), publish("mail", "m2"))
        commands = (
            Prepared(START, "r1", mail("m1")),
            Mutating(START, "r1"),
            RecordMutation(START, "r1", TOOL, "{}", True),
        )
        commands += (CRASHED, StartSession(START + 10_000, "s2"), FinishSession(START + 10_000, "s2"))
        do(store, *RUN)
        change, late = change_for_all(store, commands, "change"), change_for_all(store, commands, "late")
        base = change.base
        assert store.commit(change) == change.version == base + 6
        loaded = store.load("w")
        assert (loaded.version, headed(loaded.state)) == (base + 6, change.head)
        assert [(line.version, line.command) for line in store.transitions("w", base)] == [
            *enumerate(commands, base + 1)
        ]
        assert store.transitions("w", base + 2, 2) == tuple(
            Transition(base + n, done.command.now, done.command, done.rules)
            for n, done in enumerate(change.done, 1) if n in (3, 4)
        )  # fmt: skip
        assert [(at, run.status) for at, run in store.runs("w")] == [(base + 4, "crashed")]
        assert [(at, record.resolved_by) for at, record in store.mutations("w")] == [(base + 4, "never_sent")]
        assert [(at, session.id) for at, session in store.sessions("w")] == [(base + 4, "s1"), (base + 6, "s2")]
        assert [event_of(store, name).status for name in ("m1", "m2")] == ["pending", "pending"]
        there = contents(store)
        assert store.commit(change) == base + 6, "the same change again"
        for stale in (late, late._replace(base=base + 1), late._replace(base=base + 5)):
            with pytest.raises(Conflict):
                store.commit(stale)
        assert contents(store) == there


def commits_with_many_events_are_whole(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        events = fill(store, "mail", 1_500)
        assert pages(lambda after: store.events("w", after, 700), lambda event: event.seq) == list(events)


def what_is_published_again_is_as_it_was_last(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        do(store, publish("mail", "m1", "first", "1"), publish("mail", "m1", "second", "2"))
        event = event_of(store, "m1")
        assert (event.title, event.payload) == ("second", "2")


def event_of(store: Store, name: str, workflow: str = "w") -> Event:
    event = store.get(workflow, Key("mail", name))
    assert event is not None, f"{name} is not there"
    return event


def fill(store: Store, topic: str, count: int) -> tuple[Event, ...]:
    """Many pending events in one commit, as a producer's commit would bring them."""
    state, version = store.load("w")
    numbers = range(state.next_seq, state.next_seq + count)
    events = tuple(Event(Key(topic, f"{topic}{n}"), n, "pending", "", "title", "{}", "", ()) for n in numbers)
    head = state._replace(events=(), next_seq=state.next_seq + count)
    store.commit(Change(f"fill {version}", "w", version, (Done(Resume(START), (), Retired()),), head, events))
    return events


STRANGE = (
    "a'b\"c`;--",
    "Zoë 🎈",
    "nul\0inside",
    "line\nbreak\ttab\r",
    "\\u0000 %s ? $1 :a {} \\",
    " ",
    "\uffff",
    "NULL",
)


def strange_texts_come_back(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        long = '"' + "é" * 300_000 + '"'
        for name in STRANGE:
            do(store, publish("mail", name, f"title {name}", long))
        found = [event_of(store, name) for name in STRANGE]
        assert [(e.key.id, e.title, e.payload) for e in found] == [(n, f"title {n}", long) for n in STRANGE]
        assert [e.key.id for e in store.peek("w", "mail", 100)] == list(STRANGE)
        do(store, *RUN, Prepared(START, "r1", mail(*STRANGE), long, STRANGE[2]))
        assert {e.key.id for e in store.load("w").state.events if e.status == "reserved"} == set(STRANGE)
        do(store, EndRun(START, "r1", "paused:transient", "".join(STRANGE)))
        assert store.runs("w")[0][1].message == "".join(STRANGE)
        assert store.runs("w")[0][1].data == long


# --- leases ------------------------------------------------------------------------------------------


def of_two_hosts_one_gets_the_lease(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        held = store.lease("w", "one", 100)
        assert held == ("w", "one", held.token, START + 100)
        assert store.lease("w", "two", 100) is None
        place.clock.at += 60
        renewed = store.lease("w", "one", 100)
        assert renewed == held._replace(expires_at=START + 160)
        place.clock.at += 99
        assert store.lease("w", "two", 100) is None
        place.clock.at += 1
        taken = store.lease("w", "two", 100)
        assert (taken.host, taken.token > held.token) == ("two", True)
        assert store.lease("w", "one", 100) is None


def who_lost_the_lease_can_not_commit(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        old = store.lease("w", "one", 10)
        store.commit(change_for(store, publish("mail", "m1"), "first"), old)
        late = change_for(store, publish("mail", "m2"), "late")
        place.clock.at += 10
        new = store.lease("w", "two", 10)
        there = contents(store)
        with pytest.raises(LeaseLost, match="two"):
            store.commit(late, old)
        assert contents(store) == there
        store.release(old)
        assert store.lease("w", "one", 10) is None, "who lost a lease can not give it back"
        store.commit(late, new)
        do(store, Pause(START))  # People need no lease.


def a_lease_that_ran_out_is_another(place: Place) -> None:
    """Someone may have driven the workflow in between, even when the same host comes back."""
    with opened(place) as store:
        begun(store)
        first = store.lease("w", "one", 10)
        place.clock.at += 10
        assert store.lease("w", "one", 10).token > first.token
        with pytest.raises(LeaseLost):
            store.commit(change_for(store, Pause(START), "change"), first)


def a_released_lease_is_free(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        first = store.lease("w", "one", 100)
        store.release(first)
        second = store.lease("w", "two", 100)
        assert second.token > first.token
        with pytest.raises(LeaseLost):
            store.commit(change_for(store, Pause(START), "change"), first)


# --- windows and pages -------------------------------------------------------------------------------


def the_window_holds_what_a_command_needs(place: Place) -> None:
    """Reserved events, the oldest pending one of each topic, and those that the command names; hardly more."""
    with opened(place) as store:
        begun(store)
        do(store, publish("mail", "m1"), publish("mail", "m2"), *RUN, Prepared(START, "r1", mail("m1", "m2")))
        mails, others = fill(store, "mail", 2_000), fill(store, "done", 2_000)
        needed = {*mail("m1", "m2"), mails[0].key, others[0].key}
        seen = store.load("w").state.events
        assert {event.key for event in seen} == needed
        assert [event.seq for event in seen] == sorted(event.seq for event in seen)
        far = mails[1_700].key
        named = store.load("w", Publish(START, Publication(far, "title", "{}"))).state.events
        assert {event.key for event in named} == needed | {far}
        new = store.load("w", publish("mail", "new")).state.events
        assert new == seen
        two = tuple(event.key for event in (mails[5], others[7]))
        prepared = store.load("w", Prepared(START, "r1", two)).state.events
        assert {event.key for event in prepared} == needed | {*two}


def a_run_may_hold_many_inputs(place: Place) -> None:
    """They are all in the window, whatever the command, and all go back when it ends."""
    with opened(place) as store:
        begun(store)
        keys = {event.key for event in fill(store, "mail", 1_500)}
        do(store, *RUN, Prepared(START, "r1", tuple(keys)))
        assert {event.key for event in store.load("w").state.events if event.status == "reserved"} == keys
        do(store, CRASHED)
        assert {event.key for event in store.peek("w", "mail", 2_000)} == keys


def peek_gives_pending_events_in_order(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        do(store, *(publish("mail" if n % 3 else "done", f"e{99 - n}") for n in range(30)))
        do(store, *RUN, Prepared(START, "r1", (Key("mail", "e95"), Key("mail", "e98"))))
        wanted = [event for event in store.events("w") if event.key.topic == "mail" and event.status == "pending"]
        assert len(wanted) == 18
        assert store.peek("w", "mail", 5) == tuple(wanted[:5])
        assert pages(lambda after: store.peek("w", "mail", 4, after), lambda event: event.seq) == wanted
        assert store.peek("w", "spam", 5) == ()
        assert event_of(store, "e98").status == "reserved"
        assert store.get("w", Key("mail", "nothing")) is None


def pages_are_the_whole(place: Place) -> None:
    """Small pages and large ones tell the same, none of it twice."""
    with opened(place) as store:
        through(store, seed=8, turns=300)
        small, large = contents(store, limit=2), contents(store, limit=10_000)
        assert small == large
        assert all(len(found) > 2 for found in large[1:]), "too little happened"
        assert [row.version for row in large[5]] == list(range(1, large[0].version + 1))
        assert [event.seq for event in large[1]] == list(range(1, large[0].state.next_seq))


def the_clock_never_goes_back(place: Place) -> None:
    with opened(place) as store:
        times = []
        for at in (START, START + 5, START + 3, 0, START + 5, START + 9):
            place.clock.at = at
            times.append(store.now() - START)
        assert times == [0, 5, 5, 5, 5, 9]


# --- walks -------------------------------------------------------------------------------------------


def through(store: Store, seed: int, turns: int) -> tuple[Any, ...]:
    """Drive a random walk through a store; every answer is the one that the whole state gives (STEP-003).

    Gives what the store must hold in the end.
    """
    store.create("w", POLICY)
    version, state = 0, new_workflow("w", POLICY)
    history = History()
    for tried in walk(Random(seed), turns):
        loaded = store.load("w", tried.command)
        assert loaded.version == version
        assert headed(loaded.state) == headed(tried.state)
        outcome = step(loaded.state, tried.command)
        if not isinstance(tried.outcome, Accepted):
            assert outcome == tried.outcome
            continue
        assert isinstance(outcome, Accepted)
        assert (headed(outcome.state), *outcome[1:]) == (headed(tried.outcome.state), *tried.outcome[1:])
        version = store.commit(change_of(f"change {version}", loaded, (tried.command, outcome)))
        history.add(version, tried.command, outcome)
        state = tried.outcome.state
    return history.end(version, state)


def through_in_bunches(store: Store, seed: int, turns: int) -> tuple[Any, ...]:
    """The same walk, with up to five commands in a change."""
    store.create("w", POLICY)
    random, history = Random(seed), History()
    base = Loaded(new_workflow("w", POLICY), 0)
    steps: list[tuple[Command, Accepted]] = []
    for tried in walk(Random(seed), turns):
        if not isinstance(tried.outcome, Accepted):
            continue
        steps.append((tried.command, tried.outcome))
        history.add(base.version + len(steps), *steps[-1])
        if random.random() < 0.3 or len(steps) == 5:
            version = store.commit(change_of(f"change {base.version}", base, *steps))
            base, steps = Loaded(tried.outcome.state, version), []
            loaded = store.load("w")
            assert (loaded.version, headed(loaded.state)) == (version, headed(base.state))
    if steps:
        base = Loaded(steps[-1][1].state, store.commit(change_of("the last", base, *steps)))
    return history.end(base.version, base.state)


class History:
    """What a store must show of the past."""

    def __init__(self) -> None:
        self.rows: tuple[list[Any], ...] = ([], [], [], [])

    def add(self, version: int, command: Command, outcome: Accepted) -> None:
        for rows, row in zip(self.rows, outcome.retired, strict=False):
            if row is not None:
                rows.append((version, row))
        self.rows[3].append(Transition(version, command.now, command, outcome.rules))

    def end(self, version: int, state: State) -> tuple[Any, ...]:
        return (version, headed(state), sorted(state.events, key=lambda event: event.seq), *self.rows)


def headed(state: State) -> State:
    return state._replace(events=())


def a_walk_leaves_what_the_kernel_says(place: Place) -> None:
    for seed in range(12):
        with opened(place.fresh()) as store:
            wanted = through(store, seed, turns=60)
            loaded, *rest = contents(store)
            assert (loaded.version, headed(loaded.state), *rest) == wanted


def a_walk_in_bunches_leaves_the_same(place: Place) -> None:
    for seed in range(12):
        with opened(place.fresh()) as store:
            wanted = through_in_bunches(store, seed, turns=60)
            loaded, *rest = contents(store)
            assert (loaded.version, headed(loaded.state), *rest) == wanted


# --- what outlives the process -----------------------------------------------------------------------


def a_closed_store_opens_the_same(place: Place) -> None:
    with opened(place) as store:
        through(store, seed=5, turns=60)
        there = contents(store)
    with opened(place) as store:
        assert contents(store) == there
        assert store.workflows() == ("w",)


def what_is_acknowledged_survives_a_death(place: Place) -> None:
    """Nothing happens between the answer and the death, not even a look."""
    store = begun(place.open())
    for name in ("m1", "m2", "m3"):
        change = change_for(store, publish("mail", name), name)
        store.commit(change)
        store.drop()
        store = place.open()
        loaded = store.load("w", publish("mail", name))
        assert (loaded.version, headed(loaded.state)) == (change.base + 1, change.head)
        assert event_of(store, name) == change.events[0]
        assert store.transitions("w", change.base)[0].command == change.done[0].command
    store.create("another", Policy())
    store.drop()
    store = place.open()
    assert store.workflows() == ("another", "w")
    store.drop()


def a_lease_is_never_held_twice_over_a_death(place: Place) -> None:
    """It is still held, or it is over for good: a store that only one process can open may forget who died with it."""
    store = begun(place.open())
    old = store.lease("w", "one", 100)
    store.drop()
    with opened(place) as store:
        new = store.lease("w", "two", 100)
        change = change_for(store, Pause(START), "change")
        if new is None:
            assert store.commit(change, old) == change.base + 1
        else:
            assert new.token > old.token
            with pytest.raises(LeaseLost):
                store.commit(change, old)


def the_clock_does_not_go_back_at_an_open(place: Place) -> None:
    with opened(place) as store:
        begun(store)
        place.clock.at = START + 500
        do(store, Pause(store.now()), Resume(START + 100))  # The second was asked for before the first, and came late.
    place.clock.at = START
    with opened(place) as store:
        assert store.now() == START + 500


def one_name_in_two_topics_is_two_events(place: Place) -> None:
    """Whatever is brought from one table into another in between."""
    both = [publish(topic, "m1", topic) for topic in ("mail", "done")]
    with opened(place) as store:
        begun(store)
        do(store, *both)
    with opened(place) as store:
        do(store, *RUN, Prepared(START, "r1", mail("m1")))
    with opened(place) as store:
        found = [(event.title, event.status) for event in store.events("w")]
        assert found == [("mail", "reserved"), ("done", "pending")]
        assert [event.title for event in store.load("w").state.events] == ["mail", "done"]


# --- what several processes share --------------------------------------------------------------------


@contextmanager
def opened_twice(place: Place) -> Iterator[tuple[Store, Store]]:
    """One store, as two processes have it."""
    with opened(place) as one, opened(place) as two:
        yield begun(one), two


def what_one_writes_the_other_sees(place: Place) -> None:
    with opened_twice(place) as (one, two):
        for turn in range(3):
            writer, reader = (one, two) if turn % 2 else (two, one)
            do(writer, publish("mail", f"m{turn}"), Pause(START), Resume(START))
            assert contents(reader) == contents(writer)
            assert reader.peek("w", "mail", 10) == writer.peek("w", "mail", 10)
        two.create("another", Policy())
        assert one.workflows() == ("another", "w")
        assert not one.create("another", Policy())


def of_two_processes_on_one_version_one_wins(place: Place) -> None:
    with opened_twice(place) as (one, two):
        late, change = change_for(one, Pause(START), "late"), change_for(two, publish("mail", "m1"), "change")
        version = two.commit(change)
        there = contents(two)
        with pytest.raises(Conflict):
            one.commit(late)
        assert one.commit(change) == version, "whoever tries it again, it was done"
        assert contents(one) == contents(two) == there


def who_lost_the_lease_to_another_process_can_not_commit(place: Place) -> None:
    with opened_twice(place) as (one, two):
        old = one.lease("w", "one", 10)
        assert two.lease("w", "two", 10) is None
        change = change_for(one, publish("mail", "m1"), "change")
        place.clock.at += 10
        new = two.lease("w", "two", 10)
        assert new.token > old.token
        assert one.lease("w", "one", 10) is None
        with pytest.raises(LeaseLost, match="two"):
            one.commit(change, old)
        one.release(old)
        assert one.lease("w", "one", 10) is None
        assert two.commit(change, new) == change.version


CHANGES: tuple[tuple[Command, ...], ...] = (
    *((command,) for command in BEGINNING),
    (publish("mail", "m1"), publish("mail", "m2")),
    RUN[:1],
    RUN[1:],
    (Prepared(START, "r1", mail("m1", "m2")),),
    (Mutating(START, "r1"), RecordMutation(START, "r1", TOOL, "{}", True), CRASHED),
)
"""Some of several commands. The last sends a run, a record and a session into history, and releases two events."""
STORY = tuple(command for commands in CHANGES for command in commands)


def dying_anywhere_leaves_all_or_nothing(place: Place) -> None:
    """At every point that the store passes: what was acknowledged is there, what was not is there whole or not at all,
    the same change again is made once, and the story comes to the same end."""
    clean, told = Dies(), Told()
    live(place.fresh(), clean, told)
    assert len(clean.passed) > 3 * len(CHANGES)
    for number, point in enumerate(clean.passed, 1):
        there, broken_off = place.fresh(), Told()
        with pytest.raises(SimulatedCrash):
            live(there, Dies(number), broken_off)
        where = f"after dying at point {number}, {point}"
        with opened(there) as store:
            if store.workflows() or broken_off.seen:
                now = contents(store)
                assert now in told.seen[max(0, len(broken_off.seen) - 1) :][:2], where
            if broken_off.asked:
                change = broken_off.asked[-1]
                assert store.commit(change) == change.version, where
                assert contents(store) == told.seen[len(broken_off.asked)], where
            tell(store, Told())
            assert contents(store) == told.seen[-1], where


class Told:
    """What was asked of a store, and what was there at first and after each acknowledgement."""

    def __init__(self) -> None:
        self.asked: list[Change] = []
        self.seen: list[tuple[Any, ...]] = []


def live(place: Place, dies: Dies, told: Told) -> None:
    """One process, from open to close, or to its death."""
    store = None
    try:
        store = place.open(dies)
        tell(store, told)
        store.close()
    except SimulatedCrash:
        if store is not None:
            store.drop()
        raise


def tell(store: Store, told: Told) -> None:
    """The story, from wherever it stands to its end."""
    store.create("w", Policy())
    told.seen.append(contents(store))
    version = 0
    for commands in CHANGES:
        if store.load("w").version == version:
            told.asked.append(change_for_all(store, commands, f"change {version}"))
            store.commit(told.asked[-1])
            told.seen.append(contents(store))
        version += len(commands)


CHECKS: tuple[Check, ...] = (
    creates_and_lists,
    a_new_workflow_is_a_draft,
    an_unknown_workflow_is_named,
    workflows_do_not_mix,
    a_commit_is_seen,
    of_two_commits_on_one_version_one_wins,
    a_commit_from_the_future_is_a_conflict,
    a_lost_answer_is_recognised,
    a_change_of_several_commands_is_one_whole,
    commits_with_many_events_are_whole,
    what_is_published_again_is_as_it_was_last,
    strange_texts_come_back,
    of_two_hosts_one_gets_the_lease,
    who_lost_the_lease_can_not_commit,
    a_lease_that_ran_out_is_another,
    a_released_lease_is_free,
    the_window_holds_what_a_command_needs,
    a_run_may_hold_many_inputs,
    peek_gives_pending_events_in_order,
    pages_are_the_whole,
    the_clock_never_goes_back,
    a_walk_leaves_what_the_kernel_says,
    a_walk_in_bunches_leaves_the_same,
)
DURABLE_CHECKS: tuple[Check, ...] = (
    a_closed_store_opens_the_same,
    what_is_acknowledged_survives_a_death,
    a_lease_is_never_held_twice_over_a_death,
    the_clock_does_not_go_back_at_an_open,
    one_name_in_two_topics_is_two_events,
    dying_anywhere_leaves_all_or_nothing,
)
SHARED_CHECKS: tuple[Check, ...] = (
    what_one_writes_the_other_sees,
    of_two_processes_on_one_version_one_wins,
    who_lost_the_lease_to_another_process_can_not_commit,
)


def checks_for(kind: Kind) -> tuple[Check, ...]:
    return (*CHECKS, *(DURABLE_CHECKS if kind.durable else ()), *(SHARED_CHECKS if kind.shared else ()))
