"""Reading the header WWW-Authenticate. Pure."""

from __future__ import annotations

import re

#: Characters of the header that are read.
MAX_CHALLENGE = 4_000


def challenge_value(challenge: str, name: str) -> str:
    """The value of one parameter of a WWW-Authenticate header; empty where it has none."""
    found = re.search(rf'(?:^|[\s,]){name}=(?:"([^"]*)"|([^\s,]+))', challenge[:MAX_CHALLENGE], re.IGNORECASE)
    return (found[1] or found[2] or "") if found else ""
