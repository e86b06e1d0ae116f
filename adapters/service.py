"""Several workflows in one process: a thread drives each, so that a slow one stops no other.

A thread sleeps while its workflow has nothing to do, and wakes at its time, or at once when anybody commits something
to the workflow: an event that was published, a person's command. Whatever breaks in a thread ends it as the death of a
process would, and it begins again with the recovery.
"""

import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, Literal, NamedTuple, cast

from ..kernel import gate
from ..kernel.commands import BlockWorkflow, Command
from ..kernel.policy import backoff_ms
from ..kernel.ports import (
    Change,
    DamagedStore,
    LeaseLost,
    NewerStore,
    NotAStore,
    ReadOnlyStore,
    Store,
    StoreError,
    StoreStopped,
)
from ..kernel.schedule import Idle, Wait
from ..kernel.types import Rejected
from .host import Host, Said, at_once

LOOK_EVERY_S: Final = 5.0
"""An idle workflow is looked at so often even if nothing wakes it: others may write to the same store."""
BEGIN_AGAIN_MS: Final = (1_000, 60_000)
"""A thread whose work broke off waits so long before it begins again: at first, and at most."""
BREAKS_MAX: Final = 5
"""So often it begins again; then a person must look. What broke before any commit is nothing that the kernel counts."""
HOPELESS: Final = (DamagedStore, NewerStore, NotAStore, ReadOnlyStore, StoreStopped)
"""Troubles of a store that no patience of this process cures."""

WAITS: Final = {
    "backing_off": "after a failure, and tries again",
    "mutation_unresolved": "and asks again whether the change outside happened",
}
"""Why a workflow waits that goes on by itself."""

Watch = Callable[[Change], None]
Submit = Callable[[str, Command], Said]
Tell = Callable[[str, str], None]
"""Takes what a person should know, by the workflow that it is about."""
Begun = Callable[[str], None]
"""Called whenever a thread has taken its workflow over, before it drives it."""


