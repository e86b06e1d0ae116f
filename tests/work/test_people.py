"""What a person sees and decides, with the command line, while no host runs."""

import json
import os
import re
import select
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from desk import Project

from keepkernel.adapters.connectors.base import Call
from keepkernel.adapters.stores import open_store
from keepkernel.kernel import commands as c
from keepkernel.kernel.types import Key, Publication
from keepkernel.runtime import People

PYTHON_REPAIR = """
import json, pathlib, sys
evidence = json.load(sys.stdin)
pathlib.Path("evidence.json").write_text(json.dumps(evidence))
file = pathlib.Path(evidence["file"])
file.write_text(evidence["script"].replace('throw new Error("can not read it");', ""))
"""


def test_an_input_and_what_came_of_it(project: Project) -> None:
    project.publish("m1")
    project.publish("m2")
    waiting = project.ask("inputs")["rows"]
    assert [(row["title"], row["came_of_it"]) for row in waiting] == [("Mail m1", "waits"), ("Mail m2", "waits")]
    told = project.run().stdout
    assert "Mail m1 → Line 1 written" in told
    assert project.lines() == ["m1", "m2"]
    rows = project.ask("inputs")["rows"]
    assert [(row["title"], row["came_of_it"]) for row in rows] == [
        ("Mail m1", "Line 1 written"),
        ("Mail m2", "Line 2 written"),
    ]
    outputs = project.ask("outputs")["rows"]
    changes = [(row["title"], row["from"], row["params"]["token"]) for row in outputs if row["what"] == "change"]
    assert changes == [("Write down m1", ["Mail m1"], "•••"), ("Write down m2", ["Mail m2"], "•••")]
    assert [row["title"] for row in outputs if row["what"] == "event"] == ["Line 1 written", "Line 2 written"]
    runs = project.ask("runs", "--limit", "2")["rows"]
    assert [(run["handler"], run["status"], run["inputs"]) for run in runs] == [
        ("file", "committed", 1),
        ("file", "committed", 0),
    ]
    lines = [json.loads(line) for line in project.keep("logs", "--json").stdout.splitlines()]
    assert [line["text"] for line in lines if line["kind"] == "script"] == ["looks at m1", "looks at m2"]
    of_one = project.keep("logs", "--run", next(line["run"] for line in lines if line["kind"] == "script"))
    assert "looks at m1" in of_one.stdout
    assert "looks at m2" not in of_one.stdout


def test_no_title_and_no_script_steers_the_terminal_or_makes_up_a_line_of_the_log(project: Project) -> None:
    script = project.file.read_text()
    project.file.write_text(script.replace("looks at", "looks at\\n2026-01-01T00:00:00Z  made up"))
    project.keep("publish", "mail", "m1", "--title", "Mail \033]0;mine\007 m1")
    told = project.run().stdout + project.keep("logs").stdout
    assert "Mail  ]0;mine  m1" in told
    assert [line for line in told.splitlines() if line.startswith("2026-01-01")] == []
    assert "\n    2026-01-01T00:00:00Z  made up" in told


def test_the_newest_are_listed_when_there_are_many(project: Project) -> None:
    for number in range(4):
        project.publish(f"m{number}")
    rows = project.ask("inputs", "--limit", "2")["rows"]
    assert [row["id"] for row in rows] == ["m2", "m3"]


def test_explain_tells_the_story_of_an_event_and_of_a_run(project: Project) -> None:
    project.publish("m1")
    waiting = project.ask("explain", "mail/m1")
    assert f"keepkernel skip mail/m1 --workflow desk-work --store {project.store}" in waiting["remedies"]
    project.run()
    event = project.ask("explain", "mail/m1")
    told = "\n".join(event["story"])
    for words in ("An input from outside", "It selected Mail m1, for: Write down m1.", "It wants to call desk.append",
                  "The call was sent.", "It happened: its own answer says so", "published Line 1 written"):  # fmt: skip
        assert words in told
    assert "t-123456" not in told
    run = project.ask("inputs")["rows"][0]["run"]
    assert project.ask("explain", run[:6])["story"] == event["story"][2:]
    assert "Write down m1" in project.keep("explain", run).stdout


