"""Workflow files as the host's handlers: what each function is given, and what becomes of what it does."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from boxed import TOOLS, Watched, workflow
from flow import POLL, Flow, flow, mail
from hypothesis import given, settings
from hypothesis import strategies as st

from keepkernel import AssertApplied, Begin, Declaration, Deploy, Grant, Policy, Resume, SkipMutation, State
from keepkernel.adapters.host import Host
from keepkernel.adapters.memory import MemoryStore
from keepkernel.kernel.respond import Answer, Called, CalledNothing, Failed, Finished, Happened, Pinned
from keepkernel.kernel.types import CallHandler, Event, Key, Publication, Reconcile, Send
from keepkernel.sandbox import border, handlers
from keepkernel.sandbox.bridge import Tool
from keepkernel.sandbox.handlers import Scripts
from keepkernel.sandbox.loader import load

EXAMPLES = Path(__file__).parent / "examples"


class Desk:
    """A catalogue, what its reads answer, and a topic to read."""

    def __init__(self, answer: str | Failed = "null") -> None:
        self.answer = answer
        self.reads: list[tuple[str, str, str]] = []
        self.pending = [Event(Key("mail", f"m{n}"), n, "pending", "", f"Mail {n}", '{"n":-0}', "", ()) for n in (1, 2)]
        self.peeks: list[tuple[str, str, int]] = []

    def catalogue(self) -> Mapping[str, Tool]:
        return TOOLS

    def read(self, state: State, tool: str, params: str) -> str | Failed:
        self.reads.append((state.workflow, tool, params))
        return self.answer

    def peek(self, workflow: str, topic: str, limit: int, after_seq: int = 0) -> tuple[Event, ...]:
        self.peeks.append((workflow, topic, limit))
        return tuple(self.pending[:limit])

    def get(self, workflow: str, key: Key) -> Event | None:
        return next((event for event in self.pending if event.key == key), None)


def call(workers: Watched, there: Flow | State, function: Any, body: str, desk: Desk | None = None) -> Answer:
    """Let the live run's handler be a script in which this function has this body."""
    state = there.state if isinstance(there, Flow) else there
    desk = desk or Desk()
    source = workflow(function, body).replace("h: ", f"{state.run.handler}: ")
    effect = CallHandler(state.run.id, state.run.handler, "v1", function)
    lines: list[tuple[str, str, tuple[str, ...]]] = []
    scripts = Scripts(workers, lambda name, version: source, desk, desk, lambda *line: lines.append(line))
    answer = scripts.call(state, effect)
    assert lines == []
    return answer


def preparing(**policy: int) -> Flow:
    return flow(**policy).deployed().event("m1").run_to("preparing")


def producing(**schedule: Any) -> State:
    """A producer's run, as it is called."""
    there = flow().deployed()
    row = there.row("poll")._replace(declared=Declaration("poll", "producer", **schedule), state='{"cursor":5}')
    rows = tuple(row if h.declared.name == "poll" else h for h in there.state.handlers)
    return Flow(there.state._replace(handlers=rows), there.now, there.made).create("poll").do(Begin).state


# --- prepare -----------------------------------------------------------------------------------------


def test_prepare_pins_what_it_returns(workers: Watched) -> None:
    body = """
        const [first_one, other] = await ctx.peek("mail");
        const again = await ctx.getByIds("mail", ["m2", "nobody", "m1"]);
        return {
            reservations: [{ topic: "mail", ids: [first_one.messageId] }, { topic: "mail", ids: [] }],
            data: { first, first_one, again: again.map((event) => event.messageId) },
            ui: { title: "File it", note: "more" },
            wakeAt: "2026-01-01T00:00:00.250Z",
        };
    """
    event = '{"topic":"mail","messageId":"m1","title":"Mail 1","payload":{"n":-0.0}}'
    assert call(workers, preparing(), "prepare", body) == Pinned(
        mail("m1"), f'{{"first_one":{event},"again":["m2","m1"]}}', "File it", 1767225600250
    )


def test_the_least_that_prepare_may_return(workers: Watched) -> None:
    assert call(workers, preparing(), "prepare", "return { reservations: [] }") == Pinned()


@pytest.mark.rule("SCRIPT-006")
def test_a_peek_has_a_limit_and_a_topic_that_is_subscribed(workers: Watched) -> None:
    desk = Desk()
    body = """
        const lists = [await ctx.peek("mail")];
        for (const limit of [1, 1e6]) lists.push(await ctx.peek("mail", { limit }));
        return { reservations: [], data: lists.map((list) => list.length) };
    """
    assert call(workers, preparing(peek_default=7, peek_max=9), "prepare", body, desk) == Pinned((), "[2,1,2]")
    assert desk.peeks == [("w", "mail", 7), ("w", "mail", 1), ("w", "mail", 9)]
    for asked in ('ctx.peek("done")', 'ctx.getByIds("done", ["x"])', "ctx.peek()", "ctx.peek(['mail'])"):
        said = call(workers, preparing(), "prepare", f"await {asked}")
        assert isinstance(said, Failed)
        assert (said.failure, "SCRIPT-006" in said.message) == ("forbidden", True)


