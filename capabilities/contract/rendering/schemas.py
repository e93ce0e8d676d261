"""A tool's schema under one vendor's rules. A schema that needs nothing comes back byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from capabilities.contract.rendering.names import sent_names
from capabilities.contract.rendering.references import is_definition, resolved
from capabilities.contract.rendering.rules import Rules
from capabilities.contract.wire import canonical_json

Schema = dict[str, Any]
#: Keywords that combine schemas.
COMBINING = ("allOf", "anyOf", "oneOf")
#: Keywords that no vendor takes at the top of a tool's parameters (OpenAI, Anthropic).
_NOT_AT_THE_TOP = (*COMBINING, "not", "enum", "const", "if", "then", "else")
#: Keywords that say nothing to a model, and refuse what the stored schema refuses again: only whoever reads it needs
#: them.
_SCHEMAS_IN = ("not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems")
_TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
#: Times that one definition is written out inside itself, where references are not taken.
_UNFOLDED = 1
#: Values that a description lists in place of an enum.
_LISTED = 30
#: Schemas of one tool that are written out at most: definitions in each other grow fast.
_MOST_NODES = 3_000


def rendered_wire(wire: str, rules: Rules) -> str:
    """The definition, as `tool_wire` makes it, as the vendor of these rules takes it; the same text where it needs no
    change."""
    definition = json.loads(wire)
    function = definition.get("function")
    if not isinstance(function, dict):
        return wire
    parameters = function.get("parameters")
    root = parameters if isinstance(parameters, dict) else {}
    sent = {**function, "parameters": _Renderer(root, rules).top()}
    if "strict" in sent and not (rules.takes_strict and sent["parameters"] == root and _is_strict(root)):
        del sent["strict"]
    return wire if sent == function else canonical_json({**definition, "function": sent})


def _is_strict(schema: Any) -> bool:
    """Return whether every object in the schema is closed and requires all it names, as `strict` wants it."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        names = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(names) != set(schema.get("required", ())):
            return False
        return all(map(_is_strict, names.values()))
    return all(_is_strict(each) for each in schema.values())


