"""Files of the organisation's workspace, as tools. Knows text and lines; how a path is walked, _workspace knows."""

from __future__ import annotations

import difflib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import jsonschema_rs
from pydantic import Field

from capabilities.builtin import _workspace as workspace
from capabilities.builtin._syntax import CHECKS, SUFFIXES, first_flaw
from capabilities.contract.context import ToolContext, ToolError
from capabilities.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="file",
    title="Files",
    description="Text files in the organisation's workspace.",
    keywords=(
        "read file",
        "show file",
        "open file",
        "list files",
        "list file",
        "directory",
        "grep",
        "find in",
        "search in",
        "diff",
        "compare",
        "syntax check",
    ),
    is_core=True,
)

#: Entries of one listing, matches of one search, characters of a line shown with a match.
LIST_LIMIT = 500
MATCH_LIMIT = 200
SHOWN_LINE = 400
#: A search skips longer lines, and ends after so many bytes or seconds.
LINE_LIMIT = 2_000
SEARCH_BYTES = 20_000_000
SEARCH_SECONDS = 10.0
#: Lines of a text that is compared: difflib takes quadratic time.
DIFF_LINES = 5_000
#: Bytes that a compiled pattern may take.
PATTERN_BYTES = 1_000_000

Path = Annotated[str, Field(description="Relative to the workspace.", max_length=1_000)]
Glob = Annotated[str | None, Field(description="Only names like *.py.", max_length=200)]


@tool(category="file", effect="read", human_format="Reading {path}")
def file_read(
    context: ToolContext,
    path: Path,
    offset: Annotated[int, Field(description="First line, from 1.", ge=1)] = 1,
    limit: Annotated[int, Field(description="Lines.", ge=1, le=5_000)] = 1_000,
) -> dict[str, Any]:
    """Read lines of a text file in the workspace."""
    content = workspace.read_file(context.workspace, path)
    text = _text(content)
    if text is None:
        return {"path": path, "binary": True, "bytes": content.size}
    lines = _lines(text)
    shown = lines[offset - 1 : offset - 1 + limit]
    result: dict[str, Any] = {"path": path, "text": "".join(shown), "total_lines": len(lines)}
    if len(shown) < len(lines):
        result["lines"] = f"{offset}-{offset + len(shown) - 1}" if shown else "none"
    if content.truncated:
        result["truncated"] = f"Only the first {len(content.data)} of {content.size} bytes were read."
    return result


@tool(category="file", effect="read", human_format="Listing {path}")
def file_list(context: ToolContext, path: Path = ".", glob: Glob = None, recursive: bool = False) -> dict[str, Any]:
    """List files and folders of a workspace folder, with recursive also those in folders below it."""
    entries: list[dict[str, Any]] = []
    more = 0
    for entry in workspace.walk(context.workspace, path, recursive=recursive):
        if glob and not fnmatchcase(entry.name, glob):
            continue
        if len(entries) == LIST_LIMIT:
            more += 1
            continue
        row: dict[str, Any] = {"path": entry.path, "type": entry.kind}
        if entry.kind == "file":
            row["bytes"] = entry.status.st_size
        entries.append(row)
    return {"entries": entries} | ({"more": more} if more else {})


# No retry after a crash: an append that had been made would be made twice.
@tool(category="file", effect="write", human_format="Writing {path}")
def file_write(
    context: ToolContext,
    path: Path,
    text: Annotated[str, Field(max_length=workspace.WRITE_LIMIT)],
    mode: Literal["create", "overwrite", "append"] = "create",
) -> dict[str, Any]:
    """Write a text file in the workspace; missing folders are made. The mode create refuses a file that exists."""

    def change(before: bytes | None) -> bytes:
        if mode == "create" and before is not None:
            raise ToolError(f"{path} exists already: use the mode overwrite or append.")
        return (before or b"") + text.encode() if mode == "append" else text.encode()

    return {"path": path, "bytes": workspace.write_file(context.workspace, path, change)}


@tool(category="file", effect="read", human_format="Comparing {path}")
def file_diff(
    context: ToolContext,
    path: Path,
    other_path: Annotated[str | None, Field(description="The newer file.", max_length=1_000)] = None,
    other_text: Annotated[
        str | None, Field(description="Or the newer text itself.", max_length=workspace.READ_LIMIT)
    ] = None,
) -> str:
    """Compare a file with another file or with a text, as a unified diff."""
    if (other_path is None) == (other_text is None):
        raise ToolError("Give either other_path or other_text.")
    before = _comparable(path, _whole_text(context, path))
    newer = _whole_text(context, other_path) if other_path is not None else other_text or ""
    after = _comparable(other_path or "The text", newer)
    lines = difflib.unified_diff(before, after, path, other_path or "text", lineterm="")
    return "\n".join(lines) or "No differences."


@tool(category="file", effect="read", human_format="Searching for {pattern}")
def file_grep(
    context: ToolContext,
    pattern: Annotated[str, Field(min_length=1, max_length=500)],
    path: Annotated[str, Field(description="File or folder.", max_length=1_000)] = ".",
    glob: Glob = None,
    regex: bool = False,
    ignore_case: bool = False,
) -> dict[str, Any]:
    """Find lines that contain a text, in a file or in all files below a folder.

    With regex the pattern is a regular expression without look-around and back references.
    """
    matches = _matcher(pattern, regex, ignore_case)
    found: list[dict[str, Any]] = []
    notes: set[str] = set()
    for name, number, line in _searched(context, path, glob, notes):
        if len(line) > LINE_LIMIT:
            notes.add(f"Lines over {LINE_LIMIT} characters were skipped.")
        elif matches(line.rstrip("\r\n")):
            found.append({"file": name, "line": number, "text": line.strip()[:SHOWN_LINE]})
        if len(found) > MATCH_LIMIT:
            return {"matches": found[:MATCH_LIMIT], "notes": [*sorted(notes), "There are more matches."]}
    return {"matches": found} | ({"notes": sorted(notes)} if notes else {})


