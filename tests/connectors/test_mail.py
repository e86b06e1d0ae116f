"""The `mail` connector against a real SMTP server, real Maildirs and a real IMAP server, all on loopback."""

import asyncio
import imaplib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from connectors.effects import KEY, Heard, alone, read, reconcile, send
from server import free_port

from keepkernel.adapters.connectors import Call, Connections, mail
from keepkernel.adapters.connectors.mail import Mail
from keepkernel.adapters.connectors.mailboxes import ImapAccount, MaildirFolder
from keepkernel.adapters.points import SimulatedCrash
from keepkernel.kernel.respond import AskAgain, DidNotHappen, Failed, Happened, NoMethod, Unknown

PARAMS = {"to": ["alice@example.org"], "subject": "Grüße", "text": "Hello\n.\n..two dots\nwörld\n"}
MESSAGE_ID = f"<{Call(KEY).name}@example.org>"


class PostOffice:
    """Takes mail, and at each step answers what a test says."""

    def __init__(self, sent: Path) -> None:
        self.sent = MaildirFolder(sent)
        self.taken: list[EmailMessage] = []
        self.answers: dict[str, str] = {}
        self.files = False
        self.after: Callable[[SMTP], None] = lambda server: None
        self.lasts = threading.Event()
        self.lasts.set()

    async def handle_MAIL(self, _: SMTP, __: Session, envelope: Envelope, address: str, *rest: Any) -> str:  # noqa: N802
        envelope.mail_from = address
        return self.answers.get("MAIL", "250 OK")

    async def handle_RCPT(self, _: SMTP, __: Session, envelope: Envelope, address: str, *rest: Any) -> str:  # noqa: N802
        envelope.rcpt_tos.append(address)
        return self.answers.get(address, "250 OK")

    async def handle_DATA(self, server: SMTP, _: Session, envelope: Envelope) -> str:  # noqa: N802
        """A client that goes away does not stop it."""
        return await asyncio.shield(self._take(server, envelope))

    async def _take(self, server: SMTP, envelope: Envelope) -> str:
        while not self.lasts.is_set():
            await asyncio.sleep(0.01)
        answer = self.answers.get("DATA", "250 OK")
        if answer.startswith("2"):
            content = envelope.content
            assert isinstance(content, bytes)
            self.taken.append(message_from_bytes(content, policy=default))
            if self.files:
                self.sent.put(content, 1)
        self.after(server)
        return answer