@dataclass
class _Renderer:
    root: Schema
    rules: Rules
    nodes: int = 0

    def top(self) -> Schema:
        """The parameters: one object, without what no vendor takes there."""
        whole = self._without_combinations(dict(self.root))
        node = self._schema({**whole, "type": "object"}, 0, ())
        node["type"] = "object"
        node.setdefault("properties", {})
        return node

    def _without_combinations(self, schema: Schema) -> Schema:
        """The object with the properties of all that it combines; a description says what each combination requires."""
        if not any(key in schema for key in (*_NOT_AT_THE_TOP, "$ref")):
            return schema
        whole = {key: value for key, value in schema.items() if key not in (*_NOT_AT_THE_TOP, "$ref")}
        properties = dict(_mapping(whole.get("properties")))
        required = _names(whole.get("required"))
        words: list[str] = []
        for branch in self._branches(schema, "allOf"):
            properties = {**_mapping(branch.get("properties")), **properties}
            required += _names(branch.get("required"))
        for key in ("anyOf", "oneOf"):
            branches = self._branches(schema, key)
            for branch in branches:
                properties = {**_mapping(branch.get("properties")), **properties}
            ways = [_names(branch.get("required")) for branch in branches]
            required += [name for name in (ways[0] if ways else []) if all(name in way for way in ways)]
            if any(ways):
                choices = dict.fromkeys(", ".join(way) or "nothing more" for way in ways)
                words.append(f"Give {'; or '.join(choices)}.")
        whole["properties"] = properties
        if required:
            whole["required"] = list(dict.fromkeys(required))
        return _described(whole, *words)

    def _branches(self, schema: Schema, key: str) -> list[Schema]:
        """Return the schemas that it combines under this key, each without combinations itself. `$ref` counts as one of
        `allOf`."""
        found = [each for each in _list(schema.get(key)) if isinstance(each, dict)]
        if key == "allOf" and "$ref" in schema:
            found.append({"$ref": schema["$ref"]})
        self.nodes += len(found)
        if self.nodes > _MOST_NODES:
            return []
        return [self._without_combinations(self._followed(each)) for each in found]

    def _followed(self, schema: Schema) -> Schema:
        """The schema behind a reference, with what stands beside that."""
        seen = 0
        while "$ref" in schema and seen < 20:
            target = resolved(schema["$ref"], self.root)
            siblings = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**(target if isinstance(target, dict) else {}), **siblings}
            seen += 1
        return {key: value for key, value in schema.items() if key != "$ref"}

    # -- One schema ---------------------------------------------------------------------------------------------------

    def _schema(self, schema: Any, level: int, inside: tuple[str, ...]) -> Schema:
        """Any schema under the rules. `inside` are the references that led here."""
        self.nodes += 1
        if not isinstance(schema, dict):
            return self._typed({})
        if "$ref" in schema and not self._keeps(schema["$ref"]):
            return self._inlined(schema, level, inside)
        if self._is_too_deep(level):
            node = {key: schema[key] for key in ("type", "description") if key in schema}
            self._type(node)
            return self._kept(self._typed(node))
        node = dict(schema)
        self._type(node)
        self._values(node)
        self._children(node, level, inside)
        self._names(node)
        return self._kept(self._typed(self._apart(node)))

    def _is_too_deep(self, level: int) -> bool:
        limit = self.rules.most_levels
        return (limit is not None and level > limit) or self.nodes > _MOST_NODES

    def _keeps(self, reference: Any) -> bool:
        return self.rules.takes_references and is_definition(reference)

    def _inlined(self, schema: Schema, level: int, inside: tuple[str, ...]) -> Schema:
        """Return the schema that a reference leads to, in its place; a definition that leads to itself ends as an open
        one."""
        reference = str(schema["$ref"])
        target = resolved(schema["$ref"], self.root)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        if inside.count(reference) > _UNFOLDED or len(inside) > 40 or self.nodes > _MOST_NODES:
            target = {key: target[key] for key in ("type", "description") if key in _mapping(target)}
        if not isinstance(target, dict):
            target = {}
        return self._schema({**target, **siblings}, level, (*inside, reference))

    def _children(self, node: Schema, level: int, inside: tuple[str, ...]) -> None:
        """Every schema in this one, in place."""
        self._without_null(node)
        for key in (*COMBINING, "prefixItems"):
            if isinstance(node.get(key), list):
                node[key] = [self._schema(each, level + (key == "prefixItems"), inside) for each in node[key]]
        if isinstance(node.get("items"), list):  # of earlier drafts
            node["items"] = {"anyOf": [self._schema(each, level + 1, inside) for each in node["items"]]}
        elif "items" in node:
            node["items"] = self._schema(node["items"], level + 1, inside)
        elif "array" in _types(node):
            node["items"] = self._typed(self._any_item(node))
        for key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
            if isinstance(node.get(key), dict):
                node[key] = {
                    name: self._schema(each, level + 1, inside) for name, each in node[key].items() if each is not False
                }
            elif key in node:
                del node[key]
        for key in (*_SCHEMAS_IN, "additionalProperties"):
            if isinstance(node.get(key), dict):
                node[key] = self._schema(node[key], level + 1, inside)
        self._combined(node)

    def _without_null(self, node: Schema) -> None:
        """Remove the alternative null in place, where the vendor says that otherwise."""
        for key in ("anyOf", "oneOf"):
            others = [each for each in _list(node.get(key)) if not _is_null(each)]
            if not self.rules.takes_type_lists and len(others) < len(_list(node.get(key))):
                node[key] = others
                node.update({self.rules.nullable: True} if self.rules.nullable else {})

    def _any_item(self, node: Schema) -> Schema:
        """Return the schema for entries of a list that describes none of them, or the first ones only."""
        first = node.get("prefixItems")
        if not first or self._takes("prefixItems"):
            return {}
        return {"anyOf": first} if len(first) > 1 and self._takes("anyOf") else dict(first[0])

    def _combined(self, node: Schema) -> None:
        """Combinations that the vendor does not take, as one that it takes."""
        if "oneOf" in node and not self._takes("oneOf"):
            node["anyOf"] = [*_list(node.get("anyOf")), *_list(node.pop("oneOf"))]
        if "allOf" in node and not self._takes("allOf"):
            for each in _list(node.pop("allOf")):
                _merge(node, each)

    def _apart(self, node: Schema) -> Schema:
        """Return the schema with `anyOf` as the vendor takes it: with several alternatives, and alone, where needed."""
        if "anyOf" not in node or self.rules.takes_type_lists:
            return node
        branches = node["anyOf"]
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        if len(branches) <= 1 or "properties" in rest:
            for each in branches:
                _merge(rest, each if "properties" not in rest else {"properties": each.get("properties", {})})
            return rest
        if not self.rules.any_of_alone:
            return {**rest, "anyOf": branches}
        words = str(rest.get("description", ""))
        return {"anyOf": [_described(each, before=words) if words else each for each in branches]}

    def _typed(self, node: Schema) -> Schema:
        """Return the schema with a type, where the vendor wants one in every schema."""
        if self.rules.needs_types and node.get("type") == "null":
            return {**node, "type": "string", self.rules.nullable or "nullable": True}
        if not self.rules.needs_types or "type" in node or "anyOf" in node:
            return node
        is_object, is_list = "properties" in node, "items" in node
        return {**node, "type": "object" if is_object else "array" if is_list else "string"}

    # -- Its own words ------------------------------------------------------------------------------------------------

    def _type(self, node: Schema) -> None:
        """Fit `type` in place: a list of types only where the vendor takes one."""
        types = _types(node)
        if not isinstance(node.get("type"), list):
            if "type" in node and not types:
                del node["type"]
            return
        if self.rules.takes_type_lists and len(types) == len(node["type"]):
            return
        others = [each for each in types if each != "null"]
        if "null" in types and others and self.rules.nullable:
            node[self.rules.nullable] = True
        if self.rules.takes_type_lists:
            node["type"] = types
        elif len(others) > 1 and "anyOf" not in node:
            del node["type"]
            node["anyOf"] = [{"type": each} for each in others]
        else:
            node["type"] = others[0] if others else "string"

    def _values(self, node: Schema) -> None:
        """Fit `const` and `enum` in place: of the schema's type, each once, and only where the vendor takes them."""
        if "const" in node and not self._takes("const"):
            node["enum"] = [node.pop("const")]
        if "format" in node and self.rules.formats is not None and node["format"] not in self.rules.formats:
            del node["format"]
        if "enum" not in node:
            return
        values = _list(node["enum"])
        types = _types(node)
        matching = [each for each in values if not types or any(_is_of(each, type) for type in types)]
        matching = _once(matching)
        if self.rules.enum_types is not None:
            matching = [each for each in matching if each is not None and each != ""]
        if not types and self.rules.needs_types and (known := _common_type(matching)):
            types, node["type"] = [known], known
        takes = self.rules.enum_types is None or (bool(types) and set(types) - {"null"} <= self.rules.enum_types)
        if matching and takes and len(matching) <= self.rules.most_values:
            node["enum"] = matching
            return
        del node["enum"]
        words = ", ".join(_word(each) for each in (matching or values)[:_LISTED])
        more = " and others" if len(matching or values) > _LISTED else ""
        if words:
            node["description"] = f"{node.get('description', '')} One of: {words}{more}.".strip()

    def _names(self, node: Schema) -> None:
        """Names that every vendor takes, and `required` of those that are there."""
        properties = node.get("properties")
        if not isinstance(properties, dict):
            if not isinstance(node.get("required", []), list):
                del node["required"]
            return
        names = sent_names(properties)
        node["properties"] = {
            names[name]: each if names[name] == name else _described(each, before=f"{name}:")
            for name, each in properties.items()
        }
        required = list(dict.fromkeys(names[name] for name in _names(node.get("required")) if name in names))
        if "required" in node and required != node["required"]:
            node["required"] = required
            if not required:
                del node["required"]
        for key in ("dependentRequired", "dependentSchemas"):
            if isinstance(node.get(key), dict):
                node[key] = {names.get(name, name): _renamed(each, names) for name, each in node[key].items()}

    def _kept(self, node: Schema) -> Schema:
        keywords = self.rules.keywords
        if keywords is None:
            return node
        return {key: value for key, value in node.items() if key in keywords}

    def _takes(self, keyword: str) -> bool:
        return self.rules.keywords is None or keyword in self.rules.keywords


