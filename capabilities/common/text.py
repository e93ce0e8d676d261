"""The one sanitiser of text that comes from outside, at the border where it is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: Levels of a JSON value that is kept as it came: databases and our own reader stop at some hundred.
MAX_DEPTH = 40


def storable(text: str, limit: int | None = None) -> str:
    """Text that every database and every JSON reader takes: valid UTF-8 without NUL, at most `limit` characters.

    Half surrogate pairs and NUL become U+FFFD.
    """
    if limit is not None and len(text) > limit:
        text = text[:limit]
    text = text.replace("\x00", "�")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


def storable_value(value: Any) -> Any:
    """A JSON value with all its text made storable. Raises RecursionError where it is nested too deep."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [storable_value(each) for each in value]
    if isinstance(value, dict):
        return {storable(key): storable_value(each) for key, each in value.items()}
    return value


def storable_json(value: Any, limit: int) -> Any:
    """A JSON value with all its text made storable. None where it takes more than `limit` characters, is nested deeper
    than MAX_DEPTH, or holds what JSON has no form for, such as NaN."""
    if not value:
        return value
    if _is_deeper(value, MAX_DEPTH):
        return None
    try:
        written = json.dumps(value, allow_nan=False)
    except ValueError:
        return None
    if len(written) > limit:
        return None
    # Half characters and NUL are written as escapes: where there is none, there is nothing to mend.
    return storable_value(value) if "\\u0000" in written or "\\ud" in written else value


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
