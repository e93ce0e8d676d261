"""Tokens of a text, counted offline by the tokenizer of the model's family.

Known are o200k (OpenAI's current models; gpt-oss counts alike), cl100k (OpenAI's until 2024) and Qwen's. The other
vendors keep theirs to themselves: o200k stands in, and what it is wrong by is learned from the provider's own counts
(`LanguageModel.token_factor`).

A tokenizer's table is made at its first count, in half a second. o200k's takes 60 MB for as long as the process runs,
each of the others up to that.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import toktok

O200K, CL100K, QWEN = "o200k_base", "cl100k_base", "qwen3.5"
#: Two threads that count for the first time would both make the table.
_making = threading.Lock()
_made: set[str] = set()


@dataclass(frozen=True)
class Tokenizer:
    """Tokenizer that a model's tokens are counted with."""

    #: toktok's name of it.
    encoding: str
    #: Name of it for people.
    name: str
    #: Whether the model itself counts so; else it stands in for one that its vendor keeps to itself.
    is_own: bool


#: By the beginnings of models' names, the first that fits.
_FAMILIES = (
    (re.compile(r"(gpt-3|gpt-4(-|\Z)|text-embedding-|davinci|babbage)"), Tokenizer(CL100K, "cl100k", True)),
    (re.compile(r"(gpt-|chatgpt-|o\d(-|\Z))"), Tokenizer(O200K, "o200k", True)),
    (re.compile(r"(qwen|qwq|qvq)"), Tokenizer(QWEN, "Qwen", True)),
)
_STAND_IN = Tokenizer(O200K, "o200k", False)
#: Prefix of a model's name at gateways (openai/gpt-5), and at OpenAI for one that was trained further.
_IN_FRONT = re.compile(r".*/|ft:")


def tokenizer_of(model_name: str) -> Tokenizer:
    name = _IN_FRONT.sub("", model_name.lower())
    return next((tokenizer for begins, tokenizer in _FAMILIES if begins.match(name)), _STAND_IN)


def count_tokens(text: str, encoding: str = O200K) -> int:
    return count_each([text], encoding)[0]


def count_each(texts: Iterable[str], encoding: str = O200K) -> list[int]:
    """Tokens of each text. Half surrogate pairs count as the replacement character."""
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    if encoding not in _made:
        make_table(encoding)
    return list(toktok.batch_count(clean, encoding, threads=1))


def make_table(encoding: str = O200K) -> None:
    """Make the table that counts by this encoding, where this process has not: the first count need not wait for it."""
    with _making:
        if encoding not in _made:
            toktok.batch_count([""], encoding, threads=1)
            _made.add(encoding)
