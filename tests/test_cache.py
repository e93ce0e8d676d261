"""The cache holds JSON: whoever writes to Valkey runs no code here."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import CacheHandler

from tests.valkey import Valkey, valkey
from toolhub import settings as real

__all__ = ["valkey"]


class Bomb:
    """Unpickling it would make the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def cache_of(valkey: Valkey) -> Any:
    options = {"serializer": "toolhub.cache.JSONSerializer"}
    backend = "django.core.cache.backends.redis.RedisCache"
    place = {"BACKEND": backend, "LOCATION": valkey.url, "OPTIONS": options, "KEY_PREFIX": "json"}
    return CacheHandler({"default": place})["default"]


def test_what_allauth_keeps_comes_back(valkey: Valkey) -> None:
    cache = cache_of(valkey)

    for value in ([1763809793.25, 1.5], True, "y", 7, None, {"a": [1]}):
        cache.set("key", value)
        assert cache.get("key") == value
    cache.set("count", 1)
    assert cache.incr("count") == 2


def test_pickle_that_somebody_put_there_is_not_run(valkey: Valkey, tmp_path: Path) -> None:
    cache = cache_of(valkey)
    cache.set("key", "y")
    with redis.Redis.from_url(valkey.url) as client:
        (key,) = client.keys("json*")
        client.set(key, pickle.dumps(Bomb(tmp_path / "made")))

    with pytest.raises(ValueError, match="codec"):
        cache.get("key")

    assert not (tmp_path / "made").exists()


def test_the_service_is_set_so(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(real.__file__).read_text()

    assert '"serializer": "toolhub.cache.JSONSerializer"' in text
    assert "pickle" not in str(real.CACHES)
