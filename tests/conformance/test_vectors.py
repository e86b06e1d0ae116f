"""The vectors are what the reference does now, whole, and readable by their schemas."""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from keepkernel.fuzz.conformance import tours, vectors
from keepkernel.fuzz.conformance.rules import UNSEEN, reasons_of, titles
from keepkernel.kernel.codec import decode_command, decode_state, encode, from_plain
from keepkernel.kernel.commands import Command
from keepkernel.kernel.reasons import REASONS
from keepkernel.kernel.recover import recover
from keepkernel.kernel.step import step
from keepkernel.kernel.tables import TABLES
from keepkernel.kernel.types import Accepted, State

FOLDER = vectors.FOLDER
SCHEMAS = FOLDER.parent / "generated" / "schemas"


def lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(FOLDER / name, "rt") as file:
        yield from map(json.loads, file)


@cache
def manifest() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / "manifest.json").read_text())
    return document


def validator(name: str) -> Draft202012Validator:
    known = [json.loads(path.read_text()) for path in (*SCHEMAS.glob("*.json"), *(FOLDER / "schemas").glob("*.json"))]
    registry: Registry[Any] = Registry().with_resources((one["$id"], Resource.from_contents(one)) for one in known)
    return Draft202012Validator(json.loads((FOLDER / "schemas" / name).read_text()), registry=registry)


def test_no_vector_is_stale() -> None:
    assert vectors.stale(vectors.files()) == [], "run `keepkernel vectors`"


def test_a_changed_a_missing_and_a_surplus_file_are_stale(tmp_path: Path) -> None:
    made = {"same.ndjson.gz": vectors.packed([{"a": 1}]), "changed.json": b"1", "missing.json": b"1"}
    (tmp_path / "same.ndjson.gz").write_bytes(gzip.compress(b'{"a":1}\n', 1))
    (tmp_path / "changed.json").write_bytes(b"2")
    (tmp_path / "surplus.json").write_bytes(b"1")
    assert vectors.stale(made, tmp_path) == ["changed.json", "missing.json", "surplus.json"]
    vectors.write(made, tmp_path)
    assert vectors.stale(made, tmp_path) == []


def test_the_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 2_000_000


def test_every_edge_rule_and_reason_has_a_case_or_an_explanation() -> None:
    covered, left_out = manifest()["covered"], manifest()["not_covered"]
    edges = {f"{name}: {source} → {target}" for name, table in TABLES.items() for (source, _), target in table.items()}
    assert covered["edges"].keys() >= edges
    assert covered["rules"].keys() | left_out["rules"].keys() == titles().keys()
    assert covered["reasons"].keys() | left_out["reasons"].keys() == REASONS.keys()
    assert [name for kind in left_out.values() for name, why in kind.items() if not why] == []


def test_nothing_that_is_covered_is_called_unseen() -> None:
    assert manifest()["covered"]["rules"].keys() & UNSEEN.keys() == set()


def test_the_tour_takes_every_transition_of_the_search() -> None:
    tour = manifest()["tour"]
    assert tour["left_out"] == {}
    assert tour["taken"] == tour["transitions"] > 5_000


@pytest.mark.parametrize("name", ["manifest.json", "reasons.json"])
def test_documents_fit_their_schemas(name: str) -> None:
    validator(name).validate(json.loads((FOLDER / name).read_text()))


def test_cases_fit_their_schema() -> None:
    check = validator("case.json")
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    for case in lines("cases.ndjson.gz"):
        kinds.setdefault((case["command"]["type"], case["outcome"]), case)
    assert len(kinds) > 60
    for case in kinds.values():
        check.validate(case)
    spoiled = {**case, "reason": 1}
    assert not check.is_valid(spoiled)


def test_cases_are_what_the_kernel_does() -> None:
    for case in lines("cases.ndjson.gz"):
        outcome = step(from_plain(State, case["before"]), from_plain(Command, case["command"]))
        if isinstance(outcome, Accepted):
            assert outcome.state == from_plain(State, case["after"]), case["id"]
        else:
            assert outcome.reason == case["reason"], case["id"]


@pytest.mark.rule("REC-001")
@pytest.mark.rule("REC-003")
def test_crash_traces_are_what_recovery_does() -> None:
    check = validator("trace.json")
    points = set()
    for trace in lines("crashes.itf.ndjson.gz"):
        check.validate(trace)
        points.add(trace["#meta"]["point"])
        state = decode_state(trace["states"][0]["state"])
        for moment in trace["states"][1:]:
            commands = [decode_command(moment["command"])] if moment["op"] == "do" else []
            if moment["op"] == "recover":
                commands = list(recover(state, int(moment["now"]["#bigint"])))
            for command in commands:
                outcome = step(state, command)
                state = outcome.state if isinstance(outcome, Accepted) else state
            assert encode(state) == moment["state"]
    assert {"consumer in mutating, record in_flight", "session open, between runs", "producer in executing"} <= points


def test_times_of_the_tour_never_go_backwards() -> None:
    for walk in tours.walks()[1]:
        times = [command.now for command in walk.commands]
        assert times == sorted(times)


def test_commands_that_lie_on_a_limit_are_among_the_cases() -> None:
    """Of one kind with what lies beside them, they would be left out, and a runtime that is off by one would pass."""
    known = [(one["before"]["workflow"], one["command"], one["outcome"]) for one in lines("cases.ndjson.gz")]
    commits = [(one["due_at"], outcome) for _, one, outcome in known if one["type"] == "commit_producer"]
    assert {(1, "rejected"), (2, "accepted")} <= {*commits}
    letters = [(one["publication"], outcome) for _, one, outcome in known if one["type"] == "publish"]
    titles_seen = {(letter["title"], outcome) for letter, outcome in letters}
    assert {("\x85", "rejected"), ("\ufeff", "accepted")} <= titles_seen
    payloads = {(letter["payload"], outcome) for letter, outcome in letters}
    assert {('"\U0001f600"', "accepted"), ('"\U0001f600a"', "rejected")} <= payloads
    assert "50%/a" in {workflow for workflow, _, _ in known}


@pytest.mark.rule("EVENT-009")
@pytest.mark.rule("COMMIT-002")
def test_whatever_can_be_wrong_with_what_a_handler_returns_has_a_case() -> None:
    """A command that carries a text is refused when it is too large, one that publishes as `publish` is."""
    assert all(
        {"topic_unknown", "title_missing", "too_large"} <= reasons_of(name)
        for name in ("publish", "commit_consumer", "commit_producer")
    )
    assert all("too_large" in reasons_of(name) for name in ("prepared", "record_mutation", "apply_mutation"))
    assert "too_large" in reasons_of("assert_applied")
    assert "session_spent" in reasons_of("create_retry")
