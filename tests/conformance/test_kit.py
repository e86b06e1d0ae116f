"""The kit finds what is wrong with a runtime, says which rule it breaks, and outlives its bad manners."""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from keepkernel.cli import app
from keepkernel.fuzz.commands import WrongUsage
from keepkernel.fuzz.conformance import profile, result, run, tours, vectors
from keepkernel.fuzz.conformance.behaviour import Worldly
from keepkernel.fuzz.conformance.channel import Channel, Trouble
from keepkernel.fuzz.conformance.play import Do, Found, Kill, Meet, Player, Recover, Script
from keepkernel.fuzz.conformance.profile import PLAIN, Profile
from keepkernel.fuzz.conformance.rules import blamed
from keepkernel.fuzz.conformance.suite import QUICK, Chooser, Progress, Suite, crash_scripts, point_scripts, stories
from keepkernel.fuzz.conformance.verdict import Judge
from keepkernel.kernel import commands as c
from keepkernel.kernel.codec import from_plain, to_plain
from keepkernel.kernel.policy import Policy
from keepkernel.kernel.step import step
from keepkernel.kernel.types import Accepted, Declaration, Key, Publication, State, new_workflow
from keepkernel.spec.readings import READINGS, all_swaps
from keepkernel.spec.variants import swapped

DRIVER = [sys.executable, str(Path(__file__).parent / "drivers" / "wrapped.py")]
FILE = Declaration("file", "consumer", ("mail",), has_mutate=True)
MAIL = Key("mail", "m1")
DEPLOYED = (c.Deploy(1, "v1", ("mail",), (FILE,)), c.Grant(1, "sheets.append"), c.Resume(1))
BEGUN = (
    *DEPLOYED,
    c.Publish(2, Publication(MAIL, "Mail", "{}")),
    c.StartSession(3, "s1"),
    c.CreateRun(3, "r1", "s1", "file"),
    c.Begin(3, "r1"),
    c.Prepared(4, "r1", (MAIL,)),
    c.Mutating(5, "r1"),
)
SENT = (*BEGUN, c.RecordMutation(6, "r1", "sheets.append", "{}", True), c.SendMutation(7, "r1"))


SENT_STATE = NEW = new_workflow("w")
for one in SENT:
    accepted = step(SENT_STATE, one)
    assert isinstance(accepted, Accepted)
    SENT_STATE = accepted.state


def script(*commands: c.Command) -> Script:
    return Script(Policy(), tuple(Do(command) for command in commands))


def quiet(_: Progress) -> None:
    """Nobody looks."""


class Runs:
    """Drivers that tests of one module share, one for each way to start it."""

    def __init__(self) -> None:
        self.known: dict[object, Player] = {}

    def __call__(self, *options: str, profile: Profile = PLAIN, patience_s: float = 30) -> Player:
        key = (options, profile.joined, profile.readings, profile.commands, profile.rules)
        if key not in self.known:
            kind = Worldly if "behaviour" in options else Player
            argv = [*DRIVER, *(one for one in options if one != "behaviour")]
            self.known[key] = kind(argv, profile, patience_s, "behaviour" if kind is Worldly else "transitions")
        return self.known[key]


@pytest.fixture(scope="module")
def runs() -> Any:
    made = Runs()
    yield made
    for player in made.known.values():
        player.close()


def shortest(player: Player, found: Found | None) -> Found:
    assert found is not None
    suite = Suite(player, quiet)
    suite.found[found.divergence.cause] = [found]
    suite.counts[found.divergence.cause] = 1
    [cause] = suite.causes()
    assert cause.shrunk
    return Found(cause.divergence, cause.script, cause.before)


# --- a runtime that conforms -------------------------------------------------------------------------


def test_the_reference_conforms_to_itself(runs: Runs) -> None:
    player = runs()
    for state, command in [*vectors.single_steps()][::15]:
        assert player.play(Script(state.policy, (Do(command),), state)) is None
    for walk in tours.walks()[1][::100]:
        assert player.play(Script(walk.policy, tuple(Do(command) for command in walk.commands))) is None
    assert player.commands > 200
    assert len(player.rules) > 60
    assert player.judge.excused == {}


def test_what_was_answered_survives_a_kill_and_is_recovered(runs: Runs) -> None:
    player = runs()
    ends = (Kill(), Recover(8), Kill(), Recover(8))
    assert player.play(script(*SENT)._replace(moves=(*script(*SENT).moves, *ends))) is None
    assert player.rules["REC-001"] >= 1


