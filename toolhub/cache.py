"""Cache that holds JSON: whoever can write to Valkey must not be able to run code here, as with pickle.

The limits of tries to sign in live in it. They go on in this process while Valkey is away: nobody is kept from signing
in, and nobody may try without end.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: How the keys of what must be counted in any case begin: the tries to sign in, and the codes that were used.
COUNTED = "allauth"
#: Such keys that this process keeps; above them the ones used least lately go.
MOST_KEPT = 50_000
#: Seconds for which Valkey is not asked again after it could not be reached.
PAUSE = 5.0


class JSONSerializer:
    """Numbers, texts, lists and objects of them. A whole number stays one, so that Valkey can count with it."""

    def dumps(self, value: Any) -> int | bytes:
        """Raises TypeError for what is no JSON."""
        return value if type(value) is int else json.dumps(value, allow_nan=False).encode()

    def loads(self, data: bytes) -> Any:
        """Raises ValueError for what is no JSON."""
        return json.loads(data)


class CountingCache(RedisCache):
    """Django's cache in Valkey, which keeps what is counted in this process too, and answers from that while Valkey is
    away. For all other keys it raises as ever."""

    #: Moment of time.monotonic() at which Valkey may be asked again, for all threads.
    away_until = 0.0

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._own = LocMemCache("counted", {"OPTIONS": {"MAX_ENTRIES": MOST_KEPT}})

    def add(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        if not key.startswith(COUNTED):
            return super().add(key, value, timeout, version)
        is_new = self._own.add(key, value, timeout, version)
        return bool(self._shared(lambda: super(CountingCache, self).add(key, value, timeout, version), is_new))

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        if not key.startswith(COUNTED):
            return super().get(key, default, version)
        own = self._own.get(key, default, version)
        return self._shared(lambda: super(CountingCache, self).get(key, default, version), own)

    def set(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        if not key.startswith(COUNTED):
            return super().set(key, value, timeout, version)
        self._own.set(key, value, timeout, version)
        return self._shared(lambda: super(CountingCache, self).set(key, value, timeout, version), None)

    def delete(self, key: str, version: int | None = None) -> bool:
        if not key.startswith(COUNTED):
            return super().delete(key, version)
        was_there = self._own.delete(key, version)
        return bool(self._shared(lambda: super(CountingCache, self).delete(key, version), was_there))

    def clear(self) -> None:
        self._own.clear()
        super().clear()

    def _shared(self, ask: Callable[[], T], own: T) -> T:
        """Return the answer of Valkey; while it is away, `own`, which is that of this process."""
        if time.monotonic() < CountingCache.away_until:
            return own
        try:
            return ask()
        except redis.RedisError as error:
            CountingCache.away_until = time.monotonic() + PAUSE
            logger.warning("Valkey is away, so tries to sign in are counted by this process alone: %s", error)
            return own
