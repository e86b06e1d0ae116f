"""Every check of the repository, in order; arguments go to pytest. Run it as `./keep test`."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def stages(pytest_arguments: list[str]) -> dict[str, list[str]]:
    """Name the checks; a stage is a command that fails with a non-zero exit code."""
    python = sys.executable
    return {
        "ruff check": [python, "-m", "ruff", "check", "--quiet", "."],
        "ruff format": [python, "-m", "ruff", "format", "--check", "--quiet", "."],
        "mypy": [python, "-m", "mypy", "--no-error-summary"],
        "lint-imports": [str(BIN / "lint-imports"), "--no-logo"],
        "pytest": [python, "-m", "pytest", *pytest_arguments],
    }


def main() -> int:
    """Run all stages even when one fails, so that one run shows everything there is to mend."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    failed = []
    for name, command in stages(sys.argv[1:]).items():
        started = time.monotonic()
        shown = name == "pytest"
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
