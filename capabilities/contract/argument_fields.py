"""A tool's JSON Schema as the fields of a form. Pure: what no simple field holds is asked for as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from capabilities.contract.parameters import resolved

#: More fields than this make no form: all arguments are asked for at once, as one JSON object.
MAX_FIELDS = 40
#: Strings that may be longer get several lines.
ONE_LINE = 200

Kind = Literal["string", "text", "integer", "number", "boolean", "choice", "lines", "json"]


@dataclass(frozen=True)
class ArgumentField:
    """One argument. `choices` are values as JSON; `default` is what the tool takes when nothing is given, as JSON."""

    name: str
    kind: Kind
    is_required: bool
    description: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None


def argument_fields(schema: Mapping[str, Any]) -> list[ArgumentField] | None:
    """A field for each argument, the required ones first, or None where only the whole can be asked for."""
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping) or len(properties) > MAX_FIELDS:
        return None
    if any(word in schema for word in ("oneOf", "anyOf", "allOf", "patternProperties", "$ref")):
        return None
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    fields = [_field(name, resolved(node, schema), schema, name in names) for name, node in properties.items()]
    return sorted(fields, key=lambda field: not field.is_required)


def _field(name: str, node: Mapping[str, Any], root: Mapping[str, Any], is_required: bool) -> ArgumentField:
    """Return the field of a form for one argument."""
    description = node.get("description")
    default = node.get("default")
    node = _without_null(node, root)
    kind, choices = _kind(node, root)
    bounds = [node.get(word) if isinstance(node.get(word), int | float) else None for word in ("minimum", "maximum")]
    length = node.get("maxLength")
    return ArgumentField(
        name=name,
        kind=kind,
        is_required=is_required,
        description=description if isinstance(description, str) else "",
        choices=choices,
        default="" if default in (None, "") else json.dumps(default, ensure_ascii=False),
        minimum=bounds[0],
        maximum=bounds[1],
        max_length=length if isinstance(length, int) else None,
    )


def _without_null(node: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the argument where it is given: X of `anyOf: [X, null]`."""
    options = node.get("anyOf")
    if isinstance(options, list):
        others = [resolved(each, root) for each in options]
        others = [each for each in others if each.get("type") != "null"]
        if len(others) == 1:
            return others[0]
    kinds = node.get("type")
    if isinstance(kinds, list):
        rest = [kind for kind in kinds if kind != "null"]
        return {**node, "type": rest[0]} if len(rest) == 1 else {**node, "type": None}
    return node


def _kind(node: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    choices = node.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= 200:
        return "choice", tuple(json.dumps(each, ensure_ascii=False) for each in choices)
    kind = node.get("type")
    if kind == "string":
        length = node.get("maxLength")
        return ("string" if isinstance(length, int) and length <= ONE_LINE else "text"), ()
    if kind == "integer" or kind == "number" or kind == "boolean":
        return kind, ()
    if kind == "array" and resolved(node.get("items", {}), root).get("type") == "string":
        return "lines", ()
    return "json", ()
