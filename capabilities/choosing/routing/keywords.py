"""The words by which an operator names a category. They match whole words in any inflection, never parts of words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from capabilities.choosing.routing.words import ENGLISH, stem, words_of

Matches = tuple[tuple[str, tuple[str, ...]], ...]
#: Endings that may follow where two forms of one English word part: commit|ted, deploy|s, stud|ies. Not commit|ment.
_INFLECTION = re.compile(r"(?:e?s|e?d|e|y|ies|ied|ying|[a-z]?ing|[a-z]ed)?")


@dataclass(frozen=True)
class Keywords:
    """Each category's phrases, as the operator wrote them. Equal lists are equal values; build it with `of`."""

    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    languages: tuple[str, ...] = (ENGLISH,)

    @classmethod
    def of(cls, phrases: Mapping[str, Iterable[str]], languages: Iterable[str] = (ENGLISH,)) -> Keywords:
        """Phrases by category; `languages` are those of whose words the inflections match (names of snowball's)."""
        return cls(tuple((name, tuple(dict.fromkeys(each))) for name, each in phrases.items()), tuple(languages))

    def matches(self, text: str) -> Matches:
        """The categories whose phrases stand in the text, in their own order, each with the phrases that do."""
        words = words_of(text)
        present: dict[str, set[str]] = {}
        for word in set(words):
            for root in _roots(word, self.languages):
                present.setdefault(root, set()).add(word)
        found: dict[str, list[str]] = {}
        for category, phrase, sequence in _sequences(self):
            if all(any(root in present for root in _roots(word, self.languages)) for word in sequence) and _stands_in(
                sequence, words, self.languages
            ):
                found.setdefault(category, []).append(phrase)
        return tuple((category, tuple(found[category])) for category, _ in self.categories if category in found)


@lru_cache(maxsize=64)
def _sequences(keywords: Keywords) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    all_of_them = (
        (category, phrase, tuple(words_of(phrase))) for category, phrases in keywords.categories for phrase in phrases
    )
    return tuple(each for each in all_of_them if each[2])


def _stands_in(sequence: tuple[str, ...], words: list[str], languages: tuple[str, ...]) -> bool:
    first, *rest = sequence
    return any(
        _is_form(first, word, languages)
        and len(words) - at > len(rest)
        and all(_is_form(one, other, languages) for one, other in zip(rest, words[at + 1 :], strict=False))
        for at, word in enumerate(words)
    )


@lru_cache(maxsize=50_000)
def _is_form(one: str, other: str, languages: tuple[str, ...]) -> bool:
    """Return whether the two are forms of one word in any of the languages."""
    if one == other:
        return True
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    for language in languages:
        if stem(one, language) == stem(other, language):
            ends = one[shared:], other[shared:]
            if language != ENGLISH or all(_INFLECTION.fullmatch(end) for end in ends):
                return True
    return False


@lru_cache(maxsize=50_000)
def _roots(word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stem(word, language) for language in languages))
