"""The system that the checker explores: the real kernel, a host, its people, and the world around them.

A state is three things: the kernel's state (as a picture, see `abstract.py`), what the host has in hand, and the
world. The host's loop is taken apart as finely as it can be cut: between a commit, its effect, the answer and
the next commit the host holds something in hand, and a crash drops it. What the kernel does is computed once for
each state and command, by `step` itself, and every such step is checked against the invariants.

A host that gathers steps (`coalesced`) also holds the state that is durable. A crash falls back to it, and so does
whatever somebody else commits in between (HOST-008, HOST-011).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations
from traceback import extract_tb
from typing import Final, Literal, NamedTuple, get_args

from ..kernel import commands as c
from ..kernel import recover as recovery
from ..kernel import respond, schedule
from ..kernel import step as kernel
from ..kernel.capabilities import Function
from ..kernel.failures import FailureClass, row_of
from ..kernel.runs import needs_mutate
from ..kernel.types import (
    Accepted,
    Author,
    CallHandler,
    Effect,
    EndStatus,
    ErrorCause,
    Key,
    Outcome,
    Reconcile,
    Rejected,
    Retired,
    Send,
    State,
)
from ..spec import invariants, moves
from ..spec.invariants import ON_OUTSIDE, ON_STATES, ON_STEPS, Outside, Step, Violation, violations
from . import abstract, law, world
from .abstract import FRESH_RUN, LATER, NOW, STALE_RUN, picture, timed
from .explorer import Move, Moves
from .setups import PARAMS, TOOL, Setup, publication
from .world import NOT_LANDED, Call, World

Caller = Literal["honest", "adversary"]
HandKind = Literal["down", "recovering", "idle", "call", "send", "sent", "reconcile", "not_found", "voided", "say"]


class Hand(NamedTuple):
    """What the host has in hand; a crash drops it."""

    kind: HandKind
    by: Literal["", "inline", "reconcile"] = ""
    late: bool = False
    """Reconcile was asked when the call could land no more."""
    queue: tuple[c.Command, ...] = ()
    durable: int = -1
    """The number of the kernel state that the store still has, when steps are held back."""


DOWN: Final = Hand("down")
IDLE: Final = Hand("idle")


class Label(NamedTuple):
    """What happens in one move."""

    actor: str
    text: str
    command: c.Command | None = None


class Template(NamedTuple):
    """A move as it is for every world: where it leads, what it needs of the current call, what it does to it."""

    label: int
    kernel: int
    """The number of the next kernel state; -1 when the step breaks an invariant."""
    hand: int
    act: str
    settles: bool
    """The record is settled, so that nobody waits for its call."""
    needs: tuple[Call, ...] | None
    calm: bool


class Plan(NamedTuple):
    """The moves of a kernel state and a hand, for one state of the current call."""

    labels: tuple[int, ...]
    calm: bytes
    same_world: tuple[tuple[int, int], ...]
    """Where the moves lead that leave the world as it is: kernel state and hand, in their places in a code."""
    other_world: tuple[tuple[int, int, int], ...]
    """The same for those that do not, each with the number of what it does, in the kernel state's place."""
    broken: tuple[int, ...]


class Places(dict[int, int]):
    """The codes of kernel states and worlds, with the hand left out: of their one representative when folded."""

    def __init__(self, model: "Model", fold: bool) -> None:
        super().__init__()
        self.model = model
        self.fold = fold

    def __missing__(self, pair: int) -> int:
        state, outside = pair >> WORLD_BITS, pair & (1 << WORLD_BITS) - 1
        if self.fold:
            state, outside = self.model.representative(state, outside)
        place = self[pair] = state << HAND_BITS + WORLD_BITS | outside
        return place


class Act(NamedTuple):
    """What a move does to the world."""

    act: str
    held: int
    """The inputs that the run holds."""
    settles: bool
    done: int
    """The inputs that are done when the move is made."""


class Acts(dict[int, int]):
    """The world that an act leads to, by the act's number, in the kernel state's place, and the world's."""

    def __init__(self, model: "Model") -> None:
        super().__init__()
        self.model = model

    def __missing__(self, key: int) -> int:
        onward = self[key] = self.model.acted(key >> WORLD_BITS, key & (1 << WORLD_BITS) - 1)
        return onward


class Edge(NamedTuple):
    """One transition of the kernel, or its refusal."""

    outcome: Outcome | None
    """None when the kernel did not answer, but raised."""
    target: int
    effect: Effect | None
    settles: bool
    violations: tuple[Violation, ...]


HAND_BITS: Final = 12
WORLD_BITS: Final = 24


Past = tuple[Retired, ...]
"""All rows that left the state, in their order."""


LAW: Final = "LAW"


def departs(rows: tuple[str, ...]) -> Violation:
    return Violation(LAW, "STEP-001", "the kernel answers as the law does that is written a second time", rows)


def raises(error: Exception) -> Violation:
    place = extract_tb(error.__traceback__)[-1]
    rows = (f"{type(error).__name__}: {error}", f"in {place.name}, line {place.lineno} of {place.filename}")
    return Violation("RAISES", "STEP-001", "the kernel never raises", rows)


