"""Why nothing came back from the network: it may not be asked, or it did not work."""

from __future__ import annotations


class EgressError(Exception):
    """Nothing came back from the network. The message is one sentence for the reader, and for the model."""

    #: Whether some host had answered with a redirect: then the message may name what that one chose.
    is_after_redirect = False


class EgressRefused(EgressError):
    """This may not be asked, however often: the address, port, scheme or header is not allowed."""


class EgressFailed(EgressError):
    """It may be asked, but did not work: no name, no connection, no answer in time, or too many redirects."""
