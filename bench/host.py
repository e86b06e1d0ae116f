"""How fast the host is: events from end to end, one after another, against a bare loop of durable commits.

Each event is taken by a consumer with prepare, one change outside (a line in a counted local file), next and one
event downstream, all of it durable. The bare loop makes three durable one-row commits for each event with the same
driver on the same disk, and nothing else: in flight before the call, applied after it, committed at the end is the
least that the promise needs. All loops take turns, so that what else the machine does falls on each of them. Exits
with 1 when a number is not met.

    .venv/bin/python -m bench.host [--json] [--events N] [--folder FOLDER]
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

from keepkernel import Deploy, Event, Grant, Key, Policy, Publication, Publish, Resume
from keepkernel.adapters.host import Host, at_once
from keepkernel.adapters.stores import open_store
from keepkernel.kernel.ports import Change, Done, Handlers, Store
from keepkernel.kernel.respond import Answer, Called, DidNotHappen, Failed, Finished, Happened, Pinned
from keepkernel.kernel.types import CallHandler, Reconcile, Retired, Send, State
from keepkernel.sandbox.bridge import Tool
from keepkernel.sandbox.engine import Workers
from keepkernel.sandbox.handlers import Scripts
from keepkernel.sandbox.loader import Script, load

from .stores import RAW, time_appends

WORKFLOW: Final = "bench"
TOOL: Final = "ledger.add"
TOOLS: Final[Mapping[str, Tool]] = {TOOL: Tool("mutate", reconcilable=True)}
SOURCE: Final = """
export default Keep.workflow({
  name: "bench",
  topics: { mail: {}, done: {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail"],
      async prepare(ctx) {
        const [mail] = await ctx.peek("mail", { limit: 1 });
        if (!mail) return { reservations: [] };
        return {
          reservations: [{ topic: "mail", ids: [mail.messageId] }],
          data: { line: mail.payload.line },
          ui: { title: mail.title },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.ledger.add({ line: prepared.data.line });
      },
      async next(ctx, prepared, outcome) {
        const id = prepared.reservations[0]?.ids[0];
        if (id) await ctx.publish("done", { messageId: id, title: "Done", payload: outcome.result });
      },
    }),
  },
});
"""
ROUNDS: Final = 10
COMMITS_PER_EVENT: Final = 3
WANTED: Final = {"sqlite, sandbox": 0.25, "sqlite, Python functions": 0.5, "duckdb, Python functions": 0.25}


class Result(NamedTuple):
    name: str
    events: int
    events_per_s: float
    bare_per_s: float
    """Events of the bare loop, three commits each."""
    ratio: float
    """The median of the rounds' ratios."""
    wanted: float

    @property
    def met(self) -> bool:
        return self.ratio >= self.wanted


# --- the work ----------------------------------------------------------------------------------------