def _is_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    is_const = "const" in schema and schema["const"] is None
    return is_const or schema.get("type") in ("null", ["null"]) or schema.get("enum") == [None]


def _merge(node: Schema, other: Schema) -> None:
    """Take into a schema what another says that counts too."""
    for key, value in other.items():
        if key == "properties":
            node[key] = {**value, **_mapping(node.get(key))}
        elif key == "required":
            node[key] = list(dict.fromkeys([*_names(node.get(key)), *_names(value)]))
        else:
            node.setdefault(key, value)


def _described(schema: Schema, *words: str, before: str = "") -> Schema:
    """The schema with more in its description."""
    parts = [before, str(schema.get("description", "")), *words]
    description = " ".join(each for each in parts if each)
    return {**schema, "description": description} if words or before else schema


def _types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that `type` names, each once."""
    named = schema.get("type")
    found = named if isinstance(named, list) else [named]
    return [each for each in dict.fromkeys(map(str, found)) if each in _TYPES]


def _is_of(value: Any, type: str) -> bool:
    if isinstance(value, bool):
        return type == "boolean"
    if type == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[type])  # type: ignore[arg-type]


def _common_type(values: Iterable[Any]) -> str:
    """The type that all of these values have; empty where there is none."""
    known = {next((type for type in _TYPES if _is_of(each, type)), "") for each in values}
    return known.pop() if len(known) == 1 else ""


def _once(values: Iterable[Any]) -> list[Any]:
    return list({json.dumps(each, sort_keys=True): each for each in values}.values())


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    return [names.get(each, each) for each in value] if isinstance(value, list) else value


def _names(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
