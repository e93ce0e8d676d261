"""Tokens of a text, counted offline with the o200k table of OpenAI's current models.

The table is made at the first count, in half a second, and takes 60 MB for as long as the process runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import toktok

ENCODING = "o200k_base"
#: Two threads that count for the first time would both make the table.
_counting = threading.Lock()


def count_tokens(text: str) -> int:
    return count_each([text])[0]


def count_each(texts: Iterable[str]) -> list[int]:
    """Tokens of each text. Half surrogate pairs count as the replacement character."""
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    with _counting:
        return list(toktok.batch_count(clean, ENCODING, threads=1))
