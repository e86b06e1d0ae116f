"""The way to a host that runs: a local socket for its owner alone; a line of JSON asks, a line of JSON answers."""

import fcntl
import json
import os
import socket
import stat
import struct
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

LINE_MAX: Final = 64 * 1024 * 1024
PATH_MAX_BYTES: Final = 100
"""Addresses of sockets are short: the system allows 104 or 108 bytes."""
NAME_BYTES: Final = 16
IDLE_S: Final = 10.0
"""Who connects must say what it wants; nobody keeps a thread of the host for nothing."""

Document = dict[str, Any]
Answer = Callable[[Document], Document]


class Busy(Exception):
    """A host is at work there already."""


class NoHost(Exception):
    """No host is at work there."""


class ControlError(Exception):
    """The host did not answer as it should; the message says what to do."""


def socket_of(beside: Path) -> Path:
    """Where the socket of the host is whose store is this file: beside it, or in a folder with a short name."""
    path = beside.with_name(f"{beside.name}.sock")
    if len(os.fsencode(path)) <= PATH_MAX_BYTES:
        return path
    return private_folder() / f"{sha256(os.fsencode(path)).hexdigest()[:16]}.sock"


def private_folder() -> Path:
    """A folder that only this user can look into."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(base) / "keepkernel" if base else Path(tempfile.gettempdir()) / f"keepkernel-{os.getuid()}"
    if len(os.fsencode(folder)) > PATH_MAX_BYTES - 25:
        folder = Path("/tmp") / f"keepkernel-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ControlError(f"{folder} is open to others; remove it, or set XDG_RUNTIME_DIR to a folder of your own")
    return folder


# --- the host's side ---------------------------------------------------------------------------------


class Control:
    """Listens while it is open. At most one process does so at a path; the lock ends with the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ControlError(f"{path.parent}: {error.strerror}; name another place for the store") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise Busy(f"a host is at work on this store already ({path})") from None
        self.name = self._named()
        self._socket: socket.socket | None = None

    def _named(self) -> str:
        """What the holder of this lock is called, through all its deaths, and nobody else: it stands in its file.

        A machine's name would not do: two may have the same, and one may reach a store in two ways.
        """
        found = os.pread(self._lock, NAME_BYTES, 0)
        if len(found) < NAME_BYTES:
            found = token_hex(NAME_BYTES // 2).encode()
            os.pwrite(self._lock, found, 0)
        return f"{socket.gethostname()} {found.decode(errors='replace')}"

    def listen(self, answer: Answer) -> None:
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)  # The socket belongs to its owner alone from its first moment.
        try:
            self.path.unlink(missing_ok=True)  # Left behind by a host that died: nobody else holds the lock.
            listener.bind(str(self.path))
        except OSError as error:
            listener.close()
            told = f"{self.path}: {error.strerror}; see to it, or name another place for the store"
            raise ControlError(told) from None
        finally:
            os.umask(before)
        listener.listen()
        self._socket = listener
        threading.Thread(target=self._accept, args=(listener, answer), name="keepkernel control", daemon=True).start()

    def _accept(self, listener: socket.socket, answer: Answer) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # Closed: the host ends.
                return
            threading.Thread(target=serve, args=(connection, answer), name="keepkernel caller", daemon=True).start()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self.path.unlink(missing_ok=True)
        os.close(self._lock)

    def __enter__(self) -> "Control":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def serve(connection: socket.socket, answer: Answer) -> None:
    """One caller: its questions in order, each with one answer."""
    with connection, suppress(OSError):  # Whoever hangs up, or says nothing, is not waited for.
        if caller(connection) not in (os.getuid(), 0):
            return
        connection.settimeout(IDLE_S)
        with connection.makefile("rwb") as lines:
            while line := lines.readline(LINE_MAX):
                lines.write(json.dumps(answered(line, answer)).encode() + b"\n")
                lines.flush()


def answered(line: bytes, answer: Answer) -> Document:
    try:
        request = json.loads(line)
    except ValueError:
        return {"error": "that is not a line of JSON"}
    return answer(request) if isinstance(request, dict) else {"error": "a request is a JSON object"}


def caller(connection: socket.socket) -> int:
    """The user at the other end, where the system tells; else the permissions of the socket must do."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return os.getuid()
    credentials = connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return int(user)


# --- the caller's side -------------------------------------------------------------------------------


def ask(path: Path, request: Document, patience_s: float = 120.0) -> Document:
    """What the host at this socket answers; NoHost when there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(patience_s)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoHost(f"no host listens at {path}") from None
        except OSError as error:
            raise ControlError(f"{path}: {error.strerror or error}; see whose host it is") from None
        try:
            with connection.makefile("rwb") as lines:
                lines.write(json.dumps(request).encode() + b"\n")
                lines.flush()
                line = lines.readline(LINE_MAX)
        except TimeoutError:
            raise ControlError(f"the host gave no answer in {patience_s:.0f} s; see its log, and ask again") from None
        except OSError as error:
            raise ControlError(f"the host hung up ({error.strerror}); see its log, and ask again") from None
    if not line.endswith(b"\n"):
        raise ControlError("the host ended before it answered; ask again")
    document: Document = json.loads(line)
    return document
