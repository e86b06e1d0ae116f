"""What a search does not come to, with the reason for each; a test pins it."""

from typing import Final

NO_NEW_EVENTS: Final = "all inputs are there from the start, and `next` publishes none"
NO_MUTATE: Final = "the consumer has no mutate, so there is no ledger record, and nothing is ever AFTER or UNCERTAIN"
NO_REPUBLISH: Final = "nothing is published twice here"
NO_PAUSE: Final = "nobody pauses here"

WITHOUT_RECORD: Final = (
    "INV-003", "INV-006", "INV-007", "INV-009", "INV-010", "INV-015", "INV-016", "INV-017", "INV-018", "INV-020",
    "INV-021", "INV-022", "INV-023", "INV-024", "INV-025", "INV-027", "INV-032", "INV-035", "INV-036", "INV-037",
)  # fmt: skip

EXPECTED: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("consumer", "honest"): {"INV-012": NO_NEW_EVENTS},
    ("consumer", "adversary"): {"INV-012": NO_NEW_EVENTS},
    ("batch", "honest"): {"INV-012": NO_NEW_EVENTS},
    ("no-reconcile", "honest"): {"INV-012": NO_NEW_EVENTS},
    ("no-mutate", "honest"): {"INV-012": NO_NEW_EVENTS, **dict.fromkeys(WITHOUT_RECORD, NO_MUTATE)},
    ("bookkeeping", "honest"): {
        "INV-008": NO_REPUBLISH,
        "INV-011": NO_REPUBLISH,
        "INV-013": NO_REPUBLISH,
        "INV-012": NO_NEW_EVENTS,
        "INV-031": NO_PAUSE,
    },
}
"""Set-up and caller -> the invariants that it can not put to the test, and why."""
