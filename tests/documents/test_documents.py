"""Documents from outside: a value, or BadDocument that says where, what, by which rule and what to do."""

import json
import re
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from values import seen, tame

from keepkernel import (
    COMMANDS,
    Accepted,
    Command,
    CommitProducer,
    Declaration,
    EndRun,
    Error,
    Event,
    Handler,
    Key,
    Mutation,
    Outcome,
    Permission,
    Policy,
    Prepared,
    ReconcileRetry,
    RecordMutation,
    Rejected,
    Request,
    Retired,
    Run,
    Session,
    State,
    decode_command,
    decode_outcome,
    decode_state,
    encode,
    new_workflow,
    step,
)
from keepkernel.kernel.codec import TAGS, to_plain
from keepkernel.kernel.ledger import idempotency_key
from keepkernel.spec import documents
from keepkernel.spec.documents import (
    BadDocument,
    NotStrict,
    parse_command,
    parse_declaration,
    parse_outcome,
    parse_policy,
    parse_state,
    strict_json,
)

PARSERS = [parse_command, parse_state, parse_outcome, parse_policy, parse_declaration]
EVERY_COMMAND = pytest.mark.parametrize("kind", COMMANDS.values(), ids=COMMANDS)


def refused(text: str | bytes, rule: str, parse: Any = parse_command) -> BadDocument:
    """The error of a document that must be refused by this rule, with all its parts."""
    with pytest.raises(BadDocument) as caught:
        parse(text)
    error = caught.value
    assert error.rule.split(",")[0] == rule
    assert str(error) == f"{error.place}: {error.problem} ({error.rule}). {error.remedy}"
    assert all((error.place, error.problem, error.remedy))
    assert len(str(error)) < 1_500
    return error


def read(parse: Any, text: str | bytes) -> Any:
    """What the document says, or why it is refused; any other exception fails the test."""
    try:
        return parse(text)
    except BadDocument as error:
        return error


# --- strict JSON -------------------------------------------------------------------------------------

NOT_STRICT: dict[str, Any] = {
    "nothing": "",
    "half of it": '{"type": "pause"',
    "more after it": '{"type": "pause", "now": 1} 2',
    "a byte order mark": '\ufeff{"type": "pause", "now": 1}',
    "a byte order mark in bytes": b'\xef\xbb\xbf{"type": "pause", "now": 1}',
    "bytes that are not UTF-8": b'{"type": "\xff"}',
    "UTF-16": '{"type": "pause", "now": 1}'.encode("utf-16"),
    "a name twice": '{"type": "pause", "now": 1, "now": 2}',
    "not a number": '{"type": "pause", "now": NaN}',
    "infinity": '{"type": "pause", "now": -Infinity}',
    "a number beyond all": '{"type": "pause", "now": 1e999}',
    "a number of 5,000 digits": '{"type": "pause", "now": ' + "1" * 5_000 + "}",
    "half a surrogate pair": '{"type": "pause", "now": "\ud800"}',
    "half a surrogate pair, escaped": '{"type": "pause", "now": "\\uD800"}',
    "half a surrogate pair in a name": '{"type": "pause", "\\udfff": 1}',
    "65 levels": "[" * 65 + "]" * 65,
    "65 levels of objects": '{"a":' * 65 + "1" + "}" * 65,
    "many levels": "[" * 100_000,
    "a control character": '{"type": "pau\nse"}',
    "neither text nor bytes": 5,
}


# What can stand inside another document.
NOT_STRICT_INSIDE = [what for what, text in NOT_STRICT.items() if isinstance(text, str) and text and text.isascii()]


@pytest.mark.rule("CODEC-004")
@pytest.mark.parametrize("what", NOT_STRICT)
@pytest.mark.parametrize("parse", PARSERS)
def test_what_is_not_strict_json_is_refused(parse: Any, what: str) -> None:
    assert refused(NOT_STRICT[what], "CODEC-004", parse).place == "document"


