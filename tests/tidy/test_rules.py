"""Every rule that the code cites stands in the specification, once, and every rule there is cited in code."""

import re
from collections import Counter
from pathlib import Path

from keepkernel.kernel.commands import COMMANDS
from keepkernel.kernel.reasons import REASONS

ROOT = Path(__file__).resolve().parents[2]
AREAS = (
    "STEP|HOST|EVENT|PROD|PHASE|COMMIT|RUN|RETRY|MUT|BOUND|SESS|WORK|SCHED|LIVE|POLICY|FAIL|PERM|REC|SCRIPT|USER|CODEC"
)
RULE = re.compile(rf"\b(?:{AREAS})-\d{{3}}\b")
HEADING = re.compile(rf"### ((?:{AREAS})-\d{{3}}) \S.*")
SPEC = {path.name: path.read_text() for path in sorted((ROOT / "spec").glob("*.md"))}


def lines_that_start(start: str) -> list[str]:
    return [line for text in SPEC.values() for line in text.splitlines() if line.startswith(start)]


def headings() -> list[str]:
    return [match[1] for line in lines_that_start("### ") if (match := HEADING.fullmatch(line))]


def cited(*folders: str) -> set[str]:
    """The rules that the code of these folders names."""
    return {rule for f in folders for path in (ROOT / f).rglob("*.py") for rule in RULE.findall(path.read_text())}


def sections(name: str, start: str) -> dict[str, str]:
    """The parts of a file under its headings of one level, by heading."""
    parts = re.split(rf"^{start} ", SPEC[name], flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_headings_are_well_formed() -> None:
    assert [line for line in lines_that_start("###") if not HEADING.fullmatch(line)] == []


def test_no_id_has_two_headings() -> None:
    assert [rule for rule, times in Counter(headings()).items() if times > 1] == []


def test_numbers_of_an_area_have_no_gaps() -> None:
    for area, count in Counter(rule.split("-")[0] for rule in headings()).items():
        assert {f"{area}-{n:03}" for n in range(1, count + 1)} <= set(headings()), area


def test_an_area_stands_in_one_file() -> None:
    homes = {(rule.split("-")[0], name) for name in SPEC for rule in sections(name, "###")}
    assert [area for area, times in Counter(area for area, _ in homes).items() if times > 1] == []


def test_every_rule_says_something() -> None:
    empty = [
        rule
        for name in SPEC
        for rule, body in sections(name, "###").items()
        if not body.strip() or body.lstrip().startswith(("#", "*Why"))
    ]
    assert empty == []


def test_every_rule_cited_in_the_kernel_has_a_heading() -> None:
    assert cited("kernel") - set(headings()) == set()


def test_every_rule_is_cited_in_code() -> None:
    """The kernel is where rules are kept; what hosts, the sandbox and the readers of documents owe may stand there."""
    duties = {rule for rule in headings() if rule.startswith(("HOST-", "SCRIPT-", "CODEC-", "LIVE-"))}
    assert set(headings()) - duties - cited("kernel") == set()
    assert duties - cited("kernel", "adapters", "sandbox", "spec", "fuzz") == set()


def test_every_rule_named_in_prose_exists() -> None:
    named = {rule for text in SPEC.values() for rule in RULE.findall(text)}
    assert named - set(headings()) == set()


def test_every_reason_has_a_rule_of_the_specification() -> None:
    assert {reason.rule for reason in REASONS.values()} <= set(headings())


def test_command_table_has_each_command_once() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", SPEC["12-commands.md"], re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)


def test_decisions_are_numbered_and_each_cites_its_rules() -> None:
    decisions = sections("13-decisions.md", "##")
    numbers = [title.split()[0] for title in decisions]
    assert len(numbers) >= 33
    assert numbers == [f"D{n:02}" for n in range(1, len(numbers) + 1)]
    for title, body in decisions.items():
        rules = re.search(r"^Rules: (.+)$", body, re.MULTILINE)
        assert rules is not None, title
        cited_here = re.findall(r"[A-Z]+-\d{3}", rules[1])
        assert cited_here, title
        assert set(cited_here) <= set(headings()), title


def test_each_of_the_first_decisions_tells_its_whole_story() -> None:
    for title, body in list(sections("13-decisions.md", "##").items())[:33]:
        for part in ("Texts:", "Bad trace:", "Chosen:"):
            assert f"\n{part}" in f"\n{body}", f"{title} lacks {part}"
        assert re.search(r"^1\. ", body, re.MULTILINE), f"{title} has no steps"
