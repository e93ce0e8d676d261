"""Secrets taken out of what comes back from outside: a far side may send one back, as it is or as JSON writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "••••"


def masked_in(text: str, secrets: Iterable[str]) -> str:
    """The text without these secrets."""
    for written in _written(secrets):
        text = text.replace(written, MASK)
    return text


def masked_bytes(content: bytes, secrets: Iterable[str]) -> bytes:
    """Return the content of a file with every secret masked."""
    for written in _written(secrets):
        content = content.replace(written.encode(), MASK.encode())
    return content


def masked_value(value: Any, secrets: Iterable[str]) -> Any:
    """A JSON value without these secrets in any of its text."""
    secrets = tuple(secrets)
    if isinstance(value, str):
        return masked_in(value, secrets)
    if isinstance(value, list):
        return [masked_value(each, secrets) for each in value]
    if isinstance(value, Mapping):
        return {masked_value(key, secrets): masked_value(each, secrets) for key, each in value.items()}
    return value


def _written(secrets: Iterable[str]) -> Iterator[str]:
    """The secrets in each way that they may be written, the longest first: one may be the beginning of another, whose
    rest would be left."""
    ways = {
        written
        for secret in secrets
        for written in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
        if secret
    }
    return iter(sorted(ways, key=lambda written: (-len(written), written)))
