"""Assertions hold the words that count: codes, fields, names, figures; sentences belong to the pages."""

from __future__ import annotations

import ast
import re

import pytest

from tests.paths import ROOT, own_files

#: At most so many characters of text in one literal of an assertion; data that is longer stands in a named constant.
MOST = 40
SPACE_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])\s(?=[^\W\d_])")


def sentences(source: str) -> list[str]:
    """Literals of assertions that are longer than MOST and hold three or more spaces between letters."""
    asserted = (node.test for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
    texts = [each.value for test in asserted for each in ast.walk(test) if isinstance(each, ast.Constant)]
    return [
        text
        for text in texts
        if isinstance(text, str) and len(text) > MOST and len(SPACE_BETWEEN_WORDS.findall(text)) >= 3
    ]


@pytest.mark.exhaustive
def test_no_assertion_holds_a_sentence() -> None:
    files = own_files("tests", "*.py")

    assert {str(path.relative_to(ROOT)): found for path in files if (found := sentences(path.read_text()))} == {}


@pytest.mark.parametrize(("words", "found"), [("it was asked for by Bob of Acme today, at noon", 1), ("it was so", 0)])
def test_a_sentence_is_found_in_a_call_and_across_lines(words: str, found: int) -> None:
    message = "a message, however long it is, " * 3
    code = f"assert page.has(x, {words[:20]!r}\n    {words[20:]!r}) or {'x' * 50!r}, {message!r}"

    assert len(sentences(code)) == found
