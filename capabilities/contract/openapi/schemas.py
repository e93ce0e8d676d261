"""Schemas of a document as JSON Schema 2020-12 that stands for itself: references are written out, what is 3.0's own is
translated, what only decorates is left out.

A schema that stands in itself, or that would grow beyond bounds, is cut there: any value is taken in that place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from capabilities.contract.mended_schemas import PLAIN, TYPES, is_pattern, mended_node
from capabilities.contract.openapi.references import MAX_CHAIN, Document, OperationRefused, mapping, text

#: Levels of one schema, and parts of all schemas of one operation.
MAX_LEVELS = 12
MAX_PARTS = 800
#: Characters of a description inside a schema, and of a default.
MAX_DESCRIPTION, MAX_DEFAULT = 1_000, 500


#: Keywords that are kept as they are, where their value is of the right kind.
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
KEPT: Mapping[str, Callable[[Any], bool]] = {
    name: PLAIN[name] for name in (*_NUMBERS, *_COUNTS, "uniqueItems", "contentEncoding", "contentMediaType")
} | {
    "format": lambda value: isinstance(value, str) and len(value) <= 100,
    "pattern": lambda value: isinstance(value, str) and len(value) <= 2_000 and is_pattern(value),
}
#: Keywords with one schema, and with a list of them.
ONE = ("additionalProperties", "propertyNames", "contains", "not", "if", "then", "else", "unevaluatedProperties")
SEVERAL = ("anyOf", "oneOf", "prefixItems")


class Schemas:
    """Translates the schemas of one operation. `is_cut` says whether anything was left open because of the bounds."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._parts = 0
        self.is_cut = False

    def read(self, schema: Any) -> dict[str, Any]:
        """The schema of a value that is sent. Raises OperationRefused for a reference that leads nowhere."""
        return self._read(schema, 0, ())

    def _read(self, schema: Any, level: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return a schema in JSON Schema 2020-12; beyond the limits an open one, which is noted."""
        if schema is False:
            return {"not": {}}
        if not isinstance(schema, Mapping):
            return {}
        self._parts += 1
        if level > MAX_LEVELS or self._parts > MAX_PARTS:
            self.is_cut = True
            return self._open(schema)
        if "$ref" in schema:
            return self._referred(schema, level, inside)
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            self.is_cut = True
            return self._open(schema)
        return self._translated(schema, level, inside)

    def _open(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return an open schema: any value of the same type, with the schema's description."""
        found: dict[str, Any] = {}
        for _ in range(MAX_CHAIN):
            found |= _described(schema)
            if "$ref" not in schema:
                break
            schema = mapping(self._document.at(schema["$ref"]))
        kind = schema.get("type")
        if isinstance(kind, str) and kind in TYPES:
            found["type"] = kind
        return found

    def _referred(self, schema: Mapping[str, Any], level: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return the schema behind a reference; one that leads to itself ends as an open one."""
        reference = str(schema["$ref"])
        if reference in inside:
            self.is_cut = True
            return self._open(schema)
        if len(inside) > MAX_CHAIN * 2:
            raise OperationRefused("Its schemas refer to each other without end.")
        target = self._read(self._document.at(schema["$ref"]), level, (*inside, reference))
        if self._document.is_3_0:
            return target
        siblings = {name: value for name, value in schema.items() if name != "$ref"}
        if not siblings:
            return target
        own = self._translated(siblings, level, inside)
        return target | own if not set(own) - {"description", "default"} else _merged([target, own])

    def _translated(self, schema: Mapping[str, Any], level: int, inside: tuple[str, ...]) -> dict[str, Any]:
        schema = mended_node(schema)
        found = _described(schema)
        found |= {name: schema[name] for name, is_right in KEPT.items() if name in schema and is_right(schema[name])}
        found |= self._types(schema)
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            found["enum"] = schema["enum"]
        if "const" in schema:
            found["const"] = schema["const"]
        if "default" in schema and len(json.dumps(schema["default"])) <= MAX_DEFAULT:
            found["default"] = schema["default"]
        found |= self._object_parts(schema, level, inside)
        found |= self._combined(schema, level, inside)
        every = [self._read(each, level, inside) for each in _schemas(schema.get("allOf"))]
        found = _merged([*every, found]) if every else found
        return _nullable(found) if self._document.is_3_0 and schema.get("nullable") is True else found

    def _types(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        if "type" in schema:
            return {"type": schema["type"]}
        if isinstance(schema.get("properties"), Mapping):
            return {"type": "object"}
        return {"type": "array"} if "items" in schema or "prefixItems" in schema else {}

    def _object_parts(self, schema: Mapping[str, Any], level: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return properties, `required` and items of a schema, without properties that are only read."""
        found: dict[str, Any] = {}
        named = schema.get("properties")
        hidden: set[str] = set()
        if isinstance(named, Mapping):
            hidden = {str(name) for name, each in named.items() if self._is_read_only(each)}
            found["properties"] = {
                str(name): self._read(each, level + 1, inside) for name, each in named.items() if name not in hidden
            }
        required = schema.get("required")
        if isinstance(required, list):
            kept = [each for each in required if isinstance(each, str) and each not in hidden]
            if kept:
                found["required"] = list(dict.fromkeys(kept))
        if schema.get("items") is not None:
            found["items"] = self._read(schema["items"], level + 1, inside)
        return found

    def _is_read_only(self, schema: Any) -> bool:
        """Return whether the schema is read-only: the far side writes the value, and nobody sends it."""
        for _ in range(MAX_CHAIN):
            if not isinstance(schema, Mapping) or schema.get("readOnly") is True:
                return isinstance(schema, Mapping)
            if "$ref" not in schema:
                return False
            schema = self._document.at(schema["$ref"])
        return False

    def _combined(self, schema: Mapping[str, Any], level: int, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return the parts of a schema that are schemas themselves, read."""
        found: dict[str, Any] = {}
        for name in ONE:
            value = schema.get(name)
            if isinstance(value, bool) and name in ("additionalProperties", "unevaluatedProperties"):
                if value is False:
                    found[name] = False
            elif isinstance(value, Mapping) and value:
                found[name] = self._read(value, level + 1, inside)
        for name in SEVERAL:
            several = [self._read(each, level + (name == "prefixItems"), inside) for each in _schemas(schema.get(name))]
            if len(several) == 1 and name != "prefixItems":
                found = _merged([found, several[0]])
            elif several:
                found[name] = several
        patterns = mapping(schema.get("patternProperties"))
        kept = {
            pattern: self._read(each, level + 1, inside) for pattern, each in patterns.items() if is_pattern(pattern)
        }
        return found | ({"patternProperties": kept} if kept else {})


def _schemas(value: Any) -> list[Any]:
    return [each for each in value if isinstance(each, Mapping | bool)] if isinstance(value, list) else []


def _described(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept = " ".join(text(schema.get("description")).split())
    if len(kept) > MAX_DESCRIPTION:
        kept = kept[: MAX_DESCRIPTION - 1].rsplit(" ", 1)[0] + "…"
    return {"description": kept} if kept else {}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema widened so that null fits too."""
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema = schema | {"enum": [*schema["enum"], None]}
    if isinstance(kind, str):
        return schema | {"type": [kind, "null"]} if kind != "null" else schema
    if isinstance(kind, list):
        return schema | {"type": [*kind, "null"]} if "null" not in kind else schema
    kept = {name: value for name, value in schema.items() if name in ("description", "default")}
    rest = {name: value for name, value in schema.items() if name not in kept}
    return kept | {"anyOf": [rest, {"type": "null"}]} if rest else kept


def _merged(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a schema of the values that fit all of them: one where they only add to each other, as objects do, else
    `allOf`."""
    whole: dict[str, Any] = {}
    for schema in schemas:
        for name, value in schema.items():
            if name not in whole or whole[name] == value or name in ("description", "default"):
                whole[name] = value
            elif name == "properties":
                both = set(whole[name]) & set(value)
                if any(whole[name][each] != value[each] for each in both):
                    return {"allOf": [each for each in schemas if each]}
                whole[name] = whole[name] | value
            elif name == "required":
                whole[name] = list(dict.fromkeys([*whole[name], *value]))
            else:
                return {"allOf": [each for each in schemas if each]}
    return whole