class Model:
    """A set-up and a caller, as a system for the explorer.

    With `history` it forgets nothing: every run keeps its name and its rows for ever, counts go on, and the world
    remembers every landing. Such a space has no end; up to a bound it shows what the pictures are pictures of.

    With `to_law` every answer of the kernel is also held against the law as it is written a second time (`law.py`).
    """

    def __init__(
        self,
        setup: Setup,
        caller: Caller = "honest",
        *,
        fold: bool = True,
        history: bool = False,
        to_law: bool = False,
    ) -> None:
        self.setup = setup
        self.to_law = to_law
        self.caller = caller
        self.keys = setup.inputs + setup.outputs
        # Inputs are interchangeable as long as their order of arrival does not matter.
        self.gathers = setup.has("coalesced")
        self.fold = fold and not history and not setup.outputs and setup.events > 1 and not self.gathers
        self.picture = timed if history else partial(picture, setup=setup)
        self.history = history
        self.labels: list[Label] = []
        self.states: list[State] = []
        self.pasts: list[Past] = []
        self.hands: list[Hand] = []
        self.worlds: list[World] = []
        self.witnessed: set[str] = set()
        self._wanted = {id(kinds): list(kinds) for kinds in (ON_STATES, ON_STEPS, ON_OUTSIDE)}
        self.rules: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.machine_moves: set[moves.Move] = set()
        self._kinds: set[tuple[object, ...]] = set()
        self.state_violations: dict[int, tuple[Violation, ...]] = {}
        # Commands of two kinds with the same fields are equal as tuples, so their type is part of every key.
        self._label_ids: dict[tuple[Label, type], int] = {}
        self._state_ids: dict[tuple[State, Past], int] = {}
        self._hand_ids: dict[tuple[Hand, tuple[type, ...]], int] = {}
        self._world_ids: dict[World, int] = {}
        self._edges: list[dict[tuple[type, c.Command], Edge]] = []
        self._around: dict[int, tuple[Template, ...]] = {}
        self._templates: dict[int, tuple[Template, ...]] = {}
        self._acts = Acts(self)
        self._act_values: list[Act] = []
        self._act_ids: dict[Act, int] = {}
        self._plans: dict[tuple[int, Call], Plan] = {}
        self._places = Places(self, fold=self.fold)
        self._unfolded = Places(self, fold=False)
        self._likes: set[tuple[object, ...]] = set()
        self._raised: dict[int, tuple[Violation, ...]] = {}
        """What the kernel broke by raising when a host asked it what to do, by kernel state and hand."""
        self._strays: dict[int, tuple[tuple[int, int], ...]] = {}
        self._masks: list[tuple[int, int]] = []
        self._outside: dict[int, tuple[Violation, ...]] = {}

    # -- numbers for values, so that a state is one whole number

    def state_id(self, state: State, past: Past = ()) -> int:
        known = self._state_ids.get((state, past))
        if known is None:
            known = self._state_ids[state, past] = len(self.states)
            self.states.append(state)
            self.pasts.append(past)
            self._edges.append({})
            held = frozenset(state.run.reserved) if state.run is not None else frozenset()
            done = {e.key for e in state.events if e.status in ("consumed", "skipped")}
            self._masks.append((self._mask(held), self._mask(done)))
            found = violations(ON_STATES, state)
            if self.to_law and (rows := law.plan_departures(state, NOW, self._fresh(known))):
                found += (departs(rows),)
            if found:
                self.state_violations[known] = found
            self._witness(ON_STATES, state)
        return known

    def _mask(self, keys: Iterable[Key]) -> int:
        chosen = frozenset(keys)
        return sum(1 << n for n, key in enumerate(self.keys) if key in chosen)

    def hand_id(self, hand: Hand) -> int:
        key = (hand, tuple(map(type, hand.queue)))
        known = self._hand_ids.get(key)
        if known is None:
            known = self._hand_ids[key] = len(self.hands)
            if known >> HAND_BITS:
                raise OverflowError("too many hands for their place in a code; explore fewer features")
            self.hands.append(hand)
        return known

    def world_id(self, value: World) -> int:
        known = self._world_ids.get(value)
        if known is None:
            known = self._world_ids[value] = len(self.worlds)
            self.worlds.append(value)
        return known

    def label_id(self, label: Label) -> int:
        key = (label, type(label.command))
        known = self._label_ids.get(key)
        if known is None:
            known = self._label_ids[key] = len(self.labels)
            self.labels.append(label)
        return known

    def code(self, state: int, hand: int, outside: int) -> int:
        return (state << HAND_BITS | hand) << WORLD_BITS | outside

    def parts(self, code: int) -> tuple[State, Hand, World]:
        state, hand, outside = self.numbers(code)
        return self.states[state], self.hands[hand], self.worlds[outside]

    def numbers(self, code: int) -> tuple[int, int, int]:
        return code >> HAND_BITS + WORLD_BITS, code >> WORLD_BITS & (1 << HAND_BITS) - 1, code & (1 << WORLD_BITS) - 1

    # -- what the explorer asks

    def initial(self) -> list[int]:
        state = self.state_id(self.picture(self.setup.initial(NOW)))
        hand = self.hand_id(IDLE if self.caller == "adversary" else DOWN)
        return [self.code(state, hand, self.world_id(World((0,) * len(self.keys))))]

    def moves(self, code: int) -> Moves[int]:
        return self._moves(code, self.fold)

    def concrete_moves(self, code: int) -> Sequence[Move[int]]:
        """The same without renaming inputs, for telling a trace in which every name keeps its meaning."""
        labels, targets, calm, broken = self._moves(code, False)
        whole = zip(labels, targets, map(bool, calm), strict=True)
        return [*whole, *((label, None, False) for label in broken)]

    def folded(self, code: int) -> int:
        return self._code(*self.numbers(code), self.fold)

    def _moves(self, code: int, fold: bool) -> Moves[int]:
        outside = code & (1 << WORLD_BITS) - 1
        value = self.worlds[outside]
        plan = self._plans.get((code >> WORLD_BITS, value.current))
        if plan is None:
            plan = self._plans[code >> WORLD_BITS, value.current] = self._plan(code >> WORLD_BITS, value.current)
        places, acts = self._places if fold else self._unfolded, self._acts
        targets = [places[target | outside] | hand for target, hand in plan.same_world]
        targets += [places[target | acts[act | outside]] | hand for target, hand, act in plan.other_world]
        if not value.strays:
            return Moves(plan.labels, targets, plan.calm, plan.broken)
        state, hand, _ = self.numbers(code)
        strays = [(label, self._code(state, hand, onward, fold)) for label, onward in self._stray_moves(state, outside)]
        return Moves(
            (*plan.labels, *(label for label, _ in strays)),
            [*targets, *(target for _, target in strays)],
            plan.calm + bytes([True] * len(strays)),
            plan.broken,
        )

    def _plan(self, pair: int, call: Call) -> Plan:
        """The moves for every world whose current call is in this state, with all that can be known beforehand."""
        state, hand = pair >> HAND_BITS, pair & (1 << HAND_BITS) - 1
        templates = self._templates.get(pair)
        if templates is None:
            templates = self._templates[pair] = self._make_templates(state, hand)
        held, done = self._masks[state]
        same, other, broken = [], [], []
        for one in templates:
            if one.needs is None or call in one.needs:
                if one.kernel < 0:
                    broken.append(one.label)
                elif one.act or one.settles or self._masks[one.kernel][1] != done:
                    other.append(one)
                else:
                    same.append(one)
        return Plan(
            tuple([t.label for t in same] + [t.label for t in other]),
            bytes([t.calm for t in same] + [t.calm for t in other]),
            tuple([(t.kernel << WORLD_BITS, t.hand << WORLD_BITS) for t in same]),
            tuple([(t.kernel << WORLD_BITS, t.hand << WORLD_BITS, self._act_of(t, held)) for t in other]),
            tuple(broken),
        )

    def _act_of(self, template: Template, held: int) -> int:
        done = self._masks[template.kernel][1]
        return self.act_id(Act(template.act, held, template.settles, done)) << WORLD_BITS

    def _code(self, state: int, hand: int, outside: int, fold: bool) -> int:
        return (self._places if fold else self._unfolded)[state << WORLD_BITS | outside] | hand << WORLD_BITS

    def broken(self, code: int) -> tuple[str, ...]:
        state, _, outside = self.numbers(code)
        found = self._violated_outside(state, outside)
        if not found and state not in self.state_violations:
            return ()
        return tuple(v.invariant for v in (*self.state_violations.get(state, ()), *found))

    def broken_by(self, code: int, label: int) -> tuple[str, ...]:
        return tuple(v.invariant for v in self.step_violations(code, label))

    def step_violations(self, code: int, label: int) -> tuple[Violation, ...]:
        command = self.labels[label].command
        if command is None:
            return self._raised.get(code >> WORLD_BITS, ())
        return self.edge(self.stepped_on(code, label), command).violations

    def stepped_on(self, code: int, label: int) -> int:
        """The number of the kernel state on which a move's command is stepped: others know only what is durable."""
        state, hand, _ = self.numbers(code)
        durable = self.hands[hand].durable
        own = self.labels[label].actor == "host" and not isinstance(self.labels[label].command, c.BlockWorkflow)
        return state if own or durable < 0 else durable

    def all_violations(self, code: int) -> tuple[Violation, ...]:
        state, _, outside = self.numbers(code)
        return (*self.state_violations.get(state, ()), *self._violated_outside(state, outside))

    def rests(self, code: int) -> bool:
        state, hand, outside = self.parts(code)
        return hand == IDLE and not outside.current and not outside.strays and self._rests(state, outside.declined)

    def _rests(self, state: State, declined: tuple[str, ...]) -> bool:
        """All is done that has a consumer, or left by its script's own will, and the scheduler can only wait."""
        willing = [h.declared.subscribes for h in state.handlers if h.declared.name not in declined]
        topics = {topic for subscribes in willing for topic in subscribes}
        if state.run is not None or any(e.status == "pending" and e.key.topic in topics for e in state.events):
            return False
        plan = schedule.schedule(state, NOW, FRESH_RUN)
        return isinstance(plan, schedule.Wait | schedule.Idle) and plan.reason == "nothing_due"

    # -- the kernel

    def edge(self, state: int, command: c.Command) -> Edge:
        key = (type(command), command)
        known = self._edges[state].get(key)
        if known is None:
            known = self._make_edge(state, command)
            if not isinstance(known.outcome, Rejected):  # Refusals are many, and each is asked for once or twice.
                self._edges[state][key] = known
        return known

    def _make_edge(self, number: int, command: c.Command) -> Edge:
        state = self.states[number]
        try:
            outcome = kernel.step(state, command)
        except Exception as error:
            return Edge(None, -1, None, False, (raises(error),))
        after = outcome.state if isinstance(outcome, Accepted) else state
        seen = Step(state, command, outcome, after)
        self._witness(ON_STEPS, seen)
        rows = law.departure(state, command, outcome) if self.to_law else ()
        if isinstance(outcome, Rejected):
            self.reasons[outcome.reason] += 1  # Nothing changed, so no step was taken that could break anything else.
            return Edge(outcome, -1, None, False, (departs(rows),)) if rows else Edge(outcome, number, None, False, ())
        self.rules.update(outcome.rules)
        self._count_moves(state, command, outcome)
        found = violations(ON_STEPS, seen) + ((departs(rows),) if rows else ())
        past = (*self.pasts[number], outcome.retired) if self.history and any(outcome.retired) else self.pasts[number]
        target = -1 if found else self.state_id(self.picture(after), past)
        effect = outcome.effects[0] if outcome.effects else None
        settles = invariants.unresolved(state) and not invariants.unresolved(after)
        return Edge(outcome, target, effect, settles, found)

    def _fresh(self, number: int) -> str:
        """A name that no run and no session has; with history, that none ever had."""
        if not self.history:
            return FRESH_RUN
        state = self.states[number]
        rows = [state.run, state.session, *(row for gone in self.pasts[number] for row in (gone.run, gone.session))]
        return f"r{sum(row is not None for row in rows) + 1}"

    def _gone(self, number: int) -> str:
        """The name of a run that is over."""
        over = [gone.run.id for gone in self.pasts[number] if gone.run is not None]
        return over[-1] if over else STALE_RUN

    def _live(self, number: int) -> str:
        """The name of the live run; without one, of a run that is over."""
        run = self.states[number].run
        return run.id if run is not None else self._gone(number)

    def _count_moves(self, state: State, command: c.Command, outcome: Accepted) -> None:
        """Which edges of the machines were taken; looked at once for each kind of step."""
        run, record, session = state.run, state.mutation, state.session
        kind = (
            type(command),
            outcome.rules,
            run and run.phase,
            record and record.status,
            session and session.commits,
            getattr(command, "status", ""),
            tuple(e.status for e in outcome.state.events),
        )
        if kind not in self._kinds:
            self._kinds.add(kind)
            self.machine_moves |= moves.moves(state, outcome)

    def _witness(self, kinds: list[invariants.Invariant], subject: object) -> None:
        wanted = self._wanted[id(kinds)]
        if wanted:
            for one in [one for one in wanted if one.sometimes(subject)]:
                wanted.remove(one)
                self.witnessed.add(one.id)

    # -- the world

    def act_id(self, act: Act) -> int:
        known = self._act_ids.get(act)
        if known is None:
            known = self._act_ids[act] = len(self._act_values)
            self._act_values.append(act)
        return known

    def acted(self, number: int, outside: int) -> int:
        """The world after an act; without what can matter no more (`done`)."""
        act = self._act_values[number]
        value = self._acted(self.worlds[outside], act.act, act.held)
        if act.settles:
            value = world.settled(value, act.held)
        return self.world_id(value if self.history else world.without(value, act.done))

    def _acted(self, value: World, act: str, held: int) -> World:
        match act.split():
            case []:
                return value
            case ["deny"]:
                return world.denied(value, held)
            case ["assert"]:
                return world.asserted(value, held)
            case [("look" | "decline") as what, name]:
                others = tuple(n for n in value.declined if n != name)
                return value._replace(declined=others if what == "look" else tuple(sorted((*others, name))))
            case ["expire"]:  # A host that stalls checks the clock before it sends.
                return value._replace(current="lost") if value.current == "stalled" else value
            case [("stalled" | "air" | "landed" | "lost" | "void") as call]:
                return world.called(value, call, held)
        raise ValueError(act)

    def _stray_moves(self, state: int, outside: int) -> Iterator[tuple[int, int]]:
        known = self._strays.get(outside)
        if known is None:
            known = self._strays[outside] = tuple(
                (self.label_id(Label("world", text)), self.world_id(value))
                for text, value in world.stray_moves(self.worlds[outside])
            )
        act = self.act_id(Act("", 0, False, self._masks[state][1])) << WORLD_BITS
        return ((label, self._acts[act | value]) for label, value in known)

    def _violated_outside(self, state: int, outside: int) -> tuple[Violation, ...]:
        known = self._outside.get(state << WORLD_BITS | outside)
        if known is None:
            subject = Outside(self.states[state], world.ghost(self.worlds[outside], self.keys))
            self._witness(ON_OUTSIDE, subject)
            known = self._outside[state << WORLD_BITS | outside] = violations(ON_OUTSIDE, subject)
        return known

    def representative(self, state: int, outside: int) -> tuple[int, int]:
        """The one representative of all states that differ only in the names of their inputs."""
        marks = [self._marks(state, outside, n) for n in range(len(self.keys))]
        order = tuple(sorted(range(len(self.keys)), key=lambda n: marks[n]))
        if order == tuple(range(len(self.keys))):
            return state, outside
        keys = tuple(self.keys[n] for n in order)
        return (
            self.state_id(abstract.exchanged(self.states[state], keys)),
            self.world_id(world.exchanged(self.worlds[outside], order)),
        )

    def _marks(self, number: int, outside: int, n: int) -> tuple[object, ...]:
        """All that tells one input from another."""
        state, value, key = self.states[number], self.worlds[outside], self.keys[n]
        event = next((e for e in state.events if e.key == key), None)
        asked = state.error is not None and state.error.request is not None and key in state.error.request.events
        return (
            event is None,
            event.status if event else "",
            bool(self._masks[number][0] >> n & 1),
            asked,
            tuple(key in a.events for a in state.approvals),
            value.landed[n],
            value.denied >> n & 1,
            value.asserted >> n & 1,
            tuple(s.mask >> n & 1 for s in value.strays),
        )

    # -- moves

    def _make_templates(self, state: int, hand: int) -> tuple[Template, ...]:
        try:
            own = () if self.caller == "adversary" else tuple(self._host(state, self.hands[hand]))
        except Exception as error:
            own = (self._template(Label("host", "asks what to do"), -1, IDLE),)
            self._raised[state << HAND_BITS | hand] = (raises(error),)
        if self.hands[hand].durable >= 0:
            return (*own, *self._around_held(state, self.hands[hand]))
        return (*own, *(t._replace(hand=hand) for t in self._surroundings(state)))

    def _surroundings(self, state: int) -> tuple[Template, ...]:
        around = self._around.get(state)
        if around is None:
            around = self._around[state] = tuple(self._environment(state))
        return around

    def _around_held(self, state: int, hand: Hand) -> Iterator[Template]:
        """Time passes for both states; whoever commits does so on the durable one, and what is held back is lost."""
        idle = self.hand_id(IDLE)
        for one in self._surroundings(hand.durable):
            if self.labels[one.label].command is not None:
                yield one._replace(hand=idle)
        for one in self._surroundings(state):
            label = self.labels[one.label]
            if label.actor == "time":
                yield one._replace(hand=self.hand_id(hand._replace(durable=self._aged(hand.durable, label.text))))

    def _aged(self, number: int, text: str) -> int:
        """The same state after a deadline, if it has that deadline too."""
        for what, later in abstract.passing(self.states[number]):
            if text == f"{what} is over":
                return self.state_id(later, self.pasts[number])
        return number

    def _gathered(self, one: Template, number: int, hand: Hand) -> Template:
        """The same move of a host that holds back the steps that may wait (HOST-011)."""
        command, onward = self.labels[one.label].command, self.hands[one.hand]
        if onward.kind == "down":
            return one if hand.durable < 0 else one._replace(kernel=hand.durable)
        if command is None:
            durable = -1 if onward.kind == "reconcile" else hand.durable
        elif isinstance(self.edge(number, command).outcome, Rejected):
            durable = hand.durable
        elif respond.may_wait(command):
            durable = number if hand.durable < 0 else hand.durable
        else:
            durable = -1
        return one._replace(hand=self.hand_id(onward._replace(durable=durable)))

    def _template(
        self, label: Label, state: int, hand: Hand, *, act: str = "", settles: bool = False,
        needs: tuple[Call, ...] | None = None, calm: bool = False,
    ) -> Template:  # fmt: skip
        return Template(self.label_id(label), state, self.hand_id(hand), act, settles, needs, calm)

    def _command(
        self, actor: str, text: str, state: int, command: c.Command, *, act: str = "",
        needs: tuple[Call, ...] | None = None, calm: bool = False, hand: Hand = IDLE,
    ) -> Iterator[Template]:  # fmt: skip
        """A command of somebody else than the host; what is refused changes nothing and is no move."""
        edge = self.edge(state, command)
        if edge.violations or isinstance(edge.outcome, Accepted):
            target = -1 if edge.violations else edge.target
            label = Label(actor, text, command)
            if isinstance(edge.effect, Send):
                act = "stalled"
            yield self._template(label, target, hand, act=act, settles=edge.settles, needs=needs, calm=calm)

    def _say(
        self, text: str, state: int, queue: tuple[c.Command, ...], *, act: str = "",
        needs: tuple[Call, ...] | None = None, calm: bool = False,
    ) -> Iterator[Template]:  # fmt: skip
        """The host submits the first command of its queue, and keeps what follows from it in hand."""
        if not queue:
            yield self._template(Label("host", text), state, IDLE, act=act, needs=needs, calm=calm)
            return
        edge = self.edge(state, queue[0])
        label = Label("host", text, queue[0])
        if isinstance(edge.outcome, Rejected):
            end = respond.after_rejection(self.states[state], queue[0], edge.outcome, NOW)
            hand = Hand("say", queue=(end,)) if end is not None else IDLE
        else:
            hand = Hand("say", queue=queue[1:]) if queue[1:] else self._hand_for(edge.effect)
        target = -1 if edge.violations else edge.target
        yield self._template(label, target, hand, act=act, settles=edge.settles, needs=needs, calm=calm)

    def _hand_for(self, effect: Effect | None) -> Hand:
        match effect:
            case CallHandler():
                return Hand("call")
            case Send():
                return Hand("send")
            case Reconcile():
                return Hand("reconcile", "inline")
            case _:  # A repair is done by others, and ends with a deploy.
                return IDLE

    # -- the honest host

    def _host(self, number: int, hand: Hand) -> Iterator[Template]:
        found = self._host_moves(number, hand)
        if not self.gathers:
            yield from found
            return
        moved = False
        for one in found:
            moved = moved or self.hands[one.hand].kind != "down"
            yield self._gathered(one, number, hand)
        if hand.kind == "idle" and hand.durable >= 0 and not moved:
            yield self._template(Label("host", "commits what it holds, and waits"), number, IDLE, calm=True)

    def _host_moves(self, number: int, hand: Hand) -> Iterator[Template]:
        state = self.states[number]
        if hand.kind == "down":
            yield self._template(Label("host", "starts"), number, Hand("recovering"), calm=True)
            return
        if self.setup.has("crash"):
            yield self._template(Label("host", "dies"), number, DOWN)
            in_time = state.mutation is not None and state.mutation.send_by >= NOW
            if hand.kind == "send" and in_time and self.setup.has("stall"):
                yield self._template(
                    Label("host", "stalls before its call and is given up"), number, DOWN, act="stalled"
                )
        match hand.kind:
            case "recovering":
                yield from self._recovers(number, state)
            case "idle":
                yield from self._idles(number, state)
            case "say":
                yield from self._say("goes on", number, hand.queue, calm=True)
            case "call":
                yield from self._handler_answers(number, state)
            case "send":
                yield from self._sends(number, state)
            case "sent":
                yield from self._call_answers(number, state)
            case "reconcile":
                yield from self._reconciles(number, state, hand)
            case _:
                answer = respond.DidNotHappen(voided=hand.kind == "voided")
                queue = self._reconciled(number, hand.by, hand.late, answer)
                yield from self._say("hears that it did not happen", number, queue, calm=True)

    def _recovers(self, number: int, state: State) -> Iterator[Template]:
        commands = recovery.recover(state, NOW)
        if not commands:
            yield self._template(Label("host", "has recovered"), number, IDLE, calm=True)
            return
        edge = self.edge(number, commands[0])
        hand = Hand("recovering") if isinstance(edge.outcome, Accepted) else IDLE
        target = -1 if edge.violations else edge.target
        label = Label("host", "recovers", commands[0])
        yield self._template(label, target, hand, settles=edge.settles, calm=True)

    def _idles(self, number: int, state: State) -> Iterator[Template]:
        own = respond.advance(state, NOW)
        if own is not None:
            yield from self._say("goes on", number, (own,), calm=True)
            return
        work = schedule.upkeep(state, NOW)
        if isinstance(work, Reconcile):
            late = invariants.unresolved(state) and state.mutation is not None and state.mutation.may_land_until <= NOW
            yield self._template(
                Label("host", "asks what became of the call"), number, Hand("reconcile", "reconcile", late), calm=True
            )
        elif isinstance(work, c.Exhaust):
            yield from self._say("gives up asking", number, (work,), calm=True)
        plan = schedule.schedule(state, NOW, self._fresh(number))
        if not isinstance(plan, schedule.Wait | schedule.Idle):
            yield from self._say("schedules", number, (plan,), calm=True)

    def _handler_answers(self, number: int, state: State) -> Iterator[Template]:
        run = state.run
        if run is None:
            return
        function = FUNCTIONS.get(run.phase)
        if function is None:
            return
        effect = CallHandler(run.id, run.handler, run.version, function)
        for text, answer, calm in self._answers(state, function):
            queue = respond.respond(state, effect, answer, NOW)
            act = ""
            if isinstance(answer, respond.Pinned):
                willing = calm or answer.reservations or answer.wake_at
                act = f"{'look' if willing else 'decline'} {run.handler}"
            yield from self._say(f"{function} of {run.handler} {text}", number, queue, act=act, calm=calm)

    def _answers(self, state: State, function: str) -> Iterator[tuple[str, respond.Answer, bool]]:
        """Everything that a script may do."""
        match function:
            case "prepare":
                yield from self._prepares(state)
            case "mutate":
                yield "calls its tool", respond.Called(TOOL, PARAMS, self.setup.reconcilable), True
                yield "calls nothing", respond.CalledNothing(), False
            case "next":
                yield from self._emits(state)
            case _:
                yield from self._produces(state)
        if self.setup.has("failures"):
            for failure in FAILURES:
                yield f"fails: {failure}", respond.Failed(failure), False
        if self.setup.has("permission"):
            yield "asks for another tool", respond.Failed("permission", tool=OTHER_TOOL), False

    def _prepares(self, state: State) -> Iterator[tuple[str, respond.Answer, bool]]:
        row = None if state.run is None else row_of(state, state.run)
        topics = row.declared.subscribes if row is not None else ()
        pending = tuple(e.key for e in state.events if e.status == "pending" and e.key.topic in topics)
        sizes = (0, len(pending)) if self.setup.whole_batch else range(len(pending) + 1)
        for size in sorted({*sizes}):
            for chosen in combinations(pending, size):
                text = f"takes {', '.join(k.id for k in chosen) or 'nothing'}"
                yield text, respond.Pinned(chosen), chosen == pending
                if self.setup.has("wake"):
                    yield f"{text} and asks to be woken", respond.Pinned(chosen, wake_at=NOW), False
        if self.setup.has("probe"):
            nobody = Key("mail", "nobody")
            foreign = next((e.key for e in state.events if e.key.topic not in topics), nobody)
            text = "an unknown event" if foreign == nobody else f"{foreign.id}, to which it does not subscribe"
            yield f"names {text}", respond.Pinned((foreign,)), False

    def _emits(self, state: State) -> Iterator[tuple[str, respond.Answer, bool]]:
        reserved = state.run.reserved if state.run is not None else ()
        outputs = tuple(k for i, k in zip(self.setup.inputs, self.setup.outputs, strict=False) if i in reserved)
        yield "returns", respond.Finished("1", tuple(publication(k) for k in outputs)), True
        if outputs:
            yield "returns without an event", respond.Finished(), False
        if self.setup.has("republish"):
            for event in state.events:
                again = (publication(event.key, "2"),)
                yield f"publishes {event.key.id} again", respond.Finished(None, again), False

    def _produces(self, state: State) -> Iterator[tuple[str, respond.Answer, bool]]:
        known = {e.key for e in state.events}
        new = next((k for k in self.setup.inputs if k not in known), None)
        if new is not None:
            yield f"publishes {new.id}", respond.Finished("1", (publication(new),)), True
        yield "finds nothing", respond.Finished(), new is None
        if self.setup.has("republish") and known:
            again = tuple(publication(e.key, "2") for e in state.events)
            yield "publishes the same again", respond.Finished(None, again), False

    def _sends(self, number: int, state: State) -> Iterator[Template]:
        record = state.mutation
        if record is not None and record.send_by >= NOW:
            yield self._template(Label("host", "calls the target"), number, Hand("sent"), act="air", calm=True)
            return
        effect = Send(record.run if record else "", TOOL, PARAMS, "", 0)
        queue = respond.respond(state, effect, respond.Failed("network"), NOW)
        yield from self._say("finds it too late to call", number, queue, calm=True)

    def _call_answers(self, number: int, state: State) -> Iterator[Template]:
        run = state.run
        if run is None:
            return
        effect = Send(run.id, TOOL, PARAMS, "", 0)
        unanswered: tuple[Call, ...] = ("air", "landed", "lost") if self.setup.has("late") else ("landed", "lost")
        answers: list[tuple[str, respond.Answer, tuple[Call, ...], bool]] = [
            ("the target says it is done", respond.Happened(), ("landed",), True),
            ("the target refuses", respond.Failed("refused"), ("lost",), True),
            ("gets no answer", respond.Unknown(), unanswered, False),
        ]
        if self.setup.has("failures"):
            answers += [("the target refuses: rate limit", respond.Failed("rate_limit"), ("lost",), False)]
            answers += [("the target refuses: auth", respond.Failed("auth"), ("lost",), False)]
        for text, answer, needs, calm in answers:
            yield from self._say(text, number, respond.respond(state, effect, answer, NOW), needs=needs, calm=calm)
        if self.setup.has("failures"):
            again = CallHandler(run.id, run.handler, run.version, "mutate")
            queue = respond.respond(state, again, respond.Failed("forbidden"), NOW)
            yield from self._say("the script calls a second time", number, queue)

    def _reconciled(self, number: int, by: str, late: bool, answer: respond.Answer) -> tuple[c.Command, ...]:
        state, run = self.states[number], self._live(number)
        author: Literal["inline", "reconcile"] = "inline" if by == "inline" else "reconcile"
        return respond.respond(state, Reconcile(run, TOOL, PARAMS, "", author, NOW if late else 0), answer, NOW)

    def _reconciles(self, number: int, state: State, hand: Hand) -> Iterator[Template]:
        happened = self._reconciled(number, hand.by, hand.late, respond.Happened())
        yield from self._say("reconcile finds it", number, happened, needs=("landed",), calm=True)
        absent: tuple[Call, ...] = ("", *NOT_LANDED)
        nothing = Label("host", "reconcile does not find it")
        yield self._template(nothing, number, hand._replace(kind="not_found"), needs=absent, calm=True)
        if self.setup.has("void") and invariants.unresolved(state):
            voids = Label("host", "reconcile voids the call's key and does not find it")
            yield self._template(voids, number, hand._replace(kind="voided"), act="void", needs=absent)
        again = self._reconciled(number, hand.by, hand.late, respond.AskAgain())
        yield from self._say("reconcile can not tell", number, again)
        if self.setup.has("probe"):
            none = self._reconciled(number, hand.by, hand.late, respond.NoMethod())
            yield from self._say("the tool turns out to have no reconcile", number, none)

    # -- everybody else

    def _environment(self, number: int) -> Iterator[Template]:
        state = self.states[number]
        yield from self._time(number, state)
        yield from self._calls(number, state)
        if self.caller == "adversary":
            yield from self._anything(number, state)
        else:
            yield from self._people(number, state)

    def _time(self, number: int, state: State) -> Iterator[Template]:
        lost = state.mutation is not None and state.mutation.status in ("needs_reconcile", "indeterminate")
        for what, later in abstract.passing(state):
            # A fair host sends in time, and no interval is needed for what is pending already.
            calm = lost if what == "the time to send" else not what.startswith("the interval")
            act = "expire" if what == "the time to send" else ""
            onward = self.state_id(later, self.pasts[number])
            yield self._template(Label("time", f"{what} is over"), onward, IDLE, act=act, calm=calm)
        over = abstract.landing_over(state)
        if over is not None:
            # The promise of `may_land_until`: a call that still travels has landed or is lost by then.
            settled: tuple[Call, ...] = ("", "landed", "lost", "void")
            label = Label("time", "the call can land no more")
            onward = self.state_id(over, self.pasts[number])
            yield self._template(label, onward, IDLE, needs=settled, calm=True)

    def _calls(self, number: int, state: State) -> Iterator[Template]:
        if not invariants.unresolved(state):
            return
        if state.mutation is not None and state.mutation.send_by >= NOW:
            label = Label("world", "a stalled host wakes and sends its call")
            yield self._template(label, number, IDLE, act="air", needs=("stalled",))
        yield self._template(Label("world", "the call lands"), number, IDLE, act="landed", needs=("air",), calm=True)
        yield self._template(Label("world", "the call is lost"), number, IDLE, act="lost", needs=("air",))

    def _people(self, number: int, state: State) -> Iterator[Template]:
        has = self.setup.has
        run = self._live(number)
        person = partial(self._command, "user", state=number)
        error = state.error
        probe = has("probe") and self._first_of_its_like(state)
        if invariants.unresolved(state) or probe:
            yield from person("tries again", command=c.TryAgain(NOW, run))
            absent: tuple[Call, ...] = ("", *NOT_LANDED)
            deny, affirm = c.DidntHappen(NOW, run), c.AssertApplied(NOW, run)
            yield from person("says truly that it did not happen", command=deny, act="deny", needs=absent, calm=True)
            yield from person("says truly that it happened", command=affirm, act="assert", needs=("landed",), calm=True)
            if has("wrong"):
                yield from person("says wrongly that it did not happen", command=deny, act="deny", needs=("landed",))
                yield from person("says wrongly that it happened", command=affirm, act="assert", needs=absent)
            yield from person("skips the mutation", command=c.SkipMutation(NOW, run), calm=True)
        if error is not None and error.request is not None:
            yield from person("approves", command=c.Approve(NOW, error.request.digest), calm=True)
            yield from person("rejects", command=c.Reject(NOW, error.request.digest), calm=True)
        elif probe:
            yield from person("approves", command=c.Approve(NOW, "nothing"))
        if error is not None or probe:
            yield from person("reconnects", command=c.Reconnect(NOW), calm=True)
            yield from person("clears the error", command=c.ClearError(NOW), calm=True)
        if error is not None and error.kind == "blocked":
            yield from person("retries", command=c.Retry(NOW), calm=True)
        if error is not None and error.cause == "permission":
            grant = c.Grant(NOW, error.tool, self.setup.mode)
            yield from person("grants what is asked", command=grant, calm=True)
        if state.maintenance is not None or (error is not None and error.cause == "logic"):
            yield from person("deploys a repair", command=self.setup.deploy(NOW), calm=True)
        if state.status != "active" or probe:
            yield from person("resumes", command=c.Resume(NOW), calm=True)
        if (state.run is not None and state.run.status != "active") or probe:
            removed = state.run is not None and all(h.declared.name != state.run.handler for h in state.handlers)
            yield from person("abandons the retry", command=c.Abandon(NOW, run), calm=removed)
        if has("pause") and (state.status == "active" or probe):
            yield from person("pauses", command=c.Pause(NOW))
        if has("skip"):
            for event in (e for e in state.events if e.status == "pending" or probe):
                yield from person(f"skips {event.key.id}", command=c.SkipEvent(NOW, event.key))
        if has("redeploy"):
            yield from person("deploys less", command=self.setup.deploy_less(NOW))
            yield from person("deploys everything", command=self.setup.deploy(NOW))
        if has("manual"):
            yield from self._by_hand(number, state, run)
        if has("republish"):
            for event in state.events:
                again = c.Publish(NOW, publication(event.key, "2"))
                yield from self._command("tool", f"publishes {event.key.id} again", number, again)
        if ((has("second") or has("probe")) and invariants.unresolved(state)) or probe:
            yield from self._second_host(number, run)
        if probe:
            yield from self._stale(number, run)

    def _first_of_its_like(self, state: State) -> bool:
        """Whether no state was met yet in which the same commands are refused: what is refused needs one showing."""
        run, record, error = state.run, state.mutation, state.error
        like = (
            state.status,
            run and (run.kind, run.phase, run.status, run.outcome, run.retry_of),
            record and (record.status, record.reconcilable, record.resolved_by),
            error and (error.kind, error.cause),
            state.maintenance is not None,
            state.session is not None and schedule.spent(state),
            state.session is not None,
            run is not None and row_of(state, run) is None,
            tuple(sorted(e.status for e in state.events)),
        )
        first = like not in self._likes
        self._likes.add(like)
        return first

    def _by_hand(self, number: int, state: State, run: str) -> Iterator[Template]:
        person = partial(self._command, "user", state=number)
        for row in state.handlers:
            yield from person(f"runs {row.declared.name} now", command=c.RunNow(NOW, row.declared.name))
        yield from person("retries", command=c.Retry(NOW))
        yield from person("enters maintenance", command=c.EnterMaintenance(NOW))
        yield from person("leaves maintenance", command=c.ExitMaintenance(NOW))
        yield from self._command("host", "blocks the workflow", number, c.BlockWorkflow(NOW, ""))

    def _second_host(self, number: int, run: str) -> Iterator[Template]:
        other = partial(self._command, "second host", state=number)
        absent: tuple[Call, ...] = ("", *NOT_LANDED)
        yield from other("finds the call", command=c.ApplyMutation(NOW, run, "reconcile"), needs=("landed",))
        fail = c.FailMutation(NOW, run, "reconcile", asked_at=NOW)
        yield from other("does not find the call", command=fail, needs=absent)
        yield from other("can not tell", command=c.ReconcileRetry(NOW, run, "reconcile"))
        yield from other("gives up asking", command=c.Exhaust(NOW, run))

    def _stale(self, number: int, run: str) -> Iterator[Template]:
        """Reports of a host that slept: for the run that was, and for a phase that is over."""
        state, gone = self.states[number], self._gone(number)
        reports: tuple[c.Command, ...] = (
            c.EndRun(NOW, gone, "failed:logic"),
            c.ApplyMutation(NOW, gone, "call"),
            c.CommitConsumer(NOW, gone),
        )
        if state.run is not None and state.run.status != "active":
            reports += (c.EndRun(NOW, run, "crashed"), c.CommitConsumer(NOW, run), c.LoseTrack(NOW, run))
        if state.run is not None and state.run.phase != "pending":
            reports += (c.Begin(NOW, run),)
        if state.run is not None and state.run.phase == "prepared" and row_of(state, state.run) is not None:
            due = needs_mutate(state, state.run)
            reports += (c.Emitting(NOW, run) if due else c.Mutating(NOW, run),)
        reports += tuple(self._scheduled_before(number, state))
        if state.mutation is not None:
            reports += (c.RecordMutation(NOW, run, TOOL, PARAMS, True), c.SendMutation(NOW, gone))
        for report in reports:
            yield from self._command("second host", "reports what is over", number, report)

    def _scheduled_before(self, number: int, state: State) -> Iterator[c.Command]:
        """What a host wants that looked before the run began, the session was spent, or the consumer was removed."""
        run, fresh = state.run, self._fresh(number)
        session = state.session.id if state.session is not None else "s1"
        if run is not None:
            yield c.CreateRun(NOW, fresh, session, run.handler)
            if row_of(state, run) is None:
                yield c.CreateRetry(NOW, fresh, session, run.id)
        elif schedule.spent(state):
            yield from (c.CreateRun(NOW, fresh, session, row.declared.name) for row in state.handlers)

    # -- the adversary

    def _anything(self, number: int, state: State) -> Iterator[Template]:
        """Every command, at any time; only what is said of the world is true."""
        run = self._live(number)
        absent: tuple[Call, ...] = ("", *NOT_LANDED)
        anyone = partial(self._command, "anyone", state=number)
        for command in self._alphabet(number, state, run):
            yield from anyone("asks", command=command)
        for by in get_args(Author):
            yield from anyone("tells", command=c.ApplyMutation(NOW, run, by), needs=("landed",))
        yield from anyone("tells", command=c.FailMutation(NOW, run, "call"), needs=("lost",))
        for by in RECONCILERS:
            asked = c.FailMutation(NOW, run, by, asked_at=NOW)
            yield from anyone("tells", command=asked, needs=absent)
            early, ahead = c.FailMutation(NOW, run, by), asked._replace(asked_at=LATER)
            yield from anyone("tells what it saw long ago", command=early)
            yield from anyone("tells what it is going to see", command=ahead, needs=absent)
            if self.setup.has("void"):
                void = c.FailMutation(NOW, run, by, voided=True)
                yield from anyone("voids the key and tells", command=void, act="void", needs=absent)
        yield from anyone("denies", command=c.DidntHappen(NOW, run), act="deny")
        yield from anyone("asserts", command=c.AssertApplied(NOW, run), act="assert")

    def _alphabet(self, number: int, state: State, run: str) -> Iterator[c.Command]:
        fresh = self._fresh(number)
        session = state.session.id if state.session is not None else "s1"
        keys = tuple(e.key for e in state.events)
        names = tuple(h.name for h in self.setup.handlers)
        yield from (c.StartSession(NOW, fresh), c.FinishSession(NOW, session))
        for name in names:
            yield from (c.CreateRun(NOW, fresh, session, name), c.RunNow(NOW, name))
        yield from (c.CreateRetry(NOW, fresh, session, run), c.Begin(NOW, run), c.Mutating(NOW, run))
        yield from (c.Mutated(NOW, run), c.Emitting(NOW, run), c.SendMutation(NOW, run), c.LoseTrack(NOW, run))
        for size in range(len(keys) + 1):
            yield from (c.Prepared(NOW, run, chosen) for chosen in combinations(keys, size))
        yield c.Prepared(NOW, run, keys[:1] * 2)
        yield c.Prepared(NOW, run, (), wake_at=NOW)
        new = next((k for k in (*self.setup.inputs, *self.setup.outputs) if k not in keys), None)
        publications = [(), *((publication(k, "2"),) for k in keys), *(((publication(new),),) if new else ())]
        for made in publications:
            yield from (c.CommitConsumer(NOW, run, "1", made), c.CommitProducer(NOW, run, "1", made))
            yield from (c.Publish(NOW, one) for one in made)
        yield c.CommitProducer(NOW, run, due_at=SOON_CRON)
        for reconcilable in (True, False):
            yield c.RecordMutation(NOW, run, TOOL, PARAMS, reconcilable)
        for by in RECONCILERS:
            for early in (False, True):
                yield c.ReconcileRetry(NOW, run, by, early)
        yield from (c.Exhaust(NOW, run), c.Exhaust(NOW, run, no_method=True))
        yield from (c.EndRun(NOW, run, status, "", cause, TOOL if cause else "") for status, cause in ENDS)
        yield from (c.TryAgain(NOW, run), c.SkipMutation(NOW, run), c.Abandon(NOW, run))
        yield from (c.SkipEvent(NOW, key) for key in keys)
        request = state.error.request if state.error is not None else None
        digest = request.digest if request is not None else "nothing"
        yield from (c.Approve(NOW, digest), c.Reject(NOW, digest), c.Reconnect(NOW), c.Pause(NOW), c.Resume(NOW))
        if self.setup.has("approval") or self.setup.has("permission"):
            yield from (c.Grant(NOW, TOOL, "always"), c.Grant(NOW, TOOL, "ask"))
        if self.setup.has("redeploy"):
            yield self.setup.deploy_less(NOW)
        yield from (c.ClearError(NOW), c.Retry(NOW), self.setup.deploy(NOW), c.BlockWorkflow(NOW, ""))
        yield from (c.EnterMaintenance(NOW), c.ExitMaintenance(NOW), c.EndRun(NOW, self._gone(number), "crashed"))
        yield from self._malformed(fresh, session, run)

    def _malformed(self, fresh: str, session: str, run: str) -> Iterator[c.Command]:
        """What makes no sense at any time."""
        handler, large = self.setup.handlers[0].name, "x" * (self.setup.policy.json_max_chars + 1)
        yield from (c.StartSession(NOW, ""), c.CreateRun(NOW, "", session, handler), c.RunNow(NOW, "nobody"))
        yield from (c.CreateRun(NOW, fresh, session, "nobody"), c.CreateRetry(NOW, "", session, run))
        yield c.CreateRetry(NOW, run, session, run)
        event = publication(self.setup.inputs[0])
        for wrong in (
            event._replace(title=" "),
            event._replace(payload=large),
            event._replace(key=event.key._replace(topic="nowhere")),
        ):
            yield from (c.Publish(NOW, wrong), c.CommitConsumer(NOW, run, "1", (wrong,)))
            yield c.CommitProducer(NOW, run, "1", (wrong,))
        yield from (c.Prepared(NOW, run, (), large), c.CommitConsumer(NOW, run, large))
        yield from (c.ApplyMutation(NOW, run, "call", large), c.AssertApplied(NOW, run, large))
        yield from (c.RecordMutation(NOW, run, TOOL, large, True), c.RecordMutation(NOW, run, TOOL, PARAMS, True, 0))
        yield from (c.EndRun(NOW, run, "crashed", "", "auth"), c.EndRun(NOW, run, "paused:approval"))
        yield self.setup.deploy(NOW)._replace(version="")


SOON_CRON: Final = NOW + 1
OTHER_TOOL: Final = "mail.read"
FUNCTIONS: Final[dict[str, Function]] = {
    "preparing": "prepare",
    "mutating": "mutate",
    "emitting": "next",
    "executing": "producer",
}
FAILURES: Final[tuple[FailureClass, ...]] = ("script", "network", "auth", "host")
"""One class for each status in which a run can end."""
RECONCILERS: Final[tuple[Literal["inline", "reconcile"], ...]] = ("inline", "reconcile")
ENDS: Final[tuple[tuple[EndStatus, ErrorCause], ...]] = (
    ("paused:transient", ""),
    ("paused:reconciliation", ""),
    ("failed:logic", ""),
    ("failed:internal", ""),
    ("crashed", ""),
    ("paused:approval", "auth"),
    ("paused:approval", "permission"),
    ("paused:approval", "request"),
)
