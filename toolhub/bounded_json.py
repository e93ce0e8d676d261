"""JSON from outside, loaded within bounds of bytes, number of values and depth. Every door and channel calls this.

Bytes alone bound no work: `[[],[],...]` makes 400,000 lists of a megabyte. So the signs that make values are counted
before anything is parsed, for 1 ms a megabyte. Imports nothing of the service; child processes load it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: Limits of one document: its bytes, its values (members of objects and items of lists), and their depth of nesting.
MAX_BYTES = 8_000_000
MAX_VALUES = 100_000
MAX_DEPTH = 100

_ALL_BUT_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")
#: Bytes that are looked at before the count so far is.
_PIECE = 65_536
_AS_LISTS = bytes.maketrans(b"{}", b"[]")


class JsonRefused(ValueError):
    """The text is no JSON, or more than is taken; the message is a phrase that goes on from "The body"."""


class TooMuchJson(JsonRefused):
    """Text that has more bytes or values than are taken, or is nested deeper."""


def load_json(
    text: str | bytes | bytearray,
    *,
    most_bytes: int = MAX_BYTES,
    most_values: int = MAX_VALUES,
    most_depth: int = MAX_DEPTH,
    unique_names: bool = False,
    constant: Callable[[str], Any] | None = None,
) -> Any:
    """The value of this JSON. Raises JsonRefused, whatever is wrong with it.

    `unique_names` refuses an object that has one name twice. `constant` makes a value of NaN, Infinity and numbers that
    are too large for a float, by their text; without it they are refused.
    """
    data = _as_utf8(text)
    check_json(data, most_bytes=most_bytes, most_values=most_values, most_depth=most_depth)
    make = constant or _no_constant
    try:
        return json.loads(
            data.decode(),
            parse_constant=make,
            parse_float=lambda digits: _finite(digits, make),
            object_pairs_hook=_unique_names if unique_names else None,
        )
    except RecursionError:
        raise TooMuchJson(f"is nested more than {most_depth} deep") from None
    except JsonRefused:
        raise
    except ValueError as error:
        raise JsonRefused(f"is not valid JSON: {error}") from error


def check_json(
    data: bytes, *, most_bytes: int = MAX_BYTES, most_values: int = MAX_VALUES, most_depth: int = MAX_DEPTH
) -> int:
    """The most values that this UTF-8 text can have. Nothing is parsed: for what others parse. Raises TooMuchJson where
    it is longer, or would be more or deeper, than is taken."""
    if len(data) > most_bytes:
        raise TooMuchJson(f"is over {most_bytes:,} bytes")
    values = signs_in(data)
    opened = data.count(b"[") + data.count(b"{")
    if opened <= most_depth and values <= most_values:
        return values
    signs = _without_strings(data, most_values)
    if _is_deeper(signs, most_depth):
        raise TooMuchJson(f"is nested more than {most_depth} deep")
    return signs_in(signs)


def signs_in(part: bytes) -> int:
    """The most values that this part of a text can begin: the signs within its strings are counted too."""
    return 1 + part.count(b",") + part.count(b"[") + part.count(b"{")


def _without_strings(data: bytes, most_values: int) -> bytes:
    """The text outside of its strings. Raises TooMuchJson as soon as that has more values."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    found, values, inside = [], 0, 0
    for start in range(0, len(data), _PIECE):
        parts = data[start : start + _PIECE].split(b'"')
        found.append(b"".join(parts[inside::2]))
        values += signs_in(found[-1]) - 1
        if values >= most_values:
            raise TooMuchJson(f"has more than {most_values:,} values")
        inside ^= (len(parts) - 1) & 1
    return b"".join(found)


def _is_deeper(signs: bytes, limit: int) -> bool:
    """Each turn takes the innermost brackets away; those that match nothing are left to the parser."""
    brackets = signs.translate(_AS_LISTS, _ALL_BUT_BRACKETS)
    for _ in range(limit):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return b"[]" in brackets


class JsonMessages:
    """The messages of one channel: each is loaded within bounds, and so are all together."""

    def __init__(self, most_values: int, *, most_values_of_one: int = MAX_VALUES, most_depth: int = MAX_DEPTH) -> None:
        self._limit, self._remaining = most_values, most_values
        self._of_one, self._depth = most_values_of_one, most_depth

    def load(self, text: str | bytes | bytearray, *, constant: Callable[[str], Any] | None = None) -> Any:
        """The value of the next message. Raises JsonRefused."""
        data = _as_utf8(text)
        self._remaining -= check_json(data, most_values=self._of_one, most_depth=self._depth)
        if self._remaining < 0:
            raise TooMuchJson(f"has with those before it more than {self._limit:,} values")
        return load_json(data, most_values=self._of_one, most_depth=self._depth, constant=constant)


def _as_utf8(text: str | bytes | bytearray) -> bytes:
    """Other encodings of JSON are read too; a byte order mark is no part of it. Raises JsonRefused."""
    try:
        if not isinstance(text, str):
            data = bytes(text)
            encoding = json.detect_encoding(data)
            if encoding == "utf-8":
                return data
            text = data.decode(encoding)
        return text.encode()
    except UnicodeError as error:
        raise JsonRefused(f"is not valid UTF-8: {error.reason if hasattr(error, 'reason') else error}") from None


def _no_constant(name: str) -> Any:
    raise JsonRefused(f"is not valid JSON: {name[:40]} is no JSON number")


def _finite(digits: str, make: Callable[[str], Any]) -> Any:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        return make(digits)
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonRefused("is not valid JSON: a name stands twice in one object")
    return found
