"""Differences between versions: what is said of them, and that nothing is called compatible that is not."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capabilities.contract.versions import (
    DiffLine,
    Piece,
    SchemaChange,
    is_breaking,
    line_pieces,
    schema_changes,
    word_pieces,
)


def of(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (of(a=TEXT), of(), SchemaChange("a", "it was removed", True)),
        (of(), of(("a",), a=TEXT), SchemaChange("a", "it is new, and required", True)),
        (of(), of(a=TEXT), SchemaChange("a", "it is new, and optional")),
        (of(a=TEXT), of(("a",), a=TEXT), SchemaChange("a", "it became required", True)),
        (of(("a",), a=TEXT), of(a=TEXT), SchemaChange("a", "it became optional")),
        (of(a=NUMBER), of(a=WHOLE), SchemaChange("a", "the type was narrowed from number to integer", True)),
        (of(a=WHOLE), of(a=NUMBER), SchemaChange("a", "the type was widened from integer to number")),
        (
            of(a=TEXT),
            of(a={"type": ["string", "null"]}),
            SchemaChange("a", "the type was widened from string to string or null"),
        ),
        (
            of(a={"enum": ["x", "y"]}),
            of(a={"enum": ["x"]}),
            SchemaChange("a", 'it does not take "y" any more', True),
        ),
        (of(a={"enum": ["x"]}), of(a={"enum": ["x", "y"]}), SchemaChange("a", 'it takes "y" too')),
        (of(a={}), of(a={"enum": [1]}), SchemaChange("a", "it takes only 1", True)),
        (of(a={"const": 1}), of(a={}), SchemaChange("a", "it takes any value now")),
        (
            of(a=WHOLE | {"maximum": 9}),
            of(a=WHOLE | {"maximum": 5}),
            SchemaChange("a", "the greatest value is 5, it was 9", True),
        ),
        (
            of(a=TEXT | {"minLength": 3}),
            of(a=TEXT | {"minLength": 1}),
            SchemaChange("a", "the fewest characters is 1, it was 3"),
        ),
        (of(a=TEXT), of(a=TEXT | {"maxLength": 5}), SchemaChange("a", "the most characters is 5", True)),
        (of(a=TEXT), of(a=TEXT | {"pattern": "^x"}), SchemaChange("a", 'pattern is "^x"', True)),
        (of(a=TEXT | {"format": "uri"}), of(a=TEXT), SchemaChange("a", "format is not asked for any more")),
        (of(a=of(b=TEXT)), of(a=of()), SchemaChange("a.b", "it was removed", True)),
        (
            of(a={"type": "array", "items": WHOLE}),
            of(a={"type": "array", "items": TEXT}),
            SchemaChange("a[]", "the type was narrowed from integer to string", True),
        ),
        (of(a=TEXT), of(a=TEXT | {"description": "Which."}), SchemaChange("a", "its description changed")),
        (of(a=WHOLE | {"default": 1}), of(a=WHOLE | {"default": 2}), SchemaChange("a", "the default is 2")),
        (
            of() | {"additionalProperties": True},
            of() | {"additionalProperties": False},
            SchemaChange("", "it takes no field that it does not name", True),
        ),
        (
            of(a={"anyOf": [TEXT]}),
            of(a={"anyOf": [TEXT, WHOLE]}),
            SchemaChange("a", "it takes one form more"),
        ),
        (
            of(a={"not": TEXT}),
            of(a={"not": WHOLE}),
            SchemaChange("a", "not changed in a way that only people can compare", True),
        ),
        (
            of(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": WHOLE}},
            of(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": TEXT}},
            SchemaChange("a", "the type was narrowed from integer to string", True),
        ),
        (
            of(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": {"items": {"$ref": "#/$defs/x"}}}},
            of(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": {"items": {"$ref": "#/$defs/x"}, "maxItems": 1}}},
            SchemaChange("a", "the most entries is 1", True),
        ),
    ],
)
def test_each_change_is_said_and_weighed(before: dict[str, Any], after: dict[str, Any], change: SchemaChange) -> None:
    assert schema_changes(before, after)[0] == change


def test_the_same_schema_has_no_changes_whatever_the_order_of_its_keys() -> None:
    assert (
        schema_changes({"type": "object", "properties": {"a": TEXT}}, {"properties": {"a": TEXT}, "type": "object"})
        == []
    )


def test_what_breaks_calls_comes_first() -> None:
    changes = schema_changes(of(b=TEXT), of(a=TEXT))

    assert [(change.path, change.is_breaking) for change in changes] == [("b", True), ("a", False)]


LEAVES = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "boolean", ["string", "null"]]),
            "enum": st.lists(st.sampled_from(["x", "y", 1, None]), min_size=1, max_size=3, unique_by=repr),
            "minimum": st.integers(0, 3),
            "maximum": st.integers(0, 3),
            "exclusiveMinimum": st.integers(0, 3),
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "pattern": st.sampled_from(["^x", "y$"]),
            "multipleOf": st.sampled_from([1, 2]),
            "const": st.sampled_from(["x", 1]),
            "description": st.sampled_from(["a", "b"]),
        },
    ),
    st.just({"$ref": "#/$defs/x"}),
    st.just({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
    st.just({"anyOf": [{"type": "string"}]}),
    st.just(True),
)


def objects(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inside, max_size=3)},
        optional={
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": st.one_of(st.booleans(), inside),
            "minProperties": st.integers(0, 2),
        },
    )


def arrays(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={"items": inside, "minItems": st.integers(0, 2), "uniqueItems": st.booleans()},
    )


NESTED = st.recursive(LEAVES, lambda inside: st.one_of(objects(inside), arrays(inside)), max_leaves=6)
SCHEMAS = st.builds(
    lambda schema, x: {**schema, "$defs": {"x": x}},
    objects(NESTED),
    LEAVES.filter(lambda x: x != {"$ref": "#/$defs/x"}),
)
VALUES = st.recursive(
    st.sampled_from(["", "x", "xy", "y", "zzz", 0, 1, 2, 4, 1.5, True, None]),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(st.sampled_from("abc"), inside, max_size=3)),
    max_leaves=6,
)


def named_only(value: Any, schema: Any, root: dict[str, Any]) -> Any:
    """The value without fields that the schema does not name and says nothing of."""
    if isinstance(schema, dict) and "$ref" in schema:
        schema = root["$defs"]["x"]
    if not isinstance(schema, dict):
        return value
    if isinstance(value, dict) and "properties" in schema:
        return {
            name: named_only(each, schema["properties"].get(name, True), root)
            for name, each in value.items()
            if name in schema["properties"] or "additionalProperties" in schema
        }
    if isinstance(value, list):
        return [named_only(each, schema.get("items", True), root) for each in value]
    return value


@given(SCHEMAS, SCHEMAS, st.lists(VALUES.filter(lambda value: isinstance(value, dict)), min_size=1, max_size=12))
@settings(max_examples=400, deadline=None)
def test_what_is_not_breaking_takes_every_call_that_fitted(
    before: dict[str, Any], after: dict[str, Any], calls: list[dict[str, Any]]
) -> None:
    if is_breaking(schema_changes(before, after)):
        return
    for call in calls:
        named = named_only(call, before, before)
        if jsonschema_rs.Draft202012Validator(before).is_valid(named):
            assert jsonschema_rs.Draft202012Validator(after).is_valid(named), (before, after, named)


def edited(schema: dict[str, Any], data: Any) -> dict[str, Any]:
    """One small change: two schemas by chance are hardly ever compatible."""
    properties = dict(schema["properties"])
    name = data.draw(st.sampled_from("abc"))
    if data.draw(st.booleans()) and name in properties:
        leaf = properties[name]
        keys = [key for key in leaf if key != "$ref"] if isinstance(leaf, dict) else []
        if keys and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(keys))
            properties[name] = {key: value for key, value in leaf.items() if key != gone}
        elif isinstance(leaf, dict):
            properties[name] = {**leaf, **data.draw(LEAVES.filter(lambda each: isinstance(each, dict)))}
    else:
        properties[name] = data.draw(NESTED)
    required = [each for each in schema.get("required", []) if data.draw(st.booleans())]
    return {**schema, "properties": properties, "required": required}


@given(SCHEMAS, st.data(), st.lists(VALUES.filter(lambda value: isinstance(value, dict)), min_size=1, max_size=12))
@settings(max_examples=400, deadline=None)
def test_nor_does_a_small_edit_that_is_not_breaking(
    before: dict[str, Any], data: st.DataObject, calls: list[dict[str, Any]]
) -> None:
    test_what_is_not_breaking_takes_every_call_that_fitted.hypothesis.inner_test(  # type: ignore[attr-defined]
        before, edited(before, data), calls
    )


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_pieces_of_a_word_diff_make_up_both_texts(before: str, after: str) -> None:
    pieces = word_pieces(before, after)

    assert "".join(piece.text for piece in pieces if piece.side != "added") == before
    assert "".join(piece.text for piece in pieces if piece.side != "removed") == after


def test_words_are_compared_one_by_one() -> None:
    assert word_pieces("Sends a mail.", "Sends any mail.") == [
        Piece("same", "Sends "),
        Piece("removed", "a"),
        Piece("added", "any"),
        Piece("same", " mail."),
    ]


def test_lines_have_their_numbers_on_both_sides_and_gaps_between() -> None:
    before = "\n".join(f"line {number}" for number in range(1, 12))
    after = before.replace("line 6", "line six")

    assert line_pieces(before, after, context=1) == [
        DiffLine("gap"),
        DiffLine("same", "line 5", 5, 5),
        DiffLine("removed", "line 6", before=6),
        DiffLine("added", "line six", after=6),
        DiffLine("same", "line 7", 7, 7),
    ]
    assert line_pieces(before, before) == []
