"""Cuts of a text that leave no half line, word, character or escape. Pure."""

from __future__ import annotations

import re
import unicodedata

#: Characters that are looked at for the beginning of a word, and of what people take for one character.
MAX_WORD = 100
MAX_CLUSTER = 32
_JOINER = "\u200d"
#: Behind another character they change it: skin tones, and the letters of regional flags.
_MODIFIERS = re.compile("[\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]")
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")


def soft_end(text: str, end: int, slack: int, *, start: int = 0, newline: str = "\n") -> int:
    """Return `end`, or up to `slack` characters before it behind a line, else a word; never in a character or escape.

    Nothing before `start` is looked at. `newline` is the end of a line in the text.
    """
    if end >= len(text):
        return len(text)
    end = max(end, start)
    line = text.rfind(newline, max(start, end - slack), end)
    if line >= 0:
        return line + len(newline)
    word = text.rfind(" ", max(start, end - min(slack, MAX_WORD)), end)
    return whole_characters(text, word + 1 if word >= 0 else end, start=start)


def whole_characters(text: str, end: int, *, start: int = 0) -> int:
    r"""Return `end`, or a little before it: an escape such as \u00e9 or a pair of them, a letter with its marks and an
    emoji made of several characters stay whole."""
    if not start < end < len(text):
        return end
    end = _before_escape(text, end, start)
    for _ in range(MAX_CLUSTER):
        if end <= start or not _are_one(text, end):
            break
        end -= 1
    return _before_escape(text, end, start)


def _are_one(text: str, at: int) -> bool:
    """Return whether the characters in front of this point and behind it are read as one."""
    before, after = text[at - 1], text[at]
    if before == _JOINER or after == _JOINER or unicodedata.category(after) in ("Mn", "Mc", "Me"):
        return True
    if _FLAG_LETTERS.match(before) and _FLAG_LETTERS.match(after):
        letters = re.search("[\U0001f1e6-\U0001f1ff]+$", text[max(0, at - 2 * MAX_CLUSTER) : at])
        return letters is not None and len(letters[0]) % 2 == 1
    return _MODIFIERS.match(after) is not None or (before, after) == ("\r", "\n")


def _before_escape(text: str, end: int, start: int) -> int:
    """Return `end`, or the beginning of the escape that it is in; a pair of surrogates is one escape."""
    for at in range(end - 1, max(start, end - 6) - 1, -1):
        if text[at] == "\\":
            if _backslashes(text, at + 1, start) % 2 and at + (6 if text[at + 1 : at + 2] == "u" else 2) > end:
                end = at
            break
    pair = end - 6
    if pair >= start and text.startswith("\\u", end) and _HIGH_SURROGATE.match(text, pair):
        return pair if _backslashes(text, pair + 1, start) % 2 else end
    return end


def _backslashes(text: str, end: int, start: int) -> int:
    """Return the number of backslashes in a row in front of this point."""
    return end - start - len(text[start:end].rstrip("\\"))
