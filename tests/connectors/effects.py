"""What tests of connectors share."""

import json
from typing import Any

from keepkernel.adapters.connectors import Connections, Connector
from keepkernel.kernel.respond import Answer, Failed
from keepkernel.kernel.types import Permission, Reconcile, Send, State, new_workflow

KEY = "demo/run-1"


def granted(*tools: str) -> State:
    return new_workflow("demo")._replace(grants=tuple(Permission(tool, "always") for tool in tools))


NEVER_TOO_LATE = 2**53


def send(connections: Connections, tool: str, params: Any, key: str = KEY, send_by: int = NEVER_TOO_LATE) -> Answer:
    return connections.send(Send("run-1", tool, json.dumps(params), key, send_by))


def reconcile(connections: Connections, tool: str, params: Any, key: str = KEY) -> Answer:
    return connections.reconcile(Reconcile("run-1", tool, json.dumps(params), key, "reconcile", 0))


def read(connections: Connections, tool: str, params: Any) -> Any:
    """The value that was read, or the failure."""
    result = connections.read(granted(tool), tool, json.dumps(params))
    return result if isinstance(result, Failed) else json.loads(result)


class Heard(list[str]):
    """What connections tell."""

    def __call__(self, tool: str, message: str, key: str) -> None:
        self.append(f"{tool}: {message}")


def alone(connector: Connector, **options: Any) -> Connections:
    """One connector, called `it`."""
    return Connections({"it": connector}, **options)
