"""The calendar feed: a secret address that needs no login. The secret alone says whose calendar is read there."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from capabilities.assistant.models import CalendarEvent, CalendarFeed
from capabilities.assistant.records.calendar_feed import BEHIND, feed_text
from toolhub.tenants.rows.scope import organisation_scope, system_scope

#: Bytes of a secret; and characters of one that is looked up at all.
SECRET_BYTES = 32
MAX_SECRET = 64
#: Events that one feed holds, the latest first.
EVENTS = 5_000


@require_safe
def calendar_feed(request: HttpRequest, secret: str) -> HttpResponse:
    """Send the calendar of the member whose secret this is. Raises Http404 for any other secret."""
    feed = feed_by_secret(secret)
    if feed is None:
        raise Http404("No such page.")
    now = timezone.now()
    with organisation_scope(feed.organisation_id):
        text = feed_text(f"{feed.membership.organisation.name}: {feed.membership}", _events(feed, now), now)
    response = HttpResponse(text, content_type="text/calendar; charset=utf-8")
    response["Cache-Control"] = "private, no-cache"
    response["Content-Disposition"] = 'inline; filename="calendar.ics"'
    response["X-Robots-Tag"] = "noindex"
    return response


def feed_by_secret(secret: str) -> CalendarFeed | None:
    """The feed of an active member of an organisation with the assistant, or None. One query."""
    if len(secret) > MAX_SECRET:
        return None
    with system_scope():
        feeds = CalendarFeed.objects.select_related("membership__user", "membership__organisation")
        current = feeds.filter(
            membership__user__is_active=True,
            membership__ended_at=None,
            membership__organisation__has_assistant=True,
        )
        return current.filter(digest=digest_of(secret)).first()


def has_feed(membership_id: int) -> bool:
    return CalendarFeed.objects.filter(membership_id=membership_id).exists()


def make_feed(organisation_id: int, membership_id: int, now: datetime) -> str:
    """The secret of a new feed, in the place of one that is there. It is returned here and never again."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    CalendarFeed.objects.update_or_create(
        organisation_id=organisation_id,
        membership_id=membership_id,
        defaults={"digest": digest_of(secret), "created_at": now},
    )
    return secret


def remove_feed(membership_id: int) -> None:
    CalendarFeed.objects.filter(membership_id=membership_id).delete()


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _events(feed: CalendarFeed, now: datetime) -> list[CalendarEvent]:
    """Return the events that are not over for long; for an event that repeats, its last day counts."""
    once = Q(repeat=CalendarEvent.Repeat.NONE)
    over = (once & Q(ends_at__lt=now - BEHIND)) | Q(repeat_until__lt=(now - BEHIND - timedelta(days=367)).date())
    mine = CalendarEvent.objects.filter(membership_id=feed.membership_id)
    return list(mine.exclude(over).order_by("-starts_at", "number")[:EVENTS])
