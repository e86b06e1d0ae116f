"""Whatever is wrong with what a command is given, it says what, and what to do; nothing is ever a traceback."""

import inspect
import json
import re
import sqlite3
from pathlib import Path

import pytest
from desk import Project
from typer.main import get_command

from keepkernel import story
from keepkernel.cli import app, work
from keepkernel.runtime import office_on
from keepkernel.settings import place_of

NO_STORE = [
    *([word] for word in ("status", "inputs", "outputs", "runs", "logs", "pause", "resume", "retry", "reconnect")),
    *([word] for word in ("approve", "reject", "clear-error")),
    *([word, "x"] for word in ("explain", "skip", "run-now", "abandon")),
    ["grant", "a.b"],
    ["resolve", "x", "--as", "skip"],
    ["publish", "t", "i", "--title", "x"],
]


@pytest.mark.parametrize("words", NO_STORE, ids=lambda words: words[0])
def test_a_folder_without_a_store(
    words: list[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("empty")
    monkeypatch.chdir(folder)
    told = Project(folder).keep(*words, code=2).stderr
    assert "there is no store here; begin with keepkernel run FILE" in told


@pytest.mark.parametrize("words", [w for w in NO_STORE if w != ["logs"]], ids=lambda words: words[0])
def test_a_workflow_that_is_not_there(words: list[str], project: Project) -> None:
    told = project.keep(*words, "--workflow", "nobody", code=2).stderr
    assert "no workflow is called nobody; there are desk-work" in told


REFUSED = {
    ("resume",): "workflow_edge",
    ("reconnect",): "no_error",
    ("clear-error",): "no_error",
    ("approve", "abcdef"): "no_request",
    ("reject", "abcdef"): "no_request",
    ("run-now", "nobody"): "handler_unknown",
    ("publish", "nowhere", "m1", "--title", "x"): "topic_unknown",
    ("publish", "mail", "m1", "--title", ""): "title_missing",
}


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: words[0])
def test_what_the_kernel_refuses_is_told_with_its_rule(words: tuple[str, ...], project: Project) -> None:
    told = project.ask(*words, code=1)
    assert told["accepted"] is False
    assert told["refused"]["reason"] == REFUSED[words]
    shown = project.keep(*words, code=1).stderr
    assert f"[{REFUSED[words]}, {told['refused']['rule']}]" in shown
    assert f"what helps: {told['refused']['remedy']}" in shown


WRONG = {
    ("run", "workflow.js", "--config", "none.toml"): "none.toml: there is no such file",
    ("deploy", "workflow.js", "--config", "none.toml"): "none.toml: there is no such file",
    ("logs", "--run", "nothing"): "the log has no line of nothing",
    ("explain", "nothing"): "nothing is not the name of a run, an event or a mutation",
    ("skip", "nothing"): "nothing is not the name of an event",
    ("resolve", "nothing", "--as", "skip"): "nothing is not the name of a run",
    ("resolve", "x", "--as", "perhaps"): "perhaps",
    ("resolve", "x", "--as", "skip", "--result", "1"): "--result goes with --as happened alone",
    ("resolve", "x", "--as", "happened", "--result", "{"): "--result is not JSON",
    ("abandon", "nothing"): "nothing is not the name of a run",
    ("grant", "everything"): "everything is no tool; write connector.method",
    ("publish", "mail", "m1", "--title", "x", "--payload", "{"): "the payload is not JSON",
    ("inputs", "--limit", "0"): "--limit",
    ("status", "--store", "nosql:x"): "does not name a store",
    ("status", "--store", "memory:"): "memory: is gone with its process",
    ("status", "--store", "sqlite:none.db"): "there is no store sqlite:",
    ("logs", "--store", "sqlite:none.db"): "there is no store sqlite:",
    ("status", "--store", "sqlite:workflow.js"): "workflow.js",
    ("deploy", "none.js"): "none.js: No such file or directory",
    ("deploy", "."): "Is a directory",
    ("init", "."): "is there already; name a new folder",
    ("init", "desk.py/x"): "Not a directory",
    ("run",): "Missing argument",
    ("run", "none.js", "other.js"): "other.js: there is no such file",
    ("run", "workflow.js", "workflow.js"): "two files are called desk-work; rename one",
    ("run", "workflow.js", "--store", "nosql:x"): "does not name a store",
    ("run", "workflow.js", "--store", "sqlite:desk.py/x.db"): "desk.py",
    ("run", "workflow.js", "--config", "workflow.js"): "not TOML",
    ("logs", "--limit", "many"): "--limit",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_what_makes_no_sense_is_told(words: tuple[str, ...], project: Project) -> None:
    assert WRONG[words] in project.keep(*words, code=2).stderr


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({}, "there is no request ''"),
        ({"do": "vanish"}, "there is no request 'vanish'"),
        ({"do": 5}, "do of a request is a text"),
        ({"do": "status", "workflow": None}, "workflow of a request is a text"),
        ({"do": "inputs", "limit": "all"}, "a limit is a number"),
        ({"do": "inputs", "limit": 10**9}, "a limit is a number"),
        ({"do": "resolve", "mutation": "", "as": "skip"}, "is not the name of a run"),
        ({"do": "explain", "name": []}, "name of a request is a text"),
        ({"do": "publish", "topic": "mail", "id": "m", "title": "t", "payload": "NaN"}, "the payload is not JSON"),
        ({"do": "deploy", "source": "}", "file": "x.js"}, "x.js: line 1"),
    ],
)
def test_a_request_that_makes_no_sense_is_told(project: Project, request_: dict[str, object], told: str) -> None:
    with office_on(place_of(project.store)) as office:
        assert told in office.answer(request_)["error"]


