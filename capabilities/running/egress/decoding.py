"""Taking compressed bodies apart, never more of one than was asked for.

Knows the codings that are asked for. Must not know how much is too much: whoever reads says it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from capabilities.running.egress.errors import EgressFailed

#: Encodings that a request says it takes.
ACCEPTED = "gzip, deflate"


def decoder(coding: str) -> Callable[[bytes, int], bytes]:
    """A function of a piece and the most bytes to make of it; called with an empty piece, it goes on with what is left.

    One layer only: nested ones are made by attackers. It raises EgressFailed for damaged data, and for a coding that is
    not known.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return lambda piece, limit: piece
    if coding not in ("gzip", "x-gzip", "deflate"):
        return _unknown_coding
    inflate = None

    def decode(piece: bytes, limit: int) -> bytes:
        nonlocal inflate
        if inflate is None:  # "deflate" comes with a zlib header, or, from some servers, without any
            bare = coding == "deflate" and piece[:1] and piece[0] & 0x0F != 8
            inflate = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
        try:
            return inflate.decompress(inflate.unconsumed_tail + piece, limit)
        except zlib.error as error:
            raise EgressFailed("The answer is compressed, and damaged.") from error

    return decode


def _unknown_coding(piece: bytes, limit: int) -> bytes:
    raise EgressFailed("The answer is compressed in a way that was not asked for.")
