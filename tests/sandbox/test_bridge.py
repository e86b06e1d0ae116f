"""One call of a function: what it may do, what it can notice, and how it ends."""

import shutil
import time
from contextlib import closing
from typing import Any

import pytest
from boxed import LONG_MS, TOOLS, Watched, run_body, workflow

from keepkernel.kernel.capabilities import CAPABILITIES
from keepkernel.kernel.respond import Failed
from keepkernel.sandbox import bridge
from keepkernel.sandbox.bridge import Asked, Job, Returned
from keepkernel.sandbox.engine import Limits, Worker, Workers

CALLS = {
    "read": "ctx.gmail.search({})",
    "mutate": "ctx.gmail.send({})",
    "peek": "ctx.peek('mail')",
    "get": "ctx.getByIds('mail', ['m1'])",
    "publish": "ctx.publish('mail', {})",
}
SEND = Asked("mutate", "gmail.send", ({"n": 1},))


@pytest.mark.rule("SCRIPT-001")
@pytest.mark.parametrize("function", CAPABILITIES)
@pytest.mark.parametrize("operation", CALLS)
def test_a_function_does_what_the_table_allows_and_nothing_else(
    workers: Watched, function: str, operation: str
) -> None:
    ran = run_body(workers, function, f"return await {CALLS[operation]};", answer='"done"')
    if operation == "mutate" and function == "mutate":
        assert ran.said == Asked("mutate", "gmail.send", ({},))
    elif operation in CAPABILITIES[function]:
        assert ran.said == Returned(None if operation == "publish" else '"done"')  # A publication has no answer.
        assert [asked.operation for asked in ran.asked] == [operation]
    else:
        assert isinstance(ran.said, Failed)
        assert (ran.said.failure, "SCRIPT-001" in ran.said.message) == ("forbidden", True)
        assert ran.asked == []


TWICE = {
    "without awaiting": "ctx.gmail.send({n: 1}); ctx.gmail.send({n: 2});",
    "side by side": "await Promise.all([ctx.gmail.send({n: 1}), ctx.sheets.appendRow({})]);",
    "in a race": "await Promise.race([ctx.gmail.send({n: 1}), 0]); await ctx.sheets.appendRow({});",
    "many turns later": "ctx.gmail.send({n: 1}); for (let i = 0; i < 1e3; i++) await 0; ctx.gmail.send({n: 1});",
    "in its parameters": "ctx.gmail.send({ toJSON() { ctx.gmail.send({}); return {} } });",
    "in a getter of its parameters": "ctx.gmail.send({ get n() { ctx.sheets.appendRow({}); return 1 } });",
    "in a microtask": "queueMicrotask(() => ctx.gmail.send({n: 2})); await ctx.gmail.send({n: 1});",
    "a read beside it": "ctx.gmail.send({n: 1}); ctx.gmail.search({});",
    "a publish beside it": "ctx.gmail.send({n: 1}); ctx.publish('done', {});",
    "a read before it": "ctx.gmail.search({}); ctx.gmail.send({n: 1});",
    "the time after it": "ctx.gmail.send({n: 1}); Date.now();",
    "an error after it": "ctx.gmail.send({n: 1}); throw new Error('late');",
}


@pytest.mark.rule("SCRIPT-002")
@pytest.mark.parametrize("way", TWICE)
def test_nothing_is_sent_when_mutate_does_more_than_one_thing(workers: Watched, way: str) -> None:
    ran = run_body(workers, "mutate", TWICE[way])
    assert isinstance(ran.said, Failed)
    assert ran.said.failure == "forbidden"
    assert "SCRIPT-00" in ran.said.message
    assert ran.asked == []


NOTICING = {
    "later line": "await CALL; console.log('noticed');",
    "catch": "try { await CALL } catch { console.log('noticed') }",
    "finally": "try { await CALL } finally { console.log('noticed') }",
    "then": "await CALL.then(() => console.log('noticed'), () => console.log('noticed'));",
    "finally of the promise": "await CALL.finally(() => console.log('noticed'));",
    "async generator": """
        async function* steps() { try { yield await CALL } finally { console.log('noticed') } }
        for await (const step of steps()) console.log('noticed');
    """,
    "disposal": "await using x = { [Symbol.asyncDispose]() { console.log('noticed') } }; await CALL;",
    "line without awaiting": "CALL; console.log('noticed');",
    "all settled": "await Promise.allSettled([CALL]); console.log('noticed');",
    "own promise": "class P extends Promise {}; await P.resolve(CALL); console.log('noticed');",
    "patched then": """
        const then = Promise.prototype.then;
        Promise.prototype.then = function (...a) { return then.apply(this, a) };
        await CALL.then(() => console.log('noticed'));
    """,
    "finalizer": "await CALL; new (globalThis.FinalizationRegistry ?? Map)(() => console.log('noticed'));",
    "race": "await Promise.race([CALL, new Promise(() => {})]); console.log('noticed');",
}


