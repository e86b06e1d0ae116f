"""One answer of a runtime against the law: whether it is the same, and if not, which rule is broken and how badly."""

import json
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from ...kernel.codec import DecodeError, from_plain, to_plain
from ...kernel.commands import Command
from ...kernel.reasons import REASONS
from ...kernel.step import step
from ...kernel.types import Accepted, Outcome, Rejected, Retired, State
from ...spec.invariants import ON_STATES, ON_STEPS, Step, violations
from ...spec.readings import READINGS, all_swaps
from ...spec.variants import swapped
from ..law import expected
from .profile import MESSAGES, Profile
from .rules import blamed, command_name, reasons_of, shown

Json = dict[str, Any]

KINDS: Final = (
    "it lost what it had answered",
    "it did half a step",
    "another state",
    "accepted, and the law rejects",
    "rejected, and the law accepts",
    "changed by a rejected command",
    "other effects",
    "other rows leave",
    "another recovery",
    "another ask",
    "outside",
    "no rest",
    "another reason",
    "not a document",
    "hang",
    "died",
    "garbled",
    "out of order",
    "flood",
    "driver error",
    "not started",
    "unsupported",
)
"""What can be wrong, the worst first, as far as no invariant is broken."""


ONE_CAUSE: Final = frozenset(
    {
        "another state",
        "another recovery",
        "accepted, and the law rejects",
        "rejected, and the law accepts",
        "other effects",
        "other rows leave",
    }
)
"""Ways in which one broken rule shows."""


class Row(NamedTuple):
    """One place where the two differ."""

    field: str
    law: str
    runtime: str


class Divergence(NamedTuple):
    kind: str
    rules: tuple[str, ...]
    """What is broken: first the rule that says most about it."""
    command: str
    text: str
    rows: tuple[Row, ...] = ()
    invariants: tuple[str, ...] = ()
    """What the runtime's own state or step breaks, in words; empty when it is only the letter."""

    @property
    def rule(self) -> str:
        return self.rules[0] if self.rules else ""

    @property
    def cause(self) -> tuple[str, str]:
        """Divergences with the same cause are told once: a rule may be broken in many steps."""
        return "" if self.kind in ONE_CAUSE else self.kind, self.rule or self.command

    @property
    def severity(self) -> tuple[bool, int]:
        return not self.invariants, KINDS.index(self.kind)


# --- what is compared --------------------------------------------------------------------------------

SORTED: Final = {"events": "seq", "handlers": "declared", "grants": "tool", "approvals": "digest", "topics": ""}
"""Lists whose order does not matter, and what puts them in order."""


@lru_cache(maxsize=10_000)
def plain_row(row: Any) -> Any:
    return to_plain(row)


def plain_state(state: State) -> Json:
    """A state as a document; its rows are made once, because most steps leave most rows alone."""
    return dict(zip(State._fields, map(plain_row, state), strict=True))


def ordered(document: Any) -> Any:
    """The lists of a state in the order in which they are compared."""
    if not isinstance(document, dict):
        return document
    made = dict(document)
    for name, key in SORTED.items():
        rows = made.get(name)
        if isinstance(rows, list):
            made[name] = sorted(rows, key=partial(place, key))
    return made


def place(key: str, row: Any) -> str:
    value = row.get(key) if isinstance(row, dict) else row
    if isinstance(value, dict):
        value = value.get("name")
    return f"{value:020}" if isinstance(value, int) else str(value)


NOTHING: Final = object()


def same(law: Any, told: Any) -> bool:
    """Whether two documents say the same: for Python 1, 1.0 and true are equal, and in JSON they are not."""
    return bool(law == told) and json.dumps(law, sort_keys=True) == json.dumps(told, sort_keys=True)


