"""The contracts hold in plain Python too, and each of them notices when the kernel breaks its law."""

import itertools
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from keepkernel.fuzz.prove import CANARY, Contract, contracts_of, literal_values, preconditions
from keepkernel.kernel import boundary, capabilities, failures, gate, policy, tables
from keepkernel.kernel import step as steps
from keepkernel.kernel.commands import COMMANDS
from keepkernel.kernel.types import Accepted, Retired
from keepkernel.spec import contracts

ALL = contracts_of(contracts)
LAWS = {name: contract for name, contract in ALL.items() if not name.startswith(CANARY)}
CANARIES = {name: contract for name, contract in ALL.items() if name.startswith(CANARY)}

# Every number that the contracts compare with, and its neighbours.
NUMBERS = (-1, 0, 1, 2, 5, 99, 100, 101, 199, 200, 201, 10_000, 9_965_000, 86_400_001)


def situations(contract: Contract) -> Iterator[dict[str, Any]]:
    """Every argument that the prover considers, with numbers sampled."""
    hints = {name: hint for name, hint in get_type_hints(contract).items() if name != "return"}
    values = {bool: (False, True), int: NUMBERS}
    conditions = [compile(text, "<precondition>", "eval") for text in preconditions(contract)]
    for chosen in itertools.product(*(values.get(hint) or literal_values(hint) for hint in hints.values())):
        arguments = dict(zip(hints, chosen, strict=True))
        if all(eval(condition, {}, arguments) for condition in conditions):
            yield arguments


def breaches(contract: Contract) -> Iterator[dict[str, Any]]:
    return (arguments for arguments in situations(contract) if not contract(**arguments))


def named_in(contract: Contract) -> set[str]:
    """The names that a contract's code mentions."""
    return set(contract.__code__.co_names)


def commands_of(contract: Contract) -> set[type]:
    return {command for command in COMMANDS.values() if command.__name__ in named_in(contract)}


@pytest.mark.parametrize("name", LAWS)
def test_law_holds(name: str) -> None:
    assert next(situations(LAWS[name]), None), "the preconditions leave nothing to prove"
    assert next(breaches(LAWS[name]), None) is None


def test_every_machine_has_its_contracts() -> None:
    assert set(literal_values(contracts.Machine)) == set(tables.TABLES)
    edges_of = {id(getattr(tables, name.upper())) for name in LAWS if hasattr(tables, name.upper())}
    assert edges_of == {id(table) for table in tables.TABLES.values()}


@pytest.mark.parametrize("name", CANARIES)
def test_canary_is_false(name: str) -> None:
    assert next(breaches(CANARIES[name]), None)


def test_every_command_has_a_contract_of_its_own_name() -> None:
    missing = [name for name, command in COMMANDS.items() if command not in commands_of(ALL.get(name, lambda: True))]
    assert missing == []


def accept_as_it_is(state: Any, command: Any) -> Accepted:
    return Accepted(state, (), (), Retired())


@pytest.mark.parametrize("name", [name for name, contract in LAWS.items() if "step" in named_in(contract)])
def test_contract_notices_a_kernel_that_accepts_everything(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "TRANSITIONS", dict.fromkeys(COMMANDS.values(), accept_as_it_is))
    assert next(breaches(LAWS[name]), None)


# Contracts that only say what is rejected hold in a kernel that rejects everything.
ONLY_REJECTIONS = {
    "report_about_another_run",
    "report_about_a_producer",
    "create_run_beside_a_retry",
    "end_run_twice",
}


@pytest.mark.parametrize(
    "name", [name for name, contract in LAWS.items() if "step" in named_in(contract) and name not in ONLY_REJECTIONS]
)
def test_contract_notices_a_kernel_that_rejects_everything(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(state: Any, command: Any) -> Accepted:
        raise steps.Refusal("phase", "")

    monkeypatch.setattr(steps, "TRANSITIONS", dict.fromkeys(COMMANDS.values(), refuse))
    assert next(breaches(LAWS[name]), None)


@pytest.mark.parametrize("name", [name for name in LAWS if hasattr(tables, name.upper())])
def test_contract_notices_every_edge_too_many_or_too_few(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = getattr(tables, name.upper())
    joined = {(source, target) for (source, _), target in table.items()}
    states = {state for pair in joined for state in pair}
    for source, target in itertools.product(states, states):
        if (source, target) in joined:
            changed = {edge: end for edge, end in table.items() if (edge[0], end) != (source, target)}
        else:
            changed = {**table, (source, "leap"): target}
        monkeypatch.setattr(tables, name.upper(), changed)
        assert next(breaches(LAWS[name]), None), (source, target)


BROKEN: dict[str, tuple[Any, str, Any]] = {
    # Asked in this order, a crash during the call releases the inputs and the mutation is repeated.
    "boundary": (boundary, "boundary", lambda outcome, record: "AFTER" if outcome else "BEFORE"),
    "gate_of_runs": (gate, "unresolved", lambda record: False),
    "classification": (failures, "ANSWERS", frozenset({"timeout", "auth", "rate_limit", "refused"})),
    "capability": (capabilities, "TERMINAL", frozenset()),
    "closed_machine": (tables, "TABLES", {**tables.TABLES, "SessionStatus": {("open", "lose"): "lost"}}),
    "recovery": (contracts, "recover", lambda state, now: ()),
    "backoff": (policy, "backoff_ms", lambda attempt, base, most: base * attempt),
    "backoff_before_the_first_failure": (policy, "backoff_ms", lambda attempt, base, most: base),
    "wake_clamp": (policy, "clamp_wake", lambda wake_at, now, p: max(now + p.wake_min_ms, wake_at)),
    "send_window": (policy, "send_window", lambda now, deadline, p: (now + p.send_within_ms, now + deadline)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_contract_notices_a_broken_decision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, attribute, broken = BROKEN[name]
    monkeypatch.setattr(module, attribute, broken)
    assert next(breaches(LAWS[name]), None)


def test_every_contract_was_broken_once() -> None:
    elsewhere = {
        name for name, contract in LAWS.items() if "step" in named_in(contract) or hasattr(tables, name.upper())
    }
    assert elsewhere | set(BROKEN) == set(LAWS)
