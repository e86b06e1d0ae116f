"""A workflow file with its real connectors, in the crash harness."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from keepkernel.adapters.connectors.base import Call
from keepkernel.adapters.connectors.table import InsertParams, Table
from keepkernel.cli import app
from keepkernel.fuzz.files import Project, compared, evidence
from keepkernel.kernel.respond import DidNotHappen

SCRIPT = """
export default Keep.workflow({
  name: "notes",
  topics: { note: {} },
  producers: {
    look: {
      schedule: { interval: "1h" },
      handler: async (ctx, state) => {
        const { files } = await ctx.inbox.list({ after: state?.last ?? "" });
        for (const { name } of files) await ctx.publish("note", { messageId: name, title: name, payload: {} });
        return { last: files.at(-1)?.name ?? state?.last ?? "" };
      },
    },
  },
  consumers: {
    file: Keep.consumer({
      subscribe: ["note"],
      async prepare(ctx) {
        const [note] = await ctx.peek("note", { limit: 1 });
        return note
          ? { reservations: [{ topic: "note", ids: [note.messageId] }], data: { name: note.messageId } }
          : { reservations: [], data: {} };
      },
      async mutate(ctx, prepared) {
        await ctx.rows.insert({ row: { name: prepared.data.name } });
      },
    }),
  },
});
"""
CONFIG = """
[connectors.inbox]
kind = "files"
folder = "inbox"

[connectors.rows]
kind = "table"
url = "sqlite:rows.db"
table = "rows"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder, scratch = tmp_path / "notes", tmp_path / "scratch"
    (folder / "inbox").mkdir(parents=True)
    scratch.mkdir()
    (folder / "inbox" / "one.txt").write_text("a note")
    (folder / "workflow.js").write_text(SCRIPT)
    (folder / "keepkernel.toml").write_text(CONFIG)
    with closing(sqlite3.connect(folder / "rows.db")) as database:
        database.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, name TEXT)")
    return Project(folder / "workflow.js", "sqlite", scratch, "coalesced")


def test_a_death_around_the_change_outside_changes_nothing(project: Project) -> None:
    clean = project.killed()
    assert clean.violations == ()
    assert clean.evidence["rows in rows.db"] == ["(1, 'one.txt')"]
    assert clean.events == {"note/one.txt": "consumed"}
    places = [n for n, name in enumerate(clean.points, 1) if name.startswith(("table:", "Send:"))]
    assert len(places) >= 4
    for point in places:
        trial = project.killed((point,))
        assert trial.died == (clean.points[point - 1],)
        assert compared(clean, trial, repeatable=True) == ()
        assert not trial.asks


def test_a_reconcile_that_does_not_look_is_caught(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: Table, params: InsertParams, call: Call) -> DidNotHappen:
        return DidNotHappen(voided=True)

    clean = project.killed()
    monkeypatch.setitem(Table.methods, "insert", Table.methods["insert"]._replace(reconcile=find))
    trial = project.killed((clean.points.index("table: committed") + 1,))
    assert compared(clean, trial, repeatable=True) == ("rows in rows.db: there are 1 too many of (2, 'one.txt')",)
    assert compared(clean, trial, repeatable=False) == ("rows in rows.db: there are 1 too many",)


def test_evidence_leaves_out_what_differs_from_call_to_call(tmp_path: Path) -> None:
    for name, key in (("a", "1"), ("b", "2")):
        sent = tmp_path / name / "sent" / "cur"
        sent.mkdir(parents=True)
        (sent / f"{key}.eml").write_text(f"Message-ID: <{key}>\nSubject: hello\nDate: today, {key}\n\nbody\n")
        (tmp_path / name / ".keepkernel").mkdir()
        (tmp_path / name / ".keepkernel" / key).write_text(key)
    assert evidence(tmp_path / "a") == evidence(tmp_path / "b") == {"sent/cur": ["Subject: hello\n\nbody\n"]}


@pytest.mark.campaign
def test_every_point_of_the_file_holds(project: Project) -> None:
    result = CliRunner().invoke(app, ["crash", "--store", "sqlite:", "--workflow", str(project.file), "--json"])
    document = json.loads(result.stdout)
    assert document["verdict"] == "holds", document
    assert document["points"] == document["trials"] - 2 > 50


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("sqlite:rows.db", "postgresql://db.example.org/x"), "a sweep would call it from hundreds of trials"),
        (("sqlite:rows.db", "sqlite:/var/rows.db"), "a sweep would call it from hundreds of trials"),
        (('folder = "inbox"', 'folder = "../inbox"'), "a sweep would call it from hundreds of trials"),
        (('kind = "table"', 'kind = "tablet"'), "tablet"),
    ],
)
def test_a_configuration_that_can_not_be_swept_is_refused(
    project: Project, change: tuple[str, str], problem: str
) -> None:
    (project.file.parent / "keepkernel.toml").write_text(CONFIG.replace(*change))
    result = CliRunner().invoke(app, ["crash", "--store", "sqlite:", "--workflow", str(project.file)])
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_file_that_is_not_there_or_not_in_order_is_refused(project: Project) -> None:
    missing = CliRunner().invoke(app, ["crash", "--store", "sqlite:", "--workflow", "nowhere.js"])
    assert missing.exit_code == 2
    assert "there is no file" in missing.stderr
    project.file.write_text("export default 7;")
    wrong = CliRunner().invoke(app, ["crash", "--store", "sqlite:", "--workflow", str(project.file)])
    assert wrong.exit_code == 2
    assert "workflow.js:" in wrong.stderr
    simulated = ["crash", "--store", "sqlite:", "--in-process", "--workflow", str(project.file)]
    assert "real kills" in CliRunner().invoke(app, simulated).stderr
