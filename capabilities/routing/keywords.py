"""The words by which an operator names a category. They match whole words in any inflection, never parts of words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from capabilities.routing.words import stem, words_of

Matches = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Keywords:
    """Each category's phrases, as the operator wrote them. Equal lists are equal values; build it with `of`."""

    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, phrases: Mapping[str, Iterable[str]]) -> Keywords:
        return cls(tuple((category, tuple(dict.fromkeys(each))) for category, each in phrases.items()))

    def matches(self, text: str) -> Matches:
        """The categories whose phrases stand in the text, in their own order, each with the phrases that do."""
        stems = tuple(stem(word) for word in words_of(text))
        present = set(stems)
        found: dict[str, list[str]] = {}
        for category, phrase, sequence in _sequences(self):
            if present.issuperset(sequence) and _stands_in(sequence, stems):
                found.setdefault(category, []).append(phrase)
        return tuple((category, tuple(found[category])) for category, _ in self.categories if category in found)


@lru_cache(maxsize=64)
def _sequences(keywords: Keywords) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    all_of_them = (
        (category, phrase, tuple(stem(word) for word in words_of(phrase)))
        for category, phrases in keywords.categories
        for phrase in phrases
    )
    return tuple(each for each in all_of_them if each[2])


def _stands_in(sequence: tuple[str, ...], stems: tuple[str, ...]) -> bool:
    size = len(sequence)
    return size == 1 or any(stems[at : at + size] == sequence for at in range(len(stems) - size + 1))
