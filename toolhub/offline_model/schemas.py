"""Reads a tool's JSON Schema into parameters. Takes schemas as they come: whatever is malformed is an optional text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolhub.offline_model import words

DEPTH = 4


@dataclass(frozen=True)
class Parameter:
    """One parameter, its references and unions resolved to the first alternative that is not null."""

    name: str
    kind: str
    required: bool
    description: str
    format: str
    choices: tuple[Any, ...]
    schema: Mapping[str, Any]
    items: Parameter | None = None
    fields: tuple[Parameter, ...] = ()

    @cached_property
    def name_stems(self) -> tuple[str, ...]:
        return tuple(words.stem(part) for part in words.parts(self.name))

    @cached_property
    def stated(self) -> frozenset[str]:
        """The stems of its name and description."""
        return frozenset(self.name_stems) | frozenset(words.stems(self.description))

    def is_named(self, *names: str) -> bool:
        return not {words.stem(name) for name in names}.isdisjoint(self.name_stems)

    @cached_property
    def wants(self) -> str:
        """Which notation a text has to have: url, email, path, sum, date, key; `text` is any; else nothing."""
        if self.kind != "string" or self.choices:
            return ""
        if self.format in ("uri", "url", "iri") or self.is_named("url", "uri", "link", "href", "webpage"):
            return "url"
        if self.format == "email" or self.is_named("email", "mail"):
            return "email"
        if self.is_named("path", "file", "filename", "folder", "directory", "filepath"):
            return "path"
        sums = self.is_named("expression", "expr", "formula", "calculation", "equation", "math", "sum")
        if sums or re.search(r"\b(?:arithmetic|math\w*|formula)\b", self.description, re.IGNORECASE):
            return "sum"
        if self._is_date():
            return "date"
        keys = ("id", "identifier", "code", "reference", "ref", "sku", "ticket", "uuid")
        return "key" if self.is_named(*keys) or self.name_stems[-1:] == (words.stem("number"),) else "text"

    def _is_date(self) -> bool:
        if self.format in ("date", "date-time", "time") or self.is_named("date", "due", "deadline", "when", "datetime"):
            return True
        told = re.search(r"\b(?:date|time|ISO|YYYY|day|when)\b", self.description)
        return told is not None and self.is_named("day", "time", "start", "end", "at", "from", "until", "since")


def parameters(schema: object) -> list[Parameter]:
    """The parameters of a tool, in their order."""
    root = schema if isinstance(schema, dict) else {}
    return _fields(_resolved(root, root), root, DEPTH)


def _fields(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[Parameter]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not depth:
        return []
    needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return [_parameter(str(name), child, root, str(name) in needed, depth) for name, child in properties.items()]


def _parameter(name: str, schema: object, root: Mapping[str, Any], required: bool, depth: int) -> Parameter:
    resolved = _resolved(schema, root)
    choices = resolved.get("enum", [resolved["const"]] if "const" in resolved else [])
    description = resolved.get("description")
    kind = _kind(resolved)
    return Parameter(
        name=name,
        kind=kind,
        required=required,
        description=description if isinstance(description, str) else "",
        format=str(resolved.get("format", "")),
        choices=tuple(choice for choice in choices if choice is not None) if isinstance(choices, list) else (),
        schema=resolved,
        items=_parameter(name, resolved.get("items"), root, True, depth - 1) if kind == "array" and depth > 1 else None,
        fields=tuple(_fields(resolved, root, depth - 1)) if kind == "object" else (),
    )


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "string")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _resolved(schema: object, root: Mapping[str, Any], hops: int = 8) -> Mapping[str, Any]:
    """The schema behind references inside the document, and of a union the first branch that is not null."""
    if not isinstance(schema, dict) or not hops:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: object = root
        for part in reference[2:].split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        return {**_resolved(target, root, hops - 1), **{k: v for k, v in schema.items() if k != "$ref"}}
    for union in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(union)
        if isinstance(branches, list):
            live = [branch for branch in branches if isinstance(branch, dict) and branch.get("type") != "null"]
            rest = {key: value for key, value in schema.items() if key != union}
            return {**_resolved(live[0], root, hops - 1), **rest} if live else rest
    return schema
