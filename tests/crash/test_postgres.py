"""The same sweeps with stores on a PostgreSQL server."""

import json

import pytest
import server
from typer.testing import CliRunner

from keepkernel.cli import app


@pytest.fixture
def database() -> str:
    """The URL of a database, without a schema."""
    return server.started().url().partition("?")[0]


def schemas() -> set[str]:
    with server.started().connect() as connection:
        return {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace")}


@pytest.mark.parametrize("way", [["--in-process"], []])
def test_every_point_holds_and_nothing_is_left(database: str, way: list[str]) -> None:
    before = schemas()
    result = CliRunner().invoke(app, ["crash", "--store", database, "--workflow", "silent", "--json", *way])
    document = json.loads(result.stdout)
    assert result.exit_code == 0, document
    assert document["verdict"] == "holds"
    assert document["points"] == document["trials"] - 1 > 30
    assert document["store"].startswith("postgresql://keep@127.0.0.1:")
    assert schemas() == before


def test_a_schema_in_the_url_is_refused(database: str) -> None:
    result = CliRunner().invoke(
        app, ["crash", "--store", f"{database}?options=-csearch_path%3Dx", "--workflow", "silent"]
    )
    assert result.exit_code == 2
    assert "a schema of its own" in result.stderr


def test_a_server_that_is_not_there_is_told_without_the_password(database: str) -> None:
    elsewhere = database.replace(f":{server.started().port}/", f":{server.free_port()}/")
    result = CliRunner().invoke(app, ["crash", "--store", elsewhere, "--workflow", "silent"])
    assert result.exit_code == 2
    assert "no room for a trial" in result.stderr
    assert "swordfish" not in result.output
