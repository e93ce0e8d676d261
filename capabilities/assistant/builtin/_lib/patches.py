"""Unified diffs, read and applied to texts. Pure: knows no file.

What a model writes is often a line or two off. So a hunk may stand elsewhere than it says, if the lines that it leaves
and takes out are found in one place only; and its numbers of lines may be wrong. The lines must be the file's.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from capabilities.contract.context import ToolError

#: Files of one patch.
MAX_FILES = 100
_HUNK = re.compile(r"@@(?: -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))?)? ?@@|@@\s*\Z")
_NOTHING = "/dev/null"
#: Lines of git that say nothing which the hunks do not say.
_IGNORED = ("diff ", "index ", "new file mode ", "deleted file mode ")
_REFUSED = {
    "rename ": "a rename: delete the file and create the other one",
    "copy ": "a copy: create the file with its whole text",
    "old mode ": "a change of mode, which the workspace does not keep",
    "new mode ": "a change of mode, which the workspace does not keep",
    "GIT binary patch": "a change of a binary file",
    "Binary files ": "a change of a binary file",
}
NO_DIFF = "This is no unified diff: begin each file with a line '--- a/name' and a line '+++ b/name', then its hunks."


@dataclass
class Hunk:
    """One change of a file: lines with their marks, without line ends."""

    title: str
    #: Where it says that it stands, from 1; None where it does not say.
    start: int | None
    lines: list[tuple[str, str]] = field(default_factory=list)
    #: Whether the last line of what comes of it has no end.
    is_unended: bool = False

    @property
    def old(self) -> list[str]:
        """The lines that must be there."""
        return [text for mark, text in self.lines if mark != "+"]

    def count(self, mark: str) -> int:
        return sum(each == mark for each, _ in self.lines)


@dataclass
class FilePatch:
    """Change of one file: `created`, `changed` or `deleted`."""

    path: str
    change: str
    hunks: list[Hunk]

    @property
    def added(self) -> int:
        return sum(hunk.count("+") for hunk in self.hunks)

    @property
    def removed(self) -> int:
        return sum(hunk.count("-") for hunk in self.hunks)

    def applied(self, before: str | None) -> str | None:
        """The file's text behind the change, None where it is deleted. Raises ToolError where it does not fit."""
        if self.change == "created":
            if before is not None:
                raise ToolError(f"{self.path} exists already: the patch says that it is new.")
            before = ""
        if before is None:
            raise ToolError(f"There is no {self.path} in the workspace.")
        after = _Text(self.path, before).with_hunks(self.hunks)
        if self.change != "deleted":
            return after
        if after:
            raise ToolError(f"{self.path} has lines that the patch does not take out, so it is not deleted.")
        return None


def read_patch(patch: str) -> list[FilePatch]:
    """The files of a unified diff, in their order. Raises ToolError, with a sentence that says what is wrong where."""
    lines = patch.replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    files: list[FilePatch] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        for beginning, kind in _REFUSED.items():
            if line.startswith(beginning):
                raise ToolError(f"Line {at + 1} of the patch is {kind}.")
        if _begins_file(lines, at):
            found, at = _read_file(lines, at)
            files.append(found)
        elif not line.strip() or line.startswith(_IGNORED):
            at += 1
        else:
            raise ToolError(f"{NO_DIFF} Line {at + 1} is {line[:80]!r}.")
    _check_files(files)
    return files


def _check_files(files: Sequence[FilePatch]) -> None:
    if not files:
        raise ToolError(NO_DIFF)
    if len(files) > MAX_FILES:
        raise ToolError(f"A patch changes at most {MAX_FILES} files; this one changes {len(files)}.")
    paths = [each.path for each in files]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ToolError(f"{twice} stands in the patch twice: put its hunks together.")


