"""What holds for the repository as a whole, whatever is in it."""

import ast
import gzip
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src/keepkernel", "kernel", "spec", "adapters", "sandbox", "fuzz", "tests", "bench")

# The patterns are written so that they do not match themselves.
UNWANTED = {
    "a path of one machine": r"(?<![\w.])/(?:home|root|Users|work|opt)/[\w.]",
    "the address of a registry": r"python[h]osted|pypi[.]\w|artifact[o]ry|registry[.]\w+[.]",
    "a note about unfinished work": r"\b(?:T[O]DO|F[I]XME|X[X]X)\b",
}


def repository_files() -> list[Path]:
    """Tracked files, and new ones that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout")
    names = sorted(set(listed.stdout.split("\0")) - {""})
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def project() -> dict[str, object]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert isinstance(table, dict)
    return table


def text_of(path: Path) -> str:
    """What is written in a file, packed or not."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode(errors="replace")


@pytest.mark.parametrize("what", UNWANTED)
def test_no_file_contains(what: str) -> None:
    pattern = re.compile(UNWANTED[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in repository_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == [], f"remove {what}"


def test_constraints_are_versions_without_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9.]+( ; [^/@]+)?", pin)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_of_the_map_exists(folder: str) -> None:
    assert (ROOT / folder).is_dir()


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f not in ("tests", "bench")])
def test_package_says_what_it_is_for(folder: str) -> None:
    assert ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))


def test_changelog_names_the_version() -> None:
    assert str(project()["version"]) in (ROOT / "CHANGELOG.md").read_text()


def test_kernel_imports_only_the_standard_library_and_the_machines() -> None:
    """The import contracts name what is forbidden; this names what is allowed."""
    allowed = sys.stdlib_module_names | {"keepkernel", "statemachine"}
    strangers = set()
    for path in (ROOT / "kernel").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            strangers |= {f"{path.name}: {n}" for n in names if n.split(".")[0] not in allowed}
    assert strangers == set()


@pytest.mark.slow
def test_plain_install_works_outside_the_checkout(tmp_path: Path) -> None:
    checkout, venv, elsewhere = tmp_path / "checkout", tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in repository_files():
        copy = checkout / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    python = venv / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    constraints = str(ROOT / "constraints.txt")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(venv)],
        [*pip, "--constraint", constraints, str(checkout)],
        [
            str(python),
            "-c",
            "import keepkernel, keepkernel.kernel, keepkernel.spec, keepkernel.cli",
        ],
        [str(venv / "bin" / "keepkernel"), "--version"],
    ):
        subprocess.run(command, cwd=elsewhere, env=environment, check=True)
    installed = next((venv / "lib").glob("python*/site-packages/keepkernel"))
    for folder in ("kernel", "spec", "adapters", "sandbox", "fuzz"):
        wanted = {p.name for p in (checkout / folder).glob("*") if p.suffix in (".py", ".md")}
        assert wanted <= {p.name for p in (installed / folder).iterdir()}


def test_what_keep_installs_is_an_extra() -> None:
    refused = subprocess.run([ROOT / "keep", "install", "nosuch"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    takes = re.search(r"takes (.*), or both", refused.stderr)
    assert takes
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(takes[1].split(" or ")) <= declared.keys()
