"""Breadth-first search over any finite system, with shortest traces, and liveness on the graph that it leaves.

It knows nothing of workflows. A system gives its states as hashable values and, for each, its moves.
"""

import gc
import time
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

Verdict = Literal["holds", "violated", "not decided"]


Move = tuple[int, S | None, bool]
"""What happens, as the system's own number for it; where it leads, None when the step itself breaks a property;
and whether it is calm: a fair environment takes such moves in the end, faults and whims are not calm."""


class Moves(NamedTuple, Generic[S]):
    """All moves of a state, in columns: a search takes each of them whole, and not move by move."""

    labels: Sequence[int]
    targets: Sequence[S]
    calm: bytes
    broken: Sequence[int] = ()
    """The labels of the steps that break a property, and lead nowhere."""


def in_columns(moves: Sequence[Move[S]]) -> Moves[S]:
    """Moves as a search takes them."""
    whole = [(label, target, calm) for label, target, calm in moves if target is not None]
    return Moves(
        [label for label, _, _ in whole],
        [target for _, target, _ in whole],
        bytes(calm for _, _, calm in whole),
        [label for label, target, _ in moves if target is None],
    )


class System(Protocol[S]):
    """What the explorer asks of a system."""

    def initial(self) -> Iterable[S]: ...

    def moves(self, state: S) -> Moves[S]: ...

    def broken(self, state: S) -> Sequence[str]:
        """The names of the properties that the state breaks."""

    def broken_by(self, state: S, label: int) -> Sequence[str]:
        """The names of the properties that a step breaks which leads nowhere."""

    def rests(self, state: S) -> bool:
        """Whether the system may stay here for ever."""


class Found(NamedTuple):
    """A broken property, and the shortest way to it: indexes of states, and the labels between them."""

    property: str
    path: tuple[int, ...]
    labels: tuple[int, ...]
    loop: int = -1
    """For a lasso: the place in `path` to which its end returns; -1 otherwise."""


class Progress(NamedTuple):
    states: int
    transitions: int
    depth: int
    seconds: float


NO_PARENT: Final = -1
NEW: Final = repeat(-1)
"""The index of every state that has none yet."""


