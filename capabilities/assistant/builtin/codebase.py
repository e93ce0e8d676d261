"""Source code in the workspace: where something stands, what a file holds, where a name is used. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from capabilities.assistant.builtin._lib import workspace
from capabilities.assistant.builtin._lib.search import line_matcher, lines_of, matching, searched_lines, text_of
from capabilities.common.confined import TooComplex, run_in_context
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="codebase",
    title="Codebase",
    description="Search and outline source code in the organisation's workspace.",
    keywords=(
        "codebase",
        "source code",
        "code",
        "function",
        "class",
        "method",
        "refactor",
        "where is defined",
        "references",
        "usages",
    ),
)

#: Matches of one search, and entries of one outline.
MATCH_LIMIT = 100
OUTLINE_LIMIT = 500
#: Characters of a line that a pattern looks at.
LINE_LIMIT = 500
#: Folders of what others wrote, or what was made from the source.
SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        ".venv",
        "venv",
        "__pycache__",
        ".mypy_cache",
        ".tox",
        "dist",
        "build",
        "target",
    }
)
#: One line each in most languages that end in braces or `end`: what it is, and its name.
DECLARATIONS = [
    re.compile(pattern)
    for pattern in (
        r"(?P<kind>class|interface|enum|struct|trait|module|namespace|record|object|protocol|impl)\s+(?P<name>[\w$]+)",
        r"(?P<kind>function|func|fn|def|fun|sub)\b\s*\*?\s*(?:\([^()]{0,100}\)\s*)?(?P<name>[\w$.]+[?!]?)",
        r"(?P<kind>type)\s+(?P<name>[\w$]+)\s*(?:=|struct\b|interface\b)",
        r"(?:const|let|var)\s+(?P<name>[\w$]+)\s*=\s*(?:async\s+)?(?P<kind>function\b|\([^()]{0,200}\)\s*=>|\w+\s*=>)",
    )
]
#: Words that may stand before a declaration.
MODIFIERS = frozenset(
    {"export", "default", "public", "private", "protected", "internal", "static", "abstract", "final", "sealed"}
    | {"partial", "async", "pub", "pub(crate)", "unsafe", "extern", "override", "open", "data", "inline", "virtual"}
    | {"const", "declare", "local", "suspend"}
)

Folder = Annotated[str, Field(description="File or folder.", max_length=1_000)]
Extensions = Annotated[
    list[Annotated[str, Field(max_length=20)]] | None, Field(description="As py, ts.", max_length=20)
]


@tool(category="codebase", effect="read", human_format="Searching the code for {query}")
def code_search(
    context: ToolContext,
    query: Annotated[str, Field(min_length=1, max_length=500)],
    path: Folder = ".",
    extensions: Extensions = None,
    regex: bool = False,
    ignore_case: bool = True,
) -> dict[str, Any]:
    """Find lines of source code in the workspace; skips .git, node_modules, builds and binaries.

    With regex the query is a regular expression without look-around and back references.
    """
    matches = line_matcher(context, query, regex, ignore_case)
    return searched_lines(context, path, matches, limit=MATCH_LIMIT, wanted=_wanted(extensions), skip=SKIPPED)


@tool(category="codebase", effect="read", human_format="Outlining {path}")
def code_outline(
    context: ToolContext, path: Annotated[str, Field(description="A source file.", max_length=1_000)]
) -> dict[str, Any]:
    """List the classes and functions of a source file with their lines, without reading the whole file."""
    text = text_of(workspace.read_file(context.workspace, path))
    if text is None:
        raise ToolError(f"{path} is no UTF-8 text.")
    note = {}
    is_python = PurePosixPath(path).suffix in {".py", ".pyi"}
    found = _python_outline(context, text) if is_python else None
    if found is None:
        found = list(_plain_outline(text))
        if is_python:
            note = {"note": "This is no valid Python: the outline was made line by line."}
    more = {"more": len(found) - OUTLINE_LIMIT} if len(found) > OUTLINE_LIMIT else {}
    return {"path": path, "lines": len(lines_of(text)), "outline": found[:OUTLINE_LIMIT]} | note | more


@tool(category="codebase", effect="read", human_format="Looking for uses of {name}")
def code_references(
    context: ToolContext,
    name: Annotated[str, Field(description="An identifier.", pattern=r"^[\w$.]+$", max_length=200)],
    path: Folder = ".",
    extensions: Extensions = None,
) -> dict[str, Any]:
    """Find every line that uses a name as a whole word, in source code in the workspace; tells which declare it."""
    word = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])")

    def uses(line: str) -> bool:
        return name in line and word.search(line) is not None

    answer = searched_lines(context, path, matching(uses), limit=MATCH_LIMIT, wanted=_wanted(extensions), skip=SKIPPED)
    for match in answer["matches"]:
        declared = _declared(match["text"])
        if declared is not None and declared[1].split(".")[-1] == name.split(".")[-1]:
            match["declares"] = True
    return answer


def _wanted(extensions: list[str] | None) -> Callable[[str], bool]:
    endings = tuple(f".{extension.strip().lstrip('.').lower()}" for extension in extensions or ())
    return lambda name: not endings or name.lower().endswith(endings)


def _python_outline(context: ToolContext, text: str) -> list[dict[str, Any]] | None:
    """Return the outline by the syntax; None for what is no valid Python, or too complex to read."""
    try:
        found: list[dict[str, Any]] | None = run_in_context("outline", context, text=text)
    except TooComplex:
        return None
    return found


def _plain_outline(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outline by the beginnings of lines: no language is parsed, so a declaration in a comment block counts
    too."""
    for number, line in enumerate(lines_of(text), start=1):
        if declared := _declared(line):
            yield {"kind": declared[0], "name": declared[1], "line": number}


def _declared(line: str) -> tuple[str, str] | None:
    """Kind and name of what the line declares."""
    words = line[:LINE_LIMIT].strip()
    while (first := words.partition(" "))[0] in MODIFIERS and not DECLARATIONS[3].match(words):
        words = first[2].lstrip()
    for pattern in DECLARATIONS:
        if found := pattern.match(words):
            kind = found["kind"]
            return ("function" if kind in {"func", "fn", "def", "fun", "sub"} or "=>" in kind else kind), found["name"]
    return None