@pytest.mark.rule("CODEC-004")
def test_what_is_strict_json_is_read() -> None:
    assert strict_json("[" * 64 + "]" * 64) is not None
    assert strict_json("[{}, {}" + ", {}" * 100 + "]") == [{}] * 102
    assert strict_json('"\\ud83c\\udf88 🎈"') == "🎈 🎈"
    assert strict_json("[-" + "9" * 300 + ", 1e308]") == [-int("9" * 300), 1e308]


@pytest.mark.rule("CODEC-004")
def test_a_long_text_is_refused() -> None:
    with pytest.raises(NotStrict):
        strict_json(" " * 10 + "1", length_max=10)
    assert strict_json(" " * 9 + "1", length_max=10) == 1


# --- shape -------------------------------------------------------------------------------------------


def example(kind: Any) -> dict[str, Any]:
    """A valid document of a command, with no field left out."""
    samples = {str: "1", int: 1, bool: False}

    def value(hint: Any) -> Any:
        if hint in samples:
            return samples[hint]
        if hasattr(hint, "_fields"):
            return {name: value(inner) for name, inner in get_type_hints(hint).items()}
        inner = get_args(hint)
        if ... in inner:
            return [value(inner[0])]
        return inner[0] if isinstance(inner[0], str) else value(inner[0])

    return {"type": TAGS[kind], **value(kind)}


def fields(document: Any, path: tuple[Any, ...] = ()) -> Any:
    """Every place of a document, with what stands there."""
    for name, value in document.items() if isinstance(document, dict) else enumerate(document):
        yield (*path, name), value
        if isinstance(value, dict | list):
            yield from fields(value, (*path, name))


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(document))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return copy


@pytest.mark.rule("CODEC-005")
@EVERY_COMMAND
def test_the_example_of_each_command_is_read(kind: Any) -> None:
    document = example(kind)
    assert to_plain(parse_command(json.dumps(document).encode())) == document


@pytest.mark.rule("CODEC-005")
@EVERY_COMMAND
def test_a_field_that_is_missing_has_a_default_or_is_missed(kind: Any) -> None:
    for name in kind._fields:
        document = example(kind)
        del document[name]
        if name in kind._field_defaults:
            assert getattr(parse_command(json.dumps(document)), name) == kind._field_defaults[name]
        else:
            assert refused(json.dumps(document), "CODEC-005").place == f"{TAGS[kind]}.{name}"


@pytest.mark.rule("CODEC-005")
@EVERY_COMMAND
def test_an_unknown_field_is_refused_wherever_it_stands(kind: Any) -> None:
    document = example(kind)
    objects = [(), *(path for path, value in fields(document) if isinstance(value, dict))]
    for path in objects:
        error = refused(json.dumps(changed(document, (*path, "extra"), 1)), "CODEC-005")
        assert error.place.endswith("extra")


def type_at(kind: Any, path: tuple[Any, ...]) -> Any:
    """The type of a place of a command, as the kernel declares it."""
    hint = kind
    for name in path:
        hint = get_args(hint)[0] if isinstance(name, int) else get_type_hints(hint).get(name)
    return hint


@pytest.mark.rule("CODEC-005")
@EVERY_COMMAND
def test_nothing_is_converted(kind: Any) -> None:
    document = example(kind)
    for path, value in fields(document):
        wrong = [v for v in ("1", 1, 1.0, True, [], {}, [1], {"a": 1}) if type(v) is not type(value)]
        if NoneType not in get_args(type_at(kind, path)):
            wrong.append(None)
        for strange in wrong:
            refused(json.dumps(changed(document, path, strange)), "CODEC-005")


@pytest.mark.rule("CODEC-005")
@pytest.mark.parametrize("text", ["[]", "5", "null", '"pause"', "{}", '{"type": 5}', '{"type": null}', '{"type": "x"}'])
def test_a_document_without_a_known_type_is_refused(text: str) -> None:
    refused(text, "CODEC-005")
    refused(text, "CODEC-005", parse_outcome)


# --- limits ------------------------------------------------------------------------------------------

