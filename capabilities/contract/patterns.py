"""Patterns that name tools in policies, hooks, approval rules and runtime settings: one way to read them all.

A pattern is a tool's name, a name with `*` and `?` in it, `group:` and the name of a category (or a pattern of one), or
an alias. Upper and lower case are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

#: What other systems and older configurations call some of our tools, and the patterns that are meant by it.
#: Source: docs/requirements.md, Runtime contract.
ALIASES: dict[str, tuple[str, ...]] = {
    "read": ("file_read",),
    "file_search": ("file_grep",),
    "web_fetch": ("web_read",),
    "memory": ("memory_*",),
    "shell": ("shell_exec",),
}
GROUP = "group:"
#: Characters of one pattern.
MAX_PATTERN = 100


def pattern_matches(pattern: str, name: str, category: str) -> bool:
    """Whether the pattern means the tool of this name in the category of that name."""
    pattern, name = pattern.strip().casefold(), name.casefold()
    if pattern.startswith(GROUP):
        return fnmatchcase(category.casefold(), pattern.removeprefix(GROUP))
    return any(fnmatchcase(name, each) for each in meant_by(pattern))


def meant_by(pattern: str) -> tuple[str, ...]:
    """The pattern itself, and what it is an alias of."""
    pattern = pattern.strip().casefold()
    return (pattern, *ALIASES.get(pattern, ()))


def matching_pattern(patterns: Iterable[str], name: str, category: str) -> str | None:
    """The first of these patterns that means the tool, or None."""
    return next((each for each in patterns if pattern_matches(each, name, category)), None)


def text_matches(pattern: str, text: str) -> bool:
    """Whether a text, such as an argument's value, matches a pattern with `*` and `?`, case aside."""
    return fnmatchcase(text.casefold(), pattern.casefold())
