"""The kernel alone: drawn workflows, a host taken apart at every seam, hosts that wake late, people, anyone, and time.

Between a commit, its effect, the answer and the next commit the host holds something in hand. A crash drops it; a
host that stalls keeps it, and goes on with it later, when another has long taken over.
"""

from itertools import product
from typing import Final, Literal, NamedTuple

from ...kernel import commands as c
from ...kernel import recover as recovery
from ...kernel import respond, schedule
from ...kernel import step as kernel
from ...kernel.failures import FailureClass, classify
from ...kernel.ledger import idempotency_key
from ...kernel.respond import Answer, Failed, Unknown
from ...kernel.schedule import Idle, Wait
from ...kernel.types import Accepted, CallHandler, Effect, Key, Outcome, Reconcile, Repair, Send, State, new_workflow
from .. import duty, law
from . import kinds
from .choices import Choices, recorded
from .life import Broken, Coverage, Life, hold_to_invariants, hold_to_law, shown
from .plans import HALF, ODD_TEXTS, WORKFLOW, draw_plan, publication
from .rules import (
    MOST_EVENTS,
    Script,
    Target,
    answers_of_people,
    anything,
    clicks_of_people,
    deploy,
    fitting_clicks,
    is_telling,
    is_true,
)
from .world import World

FAIR_STEPS: Final = 600
"""No life needs so many steps to come to rest when nothing goes wrong any more."""


class Hand(NamedTuple):
    """What a host has in hand."""

    kind: Literal["down", "recovering", "idle", "effect", "answer", "queue"]
    effect: CallHandler | Send | Reconcile | None = None
    answer: Answer | None = None
    queue: tuple[c.Command, ...] = ()


DOWN: Final = Hand("down")
IDLE: Final = Hand("idle")


