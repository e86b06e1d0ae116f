"""What the README shows works as it stands there."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from typer.main import get_command

from keepkernel.cli import app

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
OUTSIDE_THE_CLI = {"test", "mutants", "generate"}


def test_example_prints_what_its_comments_say() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"print\(.*\)  # (.*)", example)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\./keep ([a-z]+)", README)) - OUTSIDE_THE_CLI))
def test_command_exists(name: str) -> None:
    assert name in get_command(app).commands


@pytest.mark.parametrize("folder", re.findall(r"^\| `([a-z/]+)/` \|", README, re.MULTILINE))
def test_folder_exists(folder: str) -> None:
    assert (Path(__file__).resolve().parents[2] / folder).is_dir()
