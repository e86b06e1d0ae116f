"""Canonical JSON: one text per value, the very value back, and one error for everything else."""

import json
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from values import wild

from keepkernel import (
    BlockWorkflow,
    Command,
    DecodeError,
    Effect,
    Outcome,
    Pause,
    Publication,
    Resume,
    State,
    decode_command,
    decode_outcome,
    decode_state,
    encode,
)
from keepkernel.kernel.codec import EncodeError, from_plain, to_plain

DECODERS = {State: decode_state, Command: decode_command, Outcome: decode_outcome}
KINDS = pytest.mark.parametrize("kind", DECODERS, ids=["state", "command", "outcome"])


@pytest.mark.rule("CODEC-001")
@KINDS
@given(data=st.data())
def test_the_text_is_canonical(kind: Any, data: st.DataObject) -> None:
    text = encode(data.draw(wild(kind)))
    assert text.isascii()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


@pytest.mark.rule("CODEC-001")
def test_the_text_has_every_field_and_the_name_of_the_type() -> None:
    assert encode(Pause(5)) == '{"now":5,"type":"pause"}'
    assert to_plain((Publication, None)) == [Publication, None]


@pytest.mark.rule("CODEC-001")
@KINDS
@given(data=st.data())
def test_equal_texts_are_equal_values(kind: Any, data: st.DataObject) -> None:
    one = data.draw(wild(kind))
    name = data.draw(st.sampled_from(one._fields))
    other = one._replace(**{name: data.draw(wild(get_type_hints(type(one))[name]))})
    assert (encode(one) == encode(other)) == (one == other)


@pytest.mark.rule("CODEC-001")
def test_values_of_two_types_have_two_texts() -> None:
    """Python takes tuples of two types for equal when their fields are."""
    assert encode(Pause(1)) != encode(Resume(1))


@pytest.mark.rule("CODEC-002")
@KINDS
@given(data=st.data())
def test_every_value_comes_back(kind: Any, data: st.DataObject) -> None:
    value = data.draw(wild(kind))
    back = DECODERS[kind](encode(value))
    assert back == value
    assert repr(back) == repr(value), "the types are the same too, at every level"


@pytest.mark.rule("CODEC-002")
@given(wild(Effect))
def test_every_effect_comes_back(effect: Effect) -> None:
    assert from_plain(Effect, json.loads(encode(effect))) == effect


@pytest.mark.rule("CODEC-002")
@given(wild(Command))
def test_space_and_order_do_not_matter_to_a_reader(command: Command) -> None:
    shuffled = dict(reversed(to_plain(command).items()))
    assert decode_command(json.dumps(shuffled, indent=3, ensure_ascii=False)) == command


HOSTILE = {
    "nothing": "",
    "not JSON": "{",
    "not a number": '{"now":NaN,"type":"pause"}',
    "an infinite number": '{"now":1e999,"type":"pause"}',
    "a number of 5,000 digits": '{"now":' + "9" * 5_000 + ',"type":"pause"}',
    "a fraction": '{"now":1.0,"type":"pause"}',
    "a truth value for a number": '{"now":true,"type":"pause"}',
    "a number for a text": '{"now":1,"message":2,"type":"block_workflow"}',
    "deep nesting": '{"now":' + "[" * 100_000 + "]" * 100_000 + ',"type":"pause"}',
    "nesting that can be read": '{"now":' + "[" * 500 + "]" * 500 + ',"type":"pause"}',
    "half a surrogate pair, escaped": '{"message":"\\ud800","now":1,"type":"block_workflow"}',
    "half a surrogate pair": '{"message":"\ud800","now":1,"type":"block_workflow"}',
    "a field too few": '{"type":"pause"}',
    "a field too many": '{"now":1,"then":2,"type":"pause"}',
    "a type that is no text": '{"now":1,"type":[]}',
    "an unknown type": '{"now":1,"type":"stop"}',
    "no type": '{"now":1}',
    "a list": "[]",
    "a word that is none": '{"now":1,"tool":"t","mode":"never","type":"grant"}',
    "a long word that is none": '{"now":1,"tool":"t","mode":"' + "x" * 100_000 + '","type":"grant"}',
    "an object for a list": '{"now":1,"version":"v","topics":{},"handlers":[],"type":"deploy"}',
    "a text for an object": '{"now":1,"version":"v","topics":[],"handlers":["h"],"type":"deploy"}',
}


@pytest.mark.rule("CODEC-003")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_text_is_an_error_with_a_short_message(what: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_command(HOSTILE[what])
    assert 0 < len(str(caught.value)) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@pytest.mark.rule("CODEC-003")
@KINDS
@given(text=st.text(st.characters()) | JSON.map(json.dumps))
def test_any_text_is_an_error_or_a_value(kind: Any, text: str) -> None:
    with pytest.raises(DecodeError):  # No text of such a strategy is a whole value.
        DECODERS[kind](text)


@pytest.mark.rule("CODEC-003")
@given(plain=JSON, command=wild(Command), data=st.data())
def test_one_strange_field_is_an_error_or_a_value(plain: Any, command: Command, data: st.DataObject) -> None:
    document = to_plain(command)
    document[data.draw(st.sampled_from(sorted(document)))] = plain
    try:
        read = decode_command(json.dumps(document))
    except DecodeError:
        return
    assert to_plain(read) == document


@pytest.mark.rule("CODEC-003")
@pytest.mark.parametrize("text", ["\ud800", "\ud83d\ude00", "fine \udfff"])
def test_half_a_surrogate_pair_has_no_text(text: str) -> None:
    with pytest.raises(EncodeError):
        encode(BlockWorkflow(1, text))


@pytest.mark.rule("CODEC-003")
def test_a_number_of_5000_digits_has_no_text() -> None:
    with pytest.raises(EncodeError):
        encode(Pause(10**5_000))


@pytest.mark.rule("CODEC-003")
def test_the_name_of_the_type_is_checked_outside_a_union() -> None:
    with pytest.raises(DecodeError):
        from_plain(Pause, {"type": "resume", "now": 1})
