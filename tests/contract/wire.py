"""A wire between a store and its PostgreSQL that breaks between two messages."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Wire:
    """Passes bytes on in both directions; once `cut_at` is set, so many messages, counted over both, and no more."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._left: int | None = None
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, messages: int) -> None:
        """Break the wire when so many more messages have passed. Nothing may be on its way at this moment."""
        self.is_cut = False
        self._left = messages

    def mend(self) -> None:
        self._left = None

    def cut(self) -> None:
        """Break it at once."""
        self.is_cut = True
        for end in self._ends:
            with suppress(OSError):  # The other side may have gone first.
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # Wakes the thread that waits for a connection; a close does not.
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # Closed.
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        rest = b""
        with suppress(OSError):  # Broken or closed; then there is nothing to pass on.
            while data := source.recv(1 << 16):
                if self._left is None:
                    target.sendall(data)
                    continue
                messages, rest = split(rest + data)
                for message in messages:
                    with self._lock:
                        if self._left == 0:
                            self.cut()
                            return
                        self._left -= 1
                        target.sendall(message)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole messages, each a letter and its length with what follows, and the beginning of the next one."""
    messages = []
    while len(data) >= 5 and len(data) > (length := int.from_bytes(data[1:5])):
        messages.append(data[: length + 1])
        data = data[length + 1 :]
    return messages, data


@contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.close()
