"""The documents' example workflows, as they stand, from the command line to the outside and back."""

from pathlib import Path

import pytest
from desk import Project

EXAMPLES = Path(__file__).parents[1] / "sandbox" / "examples"
MORE = Path(__file__).parent / "examples"

CONNECTORS = '''
"""Mail to read and send, and a sheet to write to."""
from pathlib import Path
from typing import Annotated

from pydantic import RootModel

from keepkernel.adapters.connectors import Call, Connector, Shape, changes, reads
from keepkernel.adapters.connectors.base import Place


class Search(Shape):
    query: str = ""
    after: str | None = None


class Mail(Shape):
    id: str
    sender: str


class Found(RootModel[list[dict[str, str]]]):
    pass


class Letter(Shape):
    to: str
    subject: str
    body: str


class Sent(Shape):
    id: str


class Gmail(Connector):
    folder: Annotated[Path, Place]

    @reads
    def search(self, params: Search) -> Found:
        """Two mails."""
        return Found([{"id": "m1", "from": "ann", "subject": "One"}, {"id": "m2", "from": "bob", "subject": "Two"}])

    @changes
    def send(self, params: Letter, call: Call) -> Sent:
        """Send a mail."""
        with (self.folder / "outside.txt").open("a") as file:
            file.write(f"{params.to} {params.subject} {params.body}\\n")
        return Sent(id=call.name)


class Row(Shape):
    spreadsheetId: str
    values: list[str]


class Appended(Shape):
    rowId: int


class Sheets(Connector):
    folder: Annotated[Path, Place]

    @changes
    def appendRow(self, params: Row, call: Call) -> Appended:
        """Append a row."""
        path = self.folder / "outside.txt"
        with path.open("a") as file:
            file.write(f"{' '.join(params.values)}\\n")
        return Appended(rowId=len(path.read_text().splitlines()))
'''

CONFIG = """
[host]
store = "sqlite:work.db"

[connectors.gmail]
kind = "office.py:Gmail"
folder = "."

[connectors.sheets]
kind = "office.py:Sheets"
folder = "."

[workflows.{name}]
grant = ["gmail.search", "gmail.send", "sheets.appendRow"]
"""


@pytest.mark.parametrize(
    ("file", "name", "outside", "came"),
    [
        (
            EXAMPLES / "email-to-sheets.js",
            "email-to-sheets",
            ["ann One", "bob Two"],
            ["Row created for ann", "Row created for bob"],
        ),
        # It makes the id of its event from a field that the payload does not have: the second takes the first's place.
        (EXAMPLES / "example.js", "example", ["ann One", "bob Two"], ["Row created for bob", "sheets.appendRow done"]),
        (
            MORE / "mail-answers.js",
            "mail-answers",
            ["ann Re: One Thank you.", "bob Re: Two Thank you."],
            ["gmail.send done", "gmail.send done"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_example(tmp_path: Path, file: Path, name: str, outside: list[str], came: list[str]) -> None:
    (tmp_path / "office.py").write_text(CONNECTORS)
    (tmp_path / "keepkernel.toml").write_text(CONFIG.format(name=name))
    project = Project(tmp_path)
    project.file.write_text(file.read_text())
    project.run()
    assert (tmp_path / "outside.txt").read_text().splitlines() == outside
    rows = project.ask("inputs")["rows"]
    assert [(row["title"], row["came_of_it"]) for row in rows] == [
        ('Email from ann: "One"', came[0]),
        ('Email from bob: "Two"', came[1]),
    ]
    project.run()
    assert (tmp_path / "outside.txt").read_text().splitlines() == outside