def _begins_file(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


def _read_file(lines: Sequence[str], at: int) -> tuple[FilePatch, int]:
    """Read one file of a patch from line `at` on; return it, and the line behind it. Raises ToolError."""
    old, new = _name(lines[at][4:]), _name(lines[at + 1][4:])
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    elif old == _NOTHING:
        new = new.removeprefix("b/")
    elif new == _NOTHING:
        old = old.removeprefix("a/")
    if old == new == _NOTHING:
        raise ToolError(f"Line {at + 1} of the patch names no file.")
    if _NOTHING not in (old, new) and old != new:
        raise ToolError(f"The patch renames {old} to {new}: delete the one and create the other.")
    change = "created" if old == _NOTHING else "deleted" if new == _NOTHING else "changed"
    found, at = FilePatch(new if old == _NOTHING else old, change, []), at + 2
    while at < len(lines) and _HUNK.match(lines[at]):
        hunk, at = _read_hunk(lines, at, f"Hunk {len(found.hunks) + 1} of {found.path}")
        found.hunks.append(hunk)
    if not found.hunks and change == "changed":
        raise ToolError(f"The patch says of {found.path} nothing that changes: hunks begin with '@@ -1,2 +1,3 @@'.")
    return found, at


def _name(text: str) -> str:
    """A file's name, without the time that some programs put behind it."""
    name = text.split("\t")[0].rstrip()
    if name.startswith('"'):
        raise ToolError(f"Write the name {name[:80]} without quotation marks.")
    return name


def _read_hunk(lines: Sequence[str], at: int, title: str) -> tuple[Hunk, int]:
    found = _HUNK.match(lines[at])
    assert found is not None
    start, old, _, new = found.groups()
    hunk = Hunk(title, None if start is None else int(start))
    body = at + 1
    end = None if start is None else _end_by_numbers(lines, body, int(old or 1), int(new or 1))
    end = _end_by_looks(lines, body) if end is None else end
    for number in range(body, end):
        _add_line(hunk, lines[number])
    if not hunk.count("+") and not hunk.count("-"):
        raise ToolError(f"{title} changes nothing.")
    return hunk, end


def _end_by_numbers(lines: Sequence[str], at: int, old: int, new: int) -> int | None:
    """Return the place where a hunk with so many lines ends; None where its lines are not as many, or more follow."""
    while (old > 0 or new > 0) and at < len(lines):
        mark = lines[at][:1]
        if mark in (" ", "-", ""):
            old -= 1
        if mark in (" ", "+", ""):
            new -= 1
        elif mark not in ("-", "\\"):
            return None
        at += 1
    while at < len(lines) and lines[at].startswith("\\"):
        at += 1
    is_whole = old == 0 and new == 0
    return at if is_whole and (at == len(lines) or _is_outside(lines, at) or not lines[at].strip()) else None


def _end_by_looks(lines: Sequence[str], at: int) -> int:
    while at < len(lines) and not _is_outside(lines, at):
        at += 1
    while at and not lines[at - 1]:  # blank lines between two files
        at -= 1
    return at


def _is_outside(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith(("@@", "diff --git ")) or _begins_file(lines, at)


def _add_line(hunk: Hunk, line: str) -> None:
    mark, text = line[:1] or " ", line[1:]
    if mark == "\\":
        hunk.is_unended = bool(hunk.lines) and hunk.lines[-1][0] != "-"
    elif mark in (" ", "+", "-"):
        hunk.lines.append((mark, text))
    else:
        raise ToolError(f"{hunk.title} has the line {line[:80]!r}: each begins with a space, '+' or '-'.")


class _Text:
    """A file's lines, each with its own end, and where a hunk's lines are among them."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.lines = [each + "\n" for each in text.split("\n")]
        last = self.lines.pop()[:-1]
        self.lines += [last] if last else []
        self.bare = [each.removesuffix("\n").removesuffix("\r") for each in self.lines]
        self.end = "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"
        #: All of them between line feeds, and where each of these stands.
        self.flat = "\n" + "".join(each + "\n" for each in self.bare)
        self.offsets = list(accumulate((len(each) + 1 for each in self.bare), initial=0))

    def with_hunks(self, hunks: Sequence[Hunk]) -> str:
        """Return the text with the hunks applied, in their order. Raises ToolError for one that does not match."""
        made: list[str] = []
        at = 0
        for hunk in hunks:
            line = self._line_of(hunk, at)
            made += self.lines[at:line]
            at = line
            for mark, text in hunk.lines:
                if mark == "+":
                    made.append(text + self.end)
                    continue
                if mark == " ":
                    made.append(self.lines[at])
                at += 1
            if hunk.is_unended and at == len(self.lines) and made:
                made[-1] = made[-1].removesuffix("\n").removesuffix("\r")
        made += self.lines[at:]
        whole = [each if each.endswith("\n") else each + self.end for each in made[:-1]]
        return "".join([*whole, *made[-1:]])

    def _line_of(self, hunk: Hunk, at: int) -> int:
        """The line, counted from 0, that the hunk begins with, at `at` or behind it. Raises ToolError."""
        old = hunk.old
        if not old:
            return self._line_behind(hunk, at)
        stated = None if hunk.start is None else hunk.start - 1
        if stated is not None and stated >= at and self.bare[stated : stated + len(old)] == old:
            return stated
        block = "\n" + "".join(each + "\n" for each in old)
        found = self.flat.find(block, self.offsets[at]) if self.bare else -1
        if found < 0:
            raise ToolError(f"{hunk.title} does not match: {self._difference(old, stated, at)}.")
        first = bisect_left(self.offsets, found)
        again = self.flat.find(block, found + 1)
        if again >= 0:
            where = f"lines {first + 1:,} and {bisect_left(self.offsets, again) + 1:,}"
            raise ToolError(f"{hunk.title} matches at {where} of the file, and maybe more: give it more context.")
        return first

    def _line_behind(self, hunk: Hunk, at: int) -> int:
        """Return the place of a hunk that only adds: behind the line that it names."""
        if not self.lines:
            return 0
        if hunk.start is None or not at <= hunk.start <= len(self.lines):
            raise ToolError(f"{hunk.title} does not say where its lines go: give it some lines of context.")
        return hunk.start

    def _difference(self, old: Sequence[str], stated: int | None, at: int) -> str:
        if stated is None or not at <= stated < len(self.bare):
            return "its lines are not in the file" + (" behind the hunk before it" if at else "")
        for number, text in enumerate(old, start=stated):
            current = repr(self.bare[number][:120]) if number < len(self.bare) else "not there"
            if number >= len(self.bare) or self.bare[number] != text:
                return f"line {number + 1:,} of the file is {current}, and the patch has {text[:120]!r}"
        return "its lines are not in the file"
