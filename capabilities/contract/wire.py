"""The bytes of a tool definition as a provider gets them: canonical, so that equal definitions are equal bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

#: Names that OpenAI takes; more than this is refused there, so it is refused here when saved.
TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")


def canonical_json(value: Any) -> str:
    """Compact, keys sorted, text as it is: the same value gives the same bytes in every process."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)


def tool_wire(name: str, description: str, parameters: Mapping[str, Any]) -> str:
    """One entry of a request's `tools` array, in OpenAI form."""
    function = {"name": name, "description": description, "parameters": parameters}
    return canonical_json({"type": "function", "function": function})


@lru_cache(maxsize=256)
def names_in(wire: str) -> tuple[str, ...]:
    """The names of the tools in a `tools` array, in its order."""
    return tuple(each["function"]["name"] for each in json.loads(wire))


def is_whole(value: Any) -> bool:
    """Whether every database takes all text of this JSON value: no half characters, no NUL."""
    if isinstance(value, str):
        return "\x00" not in value and value.encode("utf-8", "replace").decode() == value
    if isinstance(value, Mapping):
        return all(is_whole(key) and is_whole(each) for key, each in value.items())
    return not isinstance(value, list) or all(is_whole(each) for each in value)


def sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
