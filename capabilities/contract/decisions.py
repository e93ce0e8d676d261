"""Whether a call may run: what hooks, approval rules and trust each say of it, and the one answer that comes of it.

Deny stands before ask, and ask before allow, whoever says it and in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Verb(IntEnum):
    """What may be said of a call; the higher one counts."""

    ALLOW = 0
    #: Somebody is asked first.
    ASK = 1
    DENY = 2


@dataclass(frozen=True)
class Decision:
    """One word on a call, with a reason for each reader."""

    verb: Verb
    #: Who says so, such as `hook freeze-mail`, `rule refunds`, `trust`.
    source: str = ""
    for_model: str = ""
    for_people: str = ""
    for_log: str = ""


ALLOWED = Decision(Verb.ALLOW)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """The first of the strictest decisions; ALLOWED where nobody says anything."""
    return max(decisions, key=lambda each: each.verb, default=ALLOWED)