SCRIPT_DATA = [
    ("prepared", ("data",)),
    ("commit_consumer", ("state",)),
    ("commit_producer", ("state",)),
    ("commit_consumer", ("publications", 0, "payload")),
    ("commit_producer", ("publications", 0, "payload")),
    ("record_mutation", ("params",)),
    ("apply_mutation", ("result",)),
    ("assert_applied", ("result",)),
    ("publish", ("publication", "payload")),
]
"""The places of script data in commands."""

EDGES = [
    ("create_run.run", "r" * 256, "r" * 257),
    ("create_run.run", "r", ""),
    ("create_run.session", "ß" * 256, "ß" * 257),
    ("skip_event.key.topic", "t" * 256, ""),
    ("record_mutation.tool", "t", ""),
    ("end_run.tool", "", "t" * 257),
    ("end_run.message", "m" * 100_000, "m" * 100_001),
    ("publish.publication.title", "t" * 1_000, "t" * 1_001),
    ("prepared.data", '"' + "d" * 9_999_998 + '"', '"' + "d" * 9_999_999 + '"'),
    ("prepared.wake_at", 0, -1),
    ("prepared.reservations", [], [{"topic": "t", "id": "i"}] * 10_001),
    ("pause.now", 2**52, 2**52 + 1),
    ("pause.now", 0, -1),
    ("commit_producer.due_at", 2**52, -1),
    ("record_mutation.deadline_ms", 2**50, 2**50 + 1),
]


@pytest.mark.rule("CODEC-006")
@pytest.mark.parametrize(("place", "last", "first"), EDGES, ids=[f"{n}-{edge[0]}" for n, edge in enumerate(EDGES)])
def test_the_last_value_is_read_and_the_next_one_refused(place: str, last: Any, first: Any) -> None:
    name, *path = place.split(".")
    document = example(COMMANDS[name])
    assert parse_command(json.dumps(changed(document, tuple(path), last)))
    assert refused(json.dumps(changed(document, tuple(path), first)), "CODEC-006").place == place


@pytest.mark.rule("CODEC-006")
@EVERY_COMMAND
def test_every_text_and_number_has_an_end(kind: Any) -> None:
    document = example(kind)
    for path, _ in fields(document):
        hint = type_at(kind, path)
        if hint in (str, int, str | None, int | None):
            script_data = (TAGS[kind], path) in SCRIPT_DATA
            over = 2**53 if hint in (int, int | None) else "1" * (10_000_001 if script_data else 100_001)
            refused(json.dumps(changed(document, path, over)), "CODEC-006")


@pytest.mark.rule("CODEC-006")
def test_every_limit_is_of_a_field_that_exists() -> None:
    known = set()
    kinds: list[Any] = [*COMMANDS.values(), State, Outcome, Policy, Declaration]
    for kind in kinds:
        if hasattr(kind, "_fields"):
            known |= set(kind._fields) | {f"{kind.__name__}.{name}" for name in kind._fields}
            kinds += [h for h in get_type_hints(kind).values() if h not in kinds]
        kinds += [inner for inner in get_args(kind) if inner not in kinds]
    assert set(documents.LIMITS) - known == set()
    assert set(documents.LIST_MAX) - known == set()


@pytest.mark.rule("CODEC-006")
def test_a_policy_keeps_its_defaults_and_its_limits() -> None:
    assert parse_policy("{}") == Policy()
    assert parse_policy('{"session_runs": 7}') == Policy(session_runs=7)
    refused('{"backoff_base_ms": 0}', "CODEC-006", parse_policy)
    refused('{"json_max_chars": 10000001}', "CODEC-006", parse_policy)


@pytest.mark.rule("CODEC-005")
def test_a_declaration_keeps_its_defaults() -> None:
    assert parse_declaration('{"name": "poll", "kind": "producer"}') == Declaration("poll", "producer")
    assert refused('{"name": "poll", "kind": "both"}', "CODEC-005", parse_declaration).place == "kind"


# --- script data -------------------------------------------------------------------------------------


