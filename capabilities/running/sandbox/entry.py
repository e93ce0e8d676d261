"""The entry of a tool's code, read from the text without parsing it: for each call, so it must be quick."""

from __future__ import annotations

import re
from functools import lru_cache

#: The argument that the service fills in, where `run` has it and the schema does not.
CONTEXT = "context"
_ENTRY = re.compile(r"^def\s+run\s*\(", re.MULTILINE)
_OPEN, _CLOSE = "([{", ")]}"


@lru_cache(maxsize=512)
def takes_context(code: str) -> bool:
    """Return whether `run` has an argument of that name."""
    found = list(_ENTRY.finditer(code))
    if not found or CONTEXT not in code:
        return False
    depth, part, quote = 1, "", ""
    for character in code[found[-1].end() : found[-1].end() + 10_000]:
        if quote:
            quote = "" if character == quote else quote
            continue
        if character in "'\"":
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
            if depth == 0:
                break
        if character == "," and depth == 1:
            if _is_context(part):
                return True
            part = ""
        elif depth == 1:
            part += character
    return _is_context(part)


def _is_context(part: str) -> bool:
    return re.split(r"[:=]", part.strip().partition("#")[0], maxsplit=1)[0].strip() == CONTEXT
