"""Arguments as they take effect: what is decided on is what will be, and what nobody knows counts against a call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capabilities.contract.approvals import ALWAYS, FIRST_IN_SESSION, NEVER, AskedCall, AskRule, rules_of
from capabilities.contract.effective import Effective, effective_for, restored

NORMAL = {"type": "string", "default": "normal"}


def effective(schema: dict[str, Any], arguments: dict[str, Any]) -> Effective:
    return effective_for(json.dumps({"type": "object", **schema}), arguments)


@pytest.mark.parametrize(
    ("schema", "arguments", "values"),
    [
        ({"properties": {"p": NORMAL}}, {}, {"p": "normal"}),
        ({"properties": {"p": NORMAL}}, {"p": "high"}, {"p": "high"}),
        ({"properties": {"p": {"$ref": "#/$defs/p"}}, "$defs": {"p": NORMAL}}, {}, {"p": "normal"}),
        ({"properties": {"p": {"allOf": [{"type": "string"}, NORMAL]}}}, {}, {"p": "normal"}),
        ({"allOf": [{"$ref": "#/$defs/all"}], "$defs": {"all": {"properties": {"p": NORMAL}}}}, {}, {"p": "normal"}),
        ({"properties": {"p": {"anyOf": [{"enum": ["a"]}, {"type": "null"}], "default": "a"}}}, {}, {"p": "a"}),
        ({"properties": {"o": {"properties": {"p": NORMAL}}}}, {"o": {}}, {"o": {"p": "normal"}}),
        ({"properties": {"o": {"default": {}, "properties": {"p": NORMAL}}}}, {}, {"o": {"p": "normal"}}),
        ({"properties": {"l": {"items": {"properties": {"p": NORMAL}}}}}, {"l": [{}]}, {"l": [{"p": "normal"}]}),
        ({"properties": {"n": {"type": "integer", "default": 3}}}, {}, {"n": 3}),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 3.0}, {"n": 3}),
        ({"properties": {"f": {"default": False}}}, {}, {"f": False}),
    ],
)
def test_defaults_are_filled_in_wherever_a_schema_has_them(
    schema: dict[str, Any], arguments: dict[str, Any], values: dict[str, Any]
) -> None:
    assert effective(schema, arguments) == Effective(values)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"p": {"type": "string"}}}, {}),
        ({"properties": {"p": {"default": None}}}, {}),
        ({"properties": {"p": {"type": ["string", "null"], "default": "normal"}}}, {"p": None}),
        ({"properties": {"p": {"properties": {"inner": {"type": "string"}}}}}, {"p": {}}),
        ({"anyOf": [{"properties": {"p": NORMAL}}, {"properties": {"p": {"default": "high"}}}]}, {}),
        ({"if": {"required": ["q"]}, "then": {"properties": {"p": {}}}}, {}),
    ],
)
def test_what_only_the_far_side_knows_is_unknown(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    found = effective(schema, arguments)

    assert "p" in found.unknown
    assert found.has_match("p", "normal", if_unknown=True)
    assert not found.has_match("p", "normal", if_unknown=False)


def test_an_argument_that_no_schema_names_matches_nothing() -> None:
    assert not effective({"properties": {"p": NORMAL}}, {}).has_match("other", "*", if_unknown=True)


def test_another_spelling_of_a_name_is_looked_at_too() -> None:
    found = effective({"properties": {"p": {"default": "low"}}}, {"P": "normal"})

    assert found.has_match("p", "normal", if_unknown=True)
    assert not found.has_match("p", "low", if_unknown=False)


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"properties": {"o": {"$ref": "#", "default": {}}}}

    assert "o" in effective(schema, {}).unknown


def test_a_schema_that_multiplies_ends() -> None:
    deep: dict[str, Any] = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 9} for n in range(30)}
    names = {f"p{n}": {"$ref": "#/$defs/l0"} for n in range(900)}

    assert effective({"properties": names, "$defs": deep}, {}).unknown


def test_a_rule_that_asks_counts_what_nobody_knows_and_one_that_does_not_ask_does_not() -> None:
    def call() -> AskedCall:
        schema = {"properties": {"p": {"type": "string"}}}
        return AskedCall(1, "t", "c", None, lambda: effective(schema, {}), frozenset)

    low, high = AskRule("low", FIRST_IN_SESSION, argument="p", argument_pattern="low"), AskRule("high", ALWAYS)
    never = AskRule("never", NEVER, argument="p", argument_pattern="*")

    assert rules_of([never, low, high], call()) == [low, high]
    assert rules_of([never], call()) == []


def test_what_a_hook_did_not_change_stays_as_it_was_written() -> None:
    written = {"a": 3.0, "o": {"x": 1}}
    shown = {"a": 3, "o": {"x": 1, "p": "normal"}, "p": "normal"}

    assert restored(shown, written, shown) == written
    assert restored({**shown, "p": "high"}, written, shown) == {**written, "p": "high"}
    assert restored({"o": {"x": 2, "p": "normal"}}, written, shown) == {"o": {"x": 2}}
