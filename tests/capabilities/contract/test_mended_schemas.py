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
