"""What scripts, targets, people and anyone else may do; the same for every machine.

With `fair` choices everything takes its plainest way: scripts take what there is and succeed, calls are answered,
people answer what they are asked, truthfully.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, get_args, get_type_hints

from ...kernel import commands as c
from ...kernel.failures import FailureClass
from ...kernel.respond import (
    Answer,
    AskAgain,
    Called,
    CalledNothing,
    DidNotHappen,
    Failed,
    Finished,
    Happened,
    NoMethod,
    Pinned,
    Unknown,
)
from ...kernel.types import CallHandler, Declaration, Event, Key, Publication, Reconcile, Run, State
from .choices import Choices
from .plans import ODD_TEXTS, TOOLS, Plan, publication
from .world import Call, World

SCRIPT_FAILURES: Final[tuple[FailureClass, ...]] = (
    *("network", "script", "auth", "host", "permission", "limit"),
    *("timeout", "rate_limit", "refused", "bad_result", "forbidden", "connector"),
)
TARGET_REFUSALS: Final[tuple[FailureClass, ...]] = ("refused", "rate_limit", "auth", "network")
MOST_EVENTS: Final = 12
"""A life with more is no more telling, and slower."""

Act = tuple[str, c.Command]


# --- scripts -------------------------------------------------------------------------------------------


class Script:
    """The functions of a drawn workflow: each answer is a choice."""

    def __init__(self, plan: Plan, choices: Choices, texts: tuple[str, ...], *, fair: bool = False) -> None:
        self.plan = plan
        self.choices = choices
        self.texts = texts
        self.fair = fair

    def goes_wrong(self, fault: str) -> bool:
        return not self.fair and self.plan.has(fault) and self.choices.chance(self.plan.rate)

    def answer(self, effect: CallHandler, row: Declaration, run: Run, pending: Sequence[Event], now: int) -> Answer:
        """What a function does, when these events of its topics are pending."""
        tries = 3 if effect.function == "next" else 1  # What fails there must be taken up again, and not begun anew.
        if any(self.goes_wrong("fail") for _ in range(tries)):
            failure = self.choices.of(SCRIPT_FAILURES)
            return Failed(failure, "it failed", TOOLS[1] if failure == "permission" else "")
        match effect.function:
            case "prepare":
                return self.prepare(row, pending, now)
            case "mutate":
                if self.goes_wrong("odd"):
                    return CalledNothing()
                return Called(TOOLS[0], self.text(), self.plan.reconcilable, self.plan.deadline_ms)
            case "next" | "producer":
                return self.finish(row, run, effect.function == "producer")

    def prepare(self, row: Declaration, pending: Sequence[Event], now: int) -> Answer:
        keys = [event.key for event in pending][: self.plan.batch]
        wake_at = None
        if self.goes_wrong("wake"):
            keys = self.choices.some(keys, 50)
            wake_at = self.choices.of((now, None, now + 12, 0, now + 10, now + 100, now + 10**9))
        if self.goes_wrong("odd"):
            stranger = Key(self.choices.of((*self.plan.topics, "nowhere")), "nobody")
            keys = self.choices.of((keys[:1] * 2, [*keys, stranger], [*keys, *self.plan.roots[-1:]]))
        return Pinned(tuple(keys), self.text(), self.choices.of(("", "title")) if not self.fair else "", wake_at)

    def finish(self, row: Declaration, run: Run, producer: bool) -> Answer:
        due_at = run.created_at + self.choices.of((60, 1)) if row.cron else None
        if self.fair:
            return Finished(None, (), due_at)
        if due_at is not None and self.goes_wrong("odd"):
            due_at = self.choices.of((None, run.created_at))
        published = list(self.produced() if producer else self.derived(row, run))
        if self.goes_wrong("odd"):
            bad = (Key("nowhere", "x"), " "), (Key(self.plan.topics[0], ""), "t"), (Key(self.plan.topics[0], "x"), " ")
            published.append(publication(*self.choices.of(bad)))
        return Finished(self.choices.of((None, self.text())), tuple(published), due_at)

    def produced(self) -> Iterator[Publication]:
        for key in self.choices.some(self.plan.roots, 30):
            yield publication(key, self.choices.of(("t", "u")), self.text())

    def derived(self, row: Declaration, run: Run) -> Iterator[Publication]:
        """An event for each input, to each topic on the way."""
        for topic in self.plan.routes_of(row.name):
            for key in run.reserved[:2]:
                if len(key.id) < 12 or self.plan.has("odd"):
                    yield publication(Key(topic, f"{key.id}>{topic}"[-80:]), payload=self.text())
        if self.goes_wrong("again"):
            yield publication(self.choices.of(self.plan.roots), "again", self.text())

    def text(self) -> str:
        """JSON of any kind, mostly short."""
        if self.goes_wrong("odd"):
            return self.choices.of(self.texts)
        return "1" if self.fair else str(self.choices.number(4))


# --- targets -------------------------------------------------------------------------------------------


class Target:
    """Answers calls and questions about them; the world keeps what really happens."""

    def __init__(self, plan: Plan, choices: Choices, world: World, *, fair: bool = False) -> None:
        self.plan = plan
        self.choices = choices
        self.world = world
        self.fair = fair

    def goes_wrong(self, fault: str) -> bool:
        return not self.fair and self.plan.has(fault) and self.choices.chance(self.plan.silence)

    def answer(self, call: Call) -> Answer:
        """What the host hears of its call, and what becomes of the call."""
        world = self.world
        if call.fate == "lost":  # Its key is void.
            return Failed("refused", "the key is void")
        if call.fate == "air":
            if self.goes_wrong("refuse"):
                call.fate = "lost"
                return Failed(self.choices.of(TARGET_REFUSALS), "refused")
            if self.goes_wrong("late"):
                return Unknown("no answer came")
            if self.goes_wrong("silent"):
                world.end(call, self.choices)
                return Unknown("no answer came")
            world.land(call)
        return Unknown("no answer came") if self.goes_wrong("silent") else self.happened()

    def happened(self) -> Happened:
        return Happened(self.choices.of(ODD_TEXTS) if self.goes_wrong("odd") else '{"row":1}')

    def reconcile(self, effect: Reconcile) -> Answer:
        if self.goes_wrong("shrug"):
            return NoMethod() if self.choices.chance(20) else AskAgain("it can not tell")
        if self.world.happened(effect.key):
            return self.happened()
        if self.goes_wrong("void"):
            self.world.void(effect.key)
            return DidNotHappen(voided=True)
        return DidNotHappen()


# --- people --------------------------------------------------------------------------------------------


def answers_of_people(plan: Plan, state: State, now: int, world: World) -> Iterator[Act]:
    """What people do about a workflow that waits for them, truthfully and for its good."""
    error, record, run = state.error, state.mutation, state.run
    if record is not None and run is not None and record.status == "indeterminate" and run.status != "active":
        if world.happened(record.key):
            yield "says truly that it happened", c.AssertApplied(now, run.id)
        elif now >= record.may_land_until:
            yield "says truly that it did not happen", c.DidntHappen(now, run.id)
        if record.reconcilable:
            yield "lets it be asked once more", c.TryAgain(now, run.id)
    if error is not None:
        if error.request is not None:
            yield "approves", c.Approve(now, error.request.digest)
        elif error.cause == "auth":
            yield "reconnects", c.Reconnect(now)
        elif error.cause == "permission":
            yield "grants what is asked", c.Grant(now, error.tool)
        elif error.kind == "internal":
            yield "clears the error", c.ClearError(now)
        elif error.kind == "blocked":
            yield "retries", c.Retry(now)
    if state.maintenance is not None and error is None:
        yield "deploys a repair", deploy(plan, now)
    if state.status in ("ready", "paused"):
        yield "resumes", c.Resume(now)
    if tuple(row.declared for row in state.handlers) != plan.handlers:
        yield "deploys everything", deploy(plan, now)


def clicks_of_people(plan: Plan, state: State, now: int, world: World) -> Iterator[Act]:
    """What people may do besides."""
    run, error, record = state.run, state.error, state.mutation
    name = run.id if run is not None else "nobody"
    yield from ((f"skips {e.key.id}", c.SkipEvent(now, e.key)) for e in state.events if e.status == "pending")
    yield from ((f"runs {h.declared.name} now", c.RunNow(now, h.declared.name)) for h in state.handlers)
    if record is not None:
        yield "skips the mutation", c.SkipMutation(now, name)
        yield "tries again", c.TryAgain(now, name)
        if plan.has("wrong") or not world.happened(record.key):
            yield "says that it did not happen", c.DidntHappen(now, name)
        if plan.has("wrong") or world.happened(record.key):
            yield "says that it happened", c.AssertApplied(now, name)
    if error is not None and error.request is not None:
        yield "rejects", c.Reject(now, error.request.digest)
    yield from (("reconnects", c.Reconnect(now)), ("clears the error", c.ClearError(now)), ("retries", c.Retry(now)))
    yield from (("enters maintenance", c.EnterMaintenance(now)), ("leaves maintenance", c.ExitMaintenance(now)))
    yield "blocks the workflow", c.BlockWorkflow(now, "by hand")
    yield from (("grants", c.Grant(now, tool, mode)) for tool in TOOLS for mode in ("always", "ask"))
    yield "abandons the retry", c.Abandon(now, name)
    if plan.has("pause"):
        yield "pauses", c.Pause(now)
    if plan.has("redeploy"):
        yield "deploys less", deploy(plan, now, less=True)
        yield "deploys everything", deploy(plan, now)
        yield from (("deploys other schedules", rescheduled(plan, now, cron)) for cron in ("", "7 4 * * *"))


def deploy(plan: Plan, now: int, *, less: bool = False) -> c.Deploy:
    return c.Deploy(now, "less" if less else "v1", plan.topics, plan.handlers[1:] if less else plan.handlers)


def rescheduled(plan: Plan, now: int, cron: str = "") -> c.Deploy:
    """Every producer has another schedule, and the last handler is of the other kind."""
    other_ms = 0 if cron else 77
    handlers = [h._replace(interval_ms=other_ms, cron=cron) if h.kind == "producer" else h for h in plan.handlers]
    if len(handlers) > 1:
        last = handlers[-1]
        other = Declaration(last.name, "producer", interval_ms=50)
        handlers[-1] = other if last.kind == "consumer" else last
    return c.Deploy(now, "v2", plan.topics, tuple(handlers))


# --- anyone --------------------------------------------------------------------------------------------

HINTS: Final = {kind: get_type_hints(kind) for kind in c.COMMANDS.values()}
ALL: Final = tuple(c.COMMANDS.values())
REPORTS: Final = tuple(kind for kind in ALL if "run" in HINTS[kind] and "session" not in HINTS[kind])
"""Commands that speak of a run; the more of them come at the wrong time, the better."""
ON_CALLS: Final = (
    *(c.SendMutation, c.ApplyMutation, c.FailMutation, c.LoseTrack, c.ReconcileRetry, c.Exhaust),
    *(c.EndRun, c.TryAgain, c.DidntHappen, c.SkipMutation, c.AssertApplied),
)
"""Commands that may say what became of a call."""
ANSWERED: Final = (c.FailMutation, c.ReconcileRetry, c.Exhaust)
"""Commands that say what a question about a call came to."""
ONWARD: Final = (c.Prepared, c.Mutating, c.RecordMutation, c.Mutated, c.Emitting, c.CommitConsumer)
STARTS: Final = (c.StartSession, c.CreateRun, c.CreateRetry, c.FinishSession, c.RunNow)


def fitting_clicks(state: State) -> tuple[type[c.Command], ...]:
    """What people may do about just what stands here."""
    run, error, record = state.run, state.error, state.mutation
    if record is not None and record.status == "indeterminate":
        return ON_CALLS
    if error is not None:
        return (c.Reject, c.ClearError)
    if state.maintenance is not None:
        return (c.ExitMaintenance,)
    return (c.Abandon, c.Deploy) if run is not None and run.status != "active" else ()


def is_telling(state: State) -> bool:
    """Whether what is said out of turn would do most harm now; a host is soon past it."""
    run, record, session = state.run, state.mutation, state.session
    doubt = record is not None and record.status in ("in_flight", "needs_reconcile", "indeterminate")
    behind = run is not None and (run.status != "active" or run.outcome == "failure")
    spent = session is not None and session.runs >= state.policy.session_runs
    return doubt or behind or spent


def anything(plan: Plan, choices: Choices, state: State, now: int, world: World, fresh: str) -> c.Command | None:
    """Any command whose fields mostly fit the state; of the world it says only what is true.

    None when what was drawn would be a lie.
    """
    kind = choices.of(choices.of(list(fitting_kinds(state))))
    if kind is c.Deploy:
        return choices.of(
            (deploy(plan, now), deploy(plan, now, less=True), rescheduled(plan, now), choices.of(nonsense(plan, now)))
        )
    values = {name: field(plan, choices, name, hint, state, now, fresh) for name, hint in HINTS[kind].items()}
    if kind in (c.CreateRun, c.CreateRetry):
        values["run"] = choices.of((fresh, fresh, values["run"], ""))
    if kind is c.EndRun and (values["status"] == "paused:approval") != bool(values["cause"]) and choices.chance(80):
        values["cause"] = choices.of(("auth", "permission", "request")) if values["status"] == "paused:approval" else ""
    command = kind(**values)
    return command if is_true(command, state, world) else None


def fitting_kinds(state: State) -> Iterator[tuple[type[c.Command], ...]]:
    """The commands that have something to say here, in groups; and all of them."""
    yield ALL
    if state.run is not None:
        yield REPORTS
    if state.mutation is not None:
        yield ON_CALLS
        if state.run is not None and state.run.status == "active":
            yield (c.EndRun,)  # Where a run ends beside its call, most is at stake.
        if state.mutation.status == "needs_reconcile":
            yield ANSWERED
    if state.run is not None and state.run.status == "active":
        yield ONWARD if state.run.kind == "consumer" else (c.CommitProducer,)
    if state.run is None or state.run.status != "active":
        yield STARTS
        if state.run is not None:
            yield (c.CreateRun, c.CreateRetry) if state.session is not None else (c.StartSession,)


def nonsense(plan: Plan, now: int) -> tuple[c.Deploy, ...]:
    """Declarations that make no sense, each in one way."""
    one, others = plan.handlers[0], plan.handlers[1:]
    poll = Declaration("poll", "producer", (), False, 60)
    handlers = (
        (*plan.handlers, one._replace(name="again")),
        (one, *plan.handlers),
        (*others, one._replace(name="")),
        (*others, one._replace(subscribes=())),
        (*others, one._replace(subscribes=("nowhere",))),
        (*others, one._replace(subscribes=one.subscribes * 2)),
        (*others, one._replace(interval_ms=60)),
        *((*plan.handlers, poll._replace(**wrong)) for wrong in (
            {"interval_ms": -1}, {"cron": "0 3 * * *"}, {"has_mutate": True}, {"subscribes": plan.topics[:1]},
        )),
    )  # fmt: skip
    topics = ((*plan.topics, ""), (*plan.topics, plan.topics[0]))
    return (
        *(c.Deploy(now, "v1", plan.topics, which) for which in handlers),
        *(c.Deploy(now, "v1", which, plan.handlers) for which in topics),
        c.Deploy(now, "", plan.topics, plan.handlers),
    )


def is_true(command: c.Command, state: State, world: World) -> bool:
    """Whether what a command says of the world is so."""
    key = state.mutation.key if state.mutation is not None else ""
    match command:
        case c.ApplyMutation():
            return world.happened(key)
        case c.FailMutation(by="call"):
            return world.arrived(key) and not world.happened(key) and not world.travels(key)
        case c.FailMutation():
            return not world.happened(key) and (not command.voided or key in world.voided)
    return True


def field(plan: Plan, choices: Choices, name: str, hint: Any, state: State, now: int, fresh: str) -> Any:
    """A value for a field of a command, often one that fits."""
    live = state.run.id if state.run is not None else "nobody"
    keys = [e.key for e in state.events if e.status == "pending"] or list(plan.roots)
    handler = state.run.handler if state.run is not None else plan.handlers[0].name
    match name:
        case "now":
            return now
        case "run" | "retry_of":
            return live if not choices.chance(10) else "nobody"
        case "session":
            opened = state.session.id if state.session is not None else fresh
            return choices.of((opened, opened, fresh, ""))
        case "handler":
            return choices.of((handler, *(h.name for h in plan.handlers), "nobody"))
        case "reservations":
            return tuple(choices.some(keys, 50))
        case "key":
            return choices.of(keys)
        case "publication":
            return publication(choices.of((*plan.roots, Key("nowhere", "x"))), choices.of(("t", " ")))
        case "publications":
            keys = [key for key in choices.some(plan.roots, 20) for _ in range(choices.weighted([(4, 1), (1, 2)]))]
            return tuple(publication(key, f"again {n}") for n, key in enumerate(keys))
        case "by":
            if choices.chance(80):
                speaks = state.run is not None and state.run.status == "active"
                return choices.of([who for who in literals(hint) if (who in ("call", "inline")) == speaks])
        case "asked_at":
            lands = state.mutation.may_land_until if state.mutation is not None else now
            return choices.of((now, lands, lands - 1, now - 1, now + 1))
        case "wake_at" | "due_at":
            return choices.of((None, now + 1, now + 50, now))
        case "deadline_ms":
            return choices.of((None, 7, 0))
        case "digest":
            asked = state.error.request if state.error is not None else None
            return choices.of((asked.digest if asked is not None else "nothing", "nothing"))
        case "tool":
            return choices.of((*TOOLS, ""))
        case "data" | "params" | "result" | "state" | "message" | "title":
            return choices.of(("1", "2", *ODD_TEXTS[2:4], ODD_TEXTS[-1]))
        case "version" | "topics" | "handlers":
            raise AssertionError("a deployment is drawn as a whole")
    if hint is bool:
        return bool(choices.number(2))
    return choices.of(literals(hint))


def literals(hint: Any) -> tuple[Any, ...]:
    """The values of a literal type, or of several."""
    found: tuple[Any, ...] = ()
    for value in get_args(hint):
        found += literals(value) if get_args(value) else (value,)
    return found
