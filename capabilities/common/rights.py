"""May this member make the change? Admin rights, whole or limited to a category.

What one may *use* is in `pipeline/permissions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet

from capabilities.common.refused import ChangeRefused
from toolhub.tenants.authority import guarded_write, why_not_of
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Right

P = ParamSpec("P")
R = TypeVar("R")


class ChangeForbidden(ChangeRefused, PermissionDenied):
    """The change is more than the actor may make: it would widen their own use, or is about a member of higher access.

    Beside a form's field where a form shows it; a page or answer with the status 403 everywhere else.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message, code="forbidden")


def configuration_write(field: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that changes the configuration: see `guarded_write`. A refusal stands beside `field`."""
    return guarded_write(lambda message: ChangeForbidden(field, message))


def check_rank(actor: Membership | None, members: QuerySet[Membership], field: str = "") -> None:
    """Raise ChangeForbidden where one of these members has more access than the actor. One query, none for an admin."""
    reason = why_not_of(actor, members)
    if reason:
        raise ChangeForbidden(field, reason)


def may_administer(member: Membership, right: Right, categories: Iterable[str] = ()) -> bool:
    """Return whether the member holds the right whole, or limited to each of these categories. No category: only
    whole."""
    reach = member.reach(right)
    return all(reach.covers(name) for name in set(categories) or {EVERY_CATEGORY})


def require(actor: Membership | None, right: Right, categories: Iterable[str] = ()) -> None:
    """Raise PermissionDenied unless the actor holds the right. None, the service itself, may do anything."""
    named = sorted(set(categories))
    if actor is not None and not may_administer(actor, right, named):
        where = f" for {', '.join(named[:3])}" if named else ""
        raise PermissionDenied(f"This needs the admin right {right.value}{where}.")