@pytest.mark.parametrize("point", [0, 1, 2])
def test_a_step_that_is_cut_is_done_or_not(runs: Runs, point: int) -> None:
    moves = (*script(*BEGUN).moves, Do(c.RecordMutation(6, "r1", "sheets.append", "{}", True), point), Recover(8))
    assert runs().play(Script(Policy(), moves)) is None


def test_what_follows_half_a_line_is_read_once_more(runs: Runs) -> None:
    cut = next(one for one in point_scripts(tours.walks()[0], 3) if Do(c.Begin(1, "n2"), 1) in one.moves)
    assert runs().play(cut) is None
    found = runs("--fault", "appends-to-half-a-line").play(cut)
    assert found is not None
    assert found.divergence.kind in ("it lost what it had answered", "died", "not started")


def test_a_recovery_is_told_in_the_words_that_were_given(runs: Runs) -> None:
    found = runs("--fault", "own-words").play(Script(Policy(), (*script(*SENT).moves, Kill(), Recover(9))))
    assert found is not None
    assert found.divergence.kind == "another recovery"


def test_walks_by_chance_conform_and_are_the_same_again(runs: Runs) -> None:
    made = [[Chooser(random.Random(seed)).script() for seed in range(5)] for _ in range(2)]
    assert made[0] == made[1]
    assert sum(len(one.moves) for one in made[0]) > 100
    for one in made[0]:
        assert runs().play(one) is None


# --- faults ------------------------------------------------------------------------------------------

