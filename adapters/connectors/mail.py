"""Mail: sent by SMTP, looked for in the folder of sent mail, read from a Maildir.

A message gets its Message-ID from the key of the call, so that it can be found again. Finding it proves that it was
sent. Not finding it proves something only where the server itself files a copy of whatever it takes; where this
connector files the copy, it may have died just before, and not found means nothing.
"""

import imaplib
import re
import smtplib
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import localtime, parseaddr, parsedate_to_datetime
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, DirectoryPath, Field, StringConstraints, model_validator

from ...kernel.failures import FailureClass
from ...kernel.respond import AskAgain, DidNotHappen
from .base import Call, Connector, NotDone, Place, Refused, Shape, Unclear, changes, give_up_after, reads, reconciles
from .mailboxes import ImapAccount, ImapFolder, MaildirFolder, MailFolder, Settings, SmtpAccount

TEXT_MAX: Final = 100_000
AUTH_CODES: Final = (530, 534, 535, 538)
CLOSING: Final = 421
DOT: Final = re.compile(rb"^\.", re.MULTILINE)

ADDRESS: Final = r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9.-]+$"
Address = Annotated[str, StringConstraints(pattern=ADDRESS, max_length=254)]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$", max_length=900)]


def with_address(sender: str) -> str:
    if not re.match(ADDRESS, parseaddr(sender)[1]) or not sender.isprintable():
        raise ValueError("write an address, as in robot@example.org or Robot <robot@example.org>")
    return sender


class SentMail(Settings):
    """Where sent mail is: a Maildir, or a folder of an IMAP server."""

    maildir: Annotated[DirectoryPath | None, Place] = None
    imap: ImapAccount | None = None
    folder: Annotated[str, StringConstraints(pattern=r'^[^"\\\x00-\x1f\x7f-\U0010ffff]+$')] = "Sent"
    """The name of the folder on the IMAP server, as the server spells it."""
    server_files: bool = False
    """The server that takes the mail puts a copy into this folder itself, of every message and at once."""

    @model_validator(mode="after")
    def _one(self) -> "SentMail":
        if (self.maildir is None) == (self.imap is None):
            raise ValueError("give either maildir or imap")
        return self

    @property
    def place(self) -> MailFolder:
        if self.imap is not None:
            return ImapFolder(self.imap, self.folder)
        assert self.maildir is not None
        return MaildirFolder(self.maildir)


class SendParams(Shape):
    to: Annotated[list[Address], Field(min_length=1, max_length=100)]
    cc: Annotated[list[Address], Field(max_length=100)] = Field(default=[])
    subject: Line
    text: Annotated[str, StringConstraints(max_length=1_000_000)]


class Sent(Shape):
    message_id: str
    filed: bool
    """Whether there is a copy in the folder of sent mail."""


class ListParams(Shape):
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    after: str = ""
    """Only messages that were delivered later: the id of the last one of the page before."""


class Message(Shape):
    id: str
    sender: str = Field(alias="from")
    subject: str
    date: str | None
    """In ISO 8601 and UTC; null when the message does not say it in a way that can be read."""
    text: str


class Messages(Shape):
    messages: list[Message]


