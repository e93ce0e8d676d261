"""Documents in the workspace: PDF, office files, web pages and texts, searched and read as text."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from capabilities.assistant.builtin._lib import attached, workspace
from capabilities.assistant.builtin._lib.page_cache import keep_page, kept_page
from capabilities.assistant.builtin._lib.passages import Passage, best_of
from capabilities.common.confined import ConfinedError, run
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.names import words_of
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="document",
    title="Documents",
    description="Search and read PDF, Word, Excel, PowerPoint and other documents in the organisation's workspace.",
    keywords=(
        "document",
        "documents",
        "pdf",
        "docx",
        "spreadsheet",
        "excel",
        "powerpoint",
        "slides",
        "handbook",
    ),
)

#: Endings of names that are documents.
KINDS = frozenset(["pdf", "docx", "pptx", "xlsx", "odt", "ods", "odp", "html", "htm", "md", "txt", "rst", "csv", "tsv"])
#: Bytes of one document, characters of its text that are looked at, and of a text that is kept for the next search.
MAX_BYTES = 20_000_000
MAX_TEXT = 1_000_000
MAX_KEPT = 200_000
#: Documents of one list, and of one search.
MOST = 200
#: Seconds for which a text is kept, as long as its document does not change.
KEPT_SECONDS = 3_600
#: Characters of one passage, and passages of one answer.
PASSAGE = 1_000
HITS = 10
#: Characters of one reading.
READ_CHARS = 30_000
SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__"})

Folder = Annotated[str, Field(description="A folder, or one document.", max_length=1_000)]
Document = Annotated[str, Field(description="A document.", min_length=1, max_length=1_000)]


@tool(category="document", effect="read", human_format="Listing the documents in {path}")
def document_list(context: ToolContext, path: Folder = ".") -> dict[str, Any]:
    """List the documents of the workspace, newest first: PDF, Word, Excel, PowerPoint, OpenDocument, HTML and texts."""
    found = sorted(_documents(context, path), key=lambda each: -each.status.st_mtime)
    rows = [
        {
            "path": each.path,
            "bytes": each.status.st_size,
            "changed": datetime.fromtimestamp(each.status.st_mtime, UTC).date().isoformat(),
        }
        for each in found[:MOST]
    ]
    return {"documents": rows} | ({"more": len(found) - MOST} if len(found) > MOST else {})


@tool(category="document", effect="read", timeout=60.0, human_format="Searching documents for {query}")
def document_search(
    context: ToolContext,
    query: Annotated[str, Field(description="Words to look for.", min_length=1, max_length=500)],
    path: Folder = ".",
) -> dict[str, Any]:
    """Find passages about something in the documents of the workspace, the best first, with document and page."""
    words = list(dict.fromkeys(words_of(query)))
    if not words:
        raise ToolError("Name at least one word to look for.")
    documents = list(_documents(context, path))
    until, unread = time.monotonic() + context.timeout * 0.8, list[str]()
    found = best_of(_passages(context, documents[:MOST], until, unread), words)
    unread += [each.path for each in documents[MOST:]]
    return {"found": found[:HITS]} | ({"not_searched": len(unread), "such_as": unread[:5]} if unread else {})


@tool(category="document", effect="read", timeout=30.0, human_format="Reading {path}")
def document_read(
    context: ToolContext,
    path: Document,
    first: Annotated[int, Field(description="First page, slide or sheet.", ge=1, le=2_000)] = 1,
    last: Annotated[int, Field(description="Last one; 0 for as many as fit.", ge=0, le=2_000)] = 0,
) -> dict[str, Any]:
    """Read a document of the workspace as text, from one page to another."""
    kind = _kind_of(path)
    if kind not in KINDS:
        raise ToolError(f"{path} is no document: it must end in {', '.join(sorted(KINDS))}. Use file_read for others.")
    text = _attached_text(context, path, context.timeout * 0.9)
    if text is None:
        status = workspace.status_of(context.workspace, path)
        text = _text(context, path, status.st_size, status.st_mtime_ns, context.timeout * 0.9)
    parts = text["parts"]
    if first > len(parts):
        raise ToolError(f"{path} has {len(parts)} pages.")
    shown, room, end = list[str](), READ_CHARS, min(last or len(parts), len(parts))
    for part in parts[first - 1 : max(end, first)]:
        if shown and len(part) > room:
            break
        shown.append(part[:room])
        room -= len(part)
    read = {"pages": len(parts), "first": first, "last": first + len(shown) - 1, "text": "\n\n".join(shown)}
    cut = room < 0 or not text["whole"]
    return read | ({"note": "This is not all: the text is longer than can be read."} if cut else {})


def _documents(context: ToolContext, path: str) -> Iterator[workspace.Entry]:
    parts = workspace.parts_of(path)
    if parts and _kind_of(parts[-1]) in KINDS:
        status = workspace.status_of(context.workspace, path)
        entry = workspace.Entry("/".join(parts), parts[-1], -1, status)
        if entry.kind == "file":
            yield entry
            return
    for each in workspace.walk(context.workspace, path, recursive=True, skip=SKIPPED):
        if each.kind == "file" and _kind_of(each.name) in KINDS:
            yield each


def _kind_of(name: str) -> str:
    return PurePosixPath(name).suffix[1:].lower()


def _passages(
    context: ToolContext, documents: list[workspace.Entry], until: float, unread: list[str]
) -> Iterator[Passage]:
    """Yield the passages of each document that can be read in time; the names of the others go to `unread`."""
    for each in documents:
        remaining = until - time.monotonic()
        if remaining <= 0 or context.stopped.is_set():
            unread.append(each.path)
            continue
        try:
            text = _text(context, each.path, each.status.st_size, each.status.st_mtime_ns, remaining)
        except ToolError:
            unread.append(each.path)
            continue
        if not text["whole"]:
            unread.append(f"{each.path} (its end)")
        many = len(text["parts"]) > 1
        for number, part in enumerate(text["parts"], 1):
            source = {"document": each.path} | ({"page": number} if many else {})
            for passage in _pieces(part):
                yield Passage(source, passage, PurePosixPath(each.path).stem)


def _pieces(text: str) -> Iterator[str]:
    """The text in passages of whole paragraphs, as long as they are short."""
    piece = ""
    for paragraph in re.split(r"\n\s*\n", text):
        if piece and len(piece) + len(paragraph) > PASSAGE:
            yield piece
            piece = ""
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
        while len(piece) > 2 * PASSAGE:
            yield piece[:PASSAGE]
            piece = piece[PASSAGE:]
    if piece.strip():
        yield piece


def _text(context: ToolContext, path: str, size: int, changed: int, seconds: float) -> dict[str, Any]:
    """{"parts", "whole"} of a document, from the cache where it has not changed. Raises ToolError, with its path."""
    asked = {"document": path, "bytes": size, "changed": changed}
    kept = kept_page(context.organisation_id, asked, KEPT_SECONDS)
    if kept is not None:
        return kept[0]
    if size > MAX_BYTES:
        raise ToolError(f"{path} has {size:,} bytes; {MAX_BYTES:,} can be read.")
    with workspace.open_file(context.workspace, path) as file:
        if file is None:
            raise ToolError(f"There is no {path} in the workspace.")
        text = _parsed(context, path, file.read(MAX_BYTES), seconds)
    if sum(map(len, text["parts"])) <= MAX_KEPT:
        keep_page(context.organisation_id, asked, text, KEPT_SECONDS)
    return text


def _attached_text(context: ToolContext, path: str, seconds: float) -> dict[str, Any] | None:
    """{"parts", "whole"} of a document that was attached to a message of the session; None where there is none at this
    path. It is read anew each time: the cache belongs to the whole organisation. Raises ToolError."""
    content = attached.content_of(context, path)
    return None if content is None else _parsed(context, path, content, seconds)


def _parsed(context: ToolContext, path: str, content: bytes, seconds: float) -> dict[str, Any]:
    """{"parts", "whole"} of a document's bytes. Raises ToolError, with its path."""
    data = base64.b64encode(content).decode()
    arguments = {"data": data, "kind": _kind_of(path), "most": MAX_TEXT, "seconds": min(4.0, seconds)}
    limits: dict[str, Any] = {"seconds": min(5.0, seconds), "wait": seconds, "stopped": context.stopped}
    try:
        text: dict[str, Any] = run("document", arguments, context.organisation_id, **limits)
    except ConfinedError as error:
        raise ToolError(f"{path} could not be read: {error}") from error
    if "error" in text:
        raise ToolError(f"{path} could not be read: {text['error']}")
    return text
