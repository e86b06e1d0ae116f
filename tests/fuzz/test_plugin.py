"""The plugin, as somebody uses it who writes a workflow."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKFLOW = '''
import pytest

from keepkernel import Declaration, Deploy, Grant, Key, Publication, Publish, Resume
from keepkernel.adapters.host import at_once
from keepkernel.fuzz.plugin import assert_invariants
from keepkernel.kernel.respond import Called, Finished, Pinned

FILE = Declaration("file", "consumer", ("mail",), has_mutate=True)


class Filing:
    """Files each mail with one call."""

    def __init__(self, store):
        self.store = store

    def call(self, state, effect):
        if effect.function == "prepare":
            keys = tuple(event.key for event in self.store.peek(state.workflow, "mail", 1))
            return Pinned(keys, f'"{keys[0].id}"' if keys else "null")
        if effect.function == "mutate":
            return Called("sheets.append", state.run.data, reconcilable=True)
        return Finished()


def deploy(host):
    state = host.store.load("inbox").state
    if not state.version:
        host.submit("inbox", at_once(Deploy(0, "v1", ("mail",), (FILE,))), leased=False)
    host.submit("inbox", at_once(Grant(0, "sheets.append")), leased=False)
    host.submit("inbox", at_once(Resume(0)), leased=False)
    for name in ("m1", "m2"):
        if host.store.get("inbox", Key("mail", name)) is None:
            mail = Publication(Key("mail", name), "a mail", "{}")
            host.submit("inbox", at_once(Publish(0, mail)), leased=False)
'''

WHOLE = """
@pytest.mark.crash_everywhere(store="STORE")
def test_every_mail_is_filed_once(crashing_store, scripted_world, crashes):
    world = scripted_world("silent", "applied")
    crashing_store.drive("inbox", Filing, world, deploy)
    assert {event.status for event in crashing_store.store.events("inbox")} == {"consumed"}
    assert world.applied('"m1"') == world.applied('"m2"') == 1
    assert_invariants(crashing_store.store, "inbox")
    print(f"died at {crashes.died or 'no point'}")
"""

CONNECTOR = """
from pathlib import Path
from typing import Annotated

from keepkernel.adapters.connectors import Call, Connector, Place, Shape, changes, reconciles
from keepkernel.kernel.respond import DidNotHappen


class Line(Shape):
    text: str


class Book(Connector):
    path: Annotated[Path, Place]

    @changes
    def append(self, params: Line, call: Call) -> Line:
        with self.path.open("a") as file:
            call.leaves()
            file.write(f"{call.name} {params.text}\\n")
        return params

    @reconciles("append")
    def find(self, params: Line, call: Call) -> Line | DidNotHappen:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return params if any(line.startswith(call.name) for line in lines) else DidNotHappen()
"""

OWN = """
from pathlib import Path

from keepkernel.adapters.connectors import Connections

HERE = Path(__file__).parent


class Booking(Filing):
    def call(self, state, effect):
        answer = super().call(state, effect)
        return answer._replace(params=f'{{"text":{answer.params}}}') if isinstance(answer, Called) else answer


@pytest.mark.crash_everywhere
def test_every_mail_is_in_the_book_once(crashing_store, crashes):
    (HERE / "book.txt").unlink(missing_ok=True)
    book = crashing_store.connections(HERE / "keepkernel.toml")
    crashing_store.drive("inbox", Booking, book, deploy)
    assert [line.split()[1] for line in (HERE / "book.txt").read_text().splitlines()] == ["m1", "m2"]
    print(f"died at {crashes.died or 'no point'}")


def test_connectors_that_would_not_die_are_refused(crashing_store):
    with pytest.raises(TypeError, match="crashing_store.connections"):
        crashing_store.drive("inbox", Booking, Connections.from_config(HERE / "keepkernel.toml"), deploy)
"""

CARELESS = """
@pytest.mark.crash_everywhere
def test_counts_what_it_did(crashing_store, scripted_world):
    world = scripted_world()
    seen = []

    class Counting(Filing):
        def call(self, state, effect):
            if effect.function == "mutate":
                seen.append(state.run.data)  # Not durable: a second look after a death counts twice.
            return super().call(state, effect)

    crashing_store.drive("inbox", Counting, world, deploy)
    assert len(seen) == 2
"""


def ran(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_inbox.py").write_text(WORKFLOW + text)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    loaded = ["-p", "no:keepkernel", "-p", "keepkernel.fuzz.plugin"]  # By its module, whatever is installed.
    return subprocess.run([*command, *loaded, "test_inbox.py"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("store", ["memory:", pytest.param("sqlite:", marks=pytest.mark.campaign)])
def test_a_whole_workflow_survives_a_death_at_every_point(tmp_path: Path, store: str) -> None:
    done = ran(tmp_path, WHOLE.replace("STORE", store))
    assert done.returncode == 0, done.stdout + done.stderr
    places = [line.partition("died at ")[2] for line in done.stdout.splitlines() if "died at " in line]
    assert places[0] == "no point"
    assert "no point" not in places[1:]
    assert {"commit: before", "commit: after", "Send: before", "target: after", "CallHandler: after"} <= {*places}
    assert "1 passed" in done.stdout


def test_connectors_of_your_own_die_as_well(tmp_path: Path) -> None:
    (tmp_path / "book.py").write_text(CONNECTOR)
    (tmp_path / "keepkernel.toml").write_text('[connectors.sheets]\nkind = "book.py:Book"\npath = "book.txt"\n')
    done = ran(tmp_path, OWN)
    assert done.returncode == 0, done.stdout + done.stderr
    places = [line.partition("died at ")[2] for line in done.stdout.splitlines() if "died at " in line]
    assert {"commit: before", "Send: before", "call: leaves", "Send: after"} <= {*places}
    assert "2 passed" in done.stdout


def test_what_is_not_crash_safe_fails_and_says_where(tmp_path: Path) -> None:
    done = ran(tmp_path, CARELESS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "where it died" in done.stdout
    assert "at point" in done.stdout
