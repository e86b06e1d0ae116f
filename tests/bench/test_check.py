"""The benchmark of the checker compares spaces of the same size, and fails when the checker is too slow."""

import json
import sys

import pytest

from bench import check as bench
from keepkernel.fuzz.setups import setup
from keepkernel.fuzz.simulate import counted, name_of


@pytest.mark.parametrize("events", [1, 2])
def test_the_baseline_has_the_size_of_the_space(events: int) -> None:
    assert list(bench.baseline(events)[0]) == counted()[name_of(setup("main", events), "honest")]


def test_the_bare_graph_is_what_it_says_and_always_the_same() -> None:
    size = bench.Size(500, 3000, 20)
    graph = bench.bare_graph(size, 1, 8)
    assert (len(graph), sum(map(len, graph.values()))) == (500, 3000)
    assert bench.bare_search(graph, (0,) * 8) == (500, 3000)
    assert graph == bench.bare_graph(size, 1, 8)
    assert graph != bench.bare_graph(size, 2, 8)


def test_another_size_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"check\.json"):
        bench.require_size((1, 1), bench.Size(1, 2, 1))


@pytest.mark.parametrize(("ratio", "code"), [(0.19, 1), (0.2, 0)])
def test_fails_below_the_wanted_ratio(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = bench.Result(1, 10, 20, 100.0 * ratio, 100.0, ratio)
    monkeypatch.setattr(bench, "measure", lambda events: result)
    monkeypatch.setattr(sys, "argv", ["check", "--json", "--events", "1"])
    assert bench.main() == code
    assert json.loads(capsys.readouterr().out) == [result._asdict()]
