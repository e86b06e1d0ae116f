"""Whatever a connector does, the answer is true."""

import threading
from collections.abc import Callable
from typing import ClassVar

import pytest
from connectors.effects import KEY, Heard, alone, granted, read, reconcile, send
from pydantic import BaseModel, Field

from keepkernel.adapters.connectors import (
    Call,
    Connections,
    Connector,
    NotDone,
    Refused,
    Shape,
    Tool,
    changes,
    reads,
    reconciles,
)
from keepkernel.adapters.points import SimulatedCrash
from keepkernel.kernel.failures import ANSWERS, STATUS, FailureClass
from keepkernel.kernel.respond import AskAgain, DidNotHappen, Failed, Happened, NoMethod, Unknown
from keepkernel.kernel.types import Permission, new_workflow

Act = Callable[[object], None]


class Params(Shape):
    number: int = 0
    texts: list[str] = Field(default=[])


class Result(Shape):
    number: float = 0


class Puppet(Connector):
    """Does what a test says."""

    acts: ClassVar[object] = None
    keys: ClassVar[list[str]] = []

    def act(self) -> Result:
        acts = type(self).acts
        if isinstance(acts, BaseException):
            raise acts
        if callable(acts):
            return acts()
        return acts

    @changes
    def go(self, params: Params, call: Call) -> Result:
        """Go."""
        self.keys.append(call.key)
        return self.act()

    @reconciles("go")
    def gone(self, params: Params, call: Call) -> Result:
        self.keys.append(call.key)
        return self.act()

    @changes
    def jump(self, params: Params, call: Call) -> Result:
        """Jump, and nobody can look for it."""
        self.act()
        call.leaves()
        return Result()

    @reads
    def look(self, params: Params) -> Result:
        """Look."""
        return self.act()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def it(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> Connections:
    monkeypatch.setattr(Puppet, "keys", [])
    return alone(Puppet(), tell=heard)


@pytest.fixture
def act(monkeypatch: pytest.MonkeyPatch) -> Act:
    return lambda what: monkeypatch.setattr(Puppet, "acts", what)


# --- what there is -------------------------------------------------------------------------------------


def test_the_catalogue(it: Connections) -> None:
    assert it.catalogue() == {
        "it.go": Tool("mutate", True, 60_000),
        "it.jump": Tool("mutate", False, 60_000),
        "it.look": Tool("read", False, 60_000),
    }


def test_the_documents(it: Connections) -> None:
    document = it.documents()["it.go"]
    assert document["does"] == "Go."
    assert set(document["params"]["properties"]) == {"number", "texts"}


def test_a_method_must_have_shapes() -> None:
    with pytest.raises(TypeError, match=r"Shapeless\.go must take params"):

        class Shapeless(Connector):
            @reads
            def go(self, params: int) -> Result:
                return Result()


def test_only_a_change_is_reconciled() -> None:
    with pytest.raises(TypeError, match="reconciles look"):

        class Confused(Puppet):
            @reconciles("look")
            def looked(self, params: Params, call: Call) -> Result:
                return Result()


# --- send ----------------------------------------------------------------------------------------------


def test_a_change_is_given_the_key_and_gives_its_result(it: Connections, act: Act) -> None:
    act(Result(number=1))
    assert send(it, "it.go", {"number": 2**70}) == Happened('{"number":1.0}')
    assert Puppet.keys == [KEY]


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"number": "1"}, "number: input should be a valid integer"),
        ({"key": "mine"}, "key: extra inputs are not permitted"),
        ([], "it takes {number?, texts?}"),
        ({"texts": ["\ud800"]}, "not JSON that can be sent"),
        ({"number": float("nan")}, "not JSON that can be sent"),
    ],
)
def test_params_that_do_not_fit_are_a_logic_failure_with_nothing_sent(
    it: Connections, params: object, problem: str
) -> None:
    answer = send(it, "it.go", params)
    assert isinstance(answer, Failed)
    assert answer.failure == "bad_result"
    assert STATUS[answer.failure][0] == "failed:logic"
    assert problem in answer.message
    assert "nothing was sent" in answer.message
    assert Puppet.keys == []
    assert isinstance(reconcile(it, "it.go", params), AskAgain)
    assert isinstance(read(it, "it.look", params), Failed)


