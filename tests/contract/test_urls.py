"""A URL says which store is meant, and a wrong one is explained."""

import errno
import os
import sys
from pathlib import Path

import pytest

from keepkernel import Policy
from keepkernel.adapters.memory import MemoryStore
from keepkernel.adapters.sqlite import SQLiteStore
from keepkernel.adapters.stores import KINDS, open_store
from keepkernel.kernel.ports import ReadOnlyStore, StoreError, StoreFull


def test_each_scheme_opens_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:"), MemoryStore)
    store = open_store(f"sqlite:{tmp_path / 'a b#c?d%.db'}")
    assert isinstance(store, SQLiteStore)
    assert store.create("w", Policy())
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["a b#c?d%.db"]


def test_a_relative_path_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:here.db").close()
    assert (tmp_path / "here.db").exists()


@pytest.mark.parametrize("url", ["store.db", "", "mysql://host/base", "SQLITE:x", "C:\\store.db"])
def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert all(kind.shape in str(caught.value) for kind in KINDS.values())


@pytest.mark.parametrize("url", ["sqlite:", "duckdb:", "postgresql:", "memory:somewhere"])
def test_a_place_that_is_missing_or_too_many(url: str) -> None:
    with pytest.raises(StoreError, match=KINDS[url.partition(":")[0]].shape):
        open_store(url)


@pytest.mark.parametrize("place", ["sqlite:/tmp/a\0b", "duckdb:/tmp/\udcff", "postgresql://h/\ud800"])
def test_a_place_that_is_no_text(place: str) -> None:
    with pytest.raises(StoreError, match="UTF-8"):
        open_store(place)


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_what_the_system_says_is_named(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for place, words in ((tmp_path, "is a folder"), (tmp_path / ("x" * 300), "too long"), (loop, "symbolic links")):
        with pytest.raises(StoreError, match=words):
            open_store(f"{scheme}:{place}")
    for number, kind in ((errno.EROFS, ReadOnlyStore), (errno.ENOSPC, StoreFull), (errno.EIO, StoreError)):

        def refused(folder: Path, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(f"keepkernel.adapters.{scheme}.sync_folder", refused)
        with pytest.raises(kind, match=r"let this user write|make room|see to its disk"):
            open_store(f"{scheme}:{tmp_path / str(number)}")


@pytest.mark.parametrize(("url", "driver"), [("duckdb:x", "duckdb"), ("postgresql://h/d", "psycopg")])
def test_a_missing_driver_says_what_to_install(url: str, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS[url.partition(":")[0]]
    monkeypatch.setitem(sys.modules, driver, None)
    monkeypatch.delitem(sys.modules, f"keepkernel.adapters{kind.module}", raising=False)
    with pytest.raises(StoreError, match=rf"needs {driver}: pip install 'keepkernel\[{kind.extra}\]'"):
        open_store(url)
