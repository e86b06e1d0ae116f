"""The text of a workflow file as a tree: where things stand, and what can be said of them without running them."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

JAVASCRIPT: Final = Language(tree_sitter_javascript.language())
FUNCTIONS: Final = frozenset(
    {"arrow_function", "function_declaration", "function_expression", "generator_function", "method_definition"}
)
ASSIGNMENTS: Final = {
    "assignment_expression": "left",
    "augmented_assignment_expression": "left",
    "update_expression": "argument",
}
"""Node that assigns -> its field that is assigned to."""
DECLARED: Final = {
    "arrow_function": "parameter",
    "assignment_pattern": "left",
    "catch_clause": "parameter",
    "class_declaration": "name",
    "for_in_statement": "left",
    "function_declaration": "name",
    "generator_function_declaration": "name",
    "object_assignment_pattern": "left",
    "pair_pattern": "value",
    "variable_declarator": "name",
}
"""Node that declares -> its field that is declared."""
STRAIGHT: Final = frozenset(
    {
        "arguments", "array", "assignment_expression", "await_expression", "call_expression", "expression_statement",
        "lexical_declaration", "member_expression", "parenthesized_expression", "return_statement",
        "variable_declaration", "variable_declarator",
    }
)  # fmt: skip
"""What makes the call whenever it is reached: no branch, and no function that others may call."""
DROPS: Final = frozenset(
    {"binary_expression", "expression_statement", "parenthesized_expression", "sequence_expression",
     "ternary_expression", "unary_expression"}
)  # fmt: skip
"""What a promise gets lost in, when it is all of a statement."""
IDLE: Final = frozenset({"break_statement", "comment", "continue_statement", "empty_statement", "function_declaration"})


class Place(NamedTuple):
    """Both count from 1."""

    line: int
    column: int


class Context(NamedTuple):
    """What a function calls its context, and parts that it took out of it, by the names that it gave them."""

    name: str
    parts: dict[str, str]


class Use(NamedTuple):
    """A use of `ctx`: `ctx.name` that is called, or `ctx.name.method`."""

    name: str
    method: str
    topic: str | None
    """The first argument, when it is a plain text."""
    place: Place


class Outline:
    """One file. Nothing here fails for what is in it: what is not found is not told."""

    def __init__(self, source: str) -> None:
        text = source.encode()
        self.root = Parser(JAVASCRIPT).parse(text).root_node
        self._lines = text.split(b"\n")
        self._names = dict(self._declarations())
        exported = [self._resolve(node) for node in self._exported()]
        self.exports = bool(exported)
        self.declaration = next((node for node in exported if node is not None and node.type == "object"), None)

    def deeper(self, than: int) -> bool:
        """Whether anything in it nests deeper; to look for the parent of a node takes as long as it is deep."""
        level = [self.root]
        for _ in range(than):
            level = [inner for node in level for inner in node.named_children]
        return bool(level)

    # -- places

    def place(self, *path: str) -> Place | None:
        """Where the declaration, or the deepest part of this path that is written out in it, stands."""
        node = self.declaration
        if node is None:
            return None
        found = node
        for name in path:
            member = self._member(node, name) if node is not None else None
            if member is None:
                break
            found, node = member, self._value(member)
        return self._place(found)

    def functions(self) -> Iterator[tuple[str, Node]]:
        """Every function of a handler, by the name `handler` or `consumer.phase`."""
        for group in ("producers", "consumers"):
            handlers = self._follow(self.declaration, group)
            for member in handlers.named_children if handlers is not None else ():
                name = _key(member)
                value = self._value(member)
                if value is None or name is None:
                    continue
                if value.type in FUNCTIONS:
                    yield name, value
                for part in value.named_children if value.type == "object" else ():
                    function = self._value(part)
                    if function is not None and function.type in FUNCTIONS:
                        yield f"{name}.{_key(part)}", function

    # -- what handlers do

    def uses(self) -> list[Use]:
        """How handlers use their context, and so do functions whose first parameter is called `ctx`."""
        handlers = {function.id for _, function in self.functions()}
        found: dict[int, Use] = {}
        for function in _walk(self.root):
            if function.type not in FUNCTIONS:
                continue
            first = _first_parameter(function)
            if function.id in handlers or (first is not None and _text(first) == "ctx"):
                ctx = _context(function)
                found |= {node.id: use for node in _walk(function) if (use := self._use(node, ctx)) is not None}
        return sorted(found.values(), key=lambda use: use.place)

    def shared_variables(self) -> list[tuple[str, list[str], Place]]:
        """Variables of the module that several functions assign, with those functions."""
        writers: dict[str, list[str]] = {}
        for owner, function in self.functions():
            own = {_text(node) for node in _walk(function) if _declares(node)}
            for name in {_assigned(node) for node in _walk(function)} - own:
                if name in self._names and self._names[name].type not in FUNCTIONS:
                    writers.setdefault(name, []).append(owner)
        return [(name, owners, self._place(self._names[name])) for name, owners in writers.items() if len(owners) > 1]

    def after_mutations(self) -> list[Place]:
        """Statements of a mutate that stand behind a call of a tool, and so never run (SCRIPT-003)."""
        found = []
        for name, function in self.functions():
            ctx = _context(function)
            for node in _walk(function) if name.endswith(".mutate") else ():
                use = self._use(node, ctx)
                call = node.parent if use is not None and use.method else None
                called = call is not None and call.child_by_field_name("function") == node
                after = _statement_after(call) if call is not None and called else None
                if after is not None:
                    found.append(self._place(after))
        return found

    def lost_promises(self) -> list[tuple[str, Place]]:
        """Calls of the file's own async functions, by name, whose promises nobody has; no name: forEach drops them."""
        given: dict[str, list[Node | None]] = {}
        for node in _walk(self.root):
            if _declares(node):
                given.setdefault(_text(node), []).append(_given(node))
            elif name := _assigned(node):
                given.setdefault(name, []).append(None)
        found = []
        for call in _dropped_calls(self.root):
            callee, first = call.child_by_field_name("function"), _first_argument(call)
            if callee is not None and self._is_async(callee, given):
                named = callee.type != "parenthesized_expression"
                found.append(("".join(_text(callee).split()) if named else "this function", self._place(call)))
            elif callee is not None and first is not None and _method(callee) == "forEach":
                found += [("", self._place(first))] if self._is_async(first, given) else []
        return sorted(found, key=lambda lost: lost[1])

    def _is_async(self, node: Node, given: dict[str, list[Node | None]]) -> bool:
        """Whether this is an async function for certain: of a name, wherever in the file it is declared or assigned."""
        if node.type == "parenthesized_expression":
            return len(node.named_children) == 1 and _async(node.named_children[0])
        if node.type == "identifier":
            values = given.get(_text(node), [])
        elif node.type == "member_expression":
            owner = node.child_by_field_name("object")
            owners = given.get(_text(owner), []) if owner is not None and owner.type == "identifier" else []
            values = [self._follow(value, _method(node)) for value in owners]
        else:
            return _async(node)
        return bool(values) and all(map(_async, values))

    # -- reading the tree

    def _place(self, node: Node) -> Place:
        """Columns are counted in characters, where the tree counts bytes."""
        row, column = node.start_point
        return Place(row + 1, len(self._lines[row][:column].decode(errors="replace")) + 1)

    def _use(self, node: Node, ctx: Context) -> Use | None:
        if node.type == "identifier" and _text(node) in ctx.parts:
            return self._call(node, ctx.parts[_text(node)])
        if node.type != "member_expression":
            return None
        owner, method = node.child_by_field_name("object"), _text(node.child_by_field_name("property"))
        if owner is None:
            return None
        if owner.type == "member_expression" and ctx.name and _text(owner.child_by_field_name("object")) == ctx.name:
            return Use(_text(owner.child_by_field_name("property")), method, None, self._place(node))
        if owner.type == "identifier" and _text(owner) in ctx.parts:
            return Use(ctx.parts[_text(owner)], method, None, self._place(node))
        return self._call(node, method) if _text(owner) == ctx.name else None

    def _call(self, node: Node, name: str) -> Use | None:
        """A part of the context, where it is called."""
        parent = node.parent
        if parent is None or parent.type != "call_expression" or parent.child_by_field_name("function") != node:
            return None
        return Use(name, "", _plain_text(_first_argument(parent)), self._place(node))

    def _declarations(self) -> Iterator[tuple[str, Node]]:
        """What the file declares at its top, by name."""
        for statement in self.root.named_children:
            if statement.type == "export_statement":
                inner = statement.child_by_field_name("declaration")
                statement = inner if inner is not None else statement  # noqa: PLW2901 - the same, unwrapped
            for node in (statement, *statement.named_children):
                name = node.child_by_field_name("name")
                if node.type in ("variable_declarator", "function_declaration") and name is not None:
                    yield _text(name), node

    def _exported(self) -> Iterator[Node]:
        """What the file exports as its default."""
        for node in _walk(self.root):
            value = node.child_by_field_name("value")
            if node.type == "export_statement" and value is not None:
                yield value
            name = node.child_by_field_name("name")
            if node.type == "export_specifier" and _text(node.child_by_field_name("alias")) == "default" and name:
                yield name

    def _follow(self, node: Node | None, name: str) -> Node | None:
        member = self._member(node, name) if node is not None else None
        return self._value(member) if member is not None else None

    def _member(self, node: Node, name: str) -> Node | None:
        return next((member for member in node.named_children if _key(member) == name), None)

    def _value(self, member: Node) -> Node | None:
        if member.type in ("method_definition", "object"):
            return member
        value = member.child_by_field_name("value") if member.type == "pair" else member
        return self._resolve(value)

    def _resolve(self, node: Node | None) -> Node | None:
        """A value behind names of the module, brackets, and the functions of Keep, which give back what they take."""
        for _ in range(10):
            if node is None:
                return None
            if node.type == "parenthesized_expression":
                node = node.named_children[0] if node.named_children else None
            elif node.type == "call_expression" and _text(node.child_by_field_name("function")).startswith("Keep."):
                arguments = node.child_by_field_name("arguments")
                node = arguments.named_children[0] if arguments is not None and arguments.named_children else None
            elif node.type in ("identifier", "shorthand_property_identifier"):
                node = self._names.get(_text(node))
                if node is not None and node.type == "variable_declarator":
                    node = node.child_by_field_name("value")
            else:
                return node
        return None


