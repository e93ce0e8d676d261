"""Features of one document for any index: its words by field. Kept by content, so that a changed catalogue is indexed
again at the price of what changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.words import content_words, stem

Floats = NDArray[np.float32]
#: Documents whose features are kept, about 4 kB each.
KEPT_DOCUMENTS = 10_000
FIELDS = ("name", "description", "parameters", "group")


@dataclass(frozen=True)
class Features:
    """stems: each once, with a word it is the stem of. counts: stems x fields. lengths: words of each field.
    pairs: stems that stand side by side in the name or the description."""

    stems: tuple[str, ...]
    words: tuple[str, ...]
    counts: Floats
    lengths: Floats
    pairs: tuple[tuple[str, str], ...]


@lru_cache(maxsize=KEPT_DOCUMENTS)
def features_of(document: Document, language: str) -> Features:
    """The document's features; from memory where an equal document was read before."""
    fields = [content_words(text, language) for text in _texts(document)]
    stemmed = [[stem(word, language) for word in field] for field in fields]
    word_of = dict(zip(chain(*stemmed), chain(*fields), strict=True))
    counted = [Counter(field) for field in stemmed]
    counts = np.array([[count[root] for count in counted] for root in word_of], dtype=np.float32)
    name, description = stemmed[0], stemmed[1]
    pairs = dict.fromkeys([*pairwise(name), *pairwise(description)])
    return Features(
        stems=tuple(word_of),
        words=tuple(word_of.values()),
        counts=counts.reshape(len(word_of), len(FIELDS)),
        lengths=np.array([len(field) for field in fields], dtype=np.float32),
        pairs=tuple(pairs),
    )


def _texts(document: Document) -> tuple[str, str, str, str]:
    group = (document.toolkit, document.category, *document.triggers)
    return (f"{document.name} {document.title}", document.description, document.parameters, " ".join(group))
