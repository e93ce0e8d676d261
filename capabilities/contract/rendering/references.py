"""References inside one schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/[^/]+")


def resolved(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return the schema that a reference such as `#/$defs/Address` leads to, an empty one where it leads nowhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {}
    found: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return {}
    return found


def is_definition(reference: Any) -> bool:
    """Return whether it leads to a definition of its own, and not into the arguments, whose names may be others."""
    return isinstance(reference, str) and _DEFINITION.fullmatch(reference) is not None
