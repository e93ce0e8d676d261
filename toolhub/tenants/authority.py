"""Check that a write of configuration gives its actor no more than the actor has.

Nobody below access `admin` widens what they themselves may use or administer by category, and nobody changes
anything of a member of higher access.

What a member may use, and what roles say, is known to the apps above: reading both is `Provided`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from toolhub.tenants.audit.writes import record
from toolhub.tenants.identity.linked_accounts import linked_members
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.provided import Provided

P = ParamSpec("P")
R = TypeVar("R")

ASK_AN_ADMIN = "Ask an admin."
#: Names that a refusal and an audit entry list.
NAMED, RECORDED = 5, 100


class NotYours(PermissionDenied):
    """The change is not the actor's to make: it would widen their own use, or is about a member of higher access."""


class Powers(Protocol):
    """Everything that one member may use, and administer by category, from one moment on."""

    def beyond(self, other: Any) -> Sequence[str]:
        """Names of what this holds, at that moment or later, and `other` does not. Nothing for none."""
        ...


class HeldAbove(Protocol):
    """Powers of the members of higher access than somebody's, as they were read."""

    def why_changed(self, before: Any) -> str:
        """Why `before` may not have become this: a sentence that names the member; "" where both are the same."""
        ...


@Provided
def powers_of_each(members: Collection[Membership], since: datetime) -> Mapping[int, Powers]:
    """Return the powers of members from this moment on, by key. A fixed number of queries."""
    raise NotImplementedError


@Provided
def powers_above(actor: Membership) -> HeldAbove:
    """Return what members of higher access than this one hold. A fixed number of queries."""
    raise NotImplementedError


#: Keys of the members whose write is under way in this context: what it calls is part of it.
_writing: ContextVar[frozenset[int]] = ContextVar("toolhub_writing", default=frozenset())
#: Every write that is guarded, as `module.name`.
WRITES: set[str] = set()


def powers_of(member: Membership, at: datetime | None = None) -> Powers:
    return powers_of_each([member], at or timezone.now())[member.pk]


def why_beyond(actor: Membership, member: Membership) -> str:
    """Return as a sentence what this member may use or administer and the actor may not; "" for nothing, and for an
    admin."""
    if actor.has_access(Access.ADMIN):
        return ""
    moment = timezone.now()
    more = powers_of(member, moment).beyond(powers_of(actor, moment))
    return f"{member} may use what you may not: {named(more)}." if more else ""


def guarded_write(refused: Callable[[str], Exception] = NotYours) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Guard a function that changes the configuration, with the one who does as its keyword `actor`.

    It runs in one transaction with the organisation's row held, so writes of one organisation come one after the other.
    It is undone and `refused` is raised where, afterwards, below access `admin`
    - the actor could use more than before, now or at any later time (an admin's is put on record instead);
    - an account that may be the actor's as well (`linked_members`) could, beyond what the actor could use before;
    - a role of a member of higher access says something else, or was given to or taken from one.
    Writes that it calls for the same actor are part of it. `actor` None: the service itself, which is not asked.
    """

    def guard(write: Callable[P, R]) -> Callable[P, R]:
        WRITES.add(f"{write.__module__}.{write.__name__}")

        @wraps(write)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            actor = kwargs.get("actor")
            if not isinstance(actor, Membership) or actor.pk in _writing.get():
                with transaction.atomic():
                    return write(*args, **kwargs)
            with transaction.atomic():
                hold_organisation(actor.organisation_id)
                moment = timezone.now()
                before = powers_of(actor, moment)
                above = _held_above(actor)
                linked = _powers_of_linked(actor, moment)
                token = _writing.set(_writing.get() | {actor.pk})
                try:
                    result = write(*args, **kwargs)
                finally:
                    _writing.reset(token)
                _check_same_above(actor, above, refused)
                _check_not_wider(actor, before, moment, write.__name__, refused)
                _check_linked_not_wider(actor, before, linked, moment, refused)
                return result

        return guarded

    return guard


def hold_organisation(organisation_id: int) -> None:
    """Hold the organisation's row until the transaction ends: the first lock of every write of configuration."""
    Organisation.objects.filter(pk=organisation_id).update(audit_count=F("audit_count"))


def _held_above(actor: Membership) -> HeldAbove | None:
    """None for an admin: nobody is above."""
    return powers_above(actor) if higher_than(actor) else None


def _check_same_above(actor: Membership, before: HeldAbove | None, refused: Callable[[str], Exception]) -> None:
    after = _held_above(actor)
    reason = after.why_changed(before) if after is not None else ""
    if reason:
        raise refused(reason)


def _check_not_wider(
    actor: Membership, before: Powers, moment: datetime, write: str, refused: Callable[[str], Exception]
) -> None:
    more = powers_of(actor, moment).beyond(before)
    if not more:
        return
    if not actor.has_access(Access.ADMIN):
        raise refused(f"You would widen your own rights, by {named(more)}: only an admin may. {ASK_AN_ADMIN}")
    after = {"by": write, "count": len(more), "tools": list(more[:RECORDED])}
    record("member.widen_own", actor, actor=actor, after=after)


def _powers_of_linked(actor: Membership, moment: datetime) -> Mapping[int, Powers]:
    """Return the powers of the accounts that may be the actor's as well, by key; none for an admin."""
    linked = [] if actor.has_access(Access.ADMIN) else linked_members(actor)
    return powers_of_each(linked, moment) if linked else {}


def _check_linked_not_wider(
    actor: Membership,
    own: Powers,
    before: Mapping[int, Powers],
    moment: datetime,
    refused: Callable[[str], Exception],
) -> None:
    """Refuse where an account that may be the actor's gained what the actor might not use: one person could use it
    then."""
    if not before:
        return
    linked = {member.pk: member for member in linked_members(actor) if member.pk in before}
    for key, after in powers_of_each(linked.values(), moment).items():
        more = sorted(set(after.beyond(before[key])) & set(after.beyond(own)))
        if more:
            member = linked[key]
            raise refused(
                f"{member} and you are linked by invitations or reset links that no admin made, so you can give "
                f"{member} only what you may use yourself. This is more: {named(more)}. {ASK_AN_ADMIN}"
            )


def named(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


# -- Rank -------------------------------------------------------------------------------------------------------------


def higher_than(actor: Membership | None) -> list[str]:
    """The access levels above the actor's."""
    return [] if actor is None else [access.value for access in Access if access.rank > Access(actor.access).rank]


def why_not_of(actor: Membership | None, members: QuerySet[Any]) -> str:
    """Why the actor may not change what is these members'; "" where they may. `members`: of Membership. One query."""
    above = higher_than(actor)
    if not above:
        return ""
    found = members.select_related("user").filter(access__in=above, ended_at=None).order_by("pk").first()
    return outranked(found) if found is not None else ""


def why_not_to(actor: Membership, member: Membership) -> str:
    """Why the actor may not change what is this member's; "" where they may. No query."""
    return outranked(member) if member.access in higher_than(actor) else ""


def outranked(member: Membership) -> str:
    return f"{member} has more access than you: you may change nothing of theirs. {ASK_AN_ADMIN}"
