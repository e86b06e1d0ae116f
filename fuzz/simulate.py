"""Random walks over the checker's model, for set-ups that are too big to exhaust.

Every walk goes by its own mix: who is quick and who is slow, how often something goes wrong, and which faults there
are at all. A walk is made of the seed and its number alone, so that any of them can be told again. Time ends a
simulation between two walks, never within one.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from ..spec.readings import READINGS, all_swaps
from ..spec.variants import swapped
from .check import Counterexample, moments_of
from .commands import Wanted, resolved
from .explorer import Move
from .progress import Watch
from .report import plural, story
from .setups import SETUPS, Setup
from .system import Caller, Label, Model

STEPS: Final = 400
"""Where a walk ends whose inputs are not done before."""
FAULT_RATES: Final = (0.05, 0.05, 0.2, 0.5)
SHARES: Final = (0.25, 0.5, 1.0)
"""Which part of the faults there are in a walk."""
PACES: Final = (0.2, 1.0, 1.0, 5.0)
COUNTS: Final = Path(__file__).with_name("counts.json")


class Walk(NamedTuple):
    """The states of a walk, and the labels between them; one label more than steps that lead somewhere when the last
    step itself breaks an invariant."""

    codes: list[int]
    labels: list[int]
    broken: bool


class Mix:
    """What one walk makes of its choices."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fault_rate = random.choice(FAULT_RATES)
        self.share = random.choice(SHARES)
        self._paces: dict[object, float] = {}

    def pace(self, what: object, share: float = 1.0) -> float:
        """How readily something happens in this walk; 0 when it is left out."""
        if what not in self._paces:
            self._paces[what] = self.random.choice(PACES) if self.random.random() < share else 0.0
        return self._paces[what]

    def weight(self, label: Label, calm: bool) -> float:
        actor, text, command = label
        return self.pace(actor) * self.pace((actor, text, type(command)), 1.0 if calm else self.share)

    def choice(self, model: Model, moves: Sequence[Move[int]]) -> Move[int]:
        """A calm move, or now and then a fault; whatever there is when a walk would have to stop."""
        weights = [self.weight(model.labels[label], calm) for label, _, calm in moves]
        calm = [w if move[2] else 0.0 for w, move in zip(weights, moves, strict=True)]
        faults = [0.0 if move[2] else w for w, move in zip(weights, moves, strict=True)]
        if any(faults) and (not any(calm) or self.random.random() < self.fault_rate):
            return self.random.choices(moves, faults)[0]
        return self.random.choices(moves, calm)[0] if any(calm) else self.random.choice(moves)


def walk(model: Model, seed: int, number: int, steps: int = STEPS) -> Walk:
    """One walk, from the start until all its inputs are done, it breaks something, or has gone far enough."""
    mix = Mix(Random(f"{seed}/{number}"))
    codes, labels = [model.initial()[0]], list[int]()
    while not model.broken(codes[-1]):
        moves = [move for move in model.concrete_moves(codes[-1]) if move[1] != codes[-1]]
        if not moves or len(labels) == steps or is_done(model, codes[-1]):
            return Walk(codes, labels, broken=False)
        label, onward, _ = mix.choice(model, moves)
        labels.append(label)
        if onward is None:
            break
        codes.append(onward)
    return Walk(codes, labels, broken=True)


def is_done(model: Model, code: int) -> bool:
    """Every input is consumed or skipped, and no call travels: what follows is the same in every walk."""
    state, _, outside = model.parts(code)
    if state.run is not None or outside.current or outside.strays or len(state.events) < len(model.setup.inputs):
        return False
    return all(event.status in ("consumed", "skipped") for event in state.events)


class Simulation(NamedTuple):
    setup: Setup
    caller: Caller
    reading: str
    seed: int
    walks: int
    steps: int
    states: int
    """How many different states were met; states that differ in the names of their inputs count as one."""
    known: int
    """How many there are, when somebody has counted them; 0 otherwise."""
    seconds: float
    broken_walk: int
    """The number of the walk that broke something; -1 when none did."""
    counterexample: Counterexample | None


@cache
def counted() -> dict[str, list[int]]:
    """States, transitions and depth of every space that was searched to its end; a test pins them."""
    table: dict[str, list[int]] = json.loads(COUNTS.read_text())
    return table


def known_states(setup: Setup, caller: Caller) -> int:
    if setup.features != SETUPS[setup.name].features:
        return 0
    return counted().get(name_of(setup, caller), [0])[0]


def name_of(setup: Setup, caller: Caller) -> str:
    """
    >>> name_of(SETUPS["batch"], "honest")
    'batch, 2 events, honest'
    """
    return f"{setup.name}, {plural(setup.events, 'event')}, {caller}"


