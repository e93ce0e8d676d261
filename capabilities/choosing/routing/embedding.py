"""Vectors of words, from a static table that a package brings: near words have near vectors, without a model to run.

The table is wordllama's (MIT), of the extra `vectors`: 32,000 pieces of words with 256 numbers each, 16 MB on disk. Its
files are read at first use, once a process; nothing of the package is imported, and nothing is downloaded. Where they
are missing, ranking goes on by words alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Floats = NDArray[np.float32]

PACKAGE = "wordllama"
WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
#: The package's own loader looks for it in another folder.
TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
#: Words whose vectors are kept, 1 kB each.
KEPT_WORDS = 20_000
FEW = 200
#: The tokenizer's sign for the space before a word.
START = "\u2581"


@dataclass(frozen=True)
class Table:
    pieces: NDArray[np.float16]
    tokenizer: Tokenizer
    _known: dict[str, Floats] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return int(self.pieces.shape[1])

    def vectors(self, words: Sequence[str]) -> Floats:
        """One vector of length 1 for each word, made of its pieces; zeros where it has none."""
        # Threads share what is known, and any of them may empty it: each works on what it found itself.
        found = {word: self._known.get(word) for word in words}
        missing = [word for word, vector in found.items() if vector is None]
        new = {word: self._vector(pieces) for word, pieces in zip(missing, self._pieces_of_words(missing), strict=True)}
        if len(self._known) + len(new) > KEPT_WORDS:
            self._known.clear()
        self._known.update(new)
        vectors = [new[word] if (vector := found[word]) is None else vector for word in words]
        return np.stack(vectors) if vectors else np.zeros((0, self.size), dtype=np.float32)

    def text_vectors(self, texts: Sequence[str]) -> Floats:
        """One vector of length 1 for each text, made of the pieces of its words; zeros where it has none."""
        found = [self._vector(pieces) for pieces in self._pieces(texts)]
        return np.stack(found) if found else np.zeros((0, self.size), dtype=np.float32)

    def _pieces_of_words(self, words: Sequence[str]) -> list[list[int]]:
        """Return the pieces of each word, like `_pieces`, in one call: a piece that begins a word begins with START."""
        encoded = self.tokenizer.encode(" ".join(words), add_special_tokens=False)
        found: list[list[int]] = []
        for number, piece in zip(encoded.ids, encoded.tokens, strict=True):
            if piece.startswith(START) or not found:
                found.append([])
            found[-1].append(number)
        return found if len(found) == len(words) else self._pieces(words)

    def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
        # A batch starts threads, which costs more than a few texts do.
        if len(texts) < FEW:
            return [self.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        return [each.ids for each in self.tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def _vector(self, ids: list[int]) -> Floats:
        vector: Floats = self.pieces[ids].astype(np.float32).sum(axis=0)
        length = np.float32(np.linalg.norm(vector))
        return vector / length if length else vector


@lru_cache(maxsize=1)
def table() -> Table | None:
    """The table, read at the first call; None where the extra is not installed or has other files."""
    try:
        from safetensors.numpy import load_file  # noqa: PLC0415 -- leaf
        from tokenizers import Tokenizer  # noqa: PLC0415 -- leaf
    except ImportError:
        return None
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    if not (folder / WEIGHTS).is_file() or not (folder / TOKENIZER).is_file():
        return None
    (pieces,) = load_file(folder / WEIGHTS).values()
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return Table(pieces, tokenizer)
