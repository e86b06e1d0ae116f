"""Documents from outside: strict JSON, exact shapes, limits, and one kind of error (CODEC rules).

The shapes are not written here: pydantic models are made from the kernel's own NamedTuples, with a limit for
every text, number and list. A field of the kernel that has no limit here stops the import.

>>> parse_command('{"type": "create_run", "now": 0, "run": "", "session": "s", "handler": "poll"}')
Traceback (most recent call last):
    ...
keepkernel.spec.documents.BadDocument: create_run.run: the text is too short (CODEC-006). Give at least 1 character.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError, create_model
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from ..kernel.codec import SURROGATE, TAGS, from_plain, shown, to_plain
from ..kernel.commands import Command
from ..kernel.policy import Policy
from ..kernel.tables import CONSUMER_PHASE, PRODUCER_PHASE
from ..kernel.types import Accepted, Declaration, Outcome, State

DOCUMENT_MAX: Final = 100_000_000
JSON_MAX: Final = 10_000_000
DEPTH_MAX: Final = 64
DIGITS_MAX: Final = 300

# Sums of an instant and a few durations stay below 2^53, so that every reader of JSON sees them exactly.
WHOLE_MAX: Final = 2**53 - 1
INSTANT_MAX: Final = 2**52
DURATION_MAX: Final = 2**50


class BadDocument(ValueError):
    """A document is refused: where, what is wrong, by which rule, and what to do about it (CODEC-009)."""

    def __init__(self, place: str, problem: str, rule: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem} ({rule}). {remedy}")
        self.place = place
        self.problem = problem
        self.rule = rule
        self.remedy = remedy


# --- strict JSON -------------------------------------------------------------------------------------


class NotStrict(ValueError):
    """A text is not strict JSON; the message says why."""


def strict_json(text: str, length_max: int = DOCUMENT_MAX) -> Any:
    """The value of a strict JSON text (CODEC-004).

    Strict: one value, whole Unicode characters, no byte order mark, no name twice in an object, numbers that are
    finite, at most 64 levels. Whatever is wrong, NotStrict is raised and nothing else.

    >>> strict_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    keepkernel.spec.documents.NotStrict: the name 'a' stands twice in one object
    """
    if len(text) > length_max:
        raise NotStrict(f"it is longer than {length_max} characters")
    if text.startswith("\ufeff"):
        raise NotStrict("it begins with a byte order mark")
    if not text.isascii():
        _require_unicode(text)
    try:
        value = STRICT.decode(text)
    except json.JSONDecodeError as error:
        raise NotStrict(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotStrict(f"it nests deeper than {DEPTH_MAX} levels") from None
    if text.count("[") + text.count("{") > DEPTH_MAX:
        _require_depth(value)
    if SURROGATE.search(text):
        _require_unicode(json.dumps(value, ensure_ascii=False))
    return value


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotStrict("it contains half a surrogate pair") from None


def _require_depth(value: Any) -> None:
    """Level by level and without recursion, so that the check can not fail by itself."""
    level = _boxes([value])
    for _ in range(DEPTH_MAX):
        level = [inner for box in level for inner in _boxes(box.values() if isinstance(box, dict) else box)]
    if level:
        raise NotStrict(f"it nests deeper than {DEPTH_MAX} levels")


def _boxes(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, list | dict)]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise NotStrict(f"the name {shown(twice)} stands twice in one object")
    return fields


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS_MAX:
        raise NotStrict("it contains a number that is too large")
    return int(digits)


def _fraction(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotStrict("it contains a number that is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise NotStrict(f"{name} is not JSON")


STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_whole, parse_float=_fraction, parse_constant=_constant
)


# --- limits ------------------------------------------------------------------------------------------


def _json_text(text: str) -> str:
    """Script data is a JSON text inside the document, and just as strict (CODEC-007)."""
    try:
        strict_json(text, JSON_MAX)
    except NotStrict as error:
        raise PydanticCustomError("json_text", "{problem}", {"problem": str(error)}) from None
    return text


def _json_text_or_nothing(text: str) -> str:
    return _json_text(text) if text else text


def _text(at_least: int, at_most: int) -> Any:
    return Annotated[str, Field(min_length=at_least, max_length=at_most)]


def _whole_number(at_least: int, at_most: int) -> Any:
    return Annotated[int, Field(ge=at_least, le=at_most)]


JSON_SCHEMA: Final[JsonDict] = {"contentMediaType": "application/json"}
NAME: Final = _text(1, 256)
NO_NAME: Final = _text(0, 256)
TITLE: Final = _text(0, 1_000)
PROSE: Final = _text(0, 100_000)
JSON: Final = Annotated[
    str, Field(min_length=1, max_length=JSON_MAX, json_schema_extra=JSON_SCHEMA), AfterValidator(_json_text)
]
NO_JSON: Final = Annotated[
    str, Field(max_length=JSON_MAX, json_schema_extra=JSON_SCHEMA), AfterValidator(_json_text_or_nothing)
]
INSTANT: Final = _whole_number(0, INSTANT_MAX)
DURATION: Final = _whole_number(0, DURATION_MAX)
POSITIVE: Final = _whole_number(1, DURATION_MAX)
WHOLE: Final = _whole_number(0, WHOLE_MAX)


def _each(names: str, limit: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), limit)


LIMITS: Final[dict[str, Any]] = {
    **_each("id topic topics subscribes workflow run session handler name tool version digest rule rules reason", NAME),
    **_each("Error.run Error.tool EndRun.tool Maintenance.run Maintenance.handler State.version", NO_NAME),
    **_each("owner created_by Run.retry_of cron", NO_NAME),
    **_each("retry_of", NAME),
    **_each("key", _text(1, 3 * 256 + 1 + 256)),  # The names of workflow, which may be escaped, and run (MUT-014).
    **_each("title", TITLE),
    **_each("message detail", PROSE),
    **_each("payload data params result state", JSON),
    **_each("Run.result Handler.state", NO_JSON),
    **_each("now created_at asked_at Prepared.wake_at CommitProducer.due_at", INSTANT),
    **_each("wake_at backoff_until send_by may_land_until next_attempt_at", WHOLE),
    **_each("due_at", _whole_number(-1, WHOLE_MAX)),
    **_each("attempts runs commits transient_failures logic_failures", WHOLE),
    **_each("seq next_seq", _whole_number(1, WHOLE_MAX)),
    **_each("interval_ms deadline_ms backoff_max_ms reconcile_max_ms send_within_ms clock_skew_ms", DURATION),
    **_each("wake_min_ms wake_max_ms transient_retries reconcile_attempts", DURATION),
    # A base of zero would never reach its maximum by doubling.
    **_each("backoff_base_ms reconcile_base_ms call_deadline_ms handler_call_ms", POSITIVE),
    **_each("session_runs peek_default peek_max Policy.logic_failures", POSITIVE),
    **_each("json_max_chars", _whole_number(1, JSON_MAX)),
}
"""What every text and number may be, by field, or by type and field where a name has two meanings (CODEC-006)."""

LIST_MAX: Final = {"State.events": 100_000, "Event.causes": 1_000_000, "Run.causes": 1_000_000}
LIST_MAX_ELSEWHERE: Final = 10_000


# --- models ------------------------------------------------------------------------------------------


class Document(BaseModel):
    """No field that is not known, and no value of another type, however alike (CODEC-005)."""

    model_config = ConfigDict(extra="forbid", strict=True)


@cache
def model(kind: Any) -> type[Document]:
    """The pydantic model of a kernel type, made from its fields, types and defaults."""
    fields: dict[str, Any] = {"type": (Literal[TAGS[kind]], ...)} if kind in TAGS else {}
    for name, hint in get_type_hints(kind).items():
        default = to_plain(kind._field_defaults[name]) if name in kind._field_defaults else ...
        fields[name] = (limited(kind.__name__, name, hint), default)
    # A NamedTuple without a docstring gets a list of its fields for one.
    doc = None if (kind.__doc__ or "").startswith(f"{kind.__name__}(") else kind.__doc__
    made: type[Document] = create_model(kind.__name__, __base__=Document, __doc__=doc, **fields)
    return made


def limited(owner: str, name: str, hint: Any) -> Any:
    """The type of one field with its limit."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _union(owner, name, get_args(hint))
    if origin is tuple:
        most = LIST_MAX.get(f"{owner}.{name}", LIST_MAX_ELSEWHERE)
        items = GenericAlias(list, (limited(owner, name, get_args(hint)[0]),))
        return Annotated[items, Field(max_length=most), FailFast()]
    if hint in (str, int):
        return LIMITS.get(f"{owner}.{name}") or LIMITS[name]
    if hasattr(hint, "_fields"):
        return model(hint)
    return hint  # A truth value, a word of a list, or nothing.


