"""Parts of the code of a Python tool: its entry, what it imports and uses, and constructs of Python by name.

Parses and compiles, and never runs or imports what it reads. The caller decides which parts a runtime has.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Any

#: Limit of the findings that are reported.
MOST = 200

#: A construct, or a name that is used: `kind`, `name`, `line`, `column` (both from 1), and `inside` where it matters.
Found = dict[str, Any]

ENTRY = "run"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TYPES = frozenset({"str", "bytes", "int", "float", "bool", "list", "dict", "set", "frozenset", "tuple", "object"})


def run(code: str) -> dict[str, Any]:
    """Return `flaw` alone where the code is not Python; else `entry` (or None), `constructs`, `imports` and `uses`."""
    try:
        tree = ast.parse(code)
        compile(code, "<tool>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return {"flaw": {"message": error.msg, "line": error.lineno, "column": error.offset}}
    except ValueError as error:  # such as a null byte
        return {"flaw": {"message": str(error)[:300], "line": None, "column": None}}
    bound = _bound(tree)
    modules = _modules(tree)
    return {
        "flaw": None,
        "entry": _entry(tree),
        "constructs": _first(_constructs(tree, bound)),
        "imports": _first(_imports(tree)),
        "uses": _first(_uses(tree, bound, modules)),
        "defined": sorted(_top_level(tree)),
        "methods": sorted(
            {
                node.name
                for cls in ast.walk(tree)
                if isinstance(cls, ast.ClassDef)
                for node in cls.body
                if isinstance(node, FUNCTIONS)
            }
        ),
    }


def _first(found: Iterator[Found]) -> list[Found]:
    """Return the findings in the order of the lines, each thing once a line, at most MOST."""
    seen: dict[tuple[Any, ...], Found] = {}
    for one in found:
        seen.setdefault((one["kind"], one["name"], one["line"]), one)
        if len(seen) == MOST:
            break
    return sorted(seen.values(), key=lambda one: (one["line"], one["column"]))


def _at(node: Any, kind: str, name: str = "", **more: Any) -> Found:
    return {"kind": kind, "name": name, "line": node.lineno, "column": node.col_offset + 1, **more}


# -- The entry ---------------------------------------------------------------------------------------------------------


def _entry(tree: ast.Module) -> dict[str, Any] | None:
    """The last function of that name at the top of the module, as its parameters."""
    found = None
    for node in tree.body:
        if isinstance(node, FUNCTIONS) and node.name == ENTRY:
            found = node
    if found is None:
        return None
    arguments = found.args
    plain = [*arguments.posonlyargs, *arguments.args]
    without_default = {one.arg for one in plain[: len(plain) - len(arguments.defaults)]}
    without_default |= {
        one.arg for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    }
    return {
        "line": found.lineno,
        "is_async": isinstance(found, ast.AsyncFunctionDef),
        "is_decorated": bool(found.decorator_list),
        "names": [one.arg for one in (*arguments.args, *arguments.kwonlyargs)],
        "positional_only": [one.arg for one in arguments.posonlyargs],
        "required": [one.arg for one in (*plain, *arguments.kwonlyargs) if one.arg in without_default],
        "takes_any": arguments.kwarg is not None,
    }


def _top_level(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


# -- Constructs --------------------------------------------------------------------------------------------------------


def _constructs(tree: ast.Module, bound: set[str]) -> Iterator[Found]:
    """Yield the constructs of the code that one of the runtimes may not have."""
    functions = {node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                yield from _of_class(node)
            case ast.Yield():
                yield _at(node, "yield")
            case ast.YieldFrom():
                yield _at(node, "yield from")
            case ast.Delete():
                yield _at(node, "del", type(node.targets[0]).__name__)
            case ast.TryStar():
                yield _at(node, "except*")
            case ast.ImportFrom() if any(alias.name == "*" for alias in node.names):
                yield _at(node, "import *", node.module or "")
            case ast.ImportFrom() if node.level:
                yield _at(node, "relative import", node.module or "")
            case ast.Call():
                yield from _of_call(node, functions)
            case ast.AsyncFunctionDef() if any(isinstance(inner, ast.Yield) for inner in ast.walk(node)):
                yield _at(node, "async generator", node.name)


def _of_class(node: ast.ClassDef) -> Iterator[Found]:
    """Yield what a class uses: bases, keywords, decorators, special methods, and statements in its body."""
    names = [_dotted(base) for base in node.bases]
    for name in names:
        yield _at(node, "base class", name or "an expression", inside=node.name)
    for keyword in node.keywords:
        yield _at(node, "class keyword", keyword.arg or "**", inside=node.name)
    is_dataclass = False
    for decorator in node.decorator_list:
        name = _dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name in ("dataclass", "dataclasses.dataclass"):
            is_dataclass = True
            if isinstance(decorator, ast.Call):
                for keyword in decorator.keywords:
                    if keyword.arg and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False):
                        yield _at(decorator, "dataclass option", keyword.arg, inside=node.name)
    for inner in node.body:
        if isinstance(inner, FUNCTIONS):
            for decorator in inner.decorator_list:
                name = _dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
                yield _at(decorator, "method decorator", name, inside=inner.name)
            if inner.name.startswith("__") and inner.name.endswith("__"):
                yield _at(inner, "special method", inner.name, inside=node.name, is_dataclass=is_dataclass)
        elif isinstance(inner, ast.ClassDef):
            yield _at(inner, "class in a class", inner.name, inside=node.name)
        elif not isinstance(inner, ast.Assign | ast.AnnAssign | ast.Expr | ast.Pass):
            yield _at(inner, "statement in a class", type(inner).__name__.lower(), inside=node.name)


def _of_call(node: ast.Call, functions: set[str]) -> Iterator[Found]:
    name = _dotted(node.func)
    arguments = node.args
    method = name.rpartition(".")[2]
    if method in ("sub", "subn") and "." in name:
        index = 1 if name.startswith("re.") else 0
        replacement = arguments[index] if len(arguments) > index else None
        if isinstance(replacement, ast.Lambda) or (isinstance(replacement, ast.Name) and replacement.id in functions):
            yield _at(node, "function as replacement", name)
    if name == "next" and arguments and isinstance(arguments[0], ast.GeneratorExp):
        yield _at(node, "next of a generator")
    if name in ("json.dumps", "json.dump", "json.loads", "json.load"):
        for keyword in node.keywords:
            yield _at(node, "keyword", f"{name}({keyword.arg})")
    if name == "super":
        yield _at(node, "super")


# -- Names -------------------------------------------------------------------------------------------------------------


def _imports(tree: ast.Module) -> Iterator[Found]:
    """One for each module, and for each name that is taken from one (`member`). `optional` within a try."""
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
        for part in node.body
        for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _at(node, "import", alias.name, member=None, optional=id(node) in guarded)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if alias.name != "*":
                    where = _at(node, "import", f"{node.module}.{alias.name}", optional=id(node) in guarded)
                    yield where | {"module": node.module, "member": alias.name}


def _modules(tree: ast.Module) -> dict[str, str]:
    """Names by which modules are at hand."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
    return found


def _uses(tree: ast.Module, bound: set[str], modules: dict[str, str]) -> Iterator[Found]:
    """Built-in names, attributes of modules and of built-in types, and other attributes by their bare name."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
            kind = "builtin" if hasattr(builtins, node.id) else "unknown name"
            yield _at(node, kind, node.id)
        elif isinstance(node, ast.Attribute):
            name = _dotted(node)
            first, _, rest = name.partition(".")
            if rest and first in modules:
                yield _at(node, "module attribute", f"{modules[first]}.{rest}")
            elif rest and first in TYPES and first not in bound:
                yield _at(node, "type attribute", name, is_called=id(node) in called)
            else:
                yield _at(node, "attribute", node.attr)


def _dotted(node: ast.AST | None) -> str:
    """Return the dotted name `a.b.c`; "" for another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def _bound(tree: ast.Module) -> set[str]:
    """Every name that the code gives a value somewhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                found.add(node.id)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.arg():
                found.add(node.arg)
            case ast.alias():
                found.add(node.asname or node.name.partition(".")[0])
            case ast.ExceptHandler(name=str() as name):
                found.add(name)
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                found.add(name)
            case ast.MatchMapping(rest=str() as name):
                found.add(name)
    return found
