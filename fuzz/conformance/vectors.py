"""The folder `spec/vectors/`: made from the reference, compared with what is checked in."""

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from ...kernel.codec import from_plain
from ...kernel.commands import Command
from ...kernel.reasons import REASONS
from ...kernel.tables import TABLES
from ...kernel.types import State
from ..commands import WrongUsage
from . import cases, schemas
from .rules import SPEC, SPEC_VERSION, UNSEEN, UNSEEN_REASONS, titles

Json = dict[str, Any]

FORMAT: Final = 1
FOLDER: Final = SPEC / "vectors"


def files(events: int = 1) -> dict[str, bytes]:
    """Every file of the folder, by its path in it."""
    from . import tours

    steps = cases.documents()
    tour = tours.tour_documents(events)
    crashes = tours.crashes()
    made = {
        "cases.ndjson.gz": packed(steps),
        "tour.itf.ndjson.gz": packed(tour.documents),
        "crashes.itf.ndjson.gz": packed(crashes),
        "reasons.json": text(reasons(steps)),
        **{f"schemas/{name}.json": text(schema) for name, schema in schemas.SCHEMAS.items()},
    }
    counts = {
        "cases.ndjson.gz": len(steps),
        "tour.itf.ndjson.gz": tour.summary["traces"],
        "crashes.itf.ndjson.gz": len(crashes),
    }
    manifest = {
        "format": FORMAT,
        "spec": SPEC_VERSION,
        "events": events,
        "files": {
            name: {"sha256": sha256(data).hexdigest(), **({"lines": counts[name]} if name in counts else {})}
            for name, data in sorted(made.items())
        },
        "tour": tour.summary,
        "covered": covered(steps, crashes),
        "not_covered": not_covered(steps, crashes),
    }
    return {"manifest.json": text(manifest), **made}


def covered(steps: list[Json], crashes: list[Json]) -> Json:
    """What is shown, and by which cases; a recovery is shown by the crash traces."""
    by_rule: dict[str, list[str]] = {}
    by_edge: dict[str, list[str]] = {}
    by_reason: dict[str, list[str]] = {}
    for case in steps:
        for rule in case["rules"]:
            by_rule.setdefault(rule, []).append(case["id"])
        for edge in case["moves"]:
            by_edge.setdefault(edge, []).append(case["id"])
        if case["outcome"] == "rejected":
            by_reason.setdefault(case["reason"], []).append(case["id"])
    for trace in crashes:
        for rule in trace["#meta"]["rules"]:
            by_rule.setdefault(rule, []).append(trace["#meta"]["id"])
    return {
        kind: {name: ids[:SHOWN] for name, ids in sorted(found.items())}
        for kind, found in (("rules", by_rule), ("edges", by_edge), ("reasons", by_reason))
    }


SHOWN: Final = 5
"""How many examples the manifest names for each."""


def not_covered(steps: list[Json], crashes: list[Json]) -> Json:
    """What nothing shows, with the reason; without one it would be a hole, and a test fails."""
    shown = covered(steps, crashes)
    edges = {f"{name}: {a} → {b}" for name, table in TABLES.items() for (a, _), b in table.items()}
    return {
        "edges": dict.fromkeys(sorted(edges - shown["edges"].keys()), ""),
        "rules": {rule: UNSEEN.get(rule, "") for rule in titles() if rule not in shown["rules"]},
        "reasons": {name: UNSEEN_REASONS.get(name, "") for name in REASONS if name not in shown["reasons"]},
    }


def reasons(steps: list[Json]) -> Json:
    """Every reason, and the commands that it was seen with."""
    seen: dict[str, set[str]] = {name: set() for name in REASONS}
    for case in steps:
        if case["outcome"] == "rejected":
            seen[case["reason"]].add(case["command"]["type"])
    return {name: {**reason._asdict(), "commands": sorted(seen[name])} for name, reason in REASONS.items()}


def packed(documents: Iterable[Json]) -> bytes:
    """One document in each line, compressed; the same documents always give the same bytes."""
    made = BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=9, mtime=0) as file:
        for one in documents:
            file.write(json.dumps(one, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return made.getvalue()


def unpacked(data: bytes) -> Iterator[Json]:
    for line in gzip.decompress(data).decode().splitlines():
        yield json.loads(line)


def single_steps(folder: Path = FOLDER) -> Iterator[tuple[State, Command]]:
    """The states and commands of the single-step cases, as they are checked in."""
    for case in unpacked((folder / "cases.ndjson.gz").read_bytes()):
        yield from_plain(State, case["before"]), from_plain(Command, case["command"])


def text(document: Json) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


# --- the folder --------------------------------------------------------------------------------------


def write(made: dict[str, bytes], folder: Path = FOLDER) -> None:
    for name, data in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for name in stale(made, folder):
        (folder / name).unlink()


def stale(made: dict[str, bytes], folder: Path = FOLDER) -> list[str]:
    """The files that differ from what is made now, are missing, or should not be there.

    Compressed files are compared by their contents, because two versions of a compressor may write other bytes.
    """
    there = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return sorted(
        name
        for name in made.keys() | there.keys()
        if name not in made
        or name not in there
        or contents(name, made[name]) != contents(name, there[name].read_bytes())
    )


def contents(name: str, data: bytes) -> object:
    if name.endswith(".gz"):
        return gzip.decompress(data)
    if name == "manifest.json":
        manifest = json.loads(data)
        return {**manifest, "files": {n: one.get("lines") for n, one in manifest["files"].items()}}
    return data


def run(events: int, out: Path | None, *, check: bool) -> int:
    """The command `keepkernel vectors`."""
    if events > 1 and out is None:
        raise WrongUsage("the folder of the specification has one event; say with --out where two belong")
    folder = out or FOLDER
    print("keepkernel: playing every transition", file=sys.stderr, flush=True)
    made = files(events)
    if check:
        old = stale(made, folder)
        print(f"stale: {', '.join(old)}; run `keepkernel vectors`" if old else f"{folder} is fresh")
        return 1 if old else 0
    write(made, folder)
    size = sum(map(len, made.values()))
    print(f"{len(made)} files, {size:,} bytes, in {folder}")
    return 0
