"""The classes and functions of a Python source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice
from typing import Any

#: Rows of one outline, and one more that says that there are more.
MOST = 10_000


def run(text: str) -> list[dict[str, Any]] | None:
    """Kind, name and lines of each; None for what is no valid Python."""
    try:
        return list(islice(_outline(ast.parse(text).body, ""), MOST))
    except (SyntaxError, ValueError):
        return None


def _outline(body: list[ast.stmt], within: str) -> Iterator[dict[str, Any]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "method" if within else "function"
            lines = f"{node.lineno}-{node.end_lineno or node.lineno}"
            yield {"kind": kind, "name": within + node.name, "lines": lines}
            if isinstance(node, ast.ClassDef):
                yield from _outline(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _outline([*node.body, *node.orelse], within)