def _union(owner: str, name: str, kinds: tuple[Any, ...]) -> Any:
    if all(get_origin(kind) is Literal for kind in kinds):
        return Literal[tuple(word for kind in kinds for word in get_args(kind))]
    members = reduce(or_, (limited(owner, name, kind) for kind in kinds))
    tagged = [kind for kind in kinds if kind is not NoneType]
    return Annotated[members, Field(discriminator="type")] if all(kind in TAGS for kind in tagged) else members


ADAPTERS: Final[dict[Any, TypeAdapter[Any]]] = {
    kind: TypeAdapter(limited("", "", kind)) for kind in (Command, State, Outcome, Policy, Declaration)
}
"""What validates the documents that may come from outside, and knows their JSON Schemas."""


# --- reading -----------------------------------------------------------------------------------------

T = TypeVar("T")

REMEDIES: Final[dict[str, tuple[str, str, str]]] = {
    "missing": ("the field is missing", "CODEC-005", "Add it."),
    "extra_forbidden": ("the field is unknown", "CODEC-005", "Remove it, or correct its name."),
    "model_type": ("an object is expected", "CODEC-005", "Give an object with the fields of the schema."),
    "model_attributes_type": ("an object is expected", "CODEC-005", "Give an object with a `type`."),
    "string_type": ("a text is expected", "CODEC-005", "Give a text; numbers are not converted."),
    "int_type": ("a whole number is expected", "CODEC-005", "Give a whole number; nothing is converted."),
    "bool_type": ("true or false is expected", "CODEC-005", "Give true or false; nothing is converted."),
    "list_type": ("a list is expected", "CODEC-005", "Give a list, empty if there is nothing."),
    "literal_error": ("the word is unknown", "CODEC-005", "Give one of {expected}."),
    "union_tag_not_found": ("its type is missing", "CODEC-005", "Say in `type` what it is."),
    "union_tag_invalid": ("its type is unknown", "CODEC-005", "Give as `type` one of {expected_tags}."),
    "string_too_short": ("the text is too short", "CODEC-006", "Give at least {min_length} character."),
    "string_too_long": ("the text is too long", "CODEC-006", "Give at most {max_length} characters."),
    "too_long": ("the list is too long", "CODEC-006", "Give at most {max_length} items."),
    "greater_than_equal": ("the number is too small", "CODEC-006", "Give {ge} or more."),
    "less_than_equal": ("the number is too large", "CODEC-006", "Give {le} or less."),
    "json_text": ("the text is not strict JSON: {problem}", "CODEC-007", "Give what a JSON writer returns."),
}
"""What is wrong, its rule and its remedy, by pydantic's name of the error."""


