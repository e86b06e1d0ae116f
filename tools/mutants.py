"""Mutation testing of the kernel. Run it as `./keep mutants`.

Mutmut plants small faults in functions of kernel/ and runs the tests that reach each of them; a
fault that no test notices is a survivor. It works on a copy of the repository, in which the mapped
folders lie where the import names say, because mutmut takes module names from paths.

`--again` is short: it plants only the survivors of the last report once more, in the kernel and under the tests as they
are now, and strikes those out that a test notices by now.

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
from queue import Queue
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
TESTS = ("tests/rules", "tests/kernel")
MUTMUT = [sys.executable, "-m", "mutmut"]
DETECTED = ("killed", "timeout", "segfault")
UNDECIDED = ("not checked", "check was interrupted by user", "skipped")
ENDLESS_S = 240
"""No test takes so long in a sound kernel."""
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


# --- survivors once more -----------------------------------------------------------------------------


def planted(source: str, mutant: Mutant) -> str | None:
    """The module with one survivor planted in its function; None when those lines are no longer there."""
    lines = [line for line in mutant.diff.splitlines() if not line.startswith(("---", "+++", "@@"))]
    old = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    new = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    return source.replace(old, new) if source.count(old) == 1 else None


def noticed(copy: Path, tests: list[str]) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=ENDLESS_S
        )
    except subprocess.TimeoutExpired:
        return True  # A loop that never ends is noticed.
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode == 1


def tried_again(survivors: list[Mutant], tests: list[str]) -> dict[str, str]:
    """Name -> what became of it: `killed`, `survived`, or `gone` when the kernel has changed there."""
    workers = 2 * (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="keepkernel-mutants-") as folder:
        free: Queue[Path] = Queue()
        for n in range(workers):
            stage(Path(folder) / str(n), ["kernel/*"], tests)
            free.put(Path(folder) / str(n))

        def one(mutant: Mutant) -> str:
            copy = free.get()
            path = copy / "src" / "keepkernel" / mutant.module
            source = path.read_text()
            changed = planted(source, mutant)
            try:
                path.write_text(changed or source)
                found = "gone" if changed is None else "killed" if noticed(copy, tests) else "survived"
            finally:
                path.write_text(source)
                free.put(copy)
            print(f"{mutant.name}: {found}", file=sys.stderr, flush=True)
            return found

        if noticed(Path(folder) / "0", tests):
            raise RuntimeError("the tests fail without a mutant; mend that first")
        with ThreadPoolExecutor(workers) as pool:
            return dict(zip((m.name for m in survivors), pool.map(one, survivors), strict=True))


def again(tests: list[str]) -> int:
    """Bring the last report up to date, without looking for new mutants."""
    document = json.loads((REPORTS / "mutants.json").read_text())
    survivors = [Mutant(**survivor) for survivor in document["survivors"]]
    found = tried_again(survivors, tests)
    kept = [m for m in survivors if found[m.name] == "survived"]
    for status in ("killed", "gone"):
        lost = [m for m in survivors if found[m.name] == status]
        for counts in (document["counts"], *(document["modules"][m.module] for m in lost)):
            moved = len(lost) if counts is document["counts"] else 1
            counts["survived"] -= moved
            counts[status] = counts.get(status, 0) + moved
    decided = sum(n for status, n in document["counts"].items() if status not in (*UNDECIDED, "gone"))
    document["score"] = sum(document["counts"].get(status, 0) for status in DETECTED) / decided
    document["survivors"] = [m._asdict() for m in kept]
    document["again"] = kernel_digest(ROOT)
    write(document)
    return 0


# --- reports -----------------------------------------------------------------------------------------


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


def as_json(mutants: list[Mutant], complete: bool, seconds: float, digest: str) -> dict[str, Any]:
    modules = sorted({m.module for m in mutants})
    return {
        "score": score(mutants),
        "complete": complete,
        "seconds": round(seconds, 1),
        "kernel": digest,
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


def total(document: dict[str, Any]) -> int:
    return sum(document["counts"].values())


def as_markdown(document: dict[str, Any]) -> str:
    lines = [
        "# Mutants of the kernel",
        "",
        f"Score {percent(document['score'])} of {total(document)} mutants in {document['seconds']:.0f} s."
        + ("" if document["complete"] else " The time ran out, so the undecided ones are not in the score."),
        "Code that runs at import (machines, tables, constants) is not mutated.",
        f"`cat kernel/*.py | sha256sum` began with `{document['kernel']}`."
        + (
            f" Its survivors were planted once more when it began with `{document['again']}`;"
            " those that a test noticed by then count as noticed."
            if "again" in document
            else ""
        ),
        "[survivors.json](survivors.json) argues for each survivor why it is no other kernel.",
        "",
        "| module | mutants | noticed | survived | no test | undecided | other | score |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for module, counts in document["modules"].items():
        planted_here = sum(counts.values())
        seen = sum(counts.get(status, 0) for status in DETECTED)
        undecided = sum(counts.get(status, 0) for status in UNDECIDED)
        survived, untested = counts.get("survived", 0), counts.get("no tests", 0)
        other = planted_here - seen - survived - untested - undecided
        decided = planted_here - undecided - counts.get("gone", 0)
        cells = " | ".join(map(str, (planted_here, seen, survived, untested, undecided, other)))
        lines.append(f"| {module} | {cells} | {percent(seen / decided if decided else None)} |")
    if document["untested"]:
        lines += ["", "## Functions that no test reaches", ""]
        lines += [f"- `{name}`: {count} mutants" for name, count in document["untested"].items()]
    if document["survivors"]:
        lines += ["", "## Survivors"]
    for mutant in document["survivors"]:
        lines += ["", f"### {mutant['name']} ({mutant['status']})", "", "```diff", mutant["diff"], "```"]
    return "\n".join(lines) + "\n"


def write(document: dict[str, Any]) -> None:
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / "mutants.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    (REPORTS / "mutants.md").write_text(as_markdown(document))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./keep mutants", description="Mutation testing.")
    parser.add_argument("--module", action="append", help="such as kernel/boundary.py; repeatable")
    parser.add_argument("--tests", action="append", help="tests to run instead of the fast ones")
    parser.add_argument("--seconds", type=float, help="stop after this time and report what is known")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--again", action="store_true", help="plant only the survivors of the last report once more")
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
    if arguments.again:
        return again(tests[::-1])  # Those that look at every answer come first: most are noticed at once.
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
    document = as_json(mutants, complete, seconds, digest)
    write(document)
    if arguments.json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
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