class Ledger:
    """The outside: a file with a line for every change that was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def catalogue(self) -> Mapping[str, Tool]:
        return TOOLS

    def read(self, state: State, tool: str, params: str) -> str | Failed:
        raise AssertionError("the work reads nothing from outside")

    def send(self, effect: Send) -> Answer:
        os.write(self._file, f"{json.loads(effect.params)['line']}\t{effect.key}\n".encode())
        return Happened("true")

    def reconcile(self, effect: Reconcile) -> Answer:
        found = any(line.endswith(f"\t{effect.key}") for line in self.path.read_text().splitlines())
        return Happened("true") if found else DidNotHappen(voided=True)

    def lines(self) -> list[str]:
        """What was asked for, once for every change that was made."""
        return [line.partition("\t")[0] for line in self.path.read_text().splitlines()]

    def close(self) -> None:
        os.close(self._file)


class Functions:
    """The same handlers as plain Python functions, in the place of the sandbox."""

    def __init__(self, store: Store, reconcilable: bool = True) -> None:
        self.store = store
        self.reconcilable = reconcilable

    def call(self, state: State, effect: CallHandler) -> Answer:
        run = state.run
        assert run is not None
        if effect.function == "prepare":
            found = self.store.peek(state.workflow, "mail", 1)
            if not found:
                return Pinned()
            return Pinned((found[0].key,), found[0].payload, found[0].title)
        if effect.function == "mutate":
            return Called(TOOL, run.data, self.reconcilable)
        return Finished(None, tuple(Publication(Key("done", key.id), "Done", run.result) for key in run.reserved))


class Work:
    """A workflow on a store, and the world around it."""

    def __init__(self, store: Store, ledger: Ledger, handlers: Handlers) -> None:
        self.store = store
        self.ledger = ledger
        self.host = Host(
            store, handlers, ledger, name="bench", fresh_id=lambda: token_hex(8), clock=store.now
        )  # fmt: skip
        self._published = 0

    def begin(self, script: Script, policy: Policy = Policy()) -> None:  # noqa: B008 - an immutable value
        """Make the workflow, and take it over."""
        self.store.create(WORKFLOW, policy)
        if not self.host.start(WORKFLOW):
            raise RuntimeError("another host drives the workflow")
        for command in (Deploy(0, "v1", script.topics, script.handlers), Grant(0, TOOL), Resume(0)):
            self.host.submit(WORKFLOW, at_once(command))

    def publish(self, events: int) -> None:
        """Events come in. The first wakes the consumer; the others are put beside it in one commit."""
        numbers = range(self._published, self._published + events)
        self._published += events
        first, *others = (Publication(Key("mail", f"m{n}"), f"Mail {n}", f'{{"line":"{n}"}}') for n in numbers)
        self.host.submit(WORKFLOW, at_once(Publish(0, first)))
        state, version = self.store.load(WORKFLOW)
        new = tuple(Event(p.key, state.next_seq + n, "pending", "", *p[1:], "", ()) for n, p in enumerate(others))
        head = state._replace(events=(), next_seq=state.next_seq + len(new))
        done = Done(Publish(self.store.now(), first), (), Retired())
        self.store.commit(Change(f"published {numbers}", WORKFLOW, version, (done,), head, new))

    def drive(self) -> float:
        """Seconds until all is done."""
        began = time.perf_counter()
        self.host.drive(WORKFLOW)
        return time.perf_counter() - began

    def check(self) -> None:
        """Every event was handled, and applied outside once."""
        wanted = [str(n) for n in range(self._published)]
        if self.ledger.lines() != wanted:
            raise RuntimeError(f"{len(self.ledger.lines())} changes outside instead of {len(wanted)}")
        events = self.store.events(WORKFLOW, limit=3 * len(wanted))
        if sorted(e.status for e in events) != ["consumed"] * len(wanted) + ["pending"] * len(wanted):
            raise RuntimeError("not every event was consumed and gave one downstream")


@contextmanager
def work(store: Store, folder: Path, *, sandbox: bool) -> Iterator[Work]:
    with ExitStack() as stack:
        ledger = stack.enter_context(closing(Ledger(folder / "ledger")))
        workers = stack.enter_context(closing(Workers()))
        script = load(SOURCE, TOOLS, workers)
        scripts = Scripts(workers, lambda *version: SOURCE, store, ledger, lambda *lines: None)
        one = Work(store, ledger, scripts if sandbox else Functions(store))
        one.begin(script)
        yield one


# --- measuring ---------------------------------------------------------------------------------------


def measure(name: str, folder: Path, events: int) -> Result:
    """Rounds of some events and as many of the bare loop; the first round warms up."""
    scheme, _, handlers = name.partition(", ")
    seconds, bare = [], []
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_store(f"{scheme}:{folder / 'store'}")))
        one = stack.enter_context(work(store, folder, sandbox=handlers == "sandbox"))
        raw: AbstractContextManager[Callable[[], object] | None] = RAW[scheme](folder, "")
        append = stack.enter_context(raw)
        assert append is not None
        per_round = max(1, events // ROUNDS)
        for _ in range(ROUNDS + 1):
            one.publish(per_round)
            seconds.append(one.drive() / per_round)
            bare.append(time_appends(append, COMMITS_PER_EVENT * per_round) * COMMITS_PER_EVENT)
        one.check()
    ratio = statistics.median(b / s for b, s in zip(bare[1:], seconds[1:], strict=True))
    rate, bare_rate = (1 / statistics.median(found[1:]) for found in (seconds, bare))
    return Result(name, ROUNDS * per_round, rate, bare_rate, ratio, WANTED[name])


def table(results: list[Result]) -> str:
    lines = [f"{'events from end to end':<28}{'events/s':>10}{'bare/s':>10}{'ratio':>8}{'wanted':>8}"]
    lines += [
        f"{r.name:<28}{r.events_per_s:>10,.0f}{r.bare_per_s:>10,.0f}{r.ratio:>8.2f}{r.wanted:>8.2f}" for r in results
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(map(repr, WANTED))}; all by default")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--events", type=int, default=1_000, help="events of each loop")
    parser.add_argument("--folder", type=Path, help="where to make files; the disk counts")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in WANTED]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(map(repr, WANTED))}")
    results = []
    for name in arguments.names or WANTED:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            results.append(measure(name, Path(folder), arguments.events))
    print(json.dumps([r._asdict() for r in results], indent=2) if arguments.json else table(results))
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
