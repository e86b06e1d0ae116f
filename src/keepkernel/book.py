"""Reads a store for people: newest first, rows by their id, names by a part of them. It writes nothing."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final, Generic, TypeVar

from .kernel.commands import CreateRetry, CreateRun
from .kernel.ports import Store, Transition
from .kernel.types import Event, Key, Mutation, Run, State

HIDDEN: Final = "."
"""Workflows with such a beginning are not the user's; no script can have such a name."""
SCRIPTS: Final = f"{HIDDEN}scripts"
"""The workflow that keeps the texts of all versions as its events, so that every store keeps them, and for good."""
TOPIC: Final = "script"
PAGE: Final = 2_000

Row = TypeVar("Row")


class NotFound(LookupError):
    """There is no such thing, or more than one; the message says what to do."""


def newest(page: Callable[[int, int], tuple[tuple[int, Row], ...]], last: int) -> Iterator[Row]:
    """Rows with the newest first, of pages that begin with the oldest; no two rows share their number.

    >>> list(newest(lambda after, limit: tuple((n, n) for n in range(1, 6) if n > after)[:limit], 5))
    [5, 4, 3, 2, 1]
    """
    end = last
    while end > 0:
        begin = max(0, end - PAGE)
        yield from (row for number, row in reversed(page(begin, PAGE)) if number <= end)
        end = begin


class Chapter:
    """One workflow of a store, as it was when it was opened."""

    def __init__(self, store: Store, workflow: str) -> None:
        self.store = store
        self.workflow = workflow
        self.state, self.version = store.load(workflow)
        self._runs = _Found(self.past_runs(), lambda run: run.id)
        self._records = _Found(self._past_records(), lambda record: record.run)

    # -- lists, the newest first

    def past_runs(self) -> Iterator[Run]:
        return newest(lambda after, limit: self.store.runs(self.workflow, after, limit), self.version)

    def runs(self) -> Iterator[Run]:
        if self.state.run is not None:
            yield self.state.run
        yield from self.past_runs()

    def applied(self) -> Iterator[tuple[Run, Mutation]]:
        """Changes that were made outside, with the runs that made them."""
        live, record = self.state.run, self.state.mutation
        if live is not None and record is not None and record.status == "applied":
            yield live, record
        for past in self._past_records():
            if past.status == "applied" and (run := self.run(past.run)):
                yield run, past

    def events(self) -> Iterator[Event]:
        def page(after: int, limit: int) -> tuple[tuple[int, Event], ...]:
            return tuple((event.seq, event) for event in self.store.events(self.workflow, after, limit))

        return newest(page, self.state.next_seq - 1)

    def transitions(self) -> Iterator[Transition]:
        def page(after: int, limit: int) -> tuple[tuple[int, Transition], ...]:
            return tuple((line.version, line) for line in self.store.transitions(self.workflow, after, limit))

        return newest(page, self.version)

    def transitions_of(self, run: Run) -> Iterator[Transition]:
        """What was done with a run, back to its beginning."""
        for line in self.transitions():
            if getattr(line.command, "run", "") == run.id:
                yield line
                if isinstance(line.command, CreateRun | CreateRetry):
                    return

    def _past_records(self) -> Iterator[Mutation]:
        return newest(lambda after, limit: self.store.mutations(self.workflow, after, limit), self.version)

    # -- rows by id

    def run(self, run_id: str) -> Run | None:
        live = self.state.run
        return live if live is not None and live.id == run_id else self._runs.get(run_id)

    def record(self, run: Run) -> Mutation | None:
        """The ledger record of a run, or of the run that it takes up again."""
        first = run
        while first.retry_of and (before := self.run(first.retry_of)):
            first = before
        live = self.state.mutation
        return live if live is not None and live.run == first.id else self._records.get(first.id)

    def event(self, key: Key) -> Event | None:
        return self.store.get(self.workflow, key)

    def file(self) -> Path | None:
        """The file that the deployed version came from, if it is there still."""
        kept = self.store.get(SCRIPTS, Key(TOPIC, self.state.version))
        file = Path(json.loads(kept.payload)["file"]) if kept is not None else None
        return file if file is not None and file.is_absolute() and file.is_file() else None

    def titles(self, keys: tuple[Key, ...]) -> list[str]:
        return [event.title for key in keys if (event := self.event(key))]

    def waiting(self, at_most: int = 1_000) -> int:
        """How many events wait for a consumer, counted up to a number."""
        taken = [topic for row in self.state.handlers for topic in row.declared.subscribes]
        return min(at_most, sum(len(self.store.peek(self.workflow, topic, at_most)) for topic in taken))


