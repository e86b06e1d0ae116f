"""What becomes of a change outside when its process is killed right before or right after it.

A process handles one event and kills itself with SIGKILL at that instant; the next process takes over what it left and
brings it to an end. Then the lines in the file outside are counted: two are a duplicate, none is a loss. keepkernel is
tried with a target that can be asked whether a call happened, and with one that can not: then it stops and asks, and a
person looks at the file and says what is there. DBOS Transact is tried in the same run when it is installed. Exits with
1 when keepkernel doubles or loses anything.

    python -m bench.kills [--json] [--times N] [--folder FOLDER]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from keepkernel import AssertApplied, DidntHappen, Policy, Wait
from keepkernel.adapters.host import at_once
from keepkernel.adapters.stores import open_store
from keepkernel.fuzz.lives import kill
from keepkernel.fuzz.progress import Watch
from keepkernel.fuzz.trials import in_a_process
from keepkernel.kernel.respond import Answer
from keepkernel.kernel.types import Send
from keepkernel.sandbox.engine import Workers
from keepkernel.sandbox.loader import Script, load

from .host import SOURCE, TOOLS, WORKFLOW, Functions, Ledger, Work
from .peers import MISSING, Dbos

When = Literal["before", "after"]
System = Literal["keepkernel", "keepkernel, no reconcile", "DBOS Transact"]
POLICY: Final = Policy(
    backoff_base_ms=1, reconcile_base_ms=1, send_within_ms=400, call_deadline_ms=50, clock_skew_ms=0, wake_min_ms=1
)
"""Short times: nothing here travels for long."""


class Trial(NamedTuple):
    """What was there after the second process had brought everything to an end."""

    lines: int
    asked: bool
    """A person was asked what had happened."""


class Result(NamedTuple):
    system: str
    killed: str
    times: int
    duplicates: int
    losses: int
    asked: int


class Deadly(Ledger):
    """The ledger of a process that dies at its first change."""

    def __init__(self, path: Path, when: When) -> None:
        super().__init__(path)
        self.when = when

    def send(self, effect: Send) -> Answer:
        if self.when == "before":
            kill()
        super().send(effect)
        kill()


# --- keepkernel --------------------------------------------------------------------------------------


def first_life(folder: Path, when: When, reconcilable: bool, script: Script) -> None:
    with closing(open_store(f"sqlite:{folder / 'store'}")) as store:
        one = Work(store, Deadly(folder / "ledger", when), Functions(store, reconcilable))
        one.begin(script, POLICY)
        one.publish(1)
        one.drive()


def second_life(folder: Path, reconcilable: bool) -> bool:
    """Bring it to an end; whether a person was asked."""
    asked = False
    with closing(open_store(f"sqlite:{folder / 'store'}")) as store, closing(Ledger(folder / "ledger")) as ledger:
        host = Work(store, ledger, Functions(store, reconcilable)).host
        if not host.start(WORKFLOW):
            raise RuntimeError("the lease of the dead host keeps its successor out")
        while True:
            rest = host.drive(WORKFLOW)
            if isinstance(rest, Wait):
                time.sleep(max(0, rest.until - store.now()) / 1000)
            elif rest.reason == "mutation_unresolved":
                asked = True
                record = store.load(WORKFLOW).state.mutation
                assert record is not None
                time.sleep(max(0, record.may_land_until - store.now()) / 1000)
                answer = AssertApplied if ledger.lines() else DidntHappen
                host.submit(WORKFLOW, at_once(answer(0, record.run)))
            else:
                break
        if store.peek(WORKFLOW, "mail", 1) or len(store.peek(WORKFLOW, "done", 9)) != 1:
            raise RuntimeError(f"the event was not handled to its end: {rest}")
    return asked


def try_keepkernel(folder: Path, when: When, *, reconcilable: bool, script: Script) -> Trial:
    died = in_a_process(lambda tell: first_life(folder, when, reconcilable, script))
    require(died.code == -9, f"it should have been killed: {died}")
    ended = in_a_process(lambda tell: tell(second_life(folder, reconcilable)))
    require(ended.code == 0, f"the second life failed: {ended}")
    return Trial(len((folder / "ledger").read_text().splitlines()), ended.told is True)


def require(holds: bool, problem: str) -> None:
    if not holds:
        raise RuntimeError(problem)


# --- DBOS --------------------------------------------------------------------------------------------


def try_dbos(folder: Path, when: When) -> Trial:
    def first() -> None:
        def around(at: str) -> None:
            if at == when:
                kill()

        Dbos(folder, around).handle("0")

    def second() -> None:
        with closing(Dbos(folder)) as dbos:
            dbos.wait_for("0")

    died = in_a_process(lambda tell: first())
    require(died.code == -9, f"it should have been killed: {died}")
    ended = in_a_process(lambda tell: second())
    require(ended.code == 0, f"the second life failed: {ended}")
    return Trial(len((folder / "dbos-ledger").read_text().splitlines()), False)


# --- all of it ---------------------------------------------------------------------------------------


def systems() -> dict[System, Callable[[Path, When], Trial]]:
    with closing(Workers(warm=1)) as workers:
        script = load(SOURCE, TOOLS, workers)
    found: dict[System, Callable[[Path, When], Trial]] = {
        "keepkernel": lambda folder, when: try_keepkernel(folder, when, reconcilable=True, script=script),
        "keepkernel, no reconcile": lambda folder, when: try_keepkernel(
            folder, when, reconcilable=False, script=script
        ),
    }
    if find_spec("dbos") is not None:
        found["DBOS Transact"] = try_dbos
    return found


def measure(folder: Path, times: int) -> list[Result]:
    results: list[Result] = []
    done = 0
    with Watch("kills") as watch:
        for name, trial in systems().items():
            for when in get_args(When):
                trials = []
                for number in range(times):
                    place = folder / f"{len(results)}-{number}"
                    place.mkdir()
                    trials.append(trial(place, when))
                    done += 1
                    watch.show(f"{done} processes killed")
                lines = [t.lines for t in trials]
                doubled, lost = sum(n > 1 for n in lines), lines.count(0)
                results.append(Result(name, when, times, doubled, lost, sum(t.asked for t in trials)))
    return results


def told_apart(system: str, results: list[Result]) -> str:
    """Whether a restart knows if the change was made: from what it did about it."""
    own = [r for r in results if r.system == system]
    if any(r.duplicates or r.losses for r in own):
        return "no"
    return "by a person" if all(r.asked == r.times for r in own) else "yes"


def table(results: list[Result]) -> str:
    head = ("system", "killed", "times", "duplicates", "losses", "asked", "told apart")
    lines = ["{:<26}{:<8}{:>7}{:>12}{:>8}{:>7}  {}".format(*head)]
    for r in results:
        apart = told_apart(r.system, results)
        lines.append(f"{r.system:<26}{r.killed:<8}{r.times:>7}{r.duplicates:>12}{r.losses:>8}{r.asked:>7}  {apart}")
    if all(r.system != "DBOS Transact" for r in results):
        lines.append(MISSING)
    return "\n".join(lines)


def met(results: list[Result]) -> bool:
    """Nothing doubled, nothing lost; and asked always, or never."""
    ours = [r for r in results if r.system.startswith("keepkernel")]
    return all(r.duplicates == r.losses == 0 and r.asked in (0, r.times) for r in ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--times", type=int, default=25, help="kills before and kills after, of each system")
    parser.add_argument("--folder", type=Path, help="where to make files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        results = measure(Path(folder), arguments.times)
    document = [{**r._asdict(), "told_apart": told_apart(r.system, results)} for r in results]
    print(json.dumps(document, indent=2) if arguments.json else table(results))
    return 0 if met(results) else 1


if __name__ == "__main__":
    sys.exit(main())
