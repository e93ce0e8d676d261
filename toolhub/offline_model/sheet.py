"""A message while its values are taken out of it, and what is left when the request itself is taken away too.

Knows the words of the tool that is being filled, not its parameters.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from toolhub.offline_model import values, words
from toolhub.offline_model.values import Found


@dataclass
class Sheet:
    """The message, and which parts of it are used up. Where a payload follows a colon, `payload` is its start."""

    text: str
    tool_words: frozenset[str]
    now: datetime.datetime
    has_free_text: bool = False
    taken: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        colon = re.search(r":\s+(?=\S)", self.text)
        short = colon is not None and len(words.WORD.findall(self.text[: colon.start()])) <= 12
        self.payload = colon.end() if colon is not None and short else None
        self.quotes = values.quoted(self.text)

    def is_free(self, found: Found) -> bool:
        return not any(found.start < end and start < found.end for start, end in self.taken)

    def free(self, found: Iterable[Found]) -> list[Found]:
        return [each for each in found if self.is_free(each)]

    def take(self, found: Found) -> Any:
        self.taken.append((found.start, found.end))
        return found.value

    def in_payload(self, found: Found) -> bool:
        quoted = any(quote.start <= found.start and found.end <= quote.end for quote in self.quotes)
        return quoted or (self.payload is not None and found.start >= self.payload)

    def left(self, start: int = 0, end: int | None = None) -> str:
        """A part of the text with what is used up blanked, so that places stay what they are."""
        characters = list(self.text)
        for first, last in self.taken:
            characters[first:last] = [" "] * (last - first)
        return "".join(characters[start:end])


# -- What is left ----------------------------------------------------------------------------------------------------

_QUESTION = re.compile(
    r"^\W*(?:what(?:'s|’s| is| are| was| were| do(?:es)?| did| have| can)?|which|who(?:'s| is| are)?|"
    r"where(?:'s| is| are)?|"
    r"how (?:many|much)|when(?:'s| is| are)?|do|does|did|is|are|have|tell me|show me|give me)\b"
    r"(?:\s+(?:i|you|we|there|know|say|said|have|has|had|got|do|me))*",
    re.IGNORECASE,
)
_DANGLING = re.compile(
    r"(?:^|\s+)(?:by|on|for|to|due|and|with|at|in|of|from|until|before|the|a|an|please|into|as|that|called|named)$",
    re.IGNORECASE,
)


def trimmed(text: str) -> str:
    """Without the blanks, stops and link words that taking parts out leaves at the ends."""
    text = re.sub(r"\s+([,;.?!])", r"\1", re.sub(r"\s+", " ", text)).strip(" \t,;:.?!-–—")
    while (shorter := _DANGLING.sub("", text).strip(" ,;:.?!-–—")) != text:
        text = shorter
    return text


def remainder(sheet: Sheet, used: bool = False) -> str:
    """What the message says beyond asking for the tool: after the colon if there is one. `used` takes it off."""
    text = sheet.left()
    start = sheet.payload
    if start is None or not trimmed(text[start:]):
        start = front(sheet, text, 0)
    end = _back(sheet, text, start) if sheet.payload is None else len(text)
    if used:
        sheet.taken.append((start, end))
    return re.sub(r"^\s*(?:an?)\s+(?=\w{2})", "", text[start:end])


def front(sheet: Sheet, text: str, start: int) -> int:
    """Where the deed, its object and the word that links to the rest are over: after "add a task to" and the like."""
    question = _QUESTION.match(text)
    place = question.end() if question else start
    deed = question is not None
    for match in list(words.WORD.finditer(text, place)):
        word, stem = match[0].lower(), words.stem(match[0])
        is_verb = bool(words.verbs(stem)) or word in ("take", "make", "do", "have")
        if not deed and (is_verb or stem in sheet.tool_words):
            deed, place = True, match.end()
        elif (
            word in ("me", "us", "up", "down", "out")
            or (word in words.DETERMINERS and _object_follows(sheet, text, match.end()))
            or names_object(sheet, stem)
        ):
            place = match.end()
        elif word in words.LINKS and deed:
            return match.end()
        else:
            break
    return place


def names_object(sheet: Sheet, stem: str) -> bool:
    return stem in sheet.tool_words or any(group in sheet.tool_words for group in words.groups(stem) if group[0] == "#")


def _object_follows(sheet: Sheet, text: str, place: int) -> bool:
    for following in words.WORD.finditer(text, place):
        if following[0].lower() not in words.DETERMINERS:
            return names_object(sheet, words.stem(following[0]))
    return False


_FILLERS = re.compile(r"\s(?:online|please|for me|right now)[\s?!.]*$", re.IGNORECASE)


def _back(sheet: Sheet, text: str, start: int) -> int:
    """Where "to my list" begins at the end of a text: nothing but the tool's own words after a link."""
    aside = words.ASIDE.search(text, start) or _FILLERS.search(text, start)
    if aside:
        return _back(sheet, text[: aside.start()], start)
    for match in reversed(list(re.finditer(r"\s(?:to|on|in|into|from|onto|for|as)\s", text[start:], re.IGNORECASE))):
        rest = [word for word in words.WORD.findall(text[start + match.end() :]) if word.lower() not in words.STOP]
        known = [names_object(sheet, words.stem(word)) or words.stem(word) == "list" for word in rest]
        if rest and all(known):
            return start + match.start()
        break
    return len(text)


def is_tool_talk(sheet: Sheet, text: str) -> bool:
    stems = words.stems(text)
    return all(stem in sheet.tool_words or words.groups(stem) & sheet.tool_words for stem in stems)
