"""The one sanitiser of text that comes from outside, at the border where it is stored."""

from __future__ import annotations

from typing import Any


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
