"""A host that gathers steps, as the checker sees it: what it may lose, and what it may not."""

import pytest

from keepkernel import SendMutation
from keepkernel.fuzz.check import explore, shortest
from keepkernel.fuzz.setups import setup
from keepkernel.kernel import respond
from keepkernel.kernel.respond import MAY_WAIT

PLAIN = frozenset({"crash", "coalesced"})


@pytest.mark.rule("HOST-001")
@pytest.mark.rule("HOST-011")
def test_a_send_that_waits_for_a_later_commit_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    explore(setup("coalesced", features=PLAIN)).assert_holds()
    monkeypatch.setattr(respond, "MAY_WAIT", MAY_WAIT | {SendMutation})
    result = explore(setup("coalesced", features=PLAIN), max_states=20_000)  # Each crash may double it once more.
    assert result.verdict == "violated"
    assert "INV-035" in [example.violation.invariant for example in result.counterexamples]
    told = [moment.label.text for moment in shortest(result).moments]
    assert told.count("calls the target") == 2
    assert "dies" in told


@pytest.mark.rule("HOST-008")
def test_what_a_person_does_falls_on_what_is_durable_and_the_held_steps_are_lost() -> None:
    """A person may skip what a held prepare has read; nobody is blamed, and the run never was."""
    result = explore(setup("coalesced", features=PLAIN | {"skip", "pause"}))
    result.assert_holds()
    fine = explore(setup("main", features=frozenset({"crash", "skip", "pause"})))
    assert 0 < result.states < fine.states, "there are fewer places to cut"
