"""Scripts that mean harm. Each ends as a classified failure of its own run; the host lives; the next run is clean."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from boxed import LIMITS, LONG_MS, Watched, run_body, workflow

from keepkernel.kernel.failures import classify
from keepkernel.kernel.respond import Failed
from keepkernel.sandbox import bridge
from keepkernel.sandbox.bridge import Asked, Job, Returned
from keepkernel.sandbox.engine import MEGABYTE, Limits, Worker, Workers

TESTS = Path(__file__).parents[1]


class Attack(NamedTuple):
    name: str
    body: str
    failure: str
    says: str = ""
    function: str = "prepare"
    top: str = ""


ENDLESS = [
    Attack("plain loop", "for (;;);", "limit", "SCRIPT-009"),
    Attack("loop at the top of the file", "", "limit", "SCRIPT-009", top="for (;;);"),
    Attack("loop that awaits", "for (;;) await null;", "limit", "SCRIPT-009"),
    Attack("loop of microtasks", "const f = () => queueMicrotask(f); f(); await new Promise(() => {});", "limit"),
    Attack("loop of promises", "let f = () => Promise.resolve().then(() => { f() }); await f();", "limit"),
    Attack("async generator", "for await (const x of (async function* () { for (;;) yield 1 })());", "limit"),
    Attack("regular expression", "/^(a+)+$/.test('a'.repeat(40) + 'b')", "limit", "SCRIPT-009"),
    Attack("toString trap", "return `${{ toString() { for (;;); } }}`", "limit", "SCRIPT-009"),
    Attack("toJSON trap in the result", "return { toJSON() { for (;;); } }", "limit", "SCRIPT-009"),
    Attack("getter trap in the result", "return { get reservations() { for (;;); } }", "limit", "SCRIPT-009"),
    Attack("toJSON trap in what is thrown", "throw { toJSON() { for (;;); } }", "limit", "SCRIPT-009"),
    Attack("message trap", "const e = new Error(); e.message = { toString() { for (;;); } }; throw e", "limit"),
    Attack("prototype trap", "throw new Proxy({}, { getPrototypeOf() { for (;;); } })", "limit", "SCRIPT-009"),
    Attack("thenable result", "return { then() { for (;;); } }", "limit", "SCRIPT-009"),
    Attack("sorting for ever", "[1, 2].sort(() => { for (;;); })", "limit", "SCRIPT-009"),
    Attack("catching for ever", "for (;;) try { for (;;); } catch {} finally { continue }", "limit", "SCRIPT-009"),
    Attack("trap in a log line", "console.log({ toJSON() { for (;;); } })", "limit", "SCRIPT-009"),
    Attack("loop after the mutation", "ctx.gmail.send({}); for (;;);", "limit", "SCRIPT-009", "mutate"),
    Attack("awaiting after the mutation", "ctx.gmail.send({}); for (;;) await 0;", "limit", "SCRIPT-009", "mutate"),
    Attack("trap in the mutation's parameters", "ctx.gmail.send({ toJSON() { for (;;); } })", "limit", "", "mutate"),
]

GREEDY = [
    Attack("list of strings", "const a = []; for (;;) a.push('x'.repeat(1e5) + a.length)", "limit", "memory"),
    Attack("list that stays", "globalThis.a = []; for (;;) a.push('x'.repeat(1e5) + a.length)", "limit", "memory"),
    Attack("small objects that stay", "globalThis.a = {}; for (;;) a = { a }", "limit", "memory"),
    Attack("doubling a list", "let a = [1]; for (;;) a = [...a, ...a]", "limit", "memory"),
    Attack("buffer", "new ArrayBuffer(1e9)", "limit", "memory"),
    Attack("map", "const m = new Map(); for (let i = 0; ; i++) m.set(i, [i])", "limit", "memory"),
    Attack("memory at the top of the file", "", "limit", "memory", top="const a = []; for (;;) a.push([a.length])"),
    Attack("closures", "let f = () => 0; for (;;) { const g = f; f = () => g() }", "limit", "memory"),
    Attack("promises that wait", "const a = []; for (;;) a.push(new Promise(() => {}))", "limit", "memory"),
    Attack("recursion", "const f = () => 1 + f(); f()", "limit", "stack"),
    Attack("recursion of async functions", "const f = async () => { await f() }; await f()", "limit", "stack"),
    Attack("recursion through toString", "const o = { toString() { return `${o}` } }; `${o}`", "limit", "stack"),
    Attack("recursion through a proxy", "const p = new Proxy({}, { get: (t, k) => p[k] }); p.x", "limit", "stack"),
    Attack("deep text", "JSON.parse('['.repeat(1e6))", "limit", "stack"),
    Attack("deep code", "eval('('.repeat(1e5))", "limit", "stack"),
    Attack("very deep result", "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; return a", "limit", "stack"),
    Attack("huge result", "return 'x'.repeat(3e6)", "limit", "output"),
    Attack("huge parameters", "await ctx.gmail.search('x'.repeat(3e6))", "limit", "output"),
    Attack("flood of calls", "for (;;) ctx.peek('mail')", "limit", "memory"),
    Attack("huge message", "throw new Error('x'.repeat(1e6))", "script", "Error: xxx"),
]

ESCAPES = [
    Attack("constructor of this", "return this.constructor.constructor('return process')()", "script"),
    Attack("constructor of a function", "(() => {}).constructor('return process.exit()')()", "script", "process"),
    Attack("constructor of a door", "return ctx.peek.constructor('return require')()('fs')", "script", "require"),
    Attack("constructor of the context", "ctx.constructor.constructor('x')", "script"),
    Attack("constructor of a connector", "ctx.gmail.__proto__.constructor", "script"),
    Attack("import of a module", "await import('os')", "script"),
    Attack("import of a file", "await import('/etc/passwd')", "script"),
    Attack("import of the engine's modules", "(await import('qjs:std')).exit(0)", "script"),
    Attack("import at the top", "", "script", top="import * as std from 'qjs:std';"),
    Attack("process", "process.kill(process.pid)", "script", "process"),
    Attack("print", "print('to the host')", "script", "print"),
    Attack("timer", "setTimeout(() => {}, 0)", "script", "setTimeout"),
    Attack("rewriting the context", "ctx.gmail.search = ctx.gmail.send", "script", "read-only"),
    Attack("rewriting Keep", "globalThis.Keep = null", "script", "read-only"),
    Attack("rewriting the console", "console.log = () => 0", "script", "read-only"),
    Attack("two workflows", "Keep.workflow({})", "script", "twice"),
    Attack("a tool that is not there", "ctx.gmail.drop()", "script", "not a function"),
    Attack("a promise that nobody keeps", "await new Promise(() => {})", "script", "never comes"),
]

POLLUTION = [
    Attack("toJSON of all objects", "Object.prototype.toJSON = () => { throw new Error('mine') }; return {}", "script"),
    Attack("constructor of errors", "globalThis.TypeError = null; null.x", "script", "TypeError"),
    Attack("name of errors", "throw Object.defineProperty(new Error('a'), 'name', { get() { throw 1 } })", "script"),
    Attack("then of all objects", "Object.prototype.then = () => {}; return {}", "script", "never comes"),
    Attack(
        "iterators", "Array.prototype[Symbol.iterator] = null; await ctx.peek('mail'); throw new Error('on')", "script"
    ),
    Attack("replaced JSON", "JSON.stringify = JSON.parse = () => 'no'; await ctx.peek('a'); null.x", "script", "null"),
    Attack("indexes of lists", "Object.defineProperty(Array.prototype, 0, { set() { for (;;); } }); null.x", "script"),
    Attack("a forged log line", """console.log('"},{"call":1,"operation":"tool"'); null.x""", "script", "null"),
    Attack("half a character", "throw new Error('\\ud800')", "script", "\ufffd"),
    Attack("nothing thrown", "throw undefined", "script", "undefined"),
    Attack("a symbol thrown", "throw Symbol('x')", "script", "Symbol(x)"),
]

CANARY = """
    const { performance, ...globals } = globalThis;
    const strange = Object.keys(globals).concat(Object.keys(Object.prototype), Object.keys(Array.prototype));
    const seen = await ctx.peek("mail");
    return { strange, seen, whole: JSON.stringify([1]), iterates: [...[1]], first };
