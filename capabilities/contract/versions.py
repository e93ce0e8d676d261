"""Differences between two versions of a tool: in words, in the schema of its arguments, and line by line. Pure.

A change of the schema is breaking where a call that fitted before, with arguments that the schema names, may not fit
afterwards. What this module cannot compare counts as breaking.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["same", "removed", "added"]
#: Lines around a change that are shown with it.
CONTEXT = 3
#: Values that a sentence lists.
LISTED = 5

#: Keywords of a schema that ask for nothing.
_ANNOTATIONS = frozenset({"$schema", "$id", "$comment", "$anchor", "title", "description", "default", "examples"}) | {
    "deprecated",
    "readOnly",
    "writeOnly",
}
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
#: Bounds: the word for people, and whether a greater value asks for more.
_BOUNDS = {
    "minimum": ("the smallest value", True),
    "exclusiveMinimum": ("the value that it must be above", True),
    "maximum": ("the greatest value", False),
    "exclusiveMaximum": ("the value that it must be below", False),
    "minLength": ("the fewest characters", True),
    "maxLength": ("the most characters", False),
    "minItems": ("the fewest entries", True),
    "maxItems": ("the most entries", False),
    "minProperties": ("the fewest fields", True),
    "maxProperties": ("the most fields", False),
}
#: Keywords that `_changes` compares; every other keyword is compared as a whole.
_COMPARED = frozenset({"type", "enum", "const", "properties", "required", "additionalProperties", "items", *_BOUNDS})
_DEFINITIONS = ("$defs", "definitions")
#: Schemas inside schemas that are looked at: deeper ones count as not compared.
_DEPTH = 40


@dataclass(frozen=True)
class SchemaChange:
    """One difference between two schemas. `path` is the argument, such as `place.city` or `tags[]`, or empty."""

    path: str
    text: str
    is_breaking: bool = False


@dataclass(frozen=True)
class Piece:
    """A piece of a text, and on which side it stands."""

    side: Side
    text: str


@dataclass(frozen=True)
class DiffLine:
    """One line of two texts, with its numbers there; a gap between shown lines has neither."""

    side: Side | Literal["gap"]
    text: str = ""
    before: int | None = None
    after: int | None = None


# -- Words and lines ---------------------------------------------------------------------------------------------------


def word_pieces(before: str, after: str) -> list[Piece]:
    """The two texts in one, word by word: without the added pieces it is the first, without the removed the second."""
    first, second = (re.findall(r"\s+|\w+|[^\w\s]", text) for text in (before, after))
    found: list[Piece] = []
    for side, words in _pieces(first, second):
        text = "".join(words)
        if found and found[-1].side == side:
            text, found = found[-1].text + text, found[:-1]
        found.append(Piece(side, text))
    return found


def line_pieces(before: str, after: str, context: int = CONTEXT) -> list[DiffLine]:
    """The lines that differ, with some around them; nothing where the texts are the same."""
    first, second = (text.split("\n") if text else [] for text in (before, after))
    lines: list[DiffLine] = []
    for group in difflib.SequenceMatcher(None, first, second, autojunk=False).get_grouped_opcodes(context):
        if lines or group[0][1] or group[0][3]:
            lines.append(DiffLine("gap"))
        for tag, begin, end, to_begin, to_end in group:
            if tag == "equal":
                both = zip(range(begin, end), range(to_begin, to_end), strict=True)
                lines += [DiffLine("same", first[old], old + 1, new + 1) for old, new in both]
            else:
                lines += [DiffLine("removed", first[old], before=old + 1) for old in range(begin, end)]
                lines += [DiffLine("added", second[new], after=new + 1) for new in range(to_begin, to_end)]
    return lines


def _pieces(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[Side, Sequence[str]]]:
    for tag, begin, end, to_begin, to_end in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag == "equal":
            yield "same", first[begin:end]
            continue
        if end > begin:
            yield "removed", first[begin:end]
        if to_end > to_begin:
            yield "added", second[to_begin:to_end]


# -- Schemas -----------------------------------------------------------------------------------------------------------


def schema_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[SchemaChange]:
    """Return the differences between two schemas of arguments, those that break calls first, else in their order."""
    found = list(_changes(_Sides(before, after), before, after, "", _DEPTH))
    return sorted(dict.fromkeys(found), key=lambda change: not change.is_breaking)


def is_breaking(changes: Sequence[SchemaChange]) -> bool:
    """Return whether a call that fitted before may not fit any more."""
    return any(change.is_breaking for change in changes)


@dataclass(frozen=True)
class _Sides:
    """The two whole schemas: what references point into."""

    before: Any
    after: Any

    @property
    def define_the_same(self) -> bool:
        return all(_same(_get(self.before, name), _get(self.after, name)) for name in _DEFINITIONS)


def _changes(sides: _Sides, before: Any, after: Any, path: str, depth: int) -> Iterator[SchemaChange]:
    """Yield the changes from one schema to another, with what is inside of them."""
    if _same(before, after) and (sides.define_the_same or not _refers(before)):
        return
    before, after = _resolved(sides.before, before), _resolved(sides.after, after)
    if before is None or after is None or depth == 0:
        yield SchemaChange(path, "it changed in a way that only people can compare", True)
        return
    yield from _annotations(before, after, path)
    yield from _types(before, after, path)
    yield from _values(before, after, path)
    yield from _bounds(before, after, path)
    yield from _fields(sides, before, after, path, depth)
    yield from _entries(sides, before, after, path, depth)
    yield from _others(sides, before, after, path)


def _annotations(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[SchemaChange]:
    if not _same(before.get("description"), after.get("description")):
        yield SchemaChange(path, "its description changed")
    if "default" in after and not _same(before.get("default"), after["default"]):
        yield SchemaChange(path, f"the default is {_json(after['default'])}")
    elif "default" in before and "default" not in after:
        yield SchemaChange(path, "it has no default any more")


def _types(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[SchemaChange]:
    first, second = _type_set(before), _type_set(after)
    if first == second:
        return
    lost = {each for each in first if each not in second and not (each == "integer" and "number" in second)}
    named = _named(after.get("type", "anything"))
    if lost:
        yield SchemaChange(
            path, f"the type was narrowed from {_named(before.get('type', 'anything'))} to {named}", True
        )
    else:
        yield SchemaChange(path, f"the type was widened from {_named(before.get('type', 'anything'))} to {named}")


def _values(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[SchemaChange]:
    for first, second in (
        (before.get("enum"), after.get("enum")),
        ([before["const"]] if "const" in before else None, [after["const"]] if "const" in after else None),
    ):
        if _same(first, second):
            continue
        if not isinstance(second, list):
            yield SchemaChange(path, "it takes any value now")
        elif not isinstance(first, list):
            yield SchemaChange(path, f"it takes only {_listed(second)}", True)
        else:
            old, new = {_json(each): each for each in first}, {_json(each): each for each in second}
            removed = [value for text, value in old.items() if text not in new]
            added = [value for text, value in new.items() if text not in old]
            if removed:
                yield SchemaChange(path, f"it does not take {_listed(removed)} any more", True)
            if added:
                yield SchemaChange(path, f"it takes {_listed(added)} too")


def _bounds(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[SchemaChange]:
    for name, (words, more_is_stricter) in _BOUNDS.items():
        first, second = before.get(name), after.get(name)
        if _same(first, second):
            continue
        if second is None:
            yield SchemaChange(path, f"{words} is not limited any more")
            continue
        stricter = not (_is_number(first) and _is_number(second)) or (second > first) == more_is_stricter
        before_text = "" if first is None else f", it was {_json(first)}"
        yield SchemaChange(path, f"{words} is {_json(second)}{before_text}", stricter)


def _fields(
    sides: _Sides, before: Mapping[str, Any], after: Mapping[str, Any], path: str, depth: int
) -> Iterator[SchemaChange]:
    """Yield the changes of an object's properties: removed, new, required or not, and inside of each."""
    first, second = _mapping(before.get("properties")), _mapping(after.get("properties"))
    needed, needs = _names(before.get("required")), _names(after.get("required"))
    for name in first:
        if name not in second:
            yield SchemaChange(_inside(path, name), "it was removed", True)
    for name in second:
        where = _inside(path, name)
        if name not in first:
            if name in needs and name not in needed:
                yield SchemaChange(where, "it is new, and required", True)
            else:
                yield SchemaChange(where, "it is new, and optional")
            # A field that was taken without a name had to fit what is said of those.
            if before.get("additionalProperties", False) is not False:
                yield from _changes(sides, before["additionalProperties"], second[name], where, depth - 1)
            continue
        if name in needs and name not in needed:
            yield SchemaChange(where, "it became required", True)
        elif name in needed and name not in needs:
            yield SchemaChange(where, "it became optional")
        yield from _changes(sides, first[name], second[name], where, depth - 1)
    for name in sorted(needs - needed - {*second}):
        yield SchemaChange(_inside(path, name), "it became required", True)
    yield from _other_fields(sides, before, after, path, depth)


