"""Canonical texts by example; tests/documents shows the same for any value."""

import json
import math

import pytest
from flow import flow, mail

from keepkernel import (
    COMMANDS,
    Accepted,
    CallHandler,
    DecodeError,
    Pause,
    Prepared,
    Reconcile,
    Repair,
    Send,
    SkipEvent,
    StartSession,
    decode_command,
    decode_outcome,
    decode_state,
    encode,
    step,
)
from keepkernel.kernel.codec import WRITERS, EncodeError, from_plain, reader, shown, to_plain
from keepkernel.kernel.commands import _snake

EFFECTS = {
    "call_handler": CallHandler("r", "file", "v1", "next"),
    "send": Send("r", "sheets.append", "{}", "w/r", 5),
    "reconcile": Reconcile("r", "sheets.append", "{}", "w/r", "inline", 5),
    "repair": Repair("r", "file", "why"),
}


@pytest.fixture(autouse=True)
def _made_anew() -> None:
    """A reader or a writer that an earlier test has made could hide a fault in the making."""
    reader.cache_clear()
    for kind in [kind for kind in WRITERS if hasattr(kind, "_fields")]:
        del WRITERS[kind]


def test_every_command_is_named_by_its_words() -> None:
    assert COMMANDS["start_session"] is StartSession
    assert _snake("StartSession") == "start_session"
    assert {_snake(kind.__name__): kind for kind in COMMANDS.values()} == COMMANDS


@pytest.mark.rule("CODEC-001")
def test_a_text_has_sorted_keys_no_spaces_ascii_and_the_name_of_its_type() -> None:
    assert encode(SkipEvent(5, *mail("ü🎈"))) == (
        '{"key":{"id":"\\u00fc\\ud83c\\udf88","topic":"mail"},"now":5,"type":"skip_event"}'
    )
    prepared = '{"data":"null","now":5,"reservations":[],"run":"r","title":"","type":"prepared","wake_at":null}'
    assert encode(Prepared(5, "r")) == prepared
    refused = step(flow().state, Pause(0))
    assert encode(refused) == '{"detail":"draft","reason":"workflow_edge","rule":"WORK-001","type":"rejected"}'
    for name, effect in EFFECTS.items():
        assert json.loads(encode(effect)) == {"type": name, **effect._asdict()}


@pytest.mark.rule("CODEC-002")
@pytest.mark.parametrize("station", ["prepared", "in_flight", "emitting"])
def test_a_value_comes_back_as_it_was(station: str) -> None:
    there = flow().deployed().event("m1").run_to(station)
    assert decode_state(encode(there.state)) == there.state
    assert decode_outcome(encode(there.last)) == there.last
    assert isinstance(decode_outcome(encode(there.last)), Accepted)
    assert decode_command(encode(Prepared(5, "r", mail("m1"), wake_at=7))) == Prepared(5, "r", mail("m1"), wake_at=7)
    for effect in EFFECTS.values():
        assert from_plain(type(effect), to_plain(effect)) == effect


@pytest.mark.rule("CODEC-002")
def test_a_reader_takes_white_space_and_keys_in_any_order() -> None:
    assert isinstance(decode_command(' {"type": "pause",\n "now": 5} '), Pause)
    for name in ("ü🎈", "\\u00fc\\uD83C\\udf88"):
        text = f'{{"type":"start_session","session":"{name}","now":5}}'
        assert decode_command(text) == StartSession(5, "ü🎈")


