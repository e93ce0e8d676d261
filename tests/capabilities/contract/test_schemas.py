from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.schemas import MAX_COMPLAINTS, SchemaRefused, check_schema, complaints


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = of(a=schema)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        of(),
        of(a={"type": "string", "pattern": "^(a+)+$"}),
        of(a={"$ref": "#"}),
        {**of(a={"$ref": "#/$defs/b"}), "$defs": {"b": {"type": "object", "properties": {"c": {"$ref": "#/$defs/b"}}}}},
        of(**{f"p{number}": {"type": "string"} for number in range(1_000)}),
        of(**{"$ref": {"type": "string"}}),
        nested(24),
    ],
)
def test_a_schema_for_an_object_is_taken(schema: dict[str, Any]) -> None:
    check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "The parameters must be a JSON Schema object."),
        ([], "The parameters must be a JSON Schema object."),
        ("{}", "The parameters must be a JSON Schema object."),
        (True, "The parameters must be a JSON Schema object."),
        ({}, 'The parameters must have "type": "object".'),
        ({"type": "string"}, 'The parameters must have "type": "object".'),
        ({"type": ["object", "null"]}, 'The parameters must have "type": "object".'),
        (
            of(a={"$ref": "https://example.com/s.json"}),
            "The reference https://example.com/s.json points outside the schema; write it under $defs.",
        ),
        (
            of(a={"$ref": "file:///etc/passwd"}),
            "The reference file:///etc/passwd points outside the schema; write it under $defs.",
        ),
        (of(a={"$dynamicRef": "b.json"}), "The reference b.json points outside the schema; write it under $defs."),
        (nested(100), "The parameters are nested more than 50 deep."),
        (of(**{f"p{number}": {} for number in range(5_000)}), "The parameters have more than 1,000 properties."),
        (of(a={"description": "x" * 200_001}), "The parameters are longer than 200,000 characters."),
        (
            of(a={"default": float("nan")}),
            "The parameters hold a number that JSON does not have (NaN or infinite).",
        ),
    ],
)
def test_what_cannot_be_the_parameters_of_a_tool_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        check_schema(schema)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    "schema",
    [
        of(a={"type": "strin"}),
        of(a={"pattern": "("}),
        of(a={"$ref": "#/$defs/missing"}),
        of(a={"minimum": "1"}),
        {"type": "object", "properties": []},
        {"type": "object", "required": "a"},
        of(a={"enum": ["\ud800"]}),
    ],
)
def test_what_is_no_json_schema_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaRefused, match=r"^The parameters are not a valid JSON Schema: "):
        check_schema(schema)


SCHEMA = json.dumps(
    {
        "type": "object",
        "required": ["x"],
        "additionalProperties": False,
        "properties": {
            "x": {"type": "integer", "maximum": 9},
            "tags": {"type": "array", "items": {"type": "string"}},
            "kind": {"enum": ["a", "b"]},
        },
    }
)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"x": 1}, []),
        ({"x": 1.0}, []),
        ({"x": "1"}, ['x: "1" is not of type "integer"']),
        ({"x": True}, ['x: true is not of type "integer"']),
        ({"x": 10**30}, ["x: 1000000000000000000000000000000 is greater than the maximum of 9"]),
        ({}, ['arguments: "x" is a required property']),
        ({"x": 1, "y": 2}, ["arguments: Additional properties are not allowed ('y' was unexpected)"]),
        ({"x": 1, "tags": ["a", 2]}, ['tags.1: 2 is not of type "string"']),
        ({"x": 1, "kind": "c"}, ['kind: "c" is not one of "a" or "b"']),
    ],
)
def test_each_mistake_is_told_with_its_place(arguments: dict[str, Any], found: list[str]) -> None:
    assert complaints(SCHEMA, arguments) == found


def test_only_the_first_mistakes_are_told_and_each_is_cut() -> None:
    found = complaints(SCHEMA, {"x": 1, "tags": list(range(50))})
    (long,) = complaints(SCHEMA, {"x": "y" * 5_000})

    assert len(found) == MAX_COMPLAINTS
    assert len(long) <= 310


def test_arguments_that_the_validator_cannot_read_are_a_mistake_too() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = [deep]

    assert complaints(SCHEMA, {"x": deep}) == ["arguments: Recursion limit reached"]
    assert len(complaints(SCHEMA, {"x": 1, "\ud800": 1})) == 1


def test_a_pattern_that_never_ends_ends() -> None:
    bomb = json.dumps(of(a={"pattern": "^(a|a)*(?=b)$"}))
    begun = time.monotonic()

    (found,) = complaints(bomb, {"a": "a" * 60 + "!"})

    assert found.startswith("a: ")
    assert time.monotonic() - begun < 2


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(["x", "tags", "kind", "y"]), VALUES))
def test_no_arguments_of_any_shape_raise(arguments: dict[str, Any]) -> None:
    assert all(isinstance(each, str) for each in complaints(SCHEMA, arguments))
