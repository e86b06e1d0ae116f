"""The other side: a driver's process, its lines, and everything that can go wrong with it."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

Json = dict[str, Any]

PROTOCOL: Final = 1
LINE_MAX: Final = 16 * 2**20
CHUNK: Final = 2**18
PIPE_BUF: Final = select.PIPE_BUF
"""A pipe that can be written to takes so many bytes without waiting."""
STARTS_WITHIN_S: Final = 30.0
QUITS_WITHIN_S: Final = 2.0
SHOWN: Final = 300
"""How much of a line or of standard error is shown."""

Misbehaviour = Literal["hang", "died", "garbled", "out of order", "flood", "driver error", "not started"]


class Trouble(Exception):
    """The driver did not keep to the protocol."""

    def __init__(self, kind: Misbehaviour, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind: Misbehaviour = kind
        self.detail = detail


class GaveUp(Exception):
    """The driver can not be started any more."""


class Unsupported(Exception):
    """The driver says that it does not have this."""


class Hello(NamedTuple):
    name: str
    version: str
    supports: frozenset[str]
    commands: frozenset[str] | None
    crash_points: tuple[str, ...]


class Channel:
    """A driver on a folder of its own; it may be killed and started again as often as one likes."""

    def __init__(self, argv: list[str], level: str, patience_s: float) -> None:
        self.argv = argv
        self.level = level
        self.patience_s = patience_s
        self.folder = tempfile.TemporaryDirectory(prefix="conform-")
        self.data = Path(self.folder.name) / "data"
        self.data.mkdir()
        self.errors = Path(self.folder.name) / "stderr"
        self.process: subprocess.Popen[bytes] | None = None
        self.answered = 0
        self.starts = 0
        self._rest = bytearray()
        self._id = 0
        self._poll = select.poll()

    # -- life and death

    def start(self) -> Hello:
        """Start the driver on its folder, and greet it."""
        from .rules import SPEC_VERSION

        try:
            with self.errors.open("ab") as errors:
                # In a session of its own, so that what it starts can be killed with it.
                self.process = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    bufsize=0,
                    start_new_session=True,
                )
        except OSError as error:
            raise Trouble("not started", f"{self.argv[0]}: {error.strerror}") from None
        self.starts += 1
        self._rest.clear()
        self._id = 0
        self._poll = select.poll()
        assert self.process.stdout is not None
        self._poll.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        greeting = {"protocol": PROTOCOL, "spec": SPEC_VERSION, "level": self.level, "data": str(self.data)}
        answer = self.ask("hello", greeting, max(self.patience_s, STARTS_WITHIN_S))
        return read_hello(answer)

    def kill(self) -> None:
        """SIGKILL, with no warning; nothing is closed in order."""
        process = self.process
        if process is None:
            return
        with suppress(ProcessLookupError):  # It may have ended by itself, and all that it started with it.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self.process = None

    def quit(self) -> None:
        if self.process is None:
            return
        self.ask("quit", {})
        try:
            self.process.wait(QUITS_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise Trouble("hang", f"it did not end within {QUITS_WITHIN_S:g} s after `quit`") from None
        finally:
            self.kill()

    def close(self) -> None:
        self.kill()
        self.folder.cleanup()

    def last_words(self) -> str:
        """The end of what the driver wrote to standard error."""
        with self.errors.open("rb") as file:
            file.seek(max(0, self.errors.stat().st_size - SHOWN))
            return " ".join(file.read().decode(errors="replace").split())

    # -- lines

    def ask(self, op: str, fields: Json, patience_s: float = 0) -> Json:
        """One request and its answer; Trouble when there is none, Unsupported when the driver declines."""
        self.send(op, fields)
        return self.answer(patience_s)

    def send(self, op: str, fields: Json) -> None:
        self._id += 1
        self.write({"id": self._id, "op": op, **fields})

    def write(self, message: Json) -> None:
        if self.process is None or self.process.stdin is None:
            raise Trouble("died", "the process is not running")
        pipe, until = self.process.stdin.fileno(), time.monotonic() + self.patience_s
        room = select.poll()
        room.register(pipe, select.POLLOUT)
        left = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            while left:
                # A driver that does not read must not hold the kit up for ever.
                if not room.poll(max(0.0, until - time.monotonic()) * 1_000):
                    raise Trouble("hang", f"it did not read its request within {self.patience_s:g} s")
                left = left[os.write(pipe, left[:PIPE_BUF]) :]
        except BrokenPipeError:
            raise self._dead() from None

    def answer(self, patience_s: float = 0) -> Json:
        """The next answer to the request that was sent last."""
        answer = self.read(patience_s)
        if answer.get("id") != self._id:
            raise Trouble("out of order", f"an answer to {self._id} was due, and this came: {brief(answer)}")
        self.answered += 1
        if "unsupported" in answer:
            raise Unsupported(str(answer["unsupported"]))
        if "error" in answer:
            raise Trouble("driver error", str(answer["error"])[:SHOWN])
        return answer

    def read(self, patience_s: float = 0) -> Json:
        line = self._line(time.monotonic() + (patience_s or self.patience_s))
        try:
            message = json.loads(line.decode(), parse_constant=no_number)
            if b"\\u" in line:
                # Half a surrogate pair is no text (CODEC-004), and no report could be written with it.
                json.dumps(message, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise Trouble("garbled", f"a line is not JSON: {line[:80]!r}") from None
        if not isinstance(message, dict):
            raise Trouble("garbled", f"a line is not an object: {line[:80]!r}")
        return message

    def _line(self, until: float) -> bytes:
        searched = 0
        while True:
            end = self._rest.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                return line
            searched = len(self._rest)
            if searched > LINE_MAX:
                raise Trouble("flood", f"a line is longer than {LINE_MAX:,} bytes")
            left = until - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1_000):
                raise Trouble("hang", f"no answer within {self.patience_s:g} s")
            assert self.process is not None
            assert self.process.stdout is not None
            data = os.read(self.process.stdout.fileno(), CHUNK)
            if not data:
                raise self._dead()
            self._rest += data

    def _dead(self) -> Trouble:
        try:
            code = self.process.wait(min(self.patience_s, QUITS_WITHIN_S)) if self.process is not None else 0
        except subprocess.TimeoutExpired:
            # It lives on with a closed end, and would be waited for without end.
            return Trouble("hang", "it closed its standard input or output, and did not end")
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = self.last_words()
        return Trouble("died", f"the driver ended by itself, {how}{f'; it said: {said}' if said else ''}")


def no_number(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def brief(message: Json) -> str:
    text = json.dumps(message)
    return text if len(text) <= 80 else f"{text[:79]}…"


def read_hello(answer: Json) -> Hello:
    """What the driver says of itself; Trouble when it does not speak this protocol."""
    name, version = answer.get("name"), answer.get("version")
    if answer.get("protocol") != PROTOCOL:
        raise Trouble("not started", f"it speaks protocol {answer.get('protocol')!r}, and this kit {PROTOCOL}")
    if not isinstance(name, str) or not isinstance(version, str):
        raise Trouble("not started", "its hello has no name and version")
    known = answer.get("commands")
    return Hello(
        name,
        version,
        frozenset(words(answer, "supports")),
        None if known is None else frozenset(words(answer, "commands")),
        tuple(words(answer, "crash_points")),
    )


def words(answer: Json, field: str) -> list[str]:
    found = answer.get(field, [])
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise Trouble("not started", f"in its hello, {field} is not a list of words")
    return found
