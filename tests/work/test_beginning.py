"""A host that dies anywhere while it begins is made good by the next one."""

from itertools import count
from pathlib import Path

import pytest
from desk import Project

from keepkernel import runtime
from keepkernel.adapters.points import SimulatedCrash
from keepkernel.adapters.stores import open_store
from keepkernel.kernel.ports import Store
from keepkernel.runtime import Runtime, Wanted
from keepkernel.settings import Place, place_of, read_settings


class Deadly:
    """Opens stores whose process dies at one point after the opening."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.store: Store | None = None

    def open(self, place: Place, patience_s: float = 0) -> Store:
        self.store = open_store(place.url, reach=self.reach)
        return self.store

    def reach(self, point: str) -> None:
        if self.store is not None:
            self.left -= 1
            if self.left == 0:
                raise SimulatedCrash(point)


def begun(project: Project, deadly: Deadly) -> bool:
    """Whether a host came to the end of its beginning; then it dies too."""
    wanted = Wanted([project.file], project.config)
    host = Runtime(wanted, place_of(project.store), read_settings(project.config), print, print)
    try:
        host.open()
    except SimulatedCrash:
        return False
    else:
        return True
    finally:
        assert deadly.store is not None
        deadly.store.drop()
        host._raw = None
        host.close()


def test_a_host_may_die_at_every_point_of_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in count(1):
        project = Project(tmp_path / str(at))
        project.folder.mkdir()
        project.write()
        deadly = Deadly(at)
        with monkeypatch.context() as patched:
            patched.setattr(runtime, "opened", deadly.open)
            if begun(project, deadly):
                break
        project.run()
        project.publish("m1")
        project.run()
        assert project.lines() == ["m1"], at
    assert at > 20
