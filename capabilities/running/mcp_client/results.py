"""Reading of a call's result: each kind of content has its place. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from capabilities.contract.effects import is_true
from capabilities.contract.results import MAX_FILE, MAX_FILES, ResultFile, ToolResult
from capabilities.running.mcp_client.words import finite, readable

#: Blocks of content that are looked at, and characters of an address and of a name.
MAX_BLOCKS = 200
MAX_ADDRESS = 2_000
MAX_NAME = 200
HIDDEN = "(Characters that nobody sees were taken out of this result.)"
NOTHING = "(The tool returned nothing.)"
NO_NUMBER = "(A number that JSON does not have, such as NaN, became null.)"
#: Fields of a block that hold its words, whatever its type; and fields of a result that are no content.
_WORDS = ("text", "markdown", "html", "json", "content", "value")
_NO_CONTENT = frozenset({"_meta", "isError", "is_error", "content", "structuredContent", "toolResult", "resultType"})
_DATA_URL = re.compile(r"\s*data:([\w.+-]+/[\w.+-]+)?[^,]{0,200},", re.IGNORECASE)
#: Endings of names for media types that are common in results.
ENDINGS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/csv": ".csv",
}


@dataclass
class _Parsed:
    lines: list[str] = field(default_factory=list)
    files: list[ResultFile] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    has_hidden: bool = False
    #: Whether any words of the tool itself came, and not only lines about what else did.
    has_words: bool = False
    bytes_of_files: int = 0

    def add_text(self, text: str) -> None:
        shown, was_hidden = readable(text)
        self.has_hidden = self.has_hidden or was_hidden
        self.has_words = self.has_words or bool(shown.strip())
        self.lines.append(shown)

    def add_value(self, value: Any) -> None:
        """A text, or other JSON as one."""
        self.add_text(value if isinstance(value, str) else json.dumps(finite(value)[0], ensure_ascii=False))

    def word(self, value: Any, limit: int = MAX_NAME) -> str:
        """A short text in one line."""
        shown, was_hidden = readable(value) if isinstance(value, str) else ("", False)
        self.has_hidden = self.has_hidden or was_hidden
        return " ".join(shown.split())[:limit]


def result_of(sent: Mapping[str, Any]) -> ToolResult:
    """The result of `tools/call`, as it was sent. What is malformed is left out, with a line that says so."""
    parsed = _Parsed()
    blocks = _blocks(sent)
    for block in blocks[:MAX_BLOCKS]:
        _read_block(block, parsed)
    if len(blocks) > MAX_BLOCKS:
        parsed.lines.append(f"({len(blocks) - MAX_BLOCKS:,} more pieces of content were left out.)")
    structured, had_none = finite(sent.get("structuredContent"))
    if structured is not None and not parsed.has_words:
        parsed.add_text(json.dumps(structured, ensure_ascii=False))
    if had_none:
        parsed.lines.append(NO_NUMBER)
    if parsed.has_hidden:
        parsed.lines.append(HIDDEN)
    text = "\n".join(parsed.lines)
    return ToolResult(
        text=text if text.strip() else NOTHING,
        structured=_as_object(structured),
        files=tuple(parsed.files),
        links=tuple(parsed.links),
        is_error=is_true(sent.get("isError", sent.get("is_error"))) or _is_bare_error(sent),
    )


def _blocks(sent: Mapping[str, Any]) -> list[Any]:
    """The pieces of content in whatever form: a list, one block, a text, or `toolResult` as in protocol 2024-10-07. Of
    a result without any, all that it has."""
    content = sent.get("content")
    if content is None and sent.get("toolResult") is not None:
        content = sent["toolResult"]
        if isinstance(content, Mapping) and "content" in content:
            return _blocks(content)
        return [content if isinstance(content, str) else json.dumps(finite(content)[0], ensure_ascii=False)]
    if content is None and sent.get("structuredContent") is None:
        rest = {name: value for name, value in sent.items() if name not in _NO_CONTENT and value is not None}
        content = next(iter(rest.values())) if len(rest) == 1 else rest or None
        if isinstance(content, Mapping) and isinstance(content.get("message"), str):
            content = content["message"]
        return [] if content is None else [content if isinstance(content, str) else {"text": content}]
    if content is None:
        return []
    return content if isinstance(content, list) else [content]


def _is_bare_error(sent: Mapping[str, Any]) -> bool:
    """Return whether a result has an error in place of content."""
    return sent.get("content") is None and sent.get("structuredContent") is None and bool(sent.get("error"))


def _as_object(structured: Any) -> Mapping[str, Any] | None:
    """Return the data as an object: protocol 2026-07-28 allows any JSON here, and whoever reads it wants an object."""
    if structured is None or isinstance(structured, dict):
        return structured
    return {"result": structured}


def _read_block(block: Any, parsed: _Parsed) -> None:
    """Add one piece of content to the result: its text, file or link, or a line that says what was left out."""
    inner = block.get("content") if isinstance(block, Mapping) else block
    if isinstance(inner, list) and inner and all(map(_is_leaf, inner)):
        for each in inner[:MAX_BLOCKS]:
            _read_block(each, parsed)
        return
    if not isinstance(block, Mapping):
        if block is not None:
            parsed.add_value(block)
        return
    kind = block.get("type")
    if kind in ("image", "audio"):
        source = block["source"] if isinstance(block.get("source"), Mapping) else block
        media_type = source.get("mimeType") or source.get("mime_type") or source.get("media_type")
        _add_file(source.get("data"), media_type, "", str(kind), parsed)
    elif kind == "resource_link" and isinstance(block.get("uri"), str):
        address = parsed.word(block["uri"], MAX_ADDRESS)
        name = parsed.word(block.get("title")) or parsed.word(block.get("name")) or address
        about = parsed.word(block.get("description"), 500)
        parsed.links.append((address, name))
        parsed.lines.append(f"[link: {name} <{address}>" + (f": {about}]" if about else "]"))
    elif kind == "resource":
        _read_resource(block["resource"] if isinstance(block.get("resource"), Mapping) else block, parsed)
    elif words := [block[name] for name in _WORDS if block.get(name) is not None]:
        parsed.add_value(words[0])
    elif not kind:
        parsed.add_value(dict(block))
    else:
        parsed.lines.append(f"(content of the type {parsed.word(kind) or 'that it has none of'} was left out)")


def _is_leaf(block: Any) -> bool:
    """Return whether it is a block with nothing inside of it."""
    return isinstance(block, Mapping) and isinstance(block.get("type"), str) and "content" not in block


def _read_resource(resource: Mapping[str, Any], parsed: _Parsed) -> None:
    address = parsed.word(resource.get("uri"), MAX_ADDRESS)
    if isinstance(resource.get("text"), str):
        if address:
            parsed.lines.append(f"[resource: {address}]")
        parsed.add_text(resource["text"])
    else:
        name = address.rstrip("/").rpartition("/")[2]
        _add_file(resource.get("blob"), resource.get("mimeType"), name, "resource", parsed)


def _add_file(data: Any, media_type: Any, name: str, kind: str, parsed: _Parsed) -> None:
    """Add a file to the result, or a line that says why it was left out."""
    if not isinstance(data, str):
        parsed.lines.append(f"({kind} without data was left out)")
        return
    media_type = parsed.word(media_type, 100).lower()
    if found := _DATA_URL.match(data):
        media_type, data = media_type or found[1].lower(), data[found.end() :]
    media_type = media_type or "application/octet-stream"
    if len(data) * 3 // 4 > MAX_FILE or parsed.bytes_of_files + len(data) * 3 // 4 > MAX_FILES:
        parsed.lines.append(f"({kind} {media_type} was left out: it is larger than {MAX_FILE // 1_000_000} MB)")
        return
    try:
        content = _decoded(data)
    except (binascii.Error, ValueError):
        parsed.lines.append(f"({kind} {media_type} was left out: its data cannot be read)")
        return
    parsed.bytes_of_files += len(content)
    name = (name or f"{kind}-{len(parsed.files) + 1}{ENDINGS.get(media_type, '')}")[:MAX_NAME]
    if any(each.name == name for each in parsed.files):
        name = f"{len(parsed.files) + 1}-{name}"[:MAX_NAME]
    parsed.files.append(ResultFile(name=name, media_type=media_type, content=content))
    parsed.lines.append(f"[{kind}: {name}, {media_type}, {len(content):,} bytes]")


def _decoded(data: str) -> bytes:
    """Decode Base64 with line breaks, of either alphabet, with or without its padding. Raises ValueError."""
    plain = "".join(data.split()).replace("-", "+").replace("_", "/").rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