BAD_PREPARES = {
    "nothing": ("", "should be"),
    "a text": ("return 'x'", "should be"),
    "no reservations": ("return { data: 1 }", "reservations: field required"),
    "a typing error": ("return { reservations: [], dat: 1 }", "dat: extra"),
    "an id that is a number": ("return { reservations: [{ topic: 'mail', ids: [1] }] }", "reservations.0.ids.0"),
    "an empty id": ("return { reservations: [{ topic: 'mail', ids: [''] }] }", "reservations.0.ids.0"),
    "a topic left out": ("return { reservations: [{ ids: [] }] }", "reservations.0.topic"),
    "a title that is a list": ("return { reservations: [], ui: { title: [] } }", "ui.title"),
    "an endless title": ("return { reservations: [], ui: { title: 'x'.repeat(1001) } }", "ui.title"),
    "no time": ("return { reservations: [], wakeAt: 'tomorrow' }", "ISO 8601"),
    "a time as a number": ("return { reservations: [], wakeAt: Date.now() }", "wakeAt"),
    "half a character": ("return { reservations: [], data: '\\ud800' }", "half a surrogate pair"),
    "too many levels": ("return { reservations: [], data: JSON.parse('['.repeat(65) + ']'.repeat(65)) }", "64 levels"),
    "a peek of nothing": ("await ctx.peek('mail', { limit: 0 })", "limit"),
    "a peek of a part": ("await ctx.peek('mail', { limit: 1.5 })", "limit"),
    "ids that are none": ("await ctx.getByIds('mail', 'm1')", "ids"),
    "too many ids": ("await ctx.getByIds('mail', Array(1001).fill('m'))", "1001 ids"),
    "two parameters": ("await ctx.gmail.search({}, {})", "give it one object"),
}


@pytest.mark.parametrize("what", BAD_PREPARES)
def test_a_prepare_that_gives_something_else_fails(workers: Watched, what: str) -> None:
    body, problem = BAD_PREPARES[what]
    said = call(workers, preparing(), "prepare", body)
    assert isinstance(said, Failed)
    assert (said.failure, problem in said.message) == ("bad_result", True), said


def test_reads_go_to_the_connectors_with_exact_parameters(workers: Watched) -> None:
    desk = Desk('[1,{"n":-0}]')
    body = """
        const found = [await ctx.gmail.search(), await ctx.gmail.search({ n: -0, big: 2n ** 64n })];
        return { reservations: [], data: found };
    """
    assert call(workers, preparing(), "prepare", body, desk) == Pinned((), '[[1,{"n":-0.0}],[1,{"n":-0.0}]]')
    assert desk.reads == [
        ("w", "gmail.search", "{}"),
        ("w", "gmail.search", '{"n":-0.0,"big":18446744073709551616}'),
    ]


def test_a_read_that_fails_keeps_its_class(workers: Watched) -> None:
    body = "await ctx.gmail.search({}).catch(() => 0); return { reservations: [] }"
    failed = Failed("rate_limit", "slow down", "gmail.search")
    assert call(workers, preparing(), "prepare", body, Desk(failed)) == failed
    said = call(workers, preparing(), "prepare", body, Desk('{"a":1,"a":2}'))
    assert isinstance(said, Failed)
    assert (said.failure, said.tool) == ("connector", "gmail.search")


# --- mutate ------------------------------------------------------------------------------------------


@pytest.mark.rule("SCRIPT-004")
def test_mutate_is_given_what_was_prepared_and_its_call_is_told(workers: Watched) -> None:
    mutating = flow().deployed().event("m1").run_to("mutating")
    assert call(workers, mutating, "mutate", "await ctx.gmail.send([first, second ?? null])") == Called(
        "gmail.send",
        '[{"reservations":[{"topic":"mail","ids":["m1"]}],"data":{"a":1},"ui":{"title":""}},null]',
        reconcilable=True,
        deadline_ms=5_000,
    )
    assert call(workers, mutating, "mutate", "return ctx.sheets.appendRow()") == Called(
        "sheets.appendRow", "{}", reconcilable=False
    )
    assert call(workers, mutating, "mutate", "if (first.data.a > 1) await ctx.gmail.send({})") == CalledNothing()
    said = call(workers, mutating, "mutate", "await ctx.gmail.send(1, 2)")
    assert said == Failed("bad_result", "gmail.send was given 2 values; give it one object")


