"""The audited writes of grants: one member's own allow or deny, why, and until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import check_rank, configuration_write, require
from capabilities.models import Category, Effect, Grant, Tool
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import hold_organisation
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rows.scope import system_scope

MAX_REASON = 2_000
#: Grants whose end one sweep puts on record.
LAPSED_AT_ONCE = 100


@dataclass(frozen=True)
class GrantContent:
    """Fields of a grant, as its form sends them: a tool or a category; `expires_at` is aware, None for never."""

    #: Public id.
    member: UUID
    effect: str
    tool: str = ""
    category: str = ""
    reason: str = ""
    expires_at: datetime | None = None


@configuration_write("member")
def give_grant(content: GrantContent, *, actor: Membership) -> Grant:
    """Allow or deny something to one member. A right limited to a category is enough for what is in it. Raises
    PermissionDenied without it; ChangeForbidden for a member of higher access; ChangeRefused for an unknown effect,
    member, tool or category, for a text or an end that is not taken, and for a grant that is there already."""
    if content.effect not in Effect.values:
        raise ChangeRefused("effect", f"The effect is one of {', '.join(Effect.values)}.")
    member = Membership.objects.select_related("user").filter(public_id=content.member, ended_at=None).first()
    if member is None:
        raise ChangeRefused("member", "There is no such member.", code="unknown")
    tool, category = named_thing(content.tool, content.category)
    require(actor, Right.ROLES, [category_of(tool, category)])
    check_rank(actor, Membership.objects.filter(pk=member.pk), "member")
    _check_text(content.reason, content.expires_at)
    same_grants = Grant.objects.filter(membership=member, tool=tool, category=category, effect=content.effect)
    if same_grants.filter(Q(expires_at=None) | Q(expires_at__gt=Now())).exists():
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
    record("grant.give", grant, actor=actor, after=_audited(grant))
    touch_registry(grant.organisation_id)
    return grant


@configuration_write("expires_at")
def update_grant(grant: Grant, *, reason: str, expires_at: datetime | None, actor: Membership) -> Grant:
    """Change reason and end of a grant; its member, effect and tool or category stay: give another one for that.

    One that had lapsed is in force again with a later end. Raises PermissionDenied without the right `roles`;
    ChangeForbidden for a member of higher access; ChangeRefused for a text or an end that is not taken.
    """
    require(actor, Right.ROLES, [category_of(grant.tool, grant.category)])
    check_rank(actor, Membership.objects.filter(pk=grant.membership_id))
    _check_text(reason, expires_at if expires_at != grant.expires_at else None)
    before = _audited(grant)
    fields = ["reason", "expires_at"]
    if expires_at != grant.expires_at:
        grant.lapsed_at = None
        fields.append("lapsed_at")
    grant.reason, grant.expires_at = reason.strip(), expires_at
    grant.save(update_fields=fields)
    after = _audited(grant)
    if before != after:
        record("grant.update", grant, actor=actor, before=before, after=after)
        touch_registry(grant.organisation_id)
    return grant


@configuration_write()
def revoke_grant(grant: Grant, *, actor: Membership) -> None:
    """Take it back, from the member's next call on. A second time changes nothing. Raises PermissionDenied without the
    right `roles`; ChangeForbidden for a member of higher access."""
    require(actor, Right.ROLES, [category_of(grant.tool, grant.category)])
    check_rank(actor, Membership.objects.filter(pk=grant.membership_id))
    if Grant.objects.filter(pk=grant.pk).delete()[0]:
        record("grant.revoke", grant, actor=actor, before=_audited(grant))
        touch_registry(actor.organisation_id)


def grants_to_lapse(without: Iterable[Any] = ()) -> list[tuple[int, int]]:
    """(key, organisation's key) of grants that have come to their end, which is not yet on record; `without` those.

    They do nothing from the moment they expire: what is asked of them reads the clock. One query.
    """
    with system_scope():
        over = Grant.objects.filter(lapsed_at=None, expires_at__lte=Now()).exclude(pk__in=list(without))
        return list(over.order_by("expires_at", "pk").values_list("pk", "organisation_id")[:LAPSED_AT_ONCE])


@transaction.atomic
def lapse_grant(grant_id: int) -> bool:
    """Put the end of one grant on record; False if another worker has, or it was extended or revoked meanwhile."""
    over = Grant.objects.filter(pk=grant_id, lapsed_at=None, expires_at__lte=Now())
    # The organisation before the grant, as every write of configuration: two that hold one each would wait forever.
    hold_organisation(Grant.objects.values_list("organisation_id", flat=True).filter(pk=grant_id).first() or 0)
    if not over.update(lapsed_at=Now()):
        return False
    grant = Grant.objects.select_related("membership__user", "tool", "category").get(pk=grant_id)
    record("grant.lapse", grant, actor=None, before=_audited(grant))
    touch_registry(grant.organisation_id)
    return True


def named_thing(tool: str, category: str) -> tuple[Tool | None, Category | None]:
    """The one row that is named, a tool with its category at hand. Raises ChangeRefused unless there is just one."""
    if bool(tool) == bool(category):
        raise ChangeRefused("tool", "Name a tool or a category, one of the two.")
    if tool:
        found = Tool.objects.select_related("category").filter(name=tool).first()
        if found is None:
            raise not_there("tool", "tool", tool)
        return found, None
    group = Category.objects.filter(name=category).first()
    if group is None:
        raise not_there("category", "category", category)
    return None, group


def category_of(tool: Tool | None, category: Category | None) -> str:
    """Name of the category that the thing is, or is in: a right for it is enough."""
    if category is not None:
        return category.name
    return tool.category.name if tool else ""


def _check_text(reason: str, expires_at: datetime | None) -> None:
    if len(reason) > MAX_REASON:
        raise ChangeRefused("reason", f"Keep the reason under {MAX_REASON:,} characters.")
    if expires_at is not None and expires_at <= timezone.now():
        raise ChangeRefused("expires_at", "This time has passed: a grant that has expired does nothing.")


def _audited(grant: Grant) -> dict[str, Any]:
    return {
        "member": str(grant.membership.user.email),
        "effect": grant.effect,
        "tool": grant.tool.name if grant.tool else "",
        "category": grant.category.name if grant.category else "",
        "reason": grant.reason,
        "expires_at": grant.expires_at.isoformat() if grant.expires_at else "",
    }