@pytest.mark.parametrize("failure", STATUS)
def test_what_never_left_failed_and_of_what_left_only_a_definite_refusal(
    it: Connections, act: Act, failure: FailureClass
) -> None:
    act(NotDone(failure, "not begun"))
    assert send(it, "it.go", {}) == Failed(failure, "it.go: not begun", "it.go")
    act(Refused(failure, "no"))
    doubt = Unknown(f"a refusal of class {failure} proves nothing, so it is unknown: Refused: no")
    assert send(it, "it.go", {}) == (Failed(failure, "it.go: no", "it.go") if failure in ANSWERS else doubt)


@pytest.mark.parametrize("error", [ValueError("odd"), ConnectionResetError(), TimeoutError(), KeyError("x")])
def test_an_exception_leaves_it_unknown_and_is_told(it: Connections, act: Act, heard: Heard, error: Exception) -> None:
    act(error)
    assert isinstance(send(it, "it.go", {}), Unknown)
    assert "it is unknown whether it happened" in heard[0]
    assert type(error).__name__ in heard[0]
    assert isinstance(reconcile(it, "it.go", {}), AskAgain)
    assert "nobody could tell" in heard[1]


class Other(BaseModel):
    pass


@pytest.mark.parametrize("result", [None, Other(), Result(number=float("inf"))])
def test_a_result_of_the_wrong_shape_leaves_it_unknown(it: Connections, act: Act, heard: Heard, result: object) -> None:
    act(result)
    assert isinstance(send(it, "it.go", {}), Unknown)
    assert isinstance(reconcile(it, "it.go", {}), AskAgain)
    assert len(heard) == 2


def test_a_death_is_no_answer(it: Connections, act: Act) -> None:
    act(SimulatedCrash())
    for ask in (send, reconcile, read):
        with pytest.raises(SimulatedCrash):
            ask(it, "it.look" if ask is read else "it.go", {})


def test_a_tool_that_is_not_there_any_more(it: Connections, heard: Heard) -> None:
    for tool in ("gone.go", "it.look"):
        answer = send(it, tool, {})
        assert isinstance(answer, Failed)
        assert answer.failure == "host"
    assert isinstance(reconcile(it, "gone.go", {}), AskAgain)
    assert "no connector provides it any more" in heard[0]


# --- deadlines -----------------------------------------------------------------------------------------


def test_what_outlasts_its_deadline_is_unknown_and_may_still_land(act: Act, heard: Heard) -> None:
    goes_on, landed = threading.Event(), threading.Event()

    def slowly() -> Result:
        goes_on.wait()
        landed.set()
        return Result()

    act(slowly)
    slow = alone(Puppet(deadline_ms=1), tell=heard)
    assert isinstance(send(slow, "it.go", {}), Unknown)
    assert isinstance(reconcile(slow, "it.go", {}), AskAgain)
    failed = read(slow, "it.look", {})
    assert isinstance(failed, Failed)
    assert failed.failure == "timeout"
    assert not landed.is_set()
    assert [line.partition(",")[0] for line in heard] == [
        "it.go: no answer in 1 ms",
        "it.go: no answer in 1 ms to the question whether it happened",
    ]
    goes_on.set()
    assert landed.wait(60)


def test_a_call_that_is_late_does_not_leave() -> None:
    Call("k").leaves()
    with pytest.raises(NotDone) as caught:
        Call("k", leave_by=0).leaves()
    assert caught.value.failure == "timeout"


