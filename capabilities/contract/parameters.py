"""A tool's JSON Schema as lines for people. Pure: a schema in, rows out, whatever its shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Depth to which objects inside objects are described.
MAX_DEPTH = 4
MAX_ROWS = 200
LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
    "format": "as {}",
}


@dataclass(frozen=True)
class Parameter:
    """One argument, or one field inside of it: `filter.tags[].name`."""

    name: str
    type: str
    is_required: bool
    description: str
    limits: str


def parameter_rows(schema: Mapping[str, Any]) -> list[Parameter]:
    """Every named argument of a schema; those of inner objects follow their own."""
    rows: list[Parameter] = []
    for row in _rows(schema, schema, "", 0):
        rows.append(row)
        if len(rows) == MAX_ROWS:
            break
    return rows


def _rows(node: Any, root: Mapping[str, Any], prefix: str, depth: int) -> Iterator[Parameter]:
    """Yield the properties of an object, and those inside of them, each name with its path before it."""
    node = resolved(node, root)
    properties = node.get("properties")
    if not isinstance(properties, Mapping) or depth == MAX_DEPTH:
        return
    listed = node.get("required")
    required = listed if isinstance(listed, list) else []
    for name, child in properties.items():
        child = resolved(child, root)
        yield Parameter(
            name=f"{prefix}{name}",
            type=_type(child, root),
            is_required=name in required,
            description=_text(child.get("description")),
            limits=_limits(child),
        )
        inner, mark = child, "."
        if isinstance(child.get("items"), Mapping):
            inner, mark = child["items"], "[]."
        yield from _rows(inner, root, f"{prefix}{name}{mark}", depth + 1)


def resolved(node: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node itself, or what its local reference names; what is said beside a reference stays."""
    for _ in range(MAX_DEPTH):
        if not isinstance(node, Mapping):
            return {}
        reference = node.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return node
        target: Any = root
        for part in reference[2:].split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        node = {**target, **siblings} if isinstance(target, Mapping) else siblings
    return node if isinstance(node, Mapping) else {}


def _type(node: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> str:
    if "const" in node:
        return _value(node["const"])
    if isinstance(node.get("enum"), list):
        return " | ".join(_value(each) for each in node["enum"][:20])
    for word in ("anyOf", "oneOf"):
        if isinstance(node.get(word), list) and depth < MAX_DEPTH:
            kinds = [_type(resolved(each, root), root, depth + 1) for each in node[word]]
            return " | ".join(dict.fromkeys(kinds))
    kind = node.get("type", "any")
    if kind == "array" and depth < MAX_DEPTH:
        return f"list of {_type(resolved(node.get('items', {}), root), root, depth + 1)}"
    return " | ".join(str(each) for each in kind) if isinstance(kind, list) else str(kind)


def _limits(node: Mapping[str, Any]) -> str:
    limits = [words.format(_number(node[word])) for word, words in LIMITS.items() if word in node]
    if node.get("default") is not None:
        limits.append(f"{_value(node['default'])} if not given")
    return ", ".join(limits)


def _number(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
