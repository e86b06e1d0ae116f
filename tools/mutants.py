"""Mutation testing of the kernel. Run it as `./keep mutants`.

Mutmut plants small faults in functions of kernel/ and runs the tests that reach each of them; a
fault that no test notices is a survivor. It works on a copy of the repository, in which the mapped
folders lie where the import names say, because mutmut takes module names from paths.

What it can not see: code that runs at import (the machines, tables and constants), because the
mutants are forked after the import.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
TESTS = ("tests/rules", "tests/kernel")
MUTMUT = [sys.executable, "-m", "mutmut"]
DETECTED = ("killed", "timeout", "segfault")
UNDECIDED = ("not checked", "check was interrupted by user", "skipped")
IGNORED = shutil.ignore_patterns(
    ".git", ".venv", "build", "reports", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info"
)


class Mutant(NamedTuple):
    """One planted fault and what became of it."""

    name: str
    module: str
    status: str
    diff: str = ""


def stage(copy: Path, modules: list[str], tests: list[str]) -> None:
    """Copy the repository as a plain src layout; the links in src/ become real folders."""
    shutil.copytree(ROOT, copy, ignore=IGNORED)
    others = sorted(p.name for p in copy.iterdir() if p.name not in ("src", "pyproject.toml"))
    settings = {
        "source_paths": ["src"],
        "only_mutate": [f"src/keepkernel/{module}" for module in modules],
        "also_copy": others,
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": tests,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    with (copy / "pyproject.toml").open("a") as file:
        file.write("\n[tool.mutmut]\n" + "\n".join(lines) + "\n")


def run_mutmut(copy: Path, seconds: float | None) -> tuple[int, bool]:
    """Return the exit code and whether the time was enough; what is decided by then counts."""
    log = copy / "mutmut.log"
    command = [*MUTMUT, "run", "--max-children", str(os.cpu_count() or 1)]
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=copy, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(seconds), True
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            return 0, False
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            process.wait()


def ask_mutmut(copy: Path, *arguments: str) -> str:
    answer = subprocess.run([*MUTMUT, *arguments], cwd=copy, capture_output=True, text=True, check=True)
    return answer.stdout


def diff_of(copy: Path, name: str) -> str:
    _, _, diff = ask_mutmut(copy, "show", name).partition("\n")
    return diff.strip("\n").replace("src/keepkernel/kernel/", "kernel/")


def read_results(copy: Path) -> list[Mutant]:
    """Collect the mutants; those that tests ran and did not notice come with their diffs."""
    mutants = []
    for line in ask_mutmut(copy, "results", "--all", "true").splitlines():
        if match := re.fullmatch(r"\s*(keepkernel\.(kernel(?:\.\w+)*?)\.x\S+): (.+)", line):
            module = match[2].replace(".", "/") + ".py"
            mutants.append(Mutant(match[1], module, match[3]))

    def with_diff(mutant: Mutant) -> Mutant:
        plain = (*DETECTED, *UNDECIDED, "no tests")
        return mutant if mutant.status in plain else mutant._replace(diff=diff_of(copy, mutant.name))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(with_diff, mutants))


def score(mutants: list[Mutant]) -> float | None:
    """The share of decided mutants that were noticed; untested ones count as unnoticed."""
    decided = [m for m in mutants if m.status not in UNDECIDED]
    return sum(m.status in DETECTED for m in decided) / len(decided) if decided else None


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def untested_functions(mutants: list[Mutant]) -> dict[str, int]:
    """Functions that no test reaches, with the number of their mutants."""
    names = (m.name.partition("__mutmut_")[0] for m in mutants if m.status == "no tests")
    return dict(Counter(re.sub(r"\.x_|\.xǁ|ǁ", ".", name) for name in names))


def as_json(mutants: list[Mutant], complete: bool, seconds: float) -> dict[str, object]:
    modules = sorted({m.module for m in mutants})
    return {
        "score": score(mutants),
        "complete": complete,
        "seconds": round(seconds, 1),
        "counts": dict(Counter(m.status for m in mutants)),
        "modules": {module: dict(Counter(m.status for m in mutants if m.module == module)) for module in modules},
        "survivors": [m._asdict() for m in mutants if m.diff],
        "untested": untested_functions(mutants),
    }


def kernel_digest(copy: Path) -> str:
    """Name the kernel that was tested, so that a reader can tell whether the report is of the present one."""
    content = sha256()
    for path in sorted((copy / "kernel").glob("*.py")):
        content.update(path.read_bytes())
    return content.hexdigest()[:12]


def as_markdown(mutants: list[Mutant], complete: bool, seconds: float, digest: str) -> str:
    lines = [
        "# Mutants of the kernel",
        "",
        f"Score {percent(score(mutants))} of {len(mutants)} mutants in {seconds:.0f} s."
        + ("" if complete else " The time ran out, so the undecided ones are not in the score."),
        "Code that runs at import (machines, tables, constants) is not mutated.",
        f"`cat kernel/*.py | sha256sum` began with `{digest}`.",
        "",
        "| module | mutants | noticed | survived | no test | undecided | other | score |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for module in sorted({m.module for m in mutants}):
        here = [m for m in mutants if m.module == module]
        noticed = sum(m.status in DETECTED for m in here)
        survived = sum(m.status == "survived" for m in here)
        untested = sum(m.status == "no tests" for m in here)
        undecided = sum(m.status in UNDECIDED for m in here)
        other = len(here) - noticed - survived - untested - undecided
        counts = (len(here), noticed, survived, untested, undecided, other)
        cells = " | ".join(str(count) for count in counts)
        lines.append(f"| {module} | {cells} | {percent(score(here))} |")
    if unreached := untested_functions(mutants):
        lines += ["", "## Functions that no test reaches", ""]
        lines += [f"- `{name}`: {count} mutants" for name, count in unreached.items()]
    if any(m.diff for m in mutants):
        lines += ["", "## Survivors"]
    for mutant in mutants:
        if mutant.diff:
            lines += ["", f"### {mutant.name} ({mutant.status})", "", "```diff", mutant.diff, "```"]
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./keep mutants", description="Mutation testing.")
    parser.add_argument("--module", action="append", help="such as kernel/boundary.py; repeatable")
    parser.add_argument("--tests", action="append", help="tests to run instead of the fast ones")
    parser.add_argument("--seconds", type=float, help="stop after this time and report what is known")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args()


def main() -> int:
    """Write reports/mutants.md and reports/mutants.json; survivors are no failure, trouble is."""
    arguments = parse_arguments()
    modules = arguments.module or ["kernel/*"]
    missing = [m for m in arguments.module or [] if not (ROOT / m).is_file()]
    outside = [m for m in modules if not m.startswith("kernel/")]
    tests = arguments.tests or [name for name in TESTS if (ROOT / name).is_dir()]
    if missing or outside or not tests:
        trouble = f"no module {(missing + outside)[0]} in kernel/" if missing + outside else ""
        print(f"mutants: {trouble or 'none of ' + ', '.join(TESTS) + ' exists'}", file=sys.stderr)
        return 2
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="keepkernel-mutants-") as folder:
        copy = Path(folder) / "copy"
        stage(copy, modules, tests)
        digest = kernel_digest(copy)
        code, complete = run_mutmut(copy, arguments.seconds)
        mutants = read_results(copy) if code == 0 else []
        if not mutants:
            log = (copy / "mutmut.log").read_text(errors="replace").replace("\r", "\n")
            print("\n".join(log.splitlines()[-40:]), file=sys.stderr)
            print("mutants: there is no result; the end of the log is above", file=sys.stderr)
            return 1
    seconds = time.monotonic() - started
    REPORTS.mkdir(exist_ok=True)
    document = json.dumps(as_json(mutants, complete, seconds), indent=2, ensure_ascii=False)
    (REPORTS / "mutants.json").write_text(document + "\n")
    (REPORTS / "mutants.md").write_text(as_markdown(mutants, complete, seconds, digest))
    if arguments.json:
        print(document)
    else:
        survivors = sum(bool(m.diff) for m in mutants)
        untested = sum(m.status == "no tests" for m in mutants)
        undecided = sum(m.status in UNDECIDED for m in mutants)
        print(
            f"score {percent(score(mutants))} of {len(mutants)} mutants: {survivors} survived, "
            f"{untested} reached by no test, {undecided} undecided"
        )
        print("report: reports/mutants.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