def test_explain_tells_of_the_runs_that_gave_an_event_back(project: Project) -> None:
    project.publish("m1")
    assert "No run has taken it yet." in project.ask("explain", "mail/m1")["story"]
    project.keep("grant", "desk.append", "--ask")
    project.grant_less()
    project.run(1)
    paused = project.ask("runs", "--limit", "1")["rows"][0]["run"]
    story = project.ask("explain", "mail/m1")["story"]
    begin, _, why = story[1].partition(f"Run {paused} took it and stopped: ")
    assert begin
    digest = project.status(1)["request"]["digest"]
    assert why == f"it needs a person: this exact call is not approved ({digest[:12]})."
    assert story[2] == "It was given back, and waits."


def test_explain_tells_what_was_decided_of_the_runs_before(project: Project) -> None:
    project.publish("m1")
    project.mode("lost")
    project.run(1)
    row = project.ask("runs")["rows"][-1]
    project.mode("")
    project.keep("resolve", row["run"], "--as", "happened")
    project.run()
    told = project.ask("explain", "mail/m1")["story"]
    assert any("A person says that it happened." in line for line in told)
    assert any(f"takes up run {row['run']} again" in line for line in told)


def test_who_skips_what_explain_proposes_skips_that_very_event(project: Project) -> None:
    """Events of two topics may have one id."""
    project.publish("m1")
    project.run()
    project.publish("m2")
    project.ask("publish", "done", "m2", "--title", "of no topic that is read")
    for topic in ("done", "mail"):
        [command] = [one for one in project.ask("explain", f"{topic}/m2")["remedies"] if " skip " in one]
        project.keep(*command.split()[1:])
    rows = {(row["topic"], row["id"]): row["status"] for row in project.ask("inputs")["rows"]}
    assert rows == {("mail", "m1"): "consumed", ("mail", "m2"): "skipped", ("done", "m2"): "skipped"}


def test_what_follows_a_change_can_be_given_up_when_its_script_fails(project: Project) -> None:
    project.file.write_text(project.file.read_text().replace("const what", "throw new Error('no'); const what"))
    project.publish("m1")
    project.run(1)
    [command] = [one for one in project.status(1)["remedies"] if " abandon " in one]
    project.keep(*command.split()[1:])
    assert project.ask("inputs")["rows"][0]["status"] == "consumed"


def test_an_input_that_a_script_fails_at_can_be_given_up(project: Project) -> None:
    project.publish("m1", {"broken": True})
    project.run(1)
    # Prepare failed, so nothing was reserved, and nobody knows which input it was.
    assert not any(" skip " in one for one in project.status(1)["remedies"])
    project.mode("refused")
    project.file.write_text(project.file.read_text().replace("mail.payload?.broken", "false"))
    project.run(1)
    [command] = [one for one in project.status(1)["remedies"] if " skip " in one]
    project.keep(*command.split()[1:])
    assert project.ask("inputs")["rows"][0]["status"] == "skipped"


def test_a_start_does_not_end_what_a_failure_began(project: Project) -> None:
    """A supervisor that starts the host again and again would else run a broken script for ever."""
    project.publish("m1", {"broken": True})
    project.run(1)
    failed = project.ask("runs")["rows"]
    told = project.run(1)
    assert "deployed" not in told.stdout
    assert "the script failed in file" in told.stderr
    assert project.ask("runs")["rows"] == failed
    project.keep("deploy", str(project.file))
    project.run(1)
    assert len(project.ask("runs")["rows"]) == len(failed) + 1


def test_a_retry_tells_what_it_does_not_clear(project: Project) -> None:
    project.publish("m1")
    project.mode("locked")
    project.run(1)
    told = project.keep("retry").stdout
    assert "It stands so all the same: access was refused" in told
    assert "  you can: keepkernel reconnect --workflow desk-work" in told
    project.keep("reconnect")
    assert "stands so" not in project.keep("retry").stdout


def test_a_tool_that_is_not_granted_is_asked_for(project: Project) -> None:
    config = project.config.read_text()
    project.config.write_text(config.replace("desk-work", "desk-more"))
    project.file.write_text(project.file.read_text().replace("desk-work", "desk-more"))
    project.grant_less()
    project.run()
    project.keep("publish", "mail", "m1", "--title", "Mail m1", "--workflow", "desk-more")
    ended = project.run(1)
    assert "desk.append is not granted" in ended.stderr
    assert "keepkernel grant desk.append --workflow desk-more" in ended.stderr
    project.keep("grant", "desk.append", "--workflow", "desk-more")
    project.run()
    assert project.lines() == ["m1"]


