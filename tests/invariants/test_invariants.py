"""Each invariant can fail, and alone; the kernel as it is comes close to breaking it, and does not."""

import pytest

from keepkernel.spec.invariants import INVARIANTS, ON_OUTSIDE, ON_STATES, Invariant
from keepkernel.spec.invariants import violations as violations_of

from .broken import CASES, Case
from .driver import COMMITTED, Played, play
from .further import FURTHER


def each(*cases: Case) -> list[object]:
    return [pytest.param(case, id=case.invariant, marks=case.mark) for case in cases]


def subjects(played: Played, invariant: Invariant) -> list[object]:
    """What an invariant is asked about along the way."""
    if invariant in ON_OUTSIDE:
        return [outside for _, _, outside in played.subjects()]
    return [state if invariant in ON_STATES else one for one, state, _ in played.subjects()]


def test_every_invariant_has_a_kernel_that_breaks_it() -> None:
    assert {case.invariant for case in CASES} == INVARIANTS.keys()
    assert list(INVARIANTS) == [f"INV-{n:03}" for n in range(1, len(INVARIANTS) + 1)]


@pytest.mark.parametrize("case", each(*CASES, *FURTHER))
def test_it_alone_fails_and_only_at_the_end(case: Case) -> None:
    broken = play(case.trace, *case.swaps, lands=case.lands, hold=case.hold).broken
    assert [str(v) for found in broken[:-1] for v in found] == []
    name, rule = case.mark.args
    assert [str(v) for v in broken[-1]] == [f"{name} ({rule}): {INVARIANTS[name].text}: {case.row}"]


@pytest.mark.parametrize("case", each(*CASES, *FURTHER))
def test_the_kernel_as_it_is_breaks_nothing(case: Case) -> None:
    for played in (play(case.trace, lands=case.lands), play(case.witness)):
        assert [str(v) for found in played.broken for v in found] == []


@pytest.mark.parametrize("case", each(*CASES))
def test_it_is_put_to_the_test(case: Case) -> None:
    invariant = INVARIANTS[case.invariant]
    assert any(invariant.sometimes(subject) for subject in subjects(play(case.witness or case.trace), invariant))


@pytest.mark.parametrize("invariant", INVARIANTS.values(), ids=list(INVARIANTS))
def test_it_is_not_always_put_to_the_test(invariant: Invariant) -> None:
    """A witness that is always there would witness nothing."""
    assert not all(invariant.sometimes(subject) for subject in subjects(play(COMMITTED), invariant))


def test_a_violation_names_rule_and_rows() -> None:
    case = CASES[0]
    last = play(case.trace, *case.swaps).steps[-1]
    [found] = violations_of([INVARIANTS["INV-001"]], last)
    assert (found.invariant, found.rule, found.rows) == ("INV-001", "PHASE-001", ("run r1: pending to prepared",))
    assert str(found) == (
        "INV-001 (PHASE-001): a phase moves along its edges only, and on a run that is over only from mutating to "
        "mutated: run r1: pending to prepared"
    )
