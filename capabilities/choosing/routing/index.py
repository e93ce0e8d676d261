"""A catalogue made ready to be ranked: postings of stems, pairs of stems, vectors. Immutable; shared by content."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.embedding import Table, table
from capabilities.choosing.routing.features import Features, Floats, features_of
from capabilities.choosing.routing.words import ENGLISH, language_of

Ids = NDArray[np.int32]
#: For words of messages the stems near them, by number, with what they count.
NearStems = dict[str, tuple[tuple[int, float], ...]]

#: How much a word counts by where it stands, and how much a long field weakens it (BM25F).
WEIGHTS = np.array([3.0, 1.0, 0.6, 0.8], dtype=np.float32)
SLOPES = np.array([0.3, 0.6, 0.6, 0.3], dtype=np.float32)
K1 = np.float32(1.2)
#: How much a word counts in a document's vector by where it stands.
VECTOR_WEIGHTS = np.array([1.0, 1.0, 0.6, 0.3], dtype=np.float32)
#: Numbers of a word's vector that are read to find near words: the first ones say most.
NEAR_SIZE = 64
#: Sets of allowed names whose numbers are kept.
KEPT_CHOICES = 64


@dataclass(frozen=True, eq=False)
class Postings:
    """Documents by the terms that they have: those of term t are `documents[starts[t]:starts[t + 1]]`."""

    terms: dict[object, int]
    starts: Ids
    documents: Ids

    @property
    def found(self) -> Ids:
        """Number of documents that have each term."""
        return np.diff(self.starts)


@dataclass(frozen=True, eq=False)
class Vectors:
    """words: the vocabulary's vectors, cut to NEAR_SIZE, a column each. documents: one column of length 1 for each.
    near: words of messages seen before, with the stems that are near them."""

    table: Table
    words: Floats
    documents: Floats
    near: NearStems = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Index:
    """Documents in their given order; a document's number is its place there. key: a hash of the content. words: a word
    for each stem. name_order: the place of each document by name. thresholds: the gate's, once it has measured them,
    which one thread does (`measuring`)."""

    key: str
    language: str
    documents: tuple[Document, ...]
    numbers: dict[str, int]
    name_order: Ids
    stems: Postings
    words: tuple[str, ...]
    rarity: Floats
    impacts: Floats
    name_shares: Floats
    pairs: Postings
    pair_rarity: Floats
    vectors: Vectors | None
    toolkit_sizes: dict[str, int]
    by_category: dict[str, Ids]
    thresholds: dict[float, float] = field(default_factory=dict)
    measuring: Lock = field(default_factory=Lock)
    _chosen: dict[tuple[str, ...], Ids] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.documents)

    def numbers_of(self, names: tuple[str, ...]) -> Ids:
        """The numbers of these names, in their order, without those that the index does not have."""
        found = self._chosen.get(names)
        if found is None:
            numbers = dict.fromkeys(self.numbers[name] for name in names if name in self.numbers)
            found = np.array(list(numbers), dtype=np.int32)
            if len(self._chosen) >= KEPT_CHOICES:
                self._chosen.clear()
            self._chosen[names] = found
        return found

    @property
    def bytes(self) -> int:
        """Memory of its arrays, without the documents' own texts."""
        arrays = [self.stems.starts, self.stems.documents, self.impacts, self.name_shares, self.rarity]
        arrays += [self.pairs.starts, self.pairs.documents, self.pair_rarity]
        if self.vectors:
            arrays += [self.vectors.words, self.vectors.documents]
        return sum(array.nbytes for array in arrays)


def build_index(documents: Sequence[Document], *, embedding: bool = True) -> Index:
    """Build the index of these documents. What is known of a document that was seen before comes from memory. Of two
    with one name, the later one is found by it. `embedding=False`: by words alone."""
    documents = tuple(documents)
    language = language_of(document.description for document in documents[:500]) if documents else ENGLISH
    features = [features_of(document, language) for document in documents]
    stems, order = _postings([each.stems for each in features])
    words = _words(features, stems)
    rarity = _rarity(stems, len(documents))
    counts = np.concatenate([each.counts for each in features] or [np.zeros((0, 4), dtype=np.float32)])[order]
    rows = stems.documents
    term_numbers = np.repeat(np.arange(len(stems.terms), dtype=np.int32), stems.found)
    pairs, _ = _postings([each.pairs for each in features])
    return Index(
        key=index_key(documents),
        language=language,
        documents=documents,
        numbers={document.name: number for number, document in enumerate(documents)},
        name_order=_name_order(documents),
        stems=stems,
        words=words,
        rarity=rarity,
        impacts=_impacts(features, counts, rows) * rarity[term_numbers],
        name_shares=_name_shares(counts, rarity[term_numbers], rows, len(documents)),
        pairs=pairs,
        pair_rarity=_rarity(pairs, len(documents)),
        vectors=_vectors(features, stems, words, rarity, counts, term_numbers) if embedding else None,
        toolkit_sizes=dict(Counter(document.toolkit for document in documents)),
        by_category=_by_category(documents),
    )


