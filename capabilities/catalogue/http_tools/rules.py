"""Arguments that fit a schema, to show what a request looks like. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capabilities.contract.parameters import resolved

#: Levels of objects in objects.
MAX_DEPTH = 4
PLAIN = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def sample_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A value for every argument: its example or default where it has one, else one of its type."""
    found = _sample(schema, schema, 0)
    return found if isinstance(found, dict) else {}


def _sample(node: Any, root: Mapping[str, Any], depth: int) -> Any:
    """Return a value that fits the schema: its example or default, else one of its type."""
    node = resolved(node, root)
    for name in ("example", "default", "const"):
        if name in node:
            return node[name]
    for name in ("examples", "enum", "anyOf", "oneOf", "allOf"):
        if isinstance(node.get(name), list) and node[name]:
            first = node[name][0]
            return first if name in ("examples", "enum") or depth == MAX_DEPTH else _sample(first, root, depth + 1)
    kind = node.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    properties = node.get("properties")
    if isinstance(properties, Mapping) and depth < MAX_DEPTH:
        return {str(name): _sample(each, root, depth + 1) for name, each in properties.items()}
    if kind == "array":
        return [_sample(node.get("items", {}), root, depth + 1)] if depth < MAX_DEPTH else []
    return {} if kind == "object" else PLAIN.get(str(kind), "text")
