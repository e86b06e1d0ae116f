"""The generated part of the specification: diagrams, invariants, schemas, trace. Run it as `./keep generate`.

Each file has one source: the machines, the kernel as it runs, the documents' models, the rules where they stand.
"""

import argparse
import ast
import inspect
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from keepkernel.kernel import commands, policy, types
from keepkernel.kernel.codec import TAGS
from keepkernel.kernel.commands import COMMANDS, Command
from keepkernel.kernel.machines import MACHINES
from keepkernel.kernel.policy import Policy
from keepkernel.kernel.types import Declaration, Outcome, State
from keepkernel.spec.documents import ADAPTERS, model
from keepkernel.spec.invariants import ON_OUTSIDE, ON_STATES, ON_STEPS
from keepkernel.spec.moves import Move, observed

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "spec" / "generated"
NOTE = "<!-- Made by `./keep generate`; edit its sources instead. -->"


def files() -> dict[str, str]:
    """Every generated file, by its path below spec/generated/."""
    schemas = {f"schemas/{name}.json": as_text(schema) for name, schema in schemas_by_name().items()}
    return {
        "diagrams.md": diagrams(),
        "invariants.md": invariants(),
        "trace.md": trace_table(trace()),
        **schemas,
    }


# --- diagrams ----------------------------------------------------------------------------------------


def diagrams() -> str:
    """A diagram per machine, and how the commands move them together."""
    lines = ["# The machines", "", NOTE]
    for machine in MACHINES:
        doc = inspect.getdoc(machine) or ""
        lines += ["", f"## {machine.__name__}", "", doc, "", "```mermaid", f"{machine:mermaid}".strip(), "```"]
    seen = {name: sorted(found) for name, found in observed().items()}
    lines += ["", "## How they move together", "", TOGETHER, "", "```mermaid", *composition(seen), "```"]
    lines += ["", *moves_table(seen)]
    return "\n".join(lines) + "\n"


TOGETHER = """\
One command may move several machines, in one step or not at all. This is what the kernel was seen to do when every
command was tried on every kind of state of a small workflow (`spec/moves.py`). `[*]` is where a new row begins.
A command without a move changes what belongs to no machine: errors, grants, counts, times."""


def composition(seen: dict[str, list[Move]]) -> Iterator[str]:
    yield "flowchart LR"
    for machine in MACHINES:
        yield f'    {machine.__name__}{{{{"{machine.__name__}"}}}}'
    for name, found in seen.items():
        for moved in dict.fromkeys(move.machine for move in found):
            yield f'    {name}(["{name}"]) -- "{edges(found, moved)}" --> {moved}'


def edges(found: list[Move], machine: str) -> str:
    return "<br>".join(f"{move.source} → {move.target}" for move in found if move.machine == machine)


def moves_table(seen: dict[str, list[Move]]) -> Iterator[str]:
    yield "| command | " + " | ".join(machine.__name__ for machine in MACHINES) + " |"
    yield "|---" * (len(MACHINES) + 1) + "|"
    for name, found in seen.items():
        cells = (edges(found, machine.__name__) for machine in MACHINES)
        yield f"| `{name}` | " + " | ".join(cells) + " |"


# --- invariants --------------------------------------------------------------------------------------


def invariants() -> str:
    """What must always hold, in the words of the predicates that check it."""
    lines = ["# What must always hold", "", NOTE, "", "`spec/invariants.py` has each of these as a predicate."]
    for kinds, title in (
        (ON_STEPS, "On every step"),
        (ON_STATES, "On every state"),
        (ON_OUTSIDE, "On every state, beside what really happened outside"),
    ):
        lines += ["", f"## {title}"]
        for law in kinds:
            name = law.broken.__name__.replace("_", " ").capitalize()
            lines += ["", f"### {law.id} {name}", f"{law.text[0].upper()}{law.text[1:]} ({law.rule})."]
    return "\n".join(lines) + "\n"


# --- JSON Schemas ------------------------------------------------------------------------------------


class Schema(GenerateJsonSchema):
    """JSON Schema 2020-12, without titles that repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schemas_by_name() -> dict[str, dict[str, Any]]:
    """One schema per command, and one per other document; a command is one of the commands."""
    kinds: dict[str, Any] = {**COMMANDS, "state": State, "policy": Policy, "declaration": Declaration}
    adapters = {name: TypeAdapter(model(kind)) for name, kind in kinds.items()}
    adapters["outcome"] = ADAPTERS[Outcome]
    made = {name: identified(name, described(a.json_schema(schema_generator=Schema))) for name, a in adapters.items()}
    members = [{"$ref": f"urn:keepkernel:{TAGS[kind]}"} for kind in get_args(Command)]
    made["command"] = identified("command", {"title": "Command", "oneOf": members})
    return made


def identified(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": Schema.schema_dialect, "$id": f"urn:keepkernel:{name}", **schema}


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the docstrings of fields, which the running types do not know."""
    docs = field_docs()
    for part in (schema, *schema.get("$defs", {}).values()):
        for name, field in part.get("properties", {}).items():
            doc = docs.get((part.get("title", ""), name))
            if doc:
                field["description"] = doc
    return schema


def field_docs() -> dict[tuple[str, str], str]:
    """(type, field) -> the text that stands under the field in the source."""
    found = {}
    for module in (types, commands, policy):
        for kind in ast.parse(inspect.getsource(module)).body:
            if isinstance(kind, ast.ClassDef):
                for field, after in zip(kind.body, kind.body[1:], strict=False):
                    match field, after:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                            found[kind.name, name] = inspect.cleandoc(doc)
    return found