class Graph(Generic[S]):
    """What a search has seen."""

    def __init__(self) -> None:
        self.states: list[S] = []
        self.index: dict[S, int] = {}
        self.parent = array("i")
        self.label = array("i")
        self.starts = array("i", [0])
        """Where each expanded state's edges begin."""
        self.targets = array("i")
        self.edge_labels = array("i")
        self.calm = bytearray()
        self.depth = 0
        self.found: list[Found] = []
        self.complete = False
        self.seconds = 0.0

    @property
    def transitions(self) -> int:
        return len(self.targets)

    def path(self, node: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shortest way to a state."""
        nodes, labels = [node], []
        while self.parent[node] != NO_PARENT:
            labels.append(self.label[node])
            node = self.parent[node]
            nodes.append(node)
        return tuple(reversed(nodes)), tuple(reversed(labels))


def explore(
    system: System[S],
    *,
    max_states: int = 0,
    max_depth: int = 0,
    stop_at_first: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Graph[S]:
    """Visit every reachable state, level by level, so that the first way to anything is a shortest one.

    `report` is called now and then; it may raise KeyboardInterrupt, which ends the search with what it has.
    """
    graph: Graph[S] = Graph()
    seen: set[str] = set()
    began = time.monotonic()

    def add(state: S, parent: int, label: int) -> None:
        node = len(graph.states)
        graph.index[state] = node
        graph.states.append(state)
        graph.parent.append(parent)
        graph.label.append(label)
        for name in system.broken(state):
            if name not in seen:
                seen.add(name)
                graph.found.append(Found(name, *graph.path(node)))

    for state in system.initial():
        if state not in graph.index:
            add(state, NO_PARENT, -1)
    # Nothing that a search makes refers to itself, and looking for such garbage among millions of tuples costs a third.
    collecting = gc.isenabled()
    gc.disable()
    try:
        _search(system, graph, add, seen, max_states, max_depth, stop_at_first, report, began)
    except KeyboardInterrupt:
        graph.complete = False
    finally:
        if collecting:
            gc.enable()
    graph.seconds = time.monotonic() - began
    return graph


def _search(
    system: System[S],
    graph: Graph[S],
    add: Callable[[S, int, int], None],
    seen: set[str],
    max_states: int,
    max_depth: int,
    stop_at_first: bool,
    report: Callable[[Progress], None] | None,
    began: float,
) -> None:
    index, targets, edge_labels, calm = graph.index, graph.targets, graph.edge_labels, graph.calm
    known = index.get
    node = 0
    level_end = len(graph.states)
    while node < len(graph.states):
        if node == level_end:
            graph.depth += 1
            if graph.depth == max_depth:
                return
            level_end = len(graph.states)
        if stop_at_first and graph.found:
            return
        state = graph.states[node]
        labels, onward, is_calm, broken = system.moves(state)
        for label in broken:
            for name in system.broken_by(state, label):
                if name not in seen:
                    seen.add(name)
                    nodes, before = graph.path(node)
                    graph.found.append(Found(name, nodes, (*before, label)))
        reached = list(map(known, onward, NEW))
        if -1 in reached:
            for place, target in enumerate(onward):
                if target not in index:
                    add(target, node, labels[place])
            reached = [index[target] for target in onward]
        targets.extend(reached)
        edge_labels.extend(labels)
        calm.extend(is_calm)
        graph.starts.append(len(targets))
        node += 1
        if report is not None and node % 1024 == 0:
            report(Progress(len(graph.states), len(targets), graph.depth, time.monotonic() - began))
        if max_states and len(graph.states) > max_states:
            return
    graph.complete = True


# --- liveness ----------------------------------------------------------------------------------------


def predecessors(graph: Graph[S], calm_only: bool) -> "tuple[array[int], array[int]]":
    """The reversed edges: where each state's predecessors begin, and the predecessors."""
    count = array("i", bytes(4 * (len(graph.states) + 1)))
    for edge, target in enumerate(graph.targets):
        if graph.calm[edge] or not calm_only:
            count[target + 1] += 1
    for node in range(len(graph.states)):
        count[node + 1] += count[node]
    sources = array("i", bytes(4 * count[-1]))
    place = array("i", count)
    for node in range(len(graph.starts) - 1):
        for edge in range(graph.starts[node], graph.starts[node + 1]):
            if graph.calm[edge] or not calm_only:
                target = graph.targets[edge]
                sources[place[target]] = node
                place[target] += 1
    return count, sources


def cannot_rest(system: System[S], graph: Graph[S]) -> Found | None:
    """A state, nearest to the start, from which no way at all leads to rest."""
    begins, sources = predecessors(graph, calm_only=False)
    todo = [node for node, state in enumerate(graph.states) if system.rests(state)]
    reached = bytearray(len(graph.states))
    for node in todo:
        reached[node] = 1
    while todo:
        node = todo.pop()
        for source in sources[begins[node] : begins[node + 1]]:
            if not reached[source]:
                reached[source] = 1
                todo.append(source)
    stuck = reached.find(0)
    return None if stuck < 0 else Found("rest is reachable", *graph.path(stuck), loop=len(graph.path(stuck)[0]) - 1)


def never_rests(system: System[S], graph: Graph[S]) -> Found | None:
    """A lasso on which a fair environment goes for ever without rest; a loop of one state is a dead end.

    A state is good when it rests, or when it has calm moves and all of them lead to good states. What is not good
    has a calm way that never ends in rest.
    """
    begins, sources = predecessors(graph, calm_only=True)
    open_moves = array("i", bytes(4 * len(graph.states)))
    for node in range(len(graph.starts) - 1):
        open_moves[node] = sum(graph.calm[graph.starts[node] : graph.starts[node + 1]])
    good = bytearray(len(graph.states))
    todo = [node for node, state in enumerate(graph.states) if system.rests(state)]
    for node in todo:
        good[node] = 1
    while todo:
        node = todo.pop()
        for source in sources[begins[node] : begins[node + 1]]:
            open_moves[source] -= 1
            if open_moves[source] == 0 and not good[source]:
                good[source] = 1
                todo.append(source)
    first = good.find(0)
    return None if first < 0 else _lasso(graph, good, first)


def _lasso(graph: Graph[S], good: bytearray, first: int) -> Found:
    nodes, labels = (list(part) for part in graph.path(first))
    place = {first: len(nodes) - 1}
    node = first
    while True:
        edges = range(graph.starts[node], graph.starts[node + 1])
        onward = next((e for e in edges if graph.calm[e] and not good[graph.targets[e]]), None)
        if onward is None:  # A dead end: it stays where it is.
            return Found("the workflow comes to rest", tuple(nodes), tuple(labels), loop=len(nodes) - 1)
        node = graph.targets[onward]
        nodes.append(node)
        labels.append(graph.edge_labels[onward])
        if node in place:
            return Found("the workflow comes to rest", tuple(nodes), tuple(labels), loop=place[node])
        place[node] = len(nodes) - 1