def _other_fields(
    sides: _Sides, before: Mapping[str, Any], after: Mapping[str, Any], path: str, depth: int
) -> Iterator[SchemaChange]:
    """Fields that a schema does not name."""
    name = "additionalProperties"
    first, second = before.get(name), after.get(name)
    if _same(first, second) and not _refers(first):
        return
    if second is False:
        yield SchemaChange(path, "it takes no field that it does not name", first is not None)
    elif first is False or first is None:
        taken = "any field beside those that it names" if second in (None, True) else "more fields, of some form"
        # One that names none of its fields took them all.
        yield SchemaChange(path, f"it takes {taken}", first is None and second not in (None, True))
    else:
        yield from _changes(sides, first, True if second is None else second, _inside(path, "*"), depth - 1)


def _entries(
    sides: _Sides, before: Mapping[str, Any], after: Mapping[str, Any], path: str, depth: int
) -> Iterator[SchemaChange]:
    first, second = before.get("items", True), after.get("items", True)
    if "prefixItems" in before or "prefixItems" in after:
        if not _same((first, before.get("prefixItems")), (second, after.get("prefixItems"))):
            yield SchemaChange(path, "its entries changed in a way that only people can compare", True)
        return
    yield from _changes(sides, first, second, f"{path}[]", depth - 1)


