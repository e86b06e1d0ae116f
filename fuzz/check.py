"""One search of one set-up: what holds, what breaks, and what the search never came to."""

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from types import FunctionType
from typing import Any, Final, NamedTuple

from ..kernel import commands as c
from ..kernel import ledger, people, runs
from ..kernel.reasons import REASONS
from ..kernel.tables import TABLES
from ..kernel.types import Outcome, State
from ..spec.invariants import INVARIANTS, Violation
from ..spec.readings import READINGS, all_swaps
from ..spec.variants import Swap, swapped
from . import explorer
from .explorer import Found, Graph, Progress, Verdict
from .setups import SETUPS, Setup, setup
from .system import LAW, Caller, Hand, Label, Model
from .unreached import EXPECTED
from .world import World

LIVENESS: Final[dict[str, Violation]] = {
    "rest is reachable": Violation("LIVE-001", "LIVE-001", "from every state rest is reachable", ()),
    "the workflow comes to rest": Violation(
        "LIVE-002", "LIVE-002", "when faults stop, every input is done in the end and the workflow rests", ()
    ),
}
"""What is checked on the graph as a whole."""


class Moment(NamedTuple):
    """One step of a trace, and how things stand after it."""

    label: Label
    outcome: Outcome | None
    """What the kernel said, when somebody asked it."""
    state: State
    hand: Hand
    world: World


class Counterexample(NamedTuple):
    violation: Violation
    start: State
    moments: tuple[Moment, ...]
    loop: int = -1
    """For liveness: after how many steps the loop begins; -1 when there is none."""
    by_step: bool = False
    """The last step itself breaks the invariant; its moment holds the state as the kernel gave it."""

    @property
    def length(self) -> int:
        return len(self.moments)


class Result(NamedTuple):
    """The outcome of a search, for people, programs and tests."""

    setup: Setup
    caller: Caller
    reading: str
    verdict: Verdict
    why: str
    """Why it is not decided, or what is vacuous; empty otherwise."""
    states: int
    transitions: int
    depth: int
    seconds: float
    counterexamples: tuple[Counterexample, ...]
    witnesses: tuple[str, ...]
    """The invariants that were put to the test."""
    missing: tuple[str, ...]
    """The invariants that should have been put to the test, and were not."""
    unreached: dict[str, tuple[str, ...]]
    """Table edges, rules and reasons that the search never came to."""
    complete: bool
    """Every reachable state was seen."""
    to_law: bool
    """Every answer of the kernel was held against the law that is written a second time."""

    def assert_holds(self) -> "Result":
        """For tests: fail with the counterexample unless everything holds."""
        if self.verdict != "holds":
            from .report import told

            raise AssertionError(told(self))
        return self

    @property
    def invariants(self) -> dict[str, str]:
        """What is decided: what is broken and, when every state was seen, what holds. Liveness is asked last."""
        broken = {example.violation.invariant for example in self.counterexamples}
        decided = set(broken)
        if self.complete:
            decided |= INVARIANTS.keys() | ({LAW} if self.to_law else set())
            live = {violation.invariant for violation in LIVENESS.values()}
            if self.caller == "honest" and broken <= live:
                decided |= live
        return {name: "violated" if name in broken else "holds" for name in sorted(decided)}