def _name_order(documents: Sequence[Document]) -> Ids:
    """Return the place of each document in the order of names."""
    order = np.empty(len(documents), dtype=np.int32)
    order[sorted(range(len(documents)), key=lambda at: documents[at].name)] = np.arange(len(documents))
    return order


def _by_category(documents: Sequence[Document]) -> dict[str, Ids]:
    found: dict[str, list[int]] = {}
    for number, document in enumerate(documents):
        found.setdefault(document.category, []).append(number)
    return {category: np.array(numbers, dtype=np.int32) for category, numbers in found.items()}


def index_key(documents: Iterable[Document]) -> str:
    """The key of the index of these documents, without building it."""
    return hashlib.sha256("".join(document.key for document in documents).encode()).hexdigest()


def _postings(terms_by_document: Sequence[Sequence[object]]) -> tuple[Postings, NDArray[np.int64]]:
    """The postings, and the order in which the documents' terms, one after the other, stand in them."""
    terms: dict[object, int] = {}
    numbers = [terms.setdefault(term, len(terms)) for each in terms_by_document for term in each]
    at = np.array(numbers, dtype=np.int32)
    document_numbers = np.repeat(
        np.arange(len(terms_by_document), dtype=np.int32), [len(each) for each in terms_by_document]
    )
    order = np.argsort(at, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(terms)))]).astype(np.int32)
    return Postings(terms, starts, document_numbers[order]), order


def _rarity(postings: Postings, size: int) -> Floats:
    found = postings.found
    rarity: Floats = np.log(1 + (size - found + 0.5) / (found + 0.5)).astype(np.float32)
    return rarity


def _impacts(features: list[Features], counts: Floats, rows: Ids) -> Floats:
    """BM25F without the rarity of the stem, for each posting."""
    if not len(counts):
        return np.zeros(0, dtype=np.float32)
    lengths = np.stack([each.lengths for each in features])
    norms = 1 - SLOPES + SLOPES * lengths / np.maximum(lengths.mean(axis=0), 1e-6)
    often = (WEIGHTS * counts / norms[rows]).sum(axis=1)
    impacts: Floats = (often * (K1 + 1) / (often + K1)).astype(np.float32)
    return impacts


def _name_shares(counts: Floats, rarity: Floats, rows: Ids, size: int) -> Floats:
    """Return for each posting the share of its stem in the document's name, by rarity; 0 where it is not in there."""
    named = np.where(counts[:, 0] > 0, rarity, np.float32(0))
    whole = np.bincount(rows, weights=named, minlength=size)
    shares: Floats = (named / np.maximum(whole[rows], 1e-6)).astype(np.float32)
    return shares


def _words(features: list[Features], stems: Postings) -> tuple[str, ...]:
    """Return a word of the catalogue for each stem, in the order of the stems."""
    words: dict[object, str] = {}
    for each in features:
        for root, word in zip(each.stems, each.words, strict=True):
            words.setdefault(root, word)
    return tuple(words[root] for root in stems.terms)


def _vectors(
    features: list[Features], stems: Postings, words: tuple[str, ...], rarity: Floats, counts: Floats, term_numbers: Ids
) -> Vectors | None:
    """Return vectors of the index's words and documents; None without a table of vectors."""
    read = table()
    if read is None or not len(counts):
        return None
    vectors = read.vectors(words)
    shares = (np.sqrt(counts) @ VECTOR_WEIGHTS) * rarity[term_numbers]
    documents = np.zeros((len(features), vectors.shape[1]), dtype=np.float32)
    by_document = np.argsort(stems.documents, kind="stable")
    rows, first = np.unique(stems.documents[by_document], return_index=True)
    for part in np.array_split(np.arange(len(rows)), max(1, len(by_document) // 20_000)):
        ends = [*first[part[1:]], first[part[-1] + 1] if part[-1] + 1 < len(first) else len(by_document)]
        chosen = by_document[first[part[0]] : ends[-1]]
        weighted = vectors[term_numbers[chosen]] * shares[chosen, None]
        documents[rows[part]] = np.add.reduceat(weighted, first[part] - first[part[0]], axis=0)
    # Columns, one after the other in memory, are multiplied three times as fast as rows.
    near, whole = (np.ascontiguousarray(_unit(each).T) for each in (vectors[:, :NEAR_SIZE], documents))
    return Vectors(read, near, whole)


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = (vectors / np.maximum(lengths, 1e-9)).astype(np.float32)
    return unit
