"""May this member make the change? Admin rights, whole or limited to a category. What one may *use* is in `active`."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.exceptions import PermissionDenied

from toolhub.tenants.models import EVERY_CATEGORY, Membership, Right


def may_administer(member: Membership, right: Right, categories: Iterable[str] = ()) -> bool:
    """Whether the member holds the right whole, or limited to each of these categories. No category: only whole."""
    reach = member.reach(right)
    return all(reach.covers(name) for name in set(categories) or {EVERY_CATEGORY})


def require(actor: Membership | None, right: Right, categories: Iterable[str] = ()) -> None:
    """Raise PermissionDenied unless the actor holds the right. None, the service itself, may do anything."""
    named = sorted(set(categories))
    if actor is not None and not may_administer(actor, right, named):
        where = f" for {', '.join(named[:3])}" if named else ""
        raise PermissionDenied(f"This needs the admin right {right.value}{where}.")
