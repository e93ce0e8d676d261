"""Texts searched by words, the best match first. Pure: knows no row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from capabilities.running.records.names import folded

#: Characters shown of a text.
EXCERPT = 300


@dataclass(frozen=True)
class Passage:
    """One text, and the `source` that a result names where the text is found."""

    source: dict[str, Any]
    text: str
    title: str = ""


@dataclass(frozen=True)
class Hit:
    """A passage in which a word was found; `matches` says of each word whether it is in the text, and in the title."""

    source: dict[str, Any]
    excerpt: str
    matches: tuple[tuple[bool, bool], ...]


def best_of(passages: Iterable[Passage], words: Sequence[str]) -> list[dict[str, Any]]:
    """Return the sources of the passages in which at least one of the words occurs, each with an excerpt, the best
    first.

    Rare words count more than frequent ones, and a word of a title more than one of a text. Of two that are alike the
    earlier one stands first. A passage's text is let go as soon as it was looked at.
    """
    count, found = 0, list[Hit]()
    for passage in passages:
        count += 1
        text, title = folded(passage.text), folded(passage.title)
        matches = tuple((word in text, word in title) for word in words)
        if any(map(any, matches)):
            found.append(Hit(passage.source, excerpt_of(passage.text, text, words), matches))
    weights = [_weight(count, sum(any(hit.matches[index]) for hit in found)) for index in range(len(words))]
    found.sort(
        key=lambda hit: sum(w * (t + 2 * n) for w, (t, n) in zip(weights, hit.matches, strict=True)), reverse=True
    )
    return [hit.source | {"excerpt": hit.excerpt} for hit in found]


def excerpt_of(text: str, compared: str, words: Sequence[str]) -> str:
    """The text around the first of these words, or its beginning; `compared` is it as it is compared."""
    offsets = [offset for word in words if (offset := compared.find(word)) >= 0]
    start = max(0, min(min(offsets, default=0) - EXCERPT // 4, len(text) - EXCERPT))
    shown = text[start : start + EXCERPT].strip()
    return f"{'… ' if start else ''}{shown}{' …' if start + EXCERPT < len(text) else ''}"


def _weight(count: int, matching: int) -> float:
    return math.log(1 + count / matching) if matching else 0.0