FAULTS = {
    "no-dirty": ("SCHED-005", script(*BEGUN, c.EndRun(6, "r1", "crashed"))),
    "backoff-twice": ("MUT-011", script(*SENT, c.LoseTrack(8, "r1"), c.ReconcileRetry(9, "r1", "inline"))),
    "no-call": ("PHASE-006", script(*SENT, c.ApplyMutation(8, "r1", "call"), c.Emitting(9, "r1"))),
    "pauses-twice": ("WORK-001", script(*BEGUN, c.Pause(6), c.Pause(7))),
    "keeps-session": ("SESS-004", script(*DEPLOYED, c.StartSession(3, "s1"), c.FinishSession(4, "s1"))),
    "wrong-reason": ("STEP-002", script(*BEGUN, c.Begin(6, "r1"))),
    "rejection-writes": ("STEP-002", script(*BEGUN, c.Begin(6, "r1"))),
    "phase-before-ledger": ("BOUND-006", script(*SENT, c.EndRun(8, "r1", "crashed"))),
    "reconnect-clears-all": ("WORK-004", script(*SENT, c.EndRun(8, "r1", "crashed"), c.Reconnect(9))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_named_and_shortened(runs: Runs, fault: str) -> None:
    rule, story = FAULTS[fault]
    longer = story._replace(
        moves=(*story.moves[:3], Do(c.BlockWorkflow(1, "x")), Do(c.ClearError(1)), *story.moves[3:])
    )
    player = runs("--fault", fault)
    found = shortest(player, player.play(longer))
    assert rule in found.divergence.rules[:3], found.divergence
    assert len(found.script.moves) <= len(story.moves)


@pytest.mark.parametrize(
    ("field", "fired", "rule"),
    [
        ("error", ("WORK-001", "STEP-001"), "WORK-002"),
        ("retired.run", ("RETRY-001", "HOST-009"), "HOST-009"),
        ("handlers.dirty", ("RETRY-001", "SCHED-006"), "SCHED-006"),
        ("handlers.transient_failures", ("RUN-007", "FAIL-003", "FAIL-006"), "FAIL-006"),
    ],
)
def test_a_difference_is_blamed_on_the_rule_that_speaks_of_it(field: str, fired: tuple[str, ...], rule: str) -> None:
    assert blamed([field], fired)[0] == rule


def test_what_json_tells_apart_is_a_difference() -> None:
    """For Python 1, 1.0 and true are equal; a schema, and most other languages, tell them apart."""
    judge, command = Judge(PLAIN), DEPLOYED[0]
    law = step(NEW, command)
    assert judge.outcome(NEW, command, law, to_plain(law)) is None
    for text, field in (('"dirty": 1', "handlers.dirty"), ('"next_seq": 1.0', "next_seq")):
        told = re.sub(f'"{field.split(".")[-1]}": [a-z0-9]+', text, json.dumps(to_plain(law)))
        found = judge.outcome(NEW, command, law, json.loads(told))
        assert found is not None
        assert [row.field for row in found.rows] == [field]


def test_a_reason_that_does_not_apply_is_a_divergence() -> None:
    judge, command = Judge(PLAIN), c.RunNow(1, "file")
    ended = step(SENT_STATE, c.ApplyMutation(8, "r1", "call"))
    assert isinstance(ended, Accepted)
    for before, said, reason, holds in (
        (SENT_STATE, c.SendMutation(99_999, "r1"), "send_by_passed", True),  # It is late, too.
        (SENT_STATE, c.SendMutation(8, "r1"), "send_by_passed", False),
        (SENT_STATE, c.SendMutation(8, "r1"), "title_missing", False),
        (ended.state, c.ApplyMutation(9, "gone", "call"), "author", True),  # There is no such row to look at.
        (ended.state, c.ApplyMutation(9, "gone", "call"), "title_missing", False),
        (NEW, command, "handler_unknown", True),
    ):
        told = {"type": "rejected", "reason": reason}
        found = judge.outcome(before, said, step(before, said), told)
        assert (found is None) == holds, (said, reason)


def test_a_duplicate_is_worse_than_the_letter(runs: Runs) -> None:
    player = runs("--fault", "phase-before-ledger")
    found = player.play(FAULTS["phase-before-ledger"][1])
    assert found is not None
    assert any(text.startswith("INV-010") for text in found.divergence.invariants)
    letter = runs("--fault", "wrong-reason").play(FAULTS["wrong-reason"][1])
    assert letter is not None
    assert letter.divergence.invariants == ()
    assert found.divergence.severity < letter.divergence.severity


def test_stories_find_what_the_tour_has_not_without_loading_a_state(runs: Runs) -> None:
    """A driver that can not load a state gets no single steps, and the tour knows no producer and no budget."""
    player = runs("--fault", "due-from-commit")
    found = [one.divergence.rule for one in map(player.play, stories()) if one is not None]
    assert found == ["PROD-003"]
    assert all(runs().play(one) is None for one in stories())


def test_single_steps_end_when_their_grace_is_over(runs: Runs) -> None:
    suite = Suite(runs("--fault", "pauses-twice"), quiet)
    suite.until = -1e9
    suite.part(QUICK, [FAULTS["pauses-twice"][1]] * 3)
    assert suite.parts[QUICK] == 1


def test_a_reset_that_is_not_written_is_found(runs: Runs) -> None:
    player = runs("--fault", "forgets-reset")
    player.play(script(*DEPLOYED))
    found = player.play(next(crash_scripts(tours.walks()[0])))
    assert found is not None
    assert found.divergence.rule == "HOST-001"


def has_perl() -> bool:
    """With its JSON module: the perl that Debian installs everywhere comes without."""
    perl = shutil.which("perl")
    return (
        perl is not None
        and subprocess.run([perl, "-MJSON::PP", "-e1"], check=False, capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not has_perl(), reason="needs perl with JSON::PP")
def test_the_toy_in_perl_conforms() -> None:
    player = Player(["perl", str(Path(__file__).parent / "perl-toy" / "driver.pl")], PLAIN, 30)
    try:
        space = tours.walks()[0]
        assert [found for one in (*stories(), *crash_scripts(space)) if (found := player.play(one))] == []
        assert {"WORK-006", "PROD-003", "EVENT-008", "SESS-003", "REC-001"} <= {*player.rules}
    finally:
        player.close()


def test_what_is_forgotten_is_found(runs: Runs) -> None:
    found = runs("--fault", "forgets-last").play(Script(Policy(), (*script(*BEGUN).moves, Kill())))
    assert found is not None
    assert (found.divergence.kind, found.divergence.rule) == ("it lost what it had answered", "HOST-001")


def test_a_recovery_that_does_nothing_is_found(runs: Runs) -> None:
    found = runs("--fault", "no-recovery").play(Script(Policy(), (*script(*SENT).moves, Kill(), Recover(9))))
    assert found is not None
    assert found.divergence.kind == "another recovery"
    assert found.divergence.rule == "REC-001"


# --- manners -----------------------------------------------------------------------------------------

MANNERS = {
    "hang": ("hang", c.Reconnect(2)),
    "die": ("died", c.ClearError(2)),
    "garble": ("garbled", c.Pause(2)),
    "disorder": ("out of order", c.Grant(2, "x")),
    "flood": ("flood", c.Abandon(2, "r1")),
    "unsupported": ("unsupported", c.Reconnect(2)),
    "error": ("driver error", c.Approve(2, "d")),
    "close": ("hang", c.Abandon(2, "r1")),
    "surrogate": ("garbled", c.Reconnect(2)),
    "number": ("garbled", c.Reconnect(2)),
    "list": ("not a document", c.Reconnect(2)),
}


@pytest.mark.parametrize("manners", MANNERS)
def test_bad_manners_are_told_as_such_and_the_run_goes_on(runs: Runs, manners: str) -> None:
    kind, command = MANNERS[manners]
    player = runs("--manners", manners, patience_s=1.5 if manners == "hang" else 30)
    found = player.play(
        script(*DEPLOYED, *[c.BlockWorkflow(1, "x"), c.ClearError(1)] * 10 * (manners == "disorder"), command)
    )
    assert found is not None
    assert found.divergence.kind == kind
    assert player.play(script(*BEGUN)) is None


def test_a_driver_that_does_not_read_holds_nobody_up() -> None:
    hello = {"id": 1, "protocol": 1, "name": "deaf", "version": "1"}
    code = f"import time; print({json.dumps(hello)!r}, flush=True); time.sleep(60)"
    channel = Channel([sys.executable, "-c", code], "transitions", 0.5)
    try:
        channel.start()
        with pytest.raises(Trouble, match="did not read"):
            channel.ask("do", {"command": "x" * 2**20})
    finally:
        channel.close()


def test_what_is_unsupported_is_told_once_and_counted_then(runs: Runs) -> None:
    player = Player([*DRIVER, "--manners", "unsupported"], PLAIN, 30)
    try:
        first, second = (player.play(script(*DEPLOYED, c.Reconnect(2), c.Pause(3))) for _ in range(2))
    finally:
        player.close()
    assert first is not None
    assert second is None
    assert player.judge.excused == {"after it was found unsupported: reconnect": 1}


def test_a_driver_that_can_not_be_started_decides_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["conform", "--", str(tmp_path / "nothing")])
    assert done.exit_code == 3
    assert "not decided" in done.stdout
    assert "No such file" in done.stdout


# --- behaviour ---------------------------------------------------------------------------------------

LIVES = {
    "sends-again": ("HOST-006", "ok", "ok", "applied"),
    "sends-first": ("HOST-001", "ok", "ok", "killed late"),
    "forgets-result": ("SCRIPT-007", "ok", "ok", "ok", "network"),
    "reuses-ids": ("HOST-005", "killed", "killed"),
    "asks-early": ("SCHED-008", "ok", "ok", "silent"),
    "asked-when-told": ("SCHED-008", "ok", "ok", "silent", "slow"),
    "phase-before-ledger": ("REC-001", "ok", "ok", "killed late"),
    "forgets-repair": ("SCHED-008", "script", "killed"),
    "limits-are-logic": ("FAIL-001", "rate_limit"),
    "producers-first": ("SCHED-002",),
}


@pytest.mark.rule("HOST-001")
@pytest.mark.rule("HOST-006")
@pytest.mark.rule("SCRIPT-007")
@pytest.mark.parametrize("fault", LIVES)
def test_a_host_that_errs_is_found(runs: Runs, fault: str) -> None:
    rule, *fates = LIVES[fault]
    life = Script(Policy(), tuple(Meet(fate) for fate in fates))
    assert runs("behaviour").play(life) is None
    found = runs("behaviour", "--fault", fault).play(life)
    assert found is not None
    assert rule in found.divergence.rules[:2], found.divergence


# --- profile -----------------------------------------------------------------------------------------


def test_names_values_and_none_are_read_and_written() -> None:
    known = profile.read(
        {
            "names": {"reserved_by_run_id": "owner", "startRun": "create_run"},
            "values": {"status": {"done": "consumed"}},
            "none": {"owner": "null"},
        }
    )
    translator = profile.Translator(known)
    theirs = {"type": "startRun", "events": [{"reserved_by_run_id": None, "status": "done"}]}
    ours = {"type": "create_run", "events": [{"owner": "", "status": "consumed"}]}
    assert translator.ours(theirs) == ours
    assert translator.theirs(ours) == theirs
    assert {*translator.used} == {"names.reserved_by_run_id", "names.startRun", "values.status", "none.owner"}


def test_a_runtime_with_other_words_conforms_by_its_profile(runs: Runs) -> None:
    story = script(*SENT, c.ApplyMutation(8, "r1", "call"), c.Emitting(9, "r1"), c.CommitConsumer(10, "r1"))
    assert runs("--dialect").play(story) is not None
    words = profile.read(
        {
            "names": {"reserved_by_run_id": "owner", "startRun": "create_run"},
            "values": {"events.status": {"done": "consumed"}},
            "none": {"owner": "null"},
        }
    )
    player = Player([*DRIVER, "--dialect"], words, 30)
    try:
        assert player.play(story) is None
        assert player.play(Script(Policy(), (*story.moves, Kill(), Recover(11)))) is None
    finally:
        player.close()
    assert player.translator.used["values.events.status"] > 0
    assert [*run.unused(words, {*player.translator.used})] == []
    assert player.judge.excused == {}


def test_a_line_of_a_profile_is_not_used_by_one_that_begins_like_it() -> None:
    words = profile.read({"names": {"own": "owner", "own_title": "title"}})
    assert [*run.unused(words, {"names.own_title"})] == ["names.own"]


def test_one_of_ours_may_have_a_name_in_each_place() -> None:
    assert profile.read({"names": {"run.why": "status", "events.stage": "status"}}).names["events.stage"] == "status"


def test_a_dotted_name_holds_in_one_place_alone() -> None:
    translator = profile.Translator(profile.read({"names": {"run.why": "status"}, "none": {"events.owner": "null"}}))
    theirs = {"type": "accepted", "state": {"run": {"why": "active"}, "events": [{"owner": None, "why": 1}]}}
    ours = {"type": "accepted", "state": {"run": {"status": "active"}, "events": [{"owner": "", "why": 1}]}}
    assert translator.ours(theirs) == ours
    assert translator.theirs(ours["state"]) == theirs["state"]
    assert translator.theirs({"status": "draft"}) == {"status": "draft"}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"scoop": {}}, "scoop"),
        ({"scope": {"rules": ["NONE-001"]}}, "NONE-001"),
        ({"scope": {"commands": ["jump"]}}, "jump"),
        ({"state": {"ignore": ["run.colour"]}}, "run.colour"),
        ({"latitude": {"readings": ["upside-down"]}}, "upside-down"),
        ({"latitude": {"reasons": "any"}}, "latitude.reasons"),
        ({"names": {"a": "b"}}, "names.a"),
        ({"joined": [{"steps": ["begin"]}]}, "joined"),
        ({"name": 3}, "name is not a text"),
        ({"names": 3}, "names is not a table"),
        ({"state": []}, "state is not a table"),
        ({"scope": "all"}, "scope is not a table"),
        ({"values": {"status": 3}}, "values.status is not a table"),
        ({"values": {"status": {"x": 3}}}, "values.status.x is not a text"),
        ({"joined": [3]}, "joined"),
        ({"names": {"a": "title", "b": "title"}}, "names: a and b both stand for title"),
        ({"values": {"status": {"x": "active", "y": "active"}}}, "values.status: x and y both stand for active"),
    ],
)
def test_a_profile_that_means_nothing_is_wrong_usage(table: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongUsage, match=words):
        profile.read(table)