def test_a_call_is_approved_or_rejected(project: Project) -> None:
    project.publish("m1")
    project.publish("m2")
    project.keep("grant", "desk.append", "--ask")
    project.grant_less()
    project.run(1)
    request = project.status(1)["request"]
    assert (request["tool"], request["params"], request["inputs"]) == (
        "desk.append",
        {"text": "m1", "token": "•••"},
        ["Mail m1"],
    )
    shown = project.keep("status", code=1).stdout
    assert 'desk.append with {"text": "m1", "token": "•••"}' in shown
    assert "t-123456" not in shown
    told = project.keep("approve", request["digest"][:8]).stdout
    assert "the call is approved" in told
    assert "No host is running" in told
    assert "it needs a person: this exact call is not approved" in project.run(1).stdout
    assert project.lines() == ["m1"]
    project.keep("reject")
    assert "a person refused the call" in project.ask("explain", "m2")["story"][-1]
    project.run()
    assert project.lines() == ["m1"]
    assert [row["came_of_it"] for row in project.ask("inputs")["rows"]] == ["Line 1 written", "skipped"]
    assert "no call waits for approval" in project.keep("approve", code=2).stderr


def uncertain(project: Project, mode: str = "lost") -> str:
    project.publish("m1")
    project.mode(mode)
    ended = project.run(1)
    assert "nobody knows whether desk.append happened" in ended.stderr
    record = project.status(1)["escalation"]
    assert record["attempted"] == {"text": "m1", "token": "•••"}
    assert record["inputs"] == ["Mail m1"]
    assert record["verifiable"] is True
    assert record["verification"] == "the target can be asked; it was asked 2 times, and did not settle it"
    assert record["sent_as"] == Call(record["key"]).name
    assert record["sent_as"] in record["check"]
    possible = {choice["as"]: choice["possible"] for choice in record["choices"]}
    assert possible == {"try-again": True, "didnt-happen": False, "skip": True, "happened": True}
    mutation: str = record["mutation"]
    return mutation


def test_what_nobody_knows_is_told_and_asked_again(project: Project) -> None:
    mutation = uncertain(project, "lost after")
    story = project.keep("explain", mutation).stdout
    for words in ("No answer came that settles", "a person decides", "why it is unknown", "--as skip", "what to check"):
        assert words in story
    words = " ".join(story.split())
    assert re.search(r"--as didnt-happen: not now: the call may still land \(\d{4}-[\dT:-]+Z, MUT-009\)", words)
    assert f"explain {mutation}" not in words  # It is what was just typed.
    assert project.ask("explain", "m1")["escalation"]["mutation"] == mutation
    assert project.ask("explain", f"desk-work/{mutation}")["escalation"]["key"] == f"desk-work/{mutation}"
    project.mode("")
    project.keep("resolve", mutation, "--as", "try-again")
    project.run()
    assert project.lines() == ["m1"]
    assert project.ask("inputs")["rows"][0]["came_of_it"] == "Line 1 written"


def test_what_the_connector_had_to_say_is_told_where_a_person_decides(project: Project) -> None:
    mutation = uncertain(project)
    assert "the line is dead" in project.keep("logs", "--workflow", "desk-work", "--run", mutation).stdout
    for log in project.folder.rglob("*.log"):
        log.unlink()  # As on another machine: the journal knows it too.
    [first, *_] = project.status(1)["escalation"]["told"]
    assert first == "it broke off, so it is unknown whether it happened: RuntimeError: the line is dead"
    assert "the line is dead" in " ".join(project.keep("status", code=1).stdout.split())
    assert f"settles whether it happened: {first}." in " ".join(project.ask("explain", "m1")["story"])
    project.keep("resolve", mutation, "--as", "skip")
    assert "Write down m1 → Nothing written" in project.run().stdout


