"""A driver around the reference itself, with faults and bad manners that can be switched on, to test the kit.

    python wrapped.py [--fault NAME] [--manners NAME] [--dialect]

A fault is the name of another reading of the law, or one of FAULTS below. Its store is a file of JSON lines.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from keepkernel.kernel import commands as c
from keepkernel.kernel import respond, runs
from keepkernel.kernel.codec import encode, from_plain, to_plain
from keepkernel.kernel.recover import recover
from keepkernel.kernel.schedule import Idle, Wait, schedule, upkeep
from keepkernel.kernel.step import step
from keepkernel.kernel.types import (
    Accepted,
    CallHandler,
    Outcome,
    Reconcile,
    Rejected,
    Repair,
    Retired,
    Send,
    State,
    new_workflow,
)
from keepkernel.spec.readings import READINGS, all_swaps
from keepkernel.spec.variants import swapped

POINTS = ["before the write", "half written", "after the write"]

# --- faults that no reading has -----------------------------------------------------------------------

Fault = Callable[[State, c.Command, Outcome], Outcome]


def no_dirty(before: State, command: c.Command, outcome: Outcome) -> Outcome:
    """An end does not wake the consumer."""
    if isinstance(outcome, Accepted) and isinstance(command, c.EndRun):
        rows = tuple(h._replace(dirty=False) for h in outcome.state.handlers)
        return outcome._replace(state=outcome.state._replace(handlers=rows))
    return outcome


def backoff_twice(before: State, command: c.Command, outcome: Outcome) -> Outcome:
    """Reconcile waits for too long."""
    if isinstance(outcome, Accepted) and isinstance(command, c.ReconcileRetry) and outcome.state.mutation:
        record = outcome.state.mutation
        late = record._replace(next_attempt_at=record.next_attempt_at + 1)
        return outcome._replace(state=outcome.state._replace(mutation=late))
    return outcome


def no_call(before: State, command: c.Command, outcome: Outcome) -> Outcome:
    """The step to `emitting` forgets to call `next`."""
    if isinstance(outcome, Accepted) and isinstance(command, c.Emitting):
        return outcome._replace(effects=())
    return outcome


def pauses_twice(before: State, command: c.Command, outcome: Outcome) -> Outcome:
    """Pausing a paused workflow is accepted."""
    if isinstance(command, c.Pause) and before.status == "paused":
        return Accepted(before, (), (), Retired())
    return outcome


def keeps_session(before: State, command: c.Command, outcome: Outcome) -> Outcome:
    """A session without a commit is completed."""
    if isinstance(outcome, Accepted) and outcome.retired.session and isinstance(command, c.FinishSession):
        session = outcome.retired.session._replace(status="completed")
        return outcome._replace(retired=outcome.retired._replace(session=session))
    return outcome


def due_from_commit(before: State, command: c.Command, outcome: Outcome) -> Outcome:
    """A producer's next time is counted from its commit."""
    if isinstance(outcome, Accepted) and isinstance(command, c.CommitProducer) and before.run and not command.due_at:
        late = command.now - before.run.created_at
        rows = tuple(h._replace(due_at=h.due_at + late) if h.due_at > 0 else h for h in outcome.state.handlers)
        return outcome._replace(state=outcome.state._replace(handlers=rows))
    return outcome


def wrong_reason(before: State, command: c.Command, outcome: Outcome) -> Outcome:
    if isinstance(outcome, Rejected) and outcome.reason == "phase":
        return outcome._replace(reason="because")
    return outcome


FAULTS: dict[str, Fault] = {
    "no-dirty": no_dirty,
    "backoff-twice": backoff_twice,
    "no-call": no_call,
    "pauses-twice": pauses_twice,
    "keeps-session": keeps_session,
    "wrong-reason": wrong_reason,
    "due-from-commit": due_from_commit,
}

