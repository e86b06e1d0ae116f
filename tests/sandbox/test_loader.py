"""Workflow files: what is taken, and everything that is wrong with one, at once."""

from pathlib import Path

import pytest
from boxed import Watched

from keepkernel.kernel.types import Declaration
from keepkernel.sandbox.loader import BadScript, Place, Problem, Script, load

EXAMPLES = Path(__file__).parent / "examples"
TOOLS = ("gmail.search", "gmail.send", "sheets.appendRow")


def problems(workers: Watched, source: str) -> list[tuple[Place | None, str, str]]:
    with pytest.raises(BadScript) as refused:
        load(source, TOOLS, workers)
    return [(problem.place, problem.message, problem.remedy) for problem in refused.value.problems]


def here(source: str, place: Place | None) -> str:
    """What stands at a place."""
    assert place is not None
    return source.splitlines()[place.line - 1][place.column - 1 :][:10]


def consumer(mutate: str, top: str = "") -> str:
    return f"""{top}
export default Keep.workflow({{
  name: "w", topics: {{mail: {{}}}},
  consumers: {{file: Keep.consumer({{
    subscribe: ["mail"], prepare() {{ }}, {mutate}
  }})}},
}});"""


def test_the_example_with_a_schedule_loads_as_it_stands(workers: Watched) -> None:
    source = (EXAMPLES / "email-to-sheets.js").read_text()
    assert load(source, TOOLS, workers) == Script(
        "email-to-sheets",
        ("email.received", "row.created"),
        (
            Declaration("pollEmail", "producer", interval_ms=300_000),
            Declaration("processEmail", "consumer", ("email.received",), has_mutate=True),
        ),
        (),
        source,
    )


def test_the_example_with_a_plain_producer_loads_as_it_stands(workers: Watched) -> None:
    script = load((EXAMPLES / "example.js").read_text(), TOOLS, workers)
    assert script.handlers[0] == Declaration("pollEmail", "producer")
    assert script.name == "example"


def test_a_file_may_be_written_in_other_ways(workers: Watched) -> None:
    source = """
        const topics = { mail: {} };
        async function prepare(context, state) { return await context.gmail.search({}) }
        const poll = { schedule: { cron: "0 9 * * 1-5" }, async handler(ctx) { const { gmail } = ctx; } };
        const consumers = { file: { subscribe: ["mail"], prepare } };
        const flow = Keep.workflow({ name: "w", topics, producers: { poll }, consumers });
        export { flow as default };
        export default flow;
    """
    with pytest.raises(BadScript, match="duplicate"):
        load(source, TOOLS, workers)
    script = load(source.replace("export { flow as default };", ""), TOOLS, workers)
    assert script.handlers == (
        Declaration("poll", "producer", cron="0 9 * * 1-5"),
        Declaration("file", "consumer", ("mail",)),
    )
    assert load(source.replace("export default flow;", ""), TOOLS, workers).name == "w"


