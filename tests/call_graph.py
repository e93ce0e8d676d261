"""Which function of the service calls which, read from the source: for tests that walk every path to something.

A call is followed where its function is known: by its name in the module or its imports, as a method of `self`, or as a
method of that name where few classes have one; a call of what a room above provides, to the function there. What is
handed on to run behind the commit (`on_commit`), or in another thread, is not run there.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from tests.paths import ROOT

HOUSES = ("toolhub", "capabilities", "sessions")
#: Methods of so many classes at most are followed where the object is not known.
FEW = 3
#: Calls whose arguments run later, or elsewhere.
LATER = {"on_commit", "submit", "Thread", "Timer", "lazy"}


@dataclass(eq=False)
class Function:
    """One function, method or module body; `name` has the classes and functions around it."""

    module: str
    name: str
    node: ast.AST

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass
class Graph:
    functions: dict[str, Function] = field(default_factory=dict)
    methods: dict[str, list[Function]] = field(default_factory=lambda: defaultdict(list))
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, module: str, tree: ast.Module, text: str = "") -> None:
        self.names[module] = dict(imported(tree))
        self.texts[module] = text
        self.functions[f"{module}.<module>"] = Function(module, "<module>", tree)
        self._add_below(module, tree, "", in_class=False)

    def _add_below(self, module: str, node: ast.AST, path: str, *, in_class: bool) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.ClassDef):
                self._add_below(module, inner, f"{path}{inner.name}.", in_class=True)
            elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                found = self.functions[f"{module}.{path}{inner.name}"] = Function(module, path + inner.name, inner)
                if in_class:
                    self.methods[inner.name].append(found)
                self._add_below(module, inner, f"{path}{inner.name}.", in_class=False)
            elif isinstance(inner, ast.stmt | ast.excepthandler):
                self._add_below(module, inner, path, in_class=in_class)

    def called(self, call: ast.Call, at: Function) -> list[Function]:
        """The functions of ours that this call may run."""
        target = call.func
        if isinstance(target, ast.Name):
            return self.of_name(target.id, at)
        if not isinstance(target, ast.Attribute):
            return []
        if isinstance(target.value, ast.Name):
            if target.value.id in ("self", "cls") and "." in at.name:
                own = self.functions.get(f"{at.module}.{at.name.split('.')[0]}.{target.attr}")
                if own:
                    return [own]
            module = self.names[at.module].get(target.value.id, "")
            if f"{module}.{target.attr}" in self.functions:
                return [self.functions[f"{module}.{target.attr}"]]
            if module and module not in self.names:
                return []  # another library's
        few = self.methods[target.attr]
        return few if len(few) <= FEW else []

    def of_name(self, name: str, at: Function) -> list[Function]:
        inner = self.functions.get(f"{at}.{name}")
        full = self.names[at.module].get(name, f"{at.module}.{name}")
        found = inner or self.functions.get(full)
        if found:
            return [found]
        made = (self.functions.get(f"{full}.{method}") for method in ("__init__", "__post_init__"))
        return [each for each in made if each]


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.asname or each.name.split(".")[0], each.name) for each in node.names)


def provisions(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """What a module provides (`toolhub.tenants.provided`): the full name of each, and those of the values for it."""
    names = dict(imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "provide":
            yield full_name(node.func.value, names), [full_name(each, names) for each in values_in(node.args)]


def values_in(nodes: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """The values of dictionaries and the arguments of calls among these, and the rest as it is."""
    for node in nodes:
        if isinstance(node, ast.Dict):
            yield from values_in(node.values)
        elif isinstance(node, ast.Call):
            yield from values_in([*node.args, *(each.value for each in node.keywords)])
        else:
            yield node


def full_name(node: ast.AST, names: dict[str, str]) -> str:
    first, _, rest = ast.unparse(node).partition(".")
    return ".".join(filter(None, (names.get(first, ""), rest)))


def body_of(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when this does: no functions inside of it, and nothing that is handed on to run later."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        found = waiting.pop()
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield found
        if isinstance(found, ast.Call) and name_of(found.func) in LATER:
            continue
        waiting += ast.iter_child_nodes(found)


def name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@cache
def graph() -> Graph:
    """The whole service but its migrations, read once."""
    found = Graph()
    for house in HOUSES:
        for path in sorted((ROOT / house).rglob("*.py")):
            if "migrations" not in path.parts:
                parts = path.relative_to(ROOT).with_suffix("").parts
                text = path.read_text()
                found.add(".".join(parts).removesuffix(".__init__"), ast.parse(text), text)
    for house in HOUSES:
        wiring = found.functions.get(f"{house}.wiring.<module>")
        for declared, values in provisions(wiring.node) if wiring and isinstance(wiring.node, ast.Module) else ():
            if declared in found.functions:
                found.functions[declared] = found.functions[values[0]]
    return found