"""
CLEAN = '{"strange":[],"seen":[7],"whole":"[1]","iterates":[1],"first":{"n":1}}'


def named(attack: Attack) -> str:
    return attack.name


def check(workers: Watched, attack: Attack, wall_ms: int) -> None:
    said = run_body(workers, attack.function, attack.body, top=attack.top, wall_ms=wall_ms).said
    assert isinstance(said, Failed), said
    assert (said.failure, attack.says in said.message) == (attack.failure, True), said
    assert len(said.message) < 3_000
    assert said.message.isprintable()
    after = run_body(workers, "prepare", CANARY, '{"n":1}', answer="[7]")
    assert after.said == Returned(CLEAN)
    assert after.log == []


@pytest.mark.parametrize("attack", ENDLESS, ids=named)
def test_what_never_ends_is_stopped(workers: Watched, attack: Attack) -> None:
    check(workers, attack, 100)


@pytest.mark.parametrize("attack", GREEDY + ESCAPES + POLLUTION, ids=named)
def test_what_takes_too_much_or_reaches_out_fails(workers: Watched, attack: Attack) -> None:
    check(workers, attack, LONG_MS)


def test_there_are_many_attacks_and_no_two_alike() -> None:
    attacks = ENDLESS + GREEDY + ESCAPES + POLLUTION
    assert len({(attack.body, attack.top) for attack in attacks}) == len({a.name for a in attacks}) == len(attacks)
    assert len(attacks) >= 60


def test_a_crash_of_the_engine_is_a_failure_of_its_run() -> None:
    """With more stack allowed than there is, deep recursion takes the whole process down."""
    workers = Workers(Limits(stack_bytes=1024 * MEGABYTE))
    try:
        source = workflow("producer", "const f = () => 1 + f(); f()")
        said = bridge.run(workers, Job(source, "producer", "h", ("",), {}, LONG_MS), lambda asked: "", [])
        assert said == Failed("limit", f"producer of h was stopped: the engine died (exit code {-signal.SIGSEGV})")
        source = workflow("producer", "return 1")
        said = bridge.run(workers, Job(source, "producer", "h", ("",), {}, LONG_MS), lambda asked: "", [])
        assert said == Returned("1")
    finally:
        workers.close()


def test_a_worker_that_dies_in_the_middle_takes_its_run_with_it(workers: Watched) -> None:
    def shot(asked: Asked) -> str:
        os.kill(workers.last.process.pid, signal.SIGBUS)
        return "null"

    assert run_body(workers, "prepare", "await ctx.peek('mail'); for (;;);", answer=shot).said == Failed(
        "limit", f"prepare of h was stopped: the engine died (exit code {-signal.SIGBUS})"
    )
    assert run_body(workers, "prepare", CANARY, '{"n":1}', answer="[7]").said == Returned(CLEAN)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_killed_from_outside_is_no_fault_of_its_script(
    workers: Watched, number: signal.Signals
) -> None:
    """Out of memory, or a service that is stopped with all its processes: tried again later, and never repaired."""

    def shot(asked: Asked) -> str:
        os.kill(workers.last.process.pid, number)
        return "null"

    said = run_body(workers, "prepare", "await ctx.peek('mail'); for (;;);", answer=shot).said
    assert said == Failed("network", f"prepare of h was stopped: somebody else ended its process ({number.name})")
    assert classify(said.failure, sent=False).status == "paused:transient"
    assert run_body(workers, "prepare", CANARY, '{"n":1}', answer="[7]").said == Returned(CLEAN)


def test_a_worker_that_only_hangs_up_was_not_killed_by_others(
    workers: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the host that has to end it then."""

    def shot(asked: Asked) -> str:
        os.kill(workers.last.process.pid, signal.SIGSTOP)
        monkeypatch.setattr(workers.last, "_socket", dead)
        return "null"

    with socket.socket() as dead:  # Connected to nobody.
        said = run_body(workers, "prepare", "await ctx.peek('mail'); for (;;);", answer=shot).said
    assert said == Failed("limit", f"prepare of h was stopped: the engine died (exit code {-signal.SIGKILL})")


