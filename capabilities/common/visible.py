"""Text as a person must see it who decides on it: characters that cannot be seen, or that move others, as escapes.

A letter that looks like another one is left as it is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from capabilities.contract.warnings import TURNING, is_hidden

#: Categories of what looks like a plain space or the end of a line, and is another character.
_SPACES = frozenset({"Zs", "Zl", "Zp"})
_TURNING = dict.fromkeys(map(ord, TURNING))


@dataclass(frozen=True)
class Part:
    """A piece of a text: as it is, or (`name`) one character as an escape."""

    text: str
    name: str = ""


def is_unseen(character: str) -> bool:
    """Return whether a reader cannot see the character, or sees others elsewhere because of it."""
    return is_hidden(character) or (character != " " and unicodedata.category(character) in _SPACES)


def visible_parts(text: str) -> Iterator[Part]:
    """The text in pieces; joined, with the escapes read, they are the text."""
    begin = 0
    for index, character in enumerate(text):
        if not is_unseen(character):
            continue
        if begin < index:
            yield Part(text[begin:index])
        yield Part(_escape(character), unicodedata.name(character, "") or _unnamed(character))
        begin = index + 1
    if begin < len(text):
        yield Part(text[begin:])


def unseen_count(text: str) -> int:
    """Return the number of characters of the text that a reader would not see."""
    return sum(map(is_unseen, text))


def in_reading_order(text: str) -> str:
    """The text without what would show it in another order than it is written in."""
    return text.translate(_TURNING)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _unnamed(character: str) -> str:
    return "CONTROL CHARACTER" if unicodedata.category(character) == "Cc" else "CHARACTER WITHOUT A NAME"


def marked(text: str) -> SafeString:
    """The text as HTML, with each character that cannot be seen as a marked escape, its name on hover."""
    return marked_parts(visible_parts(text))


def marked_parts(parts: Iterable[Part]) -> SafeString:
    """The parts of a text as HTML, those that cannot be seen as marked escapes, their names on hover."""
    mark = '<span class="unseen" title="{}">{}</span>'
    pieces = [format_html(mark, part.name, part.text) if part.name else escape(part.text) for part in parts]
    return SafeString("".join(pieces))


def numbered_lines(code: str, wrong: Collection[int]) -> list[tuple[int, SafeString, bool]]:
    """Each line of the code with its number, from 1, as `marked` has it, and whether it is one of these; nothing where
    none is."""
    if not wrong:
        return []
    return [(number, marked(line), number in wrong) for number, line in enumerate(code.split("\n"), start=1)]
