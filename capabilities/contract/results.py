"""A tool's result that is more than text: files beside it, and data of a structure. Pure.

Most tools return text or JSON, and need none of this. A file is kept for people and for the session; the model reads
its line in the text, because results of tools are text in every dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Bytes of one file and of all files of one result.
MAX_FILE = 5_000_000
MAX_FILES = 10_000_000


@dataclass(frozen=True)
class ResultFile:
    """One file that came with a result: an image, a sound, a document."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True)
class ToolResult:
    """What a tool returned. `text` is all that the model reads, lines about `files` and `links` included."""

    text: str
    #: The same as data, where the far side sent some; it fits the tool's output schema, where there is one.
    structured: Mapping[str, Any] | None = None
    files: tuple[ResultFile, ...] = ()
    #: Addresses that the far side names, as (address, what it is); nothing opens them by itself.
    links: tuple[tuple[str, str], ...] = ()
    #: The far side says that the call failed: the model reads `text` as the error.
    is_error: bool = False
