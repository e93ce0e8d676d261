"""Score of each document for a text: BM25F with near words, vectors, the share of a name, pairs of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from capabilities.choosing.routing.features import Floats
from capabilities.choosing.routing.index import NEAR_SIZE, Ids, Index, NearStems, Postings, Vectors
from capabilities.choosing.routing.words import content_words, stem

#: Weight of each field of a score, where its best document has 1.
LEXICAL = np.float32(1.5)
SEMANTIC = np.float32(1.7)
NAMED = np.float32(0.7)
PAIRED = np.float32(0.65)
#: How near a word of the vocabulary must be to stand for a word of the text, how many do, and what they count.
NEAR = 0.35
NEAR_WORDS = 8
NEAR_SHARE = 0.7
#: Words of one text that are read, the first ones; and words of messages whose near words are kept.
MAX_WORDS = 200
KEPT_NEAR = 20_000
#: Words that make a text a sentence, for its numbers.
SENTENCE = 3
#: A word that the catalogue does not have counts in the text's vector as this share of its rarest one.
UNKNOWN = np.float32(0.7)


@dataclass(frozen=True)
class Fields:
    """Raw figures of texts x documents: BM25F with near words, cosine, share of the name that the text has, pairs."""

    lexical: Floats
    cosine: Floats
    named: Floats
    paired: Floats

    def scores(self, allowed: Ids | None) -> Floats:
        """One score for each text and document, comparable within a text; the best of each field, of those allowed,
        counts as 1."""
        total: Floats = LEXICAL * _by_best(self.lexical, allowed) + PAIRED * _by_best(self.paired, allowed)
        total += SEMANTIC * _by_best(self.cosine, allowed) + NAMED * self.named
        return total


def fields_of(index: Index, texts: Sequence[str]) -> Fields:
    """The figures of every text for every document of the index."""
    read = [_telling_words(text, index.language) for text in texts]
    words = [Counter(each) for each in read]
    sequences = [[stem(word, index.language) for word in each] for each in read]
    shape = (len(texts), len(index))
    near = near_stems(index, chain(*read))
    lexical = _gather(index.stems, [terms_with_near(index, each, near) for each in words], index.impacts, shape)
    exact = [_exact_terms(index, each) for each in words]
    named = _gather(index.stems, exact, index.name_shares, shape)
    paired = _gather(index.pairs, [_pair_terms(index, each) for each in sequences], None, shape)
    zeros = np.zeros(shape, dtype=np.float32)
    cosine = zeros if index.vectors is None else _cosines(index, index.vectors, words)
    return Fields(lexical, cosine, named, paired)


def _telling_words(text: str, language: str) -> list[str]:
    """The words by which a text is ranked. In a sentence a number is a value, not the name of anything."""
    words = content_words(text, language)[:MAX_WORDS]
    others = [word for word in words if not word.isdigit()]
    return others if len(others) >= SENTENCE else words


def _exact_terms(index: Index, words: Counter[str]) -> dict[int, float]:
    at = (index.stems.terms.get(stem(word, index.language)) for word in words)
    return {number: 1.0 for number in at if number is not None}


def terms_with_near(index: Index, words: Mapping[str, int], near: NearStems) -> dict[int, float]:
    """The stems that a text's words have or are near to, with what they count; `near` is what `near_stems` found."""
    counts: dict[int, float] = {}
    for word, count in words.items():
        number = index.stems.terms.get(stem(word, index.language))
        if number is not None:
            counts[number] = max(counts.get(number, 0.0), 1.0 + float(np.log(count)))
        for other, share in near.get(word, ()):
            counts[other] = max(counts.get(other, 0.0), share)
    return counts


def near_stems(index: Index, words: Iterable[str]) -> NearStems:
    """Return the stems of the catalogue near each word, with their weights; empty without a table."""
    vectors = index.vectors
    if vectors is None:
        return {}
    # Threads share what is known, and any of them may empty it: each works on what it found itself.
    known = {word: vectors.near.get(word) for word in words}
    missing = [word for word, found in known.items() if found is None]
    new = _measured(vectors, missing) if missing else {}
    if len(vectors.near) + len(new) > KEPT_NEAR:
        vectors.near.clear()
    vectors.near.update(new)
    return {word: new[word] if found is None else found for word, found in known.items()}


