"""The set-ups that the checker explores: which handlers there are, and what may go wrong around them."""

from typing import Final, NamedTuple

from ..kernel.commands import Command, Deploy, Grant, Publish, Resume
from ..kernel.policy import Policy
from ..kernel.step import step
from ..kernel.types import Accepted, Declaration, GrantMode, Key, Publication, State, new_workflow

TOOL: Final = "sheets.append"
PARAMS: Final = "{}"

# Limits are as low as they can be and still be reached, because a count of five shows nothing that a count of
# one does not. Times are only compared, so their sizes do not matter; see `abstract.py`.
NO_LIMIT: Final = 1_000_000
POLICY: Final = Policy(
    transient_retries=1, logic_failures=2, reconcile_attempts=1, session_runs=2, json_max_chars=len("null")
)

FEATURES: Final[dict[str, str]] = {
    "crash": "the host dies at any point, also during recovery, any number of times",
    "late": "a call that got no answer is still travelling and lands later, or never",
    "stall": "a host stalls before its call, is given up, wakes, and calls after all",
    "void": "a connector makes a call's key unusable at its target",
    "wrong": "people say wrongly that a call happened, or that it did not",
    "second": "another host reconciles at the same time",
    "failures": "handlers fail in each class",
    "counts": "failures in a row are counted, back off, and block",
    "permission": "no tool is granted until a handler has asked for it",
    "approval": "the tool asks for approval of each call",
    "pause": "the user pauses and resumes",
    "skip": "the user skips pending events",
    "wake": "prepare asks to be woken",
    "budget": "a session has a limit of runs",
    "republish": "known event ids are published again",
    "redeploy": "a version without the first handler is deployed, and the whole again",
    "manual": "maintenance and blocks by hand, run now, retry",
    "coalesced": "the host holds back the steps that may wait, and loses them with a crash or a conflict",
    "probe": "commands that come at the wrong time, for runs that are over, or twice",
}
"""What a search may explore beside the plain course of things."""

ALL: Final = frozenset(FEATURES)
BOOKKEEPING: Final = frozenset({"counts", "budget", "manual", "redeploy"})
PERMISSION: Final = frozenset({"crash", "failures", "permission", "approval", "pause", "skip", "republish", "probe"})
"""What multiplies every space and touches little: explored in set-ups of its own."""
CORE: Final = ALL - BOOKKEEPING - {"coalesced", "permission"}


class Setup(NamedTuple):
    """One workflow to explore."""

    name: str
    text: str
    handlers: tuple[Declaration, ...]
    topics: tuple[str, ...]
    events: int
    """How many inputs there are; their producer publishes them, or they are there from the start."""
    features: frozenset[str]
    reconcilable: bool = True
    whole_batch: bool = False
    """Prepare takes all that is pending, or nothing."""
    policy: Policy = POLICY

    @property
    def inputs(self) -> tuple[Key, ...]:
        return tuple(Key("mail", f"m{n}") for n in range(1, self.events + 1))

    @property
    def outputs(self) -> tuple[Key, ...]:
        """What `next` may publish: one event for each input, when anybody subscribes."""
        return tuple(Key("out", f"o{n}") for n in range(1, self.events + 1)) if "out" in self.topics else ()

    def has(self, feature: str) -> bool:
        return feature in self.features

    @property
    def limits(self) -> Policy:
        """The policy; a limit that is not explored is out of reach."""
        policy = self.policy
        if not self.has("counts"):
            policy = policy._replace(backoff_base_ms=0, transient_retries=NO_LIMIT, logic_failures=NO_LIMIT)
        return policy if self.has("budget") else policy._replace(session_runs=NO_LIMIT)

    @property
    def mode(self) -> GrantMode:
        """How tools are granted here."""
        return "ask" if self.has("approval") else "always"

    def deploy(self, now: int) -> Deploy:
        return Deploy(now, "v1", self.topics, self.handlers)

    def deploy_less(self, now: int) -> Deploy:
        """A version without the first handler."""
        return Deploy(now, "v1", self.topics, self.handlers[1:])

    def initial(self, now: int) -> State:
        """Deployed and active, the tool granted or still to be asked for, and all inputs pending without a producer."""
        commands: list[Command] = [self.deploy(now), Resume(now)]
        if not self.has("permission"):
            commands.append(Grant(now, TOOL, self.mode))
        if all(h.kind == "consumer" for h in self.handlers):
            commands += [Publish(now, publication(key)) for key in self.inputs]
        state = new_workflow("w", self.limits)
        for command in commands:
            outcome = step(state, command)
            if not isinstance(outcome, Accepted):
                raise ValueError(f"the set-up {self.name} is not accepted: {outcome}")
            state = outcome.state
        return state


def publication(key: Key, payload: str = "1") -> Publication:
    return Publication(key, "t", payload)


POLL: Final = Declaration("poll", "producer", interval_ms=1_000)
FILE: Final = Declaration("file", "consumer", ("mail",), has_mutate=True)
SINK: Final = Declaration("sink", "consumer", ("out",), has_mutate=True)
NOTE: Final = Declaration("note", "consumer", ("mail",))

SETUPS: Final[dict[str, Setup]] = {
    s.name: s
    for s in (
        Setup("main", "a producer and a consumer", (POLL, FILE), ("mail",), 1, CORE),
        Setup("consumer", "one consumer", (FILE,), ("mail",), 1, CORE),
        Setup("chain", "two chained consumers", (FILE, SINK), ("mail", "out"), 1, CORE),
        Setup("batch", "a batch of two", (FILE,), ("mail",), 2, CORE, whole_batch=True),
        Setup("no-mutate", "a consumer without mutate", (NOTE,), ("mail",), 1, CORE),
        Setup(
            "bookkeeping",
            "counts, budgets and what people do by hand",
            (FILE,),
            ("mail",),
            1,
            BOOKKEEPING | {"crash", "failures", "wake", "probe"},
        ),
        Setup(
            "permission",
            "a tool that is not granted yet",
            (FILE,),
            ("mail",),
            1,
            PERMISSION,
        ),
        Setup(
            "coalesced",
            "a host that gathers steps",
            (POLL, FILE),
            ("mail",),
            1,
            CORE | {"coalesced"},
        ),
        Setup("no-reconcile", "a tool without reconcile", (FILE,), ("mail",), 1, CORE, reconcilable=False),
    )
}


def setup(name: str, events: int = 0, features: frozenset[str] | None = None) -> Setup:
    """A set-up by name, with another number of events or other features."""
    chosen = SETUPS[name]
    unknown = (features or frozenset()) - ALL
    if unknown:
        raise ValueError(f"unknown features {sorted(unknown)}; there are {sorted(ALL)}")
    return chosen._replace(
        events=max(events, chosen.events) if chosen.whole_batch else events or chosen.events,
        features=chosen.features if features is None else features,
    )
