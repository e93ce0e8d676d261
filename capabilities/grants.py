"""The audited writes of grants: one member's own allow or deny, why, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.catalogue import touch_registry
from capabilities.models import Category, Effect, Grant, Tool
from capabilities.refused import ChangeRefused, not_there
from capabilities.rights import require
from toolhub.tenants.audit import record
from toolhub.tenants.models import Membership, Right

MAX_REASON = 2_000


@dataclass(frozen=True)
class GrantContent:
    """What a grant's form says. It names a tool or a category; `expires_at` is aware, None for never."""

    member: int
    effect: str
    tool: str = ""
    category: str = ""
    reason: str = ""
    expires_at: datetime | None = None


@transaction.atomic
def give_grant(content: GrantContent, *, actor: Membership) -> Grant:
    """Allow or deny something to one member. A right limited to a category is enough for what is in it."""
    if content.effect not in Effect.values:
        raise ChangeRefused("effect", f"The effect is one of {', '.join(Effect.values)}.")
    member = Membership.objects.select_related("user").filter(pk=content.member, ended_at=None).first()
    if member is None:
        raise ChangeRefused("member", "There is no such member.", code="unknown")
    tool, category = _thing(content)
    require(actor, Right.ROLES, [tool.category.name if tool else category.name if category else ""])
    _check_text(content.reason, content.expires_at)
    twins = Grant.objects.filter(membership=member, tool=tool, category=category, effect=content.effect)
    if twins.filter(Q(expires_at=None) | Q(expires_at__gt=Now())).exists():
        raise ChangeRefused("member", f"{member} has this grant already: change or revoke that one.", code="taken")
    grant = Grant.objects.create(
        organisation_id=actor.organisation_id,
        membership=member,
        tool=tool,
        category=category,
        effect=content.effect,
        reason=content.reason.strip(),
        expires_at=content.expires_at,
        created_by=actor,
    )
    record("grant.give", grant, actor=actor, after=_told(grant))
    touch_registry(grant.organisation_id)
    return grant


@transaction.atomic
def update_grant(grant: Grant, *, reason: str, expires_at: datetime | None, actor: Membership) -> Grant:
    """Change why it is there and until when; what it says of whom stays: give another one for that."""
    require(actor, Right.ROLES, [_category_of(grant)])
    _check_text(reason, expires_at if expires_at != grant.expires_at else None)
    before = _told(grant)
    grant.reason, grant.expires_at = reason.strip(), expires_at
    grant.save(update_fields=["reason", "expires_at"])
    after = _told(grant)
    if before != after:
        record("grant.update", grant, actor=actor, before=before, after=after)
        touch_registry(grant.organisation_id)
    return grant


@transaction.atomic
def revoke_grant(grant: Grant, *, actor: Membership) -> None:
    """Take it back, from the member's next call on."""
    require(actor, Right.ROLES, [_category_of(grant)])
    record("grant.revoke", grant, actor=actor, before=_told(grant))
    grant.delete()
    touch_registry(actor.organisation_id)


def _thing(content: GrantContent) -> tuple[Tool | None, Category | None]:
    """The one row that the content names."""
    if bool(content.tool) == bool(content.category):
        raise ChangeRefused("tool", "Name a tool or a category, one of the two.")
    if content.tool:
        tool = Tool.objects.select_related("category").filter(name=content.tool).first()
        if tool is None:
            raise not_there("tool", "tool", content.tool)
        return tool, None
    category = Category.objects.filter(name=content.category).first()
    if category is None:
        raise not_there("category", "category", content.category)
    return None, category


def _check_text(reason: str, expires_at: datetime | None) -> None:
    if len(reason) > MAX_REASON:
        raise ChangeRefused("reason", f"Keep the reason under {MAX_REASON:,} characters.")
    if expires_at is not None and expires_at <= timezone.now():
        raise ChangeRefused("expires_at", "This time has passed: a grant that has expired does nothing.")


def _category_of(grant: Grant) -> str:
    if grant.category is not None:
        return grant.category.name
    return grant.tool.category.name if grant.tool else ""


def _told(grant: Grant) -> dict[str, Any]:
    return {
        "member": str(grant.membership.user.email),
        "effect": grant.effect,
        "tool": grant.tool.name if grant.tool else "",
        "category": grant.category.name if grant.category else "",
        "reason": grant.reason,
        "expires_at": grant.expires_at.isoformat() if grant.expires_at else "",
    }
