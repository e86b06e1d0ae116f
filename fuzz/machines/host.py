"""The whole host: the real one, on a real store, with scripts and targets that are drawn; it dies at any of its points.

Who judges is outside: after every turn the journal is stepped through the kernel again and held against the law, the
invariants and the world's own record of the calls that came. A host may also stall at one of its points while another
takes over, and wake with what it had in hand.
"""

from contextlib import ExitStack
from typing import Any, Final

from ...adapters.host import Grain, Host, at_once
from ...adapters.points import SimulatedCrash
from ...kernel import commands as c
from ...kernel.ports import Change, Disconnected, Lease, LeaseLost, Store
from ...kernel.respond import Answer, Failed
from ...kernel.schedule import Idle, Wait
from ...kernel.step import step
from ...kernel.types import Accepted, CallHandler, Declaration, Event, Outcome, Reconcile, Rejected, Send, State
from .. import duty, law
from ..law import differences
from ..lives import Place
from . import connected, kinds
from .choices import Choices
from .kernel import IDLE, Hand, KernelLife
from .life import Broken, Coverage, accepted, hold_to_invariants, hold_to_law, shown
from .places import ALL, FAST_STORES, new_place
from .plans import TOOLS, WORKFLOW
from .sandboxed import Sandboxed
from .store import Account, StoreLife

HOST_POINTS: Final = ("CallHandler", "Send", "Reconcile", "recover", "script", "target: after", "target: when asked")
"""Points between two uses of the store; a host that stalls there leaves the store to others.

Between its last look at the clock and the call nothing stalls: that limit of the promise is named by the law.
"""
HELD_BACK: Final = (
    *(c.StartSession, c.FinishSession, c.CreateRun, c.CreateRetry, c.Begin),
    *(c.Prepared, c.Mutating, c.RecordMutation, c.Mutated, c.Emitting),
)
"""Steps that need not be durable before the next one, by the law (HOST-011)."""
LEASE_MS: Final = 200
PAGE: Final = 1_000


class Line:
    """The line from a host to its store, on which things happen."""

    def __init__(self, store: Store, life: "HostLife") -> None:
        self._store = store
        self._life = life

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def lease(self, workflow: str, host: str, ttl_ms: int) -> Lease | None:
        lease = self._store.lease(workflow, host, ttl_ms)
        self._life.driver = host if lease is not None else self._life.driver
        return lease

    def commit(self, change: Change, lease: Lease | None = None) -> int:
        """As the store does it; but others may be faster, and the answer may be lost, or the question."""
        life = self._life
        hasty = [done.command for done in change.done[:-1] if not isinstance(done.command, HELD_BACK)]
        if hasty:
            life.note(Broken("HOST", f"it went on before this was durable: {shown(hasty[0])}"))
        life.let_others_be_faster()
        lost = life.goes_wrong("line")
        if lost and life.choices.chance(50):
            raise Disconnected("the line broke before the change arrived")
        version = self._store.commit(change, lease)
        if lost:
            raise Disconnected("the line broke after the change was done")
        return version


