"""The answer to a client's request, whatever its protocol: whole, or as a stream of events.

A stream begins with the first thing that its turn says, or after QUIET_SECONDS: a turn that ends before without an
answer has its own status, and is no stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

from django.http import HttpResponseBase, JsonResponse

from sessions.doors.chats.stream_limits import StreamSlot, as_events
from sessions.doors.gateway.errors import error_body, error_of_turn, of_turn
from sessions.doors.gateway.following import BETWEEN, Break, Followed, Outcome, Quiet, Text, follow
from sessions.models import Turn
from toolhub.tenants.later import LaterResponse
from toolhub.tenants.rows.trouble import CODE, MESSAGE, RETRY_AFTER, is_database_trouble

logger = logging.getLogger(__name__)

#: Seconds of silence behind which a stream says that it is still there; and that its first word may take before it
#: begins all the same.
QUIET_SECONDS = 15.0
KEEP_ALIVE = ": keep-alive\n\n"
REVOKED = error_body(401, "The token was revoked.", "invalid_api_key")
BROKEN = error_body(500, "Something went wrong here; it has been written down.", "server_error")

#: Text of a stream where the model began its answer anew, behind the beginning that was sent already.
BEGUN_ANEW = "\n\n(The answer begins anew.)\n\n"

Items = AsyncGenerator[Text | Break | Quiet | Outcome]


class Telling(ABC):
    """Form in which a protocol sends a turn: as the events of a stream, each as it goes out, or as one body. `model` is
    what the client called its agent."""

    def __init__(self, turn: Turn, model: str) -> None:
        self.turn, self.model = turn, model

    @abstractmethod
    def opening(self) -> Iterator[str]:
        """Yield what stands in front of all."""

    @abstractmethod
    def piece(self, text: str) -> Iterator[str]:
        """A piece of text."""

    @abstractmethod
    def ending(self, outcome: Outcome) -> Iterator[str]:
        """The end of a turn that was answered, or that waits for a person."""

    @abstractmethod
    def failure(self, error: Mapping[str, Any]) -> Iterator[str]:
        """The end of a stream that brings no answer."""

    @abstractmethod
    def body(self, outcome: Outcome, text: str) -> dict[str, Any]:
        """The whole answer, whose words are `text`."""


def answer(followed: Followed, telling: Telling, slot: StreamSlot, *, streams: bool) -> LaterResponse:
    """The response to a request whose turn is on record. The slot is given back at its end."""
    headers = {"X-Toolhub-Turn": str(followed.turn_id), "X-Toolhub-Session": str(followed.session_id)}

    async def coming() -> HttpResponseBase:
        items = follow(followed)
        try:
            if streams:
                response = await _begun(items, telling, slot)
            else:
                response = await _whole(items, telling)
        except BaseException as error:
            await items.aclose()
            slot.leave()
            if not isinstance(error, Exception):
                raise
            if is_database_trouble(error):
                logger.warning("The turn %s could not be told: %s", followed.turn_id, error)
                response = JsonResponse(error_body(503, MESSAGE, CODE), status=503)
                response["Retry-After"] = str(RETRY_AFTER)
            else:
                logger.exception("The turn %s could not be told", followed.turn_id)
                response = JsonResponse(BROKEN, status=500)
        if not response.streaming:
            await items.aclose()
            slot.leave()
        for name, value in headers.items():
            response[name] = value
        return response

    later = LaterResponse(coming)
    # A client that is gone before anything was made of it.
    weakref.finalize(later, slot.leave)
    return later


async def _whole(items: Items, telling: Telling) -> HttpResponseBase:
    texts, pieces = list[str](), list[str]()
    async for item in items:
        if isinstance(item, Text):
            pieces.append(item.text)
        elif isinstance(item, Break):
            texts += [] if item.is_void else ["".join(pieces)]
            pieces = []
        elif isinstance(item, Outcome):
            if not item.is_success:
                return error_of_turn(item.turn)
            return JsonResponse(telling.body(item, BETWEEN.join(filter(None, [*texts, "".join(pieces)]))))
    return JsonResponse(REVOKED, status=401)


async def _begun(items: Items, telling: Telling, slot: StreamSlot) -> HttpResponseBase:
    """Return a stream, as soon as there is something to say; a turn that ends without an answer before is sent
    whole."""
    following = asyncio.ensure_future(anext(items))
    deadline = time.monotonic() + QUIET_SECONDS
    try:
        while True:
            done, _ = await asyncio.wait([following], timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                break
            first = following.result()
            if not isinstance(first, Quiet):
                break
            following = asyncio.ensure_future(anext(items))
    except StopAsyncIteration:
        return JsonResponse(REVOKED, status=401)
    except BaseException:
        await _drop(following)
        raise
    if following.done() and isinstance(first, Outcome) and not first.is_success:
        return error_of_turn(first.turn)
    return as_events(_events(following, items, telling, slot))


async def _events(
    following: asyncio.Future[Text | Break | Quiet | Outcome], items: Items, telling: Telling, slot: StreamSlot
) -> AsyncIterator[str]:
    try:
        for event in telling.opening():
            yield event
        between, spoke_at = "", time.monotonic()
        while True:
            done, _ = await asyncio.wait([following], timeout=max(0.0, spoke_at + QUIET_SECONDS - time.monotonic()))
            if not done:
                yield KEEP_ALIVE
                spoke_at = time.monotonic()
                continue
            try:
                item = following.result()
            except StopAsyncIteration:
                for event in telling.failure(REVOKED):
                    yield event
                return
            if isinstance(item, Text):
                for event in telling.piece(between + item.text):
                    yield event
                between, spoke_at = "", time.monotonic()
            elif isinstance(item, Break):
                between = BEGUN_ANEW if item.is_void else BETWEEN
            elif isinstance(item, Outcome):
                for event in telling.ending(item) if item.is_success else telling.failure(of_turn(item.turn)[1]):
                    yield event
                return
            following = asyncio.ensure_future(anext(items))
    finally:
        await _drop(following)
        await items.aclose()
        slot.leave()


async def _drop(following: asyncio.Future[Any]) -> None:
    """Cancel the wait for the next item: nobody waits for it any more."""
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def event(data: Mapping[str, Any] | str, name: str = "") -> str:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"