def test_a_reading_that_the_profile_allows_is_excused_and_counted(runs: Runs) -> None:
    story = script(*BEGUN, c.Mutated(6, "r1"), c.Emitting(7, "r1"), c.EndRun(8, "r1", "paused:transient"))
    assert runs("--fault", "empty-outcome-retried").play(story) is not None
    player = runs("--fault", "empty-outcome-retried", profile=Profile(readings=("empty-outcome-retried",)))
    assert player.play(story) is None
    assert player.judge.excused == {"latitude.readings empty-outcome-retried": 1}


def test_rules_and_commands_out_of_scope_are_counted(runs: Runs) -> None:
    story = FAULTS["no-dirty"][1]
    scoped = Profile(rules=frozenset({"SCHED-005", "INV-014"}))
    player = runs("--fault", "no-dirty", profile=scoped)
    assert player.play(story) is None
    assert player.judge.excused == {"scope.rules SCHED-005": 1}
    without = runs(profile=Profile(commands=frozenset({"pause"})))
    assert without.play(script(*DEPLOYED, c.Pause(2), c.Resume(3))) is None
    assert without.judge.excused == {"scope.commands pause": 1}


def test_joined_steps_are_one_request(runs: Runs) -> None:
    player = runs(profile=Profile(joined=(("record_mutation", "send_mutation"),)))
    assert player.play(script(*SENT, c.ApplyMutation(8, "r1", "call"))) is None
    part = script(*SENT[:-1], c.EndRun(8, "r1", "crashed"))
    assert player.play(part) is None
    assert {*player.judge.excused} == {
        "joined record_mutation + send_mutation",
        "joined record_mutation + send_mutation: the rest of a trace that takes only a part",
    }


