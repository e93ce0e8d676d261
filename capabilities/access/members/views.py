"""The page of what one member may use, and the changes that are made on it. What they mean is shown before."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_POST

from capabilities.access.grants.forms import ToolGrantForm
from capabilities.access.grants.writes import give_grant
from capabilities.access.members.forms import UsableFilter
from capabilities.access.members.queries import (
    UsableTool,
    grants_of_member,
    grants_on,
    roles_of_member,
    shown_member_or_404,
    usable_tools,
)
from capabilities.access.previews import impact_of_roles
from capabilities.access.roles.writes import roles_named, set_roles_of, stamp_of
from capabilities.access.until import NEVER
from capabilities.common.pages import refused
from capabilities.common.previews import digest
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden, check_rank
from capabilities.models import Role
from toolhub.tenants.access import MemberRequest, check_right, member_or_404
from toolhub.tenants.authority import why_not_to
from toolhub.tenants.models import NOWHERE, Membership, Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def member_tools(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    """Show the tools that a member may use and why: to the member, and to those with the right `roles` or `members`."""
    actor = member_or_404(request)
    if actor.public_id != member_id and not actor.reach(Right.MEMBERS):
        check_right(actor, Right.ROLES, None)
    return _page(request, actor, shown_member_or_404(member_id), {})


@require_POST
@signed_in
def member_roles(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    """Give the member the roles that are ticked, and no others. Who loses or gains what is shown before."""
    actor = member_or_404(request, right=Right.ROLES)
    shown = shown_member_or_404(member_id)
    posted = [slug.replace("\x00", "\ufffd") for slug in request.POST.getlist("roles")]
    try:
        check_rank(actor, Membership.objects.filter(pk=shown.pk), "roles")
        ticked = roles_named(posted)
    except ChangeForbidden as error:
        return refused(request, error, "member_tools", org, member_id)
    except ChangeRefused as error:
        return _page(request, actor, shown, {"roles_error": str(error), "ticked": set(posted)}, status=422)
    roles_before = {role.slug: role for role in roles_of_member(shown)}
    changed = [(ticked | roles_before)[slug] for slug in sorted(ticked.keys() ^ roles_before.keys())]
    if not changed:
        messages.info(request, f"The roles of {shown} are the same as before.")
        return redirect("member_tools", org, member_id)
    asked = [[role.pk, role.slug in ticked] for role in changed]
    stamp = digest([stamp_of(changed), str(shown.public_id), asked])
    if request.POST.get("stamp") == stamp:
        try:
            set_roles_of(shown, list(ticked), actor=actor)
        except ChangeRefused as error:
            return refused(request, error, "member_tools", org, member_id)
        messages.success(request, f"The roles of {shown} are saved. The change applies from the next call on.")
        return redirect("member_tools", org, member_id)
    try:
        impact = impact_of_roles(lambda: set_roles_of(shown, list(ticked), actor=actor), changed)
    except ChangeRefused as error:
        return refused(request, error, "member_tools", org, member_id)
    return _page(request, actor, shown, {"impact": impact, "stamp": stamp, "ticked": set(ticked)})


@require_POST
@signed_in
def member_grant(request: MemberRequest, org: str, member_id: UUID) -> HttpResponse:
    """Allow or deny the member one tool, beside which the form stands."""
    actor = member_or_404(request, right=Right.ROLES, category=None)
    shown = shown_member_or_404(member_id)
    form = ToolGrantForm(request.POST)
    if not form.is_valid():
        return _page(request, actor, shown, {"wrong": form}, status=422)
    try:
        grant = give_grant(form.content(shown.public_id), actor=actor)
    except ChangeRefused as error:
        return refused(request, error, "member_tools", org, member_id)
    messages.success(request, f"Saved: {grant}. It applies from the next call on.")
    return _back(request, shown)


def _back(request: MemberRequest, shown: Membership) -> HttpResponse:
    """The page as it was filtered."""
    response = redirect("member_tools", shown.organisation.slug, shown.public_id)
    address = UsableFilter(request.GET)
    query = urlencode({name: value for name, value in address.values().items() if value})
    if query:
        response["Location"] += f"?{query}"
    return response


def _page(
    request: MemberRequest, actor: Membership, shown: Membership, extra: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    address = UsableFilter(request.GET)
    filters = address.filters
    usable = usable_tools(
        shown,
        q=filters["q"],
        category=filters["category"],
        only_allowed=filters["show"] != "all" and not filters["q"],
        **address.place,
    )
    grants, has_more_grants = grants_of_member(shown)
    own = grants_on(usable.page.rows, shown)
    why_locked = why_not_to(actor, shown)
    reach = actor.reach(Right.ROLES) if not why_locked else NOWHERE
    for grant in (*grants, *own.values()):
        category = grant.tool.category.name if grant.tool else grant.category.name if grant.category else ""
        grant.may_revoke = reach.covers(category)  # type: ignore[attr-defined]
    roles = list(Role.objects.order_by("name", "pk"))
    slugs = {role.slug for role in roles_of_member(shown)}
    ticked = extra.pop("ticked", slugs)
    for role in roles:
        role.is_ticked = role.slug in ticked  # type: ignore[attr-defined]
    may_set_roles = actor.has_right(Right.ROLES) and not why_locked
    context = {
        "shown": shown,
        **address.context(usable.page),
        "usable": usable,
        "lines": [_line(tool, own.get(tool.name), reach.covers(tool.category)) for tool in usable.page.rows],
        "roles": roles if may_set_roles else [role for role in roles if role.slug in slugs],
        "may_set_roles": may_set_roles,
        "grants": grants,
        "has_more_grants": has_more_grants,
        "more_categories": len(usable.categories) - len(usable.largest),
        "rights": shown.admin_rights.order_by("right", "category"),
        "may_see_roles": bool(actor.reach(Right.ROLES)),
        "why_locked": why_locked,
        "may_see_member": actor.has_right(Right.MEMBERS),
        "may_ask": actor.pk == shown.pk,
        **extra,
    }
    return render(request, "capabilities/access/member_tools.html", context, status=status)


def _line(tool: UsableTool, grant: Any, may_grant: bool) -> dict[str, Any]:
    """A tool, the member's own grant on it, and a form for one where there is none and the actor may give it."""
    line: dict[str, Any] = {"tool": tool, "grant": grant}
    if may_grant and grant is None and not (tool.answer.stage == "grants" and not tool.answer.allowed):
        effect = "deny" if tool.answer.allowed else "allow"
        until = NEVER if effect == "deny" else "8h"
        initial = {"tool": tool.name, "effect": effect, "until": until}
        line["form"] = ToolGrantForm(initial=initial, auto_id=f"grant-{tool.name}-%s")
        line["effect"] = effect
    return line
