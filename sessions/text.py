"""The one sanitiser of text that comes from outside, at the border where it is stored."""

from __future__ import annotations


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
