"""Gate: whether a message calls for any tool at all, by its likeness to the catalogue against that to small talk.

The threshold is a catalogue's own: most of the stored small talk stays below it. Nothing is learnt from messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from capabilities.choosing.routing.abilities import asks_what_can_be_done
from capabilities.choosing.routing.embedding import Floats, table
from capabilities.choosing.routing.index import Index, NearStems
from capabilities.choosing.routing.ranking import cosines, near_stems
from capabilities.choosing.routing.words import content_words, stem, words_of

#: Sentences of our own, a line each, in several languages.
SMALL_TALK = Path(__file__).with_name("small_talk.txt")
#: Share of them that the threshold leaves below it.
SHARE = 0.95
#: Words of a message that count, the most telling ones; and what each part of the figure counts.
TELLING = 3
#: A word that no small talk has counts so much at least, whether the catalogue knows it or not.
FOREIGN = 0.5
COSINE = 2.0
ALIKE = 2.0
#: Least likeness of a message without a word of the catalogue: a word as near to one, or such a cosine.
NEAR_ENOUGH = 0.3
COSINE_ENOUGH = 0.35
#: Characters of a word that are looked at for parts.
LONGEST = 40
#: From this likeness to a stored sentence on, a message is small talk whatever the catalogue.
NEARLY_THE_SAME = 0.6
MAX_WORDS = 60


@dataclass(frozen=True)
class SmallTalk:
    """sentences: as sets of words. vectors: one for each, None without a table. found: sentences that have a stem."""

    sentences: tuple[frozenset[str], ...]
    texts: tuple[str, ...]
    vectors: Floats | None
    found: Counter[str]


@lru_cache(maxsize=1)
def small_talk() -> SmallTalk:
    texts = tuple(line for line in SMALL_TALK.read_text(encoding="utf-8").splitlines() if line)
    sentences = tuple(frozenset(words_of(text)) for text in texts)
    found = Counter(root for each in sentences for root in {stem(word) for word in each})
    return SmallTalk(sentences, texts, _vectors(texts), found)


def threshold(index: Index, share: float = SHARE) -> float:
    """The figure that a message must reach in this catalogue: above that share of the small talk, each measured as if
    it were not stored. Measured once: threads that need it meanwhile wait for it."""
    if share not in index.thresholds:
        with index.measuring:
            if share not in index.thresholds:
                index.thresholds[share] = _measured(index, share)
    return index.thresholds[share]


def _measured(index: Index, share: float) -> float:
    talk_index = small_talk()
    best = _best_cosines(index, talk_index.texts)
    alike = _alike(talk_index.texts)
    np.fill_diagonal(alike, -1.0)
    figures = [
        _figure(index, text, float(cosine), float(row.max()), 1)
        for text, cosine, row in zip(talk_index.texts, best, alike, strict=True)
    ]
    return float(np.quantile(figures, share))


def calls_for_tools(index: Index, message: str, cosine: float, *, support: float = 0.0, share: float = SHARE) -> bool:
    """Return whether the message reaches the threshold. cosine: the highest of the allowed tools. support: the evidence
    for tools beside the message's own words."""
    if not _words(index, message):
        return False
    figure = _figure(index, message, cosine, float(_alike((message,)).max()), 0)
    return figure + support >= threshold(index, share)


def is_small_talk(message: str) -> bool:
    """Return whether the message is almost one of the stored sentences of small talk, whatever the catalogue, or has no
    word ("👋"). Of the small talk of the development questions 64 % is, of those that need a tool 2 %. What asks what
    can be done is none: it takes the tool that finds others."""
    if asks_what_can_be_done(message):
        return False
    return not words_of(message) or float(_alike((message,)).max(initial=0.0)) >= NEARLY_THE_SAME


def _figure(index: Index, text: str, cosine: float, alike: float, own: int) -> float:
    """own: 1 where the text itself is one of the stored sentences."""
    words = _words(index, text)
    found = small_talk().found
    weights = []
    near = near_stems(index, words)
    for word in words:
        times = max(found[stem(word)] - own, 0)
        known = _known(index, word, near)
        weights.append(known / (times + 1) if times else max(known, FOREIGN))
    return sum(sorted(weights)[-TELLING:]) + COSINE * cosine - ALIKE * alike


def _words(index: Index, text: str) -> list[str]:
    """The words that tell, each once."""
    return list(dict.fromkeys(content_words(text, index.language)))[:MAX_WORDS]


def is_spoken_of(index: Index, message: str, cosine: float) -> bool:
    """Return whether a word of the message is the catalogue's, or near to one that is no part of it, or the cosine is
    high: "multitasking" is near to "task" for its letters alone."""
    if cosine >= COSINE_ENOUGH:
        return True
    words = _words(index, message)
    terms, near = index.stems.terms, near_stems(index, words)
    if any(stem(word, index.language) in terms for word in words):
        return True
    for word in words:
        close = [number for number, share in near.get(word, ()) if share >= NEAR_ENOUGH]
        if close and not {terms.get(part) for part in _parts_of(word)}.issuperset(close):
            return True
    return False


def _parts_of(word: str) -> list[str]:
    ends = range(1, min(len(word), LONGEST) + 1)
    return [word[first:last] for last in ends for first in range(last)]


def _known(index: Index, word: str, near: NearStems) -> float:
    """1 for a word of the catalogue, less for one that is near to such a word."""
    if stem(word, index.language) in index.stems.terms:
        return 1.0
    return max((share for _, share in near.get(word, ())), default=0.0)


def _best_cosines(index: Index, texts: Sequence[str]) -> Floats:
    best = np.zeros(len(texts), dtype=np.float32)
    for first in range(0, len(texts), 64):
        best[first : first + 64] = cosines(index, texts[first : first + 64]).max(axis=1, initial=0.0)
    return best


def _alike(texts: Sequence[str]) -> Floats:
    """Return the likeness of each text to each stored sentence: the cosine, or without a table the share of words in
    common."""
    talk_index = small_talk()
    vectors = _vectors(texts)
    if talk_index.vectors is not None and vectors is not None:
        found: Floats = np.maximum(vectors @ talk_index.vectors.T, 0)
        return found
    sets = [frozenset(words_of(text)[:MAX_WORDS]) for text in texts]
    shares = [
        [2 * len(each & other) / max(len(each) + len(other), 1) for other in talk_index.sentences] for each in sets
    ]
    return np.array(shares, dtype=np.float32)


def _vectors(texts: Sequence[str]) -> Floats | None:
    """Vectors of whole texts, their small words included: "who are you" has no others."""
    read = table()
    return None if read is None else read.text_vectors([" ".join(words_of(text)[:MAX_WORDS]) for text in texts])
