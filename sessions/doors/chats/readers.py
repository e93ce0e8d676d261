"""Permission of the readers of open streams to go on reading: every few seconds one look at what it hangs on, for all
of them.

The look reads rows and decides nothing: a reader whose rows are as they were may read as before; one whose rows changed
is asked for again by its stream, with the function that lets it read in the first place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from uuid import UUID
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session
from django.utils import timezone

from sessions.models import ChatSession
from toolhub.tenants.models import AdminRight, ApiToken, Membership
from toolhub.tenants.rows.connections import give_back_connection
from toolhub.tenants.rows.scope import system_scope

#: Seconds between two looks.
CHECK_EVERY = 2.0
#: Seconds after which a reader is asked for again although nothing changed.
ASK_AGAIN = 300.0


@dataclass(eq=False)
class Reader:
    """Reader of a stream of a session's turn: a member, with a login session or a token. Made when it was let in."""

    membership_id: int
    session_id: UUID
    login: str | None = None
    token_id: int | None = None
    #: State of its rows when it was last asked for, and the moment of that.
    rows: int | None = None
    asked_at: float = 0.0
    began_at: float = field(default_factory=time.monotonic)


class Readers:
    """The readers of one event loop."""

    def __init__(self) -> None:
        self.open: set[Reader] = set()
        self.rows: dict[Reader, int] = {}
        self.looked_at = 0.0
        self.looking: asyncio.Task[None] | None = None

    @contextmanager
    def reading(self, reader: Reader) -> Iterator[Reader]:
        self.open.add(reader)
        try:
            yield reader
        finally:
            self.open.discard(reader)
            self.rows.pop(reader, None)

    async def must_ask(self, reader: Reader) -> bool:
        """Return whether to ask for this reader's permission again: True once for each change, and soon after it began.
        No look is made for one that was let in a moment ago."""
        if time.monotonic() - max(self.looked_at, reader.began_at) > CHECK_EVERY:
            if self.looking is None:
                # In a context of its own: others wait for it when the request that began it is over.
                self.looking = asyncio.create_task(self._look(), context=Context())
            await asyncio.shield(self.looking)
        rows, now = self.rows.get(reader), time.monotonic()
        if rows is None or (rows == reader.rows and now - reader.asked_at < ASK_AGAIN):
            return False
        reader.rows, reader.asked_at = rows, now
        return True

    async def _look(self) -> None:
        readers = list(self.open)
        try:
            found = await sync_to_async(rows_of)(readers)
        finally:
            self.looking = None
        self.rows = {reader: rows for reader, rows in zip(readers, found, strict=True) if reader in self.open}
        self.looked_at = time.monotonic()


def rows_of(readers: Iterable[Reader]) -> list[int]:
    """Return for each reader a number that changes with its login or token, membership, rights and session. Five
    queries."""
    readers = list(readers)
    members = {reader.membership_id for reader in readers}
    try:
        with system_scope():
            logins = dict(
                Session.objects.filter(
                    session_key__in={reader.login for reader in readers if reader.login}, expire_date__gt=timezone.now()
                ).values_list("session_key", "session_data")
            )
            tokens = {
                row[0]: (*row[1:3], row[3] is not None and row[3] <= timezone.now())
                for row in ApiToken.objects.filter(
                    pk__in={reader.token_id for reader in readers if reader.token_id}
                ).values_list("pk", "revoked_at", "scopes", "expires_at")
            }
            memberships = {
                row[0]: row[1:]
                for row in Membership.objects.filter(pk__in=members).values_list(
                    "pk", "ended_at", "access", "user__is_active", "user__password", "organisation__slug"
                )
            }
            rights: dict[int, list[tuple[str, str]]] = {}
            held = AdminRight.objects.filter(membership__in=members).order_by("membership", "right", "category")
            for member, right, category in held.values_list("membership_id", "right", "category"):
                rights.setdefault(member, []).append((right, category))
            sessions = {
                row[0]: row[1:]
                for row in ChatSession.objects.filter(pk__in={reader.session_id for reader in readers}).values_list(
                    "pk", "membership_id", "deleted_at"
                )
            }
    finally:
        give_back_connection()
    return [
        hash(
            repr(
                (
                    logins.get(reader.login or ""),
                    tokens.get(reader.token_id or 0),
                    memberships.get(reader.membership_id),
                    rights.get(reader.membership_id),
                    sessions.get(reader.session_id),
                )
            )
        )
        for reader in readers
    ]


_readers: WeakKeyDictionary[asyncio.AbstractEventLoop, Readers] = WeakKeyDictionary()


def open_readers() -> Readers:
    """Return the readers of the running event loop."""
    return _readers.setdefault(asyncio.get_running_loop(), Readers())