@pytest.mark.rule("CODEC-007")
@pytest.mark.parametrize(("name", "path"), SCRIPT_DATA)
@pytest.mark.parametrize("what", NOT_STRICT_INSIDE)
def test_script_data_is_strict_json_too(name: str, path: tuple[Any, ...], what: str) -> None:
    document = changed(example(COMMANDS[name]), path, NOT_STRICT[what])
    error = refused(json.dumps(document), "CODEC-007")
    assert error.place == ".".join(map(str, (name, *path)))


@pytest.mark.rule("CODEC-007")
def test_data_that_is_not_there_is_empty_in_a_state_and_never_in_a_command() -> None:
    refused(json.dumps(changed(example(COMMANDS["prepared"]), ("data",), "")), "CODEC-006")
    state = coherent()
    assert state.run is not None
    assert parse_state(encode(state._replace(run=state.run._replace(result="")))).run.result == ""
    refused(encode(state._replace(run=state.run._replace(result="{"))), "CODEC-007", parse_state)


# --- states ------------------------------------------------------------------------------------------

KEY = Key("mail", "m1")
FILE = Handler(Declaration("file", "consumer", ("mail",), has_mutate=True), "", False, 0, -1, 0, 0)
POLL = Handler(Declaration("poll", "producer"), "", False, 0, 5, 0, 0)
RUN = Run(
    "r", "file", "consumer", "s", "v", "active", "mutating", "", "", 1, (KEY,), (KEY,), "{}", "", "", "", False
)  # fmt: skip
RECORD = Mutation("r", "in_flight", "t", "{}", "d", "w/r", True, 1, 2, 0, 0, "")
EVENT = Event(KEY, 1, "reserved", "r", "Mail", "{}", "", ())
REQUEST = Request("t", "d", (KEY,))


def coherent() -> State:
    return new_workflow("w")._replace(
        status="active",
        version="v",
        topics=("mail",),
        grants=(Permission("t", "ask"),),
        approvals=(REQUEST,),
        session=Session("s", "open", 1, 0),
        run=RUN,
        mutation=RECORD,
        handlers=(FILE, POLL),
        events=(EVENT,),
        next_seq=2,
    )


OVER = RUN._replace(status="paused:reconciliation")
CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "an event twice": ({"events": (EVENT, EVENT._replace(seq=2)), "next_seq": 3}, "EVENT-007"),
    "a number twice": ({"events": (EVENT, EVENT._replace(key=Key("mail", "m2")))}, "EVENT-007"),
    "a number to come": ({"next_seq": 1}, "EVENT-007"),
    "another order": ({"events": (EVENT._replace(key=Key("mail", "m2"), seq=2), EVENT), "next_seq": 3}, "STEP-003"),
    "a pending event with an owner": ({"events": (EVENT._replace(status="pending"),)}, "EVENT-001"),
    "a reserved event without": ({"events": (EVENT._replace(owner=""),)}, "EVENT-001"),
    "a handler twice": ({"handlers": (FILE, FILE)}, "WORK-006"),
    "a topic twice": ({"topics": ("mail", "mail")}, "WORK-006"),
    "a grant twice": ({"grants": (Permission("t", "ask"), Permission("t", "always"))}, "PERM-001"),
    "an input twice": ({"run": RUN._replace(reserved=(KEY, KEY))}, "EVENT-004"),
    "a session that is over": ({"session": Session("s", "failed", 1, 0)}, "SESS-001"),
    "a session of another run": ({"session": Session("t", "open", 1, 0)}, "SESS-003"),
    "no session": ({"session": None}, "SESS-003"),
    "a record without a run": ({"run": None}, "MUT-003"),
    "a record of another run": ({"mutation": RECORD._replace(run="q")}, "MUT-003"),
    "a record of a producer": ({"run": RUN._replace(kind="producer", phase="executing")}, "RUN-004"),
    "a committed run": ({"run": RUN._replace(status="committed")}, "RUN-005"),
    "a phase of the end": ({"run": RUN._replace(phase="committed")}, "PHASE-001"),
    "a phase of a producer": ({"run": RUN._replace(phase="executing")}, "PHASE-001"),
    "a request that nobody asked": ({"error": Error("internal", "", "r", "", "", REQUEST)}, "PERM-003"),
    "an asking without a request": ({"error": Error("approval", "request", "r", "", "", None)}, "PERM-003"),
}


