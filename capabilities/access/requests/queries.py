"""Requests for a grant, as pages and the API show them: one's own, and those that one may decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import Http404

from capabilities.models import GrantRequest, RequestStatus, Tool
from toolhub.tenants.authority import higher_than
from toolhub.tenants.menu import notice
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Right
from toolhub.tenants.rows.keyset import Keyset, Page

REQUESTS_A_PAGE = 50
#: Requests that wait for one who may decide them, the oldest first.
WAITING_SHOWN = 50


def requests_seen_by(member: Membership) -> QuerySet[GrantRequest]:
    """The member's own, and with the right `roles` those of everybody in the categories that it reaches."""
    requests = GrantRequest.objects.select_related(
        "membership__user", "tool__category", "category", "decided_by__user", "grant"
    )
    reach = member.reach(Right.ROLES)
    if reach.covers(EVERY_CATEGORY):
        return requests
    reached = Q(category__name__in=reach.categories) | Q(tool__category__name__in=reach.categories)
    return requests.filter(Q(membership=member) | reached if reach else Q(membership=member))


def request_or_404(member: Membership, request_id: UUID) -> GrantRequest:
    """Return a request that this member may see. Raises Http404, also for one that the member may not see."""
    request = requests_seen_by(member).filter(public_id=request_id).first()
    if request is None:
        raise Http404("No such request.")
    return request


@dataclass(frozen=True)
class WaitingRequests:
    """The first ones that wait for this member's word, and whether there are more."""

    requests: Sequence[GrantRequest]
    has_more: bool


def waiting_for(member: Membership) -> WaitingRequests:
    """Others' requests that this member may decide, of people who are still here. One query."""
    found = list(_waiting_for(member).order_by("pk")[: WAITING_SHOWN + 1])
    return WaitingRequests(found[:WAITING_SHOWN], len(found) > WAITING_SHOWN)


def requests_notice(member: Membership) -> tuple[int, str]:
    """Return the number of requests that this member may decide, counted to one more than a page shows, and a sentence
    that says so.

    One query; none for a member who may decide nothing.
    """
    if not member.reach(Right.ROLES):
        return 0, ""
    count = _waiting_for(member).order_by()[: WAITING_SHOWN + 1].count()
    one, many = "request for access is waiting for you", "requests for access are waiting for you"
    return notice(count, one, many, at_most=WAITING_SHOWN)


def _waiting_for(member: Membership) -> QuerySet[GrantRequest]:
    waiting = requests_seen_by(member).filter(status=RequestStatus.WAITING, membership__ended_at=None)
    return waiting.exclude(membership=member).exclude(membership__access__in=higher_than(member))


def requests_page(member: Membership, *, after: str = "", before: str = "") -> Page[GrantRequest]:
    """Newest first: the member's own, and what became of those that he or she may see. One query."""
    shown = requests_seen_by(member).filter(Q(membership=member) | ~Q(status=RequestStatus.WAITING))
    return Keyset(shown, ("-pk",)).page(after, before)


def waiting_request(member: Membership, tool: Tool) -> GrantRequest | None:
    """The member's own request for the tool or its category that waits. One query."""
    named = Q(tool=tool) | Q(category=tool.category_id)
    own = GrantRequest.objects.select_related("tool", "category").filter(named, membership=member)
    return own.filter(status=RequestStatus.WAITING).order_by("-pk").first()


def tools_to_suggest() -> Sequence[str]:
    """Names of tools that the form suggests, not all of them in a large house. One query."""
    return list(Tool.objects.filter(is_enabled=True).order_by("name").values_list("name", flat=True)[:500])
