"""References inside one schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/[^/]+")


def resolved(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return the schema that a reference such as `#/$defs/Address` or `#Address` leads to; None where it leads
    nowhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    path = unquote(reference[1:])
    if path and not path.startswith("/"):
        return _anchored(path, root)
    found: Any = root
    for part in path.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            return None
    return found


def _anchored(name: str, root: Mapping[str, Any]) -> Any:
    """The schema with this name of its own."""
    pending: list[Any] = [root]
    while pending:
        each = pending.pop()
        if isinstance(each, Mapping) and name in (each.get("$anchor"), each.get("$dynamicAnchor")):
            return each
        pending += each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ()
    return None


def is_definition(reference: Any) -> bool:
    """Return whether it leads to a definition of its own, and not into the arguments, whose names may be others."""
    return isinstance(reference, str) and _DEFINITION.fullmatch(reference) is not None
