"""Event streams that are open on this web server: how many one token, one member and one organisation may have.

Each stream holds a connection and some memory, and reads its turn with each event; without limits, one token's streams
would stop everybody's reads. A reader who gets none asks for the turn now and then instead.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field

from django.conf import settings
from django.http import StreamingHttpResponse

from toolhub.tenants.models import ApiToken, Membership

#: Seconds after which a client that was refused may try again.
TRY_AGAIN = 5

#: Text that a stream sends while nothing happens, so that whatever lies between keeps it open, and seconds between two.
STILL_HERE = ": still here\n\n"
PULSE_SECONDS = 10.0

Owner = tuple[str, int]


class TooManyStreams(Exception):
    """A limit is reached; the message says which."""


@dataclass
class OpenStreams:
    """Counts of open streams by their owners; `what` names the streams in the message of a refusal.

    Their limits are the settings TOOLHUB_<setting>_PER_TOKEN, _MEMBER and _ORGANISATION.
    """

    what: str = "event streams open"
    setting: str = "STREAMS"
    _counts: Counter[Owner] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take_for(self, member: Membership, token: ApiToken | None) -> StreamSlot:
        """Count one more stream of this member, with this token, or with a login. Raises TooManyStreams."""
        owners: dict[str, int | None] = {
            "token": token.pk if token is not None else None,
            "member": member.pk,
            "organisation": member.organisation_id,
        }
        return self.take({(name, key): self._most(name) for name, key in owners.items() if key is not None})

    def _most(self, owner: str) -> int:
        return int(getattr(settings, f"TOOLHUB_{self.setting}_PER_{owner.upper()}"))

    def take(self, limits: dict[Owner, int]) -> StreamSlot:
        """Count one more stream for all of these owners. Raises TooManyStreams, and then counts none."""
        with self._lock:
            for owner, most in limits.items():
                if self._counts[owner] >= most:
                    raise TooManyStreams(f"This {owner[0]} has {most} {self.what} already: close one first.")
            self._counts.update(limits.keys())
        return StreamSlot(self, tuple(limits))

    def give_back(self, owners: tuple[Owner, ...]) -> None:
        with self._lock:
            self._counts.subtract(owners)
            for owner in owners:
                if self._counts[owner] <= 0:
                    del self._counts[owner]

    def count(self) -> dict[Owner, int]:
        with self._lock:
            return dict(self._counts)


@dataclass
class StreamSlot:
    """One stream's place in the counts, given back once."""

    streams: OpenStreams
    owners: tuple[Owner, ...]

    def leave(self) -> None:
        owners, self.owners = self.owners, ()
        self.streams.give_back(owners)


open_streams = OpenStreams()


@dataclass
class Pulse:
    """Clock of a silent stream: the moments to say that it is still there."""

    beaten_at: float = field(default_factory=time.monotonic)

    def is_due(self) -> bool:
        """True once every PULSE_SECONDS."""
        if time.monotonic() - self.beaten_at < PULSE_SECONDS:
            return False
        self.beaten_at = time.monotonic()
        return True


def event_stream(member: Membership, token: ApiToken | None, parts: AsyncIterator[str]) -> StreamingHttpResponse:
    """The response that sends these parts. Raises TooManyStreams where its reader has as many as may be."""
    place = open_streams.take_for(member, token)
    response = as_events(_counted(parts, place))
    # A client that is gone before the first part: the generator never begins, so that nothing in it would end.
    weakref.finalize(response, place.leave)
    return response


def as_events(parts: AsyncIterator[str]) -> StreamingHttpResponse:
    """The response that sends these server-sent events, which nothing on the way keeps or holds back."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(parts, content_type="text/event-stream", headers=headers)


async def _counted(parts: AsyncIterator[str], place: StreamSlot) -> AsyncIterator[str]:
    try:
        async with aclosing(parts) as inner:  # type: ignore[type-var]
            async for part in inner:
                yield part
    finally:
        place.leave()
