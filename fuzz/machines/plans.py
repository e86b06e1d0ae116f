"""Drawn workflows: how many topics and handlers, who publishes to whom, what the limits are, and what may go wrong.

Each life has a mix of its own: which faults there are at all, and how often one comes. Most holes need one fault in
the right place and a long plain course around it; a life in which everything goes wrong never gets there.
"""

from typing import Final, NamedTuple

from ...kernel.policy import Policy
from ...kernel.types import Declaration, GrantMode, Key, Publication
from .choices import Choices

FAULTS: Final[dict[str, str]] = {
    "crash": "the host dies",
    "stall": "a host is given up, and wakes later with what it had in hand",
    "late": "a call that got no answer lands later",
    "silent": "a call takes effect or is lost, and nobody hears of it",
    "refuse": "the target refuses",
    "void": "reconcile makes a call's key unusable",
    "shrug": "reconcile can not tell, or there is none",
    "wrong": "people say wrongly that a call happened, or that it did not",
    "fail": "functions of the script fail",
    "odd": "functions return what they may not, or more than fits",
    "wake": "prepare takes less than there is, or asks to be woken",
    "people": "people click about",
    "anyone": "any command at any time",
    "again": "known ids are published again",
    "redeploy": "versions with other handlers are deployed",
    "pause": "people pause, and forget for a while to resume",
    "ask": "each call wants an approval",
    "forbidden": "the tool is not granted at first",
    "line": "the line to the store breaks during a commit",
    "race": "somebody else commits between a look and a commit",
}
"""What may go wrong in a life, or go another way than the plain one."""

THEMES: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("silent", "late", "shrug", "people"),
    ("silent", "void", "shrug", "anyone"),
    ("refuse", "anyone", "stall"),
    ("fail", "anyone", "redeploy"),
    ("fail", "people", "redeploy"),
    ("crash", "stall", "late"),
    ("ask", "people", "again"),
)
"""Faults that have to do with each other; each life has one theme beside what else it has."""

WORKFLOW: Final = "w/1%2F"
"""The name of every life's workflow; it has what must be escaped where names are put together."""
TOOLS: Final = ("sheets.append", "mail.send")
ODD_TEXTS: Final = (
    '"ü\\u0000\\ud83c\\udf88"',
    '{"a":[1,2.5,null]}',
    '"' + "x" * 30 + '"',  # As long as a text may be,
    '"' + "x" * 31 + '"',  # and one more.
    "12345678901234567890",
    '"%/\\n"',
    "[9007199254740993]",  # The first whole number that JavaScript does not have,
    '"' + "ü" * 30 + '"',  # and as many characters as there may be, in more bytes.
)
HALF: Final = '"\ud83c"'
"""The first half of a pair that stands for one character."""
ODD_IDS: Final = ("ü", "a/b%2F", "🎈", "x" * 70, "'; --", " ", "\u2028", "A")


class Plan(NamedTuple):
    """What is given for one life."""

    topics: tuple[str, ...]
    handlers: tuple[Declaration, ...]
    routes: tuple[tuple[str, tuple[str, ...]], ...]
    """Handler -> the topics to which it publishes."""
    policy: Policy
    grant: GrantMode | None
    reconcilable: bool
    deadline_ms: int | None
    batch: int
    inputs: int
    faults: frozenset[str]
    rate: int
    """How often, in percent, something goes wrong where it can."""
    silence: int
    """The same for calls and questions about them, of which there are few."""

    def has(self, fault: str) -> bool:
        return fault in self.faults

    def routes_of(self, handler: str) -> tuple[str, ...]:
        return dict(self.routes).get(handler, ())

    @property
    def roots(self) -> tuple[Key, ...]:
        """Ids for events from outside, which come again and again."""
        return self.sources[: self.inputs]

    @property
    def sources(self) -> tuple[Key, ...]:
        """The same and more, for what comes later."""
        names = ODD_IDS if "odd" in self.faults else tuple(f"m{n}" for n in range(1, 9))
        return tuple(Key(self.topics[0], name) for name in names)


def draw_plan(choices: Choices) -> Plan:
    faults = draw_faults(choices)
    consumers = 1 + choices.weighted([(6, 0), (3, 1), (1, 2)])
    topics = tuple(f"t{n}" for n in range(consumers + choices.weighted([(7, 0), (1, 1)])))
    handlers, routes = list[Declaration](), list[tuple[str, tuple[str, ...]]]()
    for n in range(consumers):
        subscribes = topics[n:] if n == consumers - 1 else (topics[n],)
        handlers.append(Declaration(f"c{n}", "consumer", subscribes, has_mutate=not choices.chance(15)))
        routes.append((f"c{n}", tuple(choices.some(topics[n + 1 :], 60))))
    for n in range(choices.weighted([(3, 0), (3, 1), (1, 2)])):
        schedule = choices.weighted([(4, "interval"), (1, "cron"), (1, "once")])
        interval = choices.of((60, 1_000)) if schedule == "interval" else 0
        handlers.append(
            Declaration(f"p{n}", "producer", (), False, interval, "0 3 * * *" if schedule == "cron" else "")
        )
        routes.append((f"p{n}", topics[:1]))
    grant: GrantMode | None = None if "forbidden" in faults else "ask" if "ask" in faults else "always"
    return Plan(
        topics,
        tuple(handlers),
        tuple(routes),
        draw_policy(choices, faults),
        grant,
        not choices.chance(20),
        choices.weighted([(4, None), (1, 1), (1, 500)]),
        choices.of((3, 1, 2)),
        1 + choices.weighted([(4, 0), (3, 1), (2, 2), (1, 4)]),
        faults,
        choices.of((5, 5, 15, 40)),
        choices.of((25, 50, 90)),
    )


def draw_faults(choices: Choices) -> frozenset[str]:
    """Some faults, often few: a fault that is always there hides the holes behind it."""
    share = choices.of((30, 15, 60, 100))
    return frozenset((*choices.some(tuple(FAULTS), share), *choices.of(THEMES)))


def draw_policy(choices: Choices, faults: frozenset[str]) -> Policy:
    """Limits as low as they can be and still be reached, or the law's own."""
    if choices.chance(25):
        return Policy()
    return Policy(
        backoff_base_ms=choices.of((10, 0, 1)),
        backoff_max_ms=choices.of((30, 15)),
        transient_retries=choices.of((1, 0, 2, 5)),
        logic_failures=choices.of((2, 1, 3)),
        reconcile_base_ms=10,
        reconcile_max_ms=choices.of((25, 15)),
        reconcile_attempts=choices.of((2, 1, 3)),
        send_within_ms=50,
        call_deadline_ms=30,
        clock_skew_ms=5,
        wake_min_ms=10,
        wake_max_ms=100,
        session_runs=choices.of((4, 1, 2, 100)),
        peek_default=choices.of((100, 1)),
        peek_max=choices.of((1_000, 2)),
        json_max_chars=len(ODD_TEXTS[2]) if "odd" in faults else 1_000_000,
    )


def publication(key: Key, title: str = "t", payload: str = "1") -> Publication:
    return Publication(key, title, payload)
