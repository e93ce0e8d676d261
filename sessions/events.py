"""A turn's events as they happen: the stored ones in order, and hints of text that is being written."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import redis
import redis.asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection

from sessions.bell import channel
from sessions.models import Turn, TurnEvent
from toolhub.tenants.scope import organisation_scope

#: Seconds between two looks at the database, when no hint comes.
LOOK_EVERY = 1.0
EVENTS_AT_ONCE = 200


@dataclass(frozen=True)
class Event:
    """A stored event. Numbers count from 1 without gaps; a reader goes on after the last one it saw."""

    number: int
    type: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class Delta:
    """A piece of the answer that is being written: a hint, which may be lost. The stored text is what counts."""

    text: str


async def watch(turn_id: UUID, organisation_id: int, *, after: int = 0) -> AsyncIterator[Event | Delta | None]:
    """Events after number `after`, pieces of text, and None about once a second while nothing happens.

    Ends behind the turn's last event. Holds no database connection between two looks.
    """
    async with aclosing(_hints(turn_id)) as hints:
        looked_at = 0.0
        async for hint in hints:
            if hint:
                yield Delta(hint)
                if time.monotonic() - looked_at < LOOK_EVERY:
                    continue
            looked_at, before = time.monotonic(), after
            while True:
                events, is_over = await read_events(turn_id, organisation_id, after)
                for event in events:
                    yield event
                    after = event.number
                if is_over:
                    return
                if len(events) < EVENTS_AT_ONCE:
                    break
            if after == before:
                yield None


@sync_to_async
def read_events(turn_id: UUID, organisation_id: int, after: int) -> tuple[list[Event], bool]:
    """The next events, and whether they are the last there will ever be. Two queries."""
    try:
        with organisation_scope(organisation_id):
            turn = Turn.objects.filter(pk=turn_id).only("status", "last_event", "organisation_id").first()
            if turn is None:
                return [], True
            rows = TurnEvent.objects.filter(turn=turn_id, number__gt=after).order_by("number")[:EVENTS_AT_ONCE]
            events = [Event(row.number, row.type, row.payload) for row in rows]
    finally:
        if not connection.in_atomic_block:
            connection.close()
    reached = events[-1].number if events else after
    return events, not turn.is_open and reached >= turn.last_event


async def _hints(turn_id: UUID) -> AsyncGenerator[str]:
    """An empty string whenever it is time to look, a piece of text where one came. Never ends by itself."""
    yield ""
    if settings.REDIS_URL:
        with suppress(redis.RedisError, OSError):
            async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as client, client.pubsub() as pubsub:
                await pubsub.subscribe(channel(turn_id))
                yield ""  # what happened between the first look and the subscription
                while True:
                    message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=LOOK_EVERY)
                    data = message["data"] if message else b""
                    yield json.loads(data) if data else ""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        yield ""