@pytest.mark.rule("SCRIPT-003")
@pytest.mark.parametrize("way", NOTICING)
@pytest.mark.parametrize("function", ["mutate", "prepare"])
def test_nothing_notices_the_mutation_or_a_forbidden_call(workers: Watched, way: str, function: str) -> None:
    ran = run_body(workers, function, NOTICING[way].replace("CALL", "ctx.gmail.send({n: 1})"))
    assert ran.log == []
    if function == "mutate":
        assert ran.said == SEND
    else:
        assert isinstance(ran.said, Failed)
        assert ran.said.failure == "forbidden"


UNFIT = {
    "not a number": ("{n: NaN}", "bad_result"),
    "an instance": ("new Map()", "bad_result"),
    "a circle": ("circle", "script"),
    "a getter that throws": ("{get n() { throw new Error('mine') }}", "script"),
    "a getter that throws what can not be changed": ("{get n() { throw Object.freeze(new Error('mine')) }}", "script"),
    "a getter that throws what resists": (
        "{get n() { throw new Proxy({}, { getPrototypeOf() { throw 1 } }) }}",
        "script",
    ),
    "too deep for the stack": ("deep", "limit"),
    "too deep": ("deep64", "bad_result"),
}


@pytest.mark.rule("SCRIPT-003")
@pytest.mark.parametrize("way", UNFIT)
def test_a_call_with_unfit_values_can_not_be_caught_either(workers: Watched, way: str) -> None:
    """Else a script would take its call for made, or go on after one that is forbidden."""
    value, failure = UNFIT[way]
    body = f"""
        const circle = {{}}; circle.own = circle;
        let deep = [], deep64 = [];
        for (let i = 0; i < 64; i++) deep64 = [deep64];
        for (let i = 0; i < 1e5; i++) deep = [deep];
        try {{ await ctx.gmail.send({value}) }} catch {{ console.log('noticed') }} finally {{ console.log('noticed') }}
    """
    for function, expected in (("mutate", failure), ("prepare", "forbidden"), ("next", "forbidden")):
        ran = run_body(workers, function, body)
        assert isinstance(ran.said, Failed)
        assert (ran.said.failure, ran.asked, ran.log) == (expected, [], [])


@pytest.mark.rule("SCRIPT-003")
def test_a_stack_trace_hands_out_no_function_of_the_bridge(workers: Watched) -> None:
    """With the bridge in its hands a script would answer its own calls, and hide the forbidden ones."""
    top = """
        const own = Promise, taken = [];
        Error.prepareStackTrace = (error, sites) => sites;
        Object.defineProperty(Promise.prototype, "constructor", {
            get() { for (const site of new Error().stack) taken.push(site.getFunction?.()); return own },
        });
    """
    ran = run_body(workers, "prepare", "return [taken.length > 0, taken.some((one) => one !== undefined)]", top=top)
    assert ran.said == Returned("[true,false]")


def test_what_was_logged_before_the_mutation_is_kept(workers: Watched) -> None:
    assert run_body(workers, "mutate", "console.log('before', [1]); await ctx.gmail.send({n: 1});").log == [
        "before [1]"
    ]


CHANCE = {
    "Date.now": "Date.now()",
    "new Date": "new Date()",
    "Date as a function": "Date()",
    "a class of dates": "new (class extends Date {})()",
    "constructor of a date": "new (new Date(0).constructor)()",
    "constructed date": "Reflect.construct(Date, [])",
    "Math.random": "Math.random()",
}


@pytest.mark.rule("SCRIPT-004")
@pytest.mark.parametrize("way", CHANCE)
def test_time_and_chance_end_a_mutate_and_no_other_function(workers: Watched, way: str) -> None:
    body = f"try {{ {CHANCE[way]} }} catch {{}} finally {{ console.log(1) }} await ctx.gmail.send({{}});"
    said = run_body(workers, "mutate", body).said
    assert isinstance(said, Failed)
    assert (said.failure, "SCRIPT-004" in said.message) == ("forbidden", True)
    for function in ("prepare", "producer", "next"):
        assert run_body(workers, function, f"return typeof {CHANCE[way]}").said != Returned(None)


