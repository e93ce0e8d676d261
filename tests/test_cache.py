"""The cache holds JSON: whoever writes to Valkey runs no code here."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import CacheHandler
from django.core.cache.backends.locmem import LocMemCache
from django.test import Client

from tests.cast import PASSWORD
from tests.valkey import Valkey, valkey
from toolhub import settings as real
from toolhub.cache import CountingCache
from toolhub.tenants.models import Membership

__all__ = ["valkey"]


class Bomb:
    """Unpickling it would make the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def cache_of(valkey: Valkey) -> Any:
    options = {"serializer": "toolhub.cache.JSONSerializer"}
    backend = "toolhub.cache.CountingCache"
    place = {"BACKEND": backend, "LOCATION": valkey.url, "OPTIONS": options, "KEY_PREFIX": "json"}
    return CacheHandler({"default": place})["default"]


def test_values_that_allauth_caches_are_read_back(valkey: Valkey) -> None:
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


# -- While Valkey is away --------------------------------------------------------------------------------------------

LOGIN = "/accounts/login/"
AWAY = {
    "default": {
        "BACKEND": "toolhub.cache.CountingCache",
        "LOCATION": "redis://127.0.0.1:1",
        "OPTIONS": {"serializer": "toolhub.cache.JSONSerializer"},
    }
}


@pytest.fixture
def counted() -> Iterator[None]:
    """Nothing is counted yet, and Valkey was not missed yet."""
    LocMemCache("counted", {}).clear()
    CountingCache.away_until = 0.0
    yield
    LocMemCache("counted", {}).clear()
    CountingCache.away_until = 0.0


@pytest.mark.django_db
@pytest.mark.usefixtures("counted")
def test_somebody_signs_in_while_valkey_is_away(client: Client, bob: Membership, settings: Any) -> None:
    settings.CACHES = AWAY

    answer = client.post(LOGIN, {"login": "bob@example.com", "password": PASSWORD})

    assert (answer.status_code, answer["Location"]) == (302, "/")


@pytest.mark.django_db
@pytest.mark.usefixtures("counted")
def test_tries_to_sign_in_are_counted_while_valkey_is_away(client: Client, bob: Membership, settings: Any) -> None:
    settings.CACHES = AWAY
    for _ in range(5):
        client.post(LOGIN, {"login": "bob@example.com", "password": "wrong"})

    answer = client.post(LOGIN, {"login": "bob@example.com", "password": PASSWORD})

    assert b"Too many failed login attempts" in answer.content


@pytest.mark.usefixtures("counted")
def test_what_was_counted_before_valkey_went_away_still_counts(valkey: Valkey) -> None:
    cache = cache_of(valkey)
    cache.set("allauth:rl:account:login:1", [2.0, 1.0])
    assert cache.add("allauth.mfa.totp.used?user=1&code=123456", "y") is True

    valkey.kill()

    assert cache.get("allauth:rl:account:login:1") == [2.0, 1.0]
    assert cache.add("allauth.mfa.totp.used?user=1&code=123456", "y") is False
    with pytest.raises(redis.RedisError):
        cache.get("pages:1")


@pytest.mark.usefixtures("counted")
def test_what_another_process_counted_is_what_counts(valkey: Valkey) -> None:
    cache = cache_of(valkey)
    cache.set("allauth:rl:account:login:1", [1.0])
    redis.Redis.from_url(valkey.url).set(cache.make_key("allauth:rl:account:login:1"), b"[3.0, 2.0, 1.0]")

    assert cache.get("allauth:rl:account:login:1") == [3.0, 2.0, 1.0]
    assert cache.delete("allauth:rl:account:login:1") is True
    assert cache.get("allauth:rl:account:login:1", []) == []