# --- next and producers ------------------------------------------------------------------------------


@pytest.mark.rule("SCRIPT-007")
def test_next_is_told_what_became_of_the_mutation(workers: Watched) -> None:
    def told(there: Flow) -> Answer:
        return call(workers, there, "next", "return second")

    there = flow().deployed()
    unknown = there.uncertain(reconcilable=False)
    assert told(there.event("m1").run_to("emitting")) == Finished('{"status":"applied","result":"ok"}')
    assert told(unknown.do(AssertApplied).retry()) == Finished('{"status":"applied","result":null}')
    assert told(unknown.do(SkipMutation).retry()) == Finished('{"status":"skipped"}')
    empty = there.create().run_to("preparing")
    state = empty.state._replace(run=empty.run._replace(phase="emitting", title="T", data="-0"))
    assert call(workers, state, "next", "return [first, second]") == Finished(
        '[{"reservations":[],"data":-0.0,"ui":{"title":"T"}},{"status":"none"}]'
    )


def test_what_next_publishes_comes_with_its_end(workers: Watched) -> None:
    emitting = flow().deployed().event("m1").run_to("emitting")
    body = """
        ctx.publish("done", { messageId: "a", title: "A", payload: { at: [1, -0] } });
        await ctx.publish("done", { messageId: "b", title: "B" });
    """
    assert call(workers, emitting, "next", body) == Finished(
        None,
        (Publication(Key("done", "a"), "A", '{"at":[1,-0.0]}'), Publication(Key("done", "b"), "B", "null")),
    )


BAD_PUBLICATIONS = {
    "no id": ("'done', { title: 'A' }", "messageId: field required"),
    "an empty id": ("'done', { messageId: '', title: 'A' }", "messageId"),
    "an id that is a number": ("'done', { messageId: 1, title: 'A' }", "messageId"),
    "no title": ("'done', { messageId: 'a' }", "title: field required"),
    "a blank title": ("'done', { messageId: 'a', title: ' ' }", "title"),
    "a typing error": ("'done', { messageId: 'a', title: 'A', paylod: 1 }", "paylod"),
    "no topic": ("", "no topic null"),
    "a topic that is not declared": ("'dnoe', { messageId: 'a', title: 'A' }", "no topic 'dnoe'"),
    "a name without end": ("'done', { ['x\\u001b'.repeat(1e5)]: 1 }", "messageId"),
    "a topic without end": ("'x'.repeat(1e5)", "no topic 'xxx"),
    "nothing": ("'done'", "publish(topic, {messageId, title, payload})"),
}


@pytest.mark.parametrize("what", BAD_PUBLICATIONS)
def test_an_event_needs_a_topic_an_id_and_a_title(workers: Watched, what: str) -> None:
    event, problem = BAD_PUBLICATIONS[what]
    said = call(workers, producing(), "producer", f"await ctx.publish({event})")
    assert isinstance(said, Failed)
    assert (said.failure, problem in said.message) == ("bad_result", True), said
    assert len(said.message) < 3_000
    assert said.message.isprintable()


def test_a_flood_of_events_is_stopped(workers: Watched) -> None:
    body = "for (let i = 0; i < 10001; i++) ctx.publish('done', { messageId: `${i}`, title: 'x' })"
    assert call(workers, producing(), "producer", body) == Failed(
        "limit", "publish: more than 10000 events in one call"
    )