def _walk(node: Node) -> Iterator[Node]:
    """A node and all within it, without recursion: files may nest as deep as they like."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.named_children)


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode()


def _key(member: Node) -> str | None:
    """The name of a member of an object."""
    if member.type == "shorthand_property_identifier":
        return _text(member)
    key = member.child_by_field_name("name" if member.type == "method_definition" else "key")
    if key is None:
        return None
    return _plain_text(key) if key.type == "string" else _text(key)


def _plain_text(node: Node | None) -> str | None:
    if node is None or node.type != "string" or any(part.type != "string_fragment" for part in node.named_children):
        return None
    return "".join(map(_text, node.named_children))


def _first_parameter(function: Node) -> Node | None:
    single = function.child_by_field_name("parameter")
    listed = function.child_by_field_name("parameters")
    return single if single is not None else next(iter(listed.named_children), None) if listed is not None else None


def _context(function: Node) -> Context:
    """What the first parameter is called, or is taken apart into, there or in the function."""
    first = _first_parameter(function)
    if first is None or first.type not in ("identifier", "object_pattern"):
        return Context("", {})
    name = _text(first) if first.type == "identifier" else ""
    patterns = [first]
    for node in _walk(function) if name else ():
        if node.type == "variable_declarator" and _text(node.child_by_field_name("value")) == name:
            patterns += [part for part in [node.child_by_field_name("name")] if part is not None]
    taken = (_taken(member) for pattern in patterns for member in pattern.named_children)
    return Context(name, {given: part for given, part in taken if given})


def _taken(member: Node) -> tuple[str, str]:
    """A member of `{part, part: given}` as (given, part); of everything else (empty, empty)."""
    if member.type == "shorthand_property_identifier_pattern":
        return _text(member), _text(member)
    given = member.child_by_field_name("value")
    if member.type == "pair_pattern" and given is not None and given.type == "identifier":
        return _text(given), _key(member) or ""
    return "", ""


def _first_argument(call: Node) -> Node | None:
    arguments = call.child_by_field_name("arguments")
    return next(iter(arguments.named_children), None) if arguments is not None else None


def _method(callee: Node) -> str:
    """What is called, of whatever it is called of."""
    return _text(callee.child_by_field_name("property"))


def _statement_after(call: Node) -> Node | None:
    """The statement behind the one that this call is, if it does anything; what only may run the call says nothing."""
    statement: Node | None = call
    while statement is not None and statement.type in STRAIGHT:
        if statement.parent is not None and statement.parent.type == "statement_block":
            break
        statement = statement.parent
    else:
        return None
    after = statement.next_named_sibling
    while after is not None and (after.type in IDLE or (after.type == "return_statement" and not after.named_children)):
        after = after.next_named_sibling
    return after


def _assigned(node: Node) -> str:
    """The variable behind what a node assigns to: `total` for `total.sum[0] += 1`."""
    target = node.child_by_field_name(ASSIGNMENTS[node.type]) if node.type in ASSIGNMENTS else None
    while target is not None and target.type in ("member_expression", "subscript_expression"):
        target = target.child_by_field_name("object")
    return _text(target) if target is not None and target.type == "identifier" else ""


def _declares(node: Node) -> bool:
    """Whether an identifier is declared here, as a variable, a parameter or a function."""
    parent = node.parent
    if node.type not in ("identifier", "shorthand_property_identifier_pattern") or parent is None:
        return False
    if parent.type in DECLARED:
        return parent.child_by_field_name(DECLARED[parent.type]) == node
    return parent.type in ("formal_parameters", "object_pattern", "array_pattern", "rest_pattern")


def _given(declared: Node) -> Node | None:
    """What a declared name stands for, where the declaration says so."""
    parent = declared.parent
    if parent is None or parent.type == "function_declaration":
        return parent
    return parent.child_by_field_name("value") if parent.type == "variable_declarator" else None


def _async(node: Node | None) -> bool:
    """Whether this is a function that gives a promise and runs without being awaited, as generators do not."""
    kinds = {child.type for child in node.children} if node is not None and node.type in FUNCTIONS else set()
    return "async" in kinds and "*" not in kinds


def _dropped_calls(root: Node) -> Iterator[Node]:
    """Calls whose value nobody has, for it is a statement's, or void; `then` hands on what is thrown."""
    stack = [node for node in _walk(root) if node.type == "expression_statement" or _void(node)]
    while stack:
        node = stack.pop()
        if node.type in DROPS:
            stack += [inner for inner in node.named_children if not _void(inner)]
        elif node.type == "call_expression":
            yield node
            callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            owner = callee.child_by_field_name("object") if callee is not None else None
            handled = arguments is not None and len(arguments.named_children) > 1
            if callee is not None and owner is not None and _method(callee) in ("then", "finally") and not handled:
                stack.append(owner)


def _void(node: Node) -> bool:
    return node.type == "unary_expression" and _text(node.child_by_field_name("operator")) == "void"
