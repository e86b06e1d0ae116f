"""The host: load, ask the kernel, commit, act, report. It decides nothing (HOST rules).

`drive` takes one workflow as far as it goes. Steps that may wait are gathered and share the commit of the one that may
not (HOST-011): a run with a call outside takes three commits. What is in hand when the process dies is forgotten, and
`start` of the next process needs none of it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from ..kernel import gate, respond, schedule
from ..kernel import recover as recovery
from ..kernel.commands import BlockWorkflow, Command
from ..kernel.ports import (
    Change,
    Conflict,
    Connectors,
    Disconnected,
    Handlers,
    Lease,
    LeaseLost,
    Loaded,
    Store,
    change_of,
)
from ..kernel.respond import Answer, Failed
from ..kernel.schedule import Idle, Wait
from ..kernel.step import step
from ..kernel.types import Accepted, CallHandler, Effect, Event, Key, Outcome, Reconcile, Repair, Send, State
from ..kernel.window import named
from .points import Reach, pass_by

Ask = Callable[[State, int], Command | None]
"""The command that a state asks for at a time; None when there is none any more."""

Grain = Literal["fine", "coalesced"]
"""Whether each step is a commit of its own, or steps that may wait share one."""


class Said(NamedTuple):
    """A command that was submitted, and what the kernel said to it."""

    command: Command
    outcome: Outcome
    state: State
    """The state on which it was asked."""


def at_once(command: Command) -> Ask:
    """Ask for this command, whatever the state, at the time at which it is stepped."""
    return lambda state, now: command._replace(now=now)


Steps = tuple[tuple[Command, Accepted], ...]


class Hand(NamedTuple):
    """A workflow as its host sees it: what the store holds, and the steps on top of it that are not durable yet."""

    durable: Loaded
    state: State
    steps: Steps = ()

    def after(self, command: Command, accepted: Accepted) -> "Hand":
        return Hand(self.durable, accepted.state, (*self.steps, (command, accepted)))

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(event.key for event in self.state.events)

    def with_events(self, found: tuple[Event, ...]) -> "Hand":
        """The same with further events in the window, which no step has touched."""
        known = self.keys
        new = tuple(event for event in found if event.key not in known)
        durable = self.durable._replace(state=_with(self.durable.state, new))
        return Hand(durable, _with(self.state, new), self.steps)


def _with(state: State, events: tuple[Event, ...]) -> State:
    return state._replace(events=tuple(sorted((*state.events, *events), key=lambda event: event.seq)))


class Host:
    """Drives workflows of one store, each under a lease."""

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        connectors: Connectors,
        *,
        name: str,
        fresh_id: Callable[[], str],
        clock: Callable[[], int],
        repair: Callable[[Repair], None] | None = None,
        reach: Reach = pass_by,
        lease_ms: int = 600_000,
        grain: Grain = "coalesced",
    ) -> None:
        self.store = store
        self.handlers = handlers
        self.connectors = connectors
        self.name = name
        self.fresh_id = fresh_id
        self.clock = clock
        self.repair = repair
        self.reach = reach
        self.lease_ms = lease_ms
        self.grain = grain
        self._leases: dict[str, Lease] = {}
        self._hands: dict[str, Hand] = {}
        self._repaired: dict[str, Repair] = {}
        """What the repair hook was asked for last: it may take its time, and is not asked again and again."""
        self._overtaken: set[str] = set()
        """Workflows whose steps were dropped because somebody was faster: they gather nothing until a run is over."""

    # -- one workflow

    def start(self, workflow: str) -> bool:
        """Take a workflow over and make it whole (HOST-007); False while another host drives it."""
        if not self._renew(workflow):
            return False
        self._hands.pop(workflow, None)
        self._repaired.pop(workflow, None)
        while self._take(workflow, lambda state, now: next(iter(recovery.recover(state, now)), None)) is not None:
            self.reach("recover: one step done")
        if strays := recovery.orphans(self._hand(workflow).state):
            named = ", ".join(f"{event.key.topic}/{event.key.id} by run {event.owner}" for event in strays)
            told = f"a bug: events are reserved by runs that are over, and nobody will take them: {named} (REC-004)"
            self._take(workflow, at_once(BlockWorkflow(0, told)))
        return True

    def drive(self, workflow: str) -> Wait | Idle:
        """Work until there is nothing to do; the answer says for what the workflow waits."""
        while True:
            rest = self.turn(workflow)
            if rest is not None:
                return rest

    def turn(self, workflow: str) -> Wait | Idle | None:
        """One thing that is to be done; None when there may be more. Whoever waits has nothing in hand (HOST-011)."""
        if not self._renew(workflow):
            raise LeaseLost(f"another host drives {workflow} now; stop this one")
        if self._step(workflow, respond.advance):
            return None
        if not self._hand(workflow).steps:
            self._hands.pop(workflow)  # Others may have committed since; and the window is another after a run.
        rest = self._look_around(workflow)
        if rest is None or not self.flush(workflow):
            return None
        self._hands.pop(workflow)
        return rest

    def _look_around(self, workflow: str) -> Wait | Idle | None:
        """What is to be done when no run is to be moved on."""
        work = schedule.upkeep(self._hand(workflow).state, self.store.now())
        if isinstance(work, Effect) and respond.must_be_durable(work) and not self.flush(workflow):
            return None
        if isinstance(work, Reconcile):
            self.perform(workflow, work)
            return None
        if isinstance(work, Repair) and self.repair is not None and self._repaired.get(workflow) != work:
            self.repair(work)
            self._repaired[workflow] = work
            return None
        if not isinstance(work, Effect | Wait | Idle):
            self._step(workflow, lambda state, now: self._command(schedule.upkeep(state, now)))
            return None
        fresh = self.fresh_id()
        if self._step(workflow, lambda state, now: self._command(schedule.schedule(state, now, fresh))):
            return None
        plan = schedule.schedule(self._hand(workflow).state, self.store.now(), fresh)
        waits = [w for w in (plan, work) if isinstance(w, Wait)]
        if waits:
            return min(waits)
        return plan if isinstance(plan, Idle) else None

    def _command(self, work: Command | Effect | Wait | Idle) -> Command | None:
        return None if isinstance(work, CallHandler | Send | Reconcile | Repair | Wait | Idle) else work

    def _renew(self, workflow: str, until: int = 0) -> bool:
        """Hold the lease, at least up to a time; False when another host has it."""
        held = self._leases.get(workflow)
        if held is not None and max(until, self.store.now() + self.lease_ms // 2) < held.expires_at:
            return True
        lease = self.store.lease(workflow, self.name, max(self.lease_ms, until + 1 - self.store.now()))
        if lease is None:
            self._leases.pop(workflow, None)
            return False
        self._leases[workflow] = lease
        return True

    # -- commands

    def submit(self, workflow: str, ask: Ask, *, leased: bool = True) -> Said | None:
        """Ask for a command, step it, and commit it at once: what people and tools do (HOST-008)."""
        self.flush(workflow)
        self._hands.pop(workflow, None)
        said = self._take(workflow, ask, wait=False, leased=leased)
        self._hands.pop(workflow, None)
        return said

    def flush(self, workflow: str, *, leased: bool = True) -> bool:
        """Make what was gathered durable; False when somebody was faster, and it was dropped instead (HOST-008).

        To drop it is what a crash would do, and as harmless: nothing of it has left, and the state asks for it again.
        """
        hand = self._hands.get(workflow)
        if hand is None or not hand.steps:
            return True
        change = change_of(self.fresh_id(), hand.durable, *hand.steps)
        del self._hands[workflow]  # Whatever goes wrong now, the store knows better.
        try:
            self._commit(change, self._leases.get(workflow) if leased else None)
        except Conflict:
            if len(hand.steps) > 1:  # The next try goes on with single steps, so that it comes to its end (HOST-011).
                self._overtaken.add(workflow)
            return False
        self._hands[workflow] = Hand(Loaded(hand.state, change.version), hand.state)
        if gate.active(hand.durable.state) and not gate.active(hand.state):
            self._overtaken.discard(workflow)
        return True

    def _commit(self, change: Change, lease: Lease | None) -> None:
        """A commit whose answer was lost is tried again under its id, which tells whether it was done."""
        try:
            self.store.commit(change, lease)
        except Disconnected:
            self.store.commit(change, lease)

    def _hand(self, workflow: str) -> Hand:
        if workflow not in self._hands:
            loaded = self.store.load(workflow)
            self._hands[workflow] = Hand(loaded, loaded.state)
        return self._hands[workflow]

    def _take(self, workflow: str, ask: Ask, *, wait: bool = True, leased: bool = True) -> Said | None:
        """Ask for a command and step it on top of what is in hand; on a conflict all over again (HOST-008)."""
        while True:
            hand = self._hand(workflow)
            command = ask(hand.state, self.store.now())
            if command is None:
                return None
            wanted = named(hand.state, command)
            if wanted and (missing := wanted - hand.keys):
                hand = hand.with_events(self._found(workflow, command, missing))
            outcome = step(hand.state, command)
            if not isinstance(outcome, Accepted):
                return Said(command, outcome, hand.state)
            self._hands[workflow] = hand.after(command, outcome)
            gathers = wait and self.grain == "coalesced" and workflow not in self._overtaken
            if (gathers and respond.may_wait(command)) or self._made_durable(workflow, outcome.effects, leased):
                return Said(command, outcome, outcome.state)

    def _found(self, workflow: str, command: Command, keys: frozenset[Key]) -> tuple[Event, ...]:
        """Events that a command names, if they exist; should they be newer than the hand, its commit is a conflict."""
        if len(keys) > 1:
            return self.store.load(workflow, command).state.events
        found = self.store.get(workflow, *keys)
        return () if found is None else (found,)

    def _made_durable(self, workflow: str, effects: tuple[Effect, ...], leased: bool) -> bool:
        """Commit all that is in hand; who is about to send holds the lease until it is too late to send (HOST-002)."""
        for effect in effects:
            if leased and isinstance(effect, Send) and not self._renew(workflow, effect.send_by):
                raise LeaseLost(f"another host drives {workflow} now; stop this one")
        return self.flush(workflow, leased=leased)

    def _step(self, workflow: str, ask: Ask) -> bool:
        """Take a step of the active run or the scheduler, and go on with what follows from it."""
        said = self._take(workflow, ask)
        if said is None:
            return False
        self._follow(workflow, said)
        return True

    def _follow(self, workflow: str, said: Said) -> None:
        if isinstance(said.outcome, Accepted):
            for effect in said.outcome.effects:
                if not isinstance(effect, Repair):  # Asked of the state again, when nothing else is to be done.
                    self.perform(workflow, effect)
            return
        rejected = said.outcome
        end = respond.after_rejection(said.state, said.command, rejected, said.command.now)
        if end is not None:
            self._take(workflow, at_once(end))

    # -- effects

    def perform(self, workflow: str, effect: CallHandler | Send | Reconcile) -> None:
        """Act, and report the answer, one command after the other (HOST-010)."""
        self.reach(f"{type(effect).__name__}: before")
        answer = self._answer(workflow, effect)
        self.reach(f"{type(effect).__name__}: after")
        state = self._hand(workflow).state
        for command in respond.respond(state, effect, answer, self.store.now()):
            said = self._take(workflow, at_once(command))
            if said is not None:
                self._follow(workflow, said)
            if said is None or not isinstance(said.outcome, Accepted):
                return

    def _answer(self, workflow: str, effect: CallHandler | Send | Reconcile) -> Answer:
        match effect:
            case CallHandler():
                return self.handlers.call(self._hand(workflow).state, effect)
            case Send():
                if self.clock() > effect.send_by:  # The last look before the call (HOST-002).
                    return Failed("network", "the time to send has passed; nothing was sent")
                return self.connectors.send(effect)
            case Reconcile():
                return self.connectors.reconcile(effect)
