"""Tokens of a text, counted offline with the o200k table of OpenAI's current models."""

from __future__ import annotations

from collections.abc import Iterable

import toktok

ENCODING = "o200k_base"


def count_tokens(text: str) -> int:
    return count_each([text])[0]


def count_each(texts: Iterable[str]) -> list[int]:
    """Tokens of each text. Half surrogate pairs count as the replacement character."""
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    return list(toktok.batch_count(clean, ENCODING))
