"""A tool's result that is more than text: files beside it, and data of a structure. Pure.

Most tools return text or JSON, and need none of this. A file is kept for people and for the session; the model reads
its line in the text, because results of tools are text in every dialect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Bytes of one file and of all files of one result, and how many there may be.
MAX_FILE = 5_000_000
MAX_FILES = 10_000_000
MOST_FILES = 20
#: Characters of a file's name, and what a media type looks like.
MAX_NAME = 200
UNKNOWN_TYPE = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class ResultFile:
    """One file that came with a result: an image, a sound, a document."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True)
class ToolResult:
    """Result of a tool. `text` is all that the model reads, lines about `files` and `links` included."""

    text: str
    #: Result as data, where the far side sent some; it fits the tool's output schema, where there is one.
    structured: Mapping[str, Any] | None = None
    files: tuple[ResultFile, ...] = ()
    #: Addresses that the far side names, as (address, what it is); nothing opens them by itself.
    links: tuple[tuple[str, str], ...] = ()
    #: The far side says that the call failed: the model reads `text` as the error.
    is_error: bool = False


def fitting(files: Sequence[ResultFile]) -> tuple[tuple[ResultFile, ...], list[str]]:
    """The files that may be kept, and a line for each that is too large, or one too many."""
    kept: list[ResultFile] = []
    left_out, total = [], 0
    for each in files:
        size = len(each.content)
        if size > MAX_FILE or total + size > MAX_FILES or len(kept) >= MOST_FILES:
            left_out.append(f"(The file {each.name[:MAX_NAME]} of {size:,} bytes was not kept: that is too much.)")
            continue
        kept.append(each)
        total += size
    return tuple(kept), left_out


def plain_media_type(given: str) -> str:
    """The media type without its parameters; that of unknown bytes where it is none."""
    plain = given.split(";", 1)[0].strip().lower()
    return plain if _MEDIA_TYPE.fullmatch(plain) else UNKNOWN_TYPE
