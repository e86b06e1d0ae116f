"""The `webhook` connector against real HTTP servers on loopback."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from connectors.effects import KEY, Heard, alone, read, reconcile, send
from server import free_port

from keepkernel.adapters.connectors import Call, Connections, webhook
from keepkernel.adapters.connectors.base import give_up_after
from keepkernel.adapters.connectors.webhook import REFUSALS, Webhook
from keepkernel.adapters.points import SimulatedCrash
from keepkernel.kernel.respond import AskAgain, DidNotHappen, Failed, Happened, NoMethod, Unknown

NAME = Call(KEY).name
PARAMS = {"body": {"hello": ["wörld", None]}}


class Target(ThreadingHTTPServer):
    """Remembers what it did, and does with a request what a test says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.done: dict[str, Any] = {}
        self.seen: list[dict[str, str]] = []
        self.behave: Callable[[Requests], None] = apply
        self.released, self.kept = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class Requests(BaseHTTPRequestHandler):
    server: Target

    def do_POST(self) -> None:
        self.server.seen.append(dict(self.headers))
        self.server.behave(self)

    def do_GET(self) -> None:
        self.server.seen.append(dict(self.headers))
        path = self.path.split("/")
        if path[1] == "calls":
            done = self.server.done.get(path[2])
            self.answer(404 if done is None else 200, json.dumps(done).encode())
        else:
            self.server.behave(self)

    def keep(self) -> None:
        """Do what is asked: from here on it has happened."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.done[self.headers["Idempotency-Key"]] = json.loads(body)
        self.server.kept.set()

    def answer(self, status: int, body: bytes = b'{"id": 7}', **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def apply(request: Requests) -> None:
    request.keep()
    request.answer(200)


def apply_and_cut(request: Requests) -> None:
    request.keep()
    request.connection.shutdown(socket.SHUT_RDWR)


def cut(request: Requests) -> None:
    request.connection.shutdown(socket.SHUT_RDWR)


def apply_and_answer_half(request: Requests) -> None:
    request.keep()
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b"half")


def apply_late(request: Requests) -> None:
    request.server.released.wait()
    apply(request)


def apply_and_fail(request: Requests) -> None:
    request.keep()
    request.answer(500)


def apply_and_talk_nonsense(request: Requests) -> None:
    request.keep()
    request.wfile.write(b"what?\r\n\r\n")


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.released.set()
        server.shutdown()


def connections(target: Target, **settings: Any) -> Connections:
    look = {"url": target.url.replace("hook", "calls/{key}"), "missing": 404}
    return alone(Webhook(**{"url": target.url, "reconcile": look, **settings}), tell=Heard())


def test_a_call_is_posted_with_its_key_and_found_again(target: Target) -> None:
    it = connections(target, headers={"Authorization": "Bearer swordfish"})
    assert send(it, "it.post", PARAMS) == Happened('{"status":200,"body":{"id":7}}')
    assert target.done == {NAME: PARAMS["body"]}
    assert target.seen[0]["Authorization"] == "Bearer swordfish"
    assert target.seen[0]["Content-Type"] == "application/json"
    found = reconcile(it, "it.post", PARAMS)
    assert isinstance(found, Happened)
    assert json.loads(found.result) == {"status": 200, "body": PARAMS["body"]}


def apply_and_pack_badly(request: Requests) -> None:
    request.keep()
    request.answer(200, b"no gzip", **{"Content-Encoding": "gzip"})


BREAKS = [apply_and_cut, apply_and_answer_half, apply_and_talk_nonsense, apply_and_pack_badly]


@pytest.mark.parametrize("behave", [*BREAKS, apply_and_fail], ids=lambda f: f.__name__)
def test_what_happened_is_never_called_failed(target: Target, behave: Callable[[Requests], None]) -> None:
    target.behave = behave
    it = connections(target)
    assert isinstance(send(it, "it.post", PARAMS), Unknown)
    assert NAME in target.done
    assert isinstance(reconcile(it, "it.post", PARAMS), Happened)


@pytest.mark.parametrize("behave", [*BREAKS, cut], ids=lambda f: f.__name__)
def test_a_connection_that_breaks_is_told_in_a_line(target: Target, behave: Callable[[Requests], None]) -> None:
    target.behave = behave
    heard = Heard()
    it = alone(connections(target).connectors["it"], tell=heard)
    assert isinstance(send(it, "it.post", PARAMS), Unknown)
    [told] = heard
    assert told.startswith("it.post: the call had left, and then: ")
    assert told.endswith("; so it is unknown whether it happened")
    assert "\n" not in told


def test_the_system_does_not_resend_a_call_after_its_deadline(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    give_up = webhook.give_up_after

    def listened(deadline_ms: int, sock: socket.socket) -> None:
        give_up(deadline_ms, sock)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            asked.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    monkeypatch.setattr(webhook, "give_up_after", listened)
    it = connections(target, deadline_ms=4_321)
    assert isinstance(send(it, "it.post", PARAMS), Happened)
    assert asked == ([4_321] if hasattr(socket, "TCP_USER_TIMEOUT") else [])


@pytest.mark.parametrize("has_timeout", [True, False])
def test_what_is_not_acknowledged_in_time_is_thrown_away(has_timeout: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_timeout:
        monkeypatch.delattr(socket, "TCP_USER_TIMEOUT", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        give_up_after(5_000, sock)
        lingers = struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        assert lingers == ((1, 0) if not hasattr(socket, "TCP_USER_TIMEOUT") else (0, 0))


def test_a_cut_before_anything_happened_is_unknown_and_then_found_missing(target: Target) -> None:
    target.behave = cut
    it = connections(target)
    assert isinstance(send(it, "it.post", PARAMS), Unknown)
    assert reconcile(it, "it.post", PARAMS) == DidNotHappen(voided=False)


def test_a_late_answer_is_unknown_and_what_is_missing_now_is_never_called_void(target: Target) -> None:
    target.behave = apply_late
    it = connections(target, deadline_ms=300)
    assert isinstance(send(it, "it.post", PARAMS), Unknown)
    assert reconcile(it, "it.post", PARAMS) == DidNotHappen(voided=False)  # The kernel knows that this is too early.
    target.released.set()
    assert target.kept.wait(60)
    assert isinstance(reconcile(it, "it.post", PARAMS), Happened)


def test_no_doubtful_answer_is_taken_for_a_refusal() -> None:
    """The table is the law; this says what must never be in it."""
    doubtful = {*range(200, 307), 406, 408, 409, 412, 423, 424, 425, *range(500, 600)}
    assert not doubtful & set(REFUSALS)


@pytest.mark.parametrize(
    ("status", "failure"),
    [(400, "refused"), (401, "auth"), (403, "auth"), (404, "refused"), (422, "refused"), (429, "rate_limit")]
    + [(308, "refused")]
    + [(status, None) for status in (301, 303, 408, 409, 418, 500, 502, 503, 504)],
)
def test_answers(target: Target, status: int, failure: str | None) -> None:
    target.behave = lambda request: request.answer(status, b"because", Location="/elsewhere")
    it = connections(target)
    answer = send(it, "it.post", PARAMS)
    said = f"the target answered {status}: because"
    doubt = Unknown(f"{said}, which leaves open what it did; so it is unknown whether it happened")
    assert answer == (Failed(failure, f"it.post: {said}", "it.post") if failure else doubt)
    assert len(target.seen) == 1


def test_a_target_may_be_declared_to_refuse_with_more(target: Target) -> None:
    target.behave = lambda request: request.answer(503)
    it = connections(target, definite={"503": "rate_limit"})
    answer = send(it, "it.post", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "rate_limit"


def test_nobody_there_means_that_nothing_was_sent() -> None:
    it = alone(Webhook(url=f"http://127.0.0.1:{free_port()}/", reconcile=None), tell=Heard())
    answer = send(it, "it.post", PARAMS)
    assert isinstance(answer, Failed)
    assert answer.failure == "network"
    assert read(it, "it.get", {}).failure == "network"


def test_a_call_that_is_late_does_not_leave(target: Target) -> None:
    webhook = connections(target).connectors["it"]
    params = webhook.methods["post"].params.model_validate(PARAMS)
    with pytest.raises(Exception, match="its time had passed"):
        webhook.post(params, Call(KEY, leave_by=0))
    assert target.seen == []


@pytest.mark.parametrize("point", ["call: leaves", "webhook: answered"])
def test_a_death_anywhere_is_told_rightly(target: Target, point: str) -> None:
    def reach(passed: str) -> None:
        if passed == point:
            raise SimulatedCrash

    it = connections(target)
    with pytest.raises(SimulatedCrash):
        send(alone(it.connectors["it"], reach=reach), "it.post", PARAMS)
    landed = NAME in target.done
    assert landed == (point == "webhook: answered")
    assert isinstance(reconcile(it, "it.post", PARAMS), Happened if landed else DidNotHappen)


# --- reconcile -----------------------------------------------------------------------------------------


def test_without_a_way_to_ask_there_is_no_reconcile(target: Target) -> None:
    it = connections(target, reconcile=None)
    assert not it.catalogue()["it.post"].reconcilable
    assert reconcile(it, "it.post", PARAMS) == NoMethod()
    assert connections(target).catalogue()["it.post"].reconcilable


def test_without_a_word_for_missing_nothing_proves_that_it_did_not_happen(target: Target) -> None:
    it = connections(target, reconcile={"url": target.url.replace("hook", "calls/{key}")})
    assert isinstance(reconcile(it, "it.post", PARAMS), AskAgain)


@pytest.mark.parametrize("status", [301, 401, 429, 500, 503])
def test_an_answer_that_is_no_answer(target: Target, status: int) -> None:
    target.behave = lambda request: request.answer(status)
    it = connections(target, reconcile={"url": target.url + "/{key}", "missing": 404})
    assert isinstance(reconcile(it, "it.post", PARAMS), AskAgain)


def test_nobody_to_ask() -> None:
    look = {"url": f"http://127.0.0.1:{free_port()}/{{key}}", "missing": 404}
    heard = Heard()
    it = alone(Webhook(url="http://127.0.0.1:1/", reconcile=look), tell=heard)
    assert isinstance(reconcile(it, "it.post", PARAMS), AskAgain)
    assert heard == ["it.post: the target gave no answer: ConnectError: [Errno 111] Connection refused"]


# --- reads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b"plain", "plain"),
        (b"NaN", "NaN"),
        (b'"\\ud800"', '"\\ud800"'),
        (b"\xff", "�"),
        (b"[" * 100_000, "[" * 100_000),
        (b"x" * 1_000_001, None),
    ],
    ids=["JSON", "text", "no JSON", "half a character", "no text", "deep", "long"],
)
def test_what_is_there(target: Target, body: bytes, value: Any) -> None:
    target.behave = lambda request: request.answer(200, body)
    assert read(connections(target), "it.get", {}) == {"status": 200, "body": value}


def test_a_path_and_a_query(target: Target) -> None:
    target.behave = lambda request: request.answer(200, json.dumps(request.path).encode())
    it = connections(target)
    got = read(it, "it.get", {"path": "orders/1", "query": {"q": "a b&c"}})
    assert got["body"] == "/hook/orders/1?q=a+b%26c"


@pytest.mark.parametrize("path", ["/etc", "../x", "a/../b", "//host/x", "a?b", "a b", "http://x"])
def test_a_path_that_leads_elsewhere(target: Target, path: str) -> None:
    assert read(connections(target), "it.get", {"path": path}).failure == "bad_result"
    assert target.seen == []


@pytest.mark.parametrize(
    ("status", "failure"),
    [(301, "refused"), (401, "auth"), (404, "refused"), (409, "refused"), (429, "rate_limit"), (503, "network")],
)
def test_a_read_that_is_refused(target: Target, status: int, failure: str) -> None:
    target.behave = lambda request: request.answer(status)
    assert read(connections(target), "it.get", {}).failure == failure


def test_a_target_that_echoes_a_secret(target: Target) -> None:
    target.behave = lambda request: request.answer(200, json.dumps(dict(request.headers)).encode())
    it = connections(target, headers={"Authorization": "Bearer swordfish", "Short": "no"})
    body = read(it, "it.get", {})["body"]
    assert (body["Authorization"], body["Short"]) == ("•••", "no")


@pytest.mark.parametrize("before", [180, 190, 195, *range(440, 480, 5)])
def test_a_long_answer_is_not_cut_in_the_middle_of_a_secret(target: Target, before: int) -> None:
    target.behave = lambda request: request.answer(400, b"x" * before + b"Bearer swordfish")
    it = connections(target, headers={"Authorization": "Bearer swordfish"})
    answer = send(it, "it.post", PARAMS)
    assert isinstance(answer, Failed)
    assert "Bear" not in answer.message
    assert len(answer.message) < 600


# --- settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "ftp://x"}, "write a URL like"),
        ({"url": "http://user:swordfish@host/"}, "give headers instead"),
        ({"reconcile": {"url": "http://host/"}}, r"write \{key\}"),
        ({"headers": {"A": "b\r\nC: d"}}, "one line"),
        ({"definite": {"503": "network"}}, "definite"),
    ],
)
def test_settings_that_are_wrong(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        Webhook(**{"url": "http://host/", **settings})
    assert "swordfish" not in str(caught.value)
