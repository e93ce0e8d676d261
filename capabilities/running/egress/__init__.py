"""The one way out to the network, for tools and for model providers: what may be reached is decided here.

Knows addresses, ports and redirects, and the operator's list of private hosts. Must not know organisations, tools or
rows: whoever calls says what is asked, this package says whether it may leave the house.

Whatever is not an answer is one of these, each with a sentence for the reader, and for the model:

    EgressError
    ├── EgressRefused    it may not be asked, however often
    └── EgressFailed     it may be asked, but did not work
"""

from capabilities.running.egress.addresses import DENIED_V4, AllowedHost, Purpose, allowed_host, check_url, is_public
from capabilities.running.egress.async_client import ExchangeLimits, guarded_async_client
from capabilities.running.egress.errors import EgressError, EgressFailed, EgressRefused, is_refused
from capabilities.running.egress.fetching import MAX_REDIRECTS, Fetched, fetch
from capabilities.running.egress.guard import (
    Guard,
    GuardedBackend,
    guarded_client,
    is_listed,
    no_deadline,
    resolve_checked,
)
from capabilities.running.egress.placing import fits, origin_of, place

__all__ = [
    "DENIED_V4",
    "MAX_REDIRECTS",
    "AllowedHost",
    "EgressError",
    "EgressFailed",
    "EgressRefused",
    "ExchangeLimits",
    "Fetched",
    "Guard",
    "GuardedBackend",
    "Purpose",
    "allowed_host",
    "check_url",
    "fetch",
    "fits",
    "guarded_async_client",
    "guarded_client",
    "is_listed",
    "is_public",
    "is_refused",
    "no_deadline",
    "origin_of",
    "place",
    "resolve_checked",
]