@pytest.mark.rule("SCRIPT-004")
def test_a_mutate_computes_with_dates_that_it_is_given(workers: Watched) -> None:
    body = """
        const day = new Date(first.day), later = new Date(Date.UTC(2026, 0, 2)), local = new Date(2026, 0, 3);
        await ctx.gmail.send([day.toISOString(), later.toJSON(), local.toJSON(), day instanceof Date, Date.parse(day)]);
    """
    said = run_body(workers, "mutate", body, '{"day":"2026-01-01"}').said
    days = [f"2026-01-0{n}T00:00:00.000Z" for n in (1, 2, 3)]
    assert said == Asked("mutate", "gmail.send", ([*days, True, 1767225600000],))
    gone = "return [typeof performance, typeof WeakRef, typeof FinalizationRegistry, typeof Atomics]"
    body = f"const f = () => {{ {gone} }}; await ctx.gmail.send(f());"
    assert run_body(workers, "mutate", body).said == Asked("mutate", "gmail.send", (["undefined"] * 4,))


@pytest.mark.rule("SCRIPT-005")
def test_every_call_begins_anew(workers: Watched) -> None:
    top = "let count = 0; globalThis.seen ??= 0;"
    for _ in range(2):
        assert run_body(workers, "producer", "return [++count, ++seen];", top=top).said == Returned("[1,1]")


@pytest.mark.rule("SCRIPT-009")
def test_time_spent_in_operations_counts(workers: Watched) -> None:
    def slow(asked: Asked) -> str:
        time.sleep(0.06)
        return "null"

    said = run_body(workers, "prepare", "for (;;) await ctx.peek('mail')", answer=slow, wall_ms=50).said
    assert said == Failed("limit", "prepare of h was stopped: it took longer than it may (SCRIPT-009)")


@pytest.mark.rule("SCRIPT-009")
def test_time_is_over_also_in_the_middle_of_many_operations(workers: Watched) -> None:
    def slow(asked: Asked) -> str:
        time.sleep(0.06)
        return "null"

    ran = run_body(workers, "prepare", "for (let i = 0; i < 9; i++) ctx.peek('mail')", answer=slow, wall_ms=50)
    assert ran.said == Failed("limit", "prepare of h was stopped: it took longer than it may (SCRIPT-009)")
    assert len(ran.asked) <= 1


@pytest.mark.rule("SCRIPT-009")
def test_a_script_can_not_ask_for_more_at_once_than_it_could_hold(workers: Watched) -> None:
    """The host holds the answers until it has all of them."""
    answer = f'"{"x" * (workers.limits.memory_bytes // 4)}"'
    ran = run_body(workers, "prepare", "for (let i = 0; i < 9; i++) ctx.peek('mail')", answer=answer)
    assert isinstance(ran.said, Failed)
    assert (ran.said.failure, "at once" in ran.said.message, len(ran.asked)) == ("limit", True, 4)


FULL = "const hog = []; for (let n = 1 << 20; n; n >>= 1) try { for (;;) hog.push(new ArrayBuffer(n)) } catch {}"
DEEP = "const deep = () => { try { deep() } catch {} try { CALL } catch {} }; deep();"
AT_THE_LIMIT = {
    "a mutation without memory": ("mutate", f"{FULL} try {{ ctx.gmail.send() }} catch {{}} hog.length = 0"),
    "a forbidden call without memory": ("mutate", f"{FULL} try {{ ctx.peek() }} catch {{}} hog.length = 0"),
    "the time without memory": ("mutate", f"{FULL} try {{ Date.now() }} catch {{}} hog.length = 0"),
    "a mutation in prepare without memory": ("prepare", f"{FULL} try {{ ctx.gmail.send() }} catch {{}} hog.length = 0"),
    "a mutation without stack": ("mutate", DEEP.replace("CALL", "ctx.gmail.send()")),
    "a forbidden call without stack": ("prepare", DEEP.replace("CALL", "ctx.gmail.send()")),
}


@pytest.mark.rule("SCRIPT-003")
@pytest.mark.parametrize("way", AT_THE_LIMIT)
def test_a_call_for_which_nothing_is_left_can_not_be_caught_either(workers: Watched, way: str) -> None:
    """Whoever catches it would go on as if nothing had been called, and its inputs would be lost."""
    function, body = AT_THE_LIMIT[way]
    ran = run_body(workers, function, f"{body}; return 1")
    assert isinstance(ran.said, Failed)
    assert ran.said.failure in ("limit", "forbidden")
    assert ran.asked == []


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """All that workers are told."""
    messages: list[dict[str, Any]] = []
    send = Worker.send

    def heard(worker: Worker, message: dict[str, Any], deadline: float) -> None:
        messages.append(message)
        send(worker, message, deadline)

    monkeypatch.setattr(Worker, "send", heard)
    return messages


