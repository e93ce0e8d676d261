"""Decision on a call: the verdicts of hooks, approval rules and trust, and the one answer that follows from them.

Deny stands before ask, and ask before allow, whoever says it and in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from capabilities.contract.approvals import (
    ALWAYS,
    FIRST_IN_SESSION,
    NEVER,
    USUAL_HOURS,
    AskRule,
    asks_administrators,
)
from capabilities.contract.spec import ToolSpec

#: Values of the knob `ask` of an envelope, each as a rule's `when`.
KNOB = {"off": NEVER, "first_time": FIRST_IN_SESSION, "always": ALWAYS}


#: As the source of a decision: the tool says so, for everybody.
ASKED_BY_TOOL = "the tool itself"


class Verb(IntEnum):
    """Verdict on a call; the higher one counts."""

    ALLOW = 0
    #: Somebody is asked first.
    ASK = 1
    DENY = 2


@dataclass(frozen=True)
class Terms:
    """Terms on which somebody is asked. The default is the strict one: each call by itself."""

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
    #: Source of the decision, such as `hook freeze-mail`, `rule refunds`, `trust`.
    source: str = ""
    for_model: str = ""
    for_people: str = ""
    for_log: str = ""
    #: Terms of a decision that asks.
    terms: Terms = Terms()


ALLOWED = Decision(Verb.ALLOW)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """The first of the strictest decisions; ALLOWED where nobody says anything. Of several that ask, it asks under the
    terms of all of them."""
    given = list(decisions)
    first = max(given, key=lambda each: each.verb, default=ALLOWED)
    if first.verb != Verb.ASK:
        return first
    terms = first.terms
    for each in given:
        if each.verb == Verb.ASK:
            terms = terms.together(each.terms)
    return first if terms == first.terms else replace(first, terms=terms)


def decision_on(spec: ToolSpec, rules: Iterable[AskRule], ask: str) -> Decision | None:
    """Return the strictest decision of the rules that count for a call, the knob `ask` of its tool, and the tool
    itself; None where none says anything. An unknown value of the knob asks each time."""
    found, tool = [], spec.name
    if asks_administrators(spec):
        why = f"{tool} asks the administrators of the service: nothing is done by the call itself."
        found.append(_asking(ALWAYS, ASKED_BY_TOOL, why, Terms()))
    for rule in rules:
        why = rule.message or f"The approval rule {rule.name} asks before {tool} runs."
        terms = Terms(rule.expires_after, rule.needs_other_person, rule.when == FIRST_IN_SESSION)
        found.append(_asking(rule.when, f"rule {rule.name}", why, terms))
    when = KNOB.get(ask, ALWAYS)
    if when != NEVER:
        why = f"The runtime settings of {tool} ask before it runs."
        found.append(_asking(when, "setting ask", why, Terms(allows_consent=when == FIRST_IN_SESSION)))
    return strictest(found) if found else None


def _asking(when: str, source: str, why: str, terms: Terms) -> Decision:
    if when == NEVER:
        return Decision(Verb.ALLOW, source, for_log=f"{source}: never")
    waits = "Not run: it runs when a person approves it."
    return Decision(Verb.ASK, source, for_model=waits, for_people=why, for_log=f"{source}: {when}", terms=terms)
