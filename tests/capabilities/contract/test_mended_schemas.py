"""Schemas of other drafts and forms: what they plainly mean is taken, and what is right stays as it is."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from capabilities.common.confined_jobs.definitions import run
from capabilities.contract.mended_schemas import mended_arguments, mended_schema
from capabilities.contract.schemas import check_schema

OBJECT = {"type": "object"}
MEANT: list[tuple[Any, dict[str, Any]]] = [
    ({}, {"type": "object", "properties": {}}),
    (None, {"type": "object", "properties": {}}),
    ("object", {"type": "object", "properties": {}}),
    ({"type": ["object", "null"], "properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    ({"type": "Object", "properties": None, "required": None}, {"type": "object", "properties": {}}),
    (
        OBJECT | {"properties": {"t": {"type": "array", "items": [{"type": "int"}, {}], "additionalItems": False}}},
        OBJECT | {"properties": {"t": {"type": "array", "prefixItems": [{"type": "integer"}, {}], "items": False}}},
    ),
    (
        OBJECT | {"properties": {"n": {"minimum": 0, "exclusiveMinimum": True, "exclusiveMaximum": False}}},
        OBJECT | {"properties": {"n": {"minimum": 0, "exclusiveMinimum": 0}}},
    ),
    (
        OBJECT | {"properties": {"a": {"type": "str", "required": True}, "b": {"required": False}}},
        OBJECT | {"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]},
    ),
    (
        OBJECT | {"properties": {"a": {"anyOf": [{"type": "dict", "additionalProperties": "false"}]}}},
        OBJECT | {"properties": {"a": {"anyOf": [{"type": "object", "additionalProperties": False}]}}},
    ),
    (OBJECT | {"properties": {"a": {"type": "any"}, "b": None}}, OBJECT | {"properties": {"a": {}}}),
    *(
        (OBJECT | {"properties": {"a": odd}}, OBJECT | {"properties": {"a": meant}})
        for odd, meant in [
            ("string", {"type": "string"}),
            ("The name.", {"description": "The name."}),
            (["str", "null"], {"type": ["string", "null"]}),
            (1, {}),
            ({"type": "array", "items": []}, {"type": "array"}),
            ({"type": "array", "items": "int"}, {"type": "array", "items": {"type": "integer"}}),
            ({"additionalProperties": []}, {}),
            ({"description": 5, "title": ["a", "b"]}, {"description": "5", "title": "a b"}),
            ({"description": {"en": "x"}, "$comment": 1}, {}),
            ({"examples": "x", "deprecated": "use b", "readOnly": 1}, {"examples": ["x"]}),
            ({"pattern": "(?i)^a(?P<x>", "format": 5}, {}),
            ({"minLength": "3", "minimum": "0.5", "maximum": "-1"}, {"minLength": 3, "minimum": 0.5, "maximum": -1}),
            ({"minLength": -1, "multipleOf": 0, "maxItems": "many"}, {}),
            ({"anyOf": [], "oneOf": {"type": "string"}}, {"oneOf": [{"type": "string"}]}),
            ({"anyOf": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
            ({"patternProperties": {"[": {}, "^a": {}}}, {"patternProperties": {"^a": {}}}),
            ({"propertyNames": {"pattern": "["}}, {"propertyNames": {}}),
            ({"$ref": "#/definitions/Gone", "title": "A"}, {"title": "A"}),
            ({"$ref": 5}, {}),
            ({"$id": "#foo", "type": "string"}, {"$anchor": "foo", "type": "string"}),
            (
                {"dependencies": {"b": ["c"], "d": {}}, "minLength": "1"},
                {
                    "dependentRequired": {"b": ["c"]},
                    "dependentSchemas": {"d": {}},
                    "minLength": 1,
                },
            ),
            ({"type": "string", "nullable": True, "enum": ["x"]}, {"type": ["string", "null"], "enum": ["x", None]}),
            ({"type": "string", "enum": []}, {"type": "string"}),
        ]
    ),
    ({"type": "object", "properties": [], "required": []}, {"type": "object", "properties": {}, "required": []}),
    (
        OBJECT | {"properties": [{"name": "a", "type": "string", "required": True}]},
        OBJECT | {"properties": {"a": {"type": "string"}}, "required": ["a"]},
    ),
    (OBJECT | {"properties": {"a": {}}, "required": "a"}, OBJECT | {"properties": {"a": {}}, "required": ["a"]}),
    (
        OBJECT
        | {"$id": "https://x.org/s", "properties": {"a": {"$ref": "https://x.org/s#/$defs/A"}}, "$defs": {"A": {}}},
        OBJECT | {"$id": "https://x.org/s", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}},
    ),
]


@pytest.mark.parametrize(("sent", "meant"), MEANT)
def test_a_schema_whose_meaning_is_plain_is_put_right(sent: Any, meant: dict[str, Any]) -> None:
    before = copy.deepcopy(sent)

    found = mended_arguments(sent)

    check_schema(found)
    assert (found, sent) == (meant, before)


@pytest.mark.parametrize(("sent", "meant"), MEANT)
def test_a_list_of_mcp_tools_takes_it_and_says_that_it_was_put_right(sent: Any, meant: dict[str, Any]) -> None:
    right = {"name": "right", "inputSchema": OBJECT}
    sent_tools = [{"name": "odd", "inputSchema": sent, "schemaFlaw": "mine"}, right]

    odd, good = run(json.dumps({"tools": sent_tools}))["tools"]

    assert (odd["inputSchema"], odd["schemaMended"], odd.get("schemaFlaw")) == (meant, True, None)
    assert (good["inputSchema"], good["schemaMended"]) == (OBJECT, False)


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {"required": {"type": ["string", "null"], "enum": ["int", None, 1]}, "type": {"const": None}},
            "required": ["required"],
            "additionalProperties": False,
            "$defs": {"a": {"items": {"exclusiveMinimum": 1}}},
        },
        {"type": "object", "properties": {"a": {"default": {"type": "int", "required": True}}}, "x-more": [1]},
    ],
)
def test_what_is_right_stays_as_it_is(schema: dict[str, Any]) -> None:
    assert mended_schema(schema) == schema


def test_what_cannot_be_arguments_is_refused_with_a_reason() -> None:
    (tool,) = run(json.dumps({"tools": [{"name": "a", "inputSchema": {"type": "array"}}]}))["tools"]

    assert tool["schemaFlaw"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_costs_no_list(value: float) -> None:
    odd = {"name": "odd", "inputSchema": OBJECT | {"properties": {"a": {"default": value}}}}

    found = run(json.dumps({"tools": [odd, {"name": "right", "inputSchema": OBJECT}]}))["tools"]

    assert [each.get("schemaFlaw") for each in found] == [None, None]


def test_a_schema_that_is_nested_too_deep_costs_no_list() -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = OBJECT | {"properties": {"a": deep}}

    odd, good = run(json.dumps({"tools": [{"name": "a", "inputSchema": deep}, {"name": "b", "inputSchema": OBJECT}]}))[
        "tools"
    ]

    assert "deep" in odd["schemaFlaw"]
    assert good.get("schemaFlaw") is None