class _Found(Generic[Row]):
    """Rows of an iterator by their id, taken from it as far as they are asked for."""

    def __init__(self, rows: Iterator[Row], name: Callable[[Row], str]) -> None:
        self._rows = rows
        self._name = name
        self._seen: dict[str, Row] = {}

    def get(self, wanted: str) -> Row | None:
        while wanted not in self._seen and (row := next(self._rows, None)) is not None:
            self._seen[self._name(row)] = row
        return self._seen.get(wanted)


class Book:
    """All workflows of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def names(self) -> list[str]:
        names: list[str] = []
        for _ in count():
            page = self.store.workflows(names[-1] if names else "", PAGE)
            names += page
            if len(page) < PAGE:
                break
        return [name for name in names if not name.startswith(HIDDEN)]

    def name(self, wanted: str) -> str:
        """The workflow that is meant; the only one when none is named."""
        names = self.names()
        if wanted in names:
            return wanted
        known = f"there are {', '.join(names)}" if names else "the store is empty; begin with keepkernel run FILE"
        if wanted:
            raise NotFound(f"no workflow is called {wanted}; {known}")
        if len(names) != 1:
            raise NotFound(f"say which workflow is meant, with --workflow NAME; {known}" if names else known)
        return names[0]

    def chapters(self, wanted: str = "") -> list[Chapter]:
        """One workflow, or all."""
        return [Chapter(self.store, name) for name in ([self.name(wanted)] if wanted else self.names())]

    def find_event(self, wanted: str, workflow: str = "") -> tuple[Chapter, Event]:
        found = [
            (chapter, event)
            for chapter in self.chapters(workflow)
            for key in keys_of(chapter.state, wanted)
            if (event := chapter.event(key))
        ]
        if len(found) > 1:  # What came of an input often has its id; the input is meant, unless the topic is named.
            found = [one for one in found if not one[1].causes] or found
        return only(found, wanted, "an event", lambda one: f"{one[0].workflow}: {one[1].key.topic}/{one[1].key.id}")

    def find_run(self, wanted: str, workflow: str = "") -> tuple[Chapter, Run]:
        """A run, or the mutation that it made, by its id or the beginning of it."""
        found: dict[str, tuple[Chapter, Run]] = {}
        for chapter in self.chapters(workflow):
            for run in chapter.runs():
                if run.id == wanted:
                    return chapter, run
                if run.id.startswith(wanted) and len(wanted) >= 4:
                    found[run.id] = chapter, run
        return only(list(found.values()), wanted, "a run", lambda one: one[1].id)


def keys_of(state: State, wanted: str) -> list[Key]:
    """The events that `ID` or `TOPIC/ID` may mean."""
    keys = [Key(topic, wanted) for topic in state.topics]
    return keys + [Key(topic, wanted[len(topic) + 1 :]) for topic in state.topics if wanted.startswith(f"{topic}/")]


def only(found: list[Row], wanted: str, what: str, name: Callable[[Row], str]) -> Row:
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"{wanted} is not the name of {what}; see keepkernel inputs and keepkernel runs")
    raise NotFound(f"{wanted} may mean {', '.join(map(name, found))}; write more of it, or --workflow NAME")
