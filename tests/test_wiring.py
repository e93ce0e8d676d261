"""One way in which a room calls what a room above it provides, and one list of it.

A room declares it with `toolhub.tenants.provided`, `wiring.py` of an app provides it, and docs/architecture.md says who
provides and who asks. All of it is read from the source.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.call_graph import graph, provisions
from tests.paths import ROOT

#: Modules that provide; nothing else does.
WIRING = {"capabilities.wiring", "sessions.wiring"}
ROW = re.compile(r"^\| `(\w+)` \| `([\w/.]+)` \| (`[^|]+) \| (`[^|]+) \|$", re.MULTILINE)
#: Names of functions, and of values of modules, with which rooms had others register something.
FUNCTIONS, VALUES = re.compile("register_"), re.compile("_?(AFTER|BEFORE|after|before|on)_")

Uses = dict[str, set[str]]


def trees() -> dict[str, ast.Module]:
    """The modules of the service."""
    found = {function.module: function.node for function in graph().functions.values() if function.name == "<module>"}
    return {module: node for module, node in found.items() if isinstance(node, ast.Module)}


def declared_in(tree: ast.Module) -> Iterator[str]:
    """Names of what rooms above are to provide."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "Provided" in map(ast.unparse, node.decorator_list):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.value).startswith("Provided"):
            yield ast.unparse(node.target)


def declared() -> set[str]:
    return {f"{module}.{name}" for module, tree in trees().items() for name in declared_in(tree)}


def provided() -> Uses:
    """The modules that provide each, by the full name."""
    found: Uses = defaultdict(set)
    for module in WIRING:
        for name, values in provisions(trees()[module]):
            found[name] |= {value.rpartition(".")[0] for value in values}
    return dict(found)


def asked() -> Uses:
    """The modules that use each, by the full name."""
    found: Uses = defaultdict(set)
    known = declared()
    for module, tree in trees().items():
        if module in WIRING:
            continue
        names = {f"{module}.{name}" for name in declared_in(tree)} & {
            f"{module}.{node.id}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names |= {f"{node.module}.{each.name}" for each in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names.add(f"{graph().names[module].get(node.value.id)}.{node.attr}")
        for name in names & known:
            found[name].add(module)
    return dict(found)


def listed() -> dict[str, tuple[set[str], set[str]]]:
    """The table of docs/architecture.md: who provides, and who asks, by the full name."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    return {
        f"{module_of(file)}.{name}": ({*map(module_of, files_in(providers))}, {*map(module_of, files_in(askers))})
        for name, file, providers, askers in ROW.findall(text)
    }


def files_in(cell: str) -> list[str]:
    return re.findall(r"`([\w/.]+)`", cell)


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def targets_of(node: ast.stmt) -> list[str]:
    found = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [each.id for target in found for each in ast.walk(target) if isinstance(each, ast.Name)]


def is_changeable(value: ast.expr | None) -> bool:
    """Whether it is a list, a dictionary or a set."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in ("list", "dict", "set", "defaultdict", "OrderedDict")
    return isinstance(value, ast.List | ast.Dict | ast.Set)


def annotation_of(node: ast.stmt) -> str:
    return ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""


def is_empty(value: ast.expr | None) -> bool:
    return not (getattr(value, "keys", None) or getattr(value, "elts", None))


def other_ways_in(tree: ast.AST) -> list[str]:
    """Functions that register, and lists and dictionaries of modules that others put functions into."""
    functions = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and FUNCTIONS.match(node.name)
    ]
    assigned = [node for node in getattr(tree, "body", []) if isinstance(node, ast.Assign | ast.AnnAssign)]
    types = [
        name for node in assigned if node.value and "Callable[" in ast.unparse(node.value) for name in targets_of(node)
    ]
    of_functions = re.compile("|".join([r"Callable\[", *(rf"\b{name}\b" for name in types)]))
    values = [
        name
        for node in assigned
        if is_changeable(node.value)
        for name in targets_of(node)
        if VALUES.match(name) or (is_empty(node.value) and of_functions.search(annotation_of(node)))
    ]
    return functions + values


def test_all_that_is_declared_is_provided_and_asked_for() -> None:
    assert declared() == set(provided()) == set(asked())


def test_the_architecture_lists_who_provides_and_who_asks() -> None:
    providers, askers = provided(), asked()

    assert listed() == {name: (providers[name], askers[name]) for name in declared()}


def test_a_walk_of_calls_goes_on_where_a_room_above_provides() -> None:
    called = graph().functions["capabilities.catalogue.tools.recipients.writes.give_tools"]

    assert str(called) == "capabilities.agents.agents.giving.give_tools"


def test_only_the_wiring_of_the_apps_provides() -> None:
    assert {module for module, tree in trees().items() if list(provisions(tree))} == WIRING


def test_there_is_no_other_way_to_register() -> None:
    assert {module: found for module, tree in trees().items() if (found := other_ways_in(tree))} == {}


def test_another_way_to_register_is_found() -> None:
    lines = (
        "AFTER_SAVE = [a]",
        "_on_end = []",
        "reads: dict[str, Callable[[], int]] = {}",
        "Count = Callable[[int], int]",
        "_counts: dict[str, Count] = {}",
        "def register_a(): pass",
    )
    others = ("BEFORE_CALL = (A, B)", "AFTER_WORD = 60", "KINDS: dict[str, int] = {}", "def registered(): pass")

    assert other_ways_in(ast.parse("\n".join(lines))) == ["register_a", "AFTER_SAVE", "_on_end", "reads", "_counts"]
    assert other_ways_in(ast.parse("\n".join(others))) == []
