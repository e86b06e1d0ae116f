"""What is broken on purpose is caught: hosts, kernels, stores and worlds."""

import json
import re
import shlex
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keepkernel import Effect, Send, SendMutation
from keepkernel.adapters.host import Grain, Host
from keepkernel.adapters.memory import MemoryStore
from keepkernel.cli import app
from keepkernel.fuzz import lives
from keepkernel.fuzz.crash import Swept, failures_of, swept_in_process
from keepkernel.fuzz.judge import judged
from keepkernel.fuzz.lives import WAY, Place, Points, Way, live
from keepkernel.fuzz.outside import Entry, entries
from keepkernel.fuzz.trials import ground, simulated
from keepkernel.fuzz.workflows import WORKFLOWS
from keepkernel.kernel import respond
from keepkernel.kernel.ports import Change, Lease
from keepkernel.kernel.respond import Happened
from keepkernel.spec.readings import READINGS, all_swaps
from keepkernel.spec.variants import swapped

GRAINS: tuple[Grain, ...] = ("fine", "coalesced")


def swept(folder: Path, name: str = "success", way: Way = WAY) -> Swept:
    return swept_in_process(WORKFLOWS[name], ground("memory", folder, way), 1, 0, 1)


def words(result: Swept) -> str:
    return "\n".join(text for failure in result.failures for text in failure.violations)


# --- hosts -------------------------------------------------------------------------------------------


class Hasty(Host):
    """Acts before it commits."""

    def _made_durable(self, workflow: str, effects: tuple[Effect, ...], leased: bool) -> bool:
        for effect in effects:
            if isinstance(effect, Send):
                self.connectors.send(effect)
        return super()._made_durable(workflow, effects, leased)

    def _answer(self, workflow: str, effect: Any) -> Any:
        return Happened() if isinstance(effect, Send) else super()._answer(workflow, effect)


@pytest.mark.parametrize("grain", GRAINS)
def test_a_host_that_acts_before_it_commits_is_caught(folder: Path, grain: Grain) -> None:
    result = swept(folder, way=Way(grain, Hasty))
    assert result.verdict == "violated"
    assert "and none of them had sent it" in words(result)


def test_a_host_that_holds_back_what_it_sends_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(respond, "may_wait", lambda command: isinstance(command, (*respond.MAY_WAIT, SendMutation)))
    result = swept(folder)
    assert result.verdict == "violated"
    assert "and none of them had sent it" in words(result)


class Careless(Host):
    """Does not recover what another process left."""

    def start(self, workflow: str) -> bool:
        return self._renew(workflow)


def test_a_host_that_does_not_recover_is_caught(folder: Path) -> None:
    result = swept(folder, way=Way("fine", Careless))
    assert result.verdict == "violated"
    assert "Stuck" in words(result)


# --- kernels -----------------------------------------------------------------------------------------


def test_a_kernel_that_asks_the_phase_first_repeats_a_mutation(folder: Path) -> None:
    with swapped(*all_swaps(READINGS["phase-before-ledger"])):
        result = swept(folder)
    assert result.verdict == "violated"
    assert "INV-035" in words(result)
    assert swept(folder).verdict == "holds"


def test_the_command_that_reproduces_a_failure_does() -> None:
    run = CliRunner().invoke
    with swapped(*all_swaps(READINGS["phase-before-ledger"])):
        found = run(app, ["crash", "--store", "memory:", "--in-process", "--workflow", "success"])
        assert found.exit_code == 1
        line = re.findall(r"^  keepkernel (crash .*--point .*)$", found.output, re.MULTILINE)[0]
        again = run(app, shlex.split(line))
        assert again.exit_code == 1
        assert "broken: " in again.output
        as_json = run(app, ["crash", "--store", "memory:", "--in-process", "--workflow", "success", "--json"])
        first = json.loads(as_json.output)["workflows"][0]["failures"][0]
        assert first["reproduce"] == f"keepkernel {line}"
    assert run(app, shlex.split(line)).exit_code == 0