def differences(path: str, law: Any, told: Any) -> Iterator[Row]:
    """Where two documents differ, by dotted path without the places in lists."""
    if isinstance(law, dict) and isinstance(told, dict):
        for name in sorted(law.keys() | told.keys(), key=str):
            inner = f"{path}.{name}" if path else str(name)
            yield from differences(inner, law.get(name, NOTHING), told.get(name, NOTHING))
    elif isinstance(law, list) and isinstance(told, list) and len(law) == len(told):
        for one, other in zip(law, told, strict=True):
            yield from differences(path, one, other)
    elif law != told or type(law) is not type(told):
        yield Row(path, brief(law), brief(told))


def brief(value: Any) -> str:
    """A value for people: a row by what tells it from others."""
    if value is NOTHING:
        return "nothing"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        known = [f"{k} {value[k]}" for k in ("type", "id", "kind", "run", "status", "phase") if value.get(k)]
        return ", ".join(known) or "a row"
    if isinstance(value, list):
        return f"[{'; '.join(map(brief, value))}]"
    text = str(value)
    return repr(value) if text == "" else text if len(text) <= 60 else f"{text[:59]}…"


# --- the judge ---------------------------------------------------------------------------------------


BY_LAW: Final = "a rejection named another reason that may apply, as STEP-002 allows"
"""What is counted and needs no excuse."""


