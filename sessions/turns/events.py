"""A turn's events as they happen, in order, and the text that is being written between them.

Text has two sources: the turn's row, which is half a second behind, and the broker's hints, any of which may be lost.
Both say behind which event a text is written and at which character it begins; `_Text` makes one text of them.
"""

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

from sessions.models import Step, Turn, TurnEvent
from sessions.turns.bell import channel
from toolhub.tenants.scope import organisation_scope

#: Seconds between two looks at the database, when no hint comes.
LOOK_EVERY = 1.0
#: The same while a piece of text is missing.
LOOK_SOON = 0.2
EVENTS_AT_ONCE = 200


@dataclass(frozen=True)
class Event:
    """A stored event. Numbers count from 1 without gaps; a reader goes on after the last one it saw."""

    number: int
    type: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class Delta:
    """A piece of the reply that is written behind event number `event`, from its character `at` on."""

    event: int
    at: int
    text: str

    @property
    def end(self) -> int:
        return self.at + len(self.text)


@dataclass
class _Text:
    """The text behind one event, as far as a reader has it, and a piece that came before what stands in front of it."""

    event: int
    length: int = 0
    ahead: Delta | None = None

    def next(self, piece: Delta) -> Delta | None:
        """What of this piece, and of the one that waits, goes on where the reader stands."""
        if piece.event < self.event:
            return None
        if piece.event > self.event:
            self.event, self.length, self.ahead = piece.event, 0, None
        if piece.at > self.length:
            if self.ahead is not None and self.ahead.end == piece.at:
                piece = Delta(piece.event, self.ahead.at, self.ahead.text + piece.text)
            self.ahead = piece
            return None
        begins, text = self.length, piece.text[self.length - piece.at :]
        if self.ahead is not None and self.ahead.at <= begins + len(text):
            text += self.ahead.text[begins + len(text) - self.ahead.at :]
            self.ahead = None
        self.length += len(text)
        return Delta(self.event, begins, text) if text else None


async def watch(
    turn_id: UUID, organisation_id: int, *, after: int = 0, read: int = 0, whole: bool = False
) -> AsyncIterator[Event | Delta | None]:
    """Events after number `after`, pieces of text, and None about once a second while nothing happens.

    `read` is how many characters the reader has of the text behind event `after`. What comes is without gaps and
    without repetitions; with `whole`, the rest of a reply's text also comes before the event that says it is stored.
    Ends behind the turn's last event. Holds no database connection between two looks.
    """
    text = _Text(after, read)
    async with aclosing(_hints(turn_id)) as hints:
        looked_at = 0.0
        async for hint in hints:
            if hint is not None:
                # A piece that is written behind an event which the reader has not seen waits for the next look.
                if hint.event <= after and (delta := text.next(hint)):
                    yield delta
                wait = LOOK_SOON if hint.event > after or text.ahead else LOOK_EVERY
                if time.monotonic() - looked_at < wait:
                    continue
            looked_at, before = time.monotonic(), (after, text.length)
            while True:
                look = await read_events(turn_id, organisation_id, after)
                for event in look.events:
                    if look.draft.event < event.number and (delta := text.next(look.draft)):
                        yield delta
                    if whole and (delta := await _rest(turn_id, organisation_id, event, text)):
                        yield delta
                    yield event
                    after = event.number
                if look.draft.event <= after and (delta := text.next(look.draft)):
                    yield delta
                if look.is_over:
                    return
                if len(look.events) < EVENTS_AT_ONCE:
                    break
            if (after, text.length) == before:
                yield None


@dataclass(frozen=True)
class Look:
    """The next events, what is written of a reply, and whether the events are the last there will ever be."""

    events: list[Event]
    draft: Delta
    is_over: bool


@sync_to_async
def read_events(turn_id: UUID, organisation_id: int, after: int) -> Look:
    """One look at a turn. Two queries. The row is read first: what it says is written is not behind later events."""
    try:
        with organisation_scope(organisation_id):
            wanted = ("status", "last_event", "draft", "draft_event", "organisation_id")
            turn = Turn.objects.filter(pk=turn_id).only(*wanted).first()
            if turn is None:
                return Look([], Delta(0, 0, ""), is_over=True)
            rows = TurnEvent.objects.filter(turn=turn_id, number__gt=after).order_by("number")[:EVENTS_AT_ONCE]
            events = [Event(row.number, row.type, row.payload) for row in rows]
    finally:
        if not connection.in_atomic_block:
            connection.close()
    reached = events[-1].number if events else after
    draft = Delta(turn.draft_event if turn.draft else 0, 0, turn.draft)
    return Look(events, draft, is_over=not turn.is_open and reached >= turn.last_event)


async def _rest(turn_id: UUID, organisation_id: int, event: Event, text: _Text) -> Delta | None:
    """What the reader lacks of a reply that this event says is stored."""
    chars = event.payload.get("chars", 0) if event.type == "model" else 0
    known = text.length if text.event == event.number - 1 else 0
    if chars <= known:
        return None
    stored = await _step_text(turn_id, organisation_id, event.payload["step"])
    return text.next(Delta(event.number - 1, 0, stored))


@sync_to_async
def _step_text(turn_id: UUID, organisation_id: int, index: int) -> str:
    try:
        with organisation_scope(organisation_id):
            return Step.objects.filter(turn=turn_id, index=index).values_list("text", flat=True).first() or ""
    finally:
        if not connection.in_atomic_block:
            connection.close()


def _hint(data: bytes) -> Delta | None:
    """What a message tells; one of another version of ours tells only that it is time to look."""
    match json.loads(data) if data else None:
        case [int(event), int(at), str(text)]:
            return Delta(event, at, text)
    return None


async def _hints(turn_id: UUID) -> AsyncGenerator[Delta | None]:
    """None whenever it is time to look, a piece of text where one came. Never ends by itself."""
    yield None
    if settings.REDIS_URL:
        with suppress(redis.RedisError, OSError):
            async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as client, client.pubsub() as pubsub:
                await pubsub.subscribe(channel(turn_id))
                yield None  # what happened between the first look and the subscription
                while True:
                    message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=LOOK_EVERY)
                    yield _hint(message["data"] if message else b"")
    while True:
        await asyncio.sleep(LOOK_EVERY)
        yield None