def _measured(vectors: Vectors, words: list[str]) -> NearStems:
    """Return for each word the stems that are near it, each with its share."""
    asked = vectors.table.vectors(words)[:, :NEAR_SIZE]
    asked = asked / np.maximum(np.linalg.norm(asked, axis=1, keepdims=True), 1e-9)
    similarity = asked @ vectors.words
    rows, stems = np.nonzero(similarity > NEAR)
    ends = np.searchsorted(rows, np.arange(len(words) + 1))
    measured: NearStems = {}
    for number, word in enumerate(words):
        found = stems[ends[number] : ends[number + 1]]
        near = similarity[number, found]
        if len(found) > NEAR_WORDS:
            best = np.argpartition(-near, NEAR_WORDS)[:NEAR_WORDS]
            found, near = found[best], near[best]
        shares = NEAR_SHARE * (near - NEAR) / (1 - NEAR)
        measured[word] = tuple(zip(found.tolist(), shares.tolist(), strict=True))
    return measured


def _pair_terms(index: Index, sequence: list[str]) -> dict[int, float]:
    at = (index.pairs.terms.get(pair) for pair in pairwise(sequence))
    return {number: float(index.pair_rarity[number]) for number in at if number is not None}


def _gather(postings: Postings, terms: list[dict[int, float]], values: Floats | None, shape: tuple[int, int]) -> Floats:
    """Return for each text and document the sum over the text's terms of the term's weight times the posting's
    value."""
    numbers = np.array([number for each in terms for number in each], dtype=np.int32)
    counts = np.array([count for each in terms for count in each.values()], dtype=np.float32)
    rows = np.repeat(np.arange(len(terms)), [len(each) for each in terms])
    starts, sizes = postings.starts[numbers], postings.starts[numbers + 1] - postings.starts[numbers]
    total = int(sizes.sum())
    if not total:
        return np.zeros(shape, dtype=np.float32)
    within = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = np.repeat(starts, sizes) + within
    weights = np.repeat(counts, sizes)
    if values is not None:
        weights = weights * values[at]
    cells = np.repeat(rows, sizes) * shape[1] + postings.documents[at]
    sums: Floats = np.bincount(cells, weights=weights, minlength=shape[0] * shape[1]).astype(np.float32).reshape(shape)
    return sums


def cosines(index: Index, texts: Sequence[str]) -> Floats:
    """The cosine of each text with each document, from their words' vectors by rarity; zeros without a table."""
    if index.vectors is None:
        return np.zeros((len(texts), len(index)), dtype=np.float32)
    return _cosines(index, index.vectors, [_counted(index, text) for text in texts])


def _counted(index: Index, text: str) -> Counter[str]:
    return Counter(content_words(text, index.language)[:MAX_WORDS])


def _cosines(index: Index, vectors: Vectors, words: list[Counter[str]]) -> Floats:
    texts = np.zeros((len(words), vectors.documents.shape[0]), dtype=np.float32)
    unknown = UNKNOWN * index.rarity.max(initial=1.0)
    for row, each in enumerate(words):
        if each:
            numbers = [index.stems.terms.get(stem(word, index.language)) for word in each]
            rarity = np.array([unknown if at is None else index.rarity[at] for at in numbers], dtype=np.float32)
            often = np.sqrt(np.fromiter(each.values(), dtype=np.float32))
            texts[row] = (rarity * often) @ vectors.table.vectors(list(each))
    lengths = np.maximum(np.linalg.norm(texts, axis=1, keepdims=True), 1e-9)
    found: Floats = (texts / lengths) @ vectors.documents
    return found


def _by_best(figures: Floats, allowed: Ids | None) -> Floats:
    best = (figures if allowed is None else figures[:, allowed]).max(axis=1, keepdims=True, initial=0.0)
    best[best <= 0] = 1
    # A text that is near to nothing has a best figure of almost 0, beside which another one below 0 would outweigh all.
    share: Floats = np.maximum(figures / best, np.float32(-1))
    return share
