"""Faults in the host: what it does too early, once too often, too late, or not at all."""

from typing import Final

from ...adapters.host import Host, at_once
from ...kernel import gate
from ...kernel.commands import Command, Publish
from ...kernel.ports import Change, Conflict, Disconnected, Lease
from ...kernel.respond import Answer, Failed, Finished, Unknown, may_wait, must_be_durable
from ...kernel.types import CallHandler, Effect, Reconcile, Send
from ...spec.variants import Swap
from .base import Fault, Patch

start, answer, flush = Host.start, Host._answer, Host.flush


def everything_may_wait(command: Command) -> bool:
    return True


def nothing_must_be_durable(effect: Effect) -> bool:
    return False


def start_without_a_look(self: Host, workflow: str) -> bool:
    return self._renew(workflow)


def start_with_the_call(self: Host, workflow: str) -> bool:
    state = self.store.load(workflow).state
    run, record = gate.active(state), state.mutation
    if run is not None and record is not None and record.status == "in_flight":
        self.connectors.send(Send(run.id, record.tool, record.params, record.key, record.send_by))
    return start(self, workflow)


def answer_at_any_time(self: Host, workflow: str, effect: CallHandler | Send | Reconcile) -> Answer:
    return self.connectors.send(effect) if isinstance(effect, Send) else answer(self, workflow, effect)


def silence_is_a_no(self: Host, workflow: str, effect: CallHandler | Send | Reconcile) -> Answer:
    said = answer(self, workflow, effect)
    return Failed("timeout", "no answer came") if isinstance(said, Unknown) and isinstance(effect, Send) else said


def ask_until_it_answers(self: Host, workflow: str, effect: CallHandler | Send | Reconcile) -> Answer:
    said = answer(self, workflow, effect)
    return answer(self, workflow, effect) if isinstance(said, Unknown) and isinstance(effect, Send) else said


def publish_first(self: Host, workflow: str, effect: CallHandler | Send | Reconcile) -> Answer:
    said = answer(self, workflow, effect)
    if not isinstance(said, Finished):
        return said
    for publication in said.publications:
        self.submit(workflow, at_once(Publish(0, publication)))
    return said._replace(publications=())


def lost_answer_is_an_answer(self: Host, change: Change, lease: Lease | None) -> None:
    try:
        self.store.commit(change, lease)
    except Disconnected:
        """It was sent, so it will have arrived."""


def lost_answer_is_a_new_change(self: Host, change: Change, lease: Lease | None) -> None:
    try:
        self.store.commit(change, lease)
    except Disconnected:
        again = change._replace(id=self.fresh_id(), base=self.store.load(change.workflow).version)
        self.store.commit(again, lease)


def conflict_is_overcome(self: Host, change: Change, lease: Lease | None) -> None:
    try:
        self.store.commit(change, lease)
    except Conflict:
        self.store.commit(change._replace(base=self.store.load(change.workflow).version), lease)


def conflict_goes_unseen(self: Host, workflow: str, *, leased: bool = True) -> bool:
    """What was not committed is acted upon all the same."""
    flush(self, workflow, leased=leased)
    return True


def never_renewed(self: Host, workflow: str, until: int = 0) -> bool:
    return True


FAULTS: Final = (
    Fault(
        "effect-before-commit",
        "host",
        "A call leaves before the transition that sends it is durable.",
        "commits were gathered, and the one that must not wait was gathered as well",
        swaps=(Swap(may_wait, everything_may_wait), Swap(must_be_durable, nothing_must_be_durable)),
    ),
    Fault(
        "no-recovery",
        "host",
        "A host goes on without looking at what the last one left.",
        "the state says everything, so there is nothing to recover",
        patches=(Patch(Host, "start", start_without_a_look),),
    ),
    Fault(
        "calls-again-at-start",
        "host",
        "A host that finds a call without an answer makes it once more.",
        "at least once was taken for good enough",
        patches=(Patch(Host, "start", start_with_the_call),),
    ),
    Fault(
        "sends-at-any-time",
        "host",
        "A host does not look at the clock before it sends.",
        "the kernel has looked a moment ago",
        patches=(Patch(Host, "_answer", answer_at_any_time),),
    ),
    Fault(
        "silence-is-a-no",
        "host",
        "A call that times out is reported as failed.",
        "a timeout is an error, and an error is a failure",
        patches=(Patch(Host, "_answer", silence_is_a_no),),
    ),
    Fault(
        "calls-until-it-answers",
        "host",
        "A call that gets no answer is made a second time.",
        "every library for requests has such a switch",
        patches=(Patch(Host, "_answer", ask_until_it_answers),),
    ),
    Fault(
        "publishes-first",
        "host",
        "What a handler publishes is published at once, and not by its commit.",
        "publish is a command, so it was submitted as one",
        patches=(Patch(Host, "_answer", publish_first),),
    ),
    Fault(
        "lost-answer-ignored",
        "host",
        "A commit whose answer was lost is taken for done.",
        "most of the time it was",
        patches=(Patch(Host, "_commit", lost_answer_is_an_answer),),
    ),
    Fault(
        "lost-answer-repeated",
        "host",
        "A commit whose answer was lost is written again as another change.",
        "a retry gets a new id, as all requests do",
        patches=(Patch(Host, "_commit", lost_answer_is_a_new_change),),
    ),
    Fault(
        "conflict-overcome",
        "host",
        "After a conflict the same change is written on top of the new state.",
        "it was accepted, after all",
        patches=(Patch(Host, "_commit", conflict_is_overcome),),
    ),
    Fault(
        "conflict-unseen",
        "host",
        "After a conflict the host acts as if its change had been written.",
        "the flag that says so was dropped in a refactoring",
        patches=(Patch(Host, "flush", conflict_goes_unseen),),
    ),
    Fault(
        "drives-without-a-lease",
        "host",
        "A host drives a workflow without asking whether another does.",
        "versions keep them apart, and the call outside was forgotten",
        patches=(Patch(Host, "_renew", never_renewed),),
    ),
)