def parse_command(document: str | bytes) -> Command:
    """The command of a document, or BadDocument. Fields that have a default may be left out.

    >>> parse_command(b'{"type": "pause", "now": 5}')
    Pause(now=5)
    """
    command: Command = _parse(Command, document)
    return command


def parse_state(document: str | bytes) -> State:
    """The state of a document, or BadDocument. Its rows belong together, so `step` takes any command on it."""
    state: State = _parse(State, document)
    require_coherent(state, "")
    return state


def parse_outcome(document: str | bytes) -> Outcome:
    """The outcome of a document, or BadDocument."""
    outcome: Outcome = _parse(Outcome, document)
    if isinstance(outcome, Accepted):
        require_coherent(outcome.state, "accepted.state.")
    return outcome


def parse_policy(document: str | bytes) -> Policy:
    """The policy of a document, or BadDocument. A number that is left out keeps its default.

    >>> parse_policy('{"transient_retries": 2}').transient_retries
    2
    """
    policy: Policy = _parse(Policy, document)
    return policy


def parse_declaration(document: str | bytes) -> Declaration:
    """The declaration of a handler in a document, or BadDocument."""
    declaration: Declaration = _parse(Declaration, document)
    return declaration


def _parse(kind: Any, document: str | bytes) -> Any:
    try:
        plain = strict_json(_decoded(document))
    except NotStrict as error:
        raise BadDocument("document", str(error), "CODEC-004", "Give one strict JSON value in UTF-8.") from None
    try:
        validated = ADAPTERS[kind].validate_python(plain)
    except ValidationError as errors:
        raise _explained(errors) from None
    return from_plain(kind, validated.model_dump())