def test_a_bad_script_leaves_no_store_behind(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "bad.js").write_text("export default 1")
    assert "bad.js: the file exports no workflow" in project.keep("deploy", str(folder / "bad.js"), code=2).stderr
    assert [path.name for path in folder.iterdir()] == ["bad.js"]
    (folder / "good.js").write_text(project.file.read_text())
    (folder / "keepkernel.toml").write_text(project.config.read_text().replace('"desk.py', '"../work/desk.py'))
    project.keep("deploy", str(folder / "good.js"))
    assert (folder / "work.db").exists()


def test_a_grant_of_what_is_not_there_is_done_with_a_warning(project: Project) -> None:
    assert project.ask("grant", "no.such")["warnings"] == []  # Of a folder that was copied nobody knows.
    project.file.write_text(f"{project.file.read_text()}// mine")
    project.run()
    assert project.ask("grant", "desk.apend")["warnings"] == [
        "no connector provides desk.apend. Did you mean desk.append?"
    ]
    assert "\nwarning: no connector provides no.such. Known are " in project.keep("grant", "no.such").stdout
    assert project.ask("grant", "desk.shout")["warnings"] == []
    project.config.write_text('[host]\nstore = "sqlite:work.db"')
    assert project.keep("grant", "no.such").stdout.endswith("Configure one in keepkernel.toml\n")
    project.config.write_text('[host]\nstore = "sqlite:work.db"\n[connectors.x]\nkind = "none"')
    assert project.ask("grant", "no.such")["warnings"] == []  # Nobody knows what there is.
    project.config.unlink()
    assert project.ask("grant", "no.such")["warnings"] == []


