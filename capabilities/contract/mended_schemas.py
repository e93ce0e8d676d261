"""Schemas of other drafts and in other forms whose meaning is plain, as JSON Schema 2020-12. Pure.

One function for what MCP servers and OpenAPI documents send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
#: Words that people write for a type.
ODD_TYPES = {
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "bool": "boolean",
    "str": "string",
    "text": "string",
    "date": "string",
    "date-time": "string",
    "datetime": "string",
    "file": "string",
    "uuid": "string",
    "dict": "object",
    "map": "object",
    "list": "array",
    "tuple": "array",
    "none": "null",
}
#: Keywords with one schema, with a list of schemas, with named schemas.
_ONE = (
    "items", "additionalProperties", "additionalItems", "propertyNames", "contains", "not", "if", "then", "else",
    "unevaluatedProperties", "unevaluatedItems",
)  # fmt: skip
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
#: Levels that are looked at; what is deeper is refused elsewhere.
MAX_LEVELS = 60


def mended_arguments(schema: Any) -> dict[str, Any]:
    """The schema of a tool's arguments, put right: an object, whatever is missing of that."""
    found = mended_schema(schema) if isinstance(schema, Mapping) else {}
    found.pop("$schema", None)
    kind = found.get("type")
    if kind is None or kind == "null" or (isinstance(kind, list) and "object" in kind):
        found["type"] = "object"
    if found.get("type") == "object":
        found.setdefault("properties", {})
    return found


def mended_schema(schema: Any, level: int = 0) -> Any:
    """The schema and all inside it, put right; what is right already comes back as it is."""
    if not isinstance(schema, Mapping) or level > MAX_LEVELS:
        return schema
    found = mended_node(schema)
    for name in _ONE:
        if name in found:
            found[name] = mended_schema(found[name], level + 1)
    for name in _SEVERAL:
        if isinstance(found.get(name), list):
            found[name] = [mended_schema(each, level + 1) for each in found[name]]
    for name in _NAMED:
        if isinstance(found.get(name), Mapping):
            found[name] = {key: mended_schema(each, level + 1) for key, each in found[name].items()}
    return found


def mended_node(schema: Mapping[str, Any]) -> dict[str, Any]:
    """One schema, put right but for what is inside it. `schema` is left as it is."""
    found = {name: value for name, value in schema.items() if value is not None or name in ("const", "default")}
    _mend_type(found)
    _mend_bounds(found)
    _mend_required(found)
    if isinstance(found.get("items"), list):
        found["prefixItems"] = found.pop("items")
        if "additionalItems" in found:
            found["items"] = found.pop("additionalItems")
    for name in ("additionalProperties", "unevaluatedProperties", "uniqueItems"):
        if isinstance(found.get(name), str):
            found[name] = found[name].strip().lower() != "false"
    for name in _NAMED:
        if name in found and not isinstance(found[name], Mapping):
            del found[name]
    if "enum" in found and not (isinstance(found["enum"], list) and found["enum"]):
        del found["enum"]
    return found


def _mend_type(found: dict[str, Any]) -> None:
    kind = found.get("type")
    if kind is None:
        return
    written = [each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str)]
    known = dict.fromkeys(ODD_TYPES.get(each.lower(), each.lower()) for each in written)
    kinds = [each for each in known if each in TYPES]
    if not kinds or len(kinds) < len(known):  # one of them is not known: any value is taken
        del found["type"]
    else:
        found["type"] = kinds if isinstance(kind, list) and len(kinds) > 1 else kinds[0]


def _mend_bounds(found: dict[str, Any]) -> None:
    """Exclusive bounds: a number since draft 6, before that a word beside the bound."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        word = found.get(exclusive)
        if isinstance(word, bool):
            del found[exclusive]
            if word and bound in found:
                found[exclusive] = found[bound]


def _mend_required(found: dict[str, Any]) -> None:
    """Mend `required` in place: a list of names of the object, in draft 3 a word beside each property."""
    written = found.get("required")
    required = [each for each in written if isinstance(each, str)] if isinstance(written, list) else []
    named = found.get("properties")
    if isinstance(named, Mapping):
        required += [str(key) for key, each in named.items() if _word(each) is True]
        found["properties"] = {
            key: {name: value for name, value in each.items() if name != "required"}
            if isinstance(_word(each), bool)
            else each
            for key, each in named.items()
            if each is not None
        }
    found.pop("required", None)
    if required or isinstance(written, list):
        found["required"] = list(dict.fromkeys(required))


def _word(schema: Any) -> Any:
    return schema.get("required") if isinstance(schema, Mapping) else None
