"""The audited writes of requests for a grant: a member asks and says why, somebody with the right decides, once.

What is granted is a grant like any other, with an end: it lapses by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.access.grants.writes import MAX_REASON, GrantContent, category_of, give_grant, named_thing
from capabilities.choosing.pipeline.permissions import permission_for, permissions_of, tool_key
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import check_rank, configuration_write, require
from capabilities.models import Category, Effect, Grant, GrantRequest, RequestStatus, Tool
from toolhub.tenants.audit.writes import record
from toolhub.tenants.authority import hold_organisation
from toolhub.tenants.models import Access, Membership, Right

#: Hours that a request may be for, and those that one is for unless it says so.
MAX_HOURS = 24 * 90
USUAL_HOURS = 8


@dataclass(frozen=True)
class RequestContent:
    """Fields of a request, as its form sends them. It names a tool or a category; `reason` is never empty."""

    tool: str = ""
    category: str = ""
    reason: str = ""
    hours: int = USUAL_HOURS


@transaction.atomic
def ask_for_grant(content: RequestContent, *, member: Membership) -> GrantRequest:
    """Ask to use a tool or a category for a time. One request for a thing waits at a time. Raises PermissionDenied for
    viewers; ChangeRefused for an unknown tool or category, for a reason or hours that are not taken, for what the
    member may use anyway, and for a second request."""
    if not member.has_access(Access.MEMBER):
        raise PermissionDenied("This needs at least the access level member.")
    tool, category = named_thing(content.tool, content.category)
    _check_text("reason", content.reason, is_needed=True)
    _check_hours(content.hours)
    _check_lacks(member, tool, category)
    try:
        with transaction.atomic():
            request = GrantRequest.objects.create(
                organisation_id=member.organisation_id,
                membership=member,
                tool=tool,
                category=category,
                reason=content.reason.strip(),
                hours=content.hours,
            )
    except IntegrityError as error:
        field = "tool" if tool else "category"
        message = f"You have asked for {tool or category} already: that request waits for an answer."
        raise ChangeRefused(field, message, code="taken") from error
    record("grant_request.ask", request, actor=member, after=_audited(request))
    return request


@transaction.atomic
def withdraw_request(request: GrantRequest, *, member: Membership) -> GrantRequest:
    """Take it back, as the one who asked. Raises PermissionDenied for anybody else; ChangeRefused where it was answered
    already."""
    if request.membership_id != member.pk:
        raise PermissionDenied("A request is taken back by whoever asked, and nobody else.")
    hold_organisation(member.organisation_id)
    before = _audited(request)
    _settle(request, RequestStatus.WITHDRAWN)
    record("grant_request.withdraw", request, actor=member, before=before, after=_audited(request))
    return request


@configuration_write("hours")
def grant_request(request: GrantRequest, *, hours: int, answer: str = "", actor: Membership) -> GrantRequest:
    """Give what was asked for, for so many hours from now: `request.grant` is the grant.

    Refused (`conflict`) if it was decided meanwhile, or if a deny stands in the way: the allow would do nothing.
    """
    _check_decider(request, actor)
    _check_hours(hours)
    _check_text("answer", answer)
    before = _audited(request)
    _settle(request, RequestStatus.GRANTED, decided_by=actor, answer=answer.strip())
    _check_no_deny(request)
    content = GrantContent(
        member=request.membership.public_id,
        effect=Effect.ALLOW,
        tool=request.tool.name if request.tool else "",
        category=request.category.name if request.category else "",
        reason=request.reason,
        expires_at=timezone.now() + timedelta(hours=hours),
    )
    request.grant = give_grant(content, actor=actor)
    request.save(update_fields=["grant"])
    after = _audited(request) | {"granted_hours": hours, "grant": str(request.grant.public_id)}
    record("grant_request.grant", request, actor=actor, before=before, after=after)
    return request


@configuration_write("answer")
def refuse_request(request: GrantRequest, *, answer: str, actor: Membership) -> GrantRequest:
    """Say no, and why: whoever asked reads the answer. Refused (`conflict`) if it was decided meanwhile."""
    _check_decider(request, actor)
    _check_text("answer", answer, is_needed=True)
    before = _audited(request)
    _settle(request, RequestStatus.REFUSED, decided_by=actor, answer=answer.strip())
    record("grant_request.refuse", request, actor=actor, before=before, after=_audited(request))
    return request


def _settle(request: GrantRequest, status: RequestStatus, **fields: Any) -> None:
    """End the wait, if it still lasts: of several who decide at once, one does."""
    waiting = GrantRequest.objects.filter(pk=request.pk, status=RequestStatus.WAITING)
    if not waiting.update(status=status, decided_at=Now(), **fields):
        raise ChangeRefused("request", "This request does not wait any more: somebody was faster.", code="conflict")
    request.refresh_from_db(fields=["status", "decided_at", "decided_by", "answer"])


def _check_decider(request: GrantRequest, actor: Membership) -> None:
    require(actor, Right.ROLES, [category_of(request.tool, request.category)])
    check_rank(actor, Membership.objects.filter(pk=request.membership_id))
    if request.membership_id == actor.pk:
        raise PermissionDenied("Nobody decides on a request of their own: somebody else with the right roles does.")


def _check_lacks(member: Membership, tool: Tool | None, category: Category | None) -> None:
    """Raise ChangeRefused where the member may use the thing already."""
    if tool is not None:
        permission = permission_for(member, tool)
        if permission.allowed:
            raise ChangeRefused("tool", f"You may use {tool} already: {permission.reason}.")
    elif category is not None and _may_use_all(member, category):
        raise ChangeRefused("category", f"You may use every tool of {category} already.")


def _may_use_all(member: Membership, category: Category) -> bool:
    permissions = permissions_of(member)
    if permissions.rights.category_grants.get(category.pk) == "allow":
        return True
    tools = Tool.objects.filter(category=category).values_list("pk", "category_id", "name", "kind")
    answers = [permissions.decide(tool_key(*row)).allowed for row in tools]
    return bool(answers) and all(answers)


def _check_no_deny(request: GrantRequest) -> None:
    named = Q(category=request.category) if request.category else Q(tool=request.tool)
    if request.tool:
        named |= Q(category=request.tool.category_id)
    denies = Grant.objects.in_force().filter(named, membership=request.membership_id, effect=Effect.DENY)
    deny = denies.select_related("tool", "category").first()
    if deny is not None:
        denied = deny.tool or f"all of {deny.category}"
        sentence = f"A grant denies {denied} to {request.membership}, and a deny beats every allow"
        raise ChangeRefused("request", f"{sentence}: revoke that deny first.", code="conflict")


def _check_text(field: str, text: str, *, is_needed: bool = False) -> None:
    if is_needed and not text.strip():
        raise ChangeRefused(field, f"Give {'a reason' if field == 'reason' else 'an answer'}: somebody will read it.")
    if len(text) > MAX_REASON:
        raise ChangeRefused(field, f"Keep the {field} under {MAX_REASON:,} characters.")


def _check_hours(hours: int) -> None:
    if not 1 <= hours <= MAX_HOURS:
        raise ChangeRefused("hours", f"Give 1 to {MAX_HOURS:,} hours.")


def _audited(request: GrantRequest) -> dict[str, Any]:
    return {
        "member": str(request.membership.user.email),
        "tool": request.tool.name if request.tool else "",
        "category": request.category.name if request.category else "",
        "reason": request.reason,
        "hours": request.hours,
        "status": str(request.status),
        "answer": request.answer,
    }
