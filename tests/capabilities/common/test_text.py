from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.common.text import storable, storable_json, storable_value

#: Any code points at all, half surrogate pairs among them.
ANY_TEXT = st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from("\x00\ud83d\ude00\ud800\udfff")))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a\x00b", "a\ufffdb"),
        ("\ud800", "\ufffd"),
        ("a\udfffb", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ufeffa", "\ufeffa"),
        ("\uffff\u202e\u2028", "\uffff\u202e\u2028"),
    ],
)
def test_characters_that_no_database_stores_are_replaced(text: str, stored: str) -> None:
    assert storable(text) == stored


@given(ANY_TEXT, st.none() | st.integers(0, 20))
def test_stored_text_is_always_utf8_without_nul_and_stays_as_it_is(text: str, limit: int | None) -> None:
    stored = storable(text, limit)

    assert stored.encode("utf-8").decode("utf-8") == stored
    assert "\x00" not in stored
    assert storable(stored, limit) == stored
    assert limit is None or len(stored) <= limit


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_good_text_is_stored_as_it_is(text: str) -> None:
    assert storable(text) == text


@given(JSON_VALUES)
def test_a_stored_value_is_one_that_json_and_utf8_take(value: object) -> None:
    stored = storable_value(value)

    text = json.dumps(stored, ensure_ascii=False)
    assert json.loads(text.encode("utf-8")) == stored
    assert "\\u0000" not in text
    assert storable_value(stored) == stored


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({}, {}),
        ({"a": [1, None, True, 0.5, 10**30, "\u00fc\U0001f600"]}, ...),
        ({"a\x00": "b\ud800"}, {"a\ufffd": "b\ufffd"}),
        ({"a": "\ud83d\ude00"}, {"a": "\U0001f600"}),
        ({"a": "\\u0000"}, ...),
        ({"a": float("nan")}, None),
        ({"a": [float("-inf")]}, None),
        ({"a": "x" * 100}, None),
        (json.loads("[" * 39 + "]" * 39), ...),
        (json.loads("[" * 41 + "]" * 41), None),
        (json.loads('{"a": ' * 500 + "[]" + "}" * 500), None),
    ],
)
def test_a_json_value_is_kept_where_every_database_takes_it(value: Any, kept: Any) -> None:
    assert storable_json(value, 100) == (value if kept is ... else kept)