# --- stores ------------------------------------------------------------------------------------------


class Promising(MemoryStore):
    """Acknowledges a commit before it is durable: the last one is gone after a death."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.before: Callable[[], None] = lambda: None

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        rows = self._of(change.workflow)
        kept = deepcopy(vars(rows))

        def undo() -> None:
            vars(rows).update(kept)

        self.before = undo
        return super().commit(change, lease)

    def drop(self) -> None:
        self.before()
        self.before = lambda: None


class Forgetful(MemoryStore):
    """Drops the events of every third change."""

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        return super().commit(change._replace(events=()) if change.base % 3 == 0 else change, lease)


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("broken", [Promising, Forgetful])
def test_a_broken_store_is_caught(
    broken: type[MemoryStore], grain: Grain, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "open_store", lambda url, **options: broken(**options))
    assert swept(folder, way=Way(grain)).verdict == "violated"


# --- the judge ---------------------------------------------------------------------------------------


def told(folder: Path, change: Callable[[tuple[Entry, ...]], tuple[Entry, ...]]) -> str:
    """What the judge says when the outside tells something else than what happened."""
    place = Place("memory", folder)
    live(WORKFLOWS["success"], place, Points(), 0)
    assert judged(WORKFLOWS["success"], place.open(), entries(place.record)).violations == ()
    return "\n".join(judged(WORKFLOWS["success"], place.open(), change(entries(place.record))).violations)


def test_an_application_that_is_missing_is_seen(folder: Path) -> None:
    said = told(folder, lambda record: record[1:])
    assert "m1 was handled with success, and was applied 0 times" in said
    assert "INV-036" in said


def test_a_second_application_is_seen(folder: Path) -> None:
    said = told(folder, lambda record: (record[0], *record))
    assert "INV-035" in said
    assert "arrived 2 times" in said


def test_a_call_that_nobody_sent_is_seen(folder: Path) -> None:
    assert "none of them had sent it" in told(folder, lambda record: (record[0]._replace(about="w/x"), *record[1:]))


def test_a_call_before_its_transition_was_durable_is_seen(folder: Path) -> None:
    assert "none of them had sent it" in told(folder, lambda record: (record[0]._replace(version=3), *record[1:]))


def test_a_late_call_is_seen(folder: Path) -> None:
    assert "is not what was sent" in told(folder, lambda record: (record[0]._replace(at=10**9), *record[1:]))


def test_another_end_than_without_a_crash_is_seen(folder: Path) -> None:
    where = ground("memory", folder)
    clean, other = simulated(WORKFLOWS["success"], where), simulated(WORKFLOWS["no-call"], where)
    assert failures_of(clean, clean, ()) == ()
    (failure,) = failures_of(clean, other, (1,))
    assert {text.partition(":")[0] for text in failure.violations} == {"handlers", "events", "commits", "landed"}


@pytest.mark.parametrize(
    "tamper",
    [
        lambda rows: rows.transitions.pop(10),
        lambda rows: rows.transitions.insert(10, rows.transitions.pop(11)),
        lambda rows: rows.runs.pop(),
        lambda rows: rows.sessions.clear(),
        lambda rows: rows.events.update({k: e._replace(title="other") for k, e in rows.events.items()}),
        lambda rows: setattr(rows, "head", rows.head._replace(next_seq=99)),
        lambda rows: setattr(rows, "version", rows.version + 1),
    ],
)
def test_a_store_that_shows_what_its_journal_does_not_say_is_seen(tamper: Callable[[Any], None], folder: Path) -> None:
    place = Place("memory", folder)
    live(WORKFLOWS["success"], place, Points(), 0)
    store: Any = place.open()
    tamper(store._rows["w"])
    assert judged(WORKFLOWS["success"], store, entries(place.record)).violations
