"""Connectors: the ways out of a workflow. Each knows one kind of target; none of them decides what is sent."""

from .base import Call, Connector, NotDone, Place, Refused, Shape, Unclear, changes, reads, reconciles
from .config import ConfigError
from .connections import Connections, Tool

__all__ = [
    "Call",
    "ConfigError",
    "Connections",
    "Connector",
    "NotDone",
    "Place",
    "Refused",
    "Shape",
    "Tool",
    "Unclear",
    "changes",
    "reads",
    "reconciles",
]
