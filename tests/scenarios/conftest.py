"""The flag that writes the transcripts anew."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the output of the scenarios anew; then read the diff"
    )
