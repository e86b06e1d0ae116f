"""A small driver for tests: it takes a workflow from one situation to the next and checks every step on the way.

    flow().deployed().event("m1").run_to("in_flight").end("crashed").do(TryAgain)

A flow is a value: each call returns a new one, so a test can branch off from any situation. Commands are given as
a class with the fields that matter; the time and the id of the live run are filled in.
"""

from dataclasses import dataclass, replace
from typing import Any

from keepkernel import (
    Accepted,
    ApplyMutation,
    Begin,
    Command,
    CommitConsumer,
    CreateRetry,
    CreateRun,
    Declaration,
    Deploy,
    Emitting,
    EndRun,
    Grant,
    Handler,
    Key,
    Mutating,
    Policy,
    Prepared,
    Publication,
    Publish,
    RecordMutation,
    Rejected,
    Resume,
    SendMutation,
    StartSession,
    State,
    new_workflow,
    step,
)

FILE = Declaration("file", "consumer", ("mail",), has_mutate=True)
TELL = Declaration("tell", "consumer", ("done",))
POLL = Declaration("poll", "producer", interval_ms=300_000)
TOPICS = ("mail", "done")
TOOL = "sheets.append"
START = 1_000_000

STATIONS = ("pending", "preparing", "prepared", "mutating", "recorded", "in_flight", "mutated", "emitting", "committed")
"""The way of a consumer run: its phases, and between them the stations of its ledger record."""


def mail(*ids: str) -> tuple[Key, ...]:
    return tuple(Key("mail", name) for name in ids)


def done(name: str, title: str = "a title", payload: str = "{}") -> Publication:
    return Publication(Key("done", name), title, payload)


def flow(**policy: int) -> "Flow":
    """A draft without anything, under the default policy but for the given numbers."""
    return Flow(new_workflow("w", Policy(**policy)))


@dataclass(frozen=True)
class Flow:
    state: State
    now: int = START
    made: int = 0
    """How many runs and sessions have been named, so that the next name is fresh."""
    last: Accepted | None = None

    # --- looking -------------------------------------------------------------------------------------

    @property
    def run(self) -> Any:
        return self.state.run

    @property
    def record(self) -> Any:
        return self.state.mutation

    @property
    def error(self) -> Any:
        return self.state.error

    @property
    def retired(self) -> Any:
        return self.last.retired

    @property
    def effects(self) -> Any:
        return self.last.effects

    @property
    def rules(self) -> Any:
        return self.last.rules

    @property
    def events(self) -> dict[str, str]:
        """Status by id."""
        return {e.key.id: e.status for e in self.state.events}

    def row(self, name: str = "file") -> Handler:
        return next(h for h in self.state.handlers if h.declared.name == name)

    # --- stepping ------------------------------------------------------------------------------------

    def command(self, kind: type[Command], *values: Any, **fields: Any) -> Command:
        """A command of this class: now, of the live run, with the other fields in their order or by name."""
        fields |= zip([f for f in kind._fields if f not in ("now", "run")], values, strict=False)
        if "asked_at" in kind._fields:
            fields.setdefault("asked_at", self.now)
        if "run" in kind._fields:
            fields.setdefault("run", self.run.id if self.run else "nobody")
        return kind(self.now, **fields)

    def do(self, kind: type[Command], *values: Any, **fields: Any) -> "Flow":
        """The command is accepted."""
        return self.apply(self.command(kind, *values, **fields))

    def apply(self, command: Command) -> "Flow":
        outcome = step(self.state, command)
        assert isinstance(outcome, Accepted), f"{command} was refused: {outcome}"
        return replace(self, state=outcome.state, last=outcome)

    def refuses(self, reason: str, rule: str, kind: type[Command], *values: Any, **fields: Any) -> "Flow":
        """The command is rejected, for this reason and by this rule."""
        outcome = step(self.state, self.command(kind, *values, **fields))
        assert isinstance(outcome, Rejected), f"{kind.__name__} was accepted"
        assert (outcome.reason, outcome.rule) == (reason, rule)
        return self

    def later(self, milliseconds: int) -> "Flow":
        return replace(self, now=self.now + milliseconds)

    def at(self, now: int) -> "Flow":
        return replace(self, now=now)

    # --- getting somewhere ---------------------------------------------------------------------------

    def deployed(self, *handlers: Declaration, mode: str = "always") -> "Flow":
        """An active workflow whose one tool is granted."""
        declared = self.do(Deploy, "v1", TOPICS, handlers or (FILE, TELL, POLL))
        return declared.do(Resume).do(Grant, TOOL, mode)

    def event(self, *ids: str, topic: str = "mail") -> "Flow":
        there = self
        for name in ids:
            there = there.do(Publish, Publication(Key(topic, name), f"title of {name}", "{}"))
        return there

    def fresh(self) -> tuple[str, "Flow"]:
        return f"id{self.made + 1}", replace(self, made=self.made + 1)

    def session(self) -> "Flow":
        """An open session, a new one unless there is one."""
        if self.state.session:
            return self
        name, there = self.fresh()
        return there.do(StartSession, name)

    def create(self, handler: str = "file") -> "Flow":
        """A new run of a handler."""
        name, there = self.session().fresh()
        return there.do(CreateRun, run=name, session=there.state.session.id, handler=handler)

    def retry(self) -> "Flow":
        """A retry run of the pending retry."""
        name, there = self.session().fresh()
        return there.do(CreateRetry, run=name, session=there.state.session.id, retry_of=there.run.id)

    def run_to(self, station: str, *ids: str, reconcilable: bool = True, result: str = '"ok"') -> "Flow":
        """A run of `file`, a new one unless one is active; it reserves these mails, or all that are pending.

        The stations of a mutation are left out when the run has nothing to mutate.
        """
        there = self if self.run else self.create()
        pending = (e.key for e in there.state.events if e.status == "pending" and e.key.topic == "mail")
        ways = {
            "preparing": (Begin, {}),
            "prepared": (Prepared, {"reservations": mail(*ids) or tuple(pending), "data": '{"a":1}'}),
            "mutating": (Mutating, {}),
            "recorded": (RecordMutation, {"tool": TOOL, "params": "{}", "reconcilable": reconcilable}),
            "in_flight": (SendMutation, {}),
            "mutated": (ApplyMutation, {"by": "call", "result": result}),
            "emitting": (Emitting, {}),
            "committed": (CommitConsumer, {}),
        }
        here = there.run.phase
        if here == "mutating" and there.record:
            here = "recorded" if there.record.status == "pending" else "in_flight"
        for name in STATIONS[STATIONS.index(here) + 1 : STATIONS.index(station) + 1]:
            kind, fields = ways[name]
            if name in STATIONS[3:7] and not (there.run.reserved and there.row(there.run.handler).declared.has_mutate):
                continue
            there = there.do(kind, **fields)
        return there

    def end(self, status: str, **fields: Any) -> "Flow":
        """The active run ends without a commit."""
        return self.do(EndRun, status, **fields)

    def uncertain(self, reconcilable: bool = True) -> "Flow":
        """A run of `file` over m1 that crashed while its call was in the air."""
        return self.event("m1").run_to("in_flight", reconcilable=reconcilable).end("crashed")

    def after(self, status: str = "paused:transient") -> "Flow":
        """A run of `file` over m1 that ended after its mutation was applied."""
        return self.event("m1").run_to("mutated").end(status, message="it went wrong")

    def landed(self) -> "Flow":
        """The time after which the call can not land any more."""
        return self.at(self.record.may_land_until)
