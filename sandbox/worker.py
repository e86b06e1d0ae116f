"""The worker: a process of its own that runs scripts, one call at a time, each in a fresh context.

It is started by its path and imports nothing of keepkernel, so it starts fast and holds nothing worth stealing. It
talks to the host in frames over the socket that is its standard input. It decides nothing: it passes the script's
moves on, and settles what the host answers. A script that has come to its end, with nothing to wait for, is over. To
end another for good, the host says "drop": its context goes, and what it waits for never comes (SCRIPT-003).
"""

import json
import re
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import quickjs

PRELUDE, RARELY = (Path(__file__).with_name(name).read_text() for name in ("prelude.js", "rarely.js"))
BIG = re.compile(r"[0-9]{16}")
"""A number with so many digits may be more than JavaScript can hold."""

OVER = '"over":true}'
"""How the last frame of a script ends that has come to its end."""

GRACE_S = 2.0
"""The host stops an overdue call itself; should the host be gone, the worker ends a little later of its own."""

PR_SET_PDEATHSIG = 1


def receive(sock: socket.socket) -> Any:
    """The next frame, or None when the host has gone."""
    head = sock.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    length = int.from_bytes(head, "big")
    body = bytearray(length)
    view = memoryview(body)
    while view:
        got = sock.recv_into(view)
        if not got:
            return None
        view = view[got:]
    return json.loads(body)


def send(sock: socket.socket, text: str) -> None:
    body = text.encode()
    sock.sendall(len(body).to_bytes(4, "big") + body)


def failed(error: quickjs.JSException) -> str:
    """An error that reached the worker: the file does not compile, or the engine is at its limits."""
    message, _, stack = str(error).partition("\n")
    if message == "null":  # There was no memory left to make an error of.
        message = "InternalError: out of memory"
    spent = isinstance(error, quickjs.StackOverflow) or message.startswith("InternalError")
    # At its limits the engine may stop anywhere, also in the prelude, and that place would tell nobody anything.
    end = {"failed": "limit" if spent else "script", "message": message, "stack": "" if spent else stack}
    return json.dumps({"moves": [], "end": end, "over": False})


def fresh() -> tuple[quickjs.Context, Any]:
    """A context with nothing but the prelude in it, and the bridge: a function that the script can not reach."""
    context = quickjs.Context()
    return context, context.eval(PRELUDE)


def begin(context: quickjs.Context, bridge: Any, setting: dict[str, Any], job: dict[str, Any]) -> None:
    context.set_memory_limit(setting["memory_bytes"])
    context.set_max_stack_size(setting["stack_bytes"])
    values = [part for text in job["values"] for part in (text, bool(BIG.search(text)))]
    bridge("set up", job["function"], job["handler"], setting["connectors"], setting["log_chars"], RARELY, *values)
    bridge("start", context.module(setting["source"]))


def settle(bridge: Any, answer: dict[str, Any]) -> None:
    for call, text in answer["settle"]:
        bridge("settle", call, text, bool(BIG.search(text)))


def moved(context: quickjs.Context, bridge: Any, action: Callable[..., None], *given: Any) -> str:
    """Let the script run until nothing moves, and take what it asks for."""
    try:
        action(*given)
        while context.execute_pending_job():
            pass
        taken: str = bridge("take")
    except quickjs.JSException as error:
        return failed(error)
    return taken


def run(
    sock: socket.socket, context: quickjs.Context, bridge: Any, setting: dict[str, Any], job: dict[str, Any]
) -> bool:
    """One call of a function; False when the host has gone."""
    frame = moved(context, bridge, begin, context, bridge, setting, job)
    send(sock, frame)
    while not frame.endswith(OVER):
        answer = receive(sock)
        if answer is None:
            return False
        if "settle" not in answer:
            return True
        frame = moved(context, bridge, settle, bridge, answer)
        send(sock, frame)
    return True


def end_with_host() -> None:
    """A script that never ends must not go on when the host has died."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    end_with_host()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sock = socket.socket(fileno=0)
    send(sock, "{}")  # Ready.
    setting: dict[str, Any] = {}
    while True:
        context, bridge = fresh()  # Made before it is wanted; nobody waits for it.
        job = receive(sock)
        if job is None:
            return
        if "setting" in job:  # What is the same from call to call is told once.
            setting = job["setting"]
            resource.setrlimit(resource.RLIMIT_AS, (setting["process_bytes"], resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_REAL, job["wall_s"] + GRACE_S)
        if not run(sock, context, bridge, setting, job):
            return
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    with suppress(ConnectionError):  # The host has gone, and nobody is left to tell.
        main()
