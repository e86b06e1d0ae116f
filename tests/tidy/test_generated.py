"""The generated files are what their sources say, and the trace table is whole."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


generate = load(ROOT / "tools" / "generate.py")


def test_no_generated_file_is_stale() -> None:
    assert generate.stale(generate.files()) == [], "run ./keep generate"


def test_a_changed_a_missing_and_a_surplus_file_are_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "OUTPUT", tmp_path)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "same.json").write_text("1")
    (tmp_path / "changed.md").write_text("1")
    (tmp_path / "surplus.md").write_text("1")
    expected = {"schemas/same.json": "1", "changed.md": "2", "missing.md": "1"}
    assert generate.stale(expected) == ["changed.md", "missing.md", "surplus.md"]


@pytest.mark.parametrize("column", ["prose", "code", "tests"])
def test_every_rule_is_written_kept_and_tested(column: str) -> None:
    rules = generate.trace()
    assert len(rules) > 100
    assert [rule for rule, row in rules.items() if not getattr(row, column)] == []


SOURCE = '''
"""About AAA-001 to AAA-003."""

VALUE = 1
"""Text of VALUE (AAA-004)."""


class Thing:
    field: int
    """Text of the field (AAA-005)."""

    def method(self):
        local = 1  # AAA-006
        return local


@pytest.mark.rule("AAA-007")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.rule("AAA-008"))])
def test_thing(x):
    assert x, "AAA-009"
'''


def test_a_citation_is_found_with_the_name_around_it() -> None:
    tree = ast.parse(SOURCE)
    found = {rule: generate.around(tree, line) for rule, line in generate.mentions(SOURCE, tree)}
    names = ["", "", "", "VALUE", "Thing.field", "Thing.method", "test_thing", "test_thing", "test_thing"]
    assert found == {f"AAA-00{n}": name for n, name in enumerate(names, 1)}


def test_a_test_is_found_by_its_marks_alone() -> None:
    tree = ast.parse(SOURCE)
    assert [rule for rule, _ in generate.marks(SOURCE, tree)] == ["AAA-007", "AAA-008"]
