from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.documents import DocumentRefused, read_document

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, true, null]}', {"a": [1, True, None]}),
        ("\ufeff[1]", [1]),
        (
            "a: 1\nb: [on, yes, 2020-01-01, 1e3, 0x1F, ~, true]",
            {"a": 1, "b": ["on", "yes", "2020-01-01", 1000.0, 31, None, True]},
        ),
        ("200:\n  x: '1'\n  y: |\n    two\n    lines\n", {"200": {"x": "1", "y": "two\nlines\n"}}),
        ("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("{openapi: 3.1.0}", {"openapi": "3.1.0"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
    ],
)
def test_json_and_yaml_are_read_as_plain_values(text: str, value: object) -> None:
    assert read_document(text) == value


@pytest.mark.parametrize("kind", ["string", '"string"', "[string, 'null']"])
def test_values_of_a_schema_of_text_stay_as_they_are_written(kind: str) -> None:
    text = f"a: {{type: {kind}, enum: [0x1F, 007, yes, true, 1.10, 1e3, 2024-01-01, 12:30:00, 1_000, ~], default: 007}}"

    assert read_document(text)["a"] | {"type": ""} == {
        "type": "",
        "enum": ["0x1F", "007", "yes", "true", "1.10", "1e3", "2024-01-01", "12:30:00", "1_000", None],
        "default": "007",
    }


def test_values_of_other_schemas_are_what_yaml_says() -> None:
    text = "[{type: integer, enum: [0x1F, 007], default: 1}, {type: [string, integer], enum: [007]}, {enum: [007]}]"

    assert read_document(f"a: {text}")["a"] == [
        {"type": "integer", "enum": [31, 7], "default": 1},
        {"type": ["string", "integer"], "enum": [7]},
        {"enum": [7]},
    ]


def test_a_number_that_json_does_not_have_is_null() -> None:
    assert read_document('{"a": NaN, "b": [-Infinity, 1e999], "c": 1}') == {"a": None, "b": [None, None], "c": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("# nothing", "empty"),
        ("just words", "neither JSON nor YAML"),
        ('{"a": ', "broken in line 1"),
        ('{"a": NaN, "b": nothing}', "broken in line 1"),
        ("a: [", "broken in line"),
        ("a: !!python/object/apply:os.system ['true']", "tag"),
        ("a: !vault x", "tag"),
        ("? [a, b]\n: 1", "no text"),
        ("a: &a [*a]", "inside of what it stands for"),
        ("[" * 300 + "]" * 300, "deep"),
        ("- " * 300 + "x", "deep"),
        (BOMB, "aliases written out"),
        ("a: \x00", "cannot be read|broken"),
    ],
)
def test_what_is_no_document_says_why(text: str, reason: str) -> None:
    with pytest.raises(DocumentRefused, match=reason):
        read_document(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(DocumentRefused):
        json.dumps(read_document(text))


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), documents, max_size=3))
def test_what_json_wrote_is_read_as_it_was(value: dict[str, object]) -> None:
    assert read_document(json.dumps(value)) == value