def test_operations_are_answered_in_their_order_until_none_is_left(workers: Watched) -> None:
    body = """
        const [a, b] = await Promise.all([ctx.gmail.search(1), ctx.gmail.search(2)]);
        ctx.gmail.search({n: 3}).then((found) => ctx.publish("t", found));
        return [a, b];
    """
    ran = run_body(workers, "producer", body, answer=lambda asked: f'"{asked.args[-1]}"')
    assert ran.said == Returned('["1","2"]')
    assert [asked.args[-1] for asked in ran.asked] == [1, 2, {"n": 3}, "{'n': 3}"]


def test_publications_wait_for_nobody_and_come_in_their_order_with_the_end(
    workers: Watched, sent: list[dict[str, Any]]
) -> None:
    body = "for (let n = 1; n <= 3; n++) await ctx.publish('t', n); ctx.publish('t', 4); return 5"
    ran = run_body(workers, "next", body)
    assert ran.said == Returned("5")
    assert [asked.args[-1] for asked in ran.asked] == [1, 2, 3, 4]
    assert sent[1:] == [], "the call, and nothing after it"


def test_only_a_script_that_still_waits_is_told_that_its_call_is_over(
    workers: Watched, sent: list[dict[str, Any]]
) -> None:
    run_body(workers, "mutate", "await ctx.gmail.send({n: 1})")
    assert sent.pop() == {"drop": True}
    run_body(workers, "prepare", "await new Promise(() => {})")
    assert sent.pop() == {"drop": True}
    run_body(workers, "prepare", "ctx.peek('mail'); return 1")
    assert [*sent.pop()] == ["settle"], "it had an end, and was still owed an answer"


def test_a_script_is_told_to_its_worker_once(workers: Watched, sent: list[dict[str, Any]]) -> None:
    returned = [run_body(workers, "prepare", f"return {n}").said for n in (1, 1, 2, 1)]
    assert returned == [Returned("1"), Returned("1"), Returned("2"), Returned("1")]
    assert ["setting" in message for message in sent] == [True, False, True, True]


def test_a_publication_that_is_refused_ends_the_run_before_what_was_asked_after_it(workers: Watched) -> None:
    refused = Failed("bad_result", "no such topic")
    body = "try { await ctx.publish('t', 1) } catch { await ctx.publish('t', 2) } await ctx.gmail.search({})"
    ran = run_body(workers, "producer", body, answer=lambda asked: refused if asked.operation == "publish" else '"x"')
    assert (ran.said, [asked.operation for asked in ran.asked]) == (refused, ["publish"])


def test_a_script_that_waits_for_nothing_after_it_published_is_told_so(workers: Watched) -> None:
    ran = run_body(workers, "next", "await ctx.publish('t', 1); await new Promise(() => {})")
    assert isinstance(ran.said, Failed)
    assert "waits for something that never comes" in ran.said.message


def test_a_failed_operation_ends_the_run_and_can_not_be_caught(workers: Watched) -> None:
    failed = Failed("network", "no route", "gmail.search")
    body = "try { await ctx.gmail.search({}) } catch { console.log('caught') } finally { console.log('at last') }"
    ran = run_body(workers, "prepare", body, answer=failed)
    assert (ran.said, ran.log) == (failed, [])


def test_an_error_says_where_it_arose(workers: Watched) -> None:
    said = run_body(workers, "prepare", "\n\n  const a = null;\n  return a.b;").said
    assert said == Failed("script", "TypeError: cannot read property 'b' of null (line 5, column 10)")
    said = run_body(workers, "prepare", "\n  await ctx.gmail.search({ when: () => 0 });").said
    assert isinstance(said, Failed)
    assert said.failure == "bad_result"
    assert said.message.endswith("(line 3, column 19)")
    assert "when" in said.message


def test_a_place_that_is_made_up_does_not_lengthen_a_message(workers: Watched) -> None:
    body = "const e = new Error('a'); e.stack = '<input>:' + '9'.repeat(9e3) + ':1'; throw e"
    assert run_body(workers, "prepare", body).said == Failed("script", "Error: a")


