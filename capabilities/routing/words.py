"""The words of names and texts: split, lower case, and the stem that their inflections share."""

from __future__ import annotations

import re
from functools import lru_cache

import snowballstemmer

#: Characters of a text that are read; what is beyond them does not change what a message is about.
MAX_CHARACTERS = 8_000

_RUN = re.compile(r"[^\W_]+")
#: lower|Upper, UPPER|Upper+lower, letter|digit, digit|letter
_INNER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_APOSTROPHE = re.compile(r"[’'](?:s|re|ve|ll|d|m|t)?\b", re.IGNORECASE)

_STOP_WORDS = """
a about above after again all also am an and any are as at be because been before being below between both but
by can could did do does doing don down during each few for from further had has have having he her here hers
him his how i if in into is it its itself just let like ll make me more most my myself need no nor not now of
off on once only or other our ours out over own please re s same she should so some such t than thank thanks
that the their theirs them then there these they this those through to too under until up us ve very want was we
were what when where which while who whom why will with would you your yours yourself d m okay ok hey hi hello
"""
#: Words that say nothing about which tool is meant.
STOP_WORDS = frozenset(_STOP_WORDS.split())

_english = snowballstemmer.stemmer("english")


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a word in lower case: `commits` and `committed` have the same."""
    stemmed: str = _english.stemWord(word)
    return stemmed


def words_of(text: str) -> list[str]:
    """Its words in lower case; `file_read` and `fileRead` are two words each, `s3` is `s` and `3`."""
    text = _APOSTROPHE.sub(" ", text[:MAX_CHARACTERS])
    return [part.casefold() for run in _RUN.findall(text) for part in _INNER.split(run)]


def terms_of(text: str) -> list[str]:
    """The stems of its words, without those that say nothing."""
    return [stem(word) for word in words_of(text) if word not in STOP_WORDS]
