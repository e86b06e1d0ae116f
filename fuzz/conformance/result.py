"""What came of a run, for people, programs, build servers and browsers."""

import json
from collections.abc import Iterator
from html import escape
from textwrap import wrap
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

from ...kernel.codec import to_plain
from .fates import FATES
from .play import Do, Kill, KillDuring, Meet, Move, Recover, Script
from .rules import SPEC_VERSION, in_words, seen_at
from .suite import Cause
from .verdict import BY_LAW, plain_state

Json = dict[str, Any]

WIDTH: Final = 118
FORMAT: Final = 1
CONFORMS, DIVERGES, NOT_DECIDED = 0, 1, 3


class Result(NamedTuple):
    command: list[str]
    name: str
    level: str
    profile: str
    causes: tuple[Cause, ...]
    rules: tuple[str, ...]
    """The rules that were put to the test."""
    out_of_scope: tuple[str, ...]
    excused: dict[str, int]
    unused: tuple[str, ...]
    """Lines of the profile that excused nothing."""
    parts: dict[str, int]
    commands: int
    crashes: int
    seconds: float
    undecided: str = ""
    """Why nothing can be said; empty when something can."""

    @property
    def code(self) -> int:
        if self.causes:
            return DIVERGES
        return NOT_DECIDED if self.undecided else CONFORMS

    @property
    def verdict(self) -> str:
        return {CONFORMS: "conforms", DIVERGES: "diverges", NOT_DECIDED: "not decided"}[self.code]

    @property
    def broken(self) -> tuple[str, ...]:
        return tuple(sorted({cause.divergence.rule for cause in self.causes if cause.divergence.rule}))

    @property
    def held(self) -> tuple[str, ...]:
        return tuple(sorted({*self.rules} - {*self.broken} - {*self.out_of_scope}))

    @property
    def badge(self) -> str:
        """One line for a README."""
        wanted = [rule for rule in seen_at(self.level) if rule not in self.out_of_scope]
        held = [rule for rule in wanted if rule in self.held]
        excuses = sum(count for what, count in self.excused.items() if what != BY_LAW)
        with_excuses = f", with {excuses:,} excuses" if excuses else ""
        verb = {CONFORMS: "conforms to", DIVERGES: "diverges from", NOT_DECIDED: "is not decided against"}[self.code]
        return (
            f"{verb} keepkernel spec {SPEC_VERSION}, level {self.level}, "
            f"{len(held)} of {len(seen_at(self.level))} rules{with_excuses}"
        )


# --- for people --------------------------------------------------------------------------------------


def told(result: Result, repro: dict[int, str]) -> str:
    # What a driver says may hold anything, and a terminal obeys control characters.
    return printable("\n".join(lines(result, repro)))


def lines(result: Result, repro: dict[int, str]) -> Iterator[str]:
    yield f"{result.name}: {result.verdict}{f': {result.undecided}' if result.undecided else ''}"
    done = ", ".join(f"{count:,} {what}" for what, count in result.parts.items() if count)
    yield f"  {done or 'nothing was played'}"
    yield f"  {result.commands:,} commands, {result.crashes:,} kills, {result.seconds:.1f} s"
    yield ""
    for number, cause in enumerate(result.causes, 1):
        yield from story(number, cause, repro.get(number, ""))
        yield ""
    covered = [rule for rule in seen_at(result.level) if rule in result.rules]
    missed = [rule for rule in seen_at(result.level) if rule not in result.rules]
    yield (
        f"Rules: {len(covered)} of {len(seen_at(result.level))} covered, {len(result.held)} held, "
        f"{len(result.broken)} broken, {len(result.out_of_scope)} out of scope."
    )
    if result.broken:
        yield from wrapped("  broken: ", ", ".join(result.broken))
    if missed and len(missed) <= SHOWN_RULES:
        yield from wrapped("  not covered: ", ", ".join(missed))
    for what, count in sorted(result.excused.items()):
        yield f"  {count:,} times: {what}" if what == BY_LAW else f"  excused {count:,} times: {what}"
    for what in result.unused:
        yield f"  never used: {what}"
    yield result.badge


SHOWN_RULES: Final = 60


def wrapped(title: str, text: str) -> Iterator[str]:
    yield from wrap(text, WIDTH, initial_indent=title, subsequent_indent=" " * 6, break_on_hyphens=False)


