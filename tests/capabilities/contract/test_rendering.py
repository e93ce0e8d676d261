"""Definitions as vendors take them, and arguments under a tool's own names again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capabilities.contract.rendering import ALL_RULES, BASE, Rules, rendered_wire, restored, rules_named
from capabilities.contract.rendering.names import ARGUMENT, sent_names
from capabilities.contract.schemas import check_schema, complaints
from capabilities.contract.wire import canonical_json, tool_wire
from capabilities.running.registry import registry

Schema = dict[str, Any]
GOOGLE, PLAIN = ALL_RULES["google"], ALL_RULES["plain"]


def of(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, **more}


def rendered(schema: Schema, rules: Rules = BASE) -> Schema:
    told: Schema = json.loads(rendered_wire(tool_wire("t", "Does t.", schema), rules))["function"]["parameters"]
    return told


def schemas_in(value: Any) -> Iterator[Schema]:
    """Every schema in one."""
    if isinstance(value, list):
        for each in value:
            yield from schemas_in(each)
    elif isinstance(value, dict):
        yield value
        for key, each in value.items():
            inner = each.values() if key in ("properties", "$defs") and isinstance(each, dict) else [each]
            for one in inner:
                yield from schemas_in(one) if key not in ("enum", "default", "required", "const") else ()


LIST: Schema = {"type": "array"}
NULL: Schema = {"type": "null"}
TREE: Schema = {"$ref": "#/$defs/T"}
#: Schemas that some vendor refuses, each of another kind.
HARD: dict[str, Schema] = {
    "a list of anything": of({"ids": {"type": "array"}}),
    "lists in lists": of({"m": {"type": "array", "items": {"type": ["array", "null"]}}}),
    "only the first entries": of({"p": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]}}),
    "either of two": of(
        {"a": {"type": "string"}, "b": {"type": "string"}}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]
    ),
    "one of two objects": {
        "type": "object",
        "oneOf": [of({"a": {"type": "string"}}, required=["a"]), {"$ref": "#/$defs/B"}],
        "$defs": {"B": of({"b": {"type": "integer"}}, required=["b"])},
    },
    "all of two": {"type": "object", "allOf": [of({"a": {}}, required=["a"]), of({"b": {"type": "array"}})]},
    "values of another type": of({"e": {"type": "string", "enum": [1, 2]}, "m": {"type": "integer", "enum": [1, "x"]}}),
    "numbers to choose from": of({"n": {"type": "integer", "enum": [1, 2, 2]}, "c": {"const": 3}, "s": {"const": "x"}}),
    "names of other letters": of({"$filter": {"type": "string"}, "user name": {}, "имя": {}, "x" * 90: {}}),
    "names inside": of(
        {"o": of({"a b": of({"c/d": {"type": "array"}})}), "l": {"type": "array", "items": of({"e f": {}})}}
    ),
    "a tree": of(
        {"t": {"$ref": "#/$defs/T"}}, **{"$defs": {"T": of({"k?": {"type": "array", "items": {"$ref": "#/$defs/T"}}})}}
    ),
    "into the arguments": of({"a b": {"type": "string"}, "c": {"$ref": "#/properties/a%20b"}}),
    "types in a list": of(
        {"s": {"type": ["string", "integer", "null"]}, "n": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    ),
    "formats": of({"d": {"type": "string", "format": "email"}, "n": {"type": "integer", "format": "uint9"}}),
    "closed": of({"a": of({}, additionalProperties=False)}, additionalProperties=False, patternProperties={"^x": {}}),
    "yes and no": of({"any": True, "none": False, "l": {"type": "array", "items": True}}),
    "not there": of({"a": {"type": "string"}}, required=["a", "gone", "a"]),
    "no properties": {"type": "object"},
    "deep": of({"d": json.loads('{"type":"object","properties":{"d":' * 12 + "{}" + "}}" * 12)}),
    "long": of({"e": {"type": "string", "enum": [f"value {number}" for number in range(1_200)]}}),
    "conditions": {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "not": {"required": ["z"]}, **of({"a": {}})},
}


def every(schema: Schema, rules: Rules) -> list[Schema]:
    return list(schemas_in(rendered(schema, rules)))


@pytest.mark.parametrize("rules", ALL_RULES.values(), ids=lambda rules: rules.key or "base")
@pytest.mark.parametrize("kind", sorted(HARD))
def test_nothing_goes_out_that_vendors_are_known_to_refuse(kind: str, rules: Rules) -> None:
    told = rendered(HARD[kind], rules)

    assert told["type"] == "object"
    assert told.keys().isdisjoint({"anyOf", "oneOf", "allOf", "not", "enum", "if", "then", "else"})
    check_schema(told)
    for each in schemas_in(told):
        types = each.get("type") if isinstance(each.get("type"), list) else [each.get("type")]
        assert "array" not in types or isinstance(each["items"], dict)  # type: ignore[operator]
        names = each.get("properties", {})
        assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in names)
        assert set(each.get("required", ())) <= set(names) or "properties" not in each
        assert len(each.get("enum", ())) <= 1_000
        if "enum" in each and each.get("type") == "string":
            assert all(isinstance(value, str) for value in each["enum"])


@pytest.mark.parametrize("kind", sorted(HARD))
def test_gemini_gets_no_word_that_it_does_not_know(kind: str) -> None:
    for each in every(HARD[kind], GOOGLE):
        assert GOOGLE.keywords is not None
        assert each.keys() <= GOOGLE.keywords
        assert isinstance(each.get("type"), str) or "anyOf" in each
        assert "enum" not in each or each["type"] == "string"
        assert "anyOf" not in each or each.keys() == {"anyOf"}
        assert "$ref" not in each


@pytest.mark.parametrize("kind", sorted(HARD))
def test_the_rules_are_met_for_good(kind: str) -> None:
    for rules in ALL_RULES.values():
        once = rendered_wire(tool_wire("t", "Does t.", HARD[kind]), rules)

        assert rendered_wire(once, rules) == once


def test_definitions_of_our_own_go_out_byte_for_byte() -> None:
    for tool in registry.tools.values():
        wire = tool_wire(tool.name, tool.description, tool.parameters)

        assert rendered_wire(wire, BASE) == wire, tool.name


@pytest.mark.parametrize(
    ("kind", "path", "right"),
    [
        ("a list of anything", ("properties", "ids", "items"), {}),
        ("either of two", ("description",), "Give a; or b."),
        ("all of two", ("required",), ["a"]),
        ("values of another type", ("properties", "m", "enum"), [1]),
        ("values of another type", ("properties", "e", "description"), "One of: 1, 2."),
        ("one of two objects", ("properties", "b", "type"), "integer"),
    ],
)
def test_what_a_rendered_schema_says(kind: str, path: tuple[str, ...], right: Any) -> None:
    told: Any = rendered(HARD[kind])
    for part in path:
        told = told[part]

    assert told == right


def test_a_reference_by_name_leads_to_its_schema_and_one_into_nothing_to_any_value() -> None:
    schema = of(
        {"a": {"$ref": "#A"}, "b": {"$ref": "#B"}}, **{"$defs": {"x": {"$anchor": "A", "type": "string", "title": "A"}}}
    )

    for rules in ALL_RULES.values():
        told = rendered(schema, rules)["properties"]

        assert told["a"]["type"] == "string"
        assert "properties" not in told["b"]


def test_a_name_that_is_mapped_is_told_in_the_description() -> None:
    told = rendered(of({"$filter": {"type": "string", "description": "Which ones."}}))

    assert told["properties"] == {"filter": {"type": "string", "description": "$filter: Which ones."}}


def test_two_names_never_become_one() -> None:
    names = ["a b", "a?b", "a_b", "a b ", "имя", "имя2", "é", "e"]

    told = sent_names(dict.fromkeys(names))

    assert len(set(told.values())) == len(names)
    assert told["a_b"] == "a_b"


def test_strict_goes_out_only_where_the_schema_keeps_its_rules() -> None:
    closed = of({"a": {"type": "string"}}, required=["a"], additionalProperties=False)
    for schema, rules, stays in ((closed, BASE, True), (of({"a": {}}), BASE, False), (closed, GOOGLE, False)):
        wire = canonical_json({"type": "function", "function": {"name": "t", "parameters": schema, "strict": True}})

        assert ('"strict":true' in rendered_wire(wire, rules)) is stays


# -- Back -------------------------------------------------------------------------------------------------------------

BACK: list[tuple[str, Any, Any]] = [
    ("names of other letters", {"filter": "x", "user_name": 1}, {"$filter": "x", "user name": 1}),
    ("names of other letters", {"$filter": "x"}, {"$filter": "x"}),
    ("names inside", {"o": {"a_b": {"c_d": [1]}}, "l": [{"e_f": 1}]}, {"o": {"a b": {"c/d": [1]}}, "l": [{"e f": 1}]}),
    ("a tree", {"t": {"k": [{"k": []}]}}, {"t": {"k?": [{"k?": []}]}}),
    ("into the arguments", {"a_b": "x", "c": "y"}, {"a b": "x", "c": "y"}),
    ("a list of anything", {"ids": [1], "more": {"a b": 1}}, {"ids": [1], "more": {"a b": 1}}),
]


@pytest.mark.parametrize(("kind", "sent", "own"), BACK)
def test_arguments_come_back_under_the_names_of_the_stored_schema(kind: str, sent: Any, own: Any) -> None:
    assert restored(sent, HARD[kind]) == own
    assert complaints(canonical_json(HARD[kind]), restored(sent, HARD[kind])) == []


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=70)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, st.integers(), max_size=8))
def test_any_names_come_back_as_they_were(values: dict[str, int]) -> None:
    schema = of({name: {"type": "integer"} for name in values})
    names = sent_names(schema["properties"])

    assert all(ARGUMENT.fullmatch(name) for name in names.values())
    assert set(rendered(schema)["properties"]) == set(names.values())
    assert restored({names[name]: value for name, value in values.items()}, schema) == values


def test_rules_that_nobody_knows_are_those_for_all() -> None:
    assert rules_named("nobody") is BASE
