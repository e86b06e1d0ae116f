"""The prover believes only what CrossHair says, and fails when a planted bug is missed."""

import importlib.util
import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from keepkernel.cli import app
from keepkernel.fuzz import prove
from keepkernel.fuzz.prove import Proof, Verdict, read_verdict
from keepkernel.spec import contracts

# What CrossHair 0.0.112 prints; the folders are shortened.
CONFIRMED = "spec/contracts.py:91: info: Confirmed over all paths.\n"
NOT_CONFIRMED = "spec/contracts.py:596: info: Not confirmed.\n"
IMPOSSIBLE = "promises.py:3: info: Unable to meet precondition.\n"
FALSE = "promises.py:9: error: false when calling wrong(101) (which returns False)\n"
RAISED = "promises.py:16: error: IndexError:  when calling raises(3)\n"
SYNTAX = "promises.py:19: error: invalid syntax (<string>, line 1)\n"
NO_CONTRACT = "WARNING: Targets found, but contain no checkable functions.\n"


@pytest.mark.parametrize(
    ("output", "errors", "verdict", "detail"),
    [
        (CONFIRMED, "", "confirmed", ""),
        (CONFIRMED + CONFIRMED, "", "confirmed", ""),
        (FALSE, "", "refuted", "false when calling wrong(101) (which returns False)"),
        (CONFIRMED + RAISED, "", "refuted", "IndexError:  when calling raises(3)"),
        (NOT_CONFIRMED, "", "unknown", NOT_CONFIRMED.strip()),
        (IMPOSSIBLE, "", "unknown", IMPOSSIBLE.strip()),
        (SYNTAX, "", "unknown", SYNTAX.strip()),
        (CONFIRMED + NOT_CONFIRMED, "", "unknown", f"{CONFIRMED.strip()} | {NOT_CONFIRMED.strip()}"),
        ("", NO_CONTRACT, "unknown", NO_CONTRACT.strip()),
        ("", "Traceback (most recent call last):\nTypeError: no\n", "unknown", "TypeError: no"),
        ("", "", "unknown", "CrossHair said nothing"),
    ],
)
def test_reads_what_crosshair_prints(output: str, errors: str, verdict: Verdict, detail: str) -> None:
    assert read_verdict(output, errors) == (verdict, detail)


def proof(name: str, verdict: Verdict) -> Proof:
    return Proof(name, "law", "range", verdict, "", 0.1)


@pytest.mark.parametrize(
    ("law", "canary", "code"),
    [
        ("confirmed", "refuted", 0),
        ("refuted", "refuted", 1),
        ("unknown", "refuted", 3),
        ("confirmed", "confirmed", 1),
        ("confirmed", "unknown", 1),
        ("unknown", "unknown", 1),
    ],
)
def test_exit_code(law: Verdict, canary: Verdict, code: int) -> None:
    assert prove.exit_code([proof("begin", law), proof("canary_step", canary)]) == code


def test_no_canary_at_all_is_a_failure() -> None:
    assert prove.exit_code([proof("begin", "confirmed")]) == 1


def test_no_contract_at_all_is_not_a_proof() -> None:
    assert prove.exit_code([proof("canary_step", "refuted")]) == 3


def test_confirms_the_boundary_and_refutes_the_canaries() -> None:
    done = CliRunner().invoke(app, ["prove", "--only", "boundary", "--json"])
    assert done.exit_code == 0, done.output
    found = {p["name"]: p["verdict"] for p in json.loads(done.stdout)["proofs"]}
    assert found == {
        "boundary": "confirmed",
        "canary_boundary": "refuted",
        "canary_arithmetic": "refuted",
        "canary_step": "refuted",
    }


def test_the_canary_is_refuted_with_its_example() -> None:
    done = prove.prove("canary_step", contracts.canary_step, 60)
    assert done.detail == "false when calling canary_step('mutating', 'active', 'pending', 101) (which returns False)"


def test_report_says_verdict_law_range_and_example(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(wanted: dict[str, prove.Contract], seconds: float) -> Iterator[Proof]:
        assert seconds == 7
        for name in wanted:
            yield proof(name, "unknown" if name == "begin" else "confirmed")._replace(detail="because")

    monkeypatch.setattr(prove, "prove_all", found)
    done = CliRunner().invoke(app, ["prove", "--only", "begin", "--seconds", "7"])
    assert done.exit_code == 1
    assert done.stdout.startswith("unknown   begin: law\n          over range\n          because\nconfirmed canary_")
    assert "contracts: 0 confirmed, 0 refuted, 1 unknown; planted bugs: 0 of 3 refuted" in done.stdout
    assert "A planted bug was not found" in done.stdout
    assert "--seconds" in done.stdout


def test_progress_is_one_line_on_a_terminal_and_nothing_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proofs = [proof("begin", "confirmed"), proof("pause", "confirmed")]
    for terminal, shown in ((True, ["0 of 2 …", "", "1 of 2 …", "", ""]), (False, [])):
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        assert list(prove.with_progress(iter(proofs), 2)) == proofs
        assert capsys.readouterr().err.split("\r\033[K")[1:] == shown


def test_range_names_arguments_and_preconditions() -> None:
    assert prove.range_of(contracts.boundary) == "outcome (4) × record (7)"
    assert prove.range_of(contracts.run_now) == ("obstacle (9) × handler (3) × now (all whole numbers), where now >= 1")


def test_says_how_to_install_a_missing_prover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["prove", "--only", "boundary"])
    assert done.exit_code == 2
    assert "./keep prove" in done.stderr
    assert "keepkernel[verify]" in done.stderr


def test_an_unknown_name_is_an_error() -> None:
    done = CliRunner().invoke(app, ["prove", "--only", "nonsense"])
    assert done.exit_code == 2
    assert "'nonsense'" in done.stderr