def test_all_that_is_wrong_is_told_at_once_with_its_place_and_a_remedy(workers: Watched) -> None:
    source = """export default Keep.workflow({
  name: "two words",
  topic: {},
  topics: {mail: {}, "": {}, done: 3},
  producers: {
    poll: {schedule: {interval: "5 minutes"}, handler: 3},
    ask: {schedule: {cron: "0 0 30 2 *"}, handler: async (ctx) => { await ctx.gmial.search(); }},
    both: {schedule: {interval: "5m", cron: "* * * * *"}, handler() {}, retry: 1},
    seven: 7,
  },
  consumers: {
    file: Keep.consumer({subscribe: ["mail", "mial"], prepare(c) { c.publish("don", {}); c.emit("x") }, mutate: 1}),
    tell: {subscribe: ["mail"], preprare() {}},
    none: {prepare() {}},
    poll: {subscribe: ["done"], prepare: null},
    text: "x",
  },
});"""
    name_remedy = "Use letters, digits, and . : - _ ; at most 100, beginning with a letter or digit"
    interval_remedy = 'Write a number and s, m, h or d, such as "5m"; at most ten years'
    cron_remedy = 'Write five fields, such as "0 9 * * 1-5" (UTC), that come true at some time'
    assert [(here(source, place), message, remedy) for place, message, remedy in problems(workers, source)] == [
        ('name: "two', "'two words' can not be a name", name_remedy),
        ("topic: {},", "topic is not known here", "Did you mean topics?"),
        ('"": {}, do', "'' can not be a name", name_remedy),
        ("done: 3},", "topic done is number", "Write {} for it"),
        ("interval: ", "'5 minutes' is no interval", interval_remedy),
        ("handler: 3", "handler of poll is number", "Make it a function"),
        ('cron: "0 0', "'0 0 30 2 *' is no cron expression", cron_remedy),
        ("ctx.gmial.", "no connector provides gmial.search", "Did you mean gmail.search?"),
        ("schedule: ", "a schedule has either an interval or a cron expression", 'Write {interval: "5m"}'),
        ("retry: 1},", "retry is not known here", "Known are handler and schedule"),
        ("seven: 7,", "producer seven is number", "Make it a function, or {schedule, handler}"),
        ("subscribe:", "file subscribes to mial, which is not declared", "Did you mean mail?"),
        ("c.publish(", "topic don is not declared", "Did you mean done?"),
        ('c.emit("x"', "ctx.emit is not known", "Known are getByIds, peek and publish"),
        ("mutate: 1}", "mutate of file is number", "Make it a function"),
        ("tell: {sub", "prepare of tell is undefined", "Make it a function"),
        ("subscribe:", "mail has two consumers, file and tell", "Let one of them read another topic"),
        ("preprare()", "preprare is not known here", "Did you mean prepare?"),
        ("none: {pre", "none subscribes to nothing", 'Write subscribe: ["topic", …]'),
        ("poll: {sub", "two handlers are called poll", "Rename one of them"),
        ("prepare: n", "prepare of poll is null", "Make it a function"),
        ('text: "x",', "consumer text is a text", "Write Keep.consumer({subscribe, prepare, …})"),
    ]


def test_a_context_that_is_taken_apart_is_looked_through_as_well(workers: Watched) -> None:
    source = """export default Keep.workflow({
  name: "w",
  topics: { mail: {} },
  producers: {
    async poll({ gmail, publish: say }) { await say("mial", {}); await gmail.serch({}); },
  },
  consumers: {
    file: {
      subscribe: ["mail"],
      async prepare(ctx) { const { peek, gmail: g } = ctx; await peek("mail"); await g.search({}); g.nothing(); },
      async mutate({ gmail }, { data }) { await gmail.send(data); data.later(); },
    },
  },
});"""
    assert [(here(source, place), message) for place, message, _ in problems(workers, source)] == [
        ('say("mial"', "topic mial is not declared"),
        ("gmail.serc", "no connector provides gmail.serch"),
        ("g.nothing(", "no connector provides gmail.nothing"),
        ("data.later", "nothing behind the mutation call ever runs (SCRIPT-003)"),
    ]


