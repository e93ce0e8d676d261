"""Lines of the workspace's text files, searched within bounds of bytes and time. Knows no tool."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from capabilities.assistant.builtin._lib import workspace
from capabilities.common.confined import run
from capabilities.contract.context import ToolContext, ToolError

#: A search skips longer lines, and ends after so many bytes or seconds.
LINE_LIMIT = 2_000
SEARCH_BYTES = 20_000_000
SEARCH_SECONDS = 10.0
#: Characters of a line shown with a match.
SHOWN_LINE = 400
#: Characters of the lines that are matched at once: few at first, for the first may be enough.
FIRST_BATCH = 100_000
LARGEST_BATCH = 5_000_000

#: The places of the first lines that match, at most so many.
Matcher = Callable[[Sequence[str], int], Sequence[int]]


@dataclass(frozen=True)
class SourceLine:
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
    matches: Matcher,
    *,
    limit: int,
    wanted: Callable[[str], bool],
    skip: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The lines that match, at most so many, in files whose names are wanted; with notes on what was left out."""
    notes: set[str] = set()
    found: list[dict[str, Any]] = []
    for batch in _batches(_lines(context, path, wanted, skip, notes)):
        for index in matches([line.text for line in batch], limit + 1 - len(found)):
            line = batch[index]
            found.append({"file": line.file, "line": line.number, "text": line.text.strip()[:SHOWN_LINE]})
        if len(found) > limit:
            notes.add("There are more matches.")
            break
    return {"matches": found[:limit]} | ({"notes": sorted(notes)} if notes else {})


def line_matcher(context: ToolContext, pattern: str, regex: bool, ignore_case: bool) -> Matcher:
    """Which lines match. A regular expression runs in a child process: one can hold a process for hours. Raises
    ToolError for one that is not taken."""
    if regex:
        return _regex_matcher(context, pattern, ignore_case)
    wanted = pattern.casefold() if ignore_case else pattern
    return matching(lambda line: wanted in (line.casefold() if ignore_case else line))


def matching(is_match: Callable[[str], bool]) -> Matcher:
    """The matcher of a plain function."""
    return lambda lines, limit: list(islice((index for index, line in enumerate(lines) if is_match(line)), limit))


def _regex_matcher(context: ToolContext, pattern: str, ignore_case: bool) -> Matcher:
    """Return a matcher that runs the regular expression in a child process."""
    deadline = time.monotonic() + context.timeout * 0.9

    def matches(lines: Sequence[str], limit: int) -> Sequence[int]:
        arguments = {"pattern": pattern, "ignore_case": ignore_case, "lines": lines, "most": limit}
        remaining = max(0.0, deadline - time.monotonic())
        found: list[int] | None = run(
            "pattern", arguments, context.organisation_id, seconds=remaining, wait=remaining, stopped=context.stopped
        )
        if found is None:
            raise ToolError("The regular expression is malformed, too large, or uses look-around or back references.")
        return found

    matches([], 1)
    return matches


def _batches(lines: Iterator[SourceLine]) -> Iterator[list[SourceLine]]:
    batch: list[SourceLine] = []
    limit, size = FIRST_BATCH, 0
    for line in lines:
        batch.append(line)
        size += len(line.text) + 1
        if size >= limit:
            yield batch
            batch, limit, size = [], min(limit * 4, LARGEST_BATCH), 0
    if batch:
        yield batch


def _lines(
    context: ToolContext, path: str, wanted: Callable[[str], bool], skip: frozenset[str], notes: set[str]
) -> Iterator[SourceLine]:
    """Each line to search, until the bytes or the time are used up."""
    deadline = time.monotonic() + min(SEARCH_SECONDS, context.timeout / 2)
    remaining = SEARCH_BYTES
    for name, content in _contents(context, path, wanted, skip):
        remaining -= len(content.data)
        if content.truncated:
            notes.add(f"Of files over {workspace.READ_LIMIT} bytes only the beginning was searched.")
        for number, line in enumerate(lines_of(text_of(content) or ""), start=1):
            if context.stopped.is_set() or time.monotonic() > deadline or remaining < 0:
                notes.add("The search stopped before its end: name a smaller folder, or fewer files.")
                return
            if len(line) > LINE_LIMIT:
                notes.add(f"Lines over {LINE_LIMIT} characters were skipped.")
            else:
                yield SourceLine(name, number, line.rstrip("\r\n"))


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
