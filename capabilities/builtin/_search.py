"""Lines of the workspace's text files, searched within bounds of bytes and time. Knows no tool."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from capabilities.builtin import _workspace as workspace
from capabilities.contract.context import ToolContext, ToolError

#: A search skips longer lines, and ends after so many bytes or seconds.
LINE_LIMIT = 2_000
SEARCH_BYTES = 20_000_000
SEARCH_SECONDS = 10.0
#: Characters of a line shown with a match.
SHOWN_LINE = 400
#: Bytes that a compiled pattern may take.
PATTERN_BYTES = 1_000_000


@dataclass(frozen=True)
class Line:
    """A line of a file; numbers count from 1."""

    file: str
    number: int
    text: str


def text_of(content: workspace.Content) -> str | None:
    """The text of a file, or None where it is no UTF-8 text. A character cut in two at the end is left out."""
    if b"\0" in content.data:
        return None
    for cut in range(4 if content.truncated else 1):
        try:
            return content.data[: len(content.data) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return None


def lines_of(text: str) -> list[str]:
    """Lines with their endings. Only a line feed ends one, as in every editor; str.splitlines knows eight more ends."""
    return list(io.StringIO(text, newline="\n"))


def searched_lines(
    context: ToolContext,
    path: str,
    matches: Callable[[str], bool],
    *,
    limit: int,
    wanted: Callable[[str], bool],
    skip: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The lines that match, at most so many, in files whose names are wanted; with notes on what was left out."""
    notes: set[str] = set()
    found: list[dict[str, Any]] = []
    for line in _lines(context, path, wanted, skip, notes):
        if matches(line.text):
            if len(found) == limit:
                notes.add("There are more matches.")
                break
            found.append({"file": line.file, "line": line.number, "text": line.text.strip()[:SHOWN_LINE]})
    return {"matches": found} | ({"notes": sorted(notes)} if notes else {})


def line_matcher(pattern: str, regex: bool, ignore_case: bool) -> Callable[[str], bool]:
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


def _lines(
    context: ToolContext, path: str, wanted: Callable[[str], bool], skip: frozenset[str], notes: set[str]
) -> Iterator[Line]:
    """Each line to search, until the bytes or the time are used up."""
    deadline = time.monotonic() + min(SEARCH_SECONDS, context.timeout / 2)
    left = SEARCH_BYTES
    for name, content in _contents(context, path, wanted, skip):
        left -= len(content.data)
        if content.truncated:
            notes.add(f"Of files over {workspace.READ_LIMIT} bytes only the beginning was searched.")
        for number, line in enumerate(lines_of(text_of(content) or ""), start=1):
            if context.stopped.is_set() or time.monotonic() > deadline or left < 0:
                notes.add("The search stopped before its end: name a smaller folder, or fewer files.")
                return
            if len(line) > LINE_LIMIT:
                notes.add(f"Lines over {LINE_LIMIT} characters were skipped.")
            else:
                yield Line(name, number, line.rstrip("\r\n"))


def _contents(
    context: ToolContext, path: str, wanted: Callable[[str], bool], skip: frozenset[str]
) -> Iterator[tuple[str, workspace.Content]]:
    if workspace.parts_of(path) and workspace.kind_of(workspace.status_of(context.workspace, path)) == "file":
        yield path, workspace.read_file(context.workspace, path)
        return
    for entry in workspace.walk(context.workspace, path, recursive=True, skip=skip):
        if entry.kind != "file" or not wanted(entry.name):
            continue
        try:
            yield entry.path, workspace.read_in(entry.folder, entry.name)
        except (OSError, ToolError):
            continue  # gone or exchanged since it was listed, or not ours to read