class Served(Controller):
    """Port 0: the system chooses one that is free."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    (tmp_path / "Sent").mkdir()
    return tmp_path / "Sent"


@pytest.fixture
def office(sent: Path) -> PostOffice:
    return PostOffice(sent)


@pytest.fixture
def port(office: PostOffice) -> Iterator[int]:
    controller = Served(office, hostname="127.0.0.1", port=0, authenticator=known, auth_require_tls=False)
    controller.start()
    yield controller.port
    office.lasts.set()
    controller.stop()


def known(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
    return AuthResult(success=data.password == b"right", handled=False)


def connections(port: int, sent: Any = None, reach: Any = None, **settings: Any) -> Connections:
    smtp = {"host": "127.0.0.1", "port": port, "security": "none", **settings.pop("smtp", {})}
    mail = Mail.model_validate({"smtp": smtp, "sender": "Robot <robot@example.org>", "sent": sent, **settings})
    return alone(mail, tell=Heard(), **({"reach": reach} if reach else {}))


def happened(filed: bool) -> Happened:
    return Happened(json.dumps({"message_id": MESSAGE_ID, "filed": filed}, separators=(",", ":")))


# --- sending -------------------------------------------------------------------------------------------


def test_a_message_is_sent_exactly(port: int, office: PostOffice) -> None:
    params = {**PARAMS, "cc": ["bob@example.org"]}
    assert send(connections(port), "it.send", params) == happened(filed=False)
    [message] = office.taken
    assert message["Message-ID"] == MESSAGE_ID
    assert message["Subject"] == "Grüße"
    assert message["From"] == "Robot <robot@example.org>"
    assert (message["To"], message["Cc"]) == ("alice@example.org", "bob@example.org")
    assert message.get_content().replace("\r\n", "\n") == PARAMS["text"]


def test_the_system_does_not_resend_a_message_after_its_deadline(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(mail, "give_up_after", lambda deadline_ms, sock: asked.append(deadline_ms))
    assert send(connections(port, deadline_ms=4_321), "it.send", PARAMS) == happened(filed=False)
    assert asked == [4_321]


def test_its_copy_is_filed_and_found(port: int, sent: Path) -> None:
    it = connections(port, {"maildir": str(sent)})
    assert send(it, "it.send", PARAMS) == happened(filed=True)
    assert reconcile(it, "it.send", PARAMS) == happened(filed=True)
    assert isinstance(reconcile(it, "it.send", PARAMS, key="demo/other"), AskAgain)


def test_a_copy_that_can_not_be_filed_does_not_undo_what_happened(port: int, sent: Path, office: PostOffice) -> None:
    it = connections(port, {"maildir": str(sent)})
    (sent / "tmp").write_text("in the way")
    assert send(it, "it.send", PARAMS) == happened(filed=False)
    assert len(office.taken) == 1


def test_a_server_that_files_copies_proves_also_that_nothing_was_sent(
    port: int, sent: Path, office: PostOffice
) -> None:
    office.files = True
    it = connections(port, {"maildir": str(sent), "server_files": True})
    assert reconcile(it, "it.send", PARAMS) == DidNotHappen(voided=False)
    assert send(it, "it.send", PARAMS) == happened(filed=True)
    assert reconcile(it, "it.send", PARAMS) == happened(filed=True)
    assert len(list((sent / "cur").iterdir())) == 1


@pytest.mark.parametrize("files", [True, False])
def test_a_connection_that_is_cut_after_the_last_dot_leaves_it_unknown(
    port: int, sent: Path, office: PostOffice, files: bool
) -> None:
    office.files = files
    office.after = lambda server: server.transport.abort()
    it = connections(port, {"maildir": str(sent), "server_files": files})
    assert isinstance(send(it, "it.send", PARAMS), Unknown)
    assert len(office.taken) == 1
    looked = reconcile(it, "it.send", PARAMS)
    assert looked == happened(filed=True) if files else isinstance(looked, AskAgain)


def test_an_answer_past_the_deadline_leaves_it_unknown_and_it_may_still_be_sent(
    port: int, sent: Path, office: PostOffice
) -> None:
    office.lasts.clear()
    office.files = True
    ended = threading.Event()
    office.after = lambda server: ended.set()
    it = connections(port, {"maildir": str(sent), "server_files": True}, deadline_ms=500)
    assert isinstance(send(it, "it.send", PARAMS), Unknown)
    assert reconcile(it, "it.send", PARAMS) == DidNotHappen(voided=False)  # The kernel knows that this is too early.
    office.lasts.set()
    assert ended.wait(60)
    assert reconcile(it, "it.send", PARAMS) == happened(filed=True)


@pytest.mark.parametrize(
    ("step", "answer", "failure"),
    [
        ("MAIL", "550 no", "refused"),
        ("MAIL", "451 later", "rate_limit"),
        ("MAIL", "530 who are you", "auth"),
        ("bob@example.org", "550 nobody here", "refused"),
        ("bob@example.org", "450 later", "rate_limit"),
        ("DATA", "554 spam", "refused"),
        ("DATA", "452 full", "rate_limit"),
        ("DATA", "421 closing", None),
        ("DATA", "399 what", None),
    ],
)
def test_refusals(port: int, office: PostOffice, step: str, answer: str, failure: str | None) -> None:
    office.answers[step] = answer
    params = {**PARAMS, "to": ["alice@example.org", "bob@example.org"]}
    said = send(connections(port), "it.send", params)
    words = f"the server answered {answer[:3]}: {answer[4:]}"
    if failure:
        assert said == Failed(failure, f"it.send: {words}", "it.send")
    else:
        assert isinstance(said, Unknown)
        assert words in said.message
    assert office.taken == []


def test_a_password_that_is_wrong_and_one_that_is_right(port: int, office: PostOffice) -> None:
    wrong = connections(port, smtp={"user": "robot", "password": "swordfish"})
    answer = send(wrong, "it.send", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "auth"
    assert "swordfish" not in answer.message
    assert office.taken == []
    right = connections(port, smtp={"user": "robot", "password": "right"})
    assert send(right, "it.send", PARAMS) == happened(filed=False)


def test_a_server_without_encryption_is_not_trusted_by_default(port: int, office: PostOffice) -> None:
    answer = send(connections(port, smtp={"security": "starttls"}), "it.send", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "auth"
    assert office.taken == []


def test_nobody_there_means_that_nothing_was_sent() -> None:
    answer = send(connections(free_port()), "it.send", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "network"


@pytest.mark.parametrize("point", ["call: leaves", "mail: accepted"])
def test_a_death_anywhere_is_told_rightly(port: int, sent: Path, office: PostOffice, point: str) -> None:
    def reach(passed: str) -> None:
        if passed == point:
            raise SimulatedCrash

    office.files = True
    folder = {"maildir": str(sent), "server_files": True}
    with pytest.raises(SimulatedCrash):
        send(connections(port, folder, reach), "it.send", PARAMS)
    landed = len(office.taken) == 1
    assert landed == (point == "mail: accepted")
    expected = happened(filed=True) if landed else DidNotHappen(voided=False)
    assert reconcile(connections(port, folder), "it.send", PARAMS) == expected


@pytest.mark.parametrize(
    "params",
    [
        {"to": []},
        {"to": ["alice"]},
        {"to": ["alice@example.org\r\nRCPT TO:<eve@example.org>"]},
        {"to": ["alice@example.org, eve@example.org"]},
        {"subject": "a\r\nBcc: eve@example.org"},
        {"message_id": "<mine@example.org>"},
    ],
)
def test_what_would_forge_a_message_is_refused(port: int, office: PostOffice, params: dict[str, Any]) -> None:
    answer = send(connections(port), "it.send", {**PARAMS, **params})
    assert isinstance(answer, Failed)
    assert answer.failure == "bad_result"
    assert office.taken == []


# --- looking for it ------------------------------------------------------------------------------------


def test_without_a_folder_of_sent_mail_there_is_no_reconcile(port: int) -> None:
    it = connections(port)
    assert not it.catalogue()["it.send"].reconcilable
    assert reconcile(it, "it.send", PARAMS) == NoMethod()


def test_an_answer_to_the_message_is_not_the_message(port: int, sent: Path) -> None:
    MaildirFolder(sent).put(f"Message-ID: <other@x>\r\nIn-Reply-To: {MESSAGE_ID}\r\n\r\n".encode(), 1)
    it = connections(port, {"maildir": str(sent), "server_files": True})
    assert reconcile(it, "it.send", PARAMS) == DidNotHappen(voided=False)


def test_a_message_that_nobody_has_seen_yet_is_found(port: int, sent: Path) -> None:
    (sent / "new").mkdir()
    (sent / "new" / "1.a").write_text(f"message-id:\n {MESSAGE_ID}\n\nhi")
    it = connections(port, {"maildir": str(sent), "server_files": True})
    assert reconcile(it, "it.send", PARAMS) == happened(filed=True)


def test_a_folder_that_is_gone_says_nothing(port: int, sent: Path) -> None:
    it = connections(port, {"maildir": str(sent), "server_files": True})
    sent.rmdir()
    assert isinstance(reconcile(it, "it.send", PARAMS), AskAgain)


@pytest.fixture(scope="module")
def imap() -> Iterator[dict[str, Any]]:
    """pymap, an IMAP server in Python, with folders in memory."""
    port = free_port()
    command = [Path(sys.executable).parent / "pymap", "--host", "127.0.0.1", "--port", str(port), "--no-tls"]
    process = subprocess.Popen([*command, "dict", "--demo-data"], stderr=subprocess.DEVNULL)
    account = {"host": "127.0.0.1", "port": port, "security": "none", "user": "demouser", "password": "demopass"}
    for _ in range(600):
        try:
            imaplib.IMAP4("127.0.0.1", port).logout()
            break
        except OSError:
            assert process.poll() is None
            time.sleep(0.05)
    yield account
    process.kill()
    process.wait()


@pytest.mark.parametrize("server_files", [True, False])
def test_an_imap_folder(port: int, imap: dict[str, Any], server_files: bool) -> None:
    key = f"demo/imap-{server_files}"
    it = connections(port, {"imap": imap, "folder": "Sent", "server_files": server_files})
    assert isinstance(reconcile(it, "it.send", PARAMS, key), DidNotHappen if server_files else AskAgain)
    answer = send(it, "it.send", PARAMS, key)
    assert isinstance(answer, Happened)
    if server_files:  # This server does not, so somebody else must.
        assert reconcile(it, "it.send", PARAMS, key) == DidNotHappen(voided=False)
        content = f"Message-ID: {json.loads(answer.result)['message_id']}\r\nSubject: x\r\n\r\nhi\r\n".encode()
        with ImapAccount(**imap).opened(10) as server:
            assert server.append("Sent", "", imaplib.Time2Internaldate(0), content)[0] == "OK"
    found = reconcile(it, "it.send", PARAMS, key)
    assert isinstance(found, Happened)
    assert json.loads(found.result)["message_id"] == json.loads(answer.result)["message_id"]


@pytest.mark.parametrize("wrong", [{"folder": "Nowhere"}, {"password": "wrong"}, {"port": 1}])
def test_an_imap_server_that_does_not_answer_the_question(port: int, imap: dict[str, Any], wrong: Any) -> None:
    folder = wrong.pop("folder", "Sent")
    it = connections(port, {"imap": {**imap, **wrong}, "folder": folder, "server_files": True})
    assert isinstance(reconcile(it, "it.send", PARAMS), AskAgain)


def test_a_copy_that_an_imap_server_does_not_take(port: int, imap: dict[str, Any]) -> None:
    it = connections(port, {"imap": imap, "folder": "Nowhere"})
    assert send(it, "it.send", PARAMS) == happened(filed=False)


# --- reading -------------------------------------------------------------------------------------------


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    for part in ("new", "cur", "tmp"):
        (tmp_path / "inbox" / part).mkdir(parents=True)
    return tmp_path / "inbox"


def reader(inbox: Path) -> Connections:
    return alone(Mail(inbox=inbox), tell=Heard())


MAIL = """From: Älice <alice@example.org>
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
Date: Fri, 02 Jan 2026 03:04:05 +0100
Content-Type: text/plain; charset=utf-8

