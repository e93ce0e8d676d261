"""Requests of clients that this web server answers at once: of one token, one member and one organisation."""

from __future__ import annotations

from sessions.doors.chats.stream_limits import OpenStreams, StreamSlot, TooManyStreams
from toolhub.tenants.models import ApiToken
from toolhub.tenants.rest.wire import Refused

#: Seconds after which a client that was refused may try again.
TRY_AGAIN = 2

open_requests = OpenStreams("requests under way", "REQUESTS")


def slot_for(token: ApiToken) -> StreamSlot:
    """The request's place in the counts, to be given back. Raises Refused `too_many_requests`."""
    try:
        return open_requests.take_for(token.membership, token)
    except TooManyStreams as full:
        raise Refused("too_many_requests", str(full), status_code=429, wait=TRY_AGAIN) from full