def _others(sides: _Sides, before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[SchemaChange]:
    """Yield the changes of keywords that no other function compares."""
    skipped = {*_COMPARED, *_ANNOTATIONS, *_DEFINITIONS, "$ref", "prefixItems"}
    for name in dict.fromkeys([*before, *after]):
        if name in skipped:
            continue
        first, second = before.get(name), after.get(name)
        same = name in before and name in after and _same(first, second)
        if same and (sides.define_the_same or not _refers(first)):
            continue
        if name in ("anyOf", "oneOf") and name in before and name in after and not _refers([first, second]):
            if name == "anyOf" and _options(first) <= _options(second):
                yield SchemaChange(path, "it takes one form more")
                continue
            yield SchemaChange(path, "the forms that it takes changed", True)
        elif name in ("pattern", "format", "multipleOf", "uniqueItems") and name not in after:
            yield SchemaChange(path, f"{name} is not asked for any more")
        elif name in ("pattern", "format", "multipleOf", "uniqueItems"):
            yield SchemaChange(path, f"{name} is {_json(second)}", second is not False)
        else:
            yield SchemaChange(path, f"{name} changed in a way that only people can compare", True)


def _resolved(root: Any, schema: Any) -> dict[str, Any] | None:
    """The schema as a mapping, with its reference followed; None where that cannot be."""
    seen = set()
    while True:
        if schema is True:
            return {}
        if not isinstance(schema, dict):
            return None
        reference = schema.get("$ref")
        if reference is None:
            return schema
        siblings = {name: value for name, value in schema.items() if name != "$ref" and name not in _DEFINITIONS}
        if not isinstance(reference, str) or reference in seen or {*siblings} - _ANNOTATIONS:
            return None
        seen.add(reference)
        target = _at(root, reference)
        if isinstance(target, dict):
            schema = {**target, **siblings}
        elif target is not True:
            return None
        else:
            schema = siblings


def _at(root: Any, reference: str) -> Any:
    if not reference.startswith("#/"):
        return root if reference == "#" else None
    for step in reference[2:].split("/"):
        root = _get(root, step.replace("~1", "/").replace("~0", "~"))
    return root


def _refers(value: Any) -> bool:
    return '"$ref"' in _json(value) or '"$dynamicRef"' in _json(value)


def _type_set(schema: Mapping[str, Any]) -> frozenset[str]:
    named = schema.get("type")
    if named is None:
        return _TYPES
    found = frozenset(each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str))
    return found | {"integer"} if "number" in found else found


def _options(value: Any) -> frozenset[str]:
    return frozenset(_json(each) for each in value) if isinstance(value, list) else frozenset({_json(value)})


def _names(value: Any) -> set[str]:
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(first: Any, second: Any) -> bool:
    return _json(first) == _json(second)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _named(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)


def _listed(values: Sequence[Any]) -> str:
    rest = len(values) - LISTED
    return ", ".join(_json(each)[:60] for each in values[:LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
