"""The audited writes of people: how much access each member has, which rights on top, and who leaves.

Three rules hold on every path: nobody gives or takes more than they hold, nobody touches their own membership, and an
organisation keeps an admin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import guarded_write, hold_organisation
from toolhub.tenants.models import (
    CATEGORY_RIGHTS,
    EVERY_CATEGORY,
    Access,
    AdminRight,
    Invitation,
    Membership,
    ResetLink,
    Right,
)
from toolhub.tenants.provided import Provided


class MemberRefused(ValueError):
    """Refusal of a change that cannot be made; `field` is at fault ("" for none), `code` is for programs."""

    def __init__(self, field: str, message: str, code: str = "refused") -> None:
        super().__init__(message)
        self.field = field
        self.code = code


class Forbidden(MemberRefused):
    """Refusal of a change that is more than the one who asks may do."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(field, message, "forbidden")


@dataclass(frozen=True)
class GivenRight:
    """A right, for one category or for every one."""

    right: Right
    category: str = EVERY_CATEGORY

    def __str__(self) -> str:
        return f"{self.right.value}:{self.category}" if self.category else self.right.value


def current_members() -> QuerySet[Membership]:
    """Members who have not left, with users and rights at hand. Two queries."""
    return Membership.objects.filter(ended_at=None).select_related("user").prefetch_related("admin_rights")


@Provided
def category_names() -> list[tuple[str, str]]:
    """Return (name, title) of the organisation's categories, by title."""
    raise NotImplementedError


# -- Who may do what to whom ------------------------------------------------------------------------------------------


def may_manage(actor: Membership, member: Membership) -> bool:
    """Return whether `actor` may change, remove or let in again this member: somebody else, who holds nothing beyond
    them."""
    return not why_not(actor, member)


def why_not(actor: Membership, member: Membership) -> str:
    """Why `actor` may not manage this member; "" where they may."""
    if actor.pk == member.pk:
        return "Nobody changes their own access or rights. Ask another admin."
    if not actor.has_right(Right.MEMBERS):
        return "This needs the admin right members."
    if not actor.has_access(Access(member.access)):
        return f"{member} has more access than you."
    unheld = [each.shown for each in member.admin_rights.all() if not actor.has_right(Right(each.right), each.category)]
    return f"{member} holds rights that you do not: {', '.join(unheld)}." if unheld else ""


def accesses_to_give(actor: Membership) -> list[Access]:
    return [access for access in Access if actor.has_access(access)]


# -- Writes -----------------------------------------------------------------------------------------------------------


@guarded_write(Forbidden)
def change_member(
    member: Membership,
    *,
    access: Access | None = None,
    rights: Iterable[GivenRight] | None = None,
    actor: Membership,
) -> Membership:
    """Set the access and the whole list of delegated rights; None leaves it. Raises MemberRefused."""
    member, actor = _as_they_are(member, actor)
    if access is not None:
        _set_access(member, access, actor)
    if rights is not None:
        _set_rights(member, set(rights), actor)
    _end_links_beyond(member, actor)
    return member


def set_access(member: Membership, access: Access, *, actor: Membership) -> Membership:
    return change_member(member, access=access, actor=actor)


def give_right(member: Membership, right: GivenRight, *, actor: Membership) -> Membership:
    return _change_rights(member, lambda rights: rights | {right}, actor=actor)


def take_right(member: Membership, right: GivenRight, *, actor: Membership) -> Membership:
    return _change_rights(member, lambda rights: rights - {right}, actor=actor)


@guarded_write(Forbidden)
def _change_rights(
    member: Membership, change: Callable[[set[GivenRight]], set[GivenRight]], *, actor: Membership
) -> Membership:
    member, actor = _as_they_are(member, actor)
    _set_rights(member, change(held_rights(member)), actor)
    _end_links_beyond(member, actor)
    return member


@guarded_write(Forbidden)
def remove_member(member: Membership, *, actor: Membership) -> None:
    """End the membership, with its rights, tokens and open links. Chats and the record of turns stay."""
    member, actor = _as_they_are(member, actor)
    _end_membership(member, actor)


def remove_by_operator(member: Membership) -> None:
    """End the membership for the operator of the service, inside a transaction. Raises MemberRefused for the last
    admin."""
    hold_organisation(member.organisation_id)
    _end_membership(member, None)


def end_made_links(member: Membership, actor: Membership | None) -> None:
    """End every link that the member made, to join or to reset a password."""
    for invitation in Invitation.objects.filter(created_by=member, accepted_at=None, revoked_at=None):
        _end_invitation(invitation, actor)
    ResetLink.objects.filter(created_by=member, ended_at=None).update(ended_at=timezone.now())


