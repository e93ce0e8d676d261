"""Requests of clients that this web server answers at once: of one token, one member and one organisation."""

from __future__ import annotations

from django.conf import settings

from sessions.chats.stream_limits import OpenStreams, Owner, StreamSlot, TooManyStreams
from toolhub.tenants.models import ApiToken
from toolhub.tenants.wire import Refused

#: Seconds after which a client that was refused may try again.
TRY_AGAIN = 2

open_requests = OpenStreams("requests under way")


def slot_for(token: ApiToken) -> StreamSlot:
    """The request's place in the counts, to be given back. Raises Refused `too_many_requests`."""
    member = token.membership
    limits: dict[Owner, int] = {
        ("token", token.pk): settings.TOOLHUB_REQUESTS_PER_TOKEN,
        ("member", member.pk): settings.TOOLHUB_REQUESTS_PER_MEMBER,
        ("organisation", member.organisation_id): settings.TOOLHUB_REQUESTS_PER_ORGANISATION,
    }
    try:
        return open_requests.take(limits)
    except TooManyStreams as full:
        raise Refused("too_many_requests", str(full), status_code=429, wait=TRY_AGAIN) from full