class SharedStore:
    """A store for several threads: one call at a time. `watch` hears of every change when it is durable."""

    def __init__(self, store: Store, watch: Watch) -> None:
        self._store = store
        self._watch = watch
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        @wraps(method)
        def alone(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                answer = method(*args, **kwargs)
            if name == "commit":
                self._watch(args[0])
            return answer

        self.__dict__[name] = alone
        return alone


def shared(store: Store, watch: Watch) -> Store:
    """The store behind a lock."""
    return cast("Store", SharedStore(store, watch))


class Errand:
    """A command that waits until the active run is over, since it is refused before."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.said: Said | None = None
        self.over = threading.Event()
        self._lock = threading.Lock()

    def run(self, workflow: str, host: Host) -> bool:
        """Whether it is over: the command was decided upon, or nobody waits for it any more."""
        with self._lock:
            if not self.over.is_set():
                said = host.submit(workflow, at_once(self.command))
                if refused_for_now(said):
                    return False
                self.said = said
                self.over.set()
            return True

    def give_up(self) -> None:
        """Not before a try that is under way has ended."""
        with self._lock:
            self.over.set()


At = Literal["work", "wait", "rest", "elsewhere", "trouble"]


class Standing(NamedTuple):
    """How a workflow's thread stands."""

    at: At
    """At work; waiting for a time at which it goes on by itself; at rest until something new comes; driven by another
    host; or beginning again after something broke."""
    reason: str = ""
    until: int = 0


class Lane:
    """One workflow and the thread that drives it."""

    def __init__(
        self, workflow: str, host: Host, tell: Tell, begun: Begun, changed: Callable[[], None], look_every_s: float
    ) -> None:
        self.workflow = workflow
        self.standing = Standing("work")
        self.running = False
        self.hopeless: Exception | None = None
        self._host = host
        self._tell = tell
        self._begun = begun
        self._changed = changed
        self._look_every_s = look_every_s
        self._woken = threading.Event()
        self._stopping = False
        self._errands: deque[Errand] = deque()
        self._told: Wait | None = None
        self._breaks: list[str] = []
        """What broke since the workflow came to rest last."""
        self._outages = 0

    # -- from other threads

    def start(self) -> None:
        self.running = True
        threading.Thread(target=self._run, name=f"keepkernel {self.workflow}", daemon=True).start()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """End when the run in hand is over."""
        self._stopping = True
        self._woken.set()

    def post(self, errand: Errand) -> None:
        self._errands.append(errand)
        self._woken.set()

    @property
    def at_rest(self) -> bool:
        return self.standing.at in ("rest", "elsewhere") and not self._woken.is_set() and not self._errands

    # -- the thread

    def _run(self) -> None:
        while not self._stopping and self.hopeless is None:
            try:
                self._drive()
            except LeaseLost as error:
                self._tell(self.workflow, str(error))
            except HOPELESS as error:
                self.hopeless = error
                self._stand("trouble", str(error))
            except StoreError as error:  # It may come back, however long that takes.
                self._outages += 1
                self._begin_again(self._outages, str(error))
            except Exception as error:  # As if the process had died here: what was in hand is left to the recovery.
                self._breaks.append(f"{type(error).__name__}: {error}")
                self._begin_again(len(self._breaks), described(error))
        self.running = False
        self._changed()

    def _begin_again(self, times: int, trouble: str) -> None:
        wait_ms = backoff_ms(times, *BEGIN_AGAIN_MS)
        self._tell(self.workflow, f"broke off, and begins again in {wait_ms // 1000} s: {trouble}")
        self._stand("trouble", trouble)
        self._woken.clear()
        if not self._stopping:
            self._sleep(wait_ms / 1000)

    def _drive(self) -> None:
        if self._take_over():
            while self._go_on():
                """Until it is to stop, or something breaks."""

    def _take_over(self) -> bool:
        """Whether it may drive its workflow now; False when it is to stop before another host lets go."""
        while not self._host.start(self.workflow):
            self._woken.clear()
            self._stand("elsewhere", "another host drives it")
            if self._stopping:
                return False
            self._sleep(self._look_every_s)
        self._begun(self.workflow)
        if len(self._breaks) >= BREAKS_MAX:
            message = f"the host broke off {len(self._breaks)} times: {self._breaks[-1]}"
            self._host.submit(self.workflow, at_once(BlockWorkflow(0, message)))
        return True

    def _go_on(self) -> bool:
        """One turn, and the rest after it if there is one; False when it is to stop."""
        self._stand("work")
        self._woken.clear()  # Whatever comes from now on is seen below, or ends the sleep.
        self._run_errands()
        if self._stopping and self._nothing_in_hand():
            return False
        rest = self._host.turn(self.workflow)
        if rest is not None:
            self._forget_troubles()
            self._rest(rest)
        return True

    def _forget_troubles(self) -> None:
        self._breaks.clear()
        self._outages = 0

    def _nothing_in_hand(self) -> bool:
        self._host.flush(self.workflow)
        return gate.active(self._host.store.load(self.workflow).state) is None

    def _rest(self, rest: Wait | Idle) -> None:
        """Sleep until there is something to do. What goes on by itself is no rest (SCHED-008)."""
        seconds = self._look_every_s
        if isinstance(rest, Wait):
            left = max(0, rest.until - self._host.store.now()) / 1000
            if rest.reason in WAITS and rest != self._told:
                self._tell(self.workflow, f"waits {left:.0f} s {WAITS[rest.reason]}")
                self._told = rest
            self._stand("wait" if rest.reason in WAITS else "rest", rest.reason, rest.until)
            seconds = min(seconds, left + 0.001)
        else:
            self._stand("rest", rest.reason)
        self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        self._woken.wait(seconds)  # Whoever wants it to stop wakes it.

    def _stand(self, at: At, reason: str = "", until: int = 0) -> None:
        before, self.standing = self.standing, Standing(at, reason, until)
        if before != self.standing:
            self._changed()

    def _run_errands(self) -> None:
        """Each once. What breaks in it leaves it where it is."""
        for _ in range(len(self._errands)):
            if self._errands[0].run(self.workflow, self._host):
                self._errands.popleft()
            else:
                self._errands.rotate(-1)


def described(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).strip()


def refused_for_now(said: Said | None) -> bool:
    return said is not None and isinstance(said.outcome, Rejected) and said.outcome.reason == "run_active"


class Service:
    """Drives workflows until it is stopped. `submit` takes commands of people, from any thread."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        submit: Submit,
        tell: Tell,
        begun: Begun = lambda workflow: None,
        *,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._change = threading.Condition()
        self._submit = submit
        self.lanes = {name: Lane(name, host, tell, begun, self._changed, look_every_s) for name, host in hosts.items()}

    def start(self) -> None:
        for lane in self.lanes.values():
            lane.start()

    def wake(self, workflow: str) -> None:
        """Something was committed to this workflow."""
        if lane := self.lanes.get(workflow):
            lane.wake()

    def submit(self, workflow: str, command: Command, patience_s: float) -> Said:
        """A person's command: at once, or as soon as the active run is over when it is refused while there is one."""
        said = self._submit(workflow, command)
        lane = self.lanes.get(workflow)
        if lane is not None and refused_for_now(said):
            errand = Errand(command)
            lane.post(errand)
            errand.over.wait(patience_s)
            errand.give_up()
            said = errand.said or said
        return said

    def wait(self, *, until_idle: bool) -> None:
        """Come back when every workflow is at rest, if that is wanted, or when none can go on."""
        with self._change:
            self._change.wait_for(
                lambda: all(not lane.running or (until_idle and lane.at_rest) for lane in self.lanes.values())
            )

    def stop(self, grace_s: float) -> bool:
        """Let every run in hand come to its end; False when one is not over in time, and is left to the recovery."""
        for lane in self.lanes.values():
            lane.stop()
        with self._change:
            return self._change.wait_for(lambda: not any(lane.running for lane in self.lanes.values()), grace_s)

    def _changed(self) -> None:
        with self._change:
            self._change.notify_all()