class KernelLife(Life):
    """One life of one workflow."""

    texts: tuple[str, ...] = (*ODD_TEXTS, HALF)

    def __init__(self, choices: Choices, coverage: Coverage) -> None:
        super().__init__(coverage)
        self.choices = choices
        self.plan = draw_plan(choices)
        self.world = World()
        self.script = Script(self.plan, choices, self.texts)
        self.target = Target(self.plan, choices, self.world)
        self.hand = IDLE
        self.stalled: list[Hand] = []
        self.sent: dict[str, tuple[tuple[Key, ...], int]] = {}
        """Idempotency key -> the inputs of the call, and its deadline."""
        self.said: list[c.Command] = []
        """What hosts and people have said, to be said again at the wrong time."""
        self.declined: set[str] = set()
        """Consumers whose last prepare left all that was pending, and asked for no other look."""
        self.ids = 0
        self.state = new_workflow(WORKFLOW, self.plan.policy)

    def start(self) -> None:
        plan, now = self.plan, self.now
        self.submit("user", "deploys", deploy(plan, now))
        if plan.grant is not None:
            self.submit("user", "grants", c.Grant(now, "sheets.append", plan.grant))
        self.submit("user", "resumes", c.Resume(now))
        for key in plan.roots[: self.choices.number(len(plan.roots) + 1)]:
            self.submit("tool", "publishes", c.Publish(now, publication(key)))

    def fresh(self) -> str:
        self.ids += 1
        return f"id{self.ids}"

    # -- commands

    def submit(self, actor: str, text: str, command: c.Command) -> Outcome:
        """Ask the kernel, and hold its answer against the law, the invariants and the world."""
        before = self.state
        outcome = self.ask(command)
        self.tell_step(actor, text, command, outcome)
        after = outcome.state if isinstance(outcome, Accepted) else before
        self.coverage.saw(command, outcome)
        if isinstance(outcome, Accepted):
            self.heard(before, command)
        hold_to_invariants(before, command, outcome, after, self.world.ghost())
        hold_to_law(before, command, outcome)
        hold_to_duty(command, outcome, after, self.now)
        self.state = after
        return outcome

    def ask(self, command: c.Command) -> Outcome:
        try:
            return kernel.step(self.state, command)
        except Exception as error:
            raise Broken("LAW", f"the kernel fails at {shown(command)}: {type(error).__name__}: {error}") from error

    def heard(self, before: State, command: c.Command) -> None:
        """The world takes note of what was said about it."""
        self.said.append(command)
        run, record = before.run, before.mutation
        if isinstance(command, c.RecordMutation) and run is not None:
            deadline = self.plan.policy.call_deadline_ms if command.deadline_ms is None else command.deadline_ms
            self.sent[idempotency_key(before.workflow, run.id)] = (run.reserved, deadline)
        if isinstance(command, c.Prepared) and run is not None:
            self.declined -= {run.handler}
            if not command.reservations and command.wake_at is None:
                self.declined |= {run.handler}
        if run is not None and record is not None:
            if isinstance(command, c.DidntHappen):
                self.world.denied(record.key, run.reserved)
            elif isinstance(command, c.AssertApplied):
                self.world.asserted(record.key, run.reserved)

    # -- one thing after the other

    def happens(self) -> None:
        """Whatever happens next: mostly the host goes on, and now and then something else comes between."""
        plan, rate = self.plan, self.plan.rate
        travelling = self.world.travelling()
        able = self.host_is_able()
        if not able and self.drives_alone and self.state.run is not None and self.state.run.status == "active":
            raise Broken("LIVE", f"run {self.state.run.id} is at work, and its host does not go on with it")
        often = max(rate, 50) if is_telling(self.state) else rate
        options = [
            (100 if able else 0, "host"),
            (8 if able else 60, "time"),
            (2 if able else 60, "answer"),
            (30 if travelling else 0, "world"),
            (rate // 2 if plan.has("crash") and self.hand != DOWN else 0, "crash"),
            (rate // 2 if plan.has("stall") and self.hand != DOWN else 0, "stall"),
            (30 if self.stalled else 0, "wake"),
            (often if plan.has("people") or plan.has("pause") or plan.has("redeploy") else 0, "click"),
            (2 * often if plan.has("anyone") else 0, "anyone"),
            (rate // 2 if self.said and (plan.has("stall") or plan.has("anyone")) else 0, "again"),
            (3 if any(event.status == "pending" for event in self.state.events) else 20, "publish"),
        ]
        match self.choices.weighted(options):
            case "host":
                self.hand = self.go_on(self.hand)
            case "time":
                self.let_time_pass()
            case "answer":
                self.somebody_answers()
            case "world":
                call = self.choices.of(travelling)
                self.world.end(call, self.choices)
                self.tell("world", f"the call for {call.key} {'lands' if call.fate == 'landed' else 'is lost'}")
            case "crash":
                self.tell("host", "dies")
                self.die()
            case "stall":
                self.stalled.append(self.hand)
                self.tell("host", "stalls and is given up")
                self.die()
            case "wake":
                place = self.choices.number(len(self.stalled))
                went_on = self.go_on(self.stalled.pop(place), "stalled host", late=True)
                if went_on.kind in ("effect", "answer", "queue"):
                    self.stalled.append(went_on)
            case "click":
                self.somebody_clicks()
            case "anyone":
                self.anyone()
            case "again":
                self.say_again()
            case _:
                self.publish()

    def die(self) -> None:
        self.hand = DOWN

    def host_is_able(self) -> bool:
        if self.hand.kind != "idle":
            return True
        plans = (
            respond.advance(self.state, self.now),
            schedule.upkeep(self.state, self.now),
            schedule.schedule(self.state, self.now, "new"),
        )
        return any(plan is not None and not isinstance(plan, Wait | Idle | Repair) for plan in plans)

    @property
    def drives_alone(self) -> bool:
        """Whether nobody but its host speaks for a run."""
        return not any(map(self.plan.has, ("anyone", "stall")))

    def let_time_pass(self) -> None:
        """To a moment that matters, just before it or just after it; or a little."""
        at = self.deadlines()
        moment = self.choices.of(at) + self.choices.of((0, 1, -1)) if at and self.choices.chance(80) else self.now + 7
        until = max(self.now, moment)
        self.pass_to(until)
        self.tell("time", "passes")

    def deadlines(self, *, repeating: bool = True) -> list[int]:
        state, record = self.state, self.state.mutation
        times = [state.backoff_until, *(h.wake_at for h in state.handlers)]
        if repeating:
            times += [h.due_at for h in state.handlers]
        if record is not None:
            times += [record.next_attempt_at, record.send_by, record.may_land_until]
        return sorted({t for t in times if t > self.now})

    def somebody_answers(self) -> None:
        acts = list(answers_of_people(self.plan, self.state, self.now, self.world))
        if acts:
            self.submit("user", *self.choices.of(acts))

    def somebody_clicks(self) -> None:
        acts = list(clicks_of_people(self.plan, self.state, self.now, self.world))
        fitting = [act for act in acts if isinstance(act[1], fitting_clicks(self.state))]
        self.submit("user", *self.choices.of(fitting if fitting and self.choices.chance(60) else acts))

    def anyone(self) -> None:
        command = anything(self.plan, self.choices, self.state, self.now, self.world, self.fresh())
        if command is not None:
            self.let_anyone_ask(command)

    def say_again(self) -> None:
        """Something that was said before, as a stale host or a second click says it."""
        command = self.said[-1 - self.choices.number(min(len(self.said), 8))]._replace(now=self.now)
        if is_true(command, self.state, self.world):
            self.let_anyone_ask(command)

    def let_anyone_ask(self, command: c.Command) -> None:
        outcome = self.submit("anyone", "asks", command)
        for effect in outcome.effects if isinstance(outcome, Accepted) else ():
            if isinstance(effect, Send):  # Whoever asked for it is a host that may wake at any time.
                self.stalled.append(Hand("effect", effect))

    def publish(self) -> None:
        if len(self.state.events) < MOST_EVENTS:
            known = {event.key for event in self.state.events}
            later = [key for key in self.plan.sources if key not in known][:1]
            key = self.choices.of((*later, *later, *self.plan.roots))
            self.submit("tool", "publishes", c.Publish(self.now, publication(key, payload=self.script.text())))

    # -- a host

    def go_on(self, hand: Hand, who: str = "host", *, late: bool = False) -> Hand:
        """The next thing that a host does; what it has in hand then."""
        match hand.kind:
            case "down":
                self.tell(who, "starts")
                return Hand("recovering")
            case "recovering":
                return self.recover(who)
            case "effect":
                assert hand.effect is not None
                return self.perform(hand.effect, who, late)
            case "answer":
                assert hand.effect is not None
                assert hand.answer is not None
                queue = respond.respond(self.state, hand.effect, hand.answer, self.now)
                owes(queue, duty.to_answer(self.state, hand.effect, hand.answer, self.now))
                if isinstance(hand.answer, Failed):
                    self.classes(hand.answer.failure)
                return self.say(who, f"hears {type(hand.answer).__name__}", queue)
            case "queue":
                queue = tuple(command._replace(now=self.now) for command in hand.queue)
                return self.say(who, "goes on", queue)
            case "idle":
                return self.look(who)

    def classes(self, failure: FailureClass) -> None:
        """What a failure proves, whoever declares it."""
        for sent, declared in product((False, True), repeat=2):
            certain = classify(failure, sent=sent, declared_refusal=declared).certain
            if certain != duty.is_certain(failure, sent, declared):
                raise Broken("LAW", f"{failure}, sent: {sent}, declared: {declared}, is certain: {certain}")

    def recover(self, who: str) -> Hand:
        self.hold_plans_to_law()
        commands = recovery.recover(self.state, self.now)
        if not commands:
            self.tell(who, "has recovered")
            return IDLE
        outcome = self.submit(who, "recovers", commands[0])
        if not isinstance(outcome, Accepted):
            raise Broken("LIVE", f"recovery is refused: {outcome.reason}")
        return Hand("recovering")

    def look(self, who: str) -> Hand:
        """Nothing in hand: the state says what is to be done."""
        own = respond.advance(self.state, self.now)
        if own is not None:
            return self.say(who, "goes on", (own,))
        self.hold_plans_to_law()
        work = schedule.upkeep(self.state, self.now)
        if isinstance(work, Reconcile):
            return Hand("effect", work)
        if not isinstance(work, Effect | Wait | Idle):
            return self.say(who, "gives up asking", (work,))
        plan = schedule.schedule(self.state, self.now, self.fresh())
        return IDLE if isinstance(plan, Wait | Idle) else self.say(who, "schedules", (plan,))

    def hold_plans_to_law(self) -> None:
        if found := law.plan_departures(self.state, self.now, "new"):
            raise Broken("LAW", found[0], found[1:])

    def say(self, who: str, text: str, queue: tuple[c.Command, ...]) -> Hand:
        """Submit the first of these commands; the rest, or what follows from it, stays in hand."""
        if not queue:
            self.tell(who, text)
            return IDLE
        outcome = self.submit(who, text, queue[0])
        if not isinstance(outcome, Accepted):
            end = respond.after_rejection(self.state, queue[0], outcome, self.now)
            return IDLE if end is None else Hand("queue", queue=(end,))
        if queue[1:]:
            return Hand("queue", queue=queue[1:])
        effects = [effect for effect in outcome.effects if not isinstance(effect, Repair)]
        return Hand("effect", effects[0]) if effects else IDLE

    def perform(self, effect: CallHandler | Send | Reconcile, who: str, late: bool) -> Hand:
        """Act, and keep the answer in hand."""
        self.tell(who, f"performs {type(effect).__name__} for {effect.run}")
        answer = self.answer(effect, late)
        self.coverage.kinds.update(kinds.of_answer(effect, answer))
        return Hand("answer", effect, answer)

    def answer(self, effect: CallHandler | Send | Reconcile, late: bool) -> Answer:
        match effect:
            case CallHandler():
                return self.call_handler(effect)
            case Send():
                behind = self.choices.of((0, self.plan.policy.clock_skew_ms)) if late else 0
                if self.now - behind > effect.send_by:
                    return Failed("network", "the time to send has passed")
                inputs, deadline = self.sent[effect.key]
                answer = self.target.answer(self.world.send(effect.key, inputs, self.now, deadline))
                self.outlast(answer)
                return answer
            case Reconcile():
                return self.target.reconcile(effect)

    def outlast(self, answer: Answer) -> None:
        """Who gets no answer may have waited for one until the call could not land any more."""
        record = self.state.mutation
        if isinstance(answer, Unknown) and record is not None and self.choices.chance(30):
            self.pass_to(max(self.now, record.may_land_until))
            self.tell("host", "waits in vain")

    def pass_to(self, until: int) -> None:
        self.world.pass_time(until, self.choices)
        self.now = until

    def call_handler(self, effect: CallHandler) -> Answer:
        run = self.state.run
        row = next((h.declared for h in self.state.handlers if h.declared.name == effect.handler), None)
        if run is None or row is None or run.id != effect.run:
            return Failed("host", "the run is gone")
        pending = sorted(
            (e for e in self.state.events if e.status == "pending" and e.key.topic in row.subscribes),
            key=lambda event: event.seq,
        )
        return self.script.answer(effect, row, run, pending, self.now)

    # -- the end

    def finish(self) -> None:
        """Nothing goes wrong any more: every input must be done in the end, and the workflow must come to rest."""
        self.tell("world", "from here on nothing goes wrong")
        self.choices = recorded(())  # The plainest way, whatever came before.
        self.script = Script(self.plan, self.choices, self.texts, fair=True)
        self.target = Target(self.plan, self.choices, self.world, fair=True)
        self.stalled = []
        self.hand = DOWN
        for call in self.world.travelling():
            self.world.end(call, self.choices)
        for _ in range(FAIR_STEPS):
            if self.host_is_able():
                self.hand = self.go_on(self.hand)
                continue
            acts = list(answers_of_people(self.plan, self.state, self.now, self.world))
            if acts:
                outcome = self.submit("user", *acts[0])
                if not isinstance(outcome, Accepted):
                    raise Broken("LIVE", f"a person can not help: {shown(acts[0][1])} is refused: {outcome.reason}")
            elif self.is_at_rest():
                return
            else:
                self.wait()
        raise Broken("LIVE", f"no rest after {FAIR_STEPS} steps in which nothing went wrong")

    def wait(self) -> None:
        """Let the next time come; what its script left by its own will, a person has looked at once more."""
        # What waits goes before what repeats itself: a producer with a short interval would keep it busy for ever.
        later = self.deadlines(repeating=False)
        if later:
            self.now = later[0]
            self.tell("time", "passes")
            return
        left = {event.key.topic for event in self.state.events if event.status == "pending"}
        willing = {h.declared.name for h in self.state.handlers if left & {*h.declared.subscribes}}
        if not willing & self.declined:
            open_events = [e.key for e in self.state.events if e.status in ("pending", "reserved")]
            raise Broken("LIVE", f"it stands still for ever, with {open_events} to do and the error {self.state.error}")
        for name in sorted(willing & self.declined):
            self.submit("user", f"runs {name} now", c.RunNow(self.now, name))
        self.declined -= willing

    def is_at_rest(self) -> bool:
        state = self.state
        return (
            state.run is None and state.error is None and all(e.status in ("consumed", "skipped") for e in state.events)
        )


def hold_to_duty(command: c.Command, outcome: Outcome, after: State, now: int) -> None:
    """Whoever said it, a host knows what is to be said next."""
    if isinstance(outcome, Accepted):
        own = respond.advance(after, now)
        owes(() if own is None else (own,), duty.by_itself(after, now))
    else:
        end = respond.after_rejection(after, command, outcome, now)
        owes(() if end is None else (end,), duty.to_refusal(after, command, outcome.reason, now))


def owes(said: tuple[c.Command, ...], owed: tuple[c.Command, ...]) -> None:
    """A host says what it owes."""
    if not duty.agree(said, owed):
        raise Broken("LAW", f"a host should say {owed!r:.200}, and says {said!r:.200}")
