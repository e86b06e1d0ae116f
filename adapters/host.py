"""The host: load, ask the kernel, commit, act, report. It decides nothing (HOST rules).

`drive` takes one workflow as far as it goes. What is in hand when the process dies is forgotten, and `start` of the
next process needs none of it.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..kernel import recover as recovery
from ..kernel import respond, schedule
from ..kernel.commands import Command
from ..kernel.ports import Change, Conflict, Connectors, Disconnected, Handlers, Lease, LeaseLost, Store, change_of
from ..kernel.respond import Answer, Failed
from ..kernel.schedule import Idle, Wait
from ..kernel.step import step
from ..kernel.types import Accepted, CallHandler, Effect, Outcome, Reconcile, Repair, Send, State
from ..kernel.window import named
from .points import Reach, pass_by

Ask = Callable[[State, int], Command | None]
"""The command that a state asks for at a time; None when there is none any more."""


class Said(NamedTuple):
    """A command that was submitted, and what the kernel said to it."""

    command: Command
    outcome: Outcome
    state: State
    """The state on which it was asked."""


def at_once(command: Command) -> Ask:
    """Ask for this command, whatever the state, at the time at which it is stepped."""
    return lambda state, now: command._replace(now=now)


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
        self._leases: dict[str, Lease] = {}

    # -- one workflow

    def start(self, workflow: str) -> bool:
        """Take a workflow over and make it whole (HOST-007); False while another host drives it."""
        if not self._renew(workflow):
            return False
        while self.submit(workflow, lambda state, now: next(iter(recovery.recover(state, now)), None)) is not None:
            self.reach("recover: one step done")
        return True

    def drive(self, workflow: str) -> Wait | Idle:
        """Work until there is nothing to do; the answer says for what the workflow waits."""
        while True:
            rest = self.turn(workflow)
            if rest is not None:
                return rest

    def turn(self, workflow: str) -> Wait | Idle | None:
        """One thing that is to be done; None when there may be more."""
        if not self._renew(workflow):
            raise LeaseLost(f"another host drives {workflow} now; stop this one")
        if self._step(workflow, respond.advance):
            return None
        state, now = self.store.load(workflow).state, self.store.now()
        work = schedule.upkeep(state, now)
        if isinstance(work, Reconcile):
            self.perform(workflow, work)
            return None
        if isinstance(work, Repair) and self.repair is not None:
            self.repair(work)
            return None
        if not isinstance(work, Effect | Wait | Idle):
            self._step(workflow, lambda state, now: self._command(schedule.upkeep(state, now)))
            return None
        fresh = self.fresh_id()
        if self._step(workflow, lambda state, now: self._command(schedule.schedule(state, now, fresh))):
            return None
        plan = schedule.schedule(state, now, fresh)
        waits = [w for w in (plan, work) if isinstance(w, Wait)]
        if waits:
            return min(waits)
        return plan if isinstance(plan, Idle) else None

    def _command(self, work: Command | Effect | Wait | Idle) -> Command | None:
        return None if isinstance(work, CallHandler | Send | Reconcile | Repair | Wait | Idle) else work

    def _renew(self, workflow: str) -> bool:
        held = self._leases.get(workflow)
        if held is not None and self.store.now() < held.expires_at - self.lease_ms // 2:
            return True
        lease = self.store.lease(workflow, self.name, self.lease_ms)
        if lease is None:
            self._leases.pop(workflow, None)
            return False
        self._leases[workflow] = lease
        return True

    # -- commands

    def submit(self, workflow: str, ask: Ask, *, leased: bool = True) -> Said | None:
        """Ask for a command, step it, commit it; on a conflict all over again (HOST-008)."""
        while True:
            loaded = self.store.load(workflow)
            command = ask(loaded.state, self.store.now())
            if command is None:
                return None
            if named(loaded.state, command):
                loaded = self.store.load(workflow, command)
            outcome = step(loaded.state, command)
            if not isinstance(outcome, Accepted):
                return Said(command, outcome, loaded.state)
            change = change_of(self.fresh_id(), loaded, command, outcome)
            try:
                self._commit(change, self._leases.get(workflow) if leased else None)
            except Conflict:
                continue
            return Said(command, outcome, outcome.state)

    def _commit(self, change: Change, lease: Lease | None) -> None:
        """A commit whose answer was lost is tried again under its id, which tells whether it was done."""
        try:
            self.store.commit(change, lease)
        except Disconnected:
            self.store.commit(change, lease)

    def _step(self, workflow: str, ask: Ask) -> bool:
        """Submit a command of the active run or the scheduler, and go on with what follows from it."""
        said = self.submit(workflow, ask)
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
            self.submit(workflow, at_once(end))

    # -- effects

    def perform(self, workflow: str, effect: CallHandler | Send | Reconcile) -> None:
        """Act, and report the answer, one command after the other (HOST-010)."""
        self.reach(f"{type(effect).__name__}: before")
        answer = self._answer(workflow, effect)
        self.reach(f"{type(effect).__name__}: after")
        state = self.store.load(workflow).state
        for command in respond.respond(state, effect, answer, self.store.now()):
            said = self.submit(workflow, at_once(command))
            if said is not None:
                self._follow(workflow, said)
            if said is None or not isinstance(said.outcome, Accepted):
                return

    def _answer(self, workflow: str, effect: CallHandler | Send | Reconcile) -> Answer:
        match effect:
            case CallHandler():
                return self.handlers.call(self.store.load(workflow).state, effect)
            case Send():
                if self.clock() > effect.send_by:  # The last look before the call (HOST-002).
                    return Failed("network", "the time to send has passed; nothing was sent")
                return self.connectors.send(effect)
            case Reconcile():
                return self.connectors.reconcile(effect)
