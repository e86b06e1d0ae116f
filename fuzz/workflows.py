"""The workflows of the crash harness: plain functions in the place of scripts, and a person who follows a plan.

Everything here is a function of what is durable, the store and the outside's record, so that a process that died
and one that did not go on in the same way.
"""

import json
from typing import Final, NamedTuple

from ..kernel import commands as c
from ..kernel.boundary import unresolved
from ..kernel.failures import handler_row
from ..kernel.ports import Store
from ..kernel.reasons import present
from ..kernel.respond import Answer, Called, CalledNothing, Failed, Finished, Pinned
from ..kernel.schedule import Wait
from ..kernel.types import CallHandler, Declaration, GrantMode, Handler, Key, Publication, Run, State
from .outside import Does, Outside, inputs_of, params_of

TOOL: Final = "sheets.append"
TOPICS: Final = ("mail", "out")
LOOK_AGAIN_MS: Final = 60_000

POLL: Final = Declaration("poll", "producer", interval_ms=300_000)
FILE: Final = Declaration("file", "consumer", ("mail",), has_mutate=True)
SINK: Final = Declaration("sink", "consumer", ("out",), has_mutate=True)
NOTE: Final = Declaration("note", "consumer", ("mail",))


class Workflow(NamedTuple):
    """One workflow, and what happens to it when nobody dies."""

    name: str
    text: str
    expects: tuple[type[c.Command], ...] = ()
    """Commands without which the run is not about what its name says."""
    handlers: tuple[Declaration, ...] = (FILE,)
    inputs: tuple[str, ...] = ("m1",)
    calls: tuple[Does, ...] = ()
    """What the target does with the calls for the first input, one after the other; it applies all others."""
    reconcilable: bool = True
    shrugs: int = 0
    """How often reconcile can not tell."""
    voids: bool = False
    """Reconcile makes the key of a call that it does not find unusable."""
    grant: GrantMode | None = "always"
    gives_up: bool = False
    """The person skips the first input's call when nobody knows what became of it, instead of finding out."""
    batch: int = 1
    calls_nothing: bool = False
    looks_first: bool = False
    """The first prepare reserves nothing and asks to be woken."""
    next_fails: int = 0
    bad_version: bool = False
    """The first version's `next` is wrong, and a repair deploys the second."""

    from_nothing: bool = False
    """It begins before there is a store. The others find an empty one, because making it is always the same."""

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(Key("mail", name) for name in self.inputs)

    @property
    def produced(self) -> bool:
        """Whether inputs come from a producer; else a person publishes them."""
        return POLL in self.handlers


TWO: Final = ("m1", "m2")
THREE: Final = ("m1", "m2", "m3")
BLIND: Final = Workflow("", "", reconcilable=False)
"""A tool that can not be asked whether a call happened."""

WORKFLOWS: Final[dict[str, Workflow]] = {
    w.name: w
    for w in (
        Workflow("success", "two inputs, from making the store on", (c.ApplyMutation,), inputs=TWO, from_nothing=True),
        Workflow("refused", "the target refuses, then applies", (c.FailMutation,), calls=("refused",)),
        Workflow("silent", "no answer; reconcile finds the call", (c.LoseTrack, c.ApplyMutation), calls=("silent",)),
        Workflow("lost", "no answer; reconcile does not find it", (c.LoseTrack, c.FailMutation), calls=("lost",)),
        Workflow("late", "no answer; it lands after the first look", (c.ReconcileRetry,), calls=("late",)),
        Workflow("shrug", "reconcile tells at the third look", (c.ReconcileRetry,), calls=("silent",), shrugs=2),
        Workflow("void", "reconcile makes the key unusable", (c.FailMutation,), calls=("late",), voids=True),
        Workflow("try-again", "a person asks reconcile again", (c.TryAgain,), calls=("silent",), shrugs=5),
        BLIND._replace(
            name="didnt-happen", text="a person saw that nothing happened", expects=(c.DidntHappen,), calls=("lost",)
        ),
        BLIND._replace(
            name="happened", text="a person saw that it happened", expects=(c.AssertApplied,), calls=("silent",)
        ),
        BLIND._replace(
            name="skip",
            text="a person gives the input up",
            expects=(c.SkipMutation,),
            inputs=TWO,
            calls=("lost",),
            gives_up=True,
        ),
        Workflow("next-fails", "next fails after an application", (c.CreateRetry,), next_fails=1),
        Workflow("repair", "next is wrong after an application", (c.CreateRetry,), bad_version=True),
        Workflow("empty", "prepare reserves nothing at first", (c.Emitting,), looks_first=True),
        Workflow("no-call", "mutate calls nothing", (c.Mutated,), calls_nothing=True),
        Workflow("no-mutate", "a consumer without mutate", (c.Emitting,), handlers=(NOTE,)),
        Workflow("batch", "three inputs in one call", (c.ApplyMutation,), inputs=THREE, batch=3),
        Workflow("chain", "a consumer of what another publishes", (c.ApplyMutation,), handlers=(FILE, SINK)),
        Workflow(
            "producer", "a producer with a cursor", (c.CommitProducer,), handlers=(POLL, FILE), inputs=THREE, batch=2
        ),
        Workflow("approval", "a person approves each call", (c.Approve,), grant="ask"),
        Workflow("permission", "a person grants the tool when asked", (c.Grant,), grant=None),
    )
}


