"""A recorded log of another runtime, line by line against the law."""

import json
from pathlib import Path
from typing import Any

from ...kernel.codec import DecodeError, from_plain, to_plain
from ...kernel.commands import Command, EndRun
from ...kernel.policy import Policy
from ...kernel.recover import recover
from ...kernel.step import step
from ...kernel.types import Accepted, State, new_workflow
from ..commands import WrongUsage
from .profile import PLAIN, Translator, load
from .rules import in_words
from .run import Wanted
from .verdict import Divergence, Judge, ordered

Json = dict[str, Any]


class Unreadable(Exception):
    """A line of the log is none."""


class Reader:
    """The law beside a log."""

    def __init__(self, judge: Judge, translator: Translator) -> None:
        self.judge = judge
        self.translator = translator
        self.state: State | None = None
        self.steps = 0

    def line(self, text: bytes) -> Divergence | None:
        try:
            entry = self.translator.ours(json.loads(text.decode()))
            op = entry["op"]
            if op == "reset":
                self.state = self.start(entry)
                return None
            if op == "state" and self.state is None:
                self.state = from_plain(State, entry["state"])
                return None
            if self.state is None:
                raise Unreadable("the log begins with a reset or a state")
            if op == "do":
                return self.do(self.state, from_plain(Command, entry["command"]), entry["outcome"])
            if op == "state":
                words = "the state is another than the steps before lead to"
                return self.judge.same_state("another state", "STEP-001", self.state, entry["state"], "state", words)
            if op == "recover":
                return self.recovered(self.state, entry)
        except (ValueError, KeyError, TypeError, AttributeError, DecodeError, RecursionError) as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from None
        raise Unreadable(f"the op {op!r} is not known")

    def start(self, entry: Json) -> State:
        if "state" in entry:
            state: State = from_plain(State, entry["state"])
            return state
        return new_workflow(entry["workflow"], from_plain(Policy, entry["policy"]))

    def do(self, state: State, command: Command, told: Json) -> Divergence | None:
        self.steps += 1
        law = step(state, command)
        divergence = self.judge.outcome(state, command, law, told, whole=False)
        if divergence is None:
            self.state = law.state if isinstance(law, Accepted) else state
            return None
        other = self.judge.other_reading(state, command, told, whole=False)
        if other is not None:
            self.state = other
            return None
        if self.judge.out_of_scope(divergence):
            # Nobody says where the runtime stands now but itself: the log goes on from what it tells.
            self.judge.excuse(f"scope.rules {divergence.rule}")
            after = told.get("state") if told["type"] == "accepted" else None
            self.state = state if after is None else from_plain(State, ordered(after))
            return None
        return divergence

    def recovered(self, state: State, entry: Json) -> Divergence | None:
        effects: list[Any] = []
        while commands := recover(state, entry["now"]):
            command = commands[0]
            command = command._replace(message=entry["message"]) if isinstance(command, EndRun) else command
            law = step(state, command)
            if not isinstance(law, Accepted):
                break
            state = law.state
            effects += to_plain(law.effects)
        self.state = state
        words = "recovery leaves another state than the law says"
        divergence = self.judge.same_state("another recovery", "REC-001", state, entry["state"], "recover", words)
        if divergence is not None:
            return divergence
        if "effects" not in entry:
            self.judge.excuse("left out of the log: effects")
            return None
        rows = self.judge.rows(effects, entry["effects"], "effects")
        return (
            Divergence("other effects", ("REC-001",), "recover", "recovery has other effects", rows) if rows else None
        )


def check(log: Path, wanted: Wanted) -> int:
    """The command `keepkernel conform --log`."""
    if wanted.command:
        raise WrongUsage("--log checks a file; it starts no driver")
    profile = load(wanted.profile) if wanted.profile is not None else PLAIN
    judge, translator = Judge(profile), Translator(profile)
    reader = Reader(judge, translator)
    found: Divergence | None = None
    number = 0
    try:
        with log.open("rb") as file:
            for number, text in enumerate(file, 1):  # noqa: B007 - the number of the last line is told
                found = reader.line(text) if text.strip() else None
                if found is not None:
                    break
    except OSError as error:
        raise WrongUsage(f"{log} can not be read: {error.strerror}") from None
    except Unreadable as error:
        raise WrongUsage(f"{log}, line {number}: {error}") from None
    tell(log, number, reader.steps, found, judge, wanted.as_json)
    if found is not None:
        return 1
    return 0 if reader.steps else 3


def tell(log: Path, line: int, steps: int, found: Divergence | None, judge: Judge, as_json: bool) -> None:
    verdict = "diverges" if found is not None else "conforms" if steps else "not decided"
    if as_json:
        document = {
            "verdict": verdict,
            "line": line if found is not None else None,
            "steps": steps,
            "rule": found.rule if found is not None else "",
            "rules": list(found.rules) if found is not None else [],
            "text": found.text if found is not None else "",
            "rows": [row._asdict() for row in found.rows] if found is not None else [],
            "invariants": list(found.invariants) if found is not None else [],
            "excused": judge.excused,
        }
        print(json.dumps(document, indent=1, ensure_ascii=False))
        return
    print(f"{log}: {verdict}, {steps:,} steps")
    if found is not None:
        print(f"line {line}: {found.text}")
        print(in_words(found.rule))
        for broken in found.invariants:
            print(f"breaks {broken}")
        for row in found.rows:
            print(f"  {row.field}: {row.law} by law, {row.runtime} in the log")
    for what, count in sorted(judge.excused.items()):
        print(f"excused {count:,} times: {what}")
