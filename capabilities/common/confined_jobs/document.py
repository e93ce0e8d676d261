"""The text of a document: PDF, Word, Excel, PowerPoint, OpenDocument, HTML, or plain text. Runs nothing of it."""

from __future__ import annotations

import base64
import io
import re
import time
import zipfile
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring
from pypdf import PdfReader
from pypdf.errors import PyPdfError

from capabilities.common.confined_jobs.page import readable

#: Bytes of one part of an archive, and of all of them, as they are unpacked.
PART_BYTES = 20_000_000
ALL_BYTES = 60_000_000
#: Pages, slides or sheets of one document.
MOST_PARTS = 2_000
#: Elements that end a line of text, and those for a tab or a space, in the XML of Word, PowerPoint and OpenDocument.
PARAGRAPHS = frozenset({"p", "h", "tr", "table-row"})
SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "line-break": "\n", "s": " "}
CELLS = frozenset({"tc", "table-cell"})


class Unreadable(Exception):
    """The document is not what its name says, or is locked."""


def run(data: str, kind: str, most: int, seconds: float) -> dict[str, Any]:
    """Return `parts`, the text of each page, slide or sheet, `most` characters in all; whether this is the `whole`; or,
    where it cannot be read, the reason as `error`. `data` is base64, `kind` the ending of its name."""
    deadline = time.monotonic() + seconds
    parts, room, whole = list[str](), most, True
    try:
        for text in READERS[kind](base64.b64decode(data)):
            if room <= 0 or len(parts) >= MOST_PARTS or time.monotonic() > deadline:
                whole = False
                break
            whole = whole and len(text) <= room
            parts.append(text[:room])
            room -= len(text)
    except Unreadable as error:
        return {"error": str(error)}
    except (PyPdfError, zipfile.BadZipFile, KeyError, ValueError, IndexError, TypeError, SyntaxError, OSError):
        return {"error": f"It is no {kind} document, or a damaged one."}
    return {"parts": parts, "whole": whole}


def _pdf(data: bytes) -> Iterator[str]:
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("It is locked with a password.")
    for page in reader.pages:
        yield _tidy(page.extract_text() or "")


def _text(data: bytes) -> Iterator[str]:
    if b"\0" in data[:8_000]:
        raise Unreadable("It is no text.")
    yield data.decode("utf-8-sig", "replace")


def _html(data: bytes) -> Iterator[str]:
    title, text, _ = readable(data.decode("utf-8", "replace"), main=True)
    yield f"{title}\n\n{text}" if title else text


def _word(data: bytes) -> Iterator[str]:
    archive = _Archive(data)
    yield _tidy(_words(archive.tree("word/document.xml")))


def _slides(data: bytes) -> Iterator[str]:
    archive = _Archive(data)
    for name in archive.numbered(r"ppt/slides/slide(\d+)\.xml"):
        yield _tidy(_words(archive.tree(name)))


def _open_document(data: bytes) -> Iterator[str]:
    yield _tidy(_words(_Archive(data).tree("content.xml")))


def _sheets(data: bytes) -> Iterator[str]:
    """Each sheet as lines of cells with tabs between them; a formula as its last value."""
    archive = _Archive(data)
    shared = list[str]()
    if archive.has("xl/sharedStrings.xml"):
        shared = [_words(item).strip() for item in archive.tree("xl/sharedStrings.xml") if _tag(item) == "si"]
    for name in archive.numbered(r"xl/worksheets/sheet(\d+)\.xml"):
        rows = [each for each in archive.tree(name).iter() if _tag(each) == "row"]
        lines = ["\t".join(_cell(cell, shared) for cell in row if _tag(cell) == "c") for row in rows]
        yield "\n".join(line.rstrip() for line in lines if line.strip())


def _cell(cell: Element, shared: list[str]) -> str:
    if cell.get("t") == "inlineStr":
        return _words(cell).strip()
    value = next((each.text or "" for each in cell if _tag(each) == "v"), "")
    if cell.get("t") == "s":
        number = int(value)
        return shared[number] if 0 <= number < len(shared) else ""
    return value


class _Archive:
    """A zip whose parts are unpacked one by one, up to a size."""

    def __init__(self, data: bytes) -> None:
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self._room = ALL_BYTES

    def has(self, name: str) -> bool:
        return name in self._zip.NameToInfo

    def numbered(self, pattern: str) -> list[str]:
        """Names that match, by the number in them."""
        found = [(int(match[1][:9]), name) for name in self._zip.namelist() if (match := re.fullmatch(pattern, name))]
        return [name for _, name in sorted(found)]

    def tree(self, name: str) -> Element:
        """Return the XML of one part of the archive. Raises Unreadable where it is too large unpacked."""
        with self._zip.open(name) as part:
            text = part.read(min(PART_BYTES, self._room) + 1)
        self._room -= len(text)
        if len(text) > PART_BYTES or self._room < 0:
            raise Unreadable("It is too large once it is unpacked.")
        tree: Element = fromstring(text)
        return tree


def _words(tree: Element) -> str:
    """The text of a tree in its order, with a line for each paragraph. Without recursion: it may be deep."""
    pieces, stack = list[str](), [(tree, False)]
    while stack:
        element, is_end = stack.pop()
        tag = _tag(element)
        if is_end:
            if tag in PARAGRAPHS:
                pieces.append("\n")
            elif tag in CELLS:
                pieces.append("\t")
            pieces.append(_text_of(element.tail))
            continue
        pieces.append(SPACES.get(tag, ""))
        pieces.append(_text_of(element.text))
        stack.append((element, True))
        stack.extend((child, False) for child in reversed(element))
    return "".join(pieces)


def _text_of(text: str | None) -> str:
    """White space that only indents the XML is none of the text."""
    return "" if text is None or ("\n" in text and not text.strip()) else text


def _tag(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _tidy(text: str) -> str:
    lines = [re.sub(r"[ \u00a0]+", " ", line).strip() for line in text.splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


READERS = {
    "pdf": _pdf,
    "docx": _word,
    "pptx": _slides,
    "xlsx": _sheets,
    "odt": _open_document,
    "ods": _open_document,
    "odp": _open_document,
    "html": _html,
    "htm": _html,
    "md": _text,
    "txt": _text,
    "rst": _text,
    "csv": _text,
    "tsv": _text,
}
