"""Errors where nothing came back from the network: the request is not allowed, or it did not work."""

from __future__ import annotations

import httpx2

#: Methods that change nothing (RFC 9110, 9.2.1).
READING = frozenset({"GET", "HEAD", "OPTIONS"})
DOUBT = " It may have been done all the same: look before you try again."
#: Statuses of 4xx that say nothing of whether it was done: a wait that somebody on the way gave up.
WAITS = frozenset({408, 499})
#: Statuses of 5xx that refuse the request itself: its method, or its version of HTTP.
NOT_SUPPORTED = frozenset({501, 505})


def is_refused(status: int) -> bool:
    """Return whether an answer of this status says that nothing was done: the request was refused as it was, or as it
    came now (409, 425, 429)."""
    return (400 <= status < 500 and status not in WAITS) or status in NOT_SUPPORTED


def doubt_after(method: str, status: int) -> str:
    """A sentence to add to an answer of a failure after which something may have been done; empty where nothing was."""
    return DOUBT if status >= 400 and not is_refused(status) and method not in READING else ""


class EgressError(Exception):
    """Error where nothing came back from the network. The message is one sentence for the reader, and for the model."""

    #: True where some host had answered with a redirect: then the message may name what that one chose.
    is_after_redirect = False

    @property
    def was_sent(self) -> bool:
        """True where the request may have arrived, though no answer came back."""
        return False

    def doubt(self, method: str) -> str:
        """A sentence to add for a request that may have done something all the same; empty for one that only reads."""
        return DOUBT if self.was_sent and method not in READING else ""


class EgressRefused(EgressError):
    """Request that is not allowed, however often it is made: its address, port, scheme or header."""


class EgressFailed(EgressError):
    """Request that is allowed, but did not work: no name, no connection, no answer in time, or too many redirects."""

    @property
    def was_sent(self) -> bool:
        cause = self.__cause__
        return cause is not None and not isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
