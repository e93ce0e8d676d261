"""Check of plain language: docstrings, and names of functions, variables and classes. Exit code 1 where one is wrong.

`python .ci/language.py [FOLDER ...]`; without a folder, the whole service.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

#: A docstring names its subject first.
OPENINGS = re.compile(r"(What|Whose|Whom|The same|Here|Of|By which)\b")
#: A function is named after what it returns or does.
NAMES = re.compile(r"(^|_)(told|said|meant)(_|$)")
#: A variable is named by a noun of the field: text, message, expected.
VARIABLES = {"told", "said", "says", "saying", "sayings", "meant", "whens", "unsaid", "brought"}
#: Functions that refuse a call: who calls one of them may be refused, as by a `raise` of its own.
REFUSALS = re.compile(r"require|check_rank|check_right|\w+_or_404")
#: Classes that a framework looks for by this name.
FRAMEWORK = {"Command", "Meta", "Migration"}
HOUSE = ("toolhub", "capabilities", "sessions")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def problems(folders: list[Path]) -> Iterator[str]:
    """Yield what is wrong, as `file:line: sentence`."""
    classes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(file for folder in folders for file in folder.rglob("*.py") if "migrations" not in file.parts):
        tree = ast.parse(path.read_text())
        for line, sentence in (*of_docstrings(tree), *of_names(tree), *of_refusals(tree, path)):
            yield f"{path}:{line}: {sentence}"
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name not in FRAMEWORK:
                classes[wing_of(path), node.name].append(f"{path}:{node.lineno}")
    for (wing, name), places in classes.items():
        if len(places) > 1:
            yield f"{places[1]}: {wing} has a class {name} already: {places[0]}"


def of_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield docstrings that do not open with their subject."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            opening = OPENINGS.match(ast.get_docstring(node) or "")
            if opening:
                yield getattr(node, "lineno", 1), f"the docstring opens with “{opening[1]}”: name its subject first"


def of_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield functions and variables whose names are riddles; each variable once a line."""
    seen: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, Function) and NAMES.search(node.name):
            yield node.lineno, f"name {node.name} after what it returns or does"
        name = bound_name(node).strip("_")
        line: int = getattr(node, "lineno", 1)
        if name in VARIABLES and (line, name) not in seen:
            seen.add((line, name))
            yield line, f"name the variable {name} by a noun, such as text, message or expected"


def bound_name(node: ast.AST) -> str:
    """Return the variable, parameter or attribute that the node binds, or empty."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    return node.arg if isinstance(node, ast.arg) else ""


def of_refusals(tree: ast.Module, path: Path) -> Iterator[tuple[int, str]]:
    """Yield public functions of `writes.py`, or of a folder `writes`, that refuse and do not say so."""
    if "writes" not in (path.stem, path.parent.name):
        return
    for node in tree.body:
        is_public = isinstance(node, Function) and not node.name.startswith("_")
        if is_public and is_refusing(node) and not re.search(r"[Rr]aise", ast.get_docstring(node) or ""):
            yield node.lineno, f"the docstring of {node.name} says nothing of what it raises"


def is_refusing(function: ast.AST) -> bool:
    """Return whether the function itself, without those inside of it, raises an exception or calls what refuses.

    NotImplementedError, of a function that another room provides, is no refusal.
    """
    for node in ast.iter_child_nodes(function):
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" not in ast.dump(node.exc):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and REFUSALS.fullmatch(node.func.id):
            return True
        if is_refusing(node):
            return True
    return False


def wing_of(path: Path) -> str:
    """Return the wing that the file is in, as a folder; the app for a file beside the wings."""
    return "/".join(path.parent.parts[:2])


if __name__ == "__main__":
    found = list(problems([Path(each) for each in sys.argv[1:] or HOUSE]))
    print(*found, sep="\n")
    sys.exit(1 if found else 0)
