"""What the page about connectors shows works as it stands there."""

import re
from pathlib import Path

import pytest
from connectors.effects import Heard, read, reconcile, send

from keepkernel.adapters.connectors import Connections
from keepkernel.adapters.connectors.config import KINDS, load
from keepkernel.adapters.connectors.webhook import REFUSALS
from keepkernel.kernel.respond import DidNotHappen, Failed, Happened

PAGE = (Path(__file__).resolve().parents[2] / "adapters" / "connectors" / "README.md").read_text()
CONFIGURATIONS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_every_configuration_can_be_used(tmp_path: Path) -> None:
    for folder in ("out", "Maildir"):
        (tmp_path / folder).mkdir()
    place = tmp_path / "keepkernel.toml"
    place.write_text("\n".join(CONFIGURATIONS))
    loaded = load(place, {"MAIL_PASSWORD": "swordfish", "SHOP_TOKEN": "hunter2"})
    assert {type(connector).__name__.lower() for connector in loaded.connectors.values()} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_tool_is_named_with_what_it_takes_and_gives(kind: str, tmp_path: Path) -> None:
    from keepkernel.adapters.connectors.config import Reader

    section = PAGE.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    for name, method in Reader(tmp_path, {}).kind(kind).methods.items():
        [row] = re.findall(rf"^\| `{name}` \|.*$", section, re.MULTILINE)
        for field in (*method.params.model_fields, *method.result.model_fields):
            assert f"`{field}`" in row


def test_the_statuses_are_those_of_the_table() -> None:
    [told] = re.findall(r"answered with ([\d,\sor]+) or what", PAGE)
    assert [int(status) for status in re.findall(r"\d+", told)] == sorted(REFUSALS)


def test_the_connector_of_ones_own(tmp_path: Path) -> None:
    [source] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "notes.py").write_text(source)
    (tmp_path / "keepkernel.toml").write_text(
        f'[connectors.notes]\nkind = "notes.py:Notes"\npath = "{tmp_path}/notes.txt"\n'
    )
    with Connections.from_config(tmp_path / "keepkernel.toml", tell=Heard()) as notes:
        (tmp_path / "notes.txt").touch()
        assert reconcile(notes, "notes.add", {"text": "buy milk"}) == DidNotHappen(voided=False)
        assert send(notes, "notes.add", {"text": "buy milk"}) == Happened('{"text":"buy milk"}')
        assert reconcile(notes, "notes.add", {"text": "buy milk"}) == Happened('{"text":"buy milk"}')
        [line] = read(notes, "notes.search", {"word": "milk"})["lines"]
        assert line.endswith(" buy milk")
        refused = send(notes, "notes.add", {"text": "two\nlines"}, key="demo/2")
        assert refused == Failed("refused", "notes.add: one line at a time", "notes.add")
        (tmp_path / "notes.txt").unlink()
        (tmp_path / "notes.txt").mkdir()
        unreachable = send(notes, "notes.add", {"text": "more"}, key="demo/3")
        assert isinstance(unreachable, Failed)
        assert unreachable.failure == "network"
