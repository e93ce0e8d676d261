"""Secrets are taken out of what comes back, in whatever way they are written."""

from __future__ import annotations

from capabilities.contract.masking import MASK, masked_bytes, masked_in, masked_value


def test_s37_a_secret_that_begins_like_another_leaves_nothing_of_it() -> None:
    assert masked_in("abcdef abc", ("abc", "abcdef")) == f"{MASK} {MASK}"
    assert masked_bytes(b"abcdef", ("abc", "abcdef")) == MASK.encode()


def test_s37_it_is_found_as_json_writes_it() -> None:
    assert masked_in(r'{"a": "x\"y"}', ('x"y',)) == '{"a": "' + MASK + '"}'
    assert masked_in(r"caf\u00e9", ("café",)) == MASK
    assert masked_bytes(rb"x\"y", ('x"y',)) == MASK.encode()


def test_no_secret_changes_nothing() -> None:
    assert masked_in("text", ("", "")) == "text"


def test_s37_names_and_values_inside_a_value_are_masked() -> None:
    assert masked_value({"a key": ["key", 1, None]}, ("key",)) == {f"a {MASK}": [MASK, 1, None]}