def test_a_log_has_an_end(workers: Watched) -> None:
    ran = run_body(workers, "prepare", "for (let i = 0; i < 1e4; i++) console.log('line', i, {i});")
    assert ran.said == Returned(None)
    assert ran.log[:2] == ['line 0 {"i":0}', 'line 1 {"i":1}']
    assert ran.log[-1] == "(the log is full)"
    assert sum(map(len, ran.log)) <= workers.limits.log_chars


def test_a_line_of_the_log_shows_what_it_was_given(workers: Watched) -> None:
    values = r"'\u001b[2J\u202e\u009b\n', '\ud800', undefined, null, 1n, Symbol('s'), () => 0, [{}], new TypeError('t')"
    shown = [
        "\ufffd[2J\ufffd\ufffd\n",
        "\ufffd",
        "undefined",
        "null",
        "1",
        "Symbol(s)",
        "() => 0",
        "[{}]",
        "TypeError: t",
    ]
    assert run_body(workers, "prepare", f"console.error({values})").log == [" ".join(shown)]
    traps = "{ toJSON() { throw 1 } }, Object.assign(() => 0, { toString() { throw 1 } })"
    hidden = "(something that can not be shown)"
    assert run_body(workers, "prepare", f"console.debug({traps})").log == [f"{hidden} {hidden}"]


def test_a_function_that_is_not_there_is_an_error_of_the_script_but_for_next(workers: Watched) -> None:
    source = workflow("prepare", "return 1")
    for function, handler, said in [
        ("mutate", "h", Failed("script", "TypeError: the workflow has no mutate of h")),
        ("prepare", "x", Failed("script", "TypeError: the workflow has no prepare of x")),
        ("next", "h", Returned(None)),
    ]:
        ran = bridge.run(workers, Job(source, function, handler, ("",), TOOLS, LONG_MS), lambda asked: "", [])
        assert ran == said or (isinstance(ran, Failed) and ran.message.startswith(said.message))


def test_a_handler_sees_its_own_object(workers: Watched) -> None:
    source = """
        class Base { help() { return 7 } }
        class Mine extends Base { async prepare() { return this.help() } }
        export default Keep.workflow({ consumers: { h: new Mine() } });
    """
    assert bridge.run(workers, Job(source, "prepare", "h", ("",), {}, LONG_MS), lambda asked: "", []) == Returned("7")


@pytest.mark.parametrize("name", ["send", "gmail.", ".send", "a.b.c", "peek.all"])
def test_a_tool_has_a_connector_and_a_method(name: str) -> None:
    with pytest.raises(ValueError, match=r"connector\.method"):
        bridge.connectors([name])


def test_a_worker_is_replaced_after_its_share_of_calls() -> None:
    workers = Watched(Limits(calls_per_worker=2), warm=1)
    try:
        pids = []
        for _ in range(4):
            run_body(workers, "prepare", "return 1")
            pids.append(workers.last.process.pid)
        assert (pids[0] == pids[1], pids[1] == pids[2], pids[2] == pids[3]) == (True, False, True)
    finally:
        workers.close()


def test_workers_take_turns_so_that_each_has_time_to_make_its_next_context() -> None:
    workers = Watched(warm=2)
    try:
        pids = []
        for _ in range(4):
            run_body(workers, "prepare", "return 1")
            pids.append(workers.last.process.pid)
        assert pids[:2] == pids[2:]
        assert pids[0] != pids[1]
    finally:
        workers.close()


def test_a_worker_that_somebody_kills_while_it_starts_is_a_trouble_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "alive", True)  # Nobody has noticed yet.
    workers = Workers()
    try:
        workers._idle[0].process.kill()
        said = run_body(workers, "prepare", "return 1").said
        assert isinstance(said, Failed)
        assert (said.failure, "somebody else ended its process" in said.message) == ("network", True)
        assert run_body(workers, "prepare", "return 1").said == Returned("1")
    finally:
        workers.close()


def test_a_sandbox_that_does_not_start_is_the_hosts_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    workers = Workers()
    said = run_body(workers, "prepare", "return 1").said
    assert said == Failed("host", "the sandbox does not start: the engine died (exit code 1)")


def test_a_call_that_is_over_is_dropped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not again by whoever borrows its worker, and gives it back without a call."""
    said: list[object] = []
    monkeypatch.setattr(Worker, "send", lambda worker, message, deadline: said.append(message))
    with closing(Workers()) as workers:
        with workers.lent() as worker:
            worker.over = False
        with workers.lent() as same:
            assert same is worker
        assert said == [{"drop": True}]
