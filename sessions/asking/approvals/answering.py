"""Rules on who may answer what a turn asks: one function for the writes, and the same as a condition for lists."""

from __future__ import annotations

from django.db.models import Q
from django.db.models.functions import Now

from sessions.access import may_write
from sessions.models import OF_MEMBER, Approval, ApprovalKind, ApprovalStatus
from sessions.turns.asked import is_tool_run
from toolhub.tenants.authority import higher_than, named, why_not_to
from toolhub.tenants.identity.linked_accounts import linked_members
from toolhub.tenants.models import EVERY_CATEGORY, Access, Membership, Right


def why_not_answer(member: Membership, approval: Approval) -> str:
    """Why this member may not answer it, whether or not it waits still; "" for who may.

    A question, a form and a link are answered by whose session it is. A call is allowed by its requester, unless it
    takes another person, and by whoever holds the right `approvals` for the tool's category and has no less access than
    the requester.
    Reads the approval's session, tool, category and requester; two to four queries more for a call that takes another
    person.
    """
    if is_tool_run.get():
        return "An agent never answers: a person does."
    is_own = approval.requester_id == member.pk
    if approval.kind in OF_MEMBER:
        return "" if may_write(member, approval.session) else "Only whose session it is answers this."
    if is_own and approval.needs_other_person:
        return "Another person than the requester must answer this."
    if is_own:
        return "" if may_write(member, approval.session) else "Viewers do not answer."
    category = approval.tool.category.name
    if not member.has_right(Right.APPROVALS, category):
        return f"This needs the admin right {Right.APPROVALS.value} for {category}, or to be the requester."
    if outranked := why_not_to(member, approval.requester):
        return outranked
    if approval.needs_other_person and not member.has_access(Access.ADMIN):
        linked = [str(each) for each in linked_members(member) if each.pk == approval.requester_id]
        if linked:
            return f"{named(linked)} and you are linked by invitations or reset links that no admin made."
    return ""


def answerable_by(member: Membership) -> Q:
    """Build a condition on approvals for those that wait and that this member may answer; an account that is linked to
    the requester's is refused only when it answers. A delegated right costs one query."""
    waits = Q(status=ApprovalStatus.PENDING, expires_at__gt=Now())
    own = Q(requester=member) & (Q(kind__in=OF_MEMBER) | Q(needs_other_person=False))
    found = own if member.has_access(Access.MEMBER) else Q(pk__in=())
    reach = member.reach(Right.APPROVALS)
    if reach:
        others = ~Q(requester=member) & Q(kind=ApprovalKind.APPROVAL)
        if above := higher_than(member):
            others &= ~Q(requester__access__in=above)
        if not reach.covers(EVERY_CATEGORY):
            others &= Q(tool__category__name__in=reach.categories)
        found |= others
    return waits & found
