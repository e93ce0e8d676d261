"""Refusals on record: who was denied what, for want of a right. At most one entry a minute for the same of one member.

The bound is kept in this process: with several web servers or workers, each may write one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict

from django.db import DatabaseError, InterfaceError, transaction
from django.http import HttpRequest

from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.scope import organisation_scope

logger = logging.getLogger(__name__)

#: The action of the entries.
DENIED = "denied"
#: Seconds in which the same denial of the same member is written once.
WINDOW = 60.0
#: Entries that one member's denials may write in a window, whatever they are of.
MOST_A_WINDOW = 30
#: Denials that are remembered; the oldest are forgotten first.
REMEMBERED = 10_000
#: Characters of a reason that are kept.
MAX_REASON = 300


class Recent:
    """Denials that were written lately, by member and denial."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[int, str], float] = OrderedDict()
        self._counts: OrderedDict[int, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def is_due(self, member_id: int, action: str) -> bool:
        """Return whether this denial is to be written now; then it counts as written."""
        now = time.monotonic()
        with self._lock:
            if now - self._seen.get((member_id, action), -WINDOW) < WINDOW:
                return False
            began, count = self._counts.pop(member_id, (now, 0))
            if now - began >= WINDOW:
                began, count = now, 0
            self._counts[member_id] = (began, count + 1)
            if count >= MOST_A_WINDOW:
                return False
            self._seen.pop((member_id, action), None)
            self._seen[member_id, action] = now
            for known in (self._seen, self._counts):
                if len(known) > REMEMBERED:
                    known.popitem(last=False)
        return True

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()
            self._counts.clear()


recent = Recent()


def record_denial(member: Membership, action: str, reason: str, *, target: TenantModel | None = None) -> None:
    """Write down that the member was denied `action` (a tool, a page, a route), if it was not within a minute.

    Never raises for a database that is out of reach: the denial itself stands without its entry.
    """
    if not recent.is_due(member.pk, action):
        return
    after = {"what": action, "reason": reason[:MAX_REASON]}
    try:
        with organisation_scope(member.organisation_id), transaction.atomic():
            record(DENIED, target or member, actor=member, after=after)
    except (DatabaseError, InterfaceError) as error:
        logger.warning("A denial of %s could not be written down: %s", action, error)


def note_denial(request: HttpRequest, reason: str) -> None:
    """Write down that the request's member was denied it: the method and the name of the route, not its address."""
    member = getattr(request, "membership", None)
    if isinstance(member, Membership):
        match = request.resolver_match
        action = f"{request.method} {match.url_name if match else 'unknown'}"
        record_denial(member, action, reason or "You may not do this.")
