"""S46: what comes out of a sandbox is read as limited JSON, whoever wrote it there."""

from __future__ import annotations

import pytest

from capabilities.running.sandbox.results import NotJson, limited_json


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NaN", "NaN"),
        ("[Infinity]", "Infinity"),
        ("1e999", "too large"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[" * 60 + "]" * 60, "nested"),
        ("[" * 5_000, "nested"),
        ("[" + "0," * 150_000 + "0]", "values"),
        ("9" * 5_000, "digits"),
        ("\x80\x04]", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ('"' + "x" * 1_000_000 + '"', "over"),
    ],
)
def test_what_is_not_limited_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(NotJson, match=words):
        limited_json(text, 1_000_000)


def test_plain_json_is_read() -> None:
    assert limited_json('{"__class__": [1, 2.5, null, "é"]}', 100) == {"__class__": [1, 2.5, None, "é"]}