@pytest.mark.parametrize(
    ("source", "place", "message"),
    [
        ("let a = ;", Place(1, 9), "SyntaxError: unexpected token in expression: ';'"),
        ("\n  null.x", Place(2, 3), "TypeError: cannot read property 'x' of null"),
        ("import 'fs'", None, "ReferenceError: could not load module 'fs'"),
        ("for (;;);", None, "describe of the file was stopped: it took longer than it may (SCRIPT-009)"),
        ("await new Promise(() => {})", None, "it waits for something that never comes; await only calls of ctx"),
        ("", None, "the file exports no workflow"),
        ("Keep.workflow({})", None, "the file exports no workflow"),
        ("export default {}", None, "the file exports no workflow"),
        ("export default Keep.workflow([])", None, "the file exports no workflow"),
        ("export default Keep.workflow({ toJSON() { return 1 } })", None, "the file exports no workflow"),
        ("let a = '\ud800'", None, "the file is too long or no text"),
        ("let a = 1;\0", None, "the file is too long or no text"),
        ("//" + "x" * 1_000_000, None, "the file is too long or no text"),
        ("1" + "+1" * 600, None, "the file nests deeper than 500 levels"),
        ("export default Keep.workflow({name: 'w', topics: {}})", Place(1, 30), "the workflow has no handlers"),
        ("export default Keep.workflow({name: 1, topics: [], producers: {a() {}}})", Place(1, 31), "name is number"),
        ("export default Keep.workflow(3)", Place(1, 20), "TypeError: Keep.workflow takes an object"),
        ("const o = {}; o.o = o; export default Keep.workflow(o)", None, "TypeError: circular reference"),
    ],
)
def test_a_file_that_can_not_be_read_says_why(workers: Watched, source: str, place: Place | None, message: str) -> None:
    with pytest.raises(BadScript) as refused:
        load(source, TOOLS, workers, wall_ms=100 if "(;;)" in source else 60_000)
    first = refused.value.problems[0]
    assert (first.place, first.message) == (place, message)
    assert first.remedy


def test_a_name_never_steers_the_terminal(workers: Watched) -> None:
    [(_, message, _)] = problems(workers, consumer("").replace('"w"', r'"\u001b[2J\ud800"'))
    assert message.isprintable()


BEHIND = [
    ("async mutate(ctx) { await ctx.gmail.send({}); await ctx.gmail.send({}); }", "await ctx."),
    ("async mutate(c) { if (c) { await c.gmail.send({}); console.log(1) } }", "console.lo"),
    ("async mutate(ctx) { try { await ctx.gmail.send({}) } finally { } }", None),
    ("async mutate(ctx, p) { if (p) { return await ctx.gmail.send({}) } await ctx.sheets.appendRow({}); }", None),
    ("async mutate(ctx) { await ctx.gmail.send({}); return; /* nothing */ }", None),
    ("async mutate(ctx, { data }) { if (data.n) return ctx.gmail.send({}); return ctx.sheets.appendRow({}) }", None),
    ("async mutate(ctx, { data }) { if (data.n) { await ctx.gmail.send({}); return } ctx.sheets.appendRow() }", None),
    ("async mutate(ctx, { data }) { for (const n of data) if (n) { await ctx.gmail.send({ n }); break; } }", None),
    ("async mutate(ctx) { const send = ctx.gmail.send; await send({}) }", None),
    ("async mutate(ctx) { const go = () => ctx.gmail.send({}); await go() }", None),
    ("async mutate(ctx) { await Promise.all([ctx.gmail.send({})]); late() }", "late() }"),
]


@pytest.mark.rule("SCRIPT-003")
@pytest.mark.parametrize(("mutate", "behind"), BEHIND)
def test_what_stands_behind_a_mutation_call_is_found(workers: Watched, mutate: str, behind: str | None) -> None:
    if behind is None:
        assert load(consumer(mutate), TOOLS, workers).warnings == ()
    else:
        [(found, message, _)] = problems(workers, consumer(mutate))
        assert here(consumer(mutate), found) == behind
        assert message == "nothing behind the mutation call ever runs (SCRIPT-003)"


def test_variables_that_several_functions_assign_get_a_warning(workers: Watched) -> None:
    top = "let count = 0; const seen = {}; let own = 0; let read = 1;"
    source = consumer(
        """
        async mutate(ctx) { count = 1; own++; let read = 2; read = 3; return read },
        async next(ctx) { count++; seen.a.b = 1; read; help() },
        """.replace("prepare() { }", ""),
        top + " function help() { seen[0] = 1 }",
    ).replace("prepare() { }", "prepare(ctx, own) { seen['x'] += 1; own = 2; read = 4; }")
    warnings = load(source, TOOLS, workers).warnings
    assert [(w.place, w.message.split(", and")[0]) for w in warnings] == [
        (Place(1, 22), "file.prepare, file.next assign seen"),
        (Place(1, 5), "file.mutate, file.next assign count"),
    ]
    assert str(warnings[0]).startswith("line 1, column 22: file.prepare, file.next assign seen, and none sees what")
    assert str(Problem("a", "B?")) == "a. B?"


