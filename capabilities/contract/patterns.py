"""Patterns that name tools in policies, hooks, approval rules and runtime settings: one way to read them all.

A pattern is a tool's name, a name with `*` and `?` in it, `group:` and the name of a category (or a pattern of one), or
an alias. Upper and lower case are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate

#: Names that other systems and older configurations give some of our tools, and the patterns that they mean.
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
#: Patterns that people may write: a name with `*` and `?` in it, maybe with `group:` before it.
WRITTEN = re.compile(r"(group:)?[A-Za-z0-9_*?-]+", re.IGNORECASE)
#: Characters that make a pattern more than a name.
_WILD = frozenset("*?[")


def pattern_matches(pattern: str, name: str, category: str) -> bool:
    """Return whether the pattern means the tool of this name in the category of that name."""
    pattern, name = pattern.strip().casefold(), name.casefold()
    if pattern.startswith(GROUP):
        return fnmatchcase(category.casefold(), pattern.removeprefix(GROUP))
    return any(fnmatchcase(name, each) for each in expanded(pattern))


def expanded(pattern: str) -> tuple[str, ...]:
    """The pattern itself, and what it is an alias of."""
    pattern = pattern.strip().casefold()
    return (pattern, *ALIASES.get(pattern, ()))


def matching_pattern(patterns: Iterable[str], name: str, category: str) -> str | None:
    """The first of these patterns that means the tool, or None."""
    return next((each for each in patterns if pattern_matches(each, name, category)), None)


class Patterns:
    """Some patterns, read once to be asked about many tools. Says the same as `matching_pattern`."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        wild_names, wild_categories = list[tuple[int, str]](), list[tuple[int, str]]()
        for number, pattern in enumerate(self.patterns):
            whole = pattern.strip().casefold()
            is_group = whole.startswith(GROUP)
            plain, wild = (self._categories, wild_categories) if is_group else (self._names, wild_names)
            for each in (whole.removeprefix(GROUP),) if is_group else expanded(whole):
                if _WILD.isdisjoint(each):
                    plain.setdefault(each, number)
                else:
                    wild.append((number, each))
        self._wild_names, self._wild_categories = _Wild(wild_names), _Wild(wild_categories)

    def first_for(self, name: str, category: str) -> str | None:
        """The first of the patterns that means the tool, or None."""
        name, category = name.casefold(), category.casefold()
        none = len(self.patterns)
        found = min(
            self._names.get(name, none),
            self._categories.get(category, none),
            self._wild_names.first_for(name, none),
            self._wild_categories.first_for(category, none),
        )
        return self.patterns[found] if found < none else None


class _Wild:
    """Patterns with wildcards, each with its number: one expression says whether any of them matches."""

    def __init__(self, wild: list[tuple[int, str]]) -> None:
        self._each = [(number, re.compile(translate(text))) for number, text in wild]
        self._any = re.compile("|".join(translate(text) for _, text in wild)) if wild else None

    def first_for(self, text: str, none: int) -> int:
        if self._any is None or not self._any.match(text):
            return none
        return next(number for number, expression in self._each if expression.match(text))


def text_matches(pattern: str, text: str) -> bool:
    """Return whether a text, such as an argument's value, matches a pattern with `*` and `?`, case aside."""
    return fnmatchcase(text.casefold(), pattern.casefold())