class Mail(Connector):
    """It sends where there are `smtp` and `sender`, and lists where there is an `inbox`."""

    inbox: Annotated[DirectoryPath | None, Place] = None
    """A Maildir."""
    smtp: SmtpAccount | None = None
    sender: Annotated[str, AfterValidator(with_address)] = Field(default="")
    sent: SentMail | None = None

    errors: ClassVar[Mapping[type[Exception], FailureClass]] = {
        smtplib.SMTPAuthenticationError: "auth",
        smtplib.SMTPNotSupportedError: "auth",
        smtplib.SMTPException: "network",
        TimeoutError: "timeout",
        PermissionError: "auth",
        OSError: "network",
    }

    @model_validator(mode="after")
    def _whole(self) -> "Mail":
        if (self.smtp is None) != (self.sender == ""):
            raise ValueError("to send, give both smtp and sender")
        if self.smtp is None and self.inbox is None:
            raise ValueError("give an inbox to read from, or smtp and sender to send with")
        return self

    def offers(self, method: str) -> bool:
        return (self.smtp if method == "send" else self.inbox) is not None

    def reconcilable(self, method: str) -> bool:
        return self.sent is not None

    # -- sending

    @changes
    def send(self, params: SendParams, call: Call) -> Sent:
        """Send one message of plain text to all its receivers, or to none."""
        message_id = self._message_id(call)
        content = self._message(params, message_id).as_bytes(policy=SMTP)
        assert self.smtp is not None
        with self.unsent():
            server = self.smtp.connect(self._timeout_s)
        with closing(server):
            with self.unsent():
                self._announce(server, params)
            call.leaves()
            assert server.sock is not None
            server.sock.settimeout(self.deadline_ms / 1_000)
            give_up_after(self.deadline_ms, server.sock)
            server.send(DOT.sub(b"..", content) + b".\r\n")  # With the last dot the server takes it over, or not.
            settle(*server.getreply())
            call.reach("mail: accepted")
        return Sent(message_id=message_id, filed=self._filed(content))

    def _announce(self, server: smtplib.SMTP, params: SendParams) -> None:
        """Everything before the message itself; nothing is taken over before its last line."""
        expect(250, *server.mail(parseaddr(self.sender)[1]))
        for address in [*params.to, *params.cc]:
            expect(250, *server.rcpt(address))
        expect(354, *server.docmd("DATA"))

    def _filed(self, content: bytes) -> bool:
        """The message is sent, whatever becomes of its copy: without one it just can not be found again."""
        if self.sent is None or self.sent.server_files:
            return self.sent is not None
        try:
            self.sent.place.put(content, self._timeout_s)
        except (OSError, imaplib.IMAP4.error, Unclear):
            return False
        return True

    @reconciles("send")
    def find(self, params: SendParams, call: Call) -> Sent | DidNotHappen | AskAgain:
        """Look for it among the sent mail."""
        assert self.sent is not None
        message_id = self._message_id(call)
        if self.sent.place.holds(message_id, self._timeout_s):
            return Sent(message_id=message_id, filed=True)
        if self.sent.server_files:
            return DidNotHappen()
        return AskAgain("it is not among the sent mail; but a copy is filed only after the mail is out")

    def _message_id(self, call: Call) -> str:
        return f"<{call.name}@{self.sender.rpartition('@')[2].rstrip('>')}>"

    def _message(self, params: SendParams, message_id: str) -> EmailMessage:
        message = EmailMessage(policy=SMTP)
        message["From"] = self.sender
        message["To"] = ", ".join(params.to)
        if params.cc:
            message["Cc"] = ", ".join(params.cc)
        message["Subject"] = params.subject
        message["Date"] = localtime()
        message["Message-ID"] = message_id
        message.set_content(params.text)
        return message

    @property
    def _timeout_s(self) -> float:
        return min(30.0, self.deadline_ms / 2_000)

    # -- reading

    @reads
    def list(self, params: ListParams) -> Messages:
        """Messages of the inbox, in the order of their delivery."""
        assert self.inbox is not None
        found = MaildirFolder(self.inbox).messages(params.after, params.limit)
        return Messages(messages=[as_message(name, message) for name, message in found])


def expect(code: int, answered: int, words: bytes) -> None:
    """What a server answers before it has been given the message; if not this, it is certain that nothing is sent."""
    if answered == code or (code, answered) == (250, 251):
        return
    failure: FailureClass = "auth" if answered in AUTH_CODES else "refused" if answered >= 500 else "rate_limit"
    raise NotDone(failure, f"the server answered {answered}: {words.decode(errors='replace')}")


def settle(answered: int, words: bytes) -> None:
    """What a server answers when it has been given the message."""
    told = f"the server answered {answered}: {words.decode(errors='replace')}"
    if 200 <= answered < 300:
        return
    if answered == CLOSING or not 400 <= answered < 600:
        raise Unclear(told)
    raise Refused("refused" if answered >= 500 else "rate_limit", told)


def as_message(name: str, message: EmailMessage) -> Message:
    fields = {
        "id": clean(name),
        "from": clean(str(message["From"] or "")),
        "subject": clean(str(message["Subject"] or "")),
        "date": date_of(message),
        "text": text_of(message),
    }
    return Message.model_validate(fields)


def date_of(message: EmailMessage) -> str | None:
    try:
        moment = parsedate_to_datetime(str(message["Date"]))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return None


def text_of(message: EmailMessage) -> str:
    """The text of a message; of one in HTML alone, its HTML."""
    body = message.get_body(("plain", "html"))
    if body is None:
        return ""
    try:
        text = str(body.get_content())
    except (LookupError, ValueError, KeyError):  # A character set that nobody knows.
        content = body.get_payload(decode=True)
        text = content.decode(errors="replace") if isinstance(content, bytes) else ""
    return clean(text)[:TEXT_MAX]


def clean(text: str) -> str:
    """Whole characters only: bytes that are no text come as halves of pairs."""
    return text.encode(errors="replace").decode()
