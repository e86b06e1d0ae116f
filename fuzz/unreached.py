"""What a search does not come to, with the reason for each; a test pins it."""

from typing import Final

NO_NEW_EVENTS: Final = "all inputs are there from the start, and `next` publishes none"
NO_MUTATE: Final = "the consumer has no mutate, so there is no ledger record, and nothing is ever AFTER or UNCERTAIN"
NO_REPUBLISH: Final = "nothing is published twice here"
NO_PAUSE: Final = "nobody pauses here"
NO_APPROVAL: Final = "no call needs an approval here"

WITHOUT_RECORD: Final = (
    "INV-003", "INV-006", "INV-007", "INV-009", "INV-010", "INV-015", "INV-016", "INV-017", "INV-018", "INV-020",
    "INV-021", "INV-022", "INV-023", "INV-024", "INV-025", "INV-027", "INV-032", "INV-035", "INV-036", "INV-037",
    "INV-039", "INV-040", "INV-041",
)  # fmt: skip

EXPECTED: Final[dict[str, dict[str, str]]] = {
    "consumer": {"INV-012": NO_NEW_EVENTS},
    "permission": {"INV-012": NO_NEW_EVENTS},
    "batch": {"INV-012": NO_NEW_EVENTS},
    "no-reconcile": {"INV-012": NO_NEW_EVENTS},
    "no-mutate": {"INV-012": NO_NEW_EVENTS, **dict.fromkeys(WITHOUT_RECORD, NO_MUTATE)},
    "bookkeeping": {
        "INV-008": NO_REPUBLISH,
        "INV-011": NO_REPUBLISH,
        "INV-013": NO_REPUBLISH,
        "INV-012": NO_NEW_EVENTS,
        "INV-031": NO_PAUSE,
        "INV-041": NO_APPROVAL,
    },
}
"""Set-up -> the invariants that it can not put to the test, and why."""


BEFORE_THE_SEARCH: Final = "comes once, before the search begins: every set-up starts deployed and active"
DEFENCE: Final = "defence in depth: a run with an open record can not come to `emitting`"

NEVER: Final[dict[str, dict[str, str]]] = {
    "edges": {
        "WorkflowStatus: draft → ready": BEFORE_THE_SEARCH,
        "WorkflowStatus: ready → active": BEFORE_THE_SEARCH,
    },
    "rules": {},
    "reasons": {"record_open": DEFENCE},
}
"""What no search comes to, with any set-up and any caller, and why."""

OF_A_REFUSAL: Final = "no script and no target fails so; a host makes it of the kernel's refusal of a call"
OF_SILENCE: Final = "who does not know what became of a call says so, and nothing has failed"
IN_A_ROW: Final = "several rare things in a row; the checker comes to it"

NEVER_LIVED: Final[dict[str, str]] = {
    "refusal record_open": DEFENCE,
    "failure approval": OF_A_REFUSAL,
    "failure unknown": OF_SILENCE,
}
"""What no life of the fuzzer comes to, and why."""
HARDLY_LIVED: Final[dict[str, str]] = dict.fromkeys(
    (
        *("refusal handler_removed", "refusal id_in_use", "refusal attempts_spent", "refusal mutation_failed"),
        *("refusal not_early", "refusal asked_later", "refusal retry_pending", "refusal no_mutate"),
    ),
    IN_A_ROW,
)
"""What only one life in hundreds comes to, so that a short campaign may miss it."""
