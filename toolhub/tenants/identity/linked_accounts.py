"""Accounts that may be one person's: whoever invites an address, or makes a link that sets a password, may hold both.

So below access `admin` nobody gives an account that is linked to theirs more than they may use (`authority`).
"""

from __future__ import annotations

from django.db.models.functions import Lower

from toolhub.tenants.models import Access, Invitation, Membership, ResetLink


def linked_members(member: Membership) -> list[Membership]:
    """Return the other current members joined to this one by links that no admin made, over any number of accounts.

    With users and rights at hand. Two queries, four where there are such links of this member.
    """
    neighbours: dict[str, set[str]] = {}
    for maker, other in _links():
        neighbours.setdefault(maker, set()).add(other)
        neighbours.setdefault(other, set()).add(maker)
    found, waiting = set[str](), [member.user.email.lower()]
    while waiting:
        email = waiting.pop()
        if email not in found:
            found.add(email)
            waiting += neighbours.get(email, ())
    if len(found) == 1:
        return []
    members = Membership.objects.alias(email=Lower("user__email")).filter(email__in=found, ended_at=None)
    linked = members.exclude(pk=member.pk).select_related("user").prefetch_related("admin_rights")
    return list(linked.order_by("pk"))


def _links() -> set[tuple[str, str]]:
    """Addresses of who made a link and of whose account it opens: accepted invitations, and every reset link."""
    accepted = Invitation.objects.exclude(created_by__access=Access.ADMIN).exclude(accepted_at=None)
    resets = ResetLink.objects.exclude(created_by__access=Access.ADMIN)
    rows = [
        *accepted.values_list("created_by__user__email", "email"),
        *resets.values_list("created_by__user__email", "membership__user__email"),
    ]
    return {(maker.lower(), other.lower()) for maker, other in rows}
