"""JSON Schemas of tool arguments (draft 2020-12): which are taken, and whether arguments fit. Nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs

#: Bounds of a schema that is taken; real catalogues stay far below (the largest of 34 MCP servers has 200 properties).
MAX_DEPTH = 50
MAX_PROPERTIES = 1_000
MAX_CHARS = 200_000
#: Mistakes told of one call.
MAX_COMPLAINTS = 5


class SchemaRefused(ValueError):
    """The schema cannot be the parameters of a tool; the message says what to change."""


def check_schema(schema: Any) -> None:
    """Raise SchemaRefused unless this is a JSON Schema for an object, self-contained and of bounded size."""
    if not isinstance(schema, dict):
        raise SchemaRefused("The parameters must be a JSON Schema object.")
    if schema.get("type") != "object":
        raise SchemaRefused('The parameters must have "type": "object".')
    _check_size(schema)
    try:
        jsonschema_rs.Draft202012Validator(schema, retriever=_refuse_remote)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        message = error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
        raise SchemaRefused(f"The parameters are not a valid JSON Schema: {message[:300]}") from error


def complaints(schema_text: str, arguments: Mapping[str, Any]) -> list[str]:
    """What is wrong with these arguments, a sentence each with the place; empty where they fit.

    The schema comes as its JSON text, by which the compiled validator is kept.
    """
    found = []
    try:
        for error in _validator(schema_text).iter_errors(arguments):
            place = ".".join(str(part) for part in error.instance_path) or "arguments"
            found.append(f"{place}: {error.message[:300]}")
            if len(found) == MAX_COMPLAINTS:
                break
    except ValueError as error:  # nested too deep for the validator, or half a character
        found.append(f"arguments: {str(error)[:300]}")
    return found


@lru_cache(maxsize=2048)
def _validator(schema_text: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(schema_text), retriever=_refuse_remote)


def _refuse_remote(uri: str) -> Any:
    raise ValueError(f"The reference {uri} points outside the schema; write it under $defs.")


def _check_size(schema: dict[str, Any]) -> None:
    nodes: list[tuple[Any, int]] = [(schema, 1)]
    properties = 0
    while nodes:
        node, depth = nodes.pop()
        if depth > MAX_DEPTH:
            raise SchemaRefused(f"The parameters are nested more than {MAX_DEPTH} deep.")
        if isinstance(node, dict):
            named = node.get("properties")
            properties += len(named) if isinstance(named, dict) else 0
            for key in ("$ref", "$dynamicRef"):
                reference = node.get(key)
                if isinstance(reference, str) and not reference.startswith("#"):
                    raise SchemaRefused(
                        f"The reference {reference[:200]} points outside the schema; write it under $defs."
                    )
            nodes += [(child, depth + 1) for child in node.values()]
        elif isinstance(node, list):
            nodes += [(child, depth + 1) for child in node]
        if properties > MAX_PROPERTIES:
            raise SchemaRefused(f"The parameters have more than {MAX_PROPERTIES:,} properties.")
    try:
        length = len(json.dumps(schema, allow_nan=False))
    except ValueError as error:
        raise SchemaRefused("The parameters hold a number that JSON does not have (NaN or infinite).") from error
    if length > MAX_CHARS:
        raise SchemaRefused(f"The parameters are longer than {MAX_CHARS:,} characters.")
