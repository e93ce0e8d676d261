"""Calls for a worker, and hints to open pages. All of it may be lost: the database knows everything that counts."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

import redis
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

#: The Celery tasks that run a turn, a tool by hand, the test of a connection, and the reading of an import.
TASK = "sessions.run_turn"
TRIAL_TASK = "sessions.run_trial"
CONNECTION_TASK = "sessions.test_connection"
IMPORT_TASK = "sessions.read_import"
#: The channel that says of an organisation, by its key, that its tools or its members' rights changed.
REGISTRIES = "toolhub:registries"
#: Seconds without trying, after a try that failed.
PAUSE = 5.0


@dataclass
class Breaker:
    """Stops trying for a while once a try failed, so that a dead broker costs one wait and not one a request."""

    open_until: float = 0.0
    failures: int = 0

    @property
    def is_open(self) -> bool:
        return time.monotonic() < self.open_until

    def note_failure(self, what: str, error: Exception) -> None:
        self.failures += 1
        self.open_until = time.monotonic() + PAUSE
        logger.warning("Redis is out of reach (%s: %s); turns go on through the database.", what, error)


breaker = Breaker()


def ring(turn_id: UUID) -> bool:
    """Ask a worker to look for turns. False if nobody could be asked; a sweep will find the turn.

    The message says that there is work; which turn is taken, the queue decides. Where as many messages wait as a worker
    has places, all workers are busy, and one message more would bring nobody sooner: then none is sent.
    """
    return _ring(TASK, turn_id, enough=settings.WORKER_CONCURRENCY)


def ring_for_trial(public_id: UUID) -> bool:
    """Ask a worker to take a run of a tool by hand. False if nobody could be asked."""
    return _ring(TRIAL_TASK, public_id)


def ring_for_connection_test(public_id: UUID) -> bool:
    """Ask a worker to take the test of a service or a model. False if nobody could be asked."""
    return _ring(CONNECTION_TASK, public_id)


def ring_for_import(public_id: UUID) -> bool:
    """Ask a worker to take an import of tools. False if nobody could be asked."""
    return _ring(IMPORT_TASK, public_id)


def _ring(task: str, row_id: UUID, enough: int | None = None) -> bool:
    if not settings.REDIS_URL or breaker.is_open:
        return False
    try:
        # First by our own client: where nobody answers, Celery's takes six seconds to say so.
        waiting = _publisher(settings.REDIS_URL).llen(current_app.conf.task_default_queue)
        if enough is not None and waiting >= enough:
            return True
        current_app.send_task(task, args=[str(row_id)], retry=False, ignore_result=True)
    except (redis.RedisError, OSError, OperationalError) as error:
        breaker.note_failure("ring", error)
        return False
    return True


def ring_after_commit(turn_id: UUID) -> None:
    transaction.on_commit(lambda: ring(turn_id))


def channel(turn_id: UUID) -> str:
    return f"toolhub:turn:{turn_id}"


def announce(turn_id: UUID) -> None:
    """Tell open pages that the turn has a new event."""
    _publish(channel(turn_id), "")


def announce_registry(organisation_id: int) -> None:
    """Tell web servers that what this organisation's members may call has changed."""
    _publish(REGISTRIES, str(organisation_id))


def announce_text(turn_id: UUID, event: int, at: int, text: str) -> None:
    """Tell open pages a piece of the reply that is written behind this event, and the character that it begins at."""
    _publish(channel(turn_id), json.dumps([event, at, text]))


def _publish(name: str, message: str) -> None:
    if not settings.REDIS_URL or breaker.is_open:
        return
    try:
        _publisher(settings.REDIS_URL).publish(name, message)
    except (redis.RedisError, OSError) as error:
        breaker.note_failure("publish", error)


@lru_cache(maxsize=4)
def _publisher(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)
