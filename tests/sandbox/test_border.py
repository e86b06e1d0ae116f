"""JSON across the border, there and back: exact for every value, or refused."""

import json
import math
from typing import Any

import pytest
from boxed import Watched, run_body
from hypothesis import given, settings
from hypothesis import strategies as st

from keepkernel.kernel.respond import Failed
from keepkernel.sandbox import border
from keepkernel.sandbox.bridge import Returned

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = (
    st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 2**53, 2**53 + 1, -(2**63), 10**21, 10**21 + 1, 5e-324, 1.7976931348623157e308, 0.1])
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.sampled_from(["\0", "🎈", "\u2028", "__proto__", "\ufeff"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | st.just("__proto__"), inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON values: a whole number and a fraction may be alike, `0` and `-0` may not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


@given(value=VALUES)
@settings(max_examples=150)
def test_every_value_comes_back_as_it_was(workers: Watched, value: Any) -> None:
    """As a value that the function is given, as the answer to an operation, as a parameter and as its result."""
    text = border.dumps(value)
    ran = run_body(workers, "prepare", "return [first, await ctx.gmail.search([first])]", text, answer=text)
    assert isinstance(ran.said, Returned)
    assert ran.said.value is not None
    assert same(border.loads(ran.said.value), [value, value])
    assert same(ran.asked[0].args[0], [value])
    assert same(border.loads(border.dumps(border.loads(text))), value)


EXACT = {
    "a whole number": ("first + 1", "41", "42"),
    "a whole number beyond 53 bits": ("first", "9007199254740993", "9007199254740993"),
    "a whole number beyond 53 bits that fits": ("typeof first", "9007199254740994", '"number"'),
    "counting beyond 53 bits": ("first + 1n", "9007199254740993", "9007199254740994"),
    "digits that JavaScript does not show": ("2 ** 60 + 1", "", "1152921504606846976"),
    "minus zero": ("[first, Object.is(first, -0), 0]", "-0", "[-0,true,0]"),
    "a name with a meaning": ("first", '{"__proto__":{"a":1}}', '{"__proto__":{"a":1}}'),
    "nothing": ("first === undefined", "", "true"),
    "null": ("first", "null", "null"),
    "a member without a value": ("({ a: undefined, b: 1 })", "", '{"b":1}'),
    "a date": ("new Date(0)", "", '"1970-01-01T00:00:00.000Z"'),
    "64 levels": ("first", "[" * 64 + "]" * 64, "[" * 64 + "]" * 64),
    "half a pair that stays inside": ("first.length", '"\\ud800"', "1"),
}


@pytest.mark.parametrize("what", EXACT)
def test_what_a_script_makes_of_a_value(workers: Watched, what: str) -> None:
    expression, given_text, result = EXACT[what]
    assert run_body(workers, "prepare", f"return {expression}", given_text).said == Returned(result)


UNFIT = {
    "not a number": "NaN",
    "beyond all numbers": "[1e999]",
    "a function": "{ f() {} }",
    "a symbol": "[Symbol()]",
    "a gap in a list": "[1, , 2]",
    "undefined in a list": "[undefined]",
    "a promise that was not awaited": "{ found: Promise.resolve(1) }",
    "a map": "new Map([[1, 2]])",
    "a set": "{ s: new Set() }",
    "bytes": "new Uint8Array(3)",
    "an instance": "new (class A { a = 1 })()",
    "an error": "[new Error('x')]",
    "a boxed number": "[new Number(1)]",
    "a regular expression": "/x/",
    "a date that is none": "{ d: new Date('soon') }",
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_json_does_not_have_is_refused_and_not_changed(workers: Watched, what: str) -> None:
    for body in (f"return ({UNFIT[what]})", f"return await ctx.gmail.search({UNFIT[what]})"):
        ran = run_body(workers, "prepare", body)
        assert isinstance(ran.said, Failed), ran.said
        assert (ran.said.failure, ran.asked) == ("bad_result", [])


REFUSED = {
    "half a pair": '"\\ud800"',
    "half a pair in a name": '{"\\udc00": 1}',
    "65 levels": "[" * 65 + "]" * 65,
    "no end of levels": "[" * 100_000 + "]" * 100_000,
    "a name twice": '{"a": 1, "a": 1}',
    "a huge number": "1e999",
    "too many digits": "1" + "0" * 300,
    "not a number": "NaN",
    "more than one value": "1 2",
    "nothing": "",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_can_not_cross_is_refused(what: str) -> None:
    with pytest.raises(border.NotExact):
        border.loads(REFUSED[what])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("'\\ud800'", "half a surrogate pair"),
        ("10n ** 400n", "too large"),
        ("JSON.parse('['.repeat(65) + ']'.repeat(65))", "64 levels"),
    ],
)
def test_what_a_script_sends_must_be_readable_by_all(workers: Watched, value: str, problem: str) -> None:
    said = run_body(workers, "mutate", f"await ctx.gmail.send({value})").said
    assert isinstance(said, Failed)
    assert (said.failure, problem in said.message) == ("bad_result", True)


def test_a_text_is_one_line_of_ascii() -> None:
    assert border.dumps({"ü": "\n\0🎈"}) == '{"\\u00fc":"\\n\\u0000\\ud83c\\udf88"}'
    assert json.loads(border.dumps(-0.0)) == 0