def test_lines_that_are_too_long_stay_behind_their_margin(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    uncertain(project)
    _, _, body = project.keep("status", code=1).stdout.partition("inputs and events")
    assert all(line.startswith("  ") for line in body.splitlines()[1:])


def test_a_person_who_is_refused_is_told_how_the_workflow_stands(project: Project) -> None:
    mutation = uncertain(project)
    refused = project.keep("resume", code=1).stderr
    assert "desk-work stands so: nobody knows whether desk.append happened" in refused
    assert f"you can: keepkernel resolve {mutation} --as skip" in refused


def test_a_deploy_that_is_refused_tells_how_the_workflow_stands(project: Project) -> None:
    project.run()
    with closing(open_store(project.store)) as store:
        for command in (c.Publish(0, Publication(Key("mail", "m1"), "Mail m1", "{}")), c.StartSession(0, "s1"),
                        c.CreateRun(0, "r1", "s1", "file")):  # fmt: skip
            People(store).submit("desk-work", command)
    project.file.write_text(project.file.read_text() + "// New.")
    assert "desk-work stands so: file is at work" in project.keep("deploy", str(project.file), code=1).stderr


def test_a_refused_resolution_says_why_and_what_helps(project: Project) -> None:
    mutation = uncertain(project)
    refused = project.keep("resolve", mutation, "--as", "didnt-happen", code=1)
    assert "refused: the call may still land" in refused.stderr
    assert "[too_early, MUT-009]" in refused.stderr
    assert "what helps: wait until may_land_until" in refused.stderr
    assert project.ask("resolve", mutation, "--as", "didnt-happen", code=1)["refused"]["rule"] == "MUT-009"
    project.keep("resolve", mutation, "--as", "happened", "--result", '{"line": 7}')
    project.run()
    assert project.ask("inputs")["rows"][0]["came_of_it"] == "Line 7 written"
    assert project.lines() == []


def test_a_mutation_that_nobody_knows_about_is_skipped(project: Project) -> None:
    mutation = uncertain(project)
    assert project.ask("inputs")["rows"][0]["came_of_it"] == "nobody knows whether desk.append happened"
    project.keep("resolve", mutation, "--as", "skip")
    project.run()
    assert project.ask("inputs")["rows"][0]["came_of_it"] == "skipped; Nothing written"


def test_a_target_that_can_not_be_asked_goes_to_a_person_at_once(project: Project) -> None:
    project.file.write_text(project.file.read_text().replace("desk.append", "desk.shout"))
    project.publish("m1")
    project.mode("lost")
    project.run(1)
    record = project.status(1)["escalation"]
    assert (record["verifiable"], record["verification"]) == (False, "the target can not be asked")
    assert {c["as"]: c["possible"] for c in record["choices"]}["try-again"] is False


def test_access_that_was_refused_is_put_right(project: Project) -> None:
    project.publish("m1")
    project.mode("locked")
    assert "access was refused: desk.append: the desk is locked" in project.run(1).stderr
    project.mode("")
    project.keep("reconnect")
    project.run()
    assert project.lines() == ["m1"]


def test_a_block_is_lifted_by_retry(project: Project) -> None:
    project.publish("m1")
    project.mode("late")
    ended = project.run(1)
    assert "blocked after too many failures: desk.append: nobody is at the desk" in ended.stderr
    project.mode("")
    project.keep("retry")
    project.run()
    assert project.lines() == ["m1"]


def test_a_script_that_failed_waits_for_a_new_version(project: Project) -> None:
    project.publish("m1", {"broken": True})
    assert "the script failed in file: Error: can not read it" in project.run(1).stderr
    project.run(1)
    project.file.write_text(project.file.read_text().replace('throw new Error("can not read it");', ""))
    deployed = project.ask("deploy", str(project.file))
    assert (deployed["accepted"], deployed["unchanged"]) == (True, False)
    assert "deployed already" in project.keep("deploy", str(project.file)).stdout
    project.run()
    assert project.lines() == ["m1"]


def test_the_file_to_deploy_is_named_if_it_is_of_this_store(project: Project, tmp_path: Path) -> None:
    project.publish("m1", {"broken": True})
    assert "you can: keepkernel deploy FILE\n" in project.run(1).stderr  # The folder was copied, with its store.
    project.file.write_text(f"{project.file.read_text()}// mine")
    project.run(1)
    deploy = f"keepkernel deploy {project.file}"
    assert f"you can: {deploy}\n" in project.run(1).stderr
    assert f"you can: {deploy}\n" in project.keep("status", code=1).stdout
    assert f"{deploy} --store {project.store}" in project.status(1)["remedies"]
    copied = project.folder / "copied.db"
    shutil.copy(project.folder / "work.db", copied)
    told = project.keep("status", "--store", f"sqlite:{copied}", code=1).stdout
    assert f"you can: keepkernel deploy FILE --store sqlite:{copied}\n" in told
    project.file.rename(tmp_path / "moved.js")
    assert "you can: keepkernel deploy FILE\n" in project.keep("status", code=1).stdout


def test_a_title_is_never_taken_for_a_proposal(project: Project) -> None:
    project.ask("publish", "mail", "it's", "--title", "keepkernel deploy 'x")
    assert project.ask("inputs")["rows"][0]["title"] == "keepkernel deploy 'x"
    assert any(
        remedy.startswith("""keepkernel skip 'mail/it'"'"'s'""")
        for remedy in project.ask("explain", "it's")["remedies"]
    )


def test_progress_counts_inputs_and_not_what_came_of_them(project: Project) -> None:
    second = """notes: Keep.consumer({ subscribe: ["done"], async prepare(ctx) {
      const events = await ctx.peek("done");
      return { reservations: [{ topic: "done", ids: events.map((event) => event.messageId) }], data: {} };
    } }), file: Keep"""
    project.file.write_text(project.file.read_text().replace("file: Keep", second))
    project.run()
    project.publish("m1")
    lines = [json.loads(line) for line in project.run(0, "--json").stdout.splitlines()]
    assert [(line["text"], line["count"]) for line in lines if line["kind"] == "done"] == [
        ("Mail m1 → Line 1 written", 1),
        ("Line 1 written → done by notes", 0),
    ]


def test_the_repair_command_is_given_the_evidence_and_mends_the_script(project: Project) -> None:
    (project.folder / "mend.py").write_text(PYTHON_REPAIR)
    project.publish("m1", {"broken": True})
    project.run(0, "--repair", "python3 mend.py")
    assert project.lines() == ["m1"]
    evidence = json.loads((project.folder / "evidence.json").read_text())
    assert (evidence["workflow"], evidence["handler"], evidence["failures"]) == ("desk-work", "file", 1)
    assert "can not read it" in evidence["error"]
    assert evidence["run"]["status"] == "failed:logic"
    assert evidence["trace"][0].endswith("file begins.")
    assert evidence["tools"]["desk.append"]["kind"] == "mutate"


def test_a_repair_that_changes_nothing_is_tried_twice(project: Project) -> None:
    mend = project.folder / "mend.sh"
    mend.write_text("#!/bin/sh\necho called >> calls\n")
    mend.chmod(0o755)
    project.config.write_text(project.config.read_text().replace("[host]", '[host]\nrepair = "./mend.sh"'))
    project.publish("m1", {"broken": True})
    assert "blocked: the script keeps failing" in project.run(1).stderr
    assert (project.folder / "calls").read_text() == "called\n" * 2


def test_a_repair_that_fails_stops_the_workflow(project: Project) -> None:
    project.publish("m1", {"broken": True})
    ended = project.run(1, "--repair", "sh -c 'echo no idea >&2; exit 7'")
    assert "the repair did not help: the repair command ended with 7: no idea" in ended.stderr
    project.keep("retry")
    project.keep("skip", "m1")
    project.run()
    assert project.lines() == []


def test_a_repair_that_takes_too_long_ends_with_all_that_it_started(project: Project) -> None:
    """What it left behind would write the file when nobody expects it any more."""
    os.mkfifo(project.folder / "held")
    held = os.open(project.folder / "held", os.O_RDONLY | os.O_NONBLOCK)
    project.publish("m1", {"broken": True})
    project.config.write_text(project.config.read_text().replace("[host]", "[host]\nrepair_seconds = 1"))
    ended = project.run(1, "--repair", "sh -c 'sleep 600 >held & wait'")
    assert "the repair command took more than 1 s" in ended.stderr
    assert select.select([held], [], [], 60)[0] == [held], "readable at its end, when nobody holds the other side"
    assert os.read(held, 1) == b""
    os.close(held)


def test_an_uncertain_mutation_never_goes_to_repair(project: Project) -> None:
    project.publish("m1")
    project.mode("lost")
    project.run(1, "--repair", "touch repaired")
    assert project.status(1)["escalation"] is not None
    assert not (project.folder / "repaired").exists()


def test_secrets_are_nowhere(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "hunter2-and-more"
    monkeypatch.setenv("DESK_KEY", secret)
    connector = project.folder / "desk.py"
    leaking = 'raise NotDone("network", f"nobody is at the desk of {self.key}")'
    connector.write_text(
        connector.read_text()
        .replace("    folder: Annotated", "    key: str\n    folder: Annotated")
        .replace('raise NotDone("network", "nobody is at the desk")', leaking)
    )
    project.config.write_text(project.config.read_text().replace("kind =", 'key = {env = "DESK_KEY"}\nkind ='))
    project.publish("m1")
    project.mode("late")
    ended = project.run(1, "--repair", "true")
    assert "nobody is at the desk of •••" in ended.stderr
    shown = ended.stdout + ended.stderr + project.keep("runs").stdout + project.keep("explain", "m1").stdout
    assert secret not in shown
    kept = [path for path in project.folder.rglob("*") if path.is_file()]
    assert project.folder / "work.db" in kept
    assert [path for path in kept if secret.encode() in path.read_bytes()] == []


def test_a_repair_that_tells_a_secret_does_not_bring_it_into_the_store(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the host's environment, and its last words are kept."""
    monkeypatch.setenv("DESK_KEY", "hunter2-and-more")
    project.config.write_text(
        project.config.read_text() + '\n[connectors.shop]\nkind = "webhook"\nurl = "http://127.0.0.1:9/"\n'
        'headers = {Authorization = {env = "DESK_KEY"}}\n'
    )
    project.publish("m1", {"broken": True})
    ended = project.run(1, "--repair", "sh -c 'echo key $DESK_KEY >&2; exit 7'")
    assert "ended with 7: key •••" in ended.stderr
    kept = [path for path in project.folder.rglob("*") if path.is_file()]
    assert [path for path in kept if b"hunter2" in path.read_bytes()] == []


def test_pause_resume_skip_run_now(project: Project) -> None:
    project.publish("m1")
    project.keep("pause")
    assert "it is paused" in project.run().stdout
    assert project.status()["standing"] == "paused by a person"
    project.keep("skip", "mail/m1")
    project.keep("resume")
    project.keep("run-now", "file")
    project.run()
    assert [row["came_of_it"] for row in project.ask("inputs")["rows"]] == ["skipped"]


def test_a_next_that_can_not_pass_is_abandoned(project: Project) -> None:
    project.publish("m1")
    stumbling = 'if (prepared.data.id) throw new Error("no"); const what'
    project.file.write_text(project.file.read_text().replace("const what", stumbling))
    project.run(1)
    project.file.write_text(project.file.read_text().replace("    file:", "    other:"))
    assert "is not in the script any more" in project.run(1).stderr
    run = project.ask("inputs")["rows"][0]["run"]
    assert project.ask("inputs")["rows"][0]["came_of_it"] == "desk.append is done; what follows is not"
    project.keep("abandon", run)
    project.run()
    assert project.ask("inputs")["rows"][0]["status"] == "consumed"


def test_a_store_in_memory_is_for_trying_things_out(project: Project) -> None:
    assert "version" in project.run(0, "--store", "memory:").stdout


def test_old_versions_are_kept(project: Project) -> None:
    from keepkernel.runtime import Archive, People, opened, version_of
    from keepkernel.settings import place_of

    first = project.file.read_text()
    project.run()
    project.file.write_text(first + "\n// another\n")
    project.run()
    store = opened(place_of(project.store))
    archive = Archive(store, People(store))
    assert archive.source("desk-work", version_of(first)) == first
    assert archive.source("desk-work", version_of(project.file.read_text())).endswith("// another\n")
    assert store.workflows() == (".scripts", "desk-work")
    store.close()
    assert [one["workflow"] for one in project.ask("status")["workflows"]] == ["desk-work"]


def test_several_workflows_in_one_host(project: Project) -> None:
    second = project.folder / "second.js"
    second.write_text(project.file.read_text().replace('"desk-work"', '"desk-more"'))
    project.config.write_text(f'{project.config.read_text()}\n[workflows.desk-more]\ngrant = ["desk.append"]\n')
    project.keep("run", str(project.file), str(second), "--until-idle")
    for name in ("desk-work", "desk-more"):
        project.keep("publish", "mail", name, "--title", name, "--workflow", name)
    told = project.keep("run", str(project.file), str(second), "--until-idle", "--json").stdout
    lines = [json.loads(line) for line in told.splitlines()]
    assert [line["needs_person"] for line in lines if line["kind"] == "end"] == [False, False]
    done = [line for line in lines if line["kind"] == "done"]
    assert sorted(line["workflow"] for line in done) == ["desk-more", "desk-work"]
    assert sorted(project.lines()) == ["desk-more", "desk-work"]
    assert "say which workflow is meant" in project.keep("pause", code=2).stderr
    assert "workflow" in project.keep("inputs").stdout.splitlines()[0]


def test_the_store_is_found_from_above_and_never_from_below(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.publish("m1")
    below = project.folder / "another" / "project"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert "there is no store here" in project.keep("inputs", code=2).stderr
    monkeypatch.chdir(project.folder.parent)
    assert "Mail m1" in project.keep("inputs").stdout
    second = project.folder.parent / "second"
    shutil.copytree(project.folder, second)
    told = project.keep("inputs", code=2).stderr
    shutil.rmtree(second)
    assert f"several folders have a store: go into one, or use --store: {second}, {project.folder}" in told
