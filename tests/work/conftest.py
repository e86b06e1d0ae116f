"""A project for the command line."""

import shutil
from pathlib import Path

import pytest
from desk import Project


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose workflow is deployed and has nothing to do."""
    project = Project(tmp_path_factory.mktemp("deployed"))
    project.write()
    project.run()
    return project.folder


@pytest.fixture
def project(deployed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    folder = tmp_path / "work"
    shutil.copytree(deployed, folder, ignore=shutil.ignore_patterns("*.log"))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("KEEPKERNEL_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return Project(folder)