Hello wörld
"""


def test_messages_come_in_the_order_of_their_delivery(inbox: Path) -> None:
    (inbox / "new" / "1000.a.host").write_text(MAIL)
    (inbox / "cur" / "999.b.host:2,S").write_text(MAIL.replace("Hello", "Bye"))
    (inbox / "tmp" / "1.c.host").write_text(MAIL)
    it = reader(inbox)
    messages = read(it, "it.list", {})["messages"]
    assert [message["id"] for message in messages] == ["999.b.host", "1000.a.host"]
    assert messages[1] == {
        "id": "1000.a.host",
        "from": "Älice <alice@example.org>",
        "subject": "Grüße",
        "date": "2026-01-02T02:04:05+00:00",
        "text": "Hello wörld\n",
    }
    assert [m["id"] for m in read(it, "it.list", {"limit": 1})["messages"]] == ["999.b.host"]
    assert [m["id"] for m in read(it, "it.list", {"after": "999.b.host"})["messages"]] == ["1000.a.host"]
    assert list(it.catalogue()) == ["it.list"]


def test_a_message_keeps_its_id_when_it_is_seen(inbox: Path) -> None:
    (inbox / "new" / "1.a").write_text(MAIL)
    before = read(reader(inbox), "it.list", {})
    (inbox / "new" / "1.a").rename(inbox / "cur" / "1.a:2,RS")
    assert read(reader(inbox), "it.list", {}) == before


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", ""),
        (b"\xff\xfe\x00 garbage", None),
        (b"Content-Type: text/plain; charset=nonsense\n\nhi", "hi"),
        (b"Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/plain\n\npart\n--x--\n", "part"),
        (b"Content-Type: text/html\n\n<b>hi</b>", "<b>hi</b>"),
        (b"Content-Type: image/png\n\nxx", ""),
        (b"Date: nonsense\nSubject: \xff\n\nhi", "hi"),
    ],
    ids=["empty", "garbage", "charset", "multipart", "html", "image", "odd headers"],
)
def test_odd_messages_are_listed_too(inbox: Path, content: bytes, text: str | None) -> None:
    (inbox / "new" / "1.a").write_bytes(content)
    [message] = read(reader(inbox), "it.list", {})["messages"]
    assert message["date"] is None
    assert text is None or message["text"].strip() == text


def test_an_inbox_that_is_gone(inbox: Path) -> None:
    it = reader(inbox)
    inbox.rename(inbox.parent / "elsewhere")
    assert isinstance(read(it, "it.list", {}), Failed)


# --- settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "give an inbox"),
        ({"smtp": {"host": "x"}}, "both smtp and sender"),
        ({"sender": "a@b.c"}, "both smtp and sender"),
        ({"smtp": {"host": "x"}, "sender": "nobody"}, "write an address"),
        ({"smtp": {"host": "x"}, "sender": "a@b.c", "sent": {}}, "either maildir or imap"),
        ({"smtp": {"host": "x"}, "sender": "a@b.c", "sent": {"imap": {"host": "x"}, "folder": 'a"b'}}, "folder"),
    ],
)
def test_settings_that_are_wrong(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Mail.model_validate(settings)