class HostLife(KernelLife):
    """A life of the kernel in a host."""

    texts = StoreLife.texts

    def __init__(self, choices: Choices, coverage: Coverage, url: str = ALL) -> None:
        super().__init__(choices, coverage)
        self.places = ExitStack()
        self.url = url
        self.grain: Grain = choices.of(("coalesced", "fine"))
        self.in_sandbox = choices.chance(20)
        self.is_connected = choices.chance(30)
        self.lag = choices.of((0, self.plan.policy.clock_skew_ms))
        self.deaths = 0
        self.die_in = 0
        self.stall_in = 0
        self.nested = False
        self.begun = False
        self.restless = True
        self.started = False
        self.copy: Place | None = None
        self.own = Account(self.state)
        self.may_call: set[str] = set()
        self.called: set[str] = set()
        self.trouble: Broken | None = None
        self.driver = ""
        """The host that got the lease last."""
        self.asked: set[tuple[type, c.Command]] = set()
        """What somebody outside has said to a host."""
        self.answers: dict[str, list[tuple[CallHandler | Send | Reconcile, Answer]]] = {}
        """Run -> what scripts and the target have answered about it, and to what."""

    def start(self) -> None:
        self.place = self.places.enter_context(new_place(self.choices, self.url, FAST_STORES))
        self.store: Store = self.place.open(self.tick, self.reach)
        self.places.callback(self.drop)
        self.store.create(WORKFLOW, self.plan.policy)
        self.host = self.new_host()
        super().start()
        self.begun = True

    def close(self) -> None:
        self.places.close()

    def drop(self) -> None:
        self.store.drop()

    def new_host(self) -> Host:
        self.started = False
        self.deaths += 1
        line: Any = Line(self.store, self)
        return Host(
            line, self, self, name=f"host{self.deaths}", fresh_id=self.fresh, clock=lambda: self.now - self.lag,
            reach=self.reach, lease_ms=LEASE_MS, grain=self.grain,
        )  # fmt: skip

    def tick(self) -> int:
        return self.now

    def goes_wrong(self, fault: str) -> bool:
        return self.begun and self.plan.has(fault) and self.choices.chance(self.plan.rate)

    def let_others_be_faster(self) -> None:
        """Somebody commits through another host, so that what this one has computed is out of date."""
        if self.nested or not self.goes_wrong("race"):
            return
        self.nested = True
        mine = self.host
        try:
            started, self.host = self.started, self.new_host()
            self.publish() if self.choices.chance(50) else self.somebody_clicks()
        finally:
            self.host, self.started, self.nested = mine, started, False

    # -- dying and stalling

    def reach(self, point: str) -> None:
        self.coverage.points[point] += 1
        if self.nested:
            return
        if self.die_in:
            self.die_in -= 1
            if not self.die_in:
                self.copy = self.place.copied(self.place.folder.with_name(f"life{self.deaths}"))
                self.tell("host", f"dies at {point}")
                raise SimulatedCrash
        if self.stall_in and point.startswith(HOST_POINTS):
            self.stall_in -= 1
            if not self.stall_in:
                self.stall(point)

    def die(self) -> None:
        """The process is gone; the next one opens what it left, and may die of it as well."""
        self.store.drop()
        self.place, self.copy = self.copy or self.place, None
        try:
            self.store = self.place.open(self.tick, self.reach)
        except SimulatedCrash:
            self.die()
            return
        self.host = self.new_host()
        self.restless = True
        self.judge()

    def stall(self, point: str) -> None:
        """This host sleeps for a while, and another one works as far as it may."""
        self.tell("host", f"stalls at {point}")
        self.nested = True
        awake = self.host
        try:
            self.let_time_pass()
            if self.choices.chance(70):
                self.pass_to(self.now + LEASE_MS + 1)
            self.host = self.new_host()
            for _ in range(1 + self.choices.number(8)):
                self.turn()
                if self.choices.chance(20):
                    self.somebody_answers()
        finally:
            self.nested = False
            self.host = awake
        self.tell("host", "wakes")

    # -- driving it

    def happens(self) -> None:
        plan = self.plan
        self.die_in = 1 + self.choices.number(25) if plan.has("crash") and self.choices.chance(plan.rate) else 0
        self.stall_in = 1 + self.choices.number(5) if plan.has("stall") and self.choices.chance(plan.rate) else 0
        try:
            super().happens()
        finally:
            self.die_in = self.stall_in = 0

    def host_is_able(self) -> bool:
        return self.restless

    def go_on(self, hand: Hand, who: str = "host", *, late: bool = False) -> Hand:
        self.turn()
        return IDLE

    def let_time_pass(self) -> None:
        super().let_time_pass()
        self.restless = True

    def wait(self) -> None:
        super().wait()
        self.restless = True

    def turn(self) -> None:
        """One turn of the host, which it may not survive."""
        try:
            if not self.started:
                self.started = self.host.start(WORKFLOW)
                if not self.started:
                    self.tell("host", "waits for the lease of another")
                    self.pass_to(self.now + LEASE_MS)
                    return
                self.tell("host", "has started")
            rest = self.host.turn(WORKFLOW)
            self.restless = rest is None
            if rest is not None and not self.plan.has("race"):  # Nobody can have come between.
                self.check_rest(rest)
        except SimulatedCrash:
            self.die()
        except LeaseLost:
            self.tell("host", "finds that another drives, and stops")
            self.start_again()
        except Disconnected:
            self.tell("host", "has lost its store, and is started again")
            if self.nested or self.choices.chance(50):  # The one that sleeps still has it open.
                self.start_again()
            else:
                self.die()
        self.judge()

    def start_again(self) -> None:
        """Another host; or the same, as a service does it whose process goes on."""
        if self.choices.chance(50):
            self.host = self.new_host()
        self.started = False
        self.restless = True

    def check_rest(self, rest: Wait | Idle) -> None:
        """It rests when there is nothing to do, and not for longer."""
        self.judge()
        plans = law.planned(self.state, self.now, "new"), law.owed(self.state, self.now)
        meant = min((plan for plan in plans if isinstance(plan, Wait)), default=plans[0])
        if rest != meant or type(rest) is not type(meant):
            raise Broken("HOST", f"it rests with {rest}, where the law says {meant}")

    def submit(self, actor: str, text: str, command: c.Command) -> Outcome:
        """Somebody else than the host says something; what is accepted is durable from then on."""
        self.restless = True
        self.asked.add((type(command), command._replace(now=0)))
        before = self.own.version
        outcome: Outcome
        try:
            said = self.host.submit(WORKFLOW, at_once(command), leased=False)
            assert said is not None
            outcome, command = said.outcome, said.command
        except SimulatedCrash:
            self.die()
            outcome = Rejected("", "", "nobody knows what became of it")
        except LeaseLost:
            self.tell("host", "finds that another drives, and stops")
            self.host = self.new_host()
            return self.submit(actor, text, command)
        except Disconnected:
            self.host = self.new_host()
            outcome = Rejected("", "", "nobody knows what became of it")
        self.tell_step(actor, text, command, outcome)
        self.coverage.saw(command, outcome)
        self.judge()
        there = any(duty.alike(transition.command, command) for transition in self.own.transitions[before:])
        if isinstance(outcome, Accepted) and not there:
            raise Broken("HOST", f"{shown(command)} was accepted, and is not in the journal")
        refused = isinstance(outcome, Rejected) and bool(outcome.reason)
        if refused:  # As what is durable asks for, and not what a host has kept of it.
            hold_to_law(self.state, command, outcome)
        free = not self.plan.has("race") and not isinstance(command, HELD_BACK)  # What was held back was said before.
        if refused and there and free:
            raise Broken("HOST", f"{shown(command)} was refused, and is in the journal")
        return outcome

    # -- what the host asks of others

    def call(self, state: State, effect: CallHandler) -> Answer:
        """The port for handlers."""
        self.reach("script: begins")
        run = state.run
        row = next((h.declared for h in state.handlers if h.declared.name == effect.handler), None)
        if run is None or run.id != effect.run or row is None or run.status != "active":
            self.note(Broken("HOST", f"{effect.function} is called for {effect.run}, which is not at work"))
            return Failed("host", "the run is gone")
        pending = [e for topic in row.subscribes for e in self.store.peek(WORKFLOW, topic, 100)]
        answer = self.script.answer(effect, row, run, sorted(pending, key=lambda event: event.seq), self.now)
        if self.in_sandbox:
            answer = self.sandboxed(state, effect, row, answer, pending)
        self.answered(effect, answer)
        self.tell("script", f"{effect.function} of {effect.handler} for {effect.run}: {type(answer).__name__}")
        self.reach("script: ends")
        return answer

    def sandboxed(
        self, state: State, effect: CallHandler, row: Declaration, drawn: Answer, pending: list[Event]
    ) -> Answer:
        """The same by a script in the sandbox; a host is not asked to let trouble through."""
        try:
            return Sandboxed(self.plan, self.choices, self.store).call(state, effect, row, drawn, pending)
        except Broken as trouble:
            self.note(trouble)
            return drawn

    def send(self, effect: Send) -> Answer:
        """The port for calls: what comes here has left the host."""
        self.reach("target: before the call")
        self.judge()
        self.tell("target", f"is called with {effect.key}")
        if effect.key not in self.may_call:
            self.note(Broken("HOST", f"the call {effect.key} came before its record was durable"))
        if effect.key in self.called:
            self.note(Broken("HOST", f"the call {effect.key} came twice"))
        if self.now - self.lag > effect.send_by:
            self.note(Broken("HOST", f"the call {effect.key} came after the time to send"))
        if self.driver != self.host.name and self.now <= effect.send_by:
            self.note(Broken("HOST", f"the call {effect.key} came while another host could drive"))
        self.called.add(effect.key)
        inputs, deadline = self.sent.get(effect.key, ((), self.plan.policy.call_deadline_ms))
        answer = self.target.answer(self.world.send(effect.key, inputs, self.now, deadline))
        self.hear(effect, answer)
        self.outlast(answer)
        self.answered(effect, answer)
        self.reach("target: after the call")
        return answer

    def reconcile(self, effect: Reconcile) -> Answer:
        self.reach("target: when asked")
        answer = self.target.reconcile(effect)
        self.hear(effect, answer)
        self.answered(effect, answer)
        self.tell("target", f"is asked about {effect.key}: {type(answer).__name__}")
        self.reach("target: after the question")
        return answer

    def hear(self, effect: Send | Reconcile, answer: Answer) -> None:
        """The same by the real connections, where the tool is theirs; a host is not asked to let trouble through."""
        if self.is_connected and effect.tool == TOOLS[0]:
            try:
                connected.through(self.choices, effect, answer, self.now - self.lag)
            except Broken as trouble:
                self.note(trouble)

    def answered(self, effect: CallHandler | Send | Reconcile, answer: Answer) -> None:
        self.answers.setdefault(effect.run, []).append((effect, answer))
        self.coverage.kinds.update(kinds.of_answer(effect, answer))

    def note(self, trouble: Broken) -> None:
        """Remember what is wrong: the host is not asked to let it through."""
        self.trouble = self.trouble or trouble

    # -- the judge

    def judge(self) -> None:
        """Step what is new in the journal through the kernel again, and look at all that the store shows."""
        own = self.own
        for transition in self.store.transitions(WORKFLOW, own.version, PAGE):
            before, command = own.state, transition.command
            outcome = step(before, command)
            if accepted(outcome) is None or transition.version != own.version + 1:
                raise Broken(
                    "HOST", f"the journal holds {shown(command)}, which the kernel answers with {outcome!r:.200}"
                )
            assert isinstance(outcome, Accepted)
            if transition.rules != outcome.rules or transition.at != command.now:
                raise Broken("HOST", f"the journal tells {shown(command)} otherwise than it was")
            if not self.has_a_source(before, command):
                raise Broken("HOST", f"the journal holds {shown(command)}, which nobody has said")
            self.coverage.saw(command, outcome)
            self.tell("journal", shown(command))
            self.heard(before, command)
            self.may_call |= {effect.key for effect in outcome.effects if isinstance(effect, Send)}
            own.add(command, outcome)
            hold_to_invariants(before, command, outcome, own.state, self.world.ghost())
            hold_to_law(before, command, outcome)
        self.state = own.state
        loaded = self.store.load(WORKFLOW)
        rows = differences(loaded.state._replace(events=()), own.state._replace(events=()))
        if rows or self.store.events(WORKFLOW, 0, PAGE) != tuple(own.events):
            raise Broken("HOST", "the store holds another state than its journal tells", tuple(rows))
        for what, shows in (
            ("runs", self.store.runs),
            ("mutations", self.store.mutations),
            ("sessions", self.store.sessions),
        ):
            if shows(WORKFLOW, 0, PAGE) != tuple(getattr(self.own, what)):
                raise Broken("HOST", f"the {what} of the past are others than its journal tells")
        if self.trouble is not None:
            raise self.trouble

    def has_a_source(self, before: State, command: c.Command) -> bool:
        """Whether somebody outside said it, or it is what a host owes: by itself, or after an answer or a refusal."""
        if (type(command), command._replace(now=0)) in self.asked:
            return True
        now, fresh = command.now, getattr(command, "run", getattr(command, "session", ""))
        owed: list[Any] = [*duty.by_itself(before, now), *law.recovery(before, now)]
        owed += [law.planned(before, now, fresh), law.owed(before, now)]
        for effect, answer in (*self.answers.get(fresh, []), *self.too_late(before, now)):
            owed += duty.to_answer(before, effect, answer, now)
        if isinstance(command, c.EndRun):  # What was refused may have been thrown away meanwhile, with its record.
            owed += [duty.end(now, fresh, Failed(failure, "", command.tool)) for failure, _ in duty.BLAMED]
        return any(duty.alike(command, one) for one in owed)

    def too_late(self, before: State, now: int) -> list[tuple[Send, Answer]]:
        """What a host answers itself: its clock says that the time to send has passed, and so it did not call."""
        record = before.mutation
        if record is None or record.key in self.called or now - self.lag <= record.send_by:
            return []
        send = Send(record.run, record.tool, record.params, record.key, record.send_by)
        return [(send, Failed("network", "the time to send has passed; nothing was sent"))]

    def finish(self) -> None:
        """As ever, and in the end every input was handled once, and applied as often as is said."""
        self.die()
        self.restless = True
        super().finish()
        self.judge()
        over = [run for _, run in self.own.runs if run.status == "committed" or run.abandoned]
        for event in self.own.events:
            times = sum(event.key in run.reserved for run in over)
            if event.status == "consumed" and times != 1:
                raise Broken("HOST", f"event {event.key} was handled {times} times")