LOST = """
const api = { async send() {}, later: async () => {}, *each() {}, now() {} };
async function help(ctx) { throw new Error("x"); }
const aid = async (ctx) => { help(ctx); };
async function* feed() {}
let changed = async () => {};
changed = () => {};
export default Keep.workflow({
  name: "w", topics: {mail: {}},
  consumers: {file: Keep.consumer({
    subscribe: ["mail"],
    async prepare(ctx, state) {
      BODY
    },
  })},
});"""


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        ("help(ctx);", "help"),
        ("void aid(ctx);", "aid"),
        ("if (state) (help(ctx));", "help"),
        ("state && help(ctx);", "help"),
        ("state ? 1 : aid?.(ctx);", "aid"),
        ("help(ctx).then(() => {});", "help"),
        ("help(ctx).then(() => {}).finally(() => {});", "help"),
        ("api\n.send();", "api.send"),
        ("api.later();", "api.later"),
        ("(async () => { await help(ctx); })();", "this function"),
        ("async function own() {} own();", "own"),
        ("for (const one of []) { help(one); }", "help"),
        ("[1].map((one) => { help(one); });", "help"),
    ],
)
def test_a_promise_that_nobody_has_gets_a_warning(workers: Watched, body: str, lost: str) -> None:
    first, second = load(LOST.replace("BODY", body), TOOLS, workers).warnings
    assert str(first).startswith("line 4, column 30: nobody awaits help, so what it throws is lost in silence. Await")
    assert second.message == f"nobody awaits {lost}, so what it throws is lost in silence"
    place = Place(13, 7 + body.rindex(lost[:3] if lost != "this function" else "(async"))
    assert (second.place, second.remedy) == (place, "Await it, or return it")


def test_a_loop_that_awaits_nothing_gets_a_warning(workers: Watched) -> None:
    for body in ("[ctx].forEach(async (one) => { await help(one); });", "[ctx].forEach(aid);"):
        _, warning = load(LOST.replace("BODY", body), TOOLS, workers).warnings
        assert (warning.place, warning.message.split(",")[0]) == (Place(13, 21), "forEach awaits no function")


@pytest.mark.parametrize(
    "body",
    [
        "await help(ctx); return aid(ctx);",
        "const going = help(ctx); await going;",
        "await Promise.all([help(ctx), [1].map((one) => aid(one))]);",
        "help(ctx).catch(() => {}); help(ctx).then(() => {}, () => {});",
        "api.now(); api.each(); api.other(); feed(); changed(); state.help(); api['send']; help;",
        "const own = (help) => { help(ctx); }; for (const aid of []) aid(); own();",
        "try { state.x } catch ({ aid, ...help }) { help(); aid(); }",
        "[1].forEach((one) => aid(one).catch(() => {}));",
        "[1].forEach(() => {}); state.forEach(...state); (help, aid);",
    ],
)
def test_a_promise_that_somebody_has_gets_none(workers: Watched, body: str) -> None:
    source = LOST.replace("help(ctx); };", "await help(ctx); };").replace("BODY", body)
    assert load(source, TOOLS, workers).warnings == ()


def test_columns_count_characters(workers: Watched) -> None:
    source = 'export default Keep.workflow({name: "w", topics: {}, producers: {"ü🎈": 3, p() {}}});'
    place, message, _ = problems(workers, source)[-1]
    assert (place, message) == (Place(1, 66), "producer ü🎈 is number")
