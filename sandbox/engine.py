"""Worker processes, from the host's side: start, talk in frames until a deadline, kill, replace."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

MEGABYTE: Final = 1024 * 1024


class Limits(NamedTuple):
    """What one call of a function may use; its time comes from the workflow's policy (SCRIPT-009)."""

    memory_bytes: int = 64 * MEGABYTE
    stack_bytes: int = MEGABYTE
    log_chars: int = 64_000
    frame_bytes: int = 16 * MEGABYTE
    """All that a script says between two answers."""
    process_bytes: int = 1024 * MEGABYTE
    """The whole worker's address space, should the engine's own limit fail."""
    calls_per_worker: int = 10_000
    """A worker is replaced now and then, so that nothing can add up in it."""


START_S: Final = 30.0
OVERDUE: Final = "it took longer than it may (SCRIPT-009)"


class Stopped(Exception):
    """The worker was stopped, or died, before the call was over; the message says why."""


class Killed(Stopped):
    """Somebody outside ended the worker in the middle of a call: a trouble of the machine, not of a script."""


FROM_OUTSIDE: Final = tuple(-number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
"""Exit codes that no script can cause: the machine has no memory left, or a service is stopped with all its processes.
An engine that breaks dies of other signals."""


class NoWorker(Exception):
    """No worker can be started: a trouble of the host, not of a script."""


class Worker:
    """One process; whatever goes wrong with it, `kill` and take another."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.calls = 0
        self.started = False
        self.setting: object = None
        """What it was told last of all that stays the same from call to call."""
        self.over = True
        """Whether it has ended its call of its own."""
        self.killed = False
        self._came = bytearray()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__).with_name("worker.py"))],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={"TZ": "UTC"},
                cwd="/",
                start_new_session=True,  # Keys pressed in the host's terminal are not for it.
            )

    def await_start(self) -> None:
        """The time that a worker needs to start is not the script's."""
        if not self.started:
            self.receive(time.monotonic() + START_S)
            self.started = True

    def send(self, message: dict[str, Any], deadline: float) -> None:
        body = json.dumps(message).encode()
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(len(body).to_bytes(4, "big") + body)
        except TimeoutError:
            raise Stopped(OVERDUE) from None
        except OSError:
            raise self._died() from None

    def receive(self, deadline: float) -> bytes:
        length = int.from_bytes(self._read(4, deadline), "big")
        if length > self.limits.frame_bytes:
            raise Stopped(f"it gave {length} bytes of output; {self.limits.frame_bytes} are allowed")
        return self._read(length, deadline)

    def _read(self, length: int, deadline: float) -> bytes:
        """So many bytes; what came with them is kept for the next read."""
        while len(self._came) < length:
            try:
                self._socket.settimeout(_left(deadline))
                got = self._socket.recv(MEGABYTE)
            except TimeoutError:
                raise Stopped(OVERDUE) from None
            except OSError:
                raise self._died() from None
            if not got:
                raise self._died()
            self._came += got
        body = bytes(self._came[:length])
        del self._came[:length]
        return body

    def _died(self) -> Stopped:
        # Its own exit code tells a crash from a kill, so it gets a moment to be gone.
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        code = self.process.poll()  # Before it is killed from here.
        self.kill()
        if code in FROM_OUTSIDE:
            return Killed(f"somebody else ended its process ({signal.Signals(-code).name})")
        return Stopped(f"the engine died (exit code {self.process.returncode})")

    def drop(self) -> None:
        """The call is over: its context goes, with all that the script still waits for."""
        if self.over:
            return
        self.over = True
        try:
            self.send({"drop": True}, time.monotonic() + 1)
        except Stopped:
            self.kill()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.killed = True
        self._socket.close()
        self.process.kill()
        self.process.wait()


def _left(deadline: float) -> float:
    """Seconds to a deadline; a socket takes zero for "never wait", which is not meant."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Workers:
    """Warm workers: each is lent to one call at a time, and replaced as soon as it is gone.

    One is enough for calls that come one after another: it makes its next context while the host is busy with what
    came of the last call.
    """

    def __init__(self, limits: Limits = Limits(), warm: int = 1) -> None:  # noqa: B008 - an immutable value
        self.limits = limits
        self._idle = deque(Worker(limits) for _ in range(warm))

    @contextmanager
    def lent(self) -> Iterator[Worker]:
        worker = self._take()
        try:
            yield worker
        except BaseException:
            worker.kill()
            raise
        else:
            worker.drop()
        finally:
            worker.calls += 1
            if worker.calls >= self.limits.calls_per_worker:
                worker.kill()
            self._idle.append(Worker(self.limits) if worker.killed else worker)

    def _take(self) -> Worker:
        """A warm worker; one that died while it was idle is nobody's fault, and replaced."""
        worker = self._idle.popleft() if self._idle else Worker(self.limits)
        if not worker.alive:
            worker.kill()
            worker = Worker(self.limits)
        try:
            worker.await_start()
        except Killed:  # A trouble of the machine, and no reason to think that the next one would not start.
            raise
        except Stopped as stopped:
            worker.kill()
            raise NoWorker(f"the sandbox does not start: {stopped}") from None
        return worker

    def close(self) -> None:
        while self._idle:
            self._idle.pop().kill()
