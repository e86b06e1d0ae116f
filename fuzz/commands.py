"""What `keepkernel check` and `keepkernel replay` do; `verify.py` has the main job.

Exit codes: 0 everything holds, 1 something is violated or was never put to the test, 2 wrong usage, 3 not decided.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from ..spec.readings import NOT_MODELLED, READINGS
from . import itf
from .check import Result, as_json, explore, explore_reading, shortest
from .explorer import Verdict
from .mermaid import to_mermaid
from .progress import Watch
from .report import plural, told
from .setups import ALL, FEATURES, SETUPS, Setup, setup
from .system import Caller

EXIT_CODES: Final[dict[Verdict, int]] = {"holds": 0, "violated": 1, "not decided": 3}
WRONG_USAGE: Final = 2
CORPUS: Final = Path(".hypothesis", "keepkernel")
"""Where the fuzzer keeps what it finds, unless it is told another place."""


class WrongUsage(Exception):
    """The command line asks for something that there is not."""


def wrong_usage(what: str) -> NoReturn:
    raise WrongUsage(what)


class Wanted(NamedTuple):
    """What to search, as the command line says it; empty means: as the set-up or the reading has it."""

    setup: str = ""
    events: int = 0
    caller: Caller | None = None
    features: str | None = None
    reading: str = ""
    max_states: int = 0
    to_law: bool = False


# --- check -------------------------------------------------------------------------------------------


def check(wanted: Wanted, *, as_json_text: bool = False, itf_file: Path | None, mermaid_file: Path | None) -> int:
    """One search: print what it found, write its counterexample where it is wanted, and return the exit code."""
    result = search(wanted)
    print(json.dumps(as_json(result), indent=2, ensure_ascii=False) if as_json_text else told(result), flush=True)
    for path, text in files(result, itf_file, mermaid_file):
        write(path, text)
    return EXIT_CODES[result.verdict]


def search(wanted: Wanted) -> Result:
    chosen, caller = resolved(wanted)
    with Watch(chosen.name) as watch:
        result = explore(
            chosen,
            caller=caller,
            reading=wanted.reading,
            to_law=wanted.to_law,
            max_states=wanted.max_states,
            stop_at_first=bool(wanted.reading),
            report=watch,
        )
    if result.verdict != "not decided":
        return result
    why = "interrupted" if watch.stopped else f"the limit of {plural(wanted.max_states, 'state')} was reached"
    return result._replace(why=f"{why}, and not every state was seen")


def resolved(wanted: Wanted) -> tuple[Setup, Caller]:
    """The set-up and the caller that are meant; a reading is shown where it shows best, unless told otherwise."""
    reading = None
    if wanted.reading:
        known("reading", wanted.reading, READINGS)
        reading = READINGS[wanted.reading]
    name = wanted.setup or (reading.setup if reading else "main")
    known("set-up", name, SETUPS)
    features = SETUPS[name].features
    if reading:
        features = features | {*reading.features} if wanted.setup else frozenset(reading.features)
    if wanted.features is not None:
        features = chosen_features(wanted.features, features)
    return setup(name, wanted.events, features), wanted.caller or (reading.caller if reading else "honest")


def known(kind: str, name: str, names: dict[str, Any]) -> None:
    if name not in names:
        raise WrongUsage(f"there is no {kind} {name!r}; there are: {', '.join(names)}")


def chosen_features(text: str, own: frozenset[str]) -> frozenset[str]:
    """The features that a list names; with a sign in front they are added to the set-up's own, or taken away.

    >>> sorted(chosen_features("crash,late", frozenset({"skip"})))
    ['crash', 'late']
    >>> sorted(chosen_features("+late,-skip", frozenset({"crash", "skip"})))
    ['crash', 'late']
    """
    words = [word.strip() for word in text.split(",")]
    chosen = set(own) if words[0][:1] in ("+", "-") else set()
    for word in words:
        name = word.lstrip("+-")
        named = ALL if name == "all" else frozenset() if name == "none" else {name}
        for one in named:
            known("feature", one, {**FEATURES, "all": "", "none": ""})
        chosen = chosen - named if word.startswith("-") else chosen | named
    return frozenset(chosen)


def files(result: Result, itf_file: Path | None, mermaid_file: Path | None) -> list[tuple[Path, str | None]]:
    """What is to be written where; None when there is nothing to write."""
    wanted: list[tuple[Path, str | None]] = []
    example = shortest(result) if result.counterexamples else None
    if itf_file is not None:
        wanted.append((itf_file, json.dumps(itf.to_itf(result, example), indent=1) + "\n" if example else None))
    if mermaid_file is not None:
        wanted.append((mermaid_file, to_mermaid(example) if example else None))
    return wanted


def write(path: Path, text: str | None) -> None:
    if text is None:
        print(f"keepkernel: there is no counterexample, so {path} is not written", file=sys.stderr)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{path} can not be written: {error.strerror}") from None


# --- readings ----------------------------------------------------------------------------------------


def readings(*, as_json_text: bool = False) -> int:
    """Every literal reading is broken, and the chosen one is whole wherever they are."""
    broken: list[Result] = []
    whole: dict[tuple[str, str, frozenset[str]], Result] = {}
    with Watch() as watch:
        for name, reading in READINGS.items():
            watch.title = f"{len(broken)} of {len(READINGS)} readings, {name}: "
            broken.append(explore_reading(name, report=watch))
            place = (reading.setup, reading.caller, frozenset(reading.features))
            if place not in whole and not watch.stopped:
                chosen = setup(reading.setup, features=frozenset(reading.features))
                whole[place] = explore(chosen, caller=reading.caller, report=watch)
            if watch.stopped:
                break
    verdict = verdict_on_readings(broken, list(whole.values()), stopped=watch.stopped)
    if as_json_text:
        rows = [reading_json(result) for result in broken]
        chosen_json = [as_json(result) for result in whole.values()]
        document = {"verdict": verdict, "readings": rows, "chosen": chosen_json, "not_modelled": NOT_MODELLED}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print("\n".join(table_of_readings(broken, list(whole.values()), verdict)))
    return EXIT_CODES[verdict]


def verdict_on_readings(broken: list[Result], whole: list[Result], *, stopped: bool) -> Verdict:
    if any(result.verdict == "violated" for result in whole):
        return "violated"
    if stopped:
        return "not decided"
    return "holds" if all(result.counterexamples for result in broken) else "violated"


def reading_json(result: Result) -> dict[str, Any]:
    reading = READINGS[result.reading]
    first = shortest(result) if result.counterexamples else None
    return {
        "reading": reading.name,
        "decision": reading.decision,
        "text": reading.text,
        "needs": list(reading.needs),
        "setup": result.setup.name,
        "caller": result.caller,
        "features": sorted(result.setup.features),
        "invariant": first.violation.invariant if first else None,
        "length": first.length if first else None,
        "states": result.states,
    }


def table_of_readings(broken: list[Result], whole: list[Result], verdict: Verdict) -> list[str]:
    rows: list[tuple[str, ...]] = [("reading", "decision", "breaks", "steps", "states seen", "set-up")]
    for result in broken:
        row = reading_json(result)
        needs = f", with {', '.join(row['needs'])}" if row["needs"] else ""
        where = f"{row['setup']}{' (adversary)' if row['caller'] == 'adversary' else ''}{needs}"
        rows.append((
            row["reading"], row["decision"], row["invariant"] or "nothing", str(row["length"] or "-"),
            f"{row['states']:,}", where,
        ))  # fmt: skip
    sound = sum(result.verdict == "holds" for result in whole)
    states = sum(result.states for result in whole)
    rows.append(("chosen", "", "nothing" if sound == len(whole) else "see below", "-", f"{states:,}", "all of these"))
    lines = aligned(rows, right=(3, 4))
    lines += ["", f"The chosen reading holds in {sound} of the {len(whole)} searches in which the others break."]
    for result in whole:
        if result.verdict == "violated":
            lines += ["", told(result)]
    unbroken = [result.reading for result in broken if not result.counterexamples]
    if unbroken:
        lines += [f"Not broken: {', '.join(unbroken)}."]
    lines += ["Decisions whose other choice is no variant of this kernel:"]
    lines += [f"  {name}  {why}" for name, why in NOT_MODELLED.items()]
    return [*lines, "", f"verdict: {verdict}"]


def aligned(rows: list[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    """Rows of a table with a rule under the first.

    >>> aligned([("name", "n"), ("a", "10")], right=(1,))
    ['name   n', '────  ──', 'a     10']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: tuple[str, ...]) -> str:
        cells = (
            cell.rjust(w) if n in right else cell.ljust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return [line(rows[0]), line(tuple("─" * width for width in widths)), *map(line, rows[1:])]


# --- replay ------------------------------------------------------------------------------------------


def replay(path: Path, *, with_reading: bool) -> int:
    """Play a trace file against the kernel, and say where it diverges or what it ends in."""
    try:
        text = path.read_text(encoding="utf-8")
        if LIFE in text[:200]:
            return replay_life(path, text)
        trace = itf.read(text)
        done = itf.replay(trace, with_reading=with_reading)
    except OSError as error:
        raise WrongUsage(f"{path} can not be read: {error.strerror}") from None
    except (itf.NotATrace, UnicodeDecodeError) as error:
        raise WrongUsage(f"{path} is not a trace of this checker: {error}") from None
    if with_reading and not trace.reading:
        raise WrongUsage(f"{path} names no reading; replay it without --reading")
    kernel = f"the reading {trace.reading}" if with_reading else "the kernel as it is"
    print(f"{path}: {trace.setup.name}, {plural(len(trace.states) - 1, 'step')}, against {kernel}")
    if done.divergence is not None:
        step, what, details = done.divergence
        print(f"diverges at step {step}: {what}")
        print("\n".join(f"  {detail}" for detail in details), end="\n" if details else "")
        if trace.reading and not with_reading:
            print(f"The trace was found in the reading {trace.reading}; --reading replays it there.")
        return 1
    print(f"every step is as the trace tells it; it ends in {ending(trace, done)}")
    return 0


LIFE: Final = '"format": "keepkernel fuzz'
"""How a file begins that the fuzzer wrote."""


def replay_life(path: Path, text: str) -> int:
    """Play what the fuzzer found; its machines need Hypothesis, which the checker does not."""
    try:
        from .machines import levels
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise WrongUsage(
            f"{path} was written by the fuzzer; to replay it needs Hypothesis: pip install 'keepkernel[verify]'"
        ) from None

    try:
        return levels.replay(path, text)
    except levels.NotALife as error:
        raise WrongUsage(f"{path} is not a trace of the fuzzer: {error}") from None


def ending(trace: itf.Trace, done: itf.Replay) -> str:
    if trace.loop >= 0:
        return f"a loop from step {trace.loop + 1} on" if trace.loop < len(done.moments) else "a state of no return"
    if not done.broken:
        return "a state that breaks nothing"
    return "what breaks " + "; ".join(map(str, done.broken))


# --- lists -------------------------------------------------------------------------------------------


def listing() -> str:
    """What can be chosen, one line each."""
    setups = [(s.name, f"{s.text}, {plural(s.events, 'event')}") for s in SETUPS.values()]
    named = [(r.name, f"{r.decision}: {r.text}") for r in READINGS.values()]
    lines: list[str] = []
    for title, rows in (("Set-ups", setups), ("Features", list(FEATURES.items())), ("Readings", named)):
        width = max(len(name) for name, _ in rows)
        lines += [title, *(f"  {name:<{width}}  {text}" for name, text in rows), ""]
    return "\n".join(lines).rstrip()