def story(number: int, cause: Cause, repro: str) -> Iterator[str]:
    divergence = cause.divergence
    times = "" if cause.times == 1 else f" ({cause.times:,} times)"
    yield f"{number}. {divergence.text}{times}"
    if divergence.rule:
        yield from wrapped("   ", in_words(divergence.rule))
    if len(divergence.rules) > 1:
        yield from wrapped("   see also ", ", ".join(divergence.rules[1:]))
    for broken in divergence.invariants:
        yield from wrapped("   breaks ", broken)
    if not divergence.invariants and divergence.rule:
        yield "   only the letter: no invariant is broken by this step alone"
    if cause.script.start is not None:
        yield "   in a state that the reproduction has,"
    for n, move in enumerate(cause.script.moves, 1):
        yield f"   {n:3}  {move_in_words(move)}"
    if divergence.rows:
        widths = [max(len(row[n]) for row in (HEAD, *divergence.rows)) for n in range(2)]
        for row in (HEAD, *divergence.rows):
            yield f"        {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}"
    if not cause.shrunk:
        yield "   there may be a shorter way to it"
    if repro:
        yield f"   again: {repro}"


HEAD: Final = ("field", "the law", "the runtime")


def move_in_words(move: Move) -> str:
    match move:
        case Do(command, crash_at):
            dies = f", dying at its point {crash_at}" if crash_at >= 0 else ""
            return f"{command_in_words(command)}{dies}"
        case Kill():
            return "is killed, and started again"
        case KillDuring(command, after_us):
            return f"{command_in_words(command)}, killed after {after_us} µs"
        case Recover(now):
            return f"recover(now={now})"
        case Meet(fate):
            return FATES[fate]


def command_in_words(command: object) -> str:
    plain = to_plain(command)
    name = plain.pop("type")
    defaults = getattr(type(command), "_field_defaults", {})
    shown = [f"{k}={json.dumps(v)}" for k, v in plain.items() if k not in defaults or v != to_plain(defaults[k])]
    text = f"{name}({', '.join(shown)})"
    return text if len(text) <= WIDTH - 10 else f"{text[: WIDTH - 11]}…"


# --- for programs ------------------------------------------------------------------------------------


def as_json(result: Result) -> Json:
    return {
        "verdict": result.verdict,
        "undecided": result.undecided,
        "spec": SPEC_VERSION,
        "level": result.level,
        "runtime": result.name,
        "command": result.command,
        "profile": result.profile,
        "badge": result.badge,
        "seconds": round(result.seconds, 1),
        "commands": result.commands,
        "kills": result.crashes,
        "parts": result.parts,
        "rules": {
            "covered": sorted(result.rules),
            "held": list(result.held),
            "broken": list(result.broken),
            "out_of_scope": list(result.out_of_scope),
        },
        "excused": result.excused,
        "never_used": list(result.unused),
        "divergences": [
            {
                "rule": cause.divergence.rule,
                "rules": list(cause.divergence.rules),
                "kind": cause.divergence.kind,
                "command": cause.divergence.command,
                "text": cause.divergence.text,
                "in_words": in_words(cause.divergence.rule) if cause.divergence.rule else "",
                "rows": [row._asdict() for row in cause.divergence.rows],
                "invariants": list(cause.divergence.invariants),
                "count": cause.times,
                "shortest": cause.shrunk,
                "script": script_document(cause.script),
            }
            for cause in result.causes
        ],
    }


def script_document(script: Script) -> Json:
    """A script as the document that `--repro` reads."""
    return {
        "format": FORMAT,
        "policy": to_plain(script.policy),
        "start": None if script.start is None else plain_state(script.start),
        "moves": [move_document(move) for move in script.moves],
    }


def move_document(move: Move) -> Json:
    match move:
        case Do(command, crash_at):
            return {"op": "do", "command": to_plain(command), **({"crash_at": crash_at} if crash_at >= 0 else {})}
        case Kill():
            return {"op": "kill"}
        case KillDuring(command, after_us):
            return {"op": "kill_during", "command": to_plain(command), "after_us": after_us}
        case Recover(now):
            return {"op": "recover", "now": now}
        case Meet(fate):
            return {"op": "meet", "fate": fate}


