"""A message while its values are taken out of it, and what is left when the request itself is taken away too.

Knows the words of the tool that is being filled, not its parameters.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any

from toolhub.embedded.offline_model import values, words
from toolhub.embedded.offline_model.matching import plain, request_of
from toolhub.embedded.offline_model.tools import Tool
from toolhub.embedded.offline_model.values import Found

_QUESTION = re.compile(
    r"^\W*(?:what(?:'s|’s| is| are| was| were| do(?:es)?| did| have| can)?|which|who(?:'s| is| are)?|"
    r"where(?:'s| is| are)?|how (?:many|much)|when(?:'s| is| are)?|do|does|did|is|are|have|tell me|show me|give me)\b"
    r"(?:\s+(?:i|you|we|there|know|say|said|have|has|had|got|do|me))*",
    re.IGNORECASE,
)
_DANGLING = re.compile(
    r"(?:^|\s+)(?:by|on|for|to|due|and|with|at|in|of|from|until|before|the|a|an|please|into|as|that|called|named|online)$",
    re.IGNORECASE,
)
_ENDS = " \t,;:.?!-–—"


def trimmed(text: str) -> str:
    """Return the text without the blanks, stops and link words that taking parts out leaves at the ends."""
    text = re.sub(r"\s+([,;.?!])", r"\1", " ".join(text.split())).strip(_ENDS)
    while (shorter := _DANGLING.sub("", text).strip(_ENDS)) != text:
        text = shorter
    return text


class Sheet:
    """The message, and which parts of it are used up. Where a payload follows a colon, `payload` is its start."""

    def __init__(self, message: str, tool: Tool, now: datetime.datetime) -> None:
        self.text, self.payload = request_of(plain(message))
        self.now = now
        self.quotes = values.quoted(self.text)
        self.has_free_text = any(each.required and each.wants == "text" for each in tool.parameters)
        self._taken: list[tuple[int, int]] = []
        # By these stems and groups a message calls the tool's deed and its object, without telling anything new.
        summary = words.stems(tool.description.partition(". ")[0])
        of_name = (group for stem in tool.name_stems for group in words.groups(stem))
        self._tool_words = frozenset((*tool.name_stems, *summary, *of_name, *words.nouns(summary)))

    def free(self, found: Iterable[Found]) -> list[Found]:
        """Return the values of which no part is used up."""
        return [each for each in found if not any(each.overlaps(*part) for part in self._taken)]

    def take(self, found: Found) -> Any:
        self._taken.append((found.start, found.end))
        return found.value

    def in_payload(self, found: Found) -> bool:
        quoted = any(quote.start <= found.start and found.end <= quote.end for quote in self.quotes)
        return quoted or (self.payload is not None and found.start >= self.payload)

    def left(self, end: int | None = None) -> str:
        """The text up to `end` with what is used up blanked, so that places stay what they are."""
        text = self.text
        for start, stop in self._taken:
            text = text[:start] + " " * (stop - start) + text[stop:]
        return text[:end]

    def rest(self, *, take: bool = False) -> str:
        """Return what the message says beyond asking for the tool: after the colon if there is one. `take` uses it
        up."""
        text = self.left()
        start, end = self.payload, len(text)
        if start is None or not trimmed(text[start:]):
            start = self._front(text)
        if self.payload is None:
            end = self._back(text, start)
        if take:
            self._taken.append((start, end))
        return re.sub(r"^\s*an?\s+(?=\w{2})", "", text[start:end])

    def names_object(self, word: str) -> bool:
        """Return whether the tool is about what this word says."""
        stem = words.stem(word)
        return stem in self._tool_words or not words.nouns([stem]).isdisjoint(self._tool_words)

    def is_tool_talk(self, text: str) -> bool:
        """Return whether the text says nothing but the tool's own words."""
        return all(stem in self._tool_words or words.groups(stem) & self._tool_words for stem in words.stems(text))

    def _front(self, text: str) -> int:
        """Return the place where the deed, its object and the word that links to the rest are over: after "add a task
        to"."""
        question = _QUESTION.match(text)
        place = question.end() if question else 0
        has_deed = question is not None
        for match in words.WORD.finditer(text, place):
            word = match[0].lower()
            if not has_deed and (words.verbs(words.stem(word)) or words.stem(word) in self._tool_words):
                has_deed, place = True, match.end()
            elif (
                word in ("me", "us", "up", "down", "out")
                or (word in words.DETERMINERS and self._object_follows(text, match.end()))
                or self.names_object(word)
            ):
                place = match.end()
            elif word in words.LINKS and has_deed:
                return match.end()
            else:
                break
        return place

    def _object_follows(self, text: str, place: int) -> bool:
        following = (match[0].lower() for match in words.WORD.finditer(text, place))
        return self.names_object(next((word for word in following if word not in words.DETERMINERS), ""))

    def _back(self, text: str, start: int) -> int:
        """Return the place where "to my list" begins at the end of a text: nothing but the tool's own words after a
        link."""
        for match in list(re.finditer(r"\s(?:to|on|in|into|from|onto|for|as)\s", text[start:], re.IGNORECASE))[-1:]:
            rest = words.WORD.findall(text[start + match.end() :])
            told = [word for word in rest if word.lower() not in words.STOP]
            if told and all(self.names_object(word) for word in told):
                return start + match.start()
        return len(text)