@pytest.mark.rule("CODEC-008")
def test_a_coherent_state_is_read() -> None:
    for state in (
        coherent(),
        coherent()._replace(run=OVER, session=None),
        coherent()._replace(run=None, mutation=None),
        coherent()._replace(run=RUN._replace(kind="producer", phase="executing"), mutation=None),
        coherent()._replace(error=Error("approval", "request", "r", "", "", REQUEST)),
        coherent()._replace(events=(EVENT._replace(status="skipped", owner=""),)),
        coherent()._replace(events=(EVENT._replace(owner="someone else"),)),
    ):
        assert parse_state(encode(state)) == state


@pytest.mark.rule("CODEC-008")
@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_rows_that_contradict_each_other_are_refused(what: str) -> None:
    changes, rule = CONTRADICTIONS[what]
    state = coherent()._replace(**changes)
    assert refused(encode(state), "CODEC-008", parse_state).rule == f"CODEC-008, {rule}"
    within = refused(encode(Accepted(state, (), (), Retired())), "CODEC-008", parse_outcome)
    assert within.place.startswith("accepted.state.")


@pytest.mark.rule("CODEC-008")
@given(state=tame(State), command=tame(Command))
def test_any_state_is_refused_or_step_takes_any_command_on_it(state: State, command: Command) -> None:
    found = read(parse_state, encode(state))
    if not isinstance(found, BadDocument):
        assert found == state
        assert isinstance(step(found, parse_command(encode(command))), Accepted | Rejected)


@pytest.mark.rule("CODEC-008")
@given(data=st.data())
def test_step_takes_any_command_on_rows_that_belong_together(data: st.DataObject) -> None:
    """The same, on states that are mostly let in: a coherent one with one row from elsewhere."""
    names = st.sampled_from(State._fields)
    other = data.draw(tame(State))
    state = coherent()._replace(**{name: getattr(other, name) for name in data.draw(st.sets(names, max_size=3))})
    found = read(parse_state, encode(state))
    assume(not isinstance(found, BadDocument))  # Hypothesis fails the test when too few are let in.
    for command in data.draw(st.lists(tame(Command), min_size=5, max_size=20)):
        named = command._replace(run="r") if "run" in command._fields else command
        assert isinstance(step(found, named), Accepted | Rejected)


@pytest.mark.rule("CODEC-008")
def test_what_the_kernel_does_is_a_document() -> None:
    assert len(seen()) > 1_000
    for state, command, outcome in seen():
        assert parse_state(encode(state)) == decode_state(encode(state)) == state
        assert parse_command(encode(command)) == decode_command(encode(command)) == command
        assert parse_outcome(encode(outcome)) == decode_outcome(encode(outcome)) == outcome


@pytest.mark.rule("CODEC-006")
def test_the_longest_names_and_many_causes_are_in_a_document() -> None:
    workflow, run_id = "/" * 256, "r" * 256
    key = idempotency_key(workflow, run_id)
    causes = tuple(Key("mail", f"m{n}") for n in range(20_000))
    run, record = RUN._replace(id=run_id, causes=causes), RECORD._replace(run=run_id, key=key)
    events = (EVENT._replace(owner=run_id, causes=causes),)
    state = coherent()._replace(workflow=workflow, run=run, mutation=record, events=events)
    assert len(key) == 3 * 256 + 1 + 256
    assert parse_state(encode(state)) == state


