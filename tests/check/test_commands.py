"""The command line of the checker: what it says, what it writes, and how it ends."""

import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import keepkernel
from keepkernel.cli import app
from keepkernel.fuzz import check, commands, progress
from keepkernel.fuzz.check import explore
from keepkernel.fuzz.explorer import Progress
from keepkernel.fuzz.progress import Watch
from keepkernel.fuzz.setups import ALL, FEATURES, SETUPS, setup
from keepkernel.spec.invariants import INVARIANTS
from keepkernel.spec.readings import READINGS, Reading

READING = "empty-outcome-retried"  # Eight steps in the set-up without mutate.
ISSUE = {
    "verdict", "setup", "events", "crashes", "reading", "states", "transitions", "depth", "seconds", "invariants",
    "violations", "witnesses", "unreached",
}  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


# --- verdicts and exit codes -------------------------------------------------------------------------


def test_what_holds_ends_with_0_and_says_what_was_explored() -> None:
    done = run("check", "no-mutate")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "no-mutate, 1 event, honest host: holds"
    result = explore("no-mutate")
    assert lines[1].startswith(
        f"  {result.states:,} states, {result.transitions:,} transitions, depth {result.depth}, "
    )
    for name, text in FEATURES.items():
        assert (f"  {name:<10}  {text}" in lines) == result.setup.has(name)
    assert "Left out: counts, permission, budget, redeploy, manual, coalesced" in lines
    assert "Not bounded: crashes and restarts, faults, retries, runs, sessions, time" in done.stdout
    assert (
        "Bounded: 1 input event, by --events; one workflow, one tool; counts by the limits of the policy" in done.stdout
    )
    assert f"Invariants: all {len(INVARIANTS)} hold" in done.stdout
    assert f"Put to the test: {len(result.witnesses)} of {len(INVARIANTS)}." in done.stdout
    assert "Never reached, edges: ConsumerPhase: mutated → emitting" in done.stdout


def test_what_is_violated_ends_with_1_and_tells_the_story() -> None:
    done = run("check", "--reading", READING)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0] == f"no-mutate, 1 event, honest host, in the reading {READING}: violated"
    assert "INV-022 (BOUND-004) is broken after 8 steps:" in done.stdout
    assert "   8  host: next of note fails: script (end_run)\n" in done.stdout
    assert "        run r1 (failed:logic, emitting) is pending retry and BEFORE\n" in done.stdout


def test_what_is_vacuous_ends_with_1_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check.EXPECTED, "no-mutate", {})
    done = run("check", "no-mutate")
    assert done.exit_code == 1
    assert done.stdout.startswith("no-mutate, 1 event, honest host: violated: vacuous: never put to the test: INV-003")


def test_a_limit_of_states_ends_with_3_and_decides_nothing() -> None:
    done = run("check", "no-mutate", "--max-states", "100")
    assert done.exit_code == 3
    assert "not decided: the limit of 100 states was reached, and not every state was seen" in done.stdout
    assert "of the others nothing is known" in done.stdout
    assert "hold," not in done.stdout
    undecided = json.loads(run("check", "no-mutate", "--max-states", "100", "--json").stdout)
    assert (undecided["verdict"], undecided["invariants"]) == ("not decided", {})


def test_ctrl_c_ends_with_3_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    report = Watch.__call__

    def interrupted(self: Watch, seen: Progress) -> None:
        if not self.stopped:
            signal.raise_signal(signal.SIGINT)
        report(self, seen)

    monkeypatch.setattr(Watch, "__call__", interrupted)
    done = run("check", "consumer")
    assert done.exit_code == 3
    assert done.stdout.startswith(
        "consumer, 1 event, honest host: not decided: interrupted, and not every state was seen\n"
    )
    assert signal.getsignal(signal.SIGINT) is before


def test_a_search_that_is_interrupted_keeps_what_it_found() -> None:
    def interrupt(seen: Progress) -> None:
        raise KeyboardInterrupt

    result = explore("consumer", report=interrupt)
    assert (result.verdict, result.complete, result.invariants) == ("not decided", False, {})
    assert result.states > 1_000
    with pytest.raises(AssertionError, match="not decided"):
        result.assert_holds()


def test_a_second_ctrl_c_is_an_ordinary_one() -> None:
    with Watch() as watch:
        signal.raise_signal(signal.SIGINT)
        assert watch.stopped
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_invariant_that_was_not_decided_is_not_said_to_hold() -> None:
    stopped = commands.search(commands.Wanted(reading=READING))
    assert stopped.invariants == {"INV-022": "violated"}
    searched = explore(setup("no-mutate", features=frozenset({"failures"})), reading=READING)
    assert searched.complete
    assert searched.invariants == dict.fromkeys(sorted(INVARIANTS), "holds") | {"INV-022": "violated"}
    assert explore("no-mutate").invariants == dict.fromkeys([*sorted(INVARIANTS), "LIVE-001", "LIVE-002"], "holds")


