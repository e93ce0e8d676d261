from __future__ import annotations

import pytest

from capabilities.contract.patterns import matching_pattern, pattern_matches, text_matches

MEANT = [
    ("file_read", "file_read", "file", True),
    ("FILE_Read", "file_read", "file", True),
    (" file_read ", "file_read", "file", True),
    ("file_*", "file_grep", "file", True),
    ("file_*", "profile_read", "people", False),
    ("*", "anything", "web", True),
    ("group:web", "web_read", "web", True),
    ("group:WEB", "web_read", "web", True),
    ("group:w*", "web_read", "web", True),
    ("group:web", "web_read", "research", False),
    ("group:web_read", "web_read", "research", False),
    # Aliases (docs/requirements.md): what Zeus calls read, file_search, web_fetch, memory and shell.
    ("read", "file_read", "file", True),
    ("file_search", "file_grep", "file", True),
    ("web_fetch", "web_read", "web", True),
    ("memory", "memory_search", "memory", True),
    ("memory", "memory_store", "memory", True),
    ("shell", "shell_exec", "system", True),
    # An alias does not take a tool of that very name away.
    ("read", "read", "other", True),
    ("read", "file_write", "file", False),
]


@pytest.mark.parametrize(("pattern", "name", "category", "is_meant"), MEANT)
def test_zs35_a_pattern_means_a_tool(pattern: str, name: str, category: str, is_meant: bool) -> None:
    assert pattern_matches(pattern, name, category) is is_meant


def test_the_first_pattern_that_means_the_tool_is_found() -> None:
    assert matching_pattern(["mail_*", "group:web", "web_read"], "web_read", "web") == "group:web"
    assert matching_pattern([], "web_read", "web") is None


def test_texts_match_patterns_case_aside() -> None:
    assert text_matches("*@Example.org", "alice@example.ORG")
    assert not text_matches("*@example.org", "alice@example.org.evil")


def test_a_pattern_made_to_be_slow_is_not() -> None:
    """A pattern with many stars takes time in proportion to the text, not to its power."""
    assert not text_matches("*a" * 40 + "b", "a" * 20_000)
