from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.wire import TOOL_NAME, canonical_json, is_whole, sha256_hex, tool_wire


def test_a_definition_is_openais_form_in_canonical_bytes() -> None:
    wire = tool_wire("add", "Adds – really.", {"type": "object", "properties": {"b": {}, "a": {}}})

    assert wire == (
        '{"function":{"description":"Adds – really.","name":"add",'
        '"parameters":{"properties":{"a":{},"b":{}},"type":"object"}},"type":"function"}'
    )
    assert sha256_hex(wire) == sha256_hex(
        tool_wire("add", "Adds – really.", json.loads(wire)["function"]["parameters"])
    )


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


@given(JSON_VALUES)
def test_equal_values_are_equal_bytes(value: Any) -> None:
    wire = canonical_json(value)

    assert json.loads(wire) == value
    assert canonical_json(json.loads(wire)) == wire


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_does_not_have_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(number)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("a", True),
        ("A-b_9", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("a b", False),
        ("a.b", False),
        ("ä", False),
        ("a\n", False),
        ("a\x00", False),
    ],
)
def test_names_are_those_that_openai_takes(name: str, is_taken: bool) -> None:
    assert bool(TOOL_NAME.match(name)) is is_taken


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        ("", True),
        ("ü \U0001f600", True),
        ("the escape \\u0000", True),
        ({"a": [1, None, "b"]}, True),
        ("\ud800", False),
        ("a\x00", False),
        ({"a": [{"b": "\x00"}]}, False),
        ({"\ud800": 1}, False),
    ],
)
def test_text_that_cannot_be_stored_is_known(value: Any, whole: bool) -> None:
    assert is_whole(value) is whole
