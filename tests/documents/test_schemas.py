"""The JSON Schemas: every valid document passes, and what a schema refuses `documents` refuses too."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from values import seen, tame

from keepkernel import COMMANDS, Command, Declaration, Outcome, Policy, State
from keepkernel.kernel.codec import to_plain
from keepkernel.spec.documents import (
    BadDocument,
    parse_command,
    parse_declaration,
    parse_outcome,
    parse_policy,
    parse_state,
)

FOLDER = Path(__file__).resolve().parents[2] / "spec" / "generated" / "schemas"
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
REGISTRY: Any = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in SCHEMAS.values())
VALIDATORS = {name: Draft202012Validator(schema, registry=REGISTRY) for name, schema in SCHEMAS.items()}
OTHERS = {
    "state": (State, parse_state),
    "outcome": (Outcome, parse_outcome),
    "policy": (Policy, parse_policy),
    "declaration": (Declaration, parse_declaration),
    "command": (Command, parse_command),
}
KINDS: dict[str, tuple[Any, Any]] = {**{name: (kind, parse_command) for name, kind in COMMANDS.items()}, **OTHERS}
EVERY_SCHEMA = pytest.mark.parametrize("name", KINDS)


def test_every_document_has_its_schema() -> None:
    assert set(SCHEMAS) == set(KINDS)


@EVERY_SCHEMA
def test_a_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@EVERY_SCHEMA
@given(data=st.data())
@settings(max_examples=20)
def test_a_value_within_the_limits_passes(name: str, data: st.DataObject) -> None:
    VALIDATORS[name].validate(to_plain(data.draw(tame(KINDS[name][0]))))


def test_what_the_kernel_does_passes() -> None:
    some = seen()[::10]
    assert len(some) > 100
    for state, command, outcome in some:
        VALIDATORS["state"].validate(to_plain(state))
        VALIDATORS["command"].validate(to_plain(command))
        VALIDATORS["outcome"].validate(to_plain(outcome))


STRANGE = st.sampled_from([None, True, -2, 2**60, 1.5, "", "x" * 100_001, [], [None], {}, {"extra": 1}])


@EVERY_SCHEMA
@given(data=st.data())
@settings(max_examples=20)
def test_what_a_schema_refuses_is_refused(name: str, data: st.DataObject) -> None:
    kind, parse = KINDS[name]
    document = to_plain(data.draw(tame(kind)))
    field = data.draw(st.sampled_from([*document, "extra"]))
    document[field] = data.draw(STRANGE)
    if not VALIDATORS[name].is_valid(document):
        with pytest.raises(BadDocument):
            parse(json.dumps(document))


@EVERY_SCHEMA
def test_a_schema_refuses_what_is_not_known(name: str) -> None:
    assert not VALIDATORS[name].is_valid({"extra": 1})
    assert not VALIDATORS[name].is_valid([])


def test_fields_are_described_where_the_kernel_describes_them() -> None:
    assert SCHEMAS["fail_mutation"]["properties"]["voided"]["description"].startswith("The connector has made")
    assert SCHEMAS["state"]["$defs"]["Event"]["properties"]["owner"]["description"].startswith("The run that")
