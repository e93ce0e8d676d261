"""Pages that were read, kept for a while in the cache: each organisation's by themselves, and only so many.

An organisation has a fixed number of slots, and a page goes into the slot that its address hashes to: a new one takes
the place of what is there. So nothing that anybody fetches makes the cache grow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from django.core.cache import cache

from capabilities.contract.wire import canonical_json

logger = logging.getLogger(__name__)

#: Pages of one organisation. One takes at most 50,000 characters of text.
SLOTS = 200


def kept_page(organisation_id: int, asked: Mapping[str, Any], seconds: int) -> tuple[dict[str, Any], int] | None:
    """The page that was kept for what is `asked`, if it is not older than these seconds, and its age in seconds."""
    if seconds <= 0:
        return None
    kept = _get(_slot(organisation_id, asked))
    if not isinstance(kept, dict) or kept.get("asked") != canonical_json(asked):
        return None
    age = time.time() - kept["at"]
    return (kept["page"], int(age)) if 0 <= age <= seconds else None


def keep_page(organisation_id: int, asked: Mapping[str, Any], page: Mapping[str, Any], seconds: int) -> None:
    """Keep the page for these seconds, in the place of what its slot holds."""
    if seconds > 0:
        entry = {"asked": canonical_json(asked), "at": time.time(), "page": dict(page)}
        try:
            cache.set(_slot(organisation_id, asked), entry, seconds)
        except Exception:  # a cache that is away costs a second fetch, and no answer
            logger.warning("A page could not be kept in the cache", exc_info=True)


def _get(key: str) -> Any:
    try:
        return cache.get(key)
    except Exception:
        logger.warning("The cache could not be read", exc_info=True)
        return None


def _slot(organisation_id: int, asked: Mapping[str, Any]) -> str:
    number = int(sha256(canonical_json(asked).encode()).hexdigest()[:8], 16) % SLOTS
    return f"page:{organisation_id}:{number}"