def junit(result: Result) -> str:
    """One test case for each rule; a divergence without a rule is a case of its own."""
    suite = ElementTree.Element("testsuite", name=printable(f"conformance of {result.name}, level {result.level}"))
    failures: dict[str, list[Cause]] = {}
    for cause in result.causes:
        failures.setdefault(cause.divergence.rule or cause.divergence.kind, []).append(cause)
    names = [*seen_at(result.level), *(name for name in failures if name not in seen_at(result.level))]
    for name in names:
        case = ElementTree.SubElement(suite, "testcase", classname="keepkernel.conformance", name=name)
        for cause in failures.get(name, []):
            failure = ElementTree.SubElement(case, "failure", message=printable(cause.divergence.text))
            failure.text = printable("\n".join(story(1, cause, "")))
        if name not in failures and name not in result.rules:
            ElementTree.SubElement(
                case, "skipped", message="out of scope" if name in result.out_of_scope else "not covered"
            )
    if result.undecided:
        case = ElementTree.SubElement(suite, "testcase", classname="keepkernel.conformance", name="decided")
        ElementTree.SubElement(case, "error", message=printable(result.undecided))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def printable(text: str) -> str:
    """XML has no place for control characters, and a terminal no use for them."""
    return "".join(ch if ch.isprintable() or ch == "\n" else "?" for ch in text)


# --- for browsers ------------------------------------------------------------------------------------

STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5em 0}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}
.bad{color:#a00}.ok{color:#060}code,td{font-family:ui-monospace,monospace;font-size:13px}h2{margin-top:2em}
svg text{font:12px ui-monospace,monospace}"""


def html(result: Result) -> str:
    """A page that needs nothing else."""
    colour = "ok" if result.code == CONFORMS else "bad"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(result.name)}: {result.verdict}</title>",
        f"<style>{STYLE}</style><h1>{escape(result.name)} <span class={colour}>{result.verdict}</span></h1>",
        f"<p>{escape(result.badge)}</p>",
        f"<p>{result.commands:,} commands, {result.crashes:,} kills, {result.seconds:.1f} s</p>",
        f"<p class=bad>{escape(result.undecided)}</p>" if result.undecided else "",
    ]
    for number, cause in enumerate(result.causes, 1):
        divergence = cause.divergence
        parts.append(f"<h2>{number}. {escape(divergence.text)}</h2>")
        parts.append(f"<p>{escape(in_words(divergence.rule))}</p>" if divergence.rule else "")
        parts += [f"<p class=bad>breaks {escape(broken)}</p>" for broken in divergence.invariants]
        parts.append(sequence(cause))
        if divergence.rows:
            rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in divergence.rows)
            parts.append(f"<table><tr><th>field<th>the law<th>the runtime{rows}</table>")
    excuses = "".join(f"<tr><td>{escape(what)}<td>{count:,}" for what, count in sorted(result.excused.items()))
    parts.append(f"<h2>Excused</h2><table>{excuses}</table>" if excuses else "")
    state = {**dict.fromkeys(result.rules, "held"), **dict.fromkeys(result.broken, "broken")}
    rules = "".join(f"<tr><td>{rule}<td>{state.get(rule, 'not covered')}" for rule in seen_at(result.level))
    parts.append(f"<h2>Rules</h2><table>{rules}</table>")
    return "\n".join(part for part in parts if part) + "\n"


def sequence(cause: Cause) -> str:
    """A sequence diagram of the kit and the runtime."""
    left, right, step_px = 60, 700, 26
    moves = cause.script.moves
    height = step_px * (len(moves) + 3)
    made = [f'<svg width="800" height="{height}" role="img" aria-label="sequence of commands">']
    for x, name in ((left, "kit"), (right, "runtime")):
        made.append(f'<text x="{x}" y="14" text-anchor="middle">{name}</text>')
        made.append(f'<line x1="{x}" y1="20" x2="{x}" y2="{height}" stroke="#999"/>')
    for n, move in enumerate(moves):
        y = step_px * (n + 2)
        last = n == len(moves) - 1
        colour = "#a00" if last else "#333"
        text = escape(move_in_words(move)[:88])
        made.append(f'<text x="{left + 10}" y="{y - 5}" fill="{colour}">{text}</text>')
        made.append(f'<path d="M{left} {y}H{right}m-7-4l7 4l-7 4" fill="none" stroke="{colour}"/>')
    made.append(f'<text x="{left + 10}" y="{height - 8}" fill="#a00">{escape(cause.divergence.kind)}</text></svg>')
    return "".join(made)
