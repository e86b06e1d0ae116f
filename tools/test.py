"""Every check of the repository, in order; arguments go to pytest. Run it as `./keep test`.

Without arguments the tests of the kernel run apart from the others: they alone must go through every branch of it.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
KERNEL_TESTS = ("tests/rules", "tests/kernel")


def stages(pytest_arguments: list[str]) -> dict[str, list[str]]:
    """Name the checks; a stage is a command that fails with a non-zero exit code."""
    python = sys.executable
    pytest = [python, "-m", "pytest"]
    others = [f"--ignore={folder}" for folder in KERNEL_TESTS]
    spread = ("-n", "auto", "--dist", "loadfile")  # Files stay whole: what several tests look at is made once.
    tests = {"kernel tests": [*pytest, "--cov=kernel", *KERNEL_TESTS], "other tests": [*pytest, *spread, *others]}
    return {
        "ruff check": [python, "-m", "ruff", "check", "--quiet", "."],
        "ruff format": [python, "-m", "ruff", "format", "--check", "--quiet", "."],
        "mypy": [python, "-m", "mypy", "--no-error-summary"],
        "lint-imports": [str(BIN / "lint-imports"), "--no-logo"],
    } | ({"pytest": [*pytest, *pytest_arguments]} if pytest_arguments else tests)


def main() -> int:
    """Run all stages even when one fails, so that one run shows everything there is to mend."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    failed = []
    for name, command in stages(sys.argv[1:]).items():
        started = time.monotonic()
        shown = "pytest" in command
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            check=False,
            text=True,
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.STDOUT,
        )
        if result.returncode:
            failed.append(name)
            print(result.stdout or "", end="")
        verdict = "FAILED" if result.returncode else "ok"
        print(f"{name:<13} {verdict:<6} {time.monotonic() - started:6.1f} s", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
