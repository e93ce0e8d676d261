"""The roles that an invitation carries: put on it when it is made, given when it is accepted.

Giving a role needs the right `roles`, here as everywhere. The address that is invited may be another one of
its maker, so nobody below access `admin` invites to a role that allows more than they may use themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.utils import timezone

from capabilities.access.powers import powers_with_roles, read_powers
from capabilities.access.roles.writes import assign_role
from capabilities.common.rights import may_administer
from capabilities.models import InvitationRole, Role
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import ASK_AN_ADMIN, named, why_not_of
from toolhub.tenants.models import Access, Invitation, Membership, Right
from toolhub.tenants.people.writes import Forbidden, MemberRefused


def offered_roles(member: Membership) -> Sequence[tuple[str, str]]:
    """Short name and name of each role; none for a member who may not give roles. At most one query."""
    if not may_administer(member, Right.ROLES):
        return []
    return list(Role.objects.order_by("name", "slug").values_list("slug", "name"))


def set_invited_roles(invitation: Invitation, slugs: Collection[str], *, actor: Membership) -> None:
    """Put the roles on a new invitation.

    Raises Forbidden for a role that the actor may not give, MemberRefused for one that is not there.
    """
    if not may_administer(actor, Right.ROLES):
        raise Forbidden("Roles on an invitation need the admin right roles.", "roles")
    roles = {role.slug: role for role in Role.objects.filter(slug__in=slugs)}
    for slug in slugs:
        if slug not in roles:
            raise MemberRefused("roles", f"There is no role {slug[:100]}.", "unknown")
    for role in roles.values():
        reason = why_not_give(role, actor)
        if reason:
            raise Forbidden(reason, "roles")
    InvitationRole.objects.bulk_create(
        InvitationRole(organisation_id=invitation.organisation_id, invitation=invitation, role=role)
        for role in roles.values()
    )


def give_invited_roles(invitation: Invitation, member: Membership) -> None:
    """Give the new member those of the roles that the inviter could give now; the others are put on record."""
    roles = list(Role.objects.filter(invitation_roles__invitation=invitation).order_by("slug"))
    if not roles:
        return
    inviter = Membership.objects.select_related("user", "organisation").get(pk=invitation.created_by_id)
    outranked = why_not_of(inviter, Membership.objects.filter(pk=member.pk))
    left_out = {}
    for role in roles:
        reason = outranked or why_not_give(role, inviter)
        if reason:
            left_out[role.slug] = reason
        else:
            assign_role(role, [member], actor=inviter)
    if left_out:
        record("invitation.leave_out_roles", invitation, actor=member, after={"roles": left_out})


def why_not_give(role: Role, inviter: Membership) -> str:
    """Why the inviter may not invite to this role; "" where they may."""
    if not may_administer(inviter, Right.ROLES):
        return "The inviter has not the admin right roles."
    if inviter.has_access(Access.ADMIN):
        return ""
    moment = timezone.now()
    more = powers_with_roles([role], moment).beyond(read_powers([inviter], moment)[inviter.pk])
    return f"The role {role.slug} allows more than its giver may use: {named(more)}. {ASK_AN_ADMIN}" if more else ""