class Judge:
    """Compares, and counts what the profile excuses."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.excused: dict[str, int] = {}
        self.ignored = (*profile.ignore, *(MESSAGES if profile.messages == "free" else ()))

    def excuse(self, what: str) -> None:
        self.excused[what] = self.excused.get(what, 0) + 1

    def rows(self, law: Any, told: Any, place: str = "") -> tuple[Row, ...]:
        """The differences that count."""
        if same(law, told):
            return ()
        law, told = (ordered(law), ordered(told)) if not place else (law, told)
        found = []
        for row in differences(place, law, told):
            excuse = next((path for path in self.ignored if row.field == path or row.field.startswith(f"{path}.")), "")
            if excuse:
                self.excuse(f"state.ignore {excuse}")
            else:
                found.append(row)
        return tuple(found)

    def outcome(
        self, before: State, command: Command, law: Outcome, told: Any, *, whole: bool = True
    ) -> Divergence | None:
        """What is wrong with the answer to one command; None when nothing is.

        Of a log, which may leave effects and rows out (`whole` is false), only what is there is compared.
        """
        name = command_name(command)
        fired = shown(before, command, law)
        kind = told.get("type") if isinstance(told, dict) else None
        if kind not in ("accepted", "rejected"):
            return Divergence("not a document", ("STEP-002",), name, "its outcome is neither accepted nor rejected")
        if kind == "rejected" and not isinstance(told.get("reason"), str):
            return Divergence("not a document", ("STEP-002",), name, "its rejection names no reason")
        if isinstance(law, Rejected):
            if kind == "rejected":
                return self.reason(before, command, law, told.get("reason"))
            return Divergence(
                "accepted, and the law rejects",
                fired[:1],
                name,
                f"{name} was accepted; the law rejects it: {law.reason}, {REASONS[law.reason].why}",
                self.rows(plain_state(before), told.get("state")),
                broken(before, command, told),
            )
        if kind == "rejected":
            text = f"{name} was rejected ({brief(told.get('reason'))}); the law accepts it"
            # The guard that it names is the one that it has wrong.
            guard = REASONS[told["reason"]].rule if told.get("reason") in REASONS else ""
            rules = tuple(dict.fromkeys(rule for rule in (guard, *specific(fired)) if rule))
            return Divergence("rejected, and the law accepts", rules, name, text)
        return self.accepted(before, command, law, told, fired, whole)

    def reason(self, before: State, command: Command, law: Rejected, told: Any) -> Divergence | None:
        if told == law.reason or self.profile.reasons == "free":
            if told != law.reason:
                self.excuse("latitude.reasons free")
            return None
        name = command_name(command)
        gates = law.rule == "SCHED-001" and told in REASONS and REASONS[told].rule == "SCHED-001"
        if self.profile.reasons == "exact" or gates or told not in applying(before, command):
            rule = "SCHED-001" if gates else "STEP-002"
            text = f"{name} was rejected for {brief(told)}; the law says {law.reason}"
            return Divergence("another reason", (rule, law.rule), name, text, (Row("reason", law.reason, brief(told)),))
        self.excuse(BY_LAW)
        return None

    def accepted(
        self, before: State, command: Command, law: Accepted, told: Json, fired: tuple[str, ...], whole: bool
    ) -> Divergence | None:
        name = command_name(command)
        rows = self.rows(plain_state(law.state), told.get("state"))
        if rows:
            text = f"after {name} the state is not what the law says"
            rules = blamed([row.field for row in rows], fired)
            return Divergence("another state", rules, name, text, rows, broken(before, command, told))
        for field, kind in (("effects", "other effects"), ("retired", "other rows leave")):
            if field not in told and not whole:
                self.excuse(f"left out of the log: {field}")
                continue
            rows = self.rows(plain_row(getattr(law, field)), told.get(field), field)
            if rows:
                rules = blamed([row.field for row in rows], fired)
                return Divergence(kind, rules, name, f"after {name} the {field} are not what the law says", rows)
        return None

    def out_of_scope(self, divergence: Divergence) -> bool:
        named = {text.split(" ")[0] for text in divergence.invariants}
        return divergence.rule in self.profile.rules and named <= self.profile.rules

    def other_reading(self, before: State, command: Command, told: Any, *, whole: bool = True) -> State | None:
        """The state after the step in a reading that the profile allows, if the runtime did as that one says."""
        for name in self.profile.readings:
            with swapped(*all_swaps(READINGS[name])):
                law = step(before, command)
            if self.outcome(before, command, law, told, whole=whole) is None:
                self.excuse(f"latitude.readings {name}")
                return law.state if isinstance(law, Accepted) else before
        return None

    def same_state(self, kind: str, rule: str, law: State, told: Any, command: str, text: str) -> Divergence | None:
        """What is wrong with a state that should be this one."""
        rows = self.rows(plain_state(law), told)
        if not rows:
            return None
        fields = blamed([row.field for row in rows], ())
        return Divergence(kind, (rule, *fields), command, text, rows, broken_state(told))


def applying(before: State, command: Command) -> frozenset[str]:
    """The reasons that apply. Of a row that is over or not there, any that this command can be rejected with."""
    reasons = expected(before, command).reasons
    return reasons | reasons_of(command_name(command)) if reasons & NO_ROW else reasons


NO_ROW: Final = frozenset(
    {"run_unknown", "run_not_active", "record_missing", "event_unknown", "handler_unknown", "no_request"}
)
"""What else is wrong about it is a matter of where one looks first."""


def specific(fired: tuple[str, ...]) -> tuple[str, ...]:
    """The rules of a step without those that every step shows; the most special one first."""
    general = ("STEP-001", "HOST-009")
    return tuple(rule for rule in fired if rule not in general)


def read_state(told: Any) -> State | None:
    try:
        state: State = from_plain(State, ordered(told))
    except DecodeError:
        return None
    return state


def broken(before: State, command: Command, told: Json) -> tuple[str, ...]:
    """The invariants that the runtime's step breaks."""
    after = read_state(told.get("state"))
    if after is None:
        return ()
    retired = read_retired(told.get("retired"))
    seen = Step(before, command, Accepted(after, (), (), retired), after)
    found = (*violations(ON_STEPS, seen), *violations(ON_STATES, after))
    return tuple(dict.fromkeys(f"{v.invariant} ({v.rule}): {v.text}" for v in found))


def broken_state(told: Any) -> tuple[str, ...]:
    after = read_state(told)
    if after is None:
        return ()
    return tuple(f"{v.invariant} ({v.rule}): {v.text}" for v in violations(ON_STATES, after))


def read_retired(told: Any) -> Retired:
    try:
        retired: Retired = from_plain(Retired, told)
    except DecodeError:
        return Retired()
    return retired