# --- wrong usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], f"there is no set-up 'nowhere'; there are: {', '.join(SETUPS)}"),
        (["--reading", "none"], f"there is no reading 'none'; there are: {', '.join(READINGS)}"),
        (["--features", "crash,rain"], f"there is no feature 'rain'; there are: {', '.join(FEATURES)}, all, none"),
        (["--features", "-rain"], "there is no feature 'rain'"),
        (["--features", ""], "there is no feature ''"),
        (["main", "--readings"], "--readings goes with --json alone"),
        (["--readings", "--max-states", "5"], "--readings goes with --json alone"),
    ],
)
def test_unknown_names_end_with_2_and_say_what_there_is(arguments: list[str], message: str) -> None:
    done = run("check", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"keepkernel: {message}")
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["--caller", "nobody"], ["--events", "0"], ["--max-states", "0"]])
def test_impossible_values_end_with_2(arguments: list[str]) -> None:
    assert run("check", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("crash,late", {"crash", "late"}),
        ("all", ALL),
        ("none", set()),
        ("all,-crash", ALL - {"crash"}),
        ("+counts", {"skip", "wake", "counts"}),
        ("-skip", {"wake"}),
        ("+counts, -skip", {"wake", "counts"}),
    ],
)
def test_features_are_named_or_added_or_taken_away(text: str, chosen: set[str]) -> None:
    assert commands.chosen_features(text, frozenset({"skip", "wake"})) == chosen


def test_a_reading_is_shown_where_it_shows_best_unless_told_otherwise() -> None:
    reading = READINGS["last-error-stands"]
    best = commands.resolved(commands.Wanted(reading=reading.name))
    assert best == (setup(reading.setup, features=frozenset(reading.features)), reading.caller)
    chosen, caller = commands.resolved(commands.Wanted("main", 2, "honest", reading=reading.name))
    assert (chosen.name, chosen.events, caller) == ("main", 2, "honest")
    assert chosen.features == SETUPS["main"].features | {*reading.features}


# --- JSON and lists ----------------------------------------------------------------------------------


def test_json_of_what_holds() -> None:
    found = json.loads(run("check", "no-mutate", "--json").stdout)
    assert found.keys() >= ISSUE
    assert found.keys() - ISSUE == {"why", "caller", "features"}
    assert (found["verdict"], found["setup"], found["events"]) == ("holds", "no-mutate", 1)
    assert (found["crashes"], found["reading"], found["violations"]) == ("any", "chosen", [])
    assert {*found["invariants"].values()} == {"holds"}
    assert found["states"] == explore("no-mutate").states
    assert {*found["witnesses"]} < INVARIANTS.keys()
    assert "ConsumerPhase: mutated → emitting" in found["unreached"]["edges"]


def test_json_of_what_is_violated() -> None:
    found = json.loads(run("check", "--reading", READING, "--json").stdout)
    assert found.keys() >= ISSUE
    assert (found["verdict"], found["reading"], found["crashes"]) == ("violated", READING, 0)
    [violation] = found["violations"]
    assert violation.keys() >= {"invariant", "rule", "length", "trace"}
    assert (violation["invariant"], violation["rule"], violation["length"]) == ("INV-022", "BOUND-004", 8)
    assert len(violation["trace"]) == 8
    assert violation["trace"][-1] == "host: next of note fails: script (end_run)"


def test_list_names_everything_that_can_be_chosen() -> None:
    done = run("check", "--list")
    assert done.exit_code == 0
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    assert listed == {*SETUPS, *FEATURES, *READINGS}


def test_the_table_of_readings() -> None:
    done = run("check", "--readings")
    assert done.exit_code == 0
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    for name, reading in READINGS.items():
        assert rows[name][1:3] == [reading.decision, reading.breaks]
        assert int(rows[name][3]) > 0
    assert rows["chosen"][1] == "nothing"
    assert done.stdout.endswith("verdict: holds\n")


def test_a_reading_that_breaks_nothing_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = Reading("harmless", "D00", "Nothing is changed.", (), "INV-001", "no-mutate")
    monkeypatch.setattr(commands, "READINGS", {"harmless": harmless})
    monkeypatch.setitem(READINGS, "harmless", harmless)
    done = run("check", "--readings")
    assert done.exit_code == 1
    assert "Not broken: harmless." in done.stdout
    found = json.loads(run("check", "--readings", "--json").stdout)
    assert found["verdict"] == "violated"
    assert found["readings"][0]["invariant"] is None
    assert [one["verdict"] for one in found["chosen"]] == ["holds"]


# --- files -------------------------------------------------------------------------------------------


def test_no_counterexample_writes_no_file(tmp_path: Path) -> None:
    done = run("check", "no-mutate", "--itf", str(tmp_path / "a.itf.json"), "--mermaid", str(tmp_path / "a.mmd"))
    assert done.exit_code == 0
    assert done.stderr.count("there is no counterexample") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_can_not_be_written_is_wrong_usage(tmp_path: Path) -> None:
    done = run("check", "--reading", READING, "--itf", str(tmp_path / "missing" / "a.itf.json"))
    assert done.exit_code == 2
    assert "can not be written: No such file or directory" in done.stderr


# --- progress and the facade -------------------------------------------------------------------------


def test_progress_is_shown_on_a_terminal_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for terminal, quiet, shown in ((True, -1.0, True), (True, 1e6, False), (False, -1.0, False)):
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr(progress, "QUIET_SECONDS", quiet)
        with Watch("main") as watch:
            watch(Progress(2_000, 9_000, 12, 0.5))
        line = "main: 2,000 states, depth 12, 4,000 states/s …"
        assert (line in capsys.readouterr().err) == shown


def test_explore_is_a_public_name() -> None:
    assert keepkernel.explore is explore
    assert "explore" in keepkernel.__all__
