"""A turn's events as they happen, in order, and the text that is being written between them.

Text has two sources: the turn's row, which is half a second behind, and the broker's pieces, any of which may be lost.
Both say behind which event a text is written and at which character it begins; `_Text` makes one text of them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async

from sessions.models import OPEN_STATUSES, Step, Turn, TurnEvent
from sessions.turns.listener import Delta, State, listener
from toolhub.tenants.rows.connections import give_back_connection
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.rows.statements import Select, param

__all__ = ["Delta", "Event", "read_events", "watch"]

#: Seconds between two looks at the database while a piece of text is missing.
LOOK_SOON = 0.2
EVENTS_AT_ONCE = 200


@dataclass(frozen=True)
class Event:
    """A stored event. Numbers count from 1 without gaps; a reader goes on after the last one it saw."""

    number: int
    type: str
    payload: dict[str, Any]


@dataclass
class _Text:
    """The text behind one event, as far as a reader has it, and a piece that came before what stands in front of it."""

    event: int
    length: int = 0
    ahead: Delta | None = None

    def next(self, piece: Delta) -> Delta | None:
        """Return the part of this piece, and of the one that waits, that goes on where the reader stands; None for
        nothing."""
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
    """Events after number `after`, pieces of text, and None every few seconds while nothing happens.

    `read` is how many characters the reader has of the text behind event `after`. What comes is without gaps and
    without repetitions; with `whole`, the rest of a reply's text also comes before the event that says it is stored.
    Ends behind the turn's last event. Holds no thread and no database connection between two looks.
    """
    text = _Text(after, read)
    looked_at, is_behind = 0.0, True
    async with listener().watching(turn_id) as watcher:
        while True:
            await watcher.wait(LOOK_SOON if is_behind else None)
            before, is_behind = (after, text.length), not looked_at
            while watcher.pieces:
                piece = watcher.pieces.popleft()
                if piece.event > after:  # behind an event that the reader has not seen: the next look has both
                    is_behind = True
                elif delta := text.next(piece):
                    yield delta
            is_behind = is_behind or text.ahead is not None
            if watcher.must_look or (is_behind and time.monotonic() - looked_at >= LOOK_SOON):
                watcher.must_look, is_behind, looked_at = False, False, time.monotonic()
                while True:
                    look = await read_events(turn_id, organisation_id, after)
                    watcher.state = look.state
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
                is_behind = text.ahead is not None
            if (after, text.length) == before:
                yield None


@dataclass(frozen=True)
class Look:
    """The next events, what is written of a reply, whether the events are the last there will ever be, and how far
    the turn was."""

    events: list[Event]
    draft: Delta
    is_over: bool
    state: State = None


_STATE = Select(
    lambda: Turn.objects.filter(pk=param(Turn, "id", "turn")).values_list(
        "status", "last_event", "draft_event", "draft"
    )
)
_EVENTS = Select(
    lambda: (
        TurnEvent.objects.filter(turn=param(Turn, "id", "turn"), number__gt=param(TurnEvent, "number", "after"))
        .order_by("number")
        .values_list("number", "type", "payload")[:EVENTS_AT_ONCE]
    )
)
_TEXT = Select(
    lambda: Step.objects.filter(turn=param(Turn, "id", "turn"), index=param(Step, "index")).values_list("text")
)


@sync_to_async
def read_events(turn_id: UUID, organisation_id: int, after: int) -> Look:
    """One look at a turn. Two queries. The row is read first: what it says is written is not behind later events."""
    try:
        with organisation_scope(organisation_id):
            found = _STATE.rows(turn=turn_id)
            if not found:
                return Look([], Delta(0, 0, ""), is_over=True)
            ((status, last, draft_event, text),) = found
            events = [Event(*row) for row in _EVENTS.rows(turn=turn_id, after=after)]
    finally:
        give_back_connection()
    reached = events[-1].number if events else after
    draft = Delta(draft_event if text else 0, 0, text)
    is_over = status not in OPEN_STATUSES and reached >= last
    return Look(events, draft, is_over, (status, last, draft_event, len(text)))


async def _rest(turn_id: UUID, organisation_id: int, event: Event, text: _Text) -> Delta | None:
    """Return the part that the reader lacks of a reply that this event says is stored; None for nothing."""
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
            return "".join(text for (text,) in _TEXT.rows(turn=turn_id, index=index))
    finally:
        give_back_connection()
