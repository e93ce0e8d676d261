"""JSON Schemas of tool arguments (draft 2020-12): which are taken, and whether arguments fit. Nothing is fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs

#: Bounds of a schema that is taken; real catalogues stay far below (the largest of 34 MCP servers has 200 properties).
MAX_DEPTH = 50
MAX_PROPERTIES = 1_000
MAX_CHARS = 200_000
#: Mistakes of one call that are reported.
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
    """Return the errors in these arguments, a sentence each with the place; empty where they fit.

    The schema comes as its JSON text, by which the compiled validator is kept.
    """
    found = []
    try:
        for error in _validator(schema_text).iter_errors(arguments):
            path = ".".join(str(part) for part in error.instance_path) or "arguments"
            found.append(f"{path}: {error.message[:300]}")
            if len(found) == MAX_COMPLAINTS:
                break
    except ValueError as error:  # nested too deep for the validator, or half a character
        found.append(f"arguments: {str(error)[:300]}")
    return found


@lru_cache(maxsize=2048)
def _validator(schema_text: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(schema_text), retriever=_refuse_remote)


# -- Schemas that need no child process --------------------------------------------------------------------------------

#: Checks that one call may take in this process: those of the schema, all references followed, times the arguments'
#: values. 20,000 failing ones take a quarter of a second at worst.
MOST_CHECKS = 20_000
#: Characters of a pattern, and the sum of what it repeats.
MAX_PATTERN, MAX_REPEATED = 300, 200
#: Keywords whose checks cannot be counted beforehand.
UNCOUNTED = frozenset(
    {"$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor", "patternProperties"}
    | {"unevaluatedProperties", "unevaluatedItems"}
)
#: Parts of a pattern: what is not matched in linear time (looking around, references back), and what it repeats.
_NOT_LINEAR = re.compile(r"\(\?(?!:)|\)\{|\\[1-9kgG]|\\p", re.IGNORECASE)
_REPEATED = re.compile(r"\{(\d*)(?:,(\d*))?\}")


def is_quickly_checked(schema_text: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether these arguments may be checked against this schema from outside in this process: by the schema
    alone, the time that they take is bounded."""
    checks = _checks_of(schema_text)
    return checks is not None and checks * _values_in(arguments, MOST_CHECKS // checks) <= MOST_CHECKS


@lru_cache(maxsize=2048)
def _checks_of(schema_text: str) -> int | None:
    """Checks of one value at most, of a schema without references that go round, hostile patterns and what else cannot
    be counted; None for any other."""
    if len(schema_text) > MAX_CHARS:
        return None
    schema = json.loads(schema_text)
    try:
        return max(1, _Checks(schema).of(schema))
    except (_Uncounted, RecursionError):
        return None


class _Uncounted(Exception):
    """Error: the schema has something that is not counted."""


class _Checks:
    def __init__(self, root: Any) -> None:
        self._root = root
        #: Checks by the reference; None while it is followed.
        self._of_reference: dict[str, int | None] = {}

    def of(self, node: Any) -> int:
        """Raises _Uncounted. Every name and value counts, whatever it means: more than there are checks."""
        if isinstance(node, list):
            return sum(1 + self.of(each) for each in node)
        if not isinstance(node, dict):
            return 0
        if UNCOUNTED & node.keys() or not self._is_linear(node.get("pattern")):
            raise _Uncounted
        found = sum(1 + self.of(each) for name, each in node.items() if name not in ("$defs", "definitions"))
        if isinstance(node.get("$ref"), str):
            found += self._followed(node["$ref"])
        if found > MOST_CHECKS:
            raise _Uncounted
        return found

    def _followed(self, reference: str) -> int:
        if reference not in self._of_reference:
            self._of_reference[reference] = None
            self._of_reference[reference] = self.of(self._target(reference))
        found = self._of_reference[reference]
        if found is None:  # it goes round
            raise _Uncounted
        return found

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            raise _Uncounted
        node = self._root
        for part in reference[2:].split("/"):
            if not isinstance(node, dict):
                raise _Uncounted
            node = node.get(part.replace("~1", "/").replace("~0", "~"))
        if node is None:
            raise _Uncounted
        return node

    @staticmethod
    def _is_linear(pattern: Any) -> bool:
        if not isinstance(pattern, str):
            return True
        repeated = sum(int(found[2] or found[1] or 1) for found in _REPEATED.finditer(pattern))
        return len(pattern) <= MAX_PATTERN and repeated <= MAX_REPEATED and not _NOT_LINEAR.search(pattern)


def _values_in(value: Any, limit: int) -> int:
    """Values of the arguments; a little more than `limit` where there are more."""
    found, waiting = 0, [value]
    while waiting and found <= limit:
        each = waiting.pop()
        found += 1
        if isinstance(each, dict | list):
            waiting += each.values() if isinstance(each, dict) else each
    return found


def _refuse_remote(uri: str) -> Any:
    raise ValueError(f"The reference {uri} points outside the schema; write it under $defs.")


def _check_size(schema: dict[str, Any]) -> None:
    """Raise SchemaRefused for a schema that is too deep, too wide or too long, or that refers to the outside."""
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
