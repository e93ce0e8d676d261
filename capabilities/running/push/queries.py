"""The browsers of a member, as the page shows them."""

from __future__ import annotations

from django.db.models import QuerySet

from capabilities.models import PushSubscription
from toolhub.tenants.models import Membership


def browsers_of(member: Membership) -> QuerySet[PushSubscription]:
    """Return the member's browsers, newest first, without their keys."""
    return PushSubscription.objects.filter(membership=member).defer("values_json").order_by("-pk")