@pytest.mark.rule("CODEC-006")
def test_what_the_kernel_does_with_the_largest_numbers_is_a_document() -> None:
    """Times and durations add up, and every sum still fits."""
    largest = Policy(*(most(documents.LIMITS.get(f"Policy.{f}") or documents.LIMITS[f]) for f in Policy._fields))
    now = documents.INSTANT_MAX
    accepted = set()
    for state, command, _ in seen():
        run = state.run and state.run._replace(created_at=now)
        rows = tuple(h._replace(declared=slowest(h.declared)) for h in state.handlers)
        outcome = step(state._replace(run=run, handlers=rows, policy=largest), command._replace(now=now))
        if isinstance(outcome, Accepted):
            assert parse_outcome(encode(outcome)) == outcome
            accepted.add(type(command))
    assert {CommitProducer, RecordMutation, ReconcileRetry, EndRun, Prepared} <= accepted


def most(limit: Any) -> int:
    """The largest number that a limit lets through."""
    return TypeAdapter(limit).json_schema()["maximum"]


def slowest(declared: Declaration) -> Declaration:
    return declared._replace(interval_ms=documents.DURATION_MAX) if declared.interval_ms else declared


# --- one clear error ---------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("x" * 2_000),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@st.composite
def spoiled(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> str:
    """A valid document with one to three things wrong, or not quite wrong."""
    document = to_plain(draw(values))
    for _ in range(draw(st.integers(1, 3))):
        places = [((), document), *fields(document)]
        path, value = draw(st.sampled_from(places))
        if path and draw(st.booleans()):
            document = changed(document, path, draw(ANYTHING))
        elif isinstance(value, dict):
            name = draw(st.sampled_from([*value, "extra"]))
            if draw(st.booleans()):
                document = changed(document, (*path, name), draw(ANYTHING))
            elif name in value:
                inner = document
                for part in path:
                    inner = inner[part]
                del inner[name]
    text = json.dumps(document)
    return draw(st.sampled_from([text, text + text, text[:-1], "\ufeff" + text, text.replace("1", "1" * 5_000, 1)]))


def check_spoiled(parse: Any, text: str) -> None:
    value = read(parse, text)
    if isinstance(value, BadDocument):
        assert re.match("CODEC-00[4-8]", value.rule)
        assert len(str(value)) < 1_500
    else:
        assert parse(json.dumps(to_plain(value))) == value


@pytest.mark.rule("CODEC-009")
@EVERY_COMMAND
@given(data=st.data())
@settings(max_examples=20)
def test_a_spoiled_command_is_a_value_or_one_clear_error(kind: Any, data: st.DataObject) -> None:
    check_spoiled(parse_command, data.draw(spoiled(tame(kind))))


@pytest.mark.rule("CODEC-009")
@pytest.mark.parametrize(
    ("parse", "kind"),
    [(parse_state, State), (parse_outcome, Outcome), (parse_policy, Policy), (parse_declaration, Declaration)],
    ids=["state", "outcome", "policy", "declaration"],
)
@given(data=st.data())
def test_any_other_spoiled_document_is_a_value_or_one_clear_error(parse: Any, kind: Any, data: st.DataObject) -> None:
    check_spoiled(parse, data.draw(spoiled(tame(kind))))


@pytest.mark.rule("CODEC-009")
@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text(st.characters()) | st.binary() | ANYTHING.map(json.dumps))
def test_anything_at_all_is_one_clear_error(parse: Any, text: str | bytes) -> None:
    # Only a policy may leave everything out.
    assert isinstance(read(parse, text), BadDocument) or (parse is parse_policy and parse(text) == Policy())


@pytest.mark.rule("CODEC-009")
def test_an_error_counts_what_else_is_wrong_and_repeats_no_long_input() -> None:
    error = refused('{"type": "pause", "' + "x" * 1_000_000 + '": 1, "y": 2}', "CODEC-005")
    assert error.place == "pause.now"
    assert error.problem.endswith("and 2 more")
    error = refused('{"type": "pause", "now": 1, "' + "x" * 1_000_000 + '": 1}', "CODEC-005")
    assert error.place == "pause.'xxxxxxxxxxxxxxxxxxxx…'"
