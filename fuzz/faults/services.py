"""Faults in the service: who is not woken, who is told too early, who gives up and is not heard."""

from functools import wraps
from typing import Any, Final

from ...adapters.host import Host, at_once
from ...adapters.service import Errand, Lane, Service, SharedStore, refused_for_now
from ...kernel.ports import LeaseLost
from ...kernel.schedule import Idle, Wait
from .base import Fault, Patch

drive, rest = Lane._drive, Lane._rest


def look_once_more(self: Lane, found: Wait | Idle) -> None:
    self._woken.clear()
    rest(self, found)


def nobody_is_woken(self: Service, workflow: str) -> None:
    """It looks now and then."""


def sleep_as_ever(self: Lane, seconds: float) -> None:
    self._woken.wait(self._look_every_s)


def tell_first(self: SharedStore, name: str) -> Any:
    method = getattr(self._store, name)

    @wraps(method)
    def alone(*args: Any, **kwargs: Any) -> Any:
        if name == "commit":
            self._watch(args[0])
        with self._lock:
            return method(*args, **kwargs)

    return alone


def all_at_once(self: SharedStore, name: str) -> Any:
    method = getattr(self._store, name)

    @wraps(method)
    def together(*args: Any, **kwargs: Any) -> Any:
        answer = method(*args, **kwargs)
        if name == "commit":
            self._watch(args[0])
        return answer

    return together


def until_another_drives(self: Lane) -> None:
    try:
        drive(self)
    except LeaseLost:
        self._stopping = True
        raise


def nothing_is_forgotten(self: Lane) -> None:
    self._outages = 0


def go_away(self: Errand) -> None:
    """Whoever waited waits no longer."""


def first_answer_counts(self: Errand, workflow: str, host: Host) -> bool:
    with self._lock:
        if not self.over.is_set():
            self.said = host.submit(workflow, at_once(self.command))
            self.over.set()
        return True


def taken_before_it_is_done(self: Lane) -> None:
    for _ in range(len(self._errands)):
        errand = self._errands.popleft()
        if not errand.run(self.workflow, self._host):
            self._errands.append(errand)


def try_once(self: Lane) -> None:
    while self._errands:
        self._errands.popleft().run(self.workflow, self._host)


def give_up_outside(self: Errand, workflow: str, host: Host) -> bool:
    if self.over.is_set():
        return True
    said = host.submit(workflow, at_once(self.command))
    if refused_for_now(said):
        return False
    self.said = said
    self.over.set()
    return True


def nothing_is_ever_in_hand(self: Lane) -> bool:
    return True


FAULTS: Final = (
    Fault(
        "wake-up-lost",
        "service",
        "What comes while a thread looks around does not wake it.",
        "the bell is silenced right before the sleep, where it looks tidy",
        patches=(Patch(Lane, "_rest", look_once_more),),
    ),
    Fault(
        "nobody-woken",
        "service",
        "An event waits until its workflow looks by itself.",
        "every few seconds is soon enough",
        patches=(Patch(Service, "wake", nobody_is_woken),),
    ),
    Fault(
        "sleeps-as-ever",
        "service",
        "A thread sleeps its usual time, whatever it waits for.",
        "one timer for all",
        patches=(Patch(Lane, "_sleep", sleep_as_ever),),
    ),
    Fault(
        "told-too-early",
        "service",
        "A workflow is woken for a change before the change is there.",
        "so that it is awake in time",
        patches=(Patch(SharedStore, "__getattr__", tell_first),),
    ),
    Fault(
        "store-without-lock",
        "service",
        "Several threads use a store at once.",
        "the driver of the database is said to have a lock of its own",
        patches=(Patch(SharedStore, "__getattr__", all_at_once),),
    ),
    Fault(
        "ends-with-its-lease",
        "service",
        "A thread ends for good when another host has driven its workflow.",
        "the message says to stop this one",
        patches=(Patch(Lane, "_drive", until_another_drives),),
    ),
    Fault(
        "breaks-add-up",
        "service",
        "What broke long ago still counts, so that the fifth bug of a year blocks a workflow.",
        "nothing says when it is over",
        patches=(Patch(Lane, "_forget_troubles", nothing_is_forgotten),),
    ),
    Fault(
        "done-after-all",
        "service",
        "A command is done though its caller has been told that it was refused.",
        "the caller has gone, so there is nothing to do",
        patches=(Patch(Errand, "give_up", go_away),),
    ),
    Fault(
        "done-while-giving-up",
        "service",
        "A command is done while its caller gives up, and the caller is told that it was refused.",
        "a flag was taken for a lock",
        patches=(Patch(Errand, "run", give_up_outside),),
    ),
    Fault(
        "no-patience",
        "service",
        "A command that is refused during a run is not tried again after it.",
        "an answer is an answer",
        patches=(Patch(Errand, "run", first_answer_counts),),
    ),
    Fault(
        "command-lost",
        "service",
        "A command that has to wait is taken from the queue and not put back.",
        "the queue was emptied in a loop",
        patches=(Patch(Lane, "_run_errands", try_once),),
    ),
    Fault(
        "command-lost-by-a-break",
        "service",
        "A command that breaks when it is tried is forgotten.",
        "it was taken from the queue first, as one does",
        patches=(Patch(Lane, "_run_errands", taken_before_it_is_done),),
    ),
    Fault(
        "stops-in-the-middle",
        "service",
        "A service that is stopped leaves the run in hand where it is.",
        "the recovery will see to it",
        patches=(Patch(Lane, "_nothing_in_hand", nothing_is_ever_in_hand),),
    ),
)