def simulate(
    setup: Setup, caller: Caller = "honest", *, reading: str = "", seed: int = 0, walks: int = 0,
    seconds: float = 0, steps: int = STEPS, watch: Watch | None = None,
) -> Simulation:  # fmt: skip
    """Walk until something breaks, so many walks are done, or the time is over.

    >>> simulate(SETUPS["no-mutate"], seed=1, walks=3).counterexample is None
    True
    """
    if not walks and not seconds:
        raise ValueError("say how many walks, or how many seconds")
    began = time.monotonic()
    model, met, taken, done = Model(setup, caller), set[int](), 0, 0
    example: Counterexample | None = None
    with swapped(*all_swaps(READINGS[reading])) if reading else nullcontext():
        while example is None and not is_over(began, done, walks, seconds, watch):
            one = walk(model, seed, done, steps)
            met.update(map(model.folded, one.codes))
            taken += len(one.labels)
            done += 1
            if one.broken:
                example = counterexample(model, one)
            if watch is not None:
                watch.show(f"{plural(done, 'walk')}, {plural(len(met), 'state')}")
    known = 0 if reading else known_states(setup, caller)
    broken = -1 if example is None else done - 1
    return Simulation(
        setup, caller, reading, seed, done, taken, len(met), known, time.monotonic() - began, broken, example
    )  # fmt: skip


def is_over(began: float, done: int, walks: int, seconds: float, watch: Watch | None) -> bool:
    return (
        (watch is not None and watch.stopped)
        or (walks > 0 and done >= walks)
        or (seconds > 0 and time.monotonic() - began >= seconds)
    )


def counterexample(model: Model, one: Walk) -> Counterexample:
    """The broken end of a walk; it is as long as the walk was, and `check` has shorter ones."""
    by_step = len(one.labels) == len(one.codes)
    last = one.codes[-1]
    broken = model.step_violations(last, one.labels[-1]) if by_step else model.all_violations(last)
    moments = tuple(moments_of(model, one.codes, one.labels))
    return Counterexample(broken[0], model.parts(one.codes[0])[0], moments, by_step=by_step)


# --- the command -------------------------------------------------------------------------------------


def run(wanted: Wanted, *, seed: int, walks: int, seconds: float, only: int | None, as_json_text: bool) -> int:
    """`keepkernel simulate`: prints what it met, and returns the exit code."""
    setup, caller = resolved(wanted)
    if only is not None:
        return tell(setup, caller, wanted.reading, seed, only)
    with Watch(setup.name) as watch:
        done = simulate(
            setup, caller, reading=wanted.reading, seed=seed, walks=walks, seconds=seconds, watch=watch
        )  # fmt: skip
    if as_json_text:
        print(json.dumps(as_json(done), indent=2, ensure_ascii=False))
    else:
        print("\n".join(lines(done, again(wanted, seed))))
    return 1 if done.counterexample is not None else 0


def again(wanted: Wanted, seed: int) -> str:
    """The command that repeats a simulation, without its end."""
    options = {
        "--events": wanted.events or "",
        "--caller": wanted.caller or "",
        "--features": wanted.features or "",
        "--reading": wanted.reading,
        "--seed": seed,
    }
    words = [f"{name} {value}" for name, value in options.items() if value != ""]
    return " ".join(["keepkernel simulate", *([wanted.setup] if wanted.setup else []), *words])


def lines(done: Simulation, command: str) -> Iterator[str]:
    reading = f", in the reading {done.reading}" if done.reading else ""
    verdict = "nothing is broken" if done.counterexample is None else "broken"
    yield f"{name_of(done.setup, done.caller)}{reading}: {verdict}"
    rate = done.steps / max(done.seconds, 0.001)
    yield f"  {plural(done.walks, 'walk')}, {plural(done.steps, 'step')}, {done.seconds:.1f} s, {rate:,.0f} steps/s"
    part = f" of {done.known:,} known ones ({done.states / done.known:.1%})" if done.known else ""
    yield f"  {plural(done.states, 'different state')}{part}"
    yield f"  seed {done.seed}; the same walks again: {command} --walks {done.walks}"
    if done.counterexample is not None:
        yield f"  the broken walk alone: {command} --walk {done.broken_walk}"
        yield ""
        yield from story(done.counterexample)


def tell(setup: Setup, caller: Caller, reading: str, seed: int, number: int) -> int:
    """One walk, step by step."""
    model = Model(setup, caller)
    with swapped(*all_swaps(READINGS[reading])) if reading else nullcontext():
        one = walk(model, seed, number)
        if one.broken:
            print("\n".join(story(counterexample(model, one))))
            return 1
        moments = list(moments_of(model, one.codes, one.labels))
    from .report import step_in_words

    print(f"walk {number} of seed {seed} breaks nothing in {plural(len(moments), 'step')}:")
    print("\n".join(f"{n:4}  {step_in_words(moment)}" for n, moment in enumerate(moments, 1)))
    return 0


def as_json(done: Simulation) -> dict[str, Any]:
    from .report import step_in_words

    example = done.counterexample
    return {
        "verdict": "violated" if example else "not decided",
        "setup": done.setup.name,
        "events": done.setup.events,
        "caller": done.caller,
        "features": sorted(done.setup.features),
        "reading": done.reading or "chosen",
        "seed": done.seed,
        "walks": done.walks,
        "steps": done.steps,
        "states": done.states,
        "known_states": done.known or None,
        "seconds": round(done.seconds, 2),
        "violations": []
        if example is None
        else [
            {
                "invariant": example.violation.invariant,
                "rule": example.violation.rule,
                "text": example.violation.text,
                "walk": done.broken_walk,
                "length": example.length,
                "trace": [step_in_words(moment) for moment in example.moments],
            }
        ],
    }
