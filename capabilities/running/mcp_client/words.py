"""Text of a server as a model may read it: without what nobody sees."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

#: Colours and other commands for a terminal; the second form sets titles and links.
_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
#: Formats that letters of living scripts, and emoji, are written with.
_KEPT = frozenset("\u200c\u200d\u00ad\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2")


def readable(text: str) -> tuple[str, bool]:
    """The text without hidden characters (tags, turns of direction, zero widths, controls, commands for a terminal),
    and whether any was taken out."""
    plain = text.replace("\r\n", "\n")
    shown = _TERMINAL.sub("", plain)
    if not (shown.isascii() and shown.isprintable()):
        shown = "".join(each for each in shown if not _is_hidden(each))
    return shown, shown != plain


def _is_hidden(character: str) -> bool:
    if character in "\n\t" or character in _KEPT:
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Cs")


def finite(value: Any) -> tuple[Any, bool]:
    """The value with null for each number that JSON does not have, and whether there was one."""
    if isinstance(value, float) and not math.isfinite(value):
        return None, True
    if isinstance(value, dict):
        pairs = {key: finite(each) for key, each in value.items()}
        return {key: each for key, (each, _) in pairs.items()}, any(was_replaced for _, was_replaced in pairs.values())
    if isinstance(value, list):
        found = [finite(each) for each in value]
        return [each for each, _ in found], any(was_replaced for _, was_replaced in found)
    return value, False
