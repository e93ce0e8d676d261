"""Text as a person must see it who decides on it: characters that cannot be seen, or that move others, as escapes.

A letter that looks like another one is left as it is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

#: Characters that show nothing, or change how others are shown, though their category does not say so: fillers, the
#: blank of braille, variation selectors, a joiner of graphemes, and vowels without a form.
_UNSEEN = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0x1D159, 0x1D159),
        (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
)
#: Categories of which nothing is shown as it is: controls, formats (with those of direction), halves of characters,
#: private and unassigned ones, and what separates lines and paragraphs.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Characters that turn the order in which others are shown, and nothing else.
_TURNING = dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
#: What a page shows by itself.
_PLAIN = frozenset(" \n\t")


@dataclass(frozen=True)
class Part:
    """A piece of a text: as it is, or (`name`) one character as an escape."""

    text: str
    name: str = ""


def is_unseen(character: str) -> bool:
    """Whether a reader cannot see that it is there, or sees others elsewhere because of it."""
    if (character.isascii() and character.isprintable()) or character in _PLAIN:
        return False
    category = unicodedata.category(character)
    return category in _HIDDEN or category == "Zs" or character in _UNSEEN


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
    """How many characters of the text a reader would not see."""
    return sum(map(is_unseen, text))


def in_reading_order(text: str) -> str:
    """The text without what would show it in another order than it is written in."""
    return text.translate(_TURNING)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _unnamed(character: str) -> str:
    return "CONTROL CHARACTER" if unicodedata.category(character) == "Cc" else "CHARACTER WITHOUT A NAME"
