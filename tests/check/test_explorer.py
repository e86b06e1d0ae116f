"""The explorer against machines that can be counted by hand, and against an oracle that works in another way.

The oracle knows no queue, no numbering and no reversed edges: it walks every simple path by recursion.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepkernel.fuzz.explorer import Found, Graph, Moves, Progress, cannot_rest, explore, in_columns, never_rests


class Edge(NamedTuple):
    label: int
    target: int | None
    calm: bool = True
    breaks: str = ""
    """What the step itself breaks, when it leads nowhere."""


class Machine(NamedTuple):
    """Any finite graph, as a system."""

    edges: dict[int, tuple[Edge, ...]]
    resting: frozenset[int] = frozenset()
    bad: dict[int, str] = {}  # noqa: RUF012 - nobody writes to it
    starts: tuple[int, ...] = (0,)

    def initial(self) -> tuple[int, ...]:
        return self.starts

    def moves(self, state: int) -> Moves[int]:
        return in_columns([(e.label, e.target, e.calm) for e in self.edges.get(state, ())])

    def broken(self, state: int) -> Sequence[str]:
        return [self.bad[state]] if state in self.bad else []

    def broken_by(self, state: int, label: int) -> Sequence[str]:
        return [e.breaks for e in self.edges[state] if e.label == label and e.target is None]

    def rests(self, state: int) -> bool:
        return state in self.resting


# --- the oracle --------------------------------------------------------------------------------------


def distances(machine: Machine) -> dict[int, int]:
    """How far each reachable state is: the shortest of all simple paths to it."""
    found: dict[int, int] = {}

    def visit(state: int, path: tuple[int, ...]) -> None:
        found[state] = min(found.get(state, len(path)), len(path))
        for edge in machine.edges.get(state, ()):
            if edge.target is not None and edge.target not in (*path, state):
                visit(edge.target, (*path, state))

    for start in machine.starts:
        visit(start, ())
    return found


def reaches_rest(machine: Machine, state: int, path: tuple[int, ...] = ()) -> bool:
    if state in machine.resting:
        return True
    onward = {e.target for e in machine.edges.get(state, ()) if e.target is not None}
    return any(reaches_rest(machine, target, (*path, state)) for target in onward if target not in path)


def goes_on_for_ever(machine: Machine, state: int, path: tuple[int, ...] = ()) -> bool:
    """Whether calm moves can go round, or stop, without ever coming to rest."""
    if state in machine.resting:
        return False
    if state in path:
        return True
    onward = {e.target for e in machine.edges.get(state, ()) if e.target is not None and e.calm}
    return not onward or any(goes_on_for_ever(machine, target, (*path, state)) for target in onward)


def broken_at(machine: Machine, far: dict[int, int]) -> dict[str, int]:
    """For each property the number of moves after which it can first be broken."""
    first: dict[str, int] = {}
    for state, moves in far.items():
        names = [(machine.bad[state], moves)] if state in machine.bad else []
        names += [(e.breaks, moves + 1) for e in machine.edges.get(state, ()) if e.target is None]
        for name, length in names:
            first[name] = min(first.get(name, length), length)
    return first


def nearest(states: Iterator[int], far: dict[int, int]) -> int | None:
    return min((far[state] for state in states), default=None)


def require_walk(machine: Machine, graph: Graph[int], found: Found) -> list[Edge]:
    """A found trace must be a walk of the machine; gives the edges that it took."""
    states = [graph.states[node] for node in found.path]
    assert states[0] in machine.starts
    taken = []
    for n, label in enumerate(found.labels):
        target = states[n + 1] if n + 1 < len(states) else None
        taken.append(next(e for e in machine.edges[states[n]] if (e.label, e.target) == (label, target)))
    return taken


# --- any small graph ---------------------------------------------------------------------------------

NODES = 6


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    target = st.integers(0, NODES - 1)
    edges = {}
    for state in range(NODES):
        drawn = draw(st.lists(st.tuples(target, st.booleans(), st.integers(0, 11)), max_size=3))
        edges[state] = tuple(
            Edge(label, None, calm, f"step {to % 2}") if odds == 0 else Edge(label, to, calm)
            for label, (to, calm, odds) in enumerate(drawn)
        )
    resting = draw(st.frozensets(target, max_size=3))
    bad = draw(st.dictionaries(target, st.sampled_from(["odd", "even"]), max_size=2))
    return Machine(edges, resting, bad, tuple(draw(st.lists(target, min_size=1, max_size=2))))


@given(machines())
def test_states_transitions_and_depth(machine: Machine) -> None:
    graph, far = explore(machine), distances(machine)
    assert graph.complete
    assert sorted(graph.states) == sorted(far)
    assert graph.transitions == sum(e.target is not None for state in far for e in machine.edges[state])
    assert graph.depth == max(far.values())
    assert {graph.states[node]: len(graph.path(node)[1]) for node in range(len(graph.states))} == far
    for node in range(len(graph.states)):
        require_walk(machine, graph, Found("", *graph.path(node)))


@given(machines())
def test_first_way_to_break_is_a_shortest(machine: Machine) -> None:
    graph = explore(machine)
    assert {found.property: len(found.labels) for found in graph.found} == broken_at(machine, distances(machine))
    for found in graph.found:
        taken = require_walk(machine, graph, found)
        last = graph.states[found.path[-1]]
        if len(found.labels) == len(found.path):
            assert taken[-1].breaks == found.property
        else:
            assert machine.bad[last] == found.property


@given(machines())
def test_stopping_at_the_first_gives_a_shortest_of_all(machine: Machine) -> None:
    first = broken_at(machine, distances(machine))
    graph = explore(machine, stop_at_first=True)
    assert bool(graph.found) == bool(first)
    if first:
        assert min(len(found.labels) for found in graph.found) == min(first.values())


@given(machines(), st.integers(1, NODES))
def test_bounds_cut_the_search_and_say_so(machine: Machine, bound: int) -> None:
    far = distances(machine)
    shallow = explore(machine, max_depth=bound)
    assert sorted(shallow.states) == sorted(state for state, moves in far.items() if moves <= bound)
    assert shallow.depth == min(bound, max(far.values()))
    assert shallow.complete == (max(far.values()) < bound)
    few = explore(machine, max_states=bound)
    assert few.complete == (len(far) <= bound)
    assert set(few.states) <= far.keys()
    assert few.complete or len(few.states) > bound


@given(machines())
def test_dead_ends(machine: Machine) -> None:
    graph, far = explore(machine), distances(machine)
    found = cannot_rest(machine, graph)
    assert (found and len(found.labels)) == nearest((s for s in far if not reaches_rest(machine, s)), far)
    if found:
        require_walk(machine, graph, found)
        assert not reaches_rest(machine, graph.states[found.path[-1]])


@given(machines())
@example(Machine({0: (Edge(0, 1),), 1: (Edge(0, 0),)}))
def test_lassos(machine: Machine) -> None:
    graph, far = explore(machine), distances(machine)
    found = never_rests(machine, graph)
    wanted = nearest((s for s in far if goes_on_for_ever(machine, s)), far)
    assert (found is None) == (wanted is None)
    if found is None:
        return
    taken = require_walk(machine, graph, found)
    states = [graph.states[node] for node in found.path]
    entry = next(n for n, state in enumerate(states) if goes_on_for_ever(machine, state))
    assert entry == wanted, "the stem is a shortest way to where rest can be missed"
    assert all(e.calm for e in taken[entry:])
    assert machine.resting.isdisjoint(states[entry:])
    if found.loop < len(states) - 1:
        assert states[found.loop] == states[-1]
    else:
        assert not any(e.calm and e.target is not None for e in machine.edges[states[-1]])


# --- by hand -----------------------------------------------------------------------------------------


class Jugs:
    """Two jugs of five and three litres, a tap and a drain; four litres are wanted, in six moves."""

    def initial(self) -> list[tuple[int, int]]:
        return [(0, 0)]

    def moves(self, state: tuple[int, int]) -> Moves[tuple[int, int]]:
        big, small = state
        poured, back = min(big, 3 - small), min(small, 5 - big)
        onward = [
            (5, small),
            (big, 3),
            (0, small),
            (big, 0),
            (big - poured, small + poured),
            (big + back, small - back),
        ]
        return in_columns([(label, target, True) for label, target in enumerate(onward)])

    def broken(self, state: tuple[int, int]) -> list[str]:
        return ["four litres"] if state[0] == 4 else []

    def broken_by(self, state: tuple[int, int], label: int) -> list[str]:
        raise AssertionError(f"every move leads somewhere: {state}, {label}")

    def rests(self, state: tuple[int, int]) -> bool:
        return False


def test_jugs() -> None:
    graph = explore(Jugs())
    assert (len(graph.states), graph.transitions, graph.complete) == (16, 96, True)
    assert [len(found.labels) for found in graph.found] == [6]
    path = [graph.states[node] for node in graph.found[0].path]
    assert path == [(0, 0), (5, 0), (2, 3), (2, 0), (0, 2), (5, 2), (4, 3)]


LINE = Machine({0: (Edge(7, 1),), 1: (Edge(8, 2), Edge(9, 0)), 2: (Edge(7, 3),), 3: ()}, resting=frozenset({3}))


def test_a_line_with_a_way_back() -> None:
    graph = explore(LINE)
    assert (graph.states, graph.transitions, graph.depth) == ([0, 1, 2, 3], 4, 3)
    assert graph.path(3) == ((0, 1, 2, 3), (7, 8, 7))
    assert cannot_rest(LINE, graph) is None
    assert never_rests(LINE, graph) == Found("the workflow comes to rest", (0, 1, 0), (7, 9), loop=0)


def test_a_way_back_that_is_a_fault_is_no_lasso() -> None:
    machine = LINE._replace(edges=LINE.edges | {1: (Edge(8, 2), Edge(9, 0, calm=False))})
    assert never_rests(machine, explore(machine)) is None


def test_a_dead_end_is_a_loop_of_one_state() -> None:
    machine = LINE._replace(resting=frozenset())
    graph = explore(machine)
    assert cannot_rest(machine, graph) == Found("rest is reachable", (0,), (), loop=0)
    machine = Machine({0: (Edge(1, 1), Edge(2, 2, calm=False)), 1: (), 2: (Edge(3, 0, calm=False),)}, frozenset({1}))
    graph = explore(machine)
    assert cannot_rest(machine, graph) is None
    assert never_rests(machine, graph) == Found("the workflow comes to rest", (0, 2), (2,), loop=1)


def test_an_interrupt_ends_the_search_with_what_it_has() -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    ring = Machine({n: (Edge(0, (n + 1) % 5000),) for n in range(5000)})
    graph = explore(ring, report=interrupt)
    assert not graph.complete
    assert 1024 <= len(graph.states) < 5000


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_a_ring(size: int) -> None:
    ring = Machine({n: (Edge(0, (n + 1) % size),) for n in range(size)})
    graph = explore(ring)
    assert (len(graph.states), graph.transitions, graph.depth) == (size, size, size - 1)
    found = never_rests(ring, graph)
    assert found is not None
    assert (len(found.labels), found.loop) == (size, 0)
