"""Calls that may be lost: with a broker, without one, and with one that died or hangs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery

from sessions.turns import bell
from tests.valkey import Valkey, valkey
from toolhub.environment import celery_broker_url

__all__ = ["valkey"]


@pytest.fixture(autouse=True)
def closed_breaker(monkeypatch: pytest.MonkeyPatch) -> bell.Breaker:
    breaker = bell.Breaker()
    monkeypatch.setattr(bell, "breaker", breaker)
    return breaker


@pytest.fixture
def broker(valkey: Valkey, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Valkey]:
    """The broker that a Celery application like ours calls."""
    app = Celery("bell", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    app.conf.update(broker_url=celery_broker_url(valkey.url))
    monkeypatch.setattr(bell, "current_app", app)
    settings.REDIS_URL = valkey.url
    yield valkey
    app.close()
    bell._publisher(valkey.url).close()
    bell._publisher.cache_clear()


def queued(server: Valkey) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.llen("celery"))


def timed_ring() -> tuple[bool, float]:
    begun = time.monotonic()
    return bell.ring(uuid4()), time.monotonic() - begun


def test_a_ring_puts_a_message_with_the_turns_id_in_the_queue(broker: Valkey) -> None:
    assert bell.ring(uuid4())
    assert queued(broker) == 1


def test_where_as_many_messages_wait_as_a_worker_has_places_no_more_are_sent(broker: Valkey, settings: Any) -> None:
    settings.WORKER_CONCURRENCY = 5

    assert all(bell.ring(uuid4()) for _ in range(30))

    assert queued(broker) == 5
    assert bell.ring_for_trial(uuid4())
    assert queued(broker) == 6


def test_without_a_broker_nobody_can_be_rung_for(settings: Any, closed_breaker: bell.Breaker) -> None:
    settings.REDIS_URL = ""

    assert not bell.ring(uuid4())
    bell.announce_text(uuid4(), 2, 0, "hello")
    assert closed_breaker.failures == 0


def test_a_dead_broker_costs_no_time_and_opens_the_breaker(broker: Valkey, closed_breaker: bell.Breaker) -> None:
    assert bell.ring(uuid4())
    broker.kill()

    rang, took = timed_ring()

    assert not rang
    assert took < 2
    assert (closed_breaker.failures, closed_breaker.is_open) == (1, True)
    for _ in range(3):
        assert not bell.ring(uuid4())
        bell.announce(uuid4())
    assert closed_breaker.failures == 1


def test_a_broker_that_hangs_costs_about_a_second_once(broker: Valkey, closed_breaker: bell.Breaker) -> None:
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)

    rang, took = timed_ring()
    again, took_again = timed_ring()

    broker.process.send_signal(signal.SIGCONT)
    assert (rang, again) == (False, False)
    assert took < 3
    assert took_again < 0.1


def test_after_the_pause_the_broker_is_tried_again(broker: Valkey, closed_breaker: bell.Breaker) -> None:
    broker.kill()
    assert not bell.ring(uuid4())
    broker.start()

    closed_breaker.open_until = 0.0

    assert bell.ring(uuid4())
    assert queued(broker) == 1


def test_a_piece_of_text_reaches_who_listens(broker: Valkey) -> None:
    turn_id = uuid4()
    with redis.Redis.from_url(broker.url) as client, client.pubsub() as listener:
        listener.subscribe(bell.channel(turn_id))
        assert listener.get_message(timeout=2) is not None

        bell.announce_text(turn_id, 2, 7, "né")

        message = listener.get_message(timeout=2)
    assert message is not None
    assert message["data"] == b'[2, 7, "n\\u00e9"]'
