"""Provider's words about an error, read from a body of any shape. Pure.

Bodies are an object, a list of objects (Gemini), `detail` as a text or as a list (FastAPI), a text, a page of HTML, an
event of a stream, markup of any kind, or JSON in a string inside of one of these (OpenRouter's `metadata.raw`); bytes
may be packed, or in an encoding that nothing names.
"""

from __future__ import annotations

import html
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from capabilities.running.mcp_client.words import readable
from toolhub.bounded_json import load_json

#: Characters of a body that are read, and how deep.
MOST_READ = 20_000
MOST_JSON = 300_000
MOST_DEPTH = 8
#: Entries of a list that are read.
MOST_ENTRIES = 20
#: Where the words stand, the best place first; `_MORE` holds what another service behind this one said.
_WORDS = (
    "message",
    "error",
    "errors",
    "detail",
    "details",
    "msg",
    "error_message",
    "errormessage",
    "error_msg",
    "error_description",
    "status_msg",
    "faultstring",
    "description",
    "title",
    "reason",
    "fault",
    "exception",
    "response",
    "base_resp",
    "err",
    "data",
    "text",
)
_MORE = ("metadata", "raw", "innererror", "inner_error", "body", "cause")
_NAMES = ("code", "type", "status", "reason", "__type", "title")
_UNSEEN = re.compile(r"<(script|style|svg)\b.*?(?:</\1>|\Z)|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_IS_MARKUP = re.compile(r"\s*<(?:[!?]|(?P<tag>[a-z][\w:.-]*)[^<>]*>.*</(?P=tag)\s*>)", re.IGNORECASE | re.DOTALL)
_IS_EVENT = re.compile(r"(?:data|event|error|id|retry)?:")
#: A message in a text that holds JSON, or what Python prints of an object, beside other words or cut.
_MESSAGE = re.compile(
    r"""['"](?:message|msg|detail)['"]\s*:\s*(?:"((?:[^"\\]|\\.)+)"|'((?:[^'\\]|\\.)+)'|"([^"\\]{20,})\Z)""", re.DOTALL
)
_DELAY = re.compile(r"(?:try again|retry|wait)[^.\d]{0,40}?((?:\d+(?:\.\d+)?\s*(?:ms|h|m|s)[a-z]*\s*)+)", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|h|m|s)", re.IGNORECASE)
_PACKED, _UTF_16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class ErrorBody:
    """The words for people; all names by which the error goes (codes, types, states); the parameter that it names; the
    seconds that it asks to wait, None where it does not."""

    words: str
    names: tuple[str, ...] = ()
    parameter: str = ""
    wait: float | None = None

    @property
    def all(self) -> str:
        """Text that an error is recognised by: its names and its words."""
        return " ".join([*self.names, self.words])


def read_body(body: object) -> ErrorBody:
    """Read the error from any answer. Never raises."""
    value = _opened(body)
    words = _words(value, 0) or _collapsed(_as_text(value))
    names = tuple(dict.fromkeys(each for name in _NAMES for each in _words_under(value, name)))
    parameter = next(_words_under(value, "param"), "")
    return ErrorBody(words, names, parameter, _wait(value, words))


def _opened(value: object, depth: int = 0) -> object:
    """JSON that came as a text, in events or bare, as its value; other values as they are."""
    if isinstance(value, bytes):
        value = _decoded(value)
    if not isinstance(value, str):
        return value
    text = value[:MOST_JSON].lstrip("\ufeff").strip()
    if _IS_EVENT.match(text):
        lines = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(("data:", "error:"))]
        text = "\n".join(line for line in lines if line != "[DONE]") or text
    if text[:1] in ("{", "[", '"') and depth < MOST_DEPTH:
        try:
            return _opened(load_json(text), depth + 1)
        except ValueError:
            return text[:MOST_READ]
    return text[:MOST_READ]


def is_odd(body: bytes) -> bool:
    """Return whether these bytes are packed or in UTF-16, whatever a header says of them."""
    return body[:2] in (_PACKED, *_UTF_16)


