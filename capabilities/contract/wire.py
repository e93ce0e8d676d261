"""The bytes of a tool definition as a provider gets them: canonical, so that equal definitions are equal bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
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


#: The entry of a `tools` array by which the provider searches the namespaces in front of it.
SEARCH = canonical_json({"type": "tool_search"})


def namespace_wire(name: str, description: str, definitions: Sequence[str]) -> str:
    """The entry of a `tools` array for tools that the provider searches: these definitions, as `tool_wire` has them,
    under a name and a description, which are all that a model sees of them at first."""
    document = canonical_json({"description": description, "name": name})
    return f'{document[:-1]},"tools":[{",".join(definitions)}],"type":"namespace"}}'


@lru_cache(maxsize=256)
def names_in(wire: str) -> tuple[str, ...]:
    """The names of the functions in a `tools` array, in its order; without those in namespaces."""
    return tuple(each["function"]["name"] for each in json.loads(wire) if each["type"] == "function")


def namespaces_in(wire: str) -> Mapping[str, str]:
    """The namespace of each function in one, by the function's name, in the order of a `tools` array."""
    return _namespaces_in(wire) if SEARCH in wire else {}


def searched_part(wire: str) -> str:
    """Return the part of a `tools` array that the provider searches: its namespaces, as a `tools` array."""
    return _entries_of(wire, "namespace") if SEARCH in wire else "[]"


def without_search(wire: str) -> str:
    """A `tools` array without what the provider searches."""
    return _entries_of(wire, "function") if SEARCH in wire else wire


#: Such an array can be long: few are kept.
@lru_cache(maxsize=16)
def _namespaces_in(wire: str) -> Mapping[str, str]:
    spaces = [each for each in json.loads(wire) if each["type"] == "namespace"]
    return {tool["function"]["name"]: each["name"] for each in spaces for tool in each["tools"]}


@lru_cache(maxsize=16)
def _entries_of(wire: str, kind: str) -> str:
    return canonical_json([each for each in json.loads(wire) if each["type"] == kind])


def is_whole(value: Any) -> bool:
    """Return whether every database takes all text of this JSON value: no half characters, no NUL."""
    if isinstance(value, str):
        return "\x00" not in value and value.encode("utf-8", "replace").decode() == value
    if isinstance(value, Mapping):
        return all(is_whole(key) and is_whole(each) for key, each in value.items())
    return not isinstance(value, list) or all(is_whole(each) for each in value)


def sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