# --- scripts -----------------------------------------------------------------------------------------


class Scripts:
    """The functions of a workflow, as a sandbox would run them."""

    def __init__(self, workflow: Workflow, store: Store, outside: Outside) -> None:
        self.workflow = workflow
        self.store = store
        self.outside = outside

    def call(self, state: State, effect: CallHandler) -> Answer:
        run = present(state.run, "run_unknown")
        row = present(handler_row(state, effect.handler), "handler_unknown")
        match effect.function:
            case "producer":
                return self.produce(row)
            case "prepare":
                return self.prepare(state, row)
            case "mutate":
                if self.workflow.calls_nothing:
                    return CalledNothing()
                return Called(TOOL, run.data, self.workflow.reconcilable)
            case "next":
                return self.next(run, row, effect.version)

    def produce(self, row: Handler) -> Answer:
        """Two more of what there is to read, from where the last run stopped."""
        cursor = int(row.state or 0)
        found = self.workflow.keys[cursor : cursor + 2]
        return Finished(str(cursor + len(found)), tuple(map(publication, found)))

    def prepare(self, state: State, row: Handler) -> Answer:
        if self.workflow.looks_first and not row.state:
            return Pinned(wake_at=self.store.now() + LOOK_AGAIN_MS)
        found = self.store.peek(state.workflow, row.declared.subscribes[0], self.workflow.batch)
        keys = tuple(event.key for event in found)
        return Pinned(keys, params_of(keys), f"{len(keys)} inputs")

    def next(self, run: Run, row: Handler, version: str) -> Answer:
        """Publish one event for each input, and remember all inputs ever done, in order."""
        if self.workflow.bad_version and version == "v1" and run.reserved:
            return Failed("script", "a mistake in the first version")
        if run.reserved and self.outside.fails("next", run.reserved, self.workflow.next_fails):
            return Failed("network", "next failed")
        done = [*json.loads(row.state or "[]"), *(key.id for key in run.reserved)]
        onward = SINK in self.workflow.handlers and row.declared == FILE
        published = tuple(publication(Key("out", f"{key.id}-out")) for key in run.reserved) if onward else ()
        return Finished(json.dumps(done), published)


def publication(key: Key) -> Publication:
    return Publication(key, f"title of {key.id}", "{}")


# --- the person --------------------------------------------------------------------------------------


def preparation(workflow: Workflow, state: State, store: Store) -> c.Command | None:
    """What a person does before anything can run; asked of the store, so that it may be cut anywhere."""
    now = store.now()
    if not state.version:
        return c.Deploy(now, "v1", TOPICS, workflow.handlers)
    if workflow.grant is not None and not state.grants:
        return c.Grant(now, TOOL, workflow.grant)
    if state.status != "active":
        return c.Resume(now)
    missing = () if workflow.produced else [k for k in workflow.keys if store.get(state.workflow, k) is None]
    return c.Publish(now, publication(missing[0])) if missing else None


def repaired(workflow: Workflow, now: int) -> c.Command:
    return c.Deploy(now, "v2", TOPICS, workflow.handlers)


def reaction(workflow: Workflow, state: State, now: int, outside: Outside) -> c.Command | Wait | None:
    """What a person does about a workflow that stands still with an error; None when there is nothing to do."""
    error = state.error
    if error is None:
        return None
    if error.kind == "uncertain":
        return resolution(workflow, state, now, outside)
    if error.request is not None:
        return c.Approve(now, error.request.digest)
    if error.cause == "permission":
        return c.Grant(now, error.tool)
    if error.kind == "blocked":
        return c.Retry(now)
    return None


def resolution(workflow: Workflow, state: State, now: int, outside: Outside) -> c.Command | Wait | None:
    """A person looks outside and says what is true there, or gives up. As long as the call may land, nobody knows."""
    record = state.mutation
    if record is None or not unresolved(record):
        return None
    if record.reconcilable:
        return c.TryAgain(now, record.run)
    if workflow.gives_up and workflow.keys[0] in inputs_of(record.params):
        return c.SkipMutation(now, record.run)
    if outside.happened(record.key):
        return c.AssertApplied(now, record.run)
    if now < record.may_land_until:
        return Wait(record.may_land_until, "the call may still land")
    return c.DidntHappen(now, record.run)