def _decoded(body: bytes) -> str:
    if body[:2] == _PACKED:
        try:
            body = zlib.decompressobj(31).decompress(body, MOST_JSON)
        except zlib.error:
            return ""
    return body.decode("utf-16" if body[:2] in _UTF_16 else "utf-8", "replace")


def _words(value: object, depth: int) -> str:
    if depth > MOST_DEPTH:
        return ""
    value = _opened(value, depth)
    if isinstance(value, str):
        return _of_page(value) if _IS_MARKUP.match(value) else _of_text(value)
    if isinstance(value, list):
        return "; ".join(dict.fromkeys(filter(None, (_words(each, depth + 1) for each in value[:MOST_ENTRIES]))))
    return _of_object(value, depth) if isinstance(value, Mapping) else ""


def _of_object(value: Mapping[str, Any], depth: int) -> str:
    folded = {str(name).casefold(): each for name, each in list(value.items())[:100]}
    words = next(filter(None, (_words(folded.get(name), depth + 1) for name in _WORDS)), "")
    if not words:  # under names that nobody knows
        inner = (each for each in folded.values() if isinstance(each, Mapping | list))
        words = next(filter(None, (_words(each, depth + 1) for each in list(inner)[:MOST_ENTRIES])), "")
    place = folded.get("loc")
    if isinstance(place, list) and words:
        words = f"{'.'.join(str(each) for each in place)}: {words}"
    for name in _MORE:
        more = _words(folded.get(name), depth + 1)
        if more and more not in words:
            words = f"{words}: {more}" if words else more
    return words


def _of_page(text: str) -> str:
    return _collapsed(html.unescape(_TAG.sub(" ", _UNSEEN.sub(" ", text[:MOST_READ]))))


def _of_text(text: str) -> str:
    """The words of a text; of JSON in it that cannot be read, its messages."""
    if text in ("null", "true", "false"):
        return ""
    head, brace, rest = text.partition("{")
    found = (
        [_unescaped(next(filter(None, each))) for each in _MESSAGE.findall(rest[:5_000])[:MOST_ENTRIES]]
        if brace
        else []
    )
    if not found:
        return _collapsed(text)
    before = head.strip("\"'b[( \n:-)]},")
    return _collapsed(": ".join([*([before] if before else []), "; ".join(dict.fromkeys(found))]))


def _unescaped(text: str) -> str:
    try:
        return str(load_json(f'"{text}"'))
    except ValueError:
        return text


def _collapsed(text: str) -> str:
    return " ".join(readable(text)[0].split())


def _as_text(value: object) -> str:
    if value in (None, "", [], {}, "null", "true", "false"):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)[:MOST_READ]


def _words_under(value: object, name: str, depth: int = 0) -> Iterator[str]:
    """Yield the texts and numbers under this name, in all places where an error's words may stand."""
    value = _opened(value, depth)
    if depth > MOST_DEPTH:
        return
    if isinstance(value, list):
        for each in value[:MOST_ENTRIES]:
            yield from _words_under(each, name, depth + 1)
    elif isinstance(value, Mapping):
        if isinstance(value.get(name), str | int) and not isinstance(value.get(name), bool):
            yield str(value[name])[:200]
        for inner in (*_WORDS, *_MORE):
            if isinstance(value.get(inner), Mapping | list | str):
                yield from _words_under(value[inner], name, depth + 1)


def _wait(value: object, words: str) -> float | None:
    for name in ("retryDelay", "retry_after", "retry_after_seconds", "retryAfter"):
        for text in _words_under(value, name):
            seconds = _seconds(text if re.search("[a-z]", text) else f"{text}s")
            if seconds is not None:
                return seconds
    found = _DELAY.search(words)
    return _seconds(found[1]) if found else None


def _seconds(text: str) -> float | None:
    """ "7m12s", "17.5s" or "350ms" as seconds."""
    parts = _PART.findall(text)
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in parts) if parts else None
