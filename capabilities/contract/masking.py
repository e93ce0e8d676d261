"""Secrets taken out of what is kept and shown of a call, as they are or as JSON writes them: a far side may send one
back, and a model may write one among the arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolhub.bounded_json import load_json

MASK = "••••"
#: Characters of a secret from which on its beginning is masked at the end of a text that was cut.
SHORTEST_BEGINNING = 4


def masked_in(text: str, secrets: Iterable[str]) -> str:
    """The text without these secrets."""
    for written in _written(secrets):
        text = text.replace(written, MASK)
    return text


def masked_cut(text: str, secrets: Iterable[str]) -> str:
    """Text that was cut at its end, without these secrets, and without the beginning of one at its end."""
    secrets = tuple(secrets)
    text = masked_in(text, secrets)
    begun = (written[:size] for written in _written(secrets) for size in range(SHORTEST_BEGINNING, len(written)))
    longest = max((len(each) for each in begun if text.endswith(each)), default=0)
    return text[: len(text) - longest] + MASK if longest else text


def masked_bytes(content: bytes, secrets: Iterable[str]) -> bytes:
    """Return the content of a file with every secret masked."""
    for written in _written(secrets):
        content = content.replace(written.encode(), MASK.encode())
    return content


def masked_value(value: Any, secrets: Iterable[str]) -> Any:
    """A JSON value without these secrets in any of its text and numbers."""
    secrets = tuple(secrets)
    if isinstance(value, str):
        return masked_in(value, secrets)
    if isinstance(value, list):
        return [masked_value(each, secrets) for each in value]
    if isinstance(value, Mapping):
        return {masked_value(key, secrets): masked_value(each, secrets) for key, each in value.items()}
    if isinstance(value, int | float):
        masked = masked_in(text := json.dumps(value), secrets)
        return value if masked == text else masked
    return value


def masked_json(text: str, secrets: Iterable[str]) -> str:
    """Text of one JSON value without these secrets, which stays JSON; byte for byte as it is, where none is in it. Text
    that is no JSON is masked as text."""
    secrets = tuple(secrets)
    if not any(secrets):
        return text
    try:
        value = load_json(text)
        masked = masked_value(value, secrets)
    except (ValueError, RecursionError):
        return masked_in(text, secrets)
    if masked == value and masked_in(text, secrets) == text:
        return text
    return json.dumps(masked, ensure_ascii=False)


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