@Provided
def forget_accounts(member: Membership, actor: Membership | None) -> None:
    """Delete the secrets of a member who leaves, inside the transaction of that; `actor` removes them, None is the
    operator."""


def _end_membership(member: Membership, actor: Membership | None) -> None:
    _check_admin_stays(member)
    before = {"access": member.access, "rights": _audited_rights(held_rights(member))}
    now = timezone.now()
    AdminRight.objects.filter(membership=member).delete()
    member.api_tokens.filter(revoked_at=None).update(revoked_at=now)
    member.reset_links.filter(ended_at=None).update(ended_at=now)
    member.ended_at = now
    member.save(update_fields=["ended_at"])
    record("member.remove", member, actor=actor, before=before)
    forget_accounts(member, actor)
    _end_links_beyond(Membership.objects.get(pk=member.pk), actor)


def _as_they_are(member: Membership, actor: Membership) -> tuple[Membership, Membership]:
    """Both as they are now, with nobody else changing members meanwhile. Raises MemberRefused.

    Two admins who demote each other at the same moment must not both succeed: the second reads what the first wrote.
    """
    hold_organisation(actor.organisation_id)
    now = {each.pk: each for each in current_members().filter(pk__in=[member.pk, actor.pk])}
    if actor.pk not in now:
        raise Forbidden("You are no longer a member.")
    if member.pk not in now:
        raise MemberRefused("", "This member has left.", "unknown")
    reason = why_not(now[actor.pk], now[member.pk])
    if reason:
        raise Forbidden(reason)
    return now[member.pk], now[actor.pk]


def _set_access(member: Membership, access: Access, actor: Membership) -> None:
    if not actor.has_access(access):
        raise Forbidden("You cannot give more access than you have.", "access")
    if member.access == access:
        return
    if access != Access.ADMIN:
        _check_admin_stays(member)
    before = {"access": member.access}
    member.access = access
    member.save(update_fields=["access"])
    record("member.access", member, actor=actor, before=before, after={"access": access.value})


def _set_rights(member: Membership, wanted: set[GivenRight], actor: Membership) -> None:
    """Give and take the member's rights until they are the wanted ones, with one audit row. Raises MemberRefused, and
    Forbidden for a right that the actor does not hold."""
    before_rights = held_rights(member)
    for given in sorted(wanted - before_rights, key=str):
        _check_right(given, actor)
        AdminRight.objects.create(
            organisation_id=member.organisation_id, membership=member, right=given.right, category=given.category
        )
    for given in before_rights - wanted:
        AdminRight.objects.filter(membership=member, right=given.right, category=given.category).delete()
    if wanted != before_rights:
        before, after = {"rights": _audited_rights(before_rights)}, {"rights": _audited_rights(wanted)}
        record("member.rights", member, actor=actor, before=before, after=after)
        member.refresh_from_db(fields=["admin_rights"])


def _check_right(given: GivenRight, actor: Membership) -> None:
    if given.category:
        if given.right not in CATEGORY_RIGHTS:
            raise MemberRefused("category", f"The right {given.right.value} cannot be limited to a category.")
        if given.category not in dict(category_names()):
            raise MemberRefused("category", "There is no such category.", "unknown")
    if not actor.has_right(given.right, given.category):
        raise Forbidden("You cannot give a right that you do not hold.", "right")


def _check_admin_stays(member: Membership) -> None:
    others = Membership.objects.filter(access=Access.ADMIN, ended_at=None, user__is_active=True).exclude(pk=member.pk)
    if member.access == Access.ADMIN and not others.exists():
        raise MemberRefused("access", "This is the last admin; make another one first.", "last_admin")


def _end_links_beyond(member: Membership, actor: Membership | None) -> None:
    """End the links that the member made and, as they are now, could not make any more."""
    now = timezone.now()
    may_invite = member.has_right(Right.MEMBERS)
    for invitation in Invitation.objects.filter(created_by=member, accepted_at=None, revoked_at=None):
        if not may_invite or not member.has_access(Access(invitation.access)):
            _end_invitation(invitation, actor)
    for link in ResetLink.objects.filter(created_by=member, ended_at=None).select_related("membership"):
        if not may_manage(member, link.membership):
            ResetLink.objects.filter(pk=link.pk).update(ended_at=now)


def _end_invitation(invitation: Invitation, actor: Membership | None) -> None:
    invitation.revoked_at = timezone.now()
    invitation.save(update_fields=["revoked_at"])
    record("invitation.revoke", invitation, actor=actor, before={"email": invitation.email})


def held_rights(member: Membership) -> set[GivenRight]:
    """The delegated rights, not what comes with the access level."""
    return {GivenRight(Right(each.right), each.category) for each in member.admin_rights.all()}


def _audited_rights(rights: set[GivenRight]) -> list[Any]:
    return sorted(str(given) for given in rights)
