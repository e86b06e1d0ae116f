"""How fast the host is beside DBOS Transact: the same work, on SQLite, in the same run.

Each event is prepared, makes one change outside (a line in a counted local file), and gives one durable event
downstream. Here it is a consumer in the sandbox; there it is a workflow with two steps that sets an event. Both take
turns on the same disk. Exits with 1 when the host is not three times as fast, and with 2 when DBOS is not installed.

    pip install 'keepkernel[peers]'
    python -m bench.peers [--json] [--events N] [--folder FOLDER]
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from keepkernel.adapters.stores import open_store

from .host import work

WANTED: Final = 3.0
ROUNDS: Final = 10
MISSING: Final = "DBOS is not installed; pip install 'keepkernel[peers]'"


class Result(NamedTuple):
    events: int
    keepkernel_per_s: float
    dbos_per_s: float
    ratio: float
    """The median of the rounds' ratios."""

    @property
    def met(self) -> bool:
        return self.ratio >= WANTED


class Dbos:
    """The work as a workflow of DBOS; `around` is told right before and right after the change outside."""

    def __init__(self, folder: Path, around: Callable[[str], None] = lambda when: None) -> None:
        dbos: Any = import_module("dbos")
        self.path = folder / "dbos-ledger"
        self._api = dbos.DBOS
        self._name = dbos.SetWorkflowID
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        url = f"sqlite:///{folder / 'dbos.sqlite'}"
        # A version of its own would be made of the source; a restart must find what it left.
        settings = {"application_version": "1", "executor_id": "bench", "run_admin_server": False}
        self._api(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", **settings})

        def prepare(line: str) -> dict[str, str]:
            return {"line": line}

        def mutate(data: dict[str, str]) -> bool:
            around("before")
            os.write(self._file, f"{data['line']}\n".encode())
            around("after")
            return True

        first, second = self._api.step()(prepare), self._api.step()(mutate)

        def handle(line: str) -> None:
            self._api.set_event("done", second(first(line)))

        self._handle = self._api.workflow()(handle)
        self._api.launch()

    def handle(self, line: str) -> None:
        with self._name(f"event {line}"):
            self._handle(line)

    def wait_for(self, line: str) -> None:
        """Until the workflow for this line, which a process that died has left, is at its end."""
        self._api.retrieve_workflow(f"event {line}").get_result()

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def close(self) -> None:
        self._api.destroy()
        os.close(self._file)


@contextmanager
def both(folder: Path) -> Iterator[tuple[Callable[[int], float], Callable[[int], float]]]:
    """Functions that take some events through, each in seconds an event; both check that none was lost or doubled."""
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_store(f"sqlite:{folder / 'store'}")))
        ours = stack.enter_context(work(store, folder, sandbox=True))
        theirs = stack.enter_context(closing(Dbos(folder)))
        handled = 0

        def by_keepkernel(events: int) -> float:
            ours.publish(events)
            return ours.drive() / events

        def by_dbos(events: int) -> float:
            nonlocal handled
            began = time.perf_counter()
            for number in range(handled, handled + events):
                theirs.handle(str(number))
            handled += events
            return (time.perf_counter() - began) / events

        yield by_keepkernel, by_dbos
        ours.check()
        if theirs.lines() != [str(n) for n in range(handled)]:
            raise RuntimeError(f"{len(theirs.lines())} changes outside instead of {handled}")


def measure(folder: Path, events: int) -> Result:
    """Rounds of some events of each; the first round warms up."""
    per_round = max(1, events // ROUNDS)
    with both(folder) as (by_keepkernel, by_dbos):
        rounds = [(by_keepkernel(per_round), by_dbos(per_round)) for _ in range(ROUNDS + 1)][1:]
    ours, theirs = (statistics.median(seconds) for seconds in zip(*rounds, strict=True))
    ratio = statistics.median(there / here for here, there in rounds)
    return Result(ROUNDS * per_round, 1 / ours, 1 / theirs, ratio)


def table(result: Result) -> str:
    return "\n".join(
        [
            f"{'events from end to end, SQLite':<34}{'events/s':>10}",
            f"{'keepkernel, with the sandbox':<34}{result.keepkernel_per_s:>10,.0f}",
            f"{'DBOS Transact':<34}{result.dbos_per_s:>10,.0f}",
            f"{result.ratio:.1f} times as fast (wanted: {WANTED:.0f})",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--events", type=int, default=300, help="events of each")
    parser.add_argument("--folder", type=Path, help="where to make files; the disk counts")
    arguments = parser.parse_args()
    if find_spec("dbos") is None:
        print(MISSING, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        result = measure(Path(folder), arguments.events)
    print(json.dumps(result._asdict(), indent=2) if arguments.json else table(result))
    return 0 if result.met else 1


if __name__ == "__main__":
    sys.exit(main())