STORE_FAULTS = (
    "forgets-last", "no-recovery", "rejection-writes", "sends-again", "sends-first", "forgets-result", "own-words",
    "appends-to-half-a-line", "reuses-ids", "asks-early", "asked-when-told", "forgets-reset",
    "forgets-repair", "limits-are-logic", "producers-first",
)  # fmt: skip
MANNERS = (
    "hang", "die", "garble", "disorder", "flood", "unsupported", "error", "close", "surrogate", "number", "list",
    "silent-start",
)  # fmt: skip


class Store:
    """The state in a file: one line for each state that was committed."""

    def __init__(self, folder: Path, fault: str) -> None:
        self.path = folder / "journal"
        self.fault = fault
        self.state = new_workflow("none")
        if self.path.exists():
            lines = self.path.read_bytes().split(b"\n")[:-1]  # What is not whole was never answered.
            lines = lines[:-1] if fault == "forgets-last" and len(lines) > 1 else lines
            if lines:
                self.state = from_plain(State, json.loads(lines[-1]))
        self.file = self.path.open("ab", buffering=0)
        if fault != "appends-to-half-a-line":
            self.file.truncate(self.path.read_bytes().rfind(b"\n") + 1)

    def reset(self, state: State) -> None:
        if self.fault == "forgets-reset":
            self.state = state
            return
        self.file.close()
        self.file = self.path.open("wb", buffering=0)
        self.commit(state)

    def commit(self, state: State, crash_at: int = -1) -> None:
        line = encode(state).encode() + b"\n"
        if crash_at == 0:
            die()
        if crash_at == 1:
            self.file.write(line[: len(line) // 2])
            die()
        self.file.write(line)
        if crash_at == 2:
            die()
        self.state = state


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Driver:
    def __init__(self, fault: str, manners: str) -> None:
        self.fault = fault
        self.manners = manners
        self.store: Store
        self.done = 0
        self.asks = 0
        self.now = 0
        self.ids = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "hello":
                self.store = Store(Path(request["data"]), self.fault)
                self.ids = 0 if self.fault == "reuses-ids" else time.monotonic_ns()
                return {
                    "protocol": 1,
                    "name": "wrapped",
                    "version": "1",
                    "supports": ["load", "behaviour", "joined"],
                    "crash_points": POINTS,
                }
            case "reset" if "state" in request:
                self.store.reset(from_plain(State, request["state"]))
                return {}
            case "reset":
                policy = from_plain(State.__annotations__["policy"], request["policy"])
                self.store.reset(new_workflow(request["workflow"], policy))
                return {}
            case "do" if "commands" in request:
                return {"outcome": self.do_all([from_plain(c.Command, one) for one in request["commands"]])}
            case "do":
                return self.do(request)
            case "state":
                return {"state": to_plain(self.store.state)}
            case "recover":
                self.now = request["now"]
                effects: list[Any] = []
                while commands := () if self.fault == "no-recovery" else recover(self.store.state, request["now"]):
                    command = commands[0]
                    if isinstance(command, c.EndRun) and self.fault != "own-words":
                        command = command._replace(message=request["message"])
                    outcome = self.step(command)
                    assert isinstance(outcome, Accepted), outcome
                    self.store.commit(outcome.state)
                    effects += to_plain(outcome.effects)
                return {"state": to_plain(self.store.state), "effects": effects}
            case "work":
                self.now = request["now"]
                return {"until": self.work()}
            case "quit":
                return {}
        return {"unsupported": request["op"]}

    def step(self, command: c.Command) -> Outcome:
        outcome = step(self.store.state, command)
        return FAULTS[self.fault](self.store.state, command, outcome) if self.fault in FAULTS else outcome

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        command = from_plain(c.Command, request["command"])
        if isinstance(command, c.Reconnect) and self.manners == "unsupported":
            return {"unsupported": "reconnect"}
        outcome = self.step(command)
        if isinstance(outcome, Rejected):
            if self.fault == "rejection-writes" and isinstance(command, c.Begin):
                self.store.commit(self.store.state._replace(backoff_until=self.store.state.backoff_until + 1))
            return {"outcome": {"type": "rejected", "reason": outcome.reason}}
        self.store.commit(outcome.state, request.get("crash_at", -1))
        return {"outcome": shown(outcome)}

    def do_all(self, commands: list[c.Command]) -> dict[str, Any]:
        before, effects, retired = self.store.state, [], {"run": None, "mutation": None, "session": None}
        told: dict[str, Any] = {}
        for command in commands:
            outcome = self.step(command)
            if isinstance(outcome, Rejected):
                self.store.state = before
                return {"type": "rejected", "reason": outcome.reason}
            told = shown(outcome)
            self.store.state = outcome.state
            effects += told["effects"]
            retired |= {name: row for name, row in told["retired"].items() if row is not None}
        self.store.commit(self.store.state)
        return {**told, "effects": effects, "retired": retired}

    # --- behaviour: the runtime is its own host

    def work(self) -> int | None:
        declined = False
        while True:
            state = self.store.state
            following = respond.advance(state, self.now) or schedule(state, self.now, self.fresh())
            if isinstance(following, c.CreateRun) and self.fault == "producers-first":
                due = [h.declared.name for h in state.handlers if 0 <= h.due_at <= self.now]
                following = following._replace(handler=(*due, following.handler)[0])
            if isinstance(following, Wait | Idle):
                kept = upkeep(state, self.now + (self.fault == "asks-early"))
                if isinstance(kept, Repair) and self.fault == "forgets-repair":
                    return until(following)
                if isinstance(kept, Repair) and declined:
                    return until(following)
                if isinstance(kept, Reconcile | Repair):
                    declined |= not self.perform(kept)
                    continue
                if isinstance(kept, Wait | Idle):
                    return until(following, kept)
                following = kept
            self.submit(following)

    def fresh(self) -> str:
        self.ids += 1
        return f"x{self.ids}"

    def submit(self, command: c.Command) -> bool:
        outcome = self.step(command)
        if isinstance(outcome, Rejected):
            end = respond.after_rejection(self.store.state, command, outcome, self.now)
            return self.submit(end) if end is not None else False
        if self.fault == "sends-first":
            for effect in outcome.effects:
                if isinstance(effect, Send):
                    answer = self.ask(effect)
                    self.store.commit(outcome.state)
                    self.told(effect, answer)
                    return True
        self.store.commit(outcome.state)
        for effect in outcome.effects:
            self.perform(effect)
        return True

    def perform(self, effect: CallHandler | Send | Reconcile | Repair) -> bool:
        answer = self.ask(effect)
        if isinstance(effect, Send) and self.fault == "sends-again" and answer["type"] == "unknown":
            answer = self.ask(effect)
        if isinstance(effect, Repair):
            return answer["type"] == "deploy" and self.submit(
                from_plain(c.Deploy, answer["command"])._replace(now=self.now)
            )
        self.told(effect, answer)
        return True

    def told(self, effect: CallHandler | Send | Reconcile, answer: dict[str, Any]) -> None:
        if isinstance(effect, Reconcile) and self.fault == "asked-when-told":
            effect = effect._replace(asked_at=self.now)
        if answer.get("failure") == "rate_limit" and self.fault == "limits-are-logic":
            answer["failure"] = "limit"
        value = from_plain(ANSWERS[answer.pop("type")], answer)
        for command in respond.respond(self.store.state, effect, value, self.now):
            if not self.submit(command):
                return

    def ask(self, effect: CallHandler | Send | Reconcile | Repair) -> dict[str, Any]:
        self.asks += 1
        message: dict[str, Any] = {"ask": self.asks, "effect": to_plain(effect)}
        state = self.store.state
        if isinstance(effect, CallHandler) and effect.function == "prepare":
            row = runs.handler_of(state, effect.handler)
            pending = [e for e in state.events if e.status == "pending" and e.key.topic in row.declared.subscribes]
            message["pending"] = [to_plain(e.key) for e in pending[: state.policy.peek_default]]
        if isinstance(effect, CallHandler) and effect.function == "next" and state.run is not None:
            status = {"success": "applied", "skipped": "skipped", "": "none"}[state.run.outcome]
            if self.fault == "forgets-result" and state.run.retry_of:
                status = "none"
            message["mutation"] = {
                "status": status,
                **({"result": state.run.result or None} if status == "applied" else {}),
            }
        write(message)
        told = json.loads(sys.stdin.readline())
        self.now = told["now"]
        answer: dict[str, Any] = told["answer"]
        return answer


ANSWERS = {
    "pinned": respond.Pinned,
    "called": respond.Called,
    "called_nothing": respond.CalledNothing,
    "finished": respond.Finished,
    "failed": respond.Failed,
    "happened": respond.Happened,
    "unknown": respond.Unknown,
    "did_not_happen": respond.DidNotHappen,
    "ask_again": respond.AskAgain,
    "no_method": respond.NoMethod,
}


def until(*waits: Wait | Idle) -> int | None:
    return min((one.until for one in waits if isinstance(one, Wait)), default=None)


def shown(outcome: Accepted) -> dict[str, Any]:
    told = to_plain(outcome)
    del told["rules"]
    return told


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def in_dialect(value: Any) -> Any:
    """An answer in other words: another name for `owner`, null for nobody, another word for `consumed`."""
    if isinstance(value, list):
        return [in_dialect(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: in_dialect(inner) for name, inner in value.items()}
    if "owner" in made:
        made["reserved_by_run_id"] = made.pop("owner") or None
        made["status"] = "done" if made["status"] == "consumed" else made["status"]
    return made


def misbehave(manners: str, request: dict[str, Any], count: int) -> bool:
    """Break the protocol at some commands; true when the request is not to be answered."""
    command = request.get("command", {}).get("type")
    if manners == "hang" and command == "reconnect":
        time.sleep(3600)
    if manners == "die" and command == "clear_error":
        sys.exit("out of memory")
    if manners == "garble" and command == "pause":
        sys.stdout.write("Traceback: {\n")
        sys.stdout.flush()
        return True
    if manners == "disorder" and command == "grant" and count > 20:
        write({"id": request["id"] - 1})
        return True
    if manners == "flood" and command == "abandon":
        sys.stdout.write("x" * 100_000_000)
        sys.stdout.flush()
        return True
    if manners == "close" and command == "abandon":
        os.close(1)
        time.sleep(3600)
    odd = {"surrogate": '"\\ud800"', "number": "NaN", "list": '["no_error"]'}
    if manners in odd and command == "reconnect":
        sys.stdout.write(f'{{"id":{request["id"]},"outcome":{{"type":"rejected","reason":{odd[manners]}}}}}\n')
        sys.stdout.flush()
        return True
    if manners == "error" and command == "approve":
        write({"id": request["id"], "error": "no connection"})
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", *FAULTS, *STORE_FAULTS, *READINGS])
    parser.add_argument("--manners", default="", choices=["", *MANNERS])
    parser.add_argument("--dialect", action="store_true", help="speak in other words")
    options = parser.parse_args()
    driver = Driver(options.fault, options.manners)
    if options.manners == "silent-start":
        time.sleep(3600)
    with ExitStack() as stack:
        if options.fault in READINGS:
            stack.enter_context(swapped(*all_swaps(READINGS[options.fault])))
        for count, line in enumerate(iter(sys.stdin.readline, "")):
            request = json.loads(line)
            if misbehave(options.manners, request, count):
                continue
            if options.dialect and request.get("command", {}).get("type") == "startRun":
                request["command"]["type"] = "create_run"
            answer = driver.answer(request)
            write({"id": request["id"], **(in_dialect(answer) if options.dialect else answer)})
            if request["op"] == "quit":
                return


if __name__ == "__main__":
    main()
