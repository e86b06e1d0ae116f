"""Servers and folders of mail, as `mail` needs them."""

import imaplib
import os
import smtplib
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.policy import default as modern
from itertools import chain
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, Protocol
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from .base import Unclear

HEADER_MAX_BYTES: Final = 100_000
MESSAGE_MAX_BYTES: Final = 5_000_000

Port = Annotated[int, Field(ge=1, le=65_535)]


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Account(Settings):
    """How a server is reached. Nothing goes out unencrypted unless the settings say `security = "none"`."""

    host: Annotated[str, Field(min_length=1)]
    user: str = ""
    password: SecretStr = SecretStr("")


class SmtpAccount(Account):
    port: Port = 587
    security: Literal["tls", "starttls", "none"] = "starttls"

    def connect(self, timeout_s: float) -> smtplib.SMTP:
        """A server that knows us and is ready to take a message."""
        server = (
            smtplib.SMTP_SSL(self.host, self.port, timeout=timeout_s, context=ssl.create_default_context())
            if self.security == "tls"
            else smtplib.SMTP(self.host, self.port, timeout=timeout_s)
        )
        try:
            if self.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            if self.user:
                server.login(self.user, self.password.get_secret_value())
            server.ehlo_or_helo_if_needed()
        except BaseException:
            server.close()
            raise
        return server


class ImapAccount(Account):
    port: Port = 993
    security: Literal["tls", "starttls", "none"] = "tls"

    @contextmanager
    def opened(self, timeout_s: float) -> Iterator[imaplib.IMAP4]:
        server = (
            imaplib.IMAP4_SSL(self.host, self.port, timeout=timeout_s, ssl_context=ssl.create_default_context())
            if self.security == "tls"
            else imaplib.IMAP4(self.host, self.port, timeout=timeout_s)
        )
        try:
            if self.security == "starttls":
                server.starttls(ssl_context=ssl.create_default_context())
            server.login(self.user, self.password.get_secret_value())
            yield server
        finally:
            with suppress(OSError, imaplib.IMAP4.error):  # What was asked is answered; leaving is mere politeness.
                server.logout()


class MailFolder(Protocol):
    """Where sent mail can be found."""

    def holds(self, message_id: str, timeout_s: float) -> bool:
        """Whether a message with this Message-ID is there."""

    def put(self, message: bytes, timeout_s: float) -> None:
        """File a message."""


class ImapFolder(NamedTuple):
    account: ImapAccount
    name: str

    def holds(self, message_id: str, timeout_s: float) -> bool:
        with self.account.opened(timeout_s) as server:
            status, told = server.select(f'"{self.name}"', readonly=True)
            if status != "OK":
                raise Unclear(f"the folder {self.name} can not be opened: {told!r}")
            status, found = server.search(None, "HEADER", "Message-ID", f'"{message_id}"')
            if status != "OK":
                raise Unclear(f"the folder {self.name} can not be searched: {found!r}")
            return any(part.split() for part in found if part)

    def put(self, message: bytes, timeout_s: float) -> None:
        with self.account.opened(timeout_s) as server:
            status, told = server.append(f'"{self.name}"', r"(\Seen)", imaplib.Time2Internaldate(time.time()), message)
            if status != "OK":
                raise Unclear(f"the copy was not filed: {told!r}")


class MaildirFolder(NamedTuple):
    """A folder of files, one for each message: new ones in `new`, and those that somebody has seen in `cur`."""

    path: Path

    def holds(self, message_id: str, timeout_s: float) -> bool:
        # A message that is renamed while the folder is listed may escape one look; it does not escape two.
        return self._holds(message_id) or self._holds(message_id)

    def _holds(self, message_id: str) -> bool:
        for path in self._files():
            try:
                with path.open("rb") as file:
                    head = file.read(HEADER_MAX_BYTES)
            except FileNotFoundError:
                raise Unclear("a message was moved while it was looked at") from None
            if message_id.encode() in head:
                header = BytesHeaderParser().parsebytes(head)
                if message_id in str(header["Message-ID"]):
                    return True
        return False

    def put(self, message: bytes, timeout_s: float) -> None:
        for part in ("tmp", "new", "cur"):
            (self.path / part).mkdir(parents=True, exist_ok=True)
        name = f"{time.time():.6f}.{uuid4().hex}.{socket.gethostname().replace('/', '-').replace(':', '-')}"
        with (self.path / "tmp" / name).open("xb") as file:
            file.write(message)
            file.flush()
            os.fsync(file.fileno())
        os.rename(self.path / "tmp" / name, self.path / "cur" / f"{name}:2,S")

    def _files(self) -> Iterator[Path]:
        """Every message: those in `new` first, since they move from there to `cur` and never back."""
        if not self.path.is_dir():
            raise Unclear(f"there is no Maildir {self.path}")
        parts = (self.path / "new", self.path / "cur")
        return chain.from_iterable(sorted(part.iterdir()) for part in parts if part.is_dir())

    def messages(self, after: str, limit: int) -> list[tuple[str, EmailMessage]]:
        """Messages by their ids, which stay when a message is seen or flagged; those delivered first come first."""
        by_id = {path.name.partition(":")[0]: path for path in self._files() if not path.name.startswith(".")}
        ids = sorted((name for name in by_id if delivered(name) > delivered(after)), key=delivered)[:limit]
        return [(name, message) for name in ids if (message := self._message(name, by_id[name])) is not None]

    def _message(self, name: str, path: Path) -> EmailMessage | None:
        """None when somebody has deleted it meanwhile."""
        seen = (self.path / "cur").glob(f"{escaped(name)}*")
        for place in chain([path], seen):
            with suppress(FileNotFoundError), place.open("rb") as file:
                message = message_from_bytes(file.read(MESSAGE_MAX_BYTES), policy=modern)
                assert isinstance(message, EmailMessage)
                return message
        return None


def escaped(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def delivered(name: str) -> tuple[float, str]:
    """The order of messages: names begin with the time of delivery.

    >>> sorted(["1000.b", "999.z", "", "odd"], key=delivered)
    ['', 'odd', '999.z', '1000.b']
    """
    seconds = name.partition(".")[0]
    return (float(seconds) if seconds.isascii() and seconds.isdigit() else 0.0 if name else -1.0, name)
