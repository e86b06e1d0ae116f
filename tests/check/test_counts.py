"""The exact size of every space, so that no change of the model goes unseen; and what no search comes to.

`pytest tests/check/test_counts.py --rewrite` writes the counts anew; then read the diff.
"""

import json
from functools import cache

import pytest

from keepkernel.fuzz import check
from keepkernel.fuzz.check import Result, explore
from keepkernel.fuzz.setups import SETUPS, setup
from keepkernel.fuzz.simulate import COUNTS, known_states, name_of
from keepkernel.fuzz.system import Caller
from keepkernel.fuzz.unreached import EXPECTED, NEVER

SLOW = pytest.mark.slow
BEGINNING = {"chain": 3_000, "bookkeeping": 20_000}
SPACES: list[object] = [
    pytest.param("main", 1, "honest"),
    pytest.param("main", 2, "honest", marks=SLOW),
    pytest.param("consumer", 1, "honest"),
    pytest.param("chain", 1, "honest", marks=SLOW),
    pytest.param("batch", 2, "honest"),
    pytest.param("no-mutate", 1, "honest"),
    pytest.param("bookkeeping", 1, "honest", marks=SLOW),
    pytest.param("no-reconcile", 1, "honest"),
    pytest.param("permission", 1, "honest"),
    pytest.param("permission", 1, "adversary"),
    pytest.param("coalesced", 1, "honest"),
    pytest.param("main", 1, "adversary"),
    pytest.param("consumer", 1, "adversary"),
]

searched = cache(explore)
"""A search that several tests look at is made once."""


@pytest.mark.parametrize(("name", "events", "caller"), SPACES)
def test_the_space_has_the_size_that_is_pinned(
    name: str, events: int, caller: Caller, request: pytest.FixtureRequest
) -> None:
    chosen = setup(name, events)
    result = searched(chosen, caller=caller, max_states=0).assert_holds()
    row = [result.states, result.transitions, result.depth]
    table = json.loads(COUNTS.read_text())
    if request.config.getoption("--rewrite"):
        table[name_of(chosen, caller)] = row
        lines = (f"  {json.dumps(space)}: {json.dumps(table[space])}" for space in sorted(table))
        COUNTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert row == table[name_of(chosen, caller)]


def test_every_set_up_is_pinned_and_nothing_else() -> None:
    spaces = {name_of(setup(name, events), caller) for name, events, caller in (p.values for p in SPACES)}
    assert spaces == set(json.loads(COUNTS.read_text()))
    assert {name_of(chosen, "honest") for chosen in SETUPS.values()} <= spaces


def test_only_the_whole_space_is_known() -> None:
    assert known_states(setup("main"), "honest") == json.loads(COUNTS.read_text())["main, 1 event, honest"][0]
    assert known_states(setup("main", features=frozenset()), "honest") == 0
    assert known_states(setup("main", 9), "honest") == 0


# --- what is never reached ---------------------------------------------------------------------------


def everything() -> list[Result]:
    """Every set-up, and the adversary. The beginning of a large space comes to all that the whole comes to."""
    return [
        *(searched(setup(name), caller="honest", max_states=BEGINNING.get(name, 0)) for name in SETUPS),
        *(searched(setup(name), caller="adversary", max_states=0) for name in ("main", "consumer")),
    ]


def test_all_searches_together_come_to_everything_but_what_is_explained() -> None:
    for kind, explained in NEVER.items():
        missed = set.intersection(*(set(result.unreached[kind]) for result in everything()))
        assert missed == set(explained), kind
        assert all(explained.values()), "each has a reason"


def test_what_a_set_up_can_not_put_to_the_test_is_really_out_of_its_reach() -> None:
    """An excuse that is not needed any more must go."""
    for name, excused in EXPECTED.items():
        result = searched(setup(name), caller="honest", max_states=BEGINNING.get(name, 0))
        assert excused.keys().isdisjoint(result.witnesses), name


def test_an_adversary_is_excused_for_the_same() -> None:
    for name in ("consumer", "no-mutate", "no-reconcile"):
        searched(setup(name), caller="adversary", max_states=0).assert_holds()


def test_the_rules_that_answers_can_name_are_found_in_the_kernel() -> None:
    rules = check.named_rules()
    assert {"MUT-010", "BOUND-004", "BOUND-006", "SCHED-001"} <= rules
    assert {rule for result in everything() for rule in result.unreached["rules"]} <= rules
