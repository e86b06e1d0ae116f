"""Runs CrossHair over the contracts, and believes only what it says in so many words."""

import fnmatch
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple, get_args, get_type_hints

from ..spec import contracts
from .progress import show

Verdict = Literal["confirmed", "refuted", "unknown"]
Contract = Callable[..., bool]

CANARY = "canary_"
PLUGIN = Path(__file__).with_name("literals.py")
CONFIRMED = "info: Confirmed over all paths."
REFUTED = " when calling "
MEANING = """\
Confirmed means: on every path, for every value of the arguments named with it, in a workflow with one consumer,
one producer and one event. The number in brackets counts the values."""


class Proof(NamedTuple):
    """What CrossHair found out about one contract."""

    name: str
    law: str
    over: str
    verdict: Verdict
    detail: str
    """The example that refutes it, or why nothing is known."""
    seconds: float


class ProverMissing(Exception):
    """CrossHair is not installed."""


def contracts_of(module: ModuleType) -> dict[str, Contract]:
    """The functions of a module that promise something, in the order of the text."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and "post:" in (value.__doc__ or "")
    }


def law_of(contract: Contract) -> str:
    return (inspect.getdoc(contract) or "").partition("\n")[0]


def preconditions(contract: Contract) -> list[str]:
    lines = (inspect.getdoc(contract) or "").splitlines()
    return [line.removeprefix("pre: ") for line in lines if line.startswith("pre: ")]


def literal_values(hint: object) -> list[object]:
    """All values of a literal type, or of a union of them.

    >>> literal_values(Literal["a"] | Literal["b", "c"])
    ['a', 'b', 'c']
    """
    return [value for part in get_args(hint) for value in (literal_values(part) if get_args(part) else [part])]


def range_of(contract: Contract) -> str:
    """What a contract is about: its arguments with the number of their values, and its preconditions."""
    hints = {name: hint for name, hint in get_type_hints(contract).items() if name != "return"}
    sizes = {bool: "2", int: "all whole numbers"}
    words = [f"{name} ({sizes.get(hint) or len(literal_values(hint))})" for name, hint in hints.items()]
    conditions = " and ".join(preconditions(contract))
    return " × ".join(words) + (f", where {conditions}" if conditions else "")


def read_verdict(output: str, errors: str = "") -> tuple[Verdict, str]:
    """Read what CrossHair printed about one contract. Silence, and every doubt, is unknown.

    >>> read_verdict("a.py:3: info: Confirmed over all paths.")
    ('confirmed', '')
    >>> read_verdict("a.py:3: error: false when calling f(7) (which returns False)")
    ('refuted', 'false when calling f(7) (which returns False)')
    """
    lines = output.strip().splitlines()
    refuted = [line.partition(" error: ")[2] for line in lines if " error: " in line and REFUTED in line]
    if refuted:
        return "refuted", refuted[0]
    if lines and all(line.endswith(CONFIRMED) for line in lines):
        return "confirmed", ""
    said = lines or errors.strip().splitlines()[-1:] or ["CrossHair said nothing"]
    return "unknown", " | ".join(said)


def prove(name: str, contract: Contract, seconds: float) -> Proof:
    command = [sys.executable, "-m", "crosshair", "check", "--report_all", "--analysis_kind", "PEP316"]
    command += ["--per_condition_timeout", str(seconds), "--extra_plugin", str(PLUGIN)]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--", f"{contract.__module__}.{name}"], capture_output=True, text=True, check=False
    )
    verdict, detail = read_verdict(done.stdout, done.stderr)
    return Proof(name, law_of(contract), range_of(contract), verdict, detail, time.monotonic() - started)


def require_prover() -> None:
    if importlib.util.find_spec("crosshair") is None:
        raise ProverMissing(
            "CrossHair is not installed. In a checkout, `./keep prove` installs it; "
            "elsewhere: pip install 'keepkernel[verify]'"
        )


def chosen(only: str = "*", module: ModuleType = contracts) -> dict[str, Contract]:
    """The contracts whose names match, and every canary: without them no verdict counts."""
    found = contracts_of(module)
    if not any(fnmatch.fnmatch(name, only) for name in found):
        raise LookupError(f"no contract is called {only!r}")
    return {name: value for name, value in found.items() if name.startswith(CANARY) or fnmatch.fnmatch(name, only)}


def prove_all(wanted: dict[str, Contract], seconds: float) -> Iterator[Proof]:
    """Prove contracts, as many at a time as there are processors; a proof comes when it is done."""
    require_prover()
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        running = [pool.submit(prove, name, contract, seconds) for name, contract in wanted.items()]
        for done in as_completed(running):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def exit_code(proofs: Iterable[Proof]) -> int:
    """0: all confirmed and every canary refuted. 1: one refuted, or a canary missed. 3: one unknown."""
    proofs = list(proofs)
    canaries = [p for p in proofs if p.name.startswith(CANARY)]
    laws = [p for p in proofs if not p.name.startswith(CANARY)]
    if not canaries or any(p.verdict != "refuted" for p in canaries) or any(p.verdict == "refuted" for p in laws):
        return 1
    return 0 if laws and all(p.verdict == "confirmed" for p in laws) else 3


def run(only: str, seconds: float, as_json: bool) -> int:
    """The command `keepkernel prove`: prints each proof as it comes, and returns the exit code."""
    wanted, proofs, started = chosen(only), list[Proof](), time.monotonic()
    for proof in with_progress(prove_all(wanted, seconds), len(wanted)):
        proofs.append(proof)
        if not as_json:
            print("\n".join(lines_of(proof)), flush=True)
    code = exit_code(proofs)
    if as_json:
        order = list(wanted)
        proofs.sort(key=lambda proof: order.index(proof.name))
        print(json.dumps({"exit_code": code, "proofs": [proof._asdict() for proof in proofs]}, indent=2))
    else:
        print(summary(proofs, time.monotonic() - started))
    return code


def with_progress(proofs: Iterator[Proof], total: int) -> Iterator[Proof]:
    """Keep one line on a terminal that says how far it is; a log gets none."""
    show(f"0 of {total} …")
    for count, proof in enumerate(proofs, 1):
        show("")
        yield proof
        show(f"{count} of {total} …" if count < total else "")


def lines_of(proof: Proof) -> list[str]:
    lines = [f"{proof.verdict:<9} {proof.name}: {proof.law}", f"          over {proof.over}"]
    return [*lines, f"          {proof.detail}"] if proof.detail else lines


def summary(proofs: list[Proof], seconds: float) -> str:
    """The whole in a few sentences, with what to do about what is not proved."""
    laws = Counter(p.verdict for p in proofs if not p.name.startswith(CANARY))
    canaries = Counter(p.verdict for p in proofs if p.name.startswith(CANARY))
    counts = ", ".join(f"{laws[verdict]} {verdict}" for verdict in get_args(Verdict))
    found = f"{canaries['refuted']} of {canaries.total()} refuted"
    lines = [f"contracts: {counts}; planted bugs: {found}; {seconds:.0f} s", MEANING]
    if canaries["refuted"] != canaries.total():
        lines.append("A planted bug was not found, so nothing above counts: look at its line, and at CrossHair.")
    if laws["unknown"]:
        lines.append("What is unknown may only need more time: --seconds.")
    return "\n".join(lines)