@pytest.mark.rule("EVENT-009")
def test_what_is_too_large_to_be_published_is_told_at_once(workers: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    large = "ctx.publish('done', { messageId: 'a', title: 'A', payload: 'x'.repeat(1e6) })"
    assert call(workers, producing(), "producer", large) == Failed(
        "bad_result", "publish: a payload of 1000002 characters is too large (EVENT-009)"
    )
    monkeypatch.setattr(handlers, "PUBLISHED_MAX", 1_000)
    many = "for (const id of ['a', 'b']) ctx.publish('done', { messageId: id, title: 'x', payload: 'x'.repeat(600) })"
    assert call(workers, producing(), "producer", many) == Failed(
        "limit", "publish: more than 1000 characters in one call"
    )


def test_a_producer_is_given_its_state_and_returns_the_next(workers: Watched) -> None:
    state = producing(interval_ms=POLL.interval_ms)
    assert call(workers, state, "producer", "return { cursor: first.cursor + 1 }") == Finished('{"cursor":6}')
    assert call(workers, state, "producer", "return null") == Finished("null")
    assert call(workers, state, "producer", "") == Finished(None)
    said = call(workers, state, "producer", "return '\\ud800'")
    assert isinstance(said, Failed)
    assert said.failure == "bad_result"


def test_a_cron_producer_says_when_it_is_due_next(workers: Watched) -> None:
    state = producing(cron="*/30 * * * *")
    assert state.run.created_at == 1_000_000
    assert call(workers, state, "producer", "") == Finished(None, (), 1_800_000)


def test_a_call_for_a_run_that_is_not_there_is_a_mistake_of_the_host(workers: Watched) -> None:
    desk = Desk()
    scripts = Scripts(workers, lambda name, version: "", desk, desk, lambda *line: None)
    with pytest.raises(ValueError, match="not there"):
        scripts.call(preparing().state, CallHandler("other", "file", "v1", "prepare"))


@pytest.mark.rule("SCRIPT-009")
def test_the_time_limit_is_the_policys(workers: Watched) -> None:
    said = call(workers, preparing(handler_call_ms=50), "prepare", "for (;;);")
    assert said == Failed("limit", "prepare of file was stopped: it took longer than it may (SCRIPT-009)")


# --- the examples, from end to end -------------------------------------------------------------------


class Office:
    """Both sides of the examples: mail to read, and a sheet to write to."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def catalogue(self) -> Mapping[str, Tool]:
        return TOOLS

    def read(self, state: State, tool: str, params: str) -> str | Failed:
        return '[{"id":"m1","from":"ann","subject":"One"},{"id":"m2","from":"bob","subject":"Two"}]'

    def send(self, effect: Send) -> Answer:
        self.rows.append(effect.params)
        return Happened(f'{{"rowId":{len(self.rows)}}}')

    def reconcile(self, effect: Reconcile) -> Answer:
        raise AssertionError("every call is answered")


@pytest.mark.parametrize(
    ("name", "created"),
    [
        ("email-to-sheets", ["Row created for ann", "Row created for bob"]),
        # It makes the id from a field that its payload does not have, so the second event takes the place of the first.
        ("example", ["Row created for bob"]),
    ],
)
def test_the_examples_run_as_they_stand(workers: Watched, name: str, created: list[str]) -> None:
    source = (EXAMPLES / f"{name}.js").read_text()
    script = load(source, TOOLS, workers)
    office, store, log = Office(), MemoryStore(lambda: 1_000_000), []
    versions = {(script.name, "v1"): source}
    scripts = Scripts(workers, lambda *which: versions[which], store, office, lambda *line: log.append(line))
    numbers = count()
    host = Host(store, scripts, office, name="h", fresh_id=lambda: f"id{next(numbers)}", clock=store.now)
    store.create(script.name, Policy())
    host.start(script.name)
    for command in (
        Deploy(0, "v1", script.topics, script.handlers),
        Grant(0, "sheets.appendRow", "always"),
        Resume(0),
    ):
        host.submit(script.name, lambda state, now, command=command: command._replace(now=now))
    host.drive(script.name)
    assert office.rows == [
        f'{{"spreadsheetId":"...","values":["{who}","{what}"]}}' for who, what in (("ann", "One"), ("bob", "Two"))
    ]
    titles = {event.title: (event.status, event.payload) for event in store.events(script.name)}
    assert titles['Email from ann: "One"'] == ("consumed", '{"subject":"One","from":"ann"}')
    assert [title for title, (status, _) in titles.items() if status == "pending"] == created
    assert store.load(script.name).state.error is None
    assert log == []


# --- whatever a script gives -------------------------------------------------------------------------

WORDS = st.sampled_from(["mail", "done", "m1", "", " ", "2026-01-01", "x" * 300])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries({}, optional=dict.fromkeys(("topic", "ids", "title", "limit", "messageId"), inner))
    ),
    max_leaves=8,
)
RESULTS = st.fixed_dictionaries({}, optional=dict.fromkeys(("reservations", "data", "ui", "wakeAt", "x"), ANYTHING))


@given(result=ANYTHING | RESULTS)
@settings(max_examples=100)
def test_any_result_is_pinned_or_a_bad_result(workers: Watched, result: Any) -> None:
    said = call(workers, preparing(), "prepare", f"return {border.dumps(result)}")
    assert isinstance(said, Pinned) or (isinstance(said, Failed) and said.failure == "bad_result")


@given(args=st.lists(ANYTHING, max_size=3), operation=st.sampled_from(["peek", "getByIds"]))
@settings(max_examples=100)
def test_any_arguments_are_taken_or_refused(workers: Watched, args: list[Any], operation: str) -> None:
    body = f"const found = await ctx.{operation}(...{border.dumps(args)}); return {{ reservations: [], data: found }}"
    said = call(workers, preparing(), "prepare", body)
    assert isinstance(said, Pinned) or (isinstance(said, Failed) and said.failure in ("bad_result", "forbidden"))
    body = f"await ctx.publish(...{border.dumps(args)})"
    said = call(workers, producing(), "producer", body)
    assert isinstance(said, Finished) or (isinstance(said, Failed) and said.failure == "bad_result")
