"""The words of names and texts: split, lower case, and the stem that their inflections share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from threading import Lock
from typing import Any

import snowballstemmer

#: Characters of a text that are read; what is beyond them does not change what a message is about.
MAX_CHARACTERS = 8_000
ENGLISH = "english"

_RUN = re.compile(r"[^\W_]+")
#: lower|Upper, UPPER|Upper+lower, letter|digit, digit|letter
_INNER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_APOSTROPHE = re.compile(r"(?<=\w)[’'](?:s|re|ve|ll|d|m|t)?\b", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Scripts that put no space between words: read as pairs of characters.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")

_STOP_WORDS = """
a about above after again all also am an and any are as at be because been before being below between both but by can
could did do does doing don down during each few for from further had has have having he her here hers him his how i if
in into is it its itself just let like ll make me more most my myself need no nor not now of off on once only or other
our ours out over own please re s same she should so some such t than thank thanks that the their theirs them then there
these they this those through to too under until up us ve very want was we were what when where which while who whom why
will with would you your yours yourself d m okay ok hey hi hello
"""
#: Words that say nothing about which tool is meant.
STOP_WORDS = frozenset(_STOP_WORDS.split())
_OTHER_STOP_WORDS = {
    "german": """
        der die das den dem des ein eine einen einem einer und oder aber ich du er sie es wir ihr mein meine
        meinen meiner dein deine ist sind war bin hat habe haben mir mich dir dich uns euch in im an am auf aus
        bei mit nach von vom zu zum zur für über unter um wie was wer wo wann warum nicht kein keine auch noch
        nur schon so als wenn dass bitte kannst können kann soll will möchte alle
    """,
    "spanish": """
        el la los las un una unos unas y o pero yo tú él ella nosotros mi mis tu tus su sus es son está están
        era ha han he me te se nos lo le les de del en a al con por para sin sobre como qué que quién dónde
        cuándo no sí también ya muy más este esta estos estas ese esa por favor puedes quiero
    """,
    "french": """
        le la les un une des et ou mais je tu il elle nous vous ils elles mon ma mes ton ta tes son sa ses est
        sont était ai as a ont me te se lui leur de du d l en à au aux avec par pour sans sur comme que qui quoi
        où quand ne pas non oui aussi déjà très plus ce cette ces s il plaît peux veux
    """,
}
STOP_WORDS_OF = {ENGLISH: STOP_WORDS} | {name: frozenset(text.split()) for name, text in _OTHER_STOP_WORDS.items()}


#: A stemmer holds the word that it works on: one thread at a time.
_STEMMING = Lock()


@lru_cache(maxsize=8)
def _stemmer(language: str) -> Any:
    return snowballstemmer.stemmer(language)


@lru_cache(maxsize=50_000)
def stem(word: str, language: str = ENGLISH) -> str:
    """The stem of a word in lower case: `commits` and `committed` have the same."""
    with _STEMMING:
        stemmed: str = _stemmer(language).stemWord(word)
    return stemmed


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; `file_read` and `fileRead` are two words each, `s3` is `s` and `3`."""
    return list(_words(text[:MAX_CHARACTERS]))


@lru_cache(maxsize=64)
def _words(text: str) -> tuple[str, ...]:
    """A message is asked for its words by each part of the router."""
    text = _APOSTROPHE.sub(" ", _SURROGATE.sub(" ", text))
    words = [part for run in _RUN.findall(text) for part in _parts(run)]
    if _UNSPACED.search(text):
        words = [part for word in words for part in _pairs(word)]
    return tuple(words)


def _parts(run: str) -> list[str]:
    """The words of characters without a blank. Most are one: the split costs ten times this look."""
    if run.islower() and run.isalpha():
        return [run]
    return [part.lower() for part in _INNER.split(run)]


def content_words(text: str, language: str = ENGLISH) -> list[str]:
    """Return the words of a text without those that say nothing about which tool is meant."""
    stop = STOP_WORDS_OF[language]
    return [word for word in words_of(text) if word not in stop]


def language_of(texts: Iterable[str]) -> str:
    """The language whose stop words stand in most of the texts; English where none does."""
    found: Counter[str] = Counter()
    for text in texts:
        words = set(words_of(text[:400]))
        found.update({name: len(words & stop) for name, stop in STOP_WORDS_OF.items()})
    return max(STOP_WORDS_OF, key=lambda name: (found[name], name == ENGLISH))


def _pairs(word: str) -> list[str]:
    if len(word) < 3 or not _UNSPACED.search(word):
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)]
