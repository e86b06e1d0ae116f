"""JSON Schemas of the vectors."""

from typing import Any, Final, get_args

from ...kernel.reasons import Fault

Json = dict[str, Any]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
TEXT: Final[Json] = {"type": "string"}
TEXTS: Final[Json] = {"type": "array", "items": TEXT}
ROW: Final[Json] = {"type": ["object", "null"]}


def schema(name: str, description: str, properties: Json, **more: Any) -> Json:
    return {
        "$schema": DIALECT,
        "$id": f"urn:keepkernel:vectors:{name}",
        "description": description,
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in OPTIONAL],
        **more,
    }


OPTIONAL: Final = frozenset({"after", "effects", "retired", "reason"})

CASE: Final = schema(
    "case",
    "One line of cases.ndjson.gz: a single step.",
    {
        "id": {"type": "string", "pattern": "^[a-z_]+-[0-9]{3}$"},
        "reachable": {"type": "boolean"},
        "rules": TEXTS,
        "moves": TEXTS,
        "before": {"$ref": "urn:keepkernel:state"},
        "command": {"$ref": "urn:keepkernel:command"},
        "outcome": {"enum": ["accepted", "rejected"]},
        "after": {"$ref": "urn:keepkernel:state"},
        "effects": {"type": "array", "items": {"type": "object", "required": ["type", "run"]}},
        "retired": {
            "type": "object",
            "properties": {"run": ROW, "mutation": ROW, "session": ROW},
            "required": ["run", "mutation", "session"],
            "additionalProperties": False,
        },
        "reason": TEXT,
    },
    additionalProperties=False,
    oneOf=[
        {
            "properties": {"outcome": {"const": "accepted"}},
            "required": ["after", "effects", "retired"],
            "not": {"required": ["reason"]},
        },
        {
            "properties": {"outcome": {"const": "rejected"}},
            "required": ["reason"],
            "not": {"anyOf": [{"required": ["after"]}, {"required": ["effects"]}, {"required": ["retired"]}]},
        },
    ],
)

BIG: Final[Json] = {
    "type": "object",
    "properties": {"#bigint": {"type": "string", "pattern": "^-?[0-9]+$"}},
    "required": ["#bigint"],
    "additionalProperties": False,
}
MOMENT: Final[Json] = {
    "type": "object",
    "properties": {
        "#meta": {"type": "object"},
        "op": {"enum": ["reset", "do", "crash", "recover"]},
        "now": BIG,
        "command": TEXT,
        "outcome": TEXT,
        "effects": TEXT,
        "state": TEXT,
    },
    "required": ["op", "now", "command", "outcome", "effects", "state"],
    "additionalProperties": False,
}
TRACE: Final = schema(
    "trace",
    "One line of a .itf.ndjson.gz file: a trace in the Informal Trace Format.",
    {
        "#meta": {
            "type": "object",
            "properties": {
                "format": {"const": "ITF"},
                "id": TEXT,
                "setup": TEXT,
                "point": TEXT,
            },
            "required": ["format", "id", "setup"],
        },
        "vars": {"const": ["op", "now", "command", "outcome", "effects", "state"]},
        "states": {"type": "array", "items": MOMENT, "minItems": 2},
    },
)

MANIFEST: Final = schema(
    "manifest",
    "What the folder holds, what it covers, and what it does not.",
    {
        "format": {"const": 1},
        "spec": TEXT,
        "events": {"type": "integer", "minimum": 1},
        "files": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {"sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "lines": {"type": "integer"}},
                "required": ["sha256"],
            },
        },
        "tour": {"type": "object", "required": ["setup", "transitions", "taken", "left_out"]},
        "covered": {"type": "object", "required": ["rules", "edges", "reasons"]},
        "not_covered": {"type": "object", "required": ["rules", "edges", "reasons"]},
    },
)

REASONS: Final[Json] = {
    "$schema": DIALECT,
    "$id": "urn:keepkernel:vectors:reasons",
    "description": "Every reason to reject, by its name.",
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {
            "rule": {"type": "string", "pattern": "^[A-Z]+-[0-9]{3}$"},
            "fault": {"enum": list(get_args(Fault))},
            "why": TEXT,
            "remedy": TEXT,
            "commands": TEXTS,
        },
        "required": ["rule", "fault", "why", "remedy", "commands"],
        "additionalProperties": False,
    },
}

SCHEMAS: Final[dict[str, Json]] = {"case": CASE, "trace": TRACE, "manifest": MANIFEST, "reasons": REASONS}
