"""Which rules a step shows, which rule a difference breaks, and which rules a kit can not see."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from ...kernel import boundary
from ...kernel import commands as c
from ...kernel.commands import NAMES, Command
from ...kernel.types import Accepted, Outcome, State
from ...spec import moves

SPEC_VERSION: Final = "1.0"
SPEC: Final = Path(moves.__file__).parent

# --- which rules a step shows ------------------------------------------------------------------------

MACHINE_RULES: Final = {
    "ConsumerPhase": ("PHASE-001",),
    "ProducerPhase": ("PHASE-002",),
    "RunStatus": ("RUN-001",),
    "EventStatus": ("EVENT-001", "EVENT-002"),
    "MutationStatus": ("MUT-001",),
    "SessionStatus": ("SESS-001",),
    "WorkflowStatus": ("WORK-001",),
}
SIDES: Final = {"UNCERTAIN": "BOUND-001", "AFTER": "BOUND-002", "BEFORE": "BOUND-003"}


def shown(before: State, command: Command, outcome: Outcome) -> tuple[str, ...]:
    """The rules that the outcome names, and those that can be seen in what changed; the named ones first."""
    if not isinstance(outcome, Accepted):
        deploys_two = isinstance(command, c.Deploy) and any(h.interval_ms and h.cron for h in command.handlers)
        return (outcome.rule, "STEP-002", *(("PROD-001",) if deploys_two else ()))
    return tuple(dict.fromkeys((*outcome.rules, *seen_in(before, command, outcome))))


def seen_in(before: State, command: Command, accepted: Accepted) -> Iterator[str]:
    yield "STEP-001"
    after = accepted.state
    for move in sorted(moves.moves(before, accepted)):
        yield from MACHINE_RULES[move.machine]
    if any(accepted.retired):
        yield "HOST-009"
    if accepted.retired.mutation is not None and accepted.retired.mutation.resolved_by == "never_sent":
        yield "MUT-006"
    if before.error is not None and after.error != before.error:
        yield "WORK-002"
    if any(e.causes and e not in before.events for e in after.events):
        yield "EVENT-011"
    if isinstance(command, c.CommitConsumer | c.CommitProducer) and command.state is not None:
        yield "COMMIT-004"
    if isinstance(command, c.CreateRun | c.CreateRetry):
        yield "RUN-009"
    if isinstance(command, c.EndRun) and before.run is not None:
        yield SIDES[boundary.side(before.run, before.mutation)]
    if isinstance(command, c.RecordMutation):
        yield from ("MUT-014", "POLICY-001", "POLICY-005")
    if isinstance(command, c.Prepared) and command.wake_at is not None:
        yield "POLICY-003"
    retried = isinstance(command, c.ReconcileRetry) and not command.early
    if retried or after.backoff_until > before.backoff_until:
        yield "POLICY-002"
    if isinstance(command, c.EndRun) and before.mutation and before.mutation.resolved_by == "inline":
        yield "FAIL-006"
    yield from seen_in_rows(before, after)


def seen_in_rows(before: State, after: State) -> Iterator[str]:
    was = {h.declared.name: h for h in before.handlers}
    for row in after.handlers:
        old = was.get(row.declared.name)
        if old is None:
            continue
        if row.dirty and not old.dirty:
            yield "SCHED-005"
        if old.dirty and not row.dirty:
            yield "SCHED-006"
        if row.transient_failures > old.transient_failures:
            yield "FAIL-003"
        if row.logic_failures > old.logic_failures:
            yield "FAIL-004"
        if (row.transient_failures, row.logic_failures) < (old.transient_failures, old.logic_failures):
            yield "FAIL-005"


# --- which rule a difference breaks ------------------------------------------------------------------

FIELD_RULES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"policy\b", ("POLICY-001",)),
    (r"backoff_until", ("FAIL-003", "POLICY-002", "USER-004")),
    (r"handlers\.transient_failures", ("FAIL-006", "FAIL-003", "FAIL-005", "USER-004")),
    (r"handlers\.logic_failures", ("FAIL-004", "FAIL-005", "USER-004")),
    (r"handlers\.dirty", ("SCHED-005", "SCHED-006", "USER-003", "EVENT-010")),
    (r"handlers\.wake_at", ("SCHED-007", "POLICY-003")),
    (r"handlers\.due_at", ("PROD-003", "PROD-002", "USER-003", "WORK-007")),
    (r"handlers\.state", ("COMMIT-004", "COMMIT-002")),
    (r"handlers", ("WORK-007", "WORK-006")),
    (r"mutation\.(send_by|may_land_until)", ("MUT-004", "POLICY-005")),
    (r"mutation\.key|effects\.key", ("MUT-014",)),
    (r"mutation\.digest", ("PERM-002",)),
    (r"mutation\.(attempts|next_attempt_at)", ("MUT-011", "MUT-013", "POLICY-002", "MUT-007", "BOUND-006")),
    (r"mutation\.reconcilable", ("MUT-012", "MUT-002")),
    (r"retired\.(run|mutation|session)$", ("HOST-009",)),
    (r"retired\.mutation\.status|retired\.mutation\.resolved_by", ("MUT-006", "MUT-010")),
    (r"mutation", ("BOUND-006", "MUT-015", "MUT-016", "MUT-010", "MUT-007", "MUT-013", "MUT-002", "MUT-005")),
    (r"approvals", ("PERM-005", "PERM-004", "PERM-006")),
    (r"grants", ("PERM-001", "PERM-007")),
    (r"maintenance", ("WORK-005", "FAIL-004", "USER-004", "WORK-007", "BOUND-006")),
    (r"error\.request", ("PERM-003",)),
    (
        r"error",
        (
            "BOUND-006", "PERM-007", "PERM-004", "PERM-008", "RUN-008", "WORK-004", "USER-004", "WORK-002", "WORK-003",
            "WORK-007",
        ),
    ),
    (r"retired\.session\.status", ("SESS-004", "SESS-005")),
    (r"session", ("SESS-005", "SESS-002", "SESS-004", "SESS-003")),
    (r"events\.causes|run\.causes", ("EVENT-011",)),
    (r"events\.(title|payload)", ("EVENT-010", "EVENT-007")),
    (r"events\.seq|next_seq", ("EVENT-010", "EVENT-007")),
    (
        r"events",
        (
            "BOUND-006", "BOUND-005", "BOUND-004", "RETRY-003", "MUT-015", "RETRY-005", "USER-001", "PERM-006",
            "EVENT-005", "EVENT-003", "EVENT-007", "COMMIT-002",
        ),
    ),
    (r"run\.version", ("RUN-009",)),
    (r"run\.status", ("RUN-007", "RUN-001")),
    (r"run\.phase", ("PHASE-001", "PHASE-002", "MUT-010", "RETRY-002")),
    (r"run\.(outcome|result)", ("RETRY-002", "MUT-015", "MUT-016", "MUT-010")),
    (r"run\.retry_of|run\.created_at", ("RETRY-002",)),
    (r"run", ("BOUND-005", "BOUND-004", "BOUND-006", "RETRY-001", "RETRY-005", "RUN-005", "COMMIT-002")),
    (r"topics|version", ("WORK-006", "WORK-007")),
    (r"status", ("WORK-001",)),
)  # fmt: skip
"""A field that differs -> the rules that speak of it, those that say most first."""

UNCALLED_FOR: Final = {
    "handlers.transient_failures": "FAIL-005",
    "handlers.logic_failures": "FAIL-005",
    "events.status": "EVENT-002",
    "events.owner": "EVENT-002",
    "error": "WORK-002",
}
"""The rule that forbids a change of the field in a step that has nothing to do with it."""


def blamed(fields: Iterable[str], fired: tuple[str, ...]) -> tuple[str, ...]:
    """The rules that a difference in these fields breaks, the likeliest first: of those that the step shows."""
    found: list[str] = []
    for field in fields:
        rules = next((rules for pattern, rules in FIELD_RULES if re.search(rf"(^|\.){pattern}", field)), ())
        found += [rule for rule in rules if rule in fired] or [UNCALLED_FOR.get(field, rule) for rule in rules[:1]]
    general = {"STEP-001", "STEP-002", "HOST-009"}
    ranked = sorted(dict.fromkeys(found), key=lambda rule: (rule not in fired, -found.count(rule), found.index(rule)))
    return tuple(dict.fromkeys((*ranked, *(rule for rule in fired if rule not in general)))) or ("STEP-001",)


# --- which rules there are ---------------------------------------------------------------------------


@cache
def titles() -> dict[str, str]:
    """Every rule of the specification, and what its heading calls it."""
    found = {}
    for page in sorted(SPEC.glob("*.md")):
        for match in re.finditer(r"^### ([A-Z]+-\d{3}) (.+)$", page.read_text(), re.MULTILINE):
            found[match[1]] = match[2]
    return found


@cache
def reasons_of(command: str) -> frozenset[str]:
    """Every reason that the vectors know for rejecting this command."""
    known = json.loads((SPEC / "vectors" / "reasons.json").read_text())
    return frozenset(name for name, reason in known.items() if command in reason["commands"])


def in_words(rule: str) -> str:
    """A rule as its page has it: the heading and the first sentences.

    >>> in_words("MUT-003").startswith("MUT-003 ")
    True
    """
    for page in sorted(SPEC.glob("*.md")):
        match = re.search(rf"^### {rule} .+?\n((?:(?!#).+\n?)+)", page.read_text(), re.MULTILINE)
        if match:
            return f"{rule} {titles()[rule]}. {' '.join(match[1].split())}"
    return rule


AT_BEHAVIOUR: Final = "it is a duty of the host and can be seen only at level behaviour"
UNSEEN: Final[dict[str, str]] = {
    **dict.fromkeys(("HOST-001", "HOST-003", "HOST-006", "HOST-010"), AT_BEHAVIOUR),
    **dict.fromkeys(("SCHED-002", "SCHED-004", "SCHED-008", "FAIL-001", "FAIL-002", "LIVE-002"), AT_BEHAVIOUR),
    **dict.fromkeys(("SCRIPT-006", "SCRIPT-007"), AT_BEHAVIOUR),
    "HOST-002": "the kit's clock stands still from a call's record to its departure, so no call is late",
    "HOST-004": "times come from the kit, whose clock never goes backwards",
    "HOST-005": "that an id was never used before can not be seen in a finite run",
    "HOST-008": "the kit sends one command at a time to one process",
    "HOST-011": "it allows a host to share commits, and demands nothing",
    "STEP-003": "the kit gives and compares all events, so no window is smaller than the workflow",
    "LIVE-001": "it speaks of all states together; the checker proves it of the reference",
    "POLICY-004": "intervals reach a command as milliseconds; their text is the loader's",
    "REC-004": "it speaks of a bug that no sequence of commands brings about",
    **dict.fromkeys(
        [f"SCRIPT-{n:03}" for n in (1, 2, 3, 4, 5, 8, 9)],
        "scripts are not run: the kit answers for them",
    ),
    **dict.fromkeys(
        [f"CODEC-{n:03}" for n in range(1, 10)],
        "it is about texts and documents of the reference; a driver sees only well-formed ones",
    ),
}
"""Rules that level transitions does not show, and why."""

UNSEEN_REASONS: Final[dict[str, str]] = {
    "id_empty": "a document with an empty name is refused before it is a command (CODEC-006)",
}
"""Reasons that no document can bring about, and why."""


def seen_at(level: str) -> tuple[str, ...]:
    """The rules that a run at this level can show."""
    hidden = {rule for rule, why in UNSEEN.items() if level != "behaviour" or why != AT_BEHAVIOUR}
    return tuple(rule for rule in titles() if rule not in hidden)


def command_name(command: Command) -> str:
    return NAMES[type(command)]