@pytest.mark.rule("CODEC-003")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"type":"start_session","now":5,"session":"\ud800"}', "not JSON"),
        ('{"type":"start_session","now":5,"session":"\\ud800"}', "not JSON"),
        ('{"type":"start_session","now":5,"session":"\\uDfFF"}', "not JSON"),
        ("9" * 5_000, "not JSON"),
        ("null", "null is none of the kinds"),
        ("[]", "a list of 0 is none of the kinds"),
        ('{"now":5}', "an object with 1 fields is none"),
        ('{"now":5,"type":"jump"}', "none of the kinds"),
        ('{"now":5,"type":7}', "none of the kinds"),
        ('{"type":"pause"}', "^Pause: missing, unknown or wrong: 'now'$"),
        ('{"now":5,"type":"pause","b":1,"a":1}', "^Pause: missing, unknown or wrong: 'a', 'b'$"),
        ('{"now":"5","type":"pause"}', "^expected int, got '5'$"),
        ('{"now":true,"type":"pause"}', "^expected int, got true$"),
        ('{"now":NaN,"type":"pause"}', "expected int, got NaN"),
    ],
)
def test_everything_else_is_one_error(text: str, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode_command(text)


@pytest.mark.rule("CODEC-003")
@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("status", "asleep", r"'asleep' is not one of \['active', 'draft', 'paused', 'ready'\]"),
        ("status", 7, "7 is not one of"),
        ("topics", "mail", "expected a list, got 'mail'"),
        ("topics", ["mail", 7], "expected str, got 7"),
        ("session", [], "expected an object for Session, got a list of 0"),
        ("session", {}, "Session: missing, unknown or wrong: 'commits', 'id', 'runs', 'status'"),
    ],
)
def test_a_field_of_another_type_is_an_error(field: str, value: object, why: str) -> None:
    plain = to_plain(flow().state) | {field: value}
    with pytest.raises(DecodeError, match=why):
        decode_state(json.dumps(plain))


@pytest.mark.rule("CODEC-003")
def test_an_effect_of_another_name_is_an_error() -> None:
    with pytest.raises(DecodeError, match=r"^Send: missing, unknown or wrong: type$"):
        from_plain(Send, to_plain(EFFECTS["send"]) | {"type": "repair"})


@pytest.mark.rule("CODEC-003")
@pytest.mark.parametrize(
    "value", [StartSession(0, "\ud800"), StartSession(0, "\ud83c\udf88"), Pause(10**5_000), Pause(math.nan)]
)
def test_a_value_without_a_canonical_text_is_not_written(value) -> None:
    with pytest.raises(EncodeError, match=f"^{type(value).__name__} has no canonical text: "):
        encode(value)


@pytest.mark.rule("CODEC-003")
def test_messages_are_short_whatever_the_input() -> None:
    assert [shown(v) for v in ("x" * 20, "x" * 21, "ü", 10**20, -(10**20), 10**20 - 1, 1.5, None)] == [
        repr("x" * 20),
        f"'{'x' * 20}…'",
        "'\\xfc'",
        "a huge number",
        "a huge number",
        str(10**20 - 1),
        "1.5",
        "null",
    ]


@pytest.mark.rule("CODEC-001")
def test_the_plain_value_of_anything_is_what_its_text_says() -> None:
    state = flow().deployed().event("m1").run_to("in_flight").state
    for value in (state, *EFFECTS.values(), Prepared(1, "r", mail("m1")), step(state, Pause(5)), Pause(5)):
        assert to_plain(value) == json.loads(encode(value))


@pytest.mark.rule("CODEC-001")
def test_what_stays_the_same_is_written_once_and_what_changes_anew() -> None:
    state = flow().deployed().state
    assert encode(state) == encode(state)
    kept = WRITERS[type(state.policy)]
    assert kept(state.policy) is kept(state.policy)
    other = state._replace(policy=state.policy._replace(session_runs=7))
    assert decode_state(encode(other)) == other != state
    assert not hasattr(WRITERS[type(state)], "cache_info")


@pytest.mark.rule("CODEC-003")
def test_a_value_of_a_wrong_type_is_written_as_it_is_and_not_read() -> None:
    assert encode(Pause(1.5)) == '{"now":1.5,"type":"pause"}'
    with pytest.raises(DecodeError):
        decode_command(encode(Pause(1.5)))
