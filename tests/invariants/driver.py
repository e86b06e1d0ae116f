"""Play commands against a kernel, as it is or in a variant, and ask every invariant at each step."""

from collections.abc import Callable
from typing import NamedTuple

from flow import FILE, POLL, TELL, TOOL, TOPICS, mail

from keepkernel import (
    Accepted,
    ApplyMutation,
    Begin,
    Command,
    CommitConsumer,
    CreateRun,
    Deploy,
    Emitting,
    EndRun,
    Exhaust,
    Grant,
    Mutating,
    Outcome,
    Prepared,
    Publication,
    Publish,
    RecordMutation,
    Resume,
    Send,
    SendMutation,
    StartSession,
    State,
    new_workflow,
    step,
)
from keepkernel.spec.invariants import Ghost, Outside, Step, Violation, check_step
from keepkernel.spec.variants import Swap, swapped

Trace = tuple[Command, ...]
Hold = Callable[[State, Command, Outcome], State]


class Played(NamedTuple):
    steps: tuple[Step, ...]
    ghosts: tuple[Ghost, ...]
    broken: tuple[tuple[Violation, ...], ...]
    """What each step breaks."""

    def subjects(self) -> list[tuple[Step, State, Outside]]:
        return [(one, one.after, Outside(one.after, ghost)) for one, ghost in zip(self.steps, self.ghosts, strict=True)]


def what_was_accepted(before: State, command: Command, outcome: Outcome) -> State:
    """What an honest runtime holds after a command."""
    return outcome.state if isinstance(outcome, Accepted) else before


def play(trace: Trace, *swaps: Swap, lands: bool = True, hold: Hold = what_was_accepted) -> Played:
    """A workflow from its creation, in a world in which every call takes effect, or none does."""
    state, ghost = new_workflow("w"), Ghost()
    steps, ghosts, broken = [], [], []
    with swapped(*swaps):
        for command in trace:
            outcome = step(state, command)
            sent = isinstance(outcome, Accepted) and any(isinstance(e, Send) for e in outcome.effects)
            if sent and lands and state.run is not None:
                ghost = ghost._replace(landed=ghost.landed + state.run.reserved)
            steps.append(Step(state, command, outcome, hold(state, command, outcome)))
            ghosts.append(ghost)
            broken.append(check_step(steps[-1], ghost))
            state = steps[-1].after
    return Played(tuple(steps), tuple(ghosts), tuple(broken))


# --- the life of one run, as far as one likes ----------------------------------------------------------

NOW = 1_000
LATE = NOW + 500_000
"""Every deadline, backoff and time to land has passed."""

M1 = mail("m1")


def mail_again(title: str = "title of m1") -> Publish:
    return Publish(NOW, Publication(M1[0], title, "{}"))


def start(number: int, now: int = NOW, handler: str = "file") -> Trace:
    return StartSession(now, f"s{number}"), CreateRun(now, f"r{number}", f"s{number}", handler)


def ends(status: str, run: str = "r1", now: int = NOW, **fields: str) -> EndRun:
    return EndRun(now, run, status, **fields)


def sending(run: str = "r1", now: int = NOW, reconcilable: bool = True) -> Trace:
    """From the creation of a run to its call."""
    return (
        Begin(now, run),
        Prepared(now, run, M1, '{"a":1}', "a title"),
        Mutating(now, run),
        RecordMutation(now, run, TOOL, "{}", reconcilable),
        SendMutation(now, run),
    )


UNGRANTED = (Deploy(NOW, "v1", TOPICS, (FILE, TELL, POLL)), Resume(NOW), mail_again())
DEPLOYED = (*UNGRANTED, Grant(NOW, TOOL))
STARTED = (*DEPLOYED, *start(1))
PREPARING, PREPARED, MUTATING, RECORDED, SENT = ((*STARTED, *sending()[:n]) for n in range(1, 6))
MUTATED = (*SENT, ApplyMutation(NOW, "r1", "call", '"ok"'))
EMITTING = (*MUTATED, Emitting(NOW, "r1"))
COMMITTED = (*EMITTING, CommitConsumer(NOW, "r1", '{"n":1}'))

AFTER = (*MUTATED, ends("paused:transient"))
UNCERTAIN = (*SENT, ends("crashed"))
INDETERMINATE = (*STARTED, *sending(reconcilable=False), ends("crashed"))
EXHAUSTED = (*UNCERTAIN, Exhaust(NOW, "r1", no_method=True))
ASKED = (*UNGRANTED, Grant(NOW, TOOL, "ask"), *start(1), *sending(), ends("paused:approval", cause="request"))