@pytest.mark.rule("HOST-002")
@pytest.mark.parametrize(("takes_ms", "leaves"), [(20, True), (21, False)])
def test_what_is_not_on_its_way_by_the_time_to_send_does_not_leave(act: Act, takes_ms: int, leaves: bool) -> None:
    """A connection that takes long is made before the request leaves; it would land after `may_land_until`."""
    time = [1_000]

    def connect() -> None:
        time[0] += takes_ms

    act(connect)
    it = alone(Puppet(), tell=Heard(), clock=lambda: time[0])
    answer = send(it, "it.jump", {}, send_by=1_020)
    assert isinstance(answer, Happened if leaves else Failed)
    assert leaves or answer == Failed("timeout", "it.jump: its time had passed before it could leave", "it.jump")


# --- reconcile -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [DidNotHappen(), DidNotHappen(voided=True), AskAgain("not yet"), NoMethod()])
def test_a_reconcile_may_say(it: Connections, act: Act, answer: object) -> None:
    act(answer)
    assert reconcile(it, "it.go", {}) == answer


def test_a_reconcile_that_finds_the_change_gives_its_result(it: Connections, act: Act) -> None:
    act(Result(number=2))
    assert reconcile(it, "it.go", {}) == Happened('{"number":2.0}')
    assert Puppet.keys == [KEY]


def test_a_change_that_can_not_be_looked_for(it: Connections) -> None:
    assert reconcile(it, "it.jump", {}) == NoMethod()


def test_a_refusal_during_a_look_says_nothing_of_the_change(it: Connections, act: Act) -> None:
    act(Refused("refused", "no"))
    assert isinstance(reconcile(it, "it.go", {}), AskAgain)


# --- read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (NotDone("auth", "who"), "auth"),
        (Refused("rate_limit", "wait"), "rate_limit"),
        (ConnectionRefusedError(), "network"),
        (TimeoutError(), "timeout"),
        (ValueError(), "connector"),
    ],
)
def test_a_read_that_fails_is_classified(it: Connections, act: Act, error: Exception, failure: str) -> None:
    act(error)
    failed = read(it, "it.look", {})
    assert isinstance(failed, Failed)
    assert (failed.failure, failed.tool) == (failure, "it.look")


def test_a_workflow_reads_only_with_what_it_is_granted(it: Connections, act: Act) -> None:
    act(Result())
    assert it.read(new_workflow("w"), "it.look", "{}") == Failed("permission", "it.look is not granted", "it.look")
    assert it.read(granted("it.go"), "it.look", "{}") == Failed("permission", "it.look is not granted", "it.look")
    asking = new_workflow("w")._replace(grants=(Permission("it.look", "ask"),))
    assert it.read(asking, "it.look", "{}") == '{"number":0.0}'


def test_a_change_is_no_read(it: Connections) -> None:
    assert read(it, "it.go", {}).failure == "forbidden"
    assert read(it, "none.look", {}).failure == "script"
    assert Puppet.keys == []


# --- words ---------------------------------------------------------------------------------------------


def test_what_is_told_shows_no_secret_and_is_not_endless(act: Act, heard: Heard) -> None:
    act(ValueError("swordfish"))
    secretive = alone(Puppet(), tell=heard, secrets=["swordfish"])
    doubt = "it broke off, so it is unknown whether it happened: ValueError: •••"
    assert send(secretive, "it.go", {}) == Unknown(doubt)
    assert heard[0].startswith(f"it.go: {doubt}\nTraceback")
    assert "swordfish" not in heard[0]
    act(AskAgain("swordfish " * 1_000))
    again = reconcile(secretive, "it.go", {})
    assert isinstance(again, AskAgain)
    assert (again.message.startswith("••• •••"), len(again.message) < 600) == (True, True)
    act(NotDone("refused", "x" * 10_000))
    failed = read(secretive, "it.look", {})
    assert len(failed.message) < 600


def test_without_a_listener_it_is_logged(act: Act, caplog: pytest.LogCaptureFixture) -> None:
    act(ValueError("odd"))
    send(alone(Puppet()), "it.go", {})
    assert "it.go: it broke off" in caplog.text