@tool(category="file", effect="read", human_format="Checking the syntax of {path}")
def file_syntax_check(
    context: ToolContext,
    path: Path,
    language: Annotated[
        Literal["python", "json", "toml", "yaml"] | None, Field(description="Default: by the file's ending.")
    ] = None,
) -> dict[str, Any]:
    """Check whether a Python, JSON, TOML or YAML file is well-formed, without running it."""
    kind = language or SUFFIXES.get(PurePosixPath(path).suffix.lower(), "")
    if kind not in CHECKS:
        raise ToolError(f"Say the language of {path}: {', '.join(CHECKS)}.")
    flaw = first_flaw(kind, _whole_text(context, path))
    if flaw is None:
        return {"path": path, "language": kind, "ok": True}
    known = {name: value for name, value in asdict(flaw).items() if value is not None}
    return {"path": path, "language": kind, "ok": False} | known


@tool(category="file", effect="read", human_format="Looking at {path}")
def file_stat(context: ToolContext, path: Path) -> dict[str, Any]:
    """Tell type, size and time of change of a file or folder in the workspace."""
    status = workspace.status_of(context.workspace, path)
    modified = datetime.fromtimestamp(status.st_mtime, tz=context.now().tzinfo)
    row: dict[str, Any] = {"path": path, "type": workspace.kind_of(status)}
    if row["type"] == "file":
        row["bytes"] = status.st_size
    return row | {"modified": modified.isoformat(timespec="seconds")}


def _text(content: workspace.Content) -> str | None:
    """The text of a file, or None where it is no UTF-8 text. A character cut in two at the end is left out."""
    if b"\0" in content.data:
        return None
    for cut in range(4 if content.truncated else 1):
        try:
            return content.data[: len(content.data) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return None


def _whole_text(context: ToolContext, path: str) -> str:
    content = workspace.read_file(context.workspace, path)
    text = _text(content)
    if text is None:
        raise ToolError(f"{path} is no UTF-8 text.")
    if content.truncated:
        raise ToolError(f"{path} has {content.size} bytes; at most {workspace.READ_LIMIT} can be taken.")
    return text


def _lines(text: str) -> list[str]:
    """Lines with their endings. Only a line feed ends one, as in every editor; str.splitlines knows eight more ends."""
    return list(io.StringIO(text, newline="\n"))


def _comparable(name: str, text: str) -> list[str]:
    lines = [line.rstrip("\r\n") for line in _lines(text)]
    if len(lines) > DIFF_LINES:
        raise ToolError(f"{name} has {len(lines)} lines; at most {DIFF_LINES} can be compared.")
    return lines


def _searched(context: ToolContext, path: str, glob: str | None, notes: set[str]) -> Iterator[tuple[str, int, str]]:
    """File, number and text of each line to search, until the bytes or the time are used up."""
    deadline = time.monotonic() + min(SEARCH_SECONDS, context.timeout / 2)
    left = SEARCH_BYTES
    for name, content in _contents(context, path, glob):
        left -= len(content.data)
        if content.truncated:
            notes.add(f"Of files over {workspace.READ_LIMIT} bytes only the beginning was searched.")
        for number, line in enumerate(_lines(_text(content) or ""), start=1):
            if context.stopped.is_set() or time.monotonic() > deadline or left < 0:
                notes.add("The search stopped before its end: name a smaller folder, or a glob.")
                return
            yield name, number, line


def _contents(context: ToolContext, path: str, glob: str | None) -> Iterator[tuple[str, workspace.Content]]:
    if workspace.parts_of(path) and workspace.kind_of(workspace.status_of(context.workspace, path)) == "file":
        yield path, workspace.read_file(context.workspace, path)
        return
    for entry in workspace.walk(context.workspace, path, recursive=True):
        if entry.kind != "file" or (glob and not fnmatchcase(entry.name, glob)):
            continue
        try:
            yield entry.path, workspace.read_in(entry.folder, entry.name)
        except (OSError, ToolError):
            continue  # gone or exchanged since it was listed, or not ours to read


def _matcher(pattern: str, regex: bool, ignore_case: bool) -> Callable[[str], bool]:
    """Whether a line matches. A regular expression runs on an engine without backtracking, in time linear in the line:
    Python's own can take hours for `(a+)+$`, holds every other thread meanwhile, and cannot be interrupted. The one at
    hand is Rust's, behind the `pattern` of a JSON Schema.
    """
    if not regex:
        wanted = pattern.casefold() if ignore_case else pattern
        return lambda line: wanted in (line.casefold() if ignore_case else line)
    schema = {"pattern": f"(?i:{pattern})" if ignore_case else pattern}
    limits = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_BYTES)
    try:
        return jsonschema_rs.Draft202012Validator(schema, pattern_options=limits).is_valid
    except jsonschema_rs.ValidationError:
        raise ToolError(
            "The regular expression is malformed, too large, or uses look-around or back references."
        ) from None
