"""The report of a campaign as one page of HTML that needs nothing else: curves, counts, failures as diagrams."""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Final

from ..kernel.reasons import REASONS
from .check import named_rules
from .machines.kinds import LIVED

if TYPE_CHECKING:
    from .campaign import Campaign, Found, Sample

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; } td, th { padding: .1rem .8rem .1rem 0; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { background: #fafafa; border: 1px solid #ddd; } .columns { columns: 4 14rem; }
.never { color: #b00; } pre { white-space: pre-wrap; } text { font: 12px system-ui, sans-serif; }
"""
WIDTH: Final = 680
HEIGHT: Final = 220
COLOURS: Final = {"states": "#1565c0", "rules": "#2e7d32", "rejects": "#ad1457", "examples": "#777"}
ROW: Final = 24
LANE: Final = 150
MOST_ROWS: Final = 200


def page(campaign: "Campaign") -> str:
    return "\n".join(parts(campaign)) + "\n"


def parts(campaign: "Campaign") -> Iterator[str]:
    wanted, now = campaign.wanted, campaign.sample()
    verdict = "something is broken" if campaign.found else "nothing found"
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>keepkernel fuzz: {verdict}</title>'
    yield f"<style>{STYLE}</style><h1>keepkernel fuzz: {verdict}</h1>"
    fault = f", with the fault {escape(wanted.fault)}" if wanted.fault else ""
    yield f"<p>{', '.join(wanted.levels)}{fault}; seed {wanted.seed}, {campaign.seconds:.0f} s, {now.steps:,} steps</p>"
    for found in campaign.found:
        yield from failure(found)
    yield "<h2>Coverage over time</h2>"
    yield from curves(campaign.samples)
    yield "<h2>Counts</h2><table>"
    for level, number in campaign.examples.items():
        yield row(f"lives of the {level} machine", f"{number:,}", f"{campaign.steps[level]:,} steps")
    yield row("different states", f"{now.states:,}", f"of {len(campaign.known | campaign.states):,} known ones")
    yield row("rules", f"{now.rules:,}", f"of {len(named_rules())}")
    yield row("reasons to refuse", f"{now.rejects:,}", f"of {len(REASONS)}")
    yield row("points at which a process may die", f"{len(campaign.points):,}", "")
    yield "</table>"
    asked = frozenset(kind for kind in LIVED if not kind.startswith("refusal"))
    shown = {kind: number for kind, number in campaign.kinds.items() if not kind.startswith("refusal")}
    yield from counts("Rules", campaign.rules, named_rules())
    yield from counts("Reasons to refuse", campaign.rejects, frozenset(REASONS))
    yield from counts("Commands, effects and answers", shown, asked)
    yield from counts("Points at which a process may die", campaign.points, frozenset())


def row(name: str, number: str, more: str) -> str:
    return f'<tr><td>{escape(name)}<td class="number">{escape(number)}<td>{escape(more)}</tr>'


def counts(title: str, met: "dict[str, int]", there_are: frozenset[str]) -> Iterator[str]:
    yield f'<h2>{title}</h2><div class="columns">'
    for name in sorted(there_are | met.keys()):
        number = met.get(name, 0)
        said = f"{number:,}" if number else '<span class="never">never</span>'
        yield f"<div>{escape(name)} {said}</div>"
    yield "</div>"


def curves(samples: "list[Sample]") -> Iterator[str]:
    """What was covered by when, each curve against its own highest value."""
    yield f'<svg width="{WIDTH + 170}" height="{HEIGHT + 40}" role="img" aria-label="coverage over time">'
    if samples:
        last = samples[-1]
        for n, (name, colour) in enumerate(COLOURS.items()):
            most = max(getattr(last, name), 1)
            places = " ".join(
                f"{10 + s.seconds / max(last.seconds, 0.001) * (WIDTH - 20):.1f},"
                f"{HEIGHT - getattr(s, name) / most * (HEIGHT - 20):.1f}"
                for s in samples
            )
            yield f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{places}"/>'
            yield f'<text x="{WIDTH + 5}" y="{30 + 20 * n}" fill="{colour}">{name}: {getattr(last, name):,}</text>'
        yield f'<text x="10" y="{HEIGHT + 25}">0 s</text>'
        yield f'<text x="{WIDTH - 10}" y="{HEIGHT + 25}" text-anchor="end">{last.seconds:.0f} s</text>'
    yield "</svg>"


def failure(found: "Found") -> Iterator[str]:
    life = found.trace.failure
    yield f"<h2>{escape(life.what)}: {escape(life.text.splitlines()[0])}</h2>"
    yield f"<p>The {found.trace.level} machine found it after {found.seconds:.1f} s.</p><pre>{escape(life.text)}</pre>"
    scenes, what = [(scene.actor, scene.text) for scene in life.story], life.what
    if found.example is not None and found.example.length < len(scenes):
        yield "<p>The shortest way to it, by the checker:</p>"
        scenes = [(moment.label.actor, moment.label.text) for moment in found.example.moments]
        what = found.example.violation.invariant
    yield from diagram(scenes, what)
    if life.trace:
        yield f"<pre>{escape(life.trace)}</pre>"


def diagram(scenes: list[tuple[str, str]], what: str) -> Iterator[str]:
    """A lane for each actor, a row for each step."""
    scenes = scenes[-MOST_ROWS:]
    lanes = {actor: n for n, actor in enumerate(dict.fromkeys(actor for actor, _ in scenes))}
    height, right = ROW * (len(scenes) + 3), LANE * len(lanes)
    yield f'<svg width="{right + 560}" height="{height}" role="img" aria-label="what happened, step by step">'
    for actor, n in lanes.items():
        x = LANE * n + LANE // 2
        yield f'<text x="{x}" y="16" text-anchor="middle" font-weight="bold">{escape(actor)}</text>'
        yield f'<line x1="{x}" y1="24" x2="{x}" y2="{height - ROW}" stroke="#bbb"/>'
    for n, (actor, text) in enumerate(scenes):
        x, y = LANE * lanes[actor] + LANE // 2, ROW * (n + 2)
        yield f'<circle cx="{x}" cy="{y}" r="5" fill="#1565c0"/>'
        yield f'<line x1="{x}" y1="{y}" x2="{right}" y2="{y}" stroke="#ddd"/>'
        yield f'<text x="{right + 5}" y="{y + 4}">{escape(text[:110])}<title>{escape(text)}</title></text>'
    yield f'<text x="{right + 5}" y="{height - 6}" class="never">breaks {escape(what)}</text></svg>'
