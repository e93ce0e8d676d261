"""A catalogue made ready to be ranked: postings of stems with their BM25F weights. Immutable; shared by content."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from capabilities.routing.documents import Document
from capabilities.routing.words import terms_of

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]

#: How much a word counts by where it stands, and how much a long field weakens it.
FIELDS = {"name": (3.0, 0.3), "description": (1.0, 0.6), "parameters": (0.6, 0.6), "group": (0.8, 0.3)}
K1 = 1.2


@dataclass(frozen=True)
class Features:
    """What one document gives to any index: its stems, and how often each stands in each field."""

    terms: tuple[str, ...]
    counts: Floats
    lengths: Floats


@dataclass(frozen=True)
class Index:
    """Documents in their given order; a document's number is its place there. `key` is a hash of the content."""

    key: str
    documents: tuple[Document, ...]
    numbers: dict[str, int]
    vocabulary: dict[str, int]
    starts: Ids
    posted: Ids
    weights: Floats

    def __len__(self) -> int:
        return len(self.documents)

    def lexical(self, terms: Iterable[str]) -> Floats:
        """BM25F of every document for these stems; a stem that comes twice counts little more than once."""
        scores = np.zeros(len(self.documents), dtype=np.float32)
        for term, count in Counter(terms).items():
            at = self.vocabulary.get(term)
            if at is not None:
                part = slice(self.starts[at], self.starts[at + 1])
                scores[self.posted[part]] += self.weights[part] * np.float32(1 + np.log(count))
        return scores


def build_index(documents: Sequence[Document]) -> Index:
    """Build the index of these documents. The features of a document that was seen before come from a cache; of two
    with one name, the later one is found by it."""
    documents = tuple(documents)
    features = [features_of(document) for document in documents]
    vocabulary: dict[str, int] = {}
    at = np.array(
        [vocabulary.setdefault(term, len(vocabulary)) for each in features for term in each.terms], dtype=np.int32
    )
    of = np.repeat(np.arange(len(documents), dtype=np.int32), [len(each.terms) for each in features])
    order = np.argsort(at, kind="stable")
    found = np.bincount(at, minlength=len(vocabulary)) if len(at) else np.zeros(0, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(found)]).astype(np.int32)
    weights = _weights(features, of, at, found, len(documents))
    return Index(
        key=index_key(documents),
        documents=documents,
        numbers={document.name: number for number, document in enumerate(documents)},
        vocabulary=vocabulary,
        starts=starts,
        posted=of[order],
        weights=weights[order],
    )


def index_key(documents: Iterable[Document]) -> str:
    """The key of the index of these documents, without building it."""
    return hashlib.sha256("".join(document.key for document in documents).encode()).hexdigest()


@lru_cache(maxsize=20_000)
def features_of(document: Document) -> Features:
    fields = (
        terms_of(document.name) + terms_of(document.title),
        terms_of(document.description),
        terms_of(document.parameters),
        terms_of(" ".join((document.toolkit, document.category, *document.triggers))),
    )
    counted = [Counter(field) for field in fields]
    terms = tuple(dict.fromkeys(term for field in fields for term in field))
    counts = np.array([[count[term] for count in counted] for term in terms], dtype=np.float32)
    return Features(terms, counts.reshape(len(terms), len(fields)), np.array([*map(len, fields)], dtype=np.float32))


def _weights(features: list[Features], of: Ids, at: Ids, found: NDArray[np.int64], size: int) -> Floats:
    if not len(at):
        return np.zeros(0, dtype=np.float32)
    weight, slope = np.array(list(FIELDS.values()), dtype=np.float32).T
    lengths = np.stack([each.lengths for each in features])
    mean = np.maximum(lengths.mean(axis=0), 1e-6)
    counts = np.concatenate([each.counts for each in features])
    often = (weight * counts / (1 - slope + slope * lengths / mean)[of]).sum(axis=1)
    rarity = np.log(1 + (size - found + 0.5) / (found + 0.5))
    scores: Floats = (rarity[at] * often * (K1 + 1) / (often + K1)).astype(np.float32)
    return scores
