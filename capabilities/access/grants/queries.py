"""Grants, as pages and the API show them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import Http404

from capabilities.models import Grant, Tool
from capabilities.models.permissions import in_force
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.keyset import Keyset, Page

GRANTS_A_PAGE = 50


def grants_shown() -> QuerySet[Grant]:
    """Return the grants with what they name, and whether each is `in_force`."""
    return Grant.objects.select_related("membership__user", "tool__category", "category", "created_by__user").annotate(
        in_force=Exists(Grant.objects.in_force().filter(pk=OuterRef("pk")))
    )


def grants_page(*, q: str = "", effect: str = "", state: str = "", after: str = "", before: str = "") -> Page[Grant]:
    """Newest first. `q` is looked for in members and in names of tools and categories. One query."""
    grants = grants_shown()
    if q:
        grants = grants.filter(
            Q(membership__user__email__icontains=q)
            | Q(membership__user__first_name__icontains=q)
            | Q(membership__user__last_name__icontains=q)
            | Q(tool__name__icontains=q)
            | Q(category__name__icontains=q)
        )
    if effect:
        grants = grants.filter(effect=effect)
    if state:
        grants = grants.filter(in_force()) if state == "in_force" else grants.exclude(in_force())
    return Keyset(grants, ("-pk",)).page(after, before)


def grant_numbers() -> tuple[int, int]:
    """Grants in all, and in force. One query."""
    row = Grant.objects.aggregate(every=Count("pk"), in_force=Count("pk", filter=in_force()))
    return row["every"], row["in_force"]


def grant_or_404(grant_id: UUID) -> Grant:
    """Return the grant of this id. Raises Http404 where the organisation has none."""
    grant = grants_shown().filter(public_id=grant_id).first()
    if grant is None:
        raise Http404("No such grant.")
    return grant


def names_to_suggest() -> tuple[Sequence[str], Sequence[str]]:
    """E-mail addresses and tool names that a grant's form suggests, not all of them in a large house. Two queries."""
    members = Membership.objects.filter(ended_at=None).order_by("user__email")
    tools = Tool.objects.order_by("name")
    return list(members.values_list("user__email", flat=True)[:200]), list(tools.values_list("name", flat=True)[:500])
