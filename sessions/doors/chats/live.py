"""A turn as it happens, for one open page: server-sent events with the turn's own partial in them.

The page's permission is asked again with every read, and within seconds of any change that it hangs on, so that a
sign-out, a lost membership or a lost right ends the stream. Each read closes its database connection: an open stream
holds none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import import_module
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.http import Http404, HttpRequest
from django.middleware.csrf import get_token
from django.template.loader import render_to_string
from django.utils.html import escape

from sessions.access import rights_in
from sessions.asking.approvals.cards import show_cards
from sessions.doors.chats.queries import turn_or_404
from sessions.doors.chats.readers import Reader, open_readers
from sessions.doors.chats.stream_limits import STILL_HERE, Pulse
from sessions.models import Turn
from sessions.turns.events import Delta, watch
from toolhub.tenants.access import MemberRequest, membership_of_user
from toolhub.tenants.models import Membership, User
from toolhub.tenants.rows.connections import give_back_connection
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.times import shown_as


@dataclass
class ShownReply:
    """Text that the page shows of the reply that is being written, and the event behind which it is written."""

    event: int = 0
    text: str = ""

    def text_behind(self, event: int) -> str:
        return self.text if self.event == event else ""

    def add(self, delta: Delta) -> str:
        """Add the piece, and return the part of it that the page does not show yet."""
        if delta.event < self.event:
            return ""
        if delta.event > self.event:
            self.event, self.text = delta.event, ""
        new = delta.text[len(self.text) - delta.at :] if delta.at <= len(self.text) else ""
        self.text += new
        return new

    def draw(self, turn: Turn) -> None:
        """Have the turn's partial show no less than the page does already: hints are ahead of the row."""
        if turn.draft and turn.draft_event == self.event and len(turn.draft) < len(self.text):
            turn.draft = self.text
        self.event, self.text = turn.draft_event, turn.draft


async def watch_turn(request: MemberRequest, turn_id: UUID) -> AsyncIterator[str]:
    """Text of the event stream, until the turn has ended or the reader may read no more."""
    shown = ShownReply()
    turn, html = await _read(request, turn_id, shown)
    if turn is None:
        return
    yield server_sent("turn" if turn.is_open else "done", html)
    if not turn.is_open:
        return
    member, readers, pulse = request.membership, open_readers(), Pulse()
    events = watch(turn_id, member.organisation_id, after=turn.last_event, read=len(shown.text_behind(turn.last_event)))
    with readers.reading(Reader(member.pk, turn.session_id, login=request.session.session_key)) as reader:
        async for item in events:
            if await readers.must_ask(reader) and not await sync_to_async(_may_read)(request, turn_id):
                return
            if isinstance(item, Delta):
                if text := shown.add(item):
                    yield server_sent("delta", f"<span>{escape(text)}</span>")
            elif item is not None and item.number > turn.last_event:
                turn, html = await _read(request, turn_id, shown)
                if turn is None:
                    return
                yield server_sent("turn" if turn.is_open else "done", html)
                if not turn.is_open:
                    return
            elif pulse.is_due():
                yield STILL_HERE


def server_sent(event: str, data: str) -> str:
    """One event; data of several lines is one field a line."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {event}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


async def _read(request: MemberRequest, turn_id: UUID, shown: ShownReply) -> tuple[Turn | None, str]:
    return await sync_to_async(_turn_and_partial)(request, turn_id, shown)


def _turn_and_partial(request: MemberRequest, turn_id: UUID, shown: ShownReply) -> tuple[Turn | None, str]:
    """The turn and its partial; (None, "") where the reader may not read it (any more)."""
    try:
        with organisation_scope(request.membership.organisation_id):
            member = _member_now(request)
            turn = turn_or_404(member, turn_id)
            shown.draw(turn)
            show_cards(member, [turn])
            context = {"turn": turn, "organisation": member.organisation, "csrf_token": get_token(request)}
            context |= rights_in(member, turn.session)
            with shown_as(member.organisation):
                return turn, render_to_string("sessions/doors/chats/_turn.html", context)
    except Http404:
        return None, ""
    finally:
        give_back_connection()


def _may_read(request: MemberRequest, turn_id: UUID) -> bool:
    try:
        with organisation_scope(request.membership.organisation_id):
            turn_or_404(_member_now(request), turn_id)
            return True
    except Http404:
        return False
    finally:
        give_back_connection()


def _member_now(request: MemberRequest) -> Membership:
    """The membership as it is now, if the login session still stands. Raises Http404."""
    engine = import_module(settings.SESSION_ENGINE)
    fresh = HttpRequest()
    fresh.session = engine.SessionStore(request.session.session_key)
    user = get_user(fresh)
    member = membership_of_user(user, request.membership.organisation.slug) if isinstance(user, User) else None
    if member is None or not user.is_active:
        raise Http404("No such turn.")
    return member
