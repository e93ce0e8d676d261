"""Schemas of other drafts and in other forms whose meaning is plain, as JSON Schema 2020-12. Pure.

One function for what MCP servers and OpenAPI documents send.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs

from capabilities.contract.rendering.references import resolved

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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_word(value: Any) -> bool:
    return isinstance(value, str)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


@lru_cache(maxsize=1_000)
def is_pattern(pattern: Any) -> bool:
    """Return whether our validator takes the pattern: one that it does not take would refuse every call."""
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern})
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True


#: Keywords with a plain value, and of which kind: what else stands there says nothing.
PLAIN: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    **dict.fromkeys(("title", "description", "format", "$comment", "contentEncoding", "contentMediaType"), _is_word),
    **dict.fromkeys(("$ref", "$dynamicRef", "$anchor", "$dynamicAnchor", "$schema", "$id"), _is_word),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_truth),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "pattern": lambda value: isinstance(value, str) and is_pattern(value),
    "examples": lambda value: isinstance(value, list),
}
_MAY_BE_NULL = frozenset({"const", "default", "example", "nullable"})
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
    _mend_references(found)
    kind = found.get("type")
    if kind is None or kind == "null" or (isinstance(kind, list) and "object" in kind):
        found["type"] = "object"
    if found.get("type") == "object":
        found.setdefault("properties", {})
    return found


def _mend_references(root: dict[str, Any]) -> None:
    """Mend `$ref` in place: one by the schema's own address leads into it, and one that leads nowhere says nothing."""
    own = root.get("$id", "").removesuffix("#") if isinstance(root.get("$id"), str) else ""
    pending: list[Any] = [root]
    while pending:
        each = pending.pop()
        pending += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        reference = each.get("$ref") if isinstance(each, dict) else None
        if not isinstance(reference, str):
            continue
        if own and reference.startswith(f"{own}#"):
            each["$ref"] = reference = reference[len(own) :]
        if reference.startswith("#") and resolved(reference, root) is None:
            del each["$ref"]


def mended_schema(schema: Any, level: int = 0) -> Any:
    """The schema and all inside it, put right; what is right already comes back as it is. A word in its place is its
    type, or else what it says of it."""
    if isinstance(schema, bool) or level > MAX_LEVELS:
        return schema
    if isinstance(schema, str | list):
        schema = {"type": schema} if _are_types(schema) else {"description": schema}
    if not isinstance(schema, Mapping):
        return {}
    found = mended_node(schema)
    _mend_nullable(found)
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
    found = {name: value for name, value in schema.items() if value is not None or name in _MAY_BE_NULL}
    if isinstance(found.get("properties"), list):
        found["properties"] = _by_name(found["properties"])
    _mend_type(found)
    _mend_bounds(found)
    _mend_required(found)
    if isinstance(found.get("items"), list) and found["items"]:
        found["prefixItems"] = found.pop("items")
        if "additionalItems" in found:
            found["items"] = found.pop("additionalItems")
    for name in ("additionalProperties", "unevaluatedProperties", "uniqueItems"):
        if isinstance(found.get(name), str):
            found[name] = found[name].strip().lower() != "false"
    for name in _NAMED:
        if name in found and not isinstance(found[name], Mapping):
            del found[name]
    if isinstance(found.get("patternProperties"), Mapping):
        found["patternProperties"] = {key: each for key, each in found["patternProperties"].items() if is_pattern(key)}
    for name in _SEVERAL:
        several = found.get(name)
        if isinstance(several, Mapping) and several:
            found[name] = [several]
        elif name in found and not (isinstance(several, list) and several):
            del found[name]
    for name in _ONE:
        if found.get(name) == []:  # an empty object, as PHP writes it
            del found[name]
    if "enum" in found and not (isinstance(found["enum"], list) and found["enum"]):
        del found["enum"]
    _mend_plain(found)
    _mend_dependencies(found)
    return found


def _mend_plain(found: dict[str, Any]) -> None:
    """Mend values in place: a number that is written as a text, words in a list, one example alone."""
    for name in PLAIN.keys() & found.keys():
        is_right, value = PLAIN[name], found[name]
        if is_right(value):
            continue
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", value.strip()):
            value = float(value) if "." in value else int(value)
        elif name in ("title", "description") and isinstance(value, list):
            value = " ".join(map(str, value))
        elif name in ("title", "description") and _is_number(value):
            value = str(value)
        elif name == "examples":
            value = [value]
        if name == "$id" and isinstance(value, str) and value.startswith("#"):
            found.setdefault("$anchor", value[1:])
        found[name] = value
        if not is_right(value):
            del found[name]
    if isinstance(found.get("$id"), str) and not re.fullmatch("[^#]*#?", found["$id"]):  # a name, before draft 2019
        found.setdefault("$anchor", found.pop("$id").partition("#")[2])
        if not re.fullmatch(r"[A-Za-z_][-A-Za-z0-9._]*", found["$anchor"]):
            del found["$anchor"]


def _mend_dependencies(found: dict[str, Any]) -> None:
    """Split `dependencies` of drafts before 2019 in place."""
    dependencies = found.pop("dependencies", None)
    for name, each in dependencies.items() if isinstance(dependencies, Mapping) else ():
        is_names = isinstance(each, list)
        key = "dependentRequired" if is_names else "dependentSchemas"
        if is_names or isinstance(each, Mapping | bool):
            found.setdefault(key, {}).setdefault(name, each)
    named = found.get("dependentRequired")
    if named is not None:
        pairs = named.items() if isinstance(named, Mapping) else ()
        found["dependentRequired"] = {
            key: list(dict.fromkeys(filter(_is_word, names))) for key, names in pairs if isinstance(names, list)
        }


def _are_types(value: Any) -> bool:
    words = value if isinstance(value, list) else [value]
    return bool(words) and all(isinstance(each, str) and _type_of(each) in TYPES for each in words)


def _type_of(word: str) -> str:
    return ODD_TYPES.get(word.lower(), word.lower())


def _mend_nullable(found: dict[str, Any]) -> None:
    """Write `nullable`, which JSON Schema does not know, as a type, in place."""
    if found.pop("nullable", None) is not True or not isinstance(found.get("type"), str) or found["type"] == "null":
        return
    found["type"] = [found["type"], "null"]
    if "enum" in found and None not in found["enum"]:
        found["enum"] = [*found["enum"], None]


def _mend_type(found: dict[str, Any]) -> None:
    kind = found.get("type")
    if kind is None:
        return
    written = [each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str)]
    known = dict.fromkeys(map(_type_of, written))
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


def _by_name(listed: list[Any]) -> dict[str, Any]:
    """Properties that came as a list, each with its name in it."""
    named = [dict(each) for each in listed if isinstance(each, Mapping) and isinstance(each.get("name"), str)]
    return {each.pop("name"): each for each in named}


def _mend_required(found: dict[str, Any]) -> None:
    """Mend `required` in place: a list of names of the object, in draft 3 a word beside each property."""
    written = found.get("required")
    if isinstance(written, str) and written in (found.get("properties") or ()):
        written = [written]
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
