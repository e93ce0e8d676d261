"""Check of plain language: how docstrings begin, how functions and classes are named. Exit code 1 where one is wrong.

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
#: Classes that a framework looks for by this name.
FRAMEWORK = {"Command", "Meta", "Migration"}
HOUSE = ("toolhub", "capabilities", "sessions")


def problems(folders: list[Path]) -> Iterator[str]:
    """Yield what is wrong, as `file:line: sentence`."""
    classes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(file for folder in folders for file in folder.rglob("*.py") if "migrations" not in file.parts):
        tree = ast.parse(path.read_text())
        top_level = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            line = getattr(node, "lineno", 1)
            opening = OPENINGS.match(ast.get_docstring(node) or "")
            if opening:
                yield f"{path}:{line}: the docstring opens with “{opening[1]}”: name its subject first"
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and NAMES.search(node.name):
                yield f"{path}:{line}: name {node.name} after what it returns or does"
            if isinstance(node, ast.ClassDef) and id(node) in top_level and node.name not in FRAMEWORK:
                classes[wing_of(path), node.name].append(f"{path}:{line}")
    for (wing, name), places in classes.items():
        if len(places) > 1:
            yield f"{places[1]}: {wing} has a class {name} already: {places[0]}"


def wing_of(path: Path) -> str:
    """Return the wing that the file is in, as a folder; the app for a file beside the wings."""
    return "/".join(path.parent.parts[:2])


if __name__ == "__main__":
    found = list(problems([Path(each) for each in sys.argv[1:] or HOUSE]))
    print(*found, sep="\n")
    sys.exit(1 if found else 0)