def explore(
    chosen: Setup | str,
    *,
    caller: Caller = "honest",
    reading: str = "",
    swaps: tuple[Swap, ...] = (),
    to_law: bool = False,
    max_states: int = 0,
    stop_at_first: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Result:
    """Search every reachable state of a set-up, with the kernel as it is or in another reading.

    `chosen` is a set-up or the name of one (`keepkernel check --list`). An adversary as `caller` sends any command at
    any time. `swaps` exchange functions of the kernel. `to_law` also holds every answer of the kernel against the law
    as it is written a second time. The search ends early after `max_states`, at the first
    violation if `stop_at_first`, or when `report`, which is called now and then, raises KeyboardInterrupt.

    In a test one line is enough; it fails with the shortest counterexample in words:

        def test_one_consumer() -> None:
            explore("consumer").assert_holds()

    >>> from keepkernel import explore
    >>> explore("no-mutate").assert_holds().verdict
    'holds'
    """
    chosen = setup(chosen) if isinstance(chosen, str) else chosen
    if reading:
        swaps = all_swaps(READINGS[reading])
    model = Model(chosen, caller, to_law=to_law)
    with swapped(*swaps) if swaps else nullcontext():
        graph = explorer.explore(model, max_states=max_states, stop_at_first=stop_at_first, report=report)
        found = list(graph.found)
        if graph.complete and caller == "honest" and not found:
            found += [f for f in (explorer.cannot_rest(model, graph), explorer.never_rests(model, graph)) if f]
        examples = tuple(counterexample(model, graph, one) for one in found)
    return judged(model, graph, reading, examples, changed=bool(swaps))


def explore_reading(name: str, *, max_states: int = 0, report: Callable[[Progress], None] | None = None) -> Result:
    """The shortest way in which a reading breaks, in the set-up in which it shows best."""
    reading = READINGS[name]
    chosen = setup(reading.setup, features=frozenset(reading.features))
    return explore(
        chosen, caller=reading.caller, reading=name, max_states=max_states, stop_at_first=True, report=report
    )  # fmt: skip


def shortest(result: Result) -> Counterexample:
    """The first counterexample; of those that one step breaks together, the one that its reading names."""
    first = result.counterexamples[0]
    named = READINGS[result.reading].breaks if result.reading in READINGS else ""
    together = (e for e in result.counterexamples if e.length == first.length and e.violation.invariant == named)
    return next(together, first)


def judged(
    model: Model, graph: Graph[int], reading: str, examples: tuple[Counterexample, ...], changed: bool
) -> Result:
    chosen = model.setup
    standard = not changed and chosen.name in SETUPS and chosen.features == SETUPS[chosen.name].features
    expected = EXPECTED.get(chosen.name, {})
    missing = tuple(sorted(INVARIANTS.keys() - model.witnessed - expected.keys())) if standard else ()
    verdict: Verdict = "holds"
    why = ""
    if examples:
        verdict = "violated"
    elif not graph.complete:
        verdict, why = "not decided", "the search was stopped before it had seen every state"
    elif missing:
        verdict, why = "violated", f"vacuous: never put to the test: {', '.join(missing)}"
    return Result(
        chosen, model.caller, reading, verdict, why, len(graph.states), graph.transitions, graph.depth,
        graph.seconds, examples, tuple(sorted(model.witnessed)), missing, unreached(model), graph.complete,
        model.to_law,
    )  # fmt: skip


def unreached(model: Model) -> dict[str, tuple[str, ...]]:
    taken = {(m.machine, m.source, m.target) for m in model.machine_moves}
    edges = {(name, source, target) for name, table in TABLES.items() for (source, _), target in table.items()}
    met = model.rules.keys() | {REASONS[reason].rule for reason in model.reasons}
    return {
        "edges": tuple(f"{name}: {source} → {target}" for name, source, target in sorted(edges - taken)),
        "rules": tuple(sorted(named_rules() - met)),
        "reasons": tuple(sorted(REASONS.keys() - model.reasons.keys())),
    }


@cache
def named_rules() -> frozenset[str]:
    """The rules that an answer of the kernel can name: those of its refusals, and those in its transitions."""
    texts = {reason.rule for reason in REASONS.values()}
    for module in (runs, ledger, people):
        for function in vars(module).values():
            if isinstance(function, FunctionType):
                texts |= {text for text in function.__code__.co_consts if isinstance(text, str)}
    return frozenset(text for text in texts if re.fullmatch(r"[A-Z]+-\d{3}", text))


# --- traces ------------------------------------------------------------------------------------------


def counterexample(model: Model, graph: Graph[int], found: Found) -> Counterexample:
    """A trace in which every input keeps its name, found along the shortest path of the search."""
    path = [graph.states[node] for node in found.path]
    codes, labels = unfolded(model, path, found)
    moments = tuple(moments_of(model, codes, labels))
    last = codes[-1]
    if found.property in LIVENESS:
        return Counterexample(LIVENESS[found.property], model.parts(codes[0])[0], moments, found.loop)
    by_step = len(labels) == len(codes)
    broken = model.step_violations(last, labels[-1]) if by_step else model.all_violations(last)
    violation = next(v for v in broken if v.invariant == found.property)
    return Counterexample(violation, model.parts(codes[0])[0], moments, by_step=by_step)


def unfolded(model: Model, path: list[int], found: Found) -> tuple[list[int], list[int]]:
    codes, labels = [path[0]], []
    for target in path[1:]:
        label, onward = next(
            (label, onward)
            for label, onward, _ in model.concrete_moves(codes[-1])
            if onward is not None and model.folded(onward) == target
        )
        codes.append(onward)
        labels.append(label)
    if len(found.labels) == len(path):  # The last step itself breaks the property, and leads nowhere.
        labels.append(
            next(
                label
                for label, onward, _ in model.concrete_moves(codes[-1])
                if onward is None and found.property in model.broken_by(codes[-1], label)
            )
        )
    return codes, labels


def moments_of(model: Model, codes: list[int], labels: list[int]) -> Iterator[Moment]:
    for n, number in enumerate(labels):
        label = model.labels[number]
        base = model.stepped_on(codes[n], number)
        outcome = model.edge(base, label.command).outcome if label.command is not None else None
        code = codes[n + 1] if n + 1 < len(codes) else codes[n]
        state, hand, outside = model.parts(code)
        if n + 1 == len(codes) and outcome is not None:
            state = getattr(outcome, "state", state)
        yield Moment(label, outcome, state, hand, outside)


def as_json(result: Result) -> dict[str, Any]:
    """The one object that `--json` prints."""
    from .report import step_in_words

    return {
        "verdict": result.verdict,
        "why": result.why,
        "setup": result.setup.name,
        "caller": result.caller,
        "events": result.setup.events,
        "crashes": "any" if result.setup.has("crash") or result.caller == "adversary" else 0,
        "features": sorted(result.setup.features),
        "reading": result.reading or "chosen",
        "states": result.states,
        "transitions": result.transitions,
        "depth": result.depth,
        "seconds": round(result.seconds, 2),
        "invariants": result.invariants,
        "violations": [
            {
                "invariant": e.violation.invariant,
                "rule": e.violation.rule,
                "text": e.violation.text,
                "rows": list(e.violation.rows),
                "length": e.length,
                "loop": e.loop if e.loop >= 0 else None,
                "trace": [step_in_words(moment) for moment in e.moments],
            }
            for e in result.counterexamples
        ],
        "witnesses": list(result.witnesses),
        "unreached": {kind: list(names) for kind, names in result.unreached.items()},
    }


__all__ = ["Counterexample", "Moment", "Result", "as_json", "c", "explore"]
