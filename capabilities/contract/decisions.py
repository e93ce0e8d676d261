"""Whether a call may run: what hooks, approval rules and trust each say of it, and the one answer that comes of it.

Deny stands before ask, and ask before allow, whoever says it and in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from capabilities.contract.asking import USUAL_HOURS


class Verb(IntEnum):
    """What may be said of a call; the higher one counts."""

    ALLOW = 0
    #: Somebody is asked first.
    ASK = 1
    DENY = 2


@dataclass(frozen=True)
class Terms:
    """How somebody is asked. The default is the strict one: each call by itself."""

    #: Hours until nobody can answer any more.
    expires_after: int = USUAL_HOURS
    #: Whether another person than the requester must answer.
    needs_other_person: bool = False
    #: Whether an approval may be remembered, and counts for later calls.
    allows_consent: bool = False

    def together(self, other: Terms) -> Terms:
        """The stricter of both, in each point."""
        return Terms(
            min(self.expires_after, other.expires_after),
            self.needs_other_person or other.needs_other_person,
            self.allows_consent and other.allows_consent,
        )


@dataclass(frozen=True)
class Decision:
    """One word on a call, with a reason for each reader."""

    verb: Verb
    #: Who says so, such as `hook freeze-mail`, `rule refunds`, `trust`.
    source: str = ""
    for_model: str = ""
    for_people: str = ""
    for_log: str = ""
    #: Of one that asks.
    terms: Terms = Terms()


ALLOWED = Decision(Verb.ALLOW)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """The first of the strictest decisions; ALLOWED where nobody says anything. Of several that ask, it asks under the
    terms of all of them."""
    said = list(decisions)
    first = max(said, key=lambda each: each.verb, default=ALLOWED)
    if first.verb != Verb.ASK:
        return first
    terms = first.terms
    for each in said:
        if each.verb == Verb.ASK:
            terms = terms.together(each.terms)
    return first if terms == first.terms else replace(first, terms=terms)