def test_a_worker_that_dies_while_idle_is_replaced_and_nobody_is_blamed(workers: Watched) -> None:
    run_body(workers, "prepare", "return 1")
    child = workers.last.process.pid
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert run_body(workers, "prepare", "return 2").said == Returned("2")
    assert workers.last.process.pid != child


FLOOD = json.dumps({"moves": [{"log": ""}] * (2 * LIMITS.log_chars), "end": {"returned": None}}).encode()


def test_a_worker_that_no_longer_keeps_to_its_protocol_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a script ever get hold of the worker itself, the host takes nothing from it but well-formed moves."""
    workers = Watched(LIMITS)
    said = []
    half = (b'{"moves":[{"call":1}],"end":null}', b'{"moves":[],"end":{}}')
    for body in (b"\xff", b"[]", b"{}", b"[" * 100_000, *half, FLOOD):
        with monkeypatch.context() as patched:
            patched.setattr(Worker, "receive", lambda worker, deadline, body=body: body)
            said.append(run_body(workers, "prepare", "return 1").said)
    workers.close()
    assert set(said) == {Failed("limit", "prepare of h was stopped: the engine no longer keeps to its protocol")}


HOST = """
import sys
from boxed import Watched, run_body
def tell(asked):
    print(workers.last.process.pid, flush=True)
    return "null"
workers = Watched()
run_body(workers, "prepare", "await ctx.peek('mail'); for (;;);", answer=tell)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker ends when the time of its call is over")
def test_a_script_does_not_outlive_its_host() -> None:
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True, cwd=TESTS) as host:
        worker = Path(f"/proc/{host.stdout.readline().strip()}/stat")
        assert worker.exists()
        host.kill()
    for _ in range(1_000):
        if not worker.exists() or worker.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("the worker goes on")


def test_workers_end_when_they_are_closed() -> None:
    workers = Watched()
    run_body(workers, "prepare", "return 1")
    workers.close()
    assert workers.last.process.returncode is not None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the size of processes from /proc")
def test_ten_thousand_calls_leave_nothing_behind() -> None:
    workers = Watched(Limits(calls_per_worker=100_000))
    body = "const found = await ctx.peek('mail'); globalThis.kept = found; return { found, first }"
    mail = json.dumps([{"messageId": f"m{n}", "payload": "x" * 1_000} for n in range(1)])
    sizes = []
    for n in range(10_001):
        assert isinstance(run_body(workers, "prepare", body, mail, answer=mail).said, Returned)
        if n in (1_000, 10_000):
            sizes.append([resident(pid) for pid in (os.getpid(), workers.last.process.pid)])
    workers.close()
    for before, after in zip(*sizes, strict=True):
        assert after < before + 3 * MEGABYTE


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