def _decoded(document: str | bytes) -> str:
    if isinstance(document, str):
        return document
    if not isinstance(document, bytes):
        raise NotStrict("it is neither a text nor bytes")
    try:
        return document.decode()
    except UnicodeDecodeError as error:
        raise NotStrict(f"byte {error.start} is not UTF-8") from None


def _explained(errors: ValidationError) -> BadDocument:
    """The first thing that is wrong, in our words; pydantic's messages repeat input of any length."""
    first = errors.errors(include_url=False, include_input=False)[0]
    problem, rule, remedy = REMEDIES[first["type"]]
    context = first.get("ctx", {})
    place = ".".join(part if isinstance(part, str) and len(part) <= 40 else shown(part) for part in first["loc"])
    more = f", and {errors.error_count() - 1} more" if errors.error_count() > 1 else ""
    return BadDocument(place or "document", problem.format(**context) + more, rule, remedy.format(**context))


# --- rows that belong together -----------------------------------------------------------------------


def require_coherent(state: State, place: str) -> None:
    """A state's rows belong together, so that `step` never meets what it holds impossible (CODEC-008).

    Whether the state is also reachable, the invariants say; an orphan is shown, not refused (REC-004).
    """
    for field, problem, rule in _contradictions(state):
        remedy = "Give a state that the kernel returned."
        raise BadDocument(place + field, problem, f"CODEC-008, {rule}", remedy)


def _contradictions(state: State) -> Iterator[tuple[str, str, str]]:
    run, session, record, error = state.run, state.session, state.mutation, state.error
    for field, names, rule in (
        ("events", [e.key for e in state.events], "EVENT-007"),
        ("events", [e.seq for e in state.events], "EVENT-007"),
        ("handlers", [h.declared.name for h in state.handlers], "WORK-006"),
        ("topics", list(state.topics), "WORK-006"),
        ("grants", [g.tool for g in state.grants], "PERM-001"),
        ("run.reserved", list(run.reserved) if run else [], "EVENT-004"),
    ):
        if len({*names}) != len(names):
            yield field, "a name or number stands twice", rule
    if any(e.seq >= state.next_seq for e in state.events):
        yield "next_seq", "an event has this number or a later one", "EVENT-007"
    if any(one.seq > next_one.seq for one, next_one in pairwise(state.events)):
        yield "events", "an event stands behind one that was published later", "STEP-003"
    if any((e.status == "pending") != (e.owner == "") for e in state.events if e.status != "skipped"):
        yield "events", "an event has an owner if and only if a run took it", "EVENT-001"
    if session is not None and session.status != "open":
        yield "session.status", "a session that is over leaves the state", "SESS-001"
    if error is not None and (error.request is not None) != (error.kind == "approval" and error.cause == "request"):
        yield "error.request", "a request stands in the error that asks for it, and in no other", "PERM-003"
    if run is None:
        if record is not None:
            yield "mutation", "a record leaves the state with its run", "MUT-003"
        return
    if record is not None and record.run != run.id:
        yield "mutation.run", "the record is not of this run", "MUT-003"
    if record is not None and run.kind != "consumer":
        yield "mutation", "a producer has no record", "RUN-004"
    if run.status == "committed":
        yield "run.status", "a committed run leaves the state", "RUN-005"
    if run.phase not in LIVE_PHASES[run.kind]:
        yield "run.phase", f"a {run.kind} that lives is never in this phase", "PHASE-001"
    if run.status == "active" and (session is None or session.id != run.session):
        yield "run.session", "an active run's session is open", "SESS-003"


LIVE_PHASES: Final = {
    kind: frozenset(phase for phase, _ in table)
    for kind, table in (("consumer", CONSUMER_PHASE), ("producer", PRODUCER_PHASE))
}
"""The phases that a run can still leave."""

__all__ = [
    "BadDocument",
    "parse_command",
    "parse_declaration",
    "parse_outcome",
    "parse_policy",
    "parse_state",
]