def test_a_bad_script_is_told_whole_with_places(project: Project) -> None:
    text = project.file.read_text().replace('subscribe: ["mail"]', 'subscribe: ["mial"]')
    project.file.write_text(text.replace("ctx.desk.append", "ctx.desk.apend").replace("next(", "nxt("))
    for words in (("run", "workflow.js"), ("deploy", "workflow.js")):
        told = project.keep(*words, code=2).stderr.splitlines()
        assert len(told) == 3
        assert all("workflow.js: line " in line and ", column " in line for line in told)
        assert "Did you mean mail?" in told[0]
        assert any("no connector provides desk.apend. Did you mean desk.append?" in line for line in told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[host]\nstor = 'x'", "host.stor: extra inputs are not permitted"),
        ("[workflows.w]\npolicy = {patience = 1}", "workflows.w.policy has no patience; numbers are"),
        ("[host]\nlimits = {patience = 1}", "host.limits has no patience; numbers are"),
        ("[host]\nlimits = {memory_bytes = 0}", "host.limits.memory_bytes: input should be greater than 0"),
        ("[workflows.desk-work]\ngrant = ['a.b']", "workflows.desk-work grants a.b, which no connector provides"),
        ("[connectors.desk]\nkind = 'nothing'", "there is no kind nothing"),
        ("= 1", "not TOML"),
    ],
)
def test_bad_settings_are_told(project: Project, text: str, told: str) -> None:
    project.config.write_text(text)
    project.file.write_text(
        "export default Keep.workflow({name: 'desk-work', topics: {}, producers: {p: async () => {}}})"
    )
    assert told in project.keep("run", "workflow.js", "--until-idle", code=2).stderr


@pytest.mark.parametrize("words", [("run", "workflow.js"), ("deploy", "workflow.js")])
def test_the_limits_of_scripts_are_settings(project: Project, words: tuple[str, ...]) -> None:
    project.config.write_text(project.config.read_text().replace("[host]", "[host]\nlimits = {frame_bytes = 10}"))
    assert "bytes of output; 10 are allowed" in project.keep(*words, code=2).stderr


def test_titles_of_scripts_do_not_move_the_cursor(project: Project) -> None:
    project.keep("publish", "mail", "m1", "--title", "\x1b[2J[bold]evil\x07", "--payload", json.dumps({"broken": True}))
    shown = project.keep("inputs").stdout + project.run(1).stdout + project.keep("explain", "mail/m1").stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[bold]evil" in shown


def test_every_command_speaks_json() -> None:
    commands = get_command(app).commands
    names = [name for name in commands if commands[name].callback.__module__ == work.__name__]
    assert len(names) == 22
    options = {name: {word for param in commands[name].params for word in param.opts} for name in names}
    assert [name for name in names if "--json" not in options[name]] == []


def test_every_command_has_an_example(project: Project) -> None:
    commands = [c for c in app.registered_commands if c.callback.__module__ == work.__name__]
    assert len(commands) == 22
    assert [c.callback.__name__ for c in commands if "Example: keepkernel " not in c.callback.__doc__] == []


@pytest.mark.parametrize("remedy", sorted(set(re.findall(r'"(keepkernel [^"]+)"', inspect.getsource(story)))))
def test_what_is_proposed_can_be_typed(remedy: str) -> None:
    typed = remedy.replace("{on}", "--workflow w").replace("--as {name}", "--as skip")
    _, name, *words = re.sub(r"{[^}]+}", "x", typed).split()
    get_command(app).commands[name].make_context(name, words)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("[workflow.desk-work]\n", "workflow: extra inputs are not permitted"),
        ("[workflows.desk-more]\ngrant = ['desk.look']\nask = ['desk.look']\n", "has desk.look in grant and in ask"),
    ],
)
def test_settings_that_say_nothing_or_two_things(section: str, told: str, project: Project) -> None:
    project.config.write_text(f"{project.config.read_text()}\n{section}")
    assert told in project.run(2).stderr


def test_a_control_socket_that_can_not_be_made_is_told_before_anything_runs(project: Project) -> None:
    project.publish("m1")
    socket = place_of(project.store).socket
    assert socket is not None
    socket.mkdir()
    (socket / "in the way").touch()
    told = project.run(2).stderr
    assert f"{socket}: " in told
    assert "Traceback" not in told
    assert project.lines() == []


def test_a_clock_that_was_ahead_is_told(project: Project) -> None:
    with sqlite3.connect(project.folder / "work.db") as store:
        store.execute("UPDATE workflows SET changed_at = changed_at + 7200000")
    assert "s ahead of this machine's clock, and waits for it" in project.run().stdout
    assert "s ahead of this machine's clock, and waits for it." in project.keep("status").stdout
    assert 7_000 < project.ask("status")["ahead_s"] <= 7_200