def as_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


# --- trace table -------------------------------------------------------------------------------------

RULE = re.compile(r"\b[A-Z]+-\d{3}\b")
RANGE = re.compile(r"\b([A-Z]+)-(\d{3}) to \1-(\d{3})\b")
HEADING = re.compile(r"^### ([A-Z]+-\d{3}) (.+)$", re.MULTILINE)
CODE = ("kernel", "spec", "adapters", "sandbox", "fuzz")


class Traced(NamedTuple):
    """Where a rule is written, kept and tested."""

    title: str
    prose: tuple[str, ...]
    code: tuple[str, ...]
    tests: tuple[str, ...]


def trace() -> dict[str, Traced]:
    """Every rule that is mentioned anywhere, in the order of its name."""
    titles: dict[str, str] = {}
    prose: dict[str, list[str]] = defaultdict(list)
    texts = {path.name: path.read_text() for path in sorted((ROOT / "spec").glob("*.md"))}
    for name, text in (texts | {"generated/invariants.md": invariants()}).items():
        for rule, title in HEADING.findall(text):
            titles[rule] = title
            prose[rule].append(name)
    code = places((path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))), mentions)
    tests = places(sorted((ROOT / "tests").rglob("*.py")), marks)
    for path in sorted((ROOT / "tests" / "scenarios").glob("*.txt")):
        for line in re.findall(r"^rules:(.*)$", path.read_text(), re.MULTILINE):
            for rule in RULE.findall(line):
                tests[rule].append(str(path.relative_to(ROOT)))
    return {
        rule: Traced(titles.get(rule, ""), *(tuple(dict.fromkeys(found[rule])) for found in (prose, code, tests)))
        for rule in sorted(titles.keys() | code.keys() | tests.keys())
    }


def places(paths: Any, cites: Any) -> dict[str, list[str]]:
    """Rule -> file and name of the functions, classes or values around its citations."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        source = path.read_text()
        tree = ast.parse(source)
        for rule, line in cites(source, tree):
            name = around(tree, line)
            found[rule].append(f"{path.relative_to(ROOT)}" + (f" `{name}`" if name else ""))
    return found


def mentions(source: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every rule that code or a comment names, and every rule of a range such as REC-001 to REC-003."""
    for number, line in enumerate(source.splitlines(), 1):
        for area, first, last in RANGE.findall(line):
            yield from ((f"{area}-{n:03}", number) for n in range(int(first), int(last) + 1))
        yield from ((rule, number) for rule in RULE.findall(line))


def marks(source: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every rule that a test says it checks: `@pytest.mark.rule("MUT-007")`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="rule", value=ast.Attribute(attr="mark")), args=arguments):
                for argument in arguments:
                    if isinstance(argument, ast.Constant):
                        yield str(argument.value), node.lineno


def around(tree: ast.Module, line: int) -> str:
    """The function, class or value at a line; no line numbers, so that an edit elsewhere changes nothing."""
    names: list[str] = []
    inside: list[ast.stmt] = tree.body
    while inside:
        above: ast.stmt | None = None
        for node in inside:
            if first_line(node) <= line <= (node.end_lineno or node.lineno):
                break
            above = node
        else:
            break
        inside = []
        match node, above:
            case ast.ClassDef(name=own, body=body), _:
                names.append(own)
                inside = body
            case ast.FunctionDef(name=own), _:
                names.append(own)
            # The text under a value speaks of the value.
            case (ast.Assign(targets=[ast.Name(id=own)]) | ast.AnnAssign(target=ast.Name(id=own)), _) | (
                ast.Expr(value=ast.Constant()),
                ast.Assign(targets=[ast.Name(id=own)]) | ast.AnnAssign(target=ast.Name(id=own)),
            ):
                names.append(own)
    return ".".join(names)


def first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def trace_table(rules: dict[str, Traced]) -> str:
    lines = ["# Where every rule is written, kept and tested", "", NOTE, ""]
    lines += ["| rule | text | code | tests |", "|---|---|---|---|"]
    for rule, row in rules.items():
        text = "<br>".join(f"[{row.title}](../{name})" for name in row.prose)
        lines.append(f"| {rule} | {text} | {'<br>'.join(row.code)} | {'<br>'.join(row.tests)} |")
    return "\n".join(lines) + "\n"


# --- writing -----------------------------------------------------------------------------------------


def stale(expected: dict[str, str]) -> list[str]:
    """The files that differ from what they should be, are missing, or should not be there."""
    there = {str(p.relative_to(OUTPUT)): p.read_text() for p in sorted(OUTPUT.rglob("*")) if p.is_file()}
    return sorted(name for name in expected.keys() | there.keys() if expected.get(name) != there.get(name))


def main() -> int:
    """Write what is stale, or with --check only say what is."""
    parser = argparse.ArgumentParser(prog="./keep generate", description="Write the generated files of spec/.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    check: bool = parser.parse_args().check
    expected = files()
    names = stale(expected)
    for name in names:
        print(f"{'stale' if check else 'written'}: spec/generated/{name}")
        path = OUTPUT / name
        if check:
            continue
        if name not in expected:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(expected[name])
    if check and names:
        print("run ./keep generate")
    return 1 if check and names else 0


if __name__ == "__main__":
    sys.exit(main())
