"""The examples in docstrings work. They run on the installed names, as users import them."""

import doctest
import importlib
import pkgutil

import pytest

import keepkernel

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(keepkernel.__path__, "keepkernel.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["keepkernel", *MODULES])
def test_examples_in_docstrings_work(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("keepkernel"):
            raise
        pytest.skip(f"needs the optional library {error.name}")
    assert doctest.testmod(module).failed == 0
