"""The tools of a request, taken apart: their words, what they do, and the parameters of their JSON Schema.

Takes schemas as they come: whatever is malformed is an optional text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from toolhub.bounded_json import load_json
from toolhub.embedded.offline_model import words

#: How deep rows and objects are read.
DEPTH = 4
#: Weight of a word by where the tool says it.
IN_NAME, IN_SUMMARY, IN_PARAMETER, IN_PARAMETER_TEXT, IN_CHOICES = 3.0, 1.6, 1.2, 0.4, 1.5
#: Notations, each with the formats and the names of the texts that are written in it.
NOTATIONS = (
    ("url", "uri url iri", "url uri link href webpage"),
    ("email", "email", "email mail"),
    ("path", "", "path file filename folder directory filepath"),
    ("sum", "", "expression expr formula calculation equation math sum"),
    ("date", "date date-time", "date due deadline when datetime"),
)


@dataclass(frozen=True)
class Parameter:
    """One parameter, its references and unions resolved to the first alternative that is not null."""

    name: str
    kind: str
    required: bool
    description: str
    format: str
    choices: tuple[Any, ...]
    items: Parameter | None = None
    fields: tuple[Parameter, ...] = ()

    @cached_property
    def name_stems(self) -> tuple[str, ...]:
        return tuple(words.stem(part) for part in words.parts(self.name))

    def is_named(self, names: str) -> bool:
        """Return whether one of these words is in the name."""
        return not {words.stem(name) for name in names.split()}.isdisjoint(self.name_stems)

    @cached_property
    def wants(self) -> str:
        """Kind of value that the parameter takes: choice, number, boolean, array, object, a notation, or any `text`."""
        if self.choices:
            return "choice"
        if self.kind != "string":
            return {"integer": "number"}.get(self.kind, self.kind)
        for notation, formats, names in NOTATIONS:
            if self.format in formats.split() or self.is_named(names):
                return notation
        is_dated = re.search(r"\b(?:date|time|ISO|YYYY|day|when)\b", self.description)
        return "date" if is_dated and self.is_named("day time start end at from until since") else "text"


@dataclass(frozen=True)
class Tool:
    """One definition of a request. `terms` says what each of its words and groups of words counts for."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    terms: Mapping[str, float]
    verbs: frozenset[str]

    @cached_property
    def name_stems(self) -> tuple[str, ...]:
        return words.stems(self.name)

    @cached_property
    def kinds(self) -> frozenset[str]:
        return words.kinds(self.verbs)

    @cached_property
    def only_reads(self) -> bool:
        """True where the tool changes nothing, by its words: it reads, or is named after its result."""
        if self.kinds:
            return self.kinds <= {"read", "compute"}
        first = words.WORD.match(self.description)
        return not self.verbs and first is not None and first[0].lower() in words.DETERMINERS

    @cached_property
    def overwrites(self) -> bool:
        return re.match(r"(?:replace|overwrite|empty|erase|wipe|clear)", self.description, re.IGNORECASE) is not None

    @cached_property
    def makes_available(self) -> bool:
        """True where the tool loads tools."""
        return "load" in self.verbs and bool({"tool", "toolkit"} & self.terms.keys())

    @cached_property
    def shapes(self) -> frozenset[str]:
        """The notations that it cannot do without."""
        shapes = {each.wants for each in self.parameters if each.required} & {"url", "path", "sum", "email"}
        ends = [any(each.is_named(names) for each in self.parameters) for names in ("from source base", "to target")]
        if all(ends) and any(each.kind in ("integer", "number") for each in self.parameters):
            shapes.add("conversion")
        return frozenset(shapes)


def read_tools(definitions: object) -> list[Tool]:
    """The tools of a request; what is not a function with a name is left out."""
    tools = []
    for definition in definitions if isinstance(definitions, list) else []:
        function = definition.get("function") if isinstance(definition, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str) and function["name"]:
            tools.append(_tool(json.dumps(function, sort_keys=True)))
    return tools


@lru_cache(maxsize=2_000)
def _tool(source: str) -> Tool:
    function = load_json(source)
    name, description = function["name"], _text(function.get("description"))
    schema = function.get("parameters")
    root = schema if isinstance(schema, dict) else {}
    parameters = _fields(_resolved(root, root), root, DEPTH)
    # The people that a tool serves are not its subject.
    about = re.sub(r"\bthe (?:user|member)(?:['’]s)?\b", "", description, flags=re.IGNORECASE)
    summary = about.partition(". ")[0]
    texts = [(name, IN_NAME), (summary, IN_SUMMARY)]
    for each in parameters:
        choices = " ".join(str(choice) for choice in each.choices[:50])
        texts += [(each.name, IN_PARAMETER), (each.description[:300], IN_PARAMETER_TEXT), (choices, IN_CHOICES)]
    terms: dict[str, float] = {}
    for text, weight in texts:
        for stem in words.stems(text):
            for key in (stem, *words.groups(stem)):
                terms[key] = max(terms.get(key, 0.0), weight)
    return Tool(name, description, parameters, terms, _verbs(name, summary))


def _verbs(name: str, summary: str) -> frozenset[str]:
    """Return the verbs of the tool: by its name, or where that says nothing, by how its description begins.

    A name begins with its verb or ends in it (create_task, task_create). Where both ends could be one (list_add), the
    description decides; where that says a third thing, any of them may be meant.
    """
    parts = words.stems(name)
    begins = frozenset(verb for stem in words.stems(summary)[:1] for verb in words.verbs(stem))
    ends = [found for found in map(words.verbs, (*parts[:1], *parts[-1:])) if found]
    agreeing = [found for found in ends if found & begins]
    if agreeing or ends:
        return frozenset().union(*agreeing) if agreeing else begins.union(*ends)
    return frozenset(verb for stem in parts for verb in words.verbs(stem)) or begins


# -- JSON Schema -----------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _fields(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> tuple[Parameter, ...]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not depth:
        return ()
    needed: Sequence[object] = required if isinstance(required, list) else ()
    return tuple(_parameter(str(name), child, root, name in needed, depth) for name, child in properties.items())


def _parameter(name: str, schema: object, root: Mapping[str, Any], required: bool, depth: int) -> Parameter:
    resolved = _resolved(schema, root)
    choices = resolved.get("enum", [resolved["const"]] if "const" in resolved else [])
    kind = resolved.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "string")
    kind = _text(kind) or ("object" if "properties" in resolved else "array" if "items" in resolved else "string")
    return Parameter(
        name=name,
        kind=kind,
        required=required,
        description=_text(resolved.get("description")),
        format=_text(resolved.get("format")),
        choices=tuple(choice for choice in choices if choice is not None) if isinstance(choices, list) else (),
        items=_parameter(name, resolved.get("items"), root, True, depth - 1) if kind == "array" and depth > 1 else None,
        fields=_fields(resolved, root, depth - 1) if kind == "object" else (),
    )


def _resolved(schema: object, root: Mapping[str, Any], hops: int = 8) -> Mapping[str, Any]:
    """The schema behind references inside the document, and of a union the first branch that is not null."""
    if not isinstance(schema, dict) or not hops:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: object = root
        for part in reference[2:].split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        return {**_resolved(target, root, hops - 1), **{key: value for key, value in schema.items() if key != "$ref"}}
    for union in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(union)
        if isinstance(branches, list):
            live = [branch for branch in branches if isinstance(branch, dict) and branch.get("type") != "null"]
            rest = {key: value for key, value in schema.items() if key != union}
            return {**_resolved(live[0], root, hops - 1), **rest} if live else rest
    return schema
