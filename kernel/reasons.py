"""Every way to be refused: its rule, whose fault it is, and what to do about it.

The fault decides what a host does next (HOST-003): a `caller` made a mistake and the run goes on; `script`,
`transient`, `permission`, `approval` and `host` are reported as the end of the run, by `classify`.
"""

from typing import Final, Literal, NamedTuple, TypeVar

from .types import Rejected

T = TypeVar("T")

Fault = Literal["caller", "script", "transient", "permission", "approval", "host"]


class Reason(NamedTuple):
    rule: str
    fault: Fault
    why: str
    remedy: str


class Refusal(Exception):
    """Raised by a guard inside a transition; `step` turns it into a `Rejected` value."""


def require(holds: bool, reason: str, detail: str = "") -> None:
    """A guard: refuse the command unless the condition holds."""
    if not holds:
        raise Refusal(reason, detail)


def present(value: T | None, reason: str, detail: str = "") -> T:
    """The same for a value that must be there."""
    if value is None:
        raise Refusal(reason, detail)
    return value


def rejected(reason: str, detail: str) -> Rejected:
    return Rejected(reason, REASONS[reason].rule, detail)


REASONS: Final[dict[str, Reason]] = {
    # -- who is spoken of
    "run_unknown": Reason(
        "RUN-003",
        "caller",
        "no live run has this id",
        "reload the state; a run that is over takes no reports",
    ),
    "run_not_active": Reason(
        "RUN-002",
        "caller",
        "the run is over",
        "drop the report; a retry is a new run with its own id",
    ),
    "wrong_kind": Reason(
        "RUN-004",
        "caller",
        "producers and consumers have different commands",
        "use the command of the handler's kind",
    ),
    "handler_unknown": Reason(
        "RUN-004",
        "caller",
        "no deployed handler has this name",
        "deploy a version that declares it",
    ),
    "handler_removed": Reason(
        "RETRY-004",
        "caller",
        "the consumer of the pending retry is no longer deployed",
        "deploy a version that declares it, or abandon the retry",
    ),
    "id_empty": Reason("RUN-006", "caller", "an id is never empty", "give every run and session a fresh id"),
    "id_in_use": Reason("RUN-006", "caller", "the id is already taken", "give every run and session a fresh id"),
    # -- may a run start
    "run_active": Reason("SCHED-001", "caller", "a run is active", "wait until it ends"),
    "workflow_not_active": Reason("SCHED-001", "caller", "the workflow is not active", "resume it"),
    "mutation_unresolved": Reason(
        "SCHED-001",
        "caller",
        "nobody knows yet whether a mutation happened",
        "reconcile it, or let a person resolve it",
    ),
    "error_stands": Reason("SCHED-001", "caller", "an error needs a person", "answer the error first"),
    "in_maintenance": Reason(
        "SCHED-001",
        "caller",
        "the script is being repaired",
        "deploy a fix, exit maintenance, or retry",
    ),
    "backing_off": Reason(
        "SCHED-001",
        "caller",
        "the workflow waits after a failure",
        "wait until backoff_until, or retry",
    ),
    "retry_pending": Reason("SCHED-003", "caller", "a pending retry goes first", "create the retry, or abandon it"),
    "not_pending_retry": Reason("RETRY-001", "caller", "this run is not the pending retry", "reload the state"),
    "not_after": Reason("RETRY-001", "caller", "only a run past its mutation is retried", "create a fresh run"),
    "session_open": Reason("SESS-002", "caller", "a session is open already", "use it, or finish it"),
    "session_unknown": Reason("SESS-003", "caller", "no open session has this id", "start a session"),
    "session_spent": Reason("SESS-003", "caller", "the session has no budget left", "finish it and start another"),
    # -- progress
    "phase": Reason("PHASE-001", "caller", "the phase has no such edge", "report each phase in its order"),
    "nothing_reserved": Reason(
        "PHASE-005", "caller", "mutate needs something reserved", "go from prepared to emitting"
    ),
    "no_mutate": Reason("PHASE-005", "caller", "the consumer has no mutate", "go from prepared to emitting"),
    "mutate_required": Reason("PHASE-006", "caller", "a consumer with a mutate and inputs runs it", "go to mutating"),
    "mutation_failed": Reason("PHASE-007", "caller", "after a failed mutation there is no next", "end the run"),
    "record_exists": Reason("MUT-003", "caller", "the run has its ledger record already", "a new try is a new run"),
    "record_missing": Reason("MUT-002", "caller", "the run has no ledger record", "record the mutation first"),
    "record_open": Reason(
        "COMMIT-001",
        "caller",
        "the run's mutation is not known to be applied",
        "resolve it first, or end the run",
    ),
    "event_unknown": Reason("EVENT-004", "script", "no such event in this workflow", "reserve only what peek returned"),
    "not_subscribed": Reason(
        "EVENT-004",
        "script",
        "the consumer does not subscribe to the topic",
        "subscribe, or reserve other events",
    ),
    "event_not_pending": Reason(
        "EVENT-004", "script", "the event is not pending", "reserve or skip pending events only"
    ),
    "reserved_twice": Reason(
        "EVENT-004", "script", "an event stands twice in the reservations", "name each event once"
    ),
    "topic_unknown": Reason("EVENT-007", "script", "the topic is not declared", "declare it in the workflow's topics"),
    "title_missing": Reason("EVENT-008", "script", "an event needs an id and a title", "give it both"),
    "too_large": Reason(
        "EVENT-009",
        "script",
        "a JSON text is over the size limit",
        "return less, or raise json_max_chars",
    ),
    "cron_time": Reason(
        "PROD-003",
        "host",
        "a cron schedule, and no other, needs its next time",
        "give due_at for a cron producer only",
    ),
    # -- mutation
    "mutation_edge": Reason(
        "MUT-001",
        "caller",
        "the mutation does not stand so that this can be said of it",
        "look at how it stands; people decide only when the target is not asked any more",
    ),
    "send_by_passed": Reason(
        "MUT-005",
        "transient",
        "the time to send has passed",
        "end the run; a fresh one tries again",
    ),
    "not_granted": Reason("PERM-001", "permission", "the tool is not granted", "grant it"),
    "not_approved": Reason("PERM-002", "approval", "this exact call is not approved", "approve or reject it"),
    "bad_deadline": Reason(
        "MUT-004",
        "host",
        "a connector's deadline is a positive time",
        "declare it in milliseconds",
    ),
    "author": Reason(
        "MUT-008",
        "caller",
        "the call and its inline reconcile speak while the run is active; people and the background loop afterwards",
        "wait until the run is over, or drop the late answer",
    ),
    "too_early": Reason(
        "MUT-009",
        "caller",
        "the call may still land",
        "wait until may_land_until, or void its key at the target",
    ),
    "asked_later": Reason("MUT-009", "caller", "an answer comes after its question", "give the time of the question"),
    "not_early": Reason("MUT-011", "caller", "the call can not land any more", "report the failure itself"),
    "attempts_spent": Reason("MUT-011", "caller", "no reconcile attempt is left", "exhaust it"),
    "attempts_left": Reason("MUT-012", "caller", "reconcile has attempts left", "reconcile again"),
    "no_reconcile": Reason("MUT-013", "caller", "the tool can not be reconciled", "resolve it by hand"),
    # -- run status
    "not_uncertain": Reason("RUN-007", "caller", "nothing is uncertain here", "report what really went wrong"),
    "cause_mismatch": Reason(
        "RUN-008",
        "caller",
        "an approval pause, and no other, names what is missing",
        "name auth, permission or request",
    ),
    "nothing_asked": Reason(
        "PERM-003",
        "transient",
        "nothing here waits for a grant or an approval",
        "end the run; a fresh one passes",
    ),
    # -- sessions, workflow, people
    "no_error": Reason("WORK-004", "caller", "no such error stands", "look at the workflow's error"),
    "logic_block": Reason("WORK-004", "caller", "the block came from logic failures", "deploy a fix, or retry"),
    "not_in_maintenance": Reason("WORK-005", "caller", "the workflow is not in maintenance", "nothing to do"),
    "workflow_edge": Reason(
        "WORK-001", "caller", "the workflow's status has no such edge", "it is so already, or was never deployed"
    ),
    "preparing": Reason(
        "USER-002",
        "caller",
        "a consumer of the topic is preparing",
        "try again when its prepare is over",
    ),
    "no_request": Reason(
        "PERM-004", "caller", "no such request waits", "look at which call waits for approval, if any"
    ),
    "bad_declaration": Reason("WORK-006", "caller", "the declaration contradicts itself", "see the detail"),
}
