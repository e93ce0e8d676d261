"""Places where a list goes on, as text that says nothing: keys count the rows of every organisation, so they go out
encrypted.

A place that was written with another SECRET_KEY is read as none.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import TypeVar

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.utils.crypto import salted_hmac

T = TypeVar("T", int, str, list[str])

#: Characters, of several texts of a row with signs that JSON writes long.
MAX_PLACE = 4_000


@lru_cache(maxsize=2)
def _cipher(secret: str) -> Fernet:
    key = salted_hmac("toolhub.places", "", secret=secret, algorithm="sha256").digest()
    return Fernet(base64.urlsafe_b64encode(key))


def sealed_place(position: int | str | list[str]) -> str:
    """The place as text for an address, of letters, digits, - and _."""
    return _cipher(settings.SECRET_KEY).encrypt(json.dumps(position, ensure_ascii=False).encode()).decode().rstrip("=")


def opened_place(text: str, kind: type[T]) -> T | None:
    """The place that `sealed_place` made this text of; None for any other text, and for a place of another kind."""
    if len(text) > MAX_PLACE or not text.isascii():
        return None
    try:
        position = json.loads(_cipher(settings.SECRET_KEY).decrypt(text + "=" * (-len(text) % 4)))
    except InvalidToken:
        return None
    return position if type(position) is kind else None
