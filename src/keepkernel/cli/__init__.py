"""The command line. Commands import what they need when they run, so that help stays fast."""

from . import attack, conforming, proof, work
from .base import app

__all__ = ["app", "attack", "conforming", "main", "proof", "work"]


def main() -> None:
    """Run the command line; the entry point of the `keepkernel` script."""
    app(prog_name="keepkernel")
