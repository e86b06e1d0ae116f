"""Short campaigns of the fuzzer at every level, for `keepkernel verify`."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from .commands import CORPUS, aligned
from .explorer import Verdict
from .progress import Watch
from .report import wrapped

Json = dict[str, Any]

LEVELS: Final = ("kernel", "store", "host", "service")
SECONDS: Final = 20.0
HEAD: Final = ("fuzz", "examples", "steps", "rules", "points", "seconds", "verdict")


def attacked(levels: Sequence[str] = LEVELS, seconds: float = SECONDS) -> list[Json]:
    """What came of a campaign at each level, each in a process of its own; Ctrl-C ends them all."""
    results: list[Json] = []
    with Watch("fuzz") as watch:
        for level in levels:
            if watch.stopped:
                results.append(undecided(level, "interrupted before it began"))
                continue
            watch.show(f"{level}, {seconds:.0f} s")
            results.append(campaign(level, seconds))
    return results


def campaign(level: str, seconds: float) -> Json:
    """One campaign, which remembers nothing of earlier ones; what it finds is kept."""
    with tempfile.TemporaryDirectory(prefix="keepkernel-fuzz-") as corpus:
        options = ["--level", level, "--seconds", str(seconds), "--corpus", corpus, "--json"]
        command = [sys.executable, "-P", "-m", "keepkernel", "fuzz", *options]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        try:
            document: Json = json.loads(ended.stdout)
        except ValueError:
            said = ended.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            return undecided(level, f"its process ended with {ended.returncode}: {said[0]}")
        if document["troubles"] or document["stopped"]:
            return undecided(level, "; ".join(document["troubles"]) or "interrupted")
        kept = [keep(Path(file)) for file in document["files"]]
    return {
        "level": level,
        "verdict": "violated" if document["failures"] else "nothing found",
        "why": f"keepkernel replay {kept[0]} tells how" if document["failures"] else "",
        "examples": sum(document["examples"].values()),
        "steps": document["steps"],
        "rules": len(document["rules"]),
        "points": len(document["points"]),
        "seconds": document["seconds"],
    }


def keep(file: Path) -> Path:
    """A file of a campaign that ends, put where those of other campaigns are."""
    place = CORPUS / "failures" / file.name
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)
    return place


def undecided(level: str, why: str) -> Json:
    counts = dict.fromkeys(("examples", "steps", "rules", "points", "seconds"), 0)
    return {"level": level, "verdict": "not decided", "why": why, **counts}


def verdict(results: Sequence[Json]) -> Verdict:
    """Nothing found is no proof, and leaves what was proven as it is."""
    found = {result["verdict"] for result in results}
    return "violated" if "violated" in found else "not decided" if "not decided" in found else "holds"


def lines(results: Sequence[Json]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [HEAD]
    for r in results:
        counts = (f"{r[name]:,}" for name in ("examples", "steps", "rules", "points"))
        rows.append((r["level"], *counts, f"{r['seconds']:.1f}", r["verdict"]))
    yield from aligned(rows, right=(1, 2, 3, 4, 5))
    for r in results:
        if r["why"]:
            yield from wrapped(f"{r['level']}: ", r["why"])
