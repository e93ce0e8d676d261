"""The hash of an audit entry: SHA-256 over canonical JSON. Pure, and final: stored hashes were made by it.

Both databases give numbers back in their own spelling (PostgreSQL turns 1e16 into 10000000000000000), so a number is
hashed by its value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

FIELDS = (
    "organisation_id",
    "number",
    "actor_id",
    "actor_label",
    "action",
    "target_type",
    "target_id",
    "target_label",
    "before",
    "after",
    "request_id",
    "created_at",
    "previous_hash",
)


def entry_hash(entry: Mapping[str, Any]) -> str:
    """The hash of an entry with these FIELDS; others are left aside."""
    content = {name: _canonical(entry[name]) for name in FIELDS}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))
    if isinstance(value, dict):
        return {str(name): _canonical(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value
