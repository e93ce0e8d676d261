"""A turn as it happens, for one open page: server-sent events with the turn's own partial in them.

The page's permission is asked again with every read and every few seconds, so that a sign-out, a lost membership or a
lost right ends the stream. Each read closes its database connection: an open stream holds none.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from importlib import import_module
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import connections
from django.http import Http404, HttpRequest
from django.template.loader import render_to_string
from django.utils.html import escape

from sessions.chats import may_write
from sessions.events import Delta, watch
from sessions.models import Turn
from sessions.queries import turn_or_404
from toolhub.tenants.access import MemberRequest, membership_of_user
from toolhub.tenants.models import Membership, User
from toolhub.tenants.scope import organisation_scope

#: Seconds between two looks at whether the reader may still read, where nothing happens.
CHECK_EVERY = 3.0


async def watch_turn(request: MemberRequest, turn_id: UUID) -> AsyncIterator[str]:
    """Text of the event stream, until the turn has ended or the reader may read no more."""
    turn, html = await _read(request, turn_id)
    checked = time.monotonic()
    if turn is None:
        return
    yield server_sent("turn" if turn.is_open else "done", html)
    if not turn.is_open:
        return
    async for item in watch(turn_id, request.membership.organisation_id, after=turn.last_event):
        if isinstance(item, Delta):
            yield server_sent("delta", f"<span>{escape(item.text)}</span>")
        elif item is not None and item.number > turn.last_event:
            turn, html = await _read(request, turn_id)
            checked = time.monotonic()
            if turn is None:
                return
            yield server_sent("turn" if turn.is_open else "done", html)
            if not turn.is_open:
                return
        else:
            yield ": still here\n\n"
        if time.monotonic() - checked > CHECK_EVERY:
            checked = time.monotonic()
            if not await sync_to_async(_may_read)(request, turn_id):
                return


def server_sent(event: str, data: str) -> str:
    """One event; data of several lines is one field a line."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {event}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


async def _read(request: MemberRequest, turn_id: UUID) -> tuple[Turn | None, str]:
    return await sync_to_async(_turn_and_partial)(request, turn_id)


def _turn_and_partial(request: MemberRequest, turn_id: UUID) -> tuple[Turn | None, str]:
    """The turn and its partial; (None, "") where the reader may not read it (any more)."""
    try:
        with organisation_scope(request.membership.organisation_id):
            member = _member_now(request)
            turn = turn_or_404(member, turn_id)
            may = may_write(member, turn.session)
            context = {"turn": turn, "organisation": member.organisation, "may_write": may}
            return turn, render_to_string("sessions/_turn.html", context)
    except Http404:
        return None, ""
    finally:
        _let_go()


def _may_read(request: MemberRequest, turn_id: UUID) -> bool:
    try:
        with organisation_scope(request.membership.organisation_id):
            turn_or_404(_member_now(request), turn_id)
            return True
    except Http404:
        return False
    finally:
        _let_go()


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


def _let_go() -> None:
    """Close this thread's connections, unless somebody's transaction (a test's) is open on them."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