# --- reports, reproductions, logs --------------------------------------------------------------------


@pytest.fixture(scope="module")
def diverging(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One run of the whole command against a driver with a fault."""
    folder = tmp_path_factory.mktemp("reports")
    options = ["--seconds", "0", "--json", "--junit", str(folder / "a.xml"), "--html", str(folder / "a.html")]
    command = ["conform", *options, "--repro-folder", str(folder), "--", *DRIVER, "--fault", "pauses-twice"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1, done.output
    return json.loads(done.stdout), folder


def test_the_report_names_the_rule_in_words_and_counts(diverging: tuple[dict[str, Any], Path]) -> None:
    report, _ = diverging
    [one] = report["divergences"]
    assert one["rule"] == "WORK-001"
    assert one["in_words"].startswith("WORK-001 ")
    assert one["shortest"]
    assert report["verdict"] == "diverges"
    assert report["rules"]["broken"] == ["WORK-001"]
    assert "WORK-001" not in report["rules"]["held"]
    assert report["badge"].startswith("diverges from keepkernel spec 1.0, level transitions, ")


def test_build_servers_and_browsers_can_read_it(diverging: tuple[dict[str, Any], Path]) -> None:
    _, folder = diverging
    suite = ElementTree.fromstring((folder / "a.xml").read_text())
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["WORK-001"]
    assert suite.get("failures") == "1"
    page = (folder / "a.html").read_text()
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_a_terminal_gets_no_control_characters(diverging: tuple[dict[str, Any], Path]) -> None:
    odd = result.Result([], "\x1b[31mred\x00", "transitions", "", (), (), (), {}, (), {}, 0, 0, 0.0, "")
    assert "\x1b" not in result.told(odd, {})
    ElementTree.fromstring(result.junit(odd))


def test_a_reproduction_shows_it_again_and_a_mended_driver_passes(diverging: tuple[dict[str, Any], Path]) -> None:
    _, folder = diverging
    again = ["conform", "--repro", str(folder / "conform-1.json"), "--", *DRIVER]
    broken = CliRunner().invoke(app, [*again, "--fault", "pauses-twice"])
    assert broken.exit_code == 1
    assert "WORK-001" in broken.stdout
    mended = CliRunner().invoke(app, again)
    assert mended.exit_code == 0, mended.output


def test_a_reproduction_of_the_other_level_is_wrong_usage(tmp_path: Path) -> None:
    document = result.script_document(Script(Policy(), (Meet("killed"),)))
    (tmp_path / "a.json").write_text(json.dumps(document))
    done = CliRunner().invoke(app, ["conform", "--repro", str(tmp_path / "a.json"), "--", *DRIVER])
    assert done.exit_code == 2
    assert "--level behaviour" in done.stderr


def test_every_move_is_read_as_it_was_written(tmp_path: Path) -> None:
    moves = (Do(c.Pause(1), 2), Kill(), Recover(3), Meet("applied"), *script(*SENT).moves)
    file = tmp_path / "script.json"
    file.write_text(json.dumps(result.script_document(Script(Policy(), moves))))
    assert run.read_script(file) == Script(Policy(), moves)


def log_of(*commands: c.Command) -> list[dict[str, Any]]:
    state = new_workflow("w")
    made: list[dict[str, Any]] = [{"op": "reset", "workflow": "w", "policy": to_plain(Policy())}]
    for command in commands:
        outcome = step(state, command)
        state = outcome.state if isinstance(outcome, Accepted) else state
        made.append({"op": "do", "command": to_plain(command), "outcome": to_plain(outcome)})
    return made


READING = (*BEGUN, c.Mutated(6, "r1"), c.Emitting(7, "r1"), c.EndRun(8, "r1", "paused:transient"), c.Pause(9))


@pytest.mark.parametrize(
    ("text", "code"),
    [('[latitude]\nreadings = ["empty-outcome-retried"]', 0), ('[latitude]\nmessages = "free"', 1)],
)
def test_a_reading_that_the_profile_allows_is_excused_in_a_log(tmp_path: Path, text: str, code: int) -> None:
    with swapped(*all_swaps(READINGS["empty-outcome-retried"])):
        lines = log_of(*READING)
    assert checked(tmp_path, lines, text) == code


@pytest.mark.parametrize(("text", "code"), [('[scope]\nrules = ["SCHED-005"]', 0), ("", 1)])
def test_a_log_goes_on_after_what_is_out_of_scope(tmp_path: Path, text: str, code: int) -> None:
    lines = log_of(*DEPLOYED, c.Publish(2, Publication(MAIL, "Mail", "{}")), c.Pause(3))
    for one in lines[-2:]:
        one["outcome"]["state"]["handlers"][0]["wake_at"] = 7
    assert checked(tmp_path, lines, text.replace("SCHED-005", "SCHED-007")) == code


def checked(folder: Path, lines: list[dict[str, Any]], profile: str) -> int:
    (folder / "a.ndjson").write_text("\n".join(map(json.dumps, lines)))
    (folder / "p.toml").write_text(profile)
    options = ["--log", str(folder / "a.ndjson"), "--profile", str(folder / "p.toml")]
    return CliRunner().invoke(app, ["conform", *options]).exit_code


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[" * 100_000, b"[1]", b'"text"'])
def test_a_log_that_is_no_log_is_wrong_usage(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "a.ndjson").write_bytes(line + b"\n")
    done = CliRunner().invoke(app, ["conform", "--log", str(tmp_path / "a.ndjson")])
    assert done.exit_code == 2, done.output
    assert "line 1" in done.output


def test_effects_of_a_recovery_in_a_log_are_compared(tmp_path: Path) -> None:
    entries = log_of(*BEGUN)
    ended = step(from_plain(State, entries[-1]["outcome"]["state"]), c.EndRun(9, "r1", "crashed", "boom"))
    assert isinstance(ended, Accepted)
    told = {"op": "recover", "now": 9, "message": "boom", "state": to_plain(ended.state), "effects": []}
    for effects, code in (([], 0), ([{"type": "repair", "run": "r1", "handler": "file", "message": ""}], 1)):
        lines = [json.dumps(one) for one in (*entries, {**told, "effects": effects})]
        (tmp_path / "a.ndjson").write_text("\n".join(lines))
        assert CliRunner().invoke(app, ["conform", "--log", str(tmp_path / "a.ndjson")]).exit_code == code


def test_a_log_conforms_or_its_first_wrong_line_is_named(tmp_path: Path) -> None:
    entries = log_of(*SENT, c.Begin(8, "r1"), c.EndRun(9, "r1", "crashed"))
    file = tmp_path / "log.ndjson"
    file.write_text("".join(json.dumps(one) + "\n" for one in entries))
    assert CliRunner().invoke(app, ["conform", "--log", str(file)]).exit_code == 0
    entries[-1]["outcome"]["state"]["events"][0]["status"] = "pending"
    file.write_text("".join(json.dumps(one) + "\n" for one in entries))
    done = CliRunner().invoke(app, ["conform", "--log", str(file), "--json"])
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["line"] == len(entries)
    assert report["rule"] == "BOUND-006"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["conform"], "how to start the driver"),
        (["conform", "--profile", "nowhere.toml", "--", "true"], "nowhere.toml"),
        (["conform", "--log", "nowhere.ndjson"], "nowhere.ndjson"),
        (["conform", "--repro", "nowhere.json", "--", "true"], "nowhere.json"),
        (["conform", "--html", "nowhere/a.html", "--", "true"], "nowhere"),
        (["conform", "--repro-folder", "nowhere", "--", "true"], "nowhere"),
        (["vectors", "--events", "2"], "--out"),
    ],
)
def test_wrong_usage_ends_with_2(options: list[str], words: str) -> None:
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("level", ["transitions", "behaviour"])
def test_the_whole_suite_of_the_reference(level: str) -> None:
    done = CliRunner().invoke(app, ["conform", "--level", level, "--seconds", "60", "--json", "--", *DRIVER])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rules"]["broken"] == []
