"""The command line. Commands import what they need when they run, so that help stays fast."""

from . import work  # isort: skip - whoever is new meets these commands first
from . import attack, conforming, proof
from .base import app, main

__all__ = ["app", "attack", "conforming", "main", "proof", "work"]
