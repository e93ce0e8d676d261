"""The pages of roles."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_POST

from capabilities.access.roles.queries import role_category, role_or_404, roles_shown
from capabilities.access.roles.writes import delete_role, rules_of
from capabilities.access.roles_above import locked_roles
from capabilities.common.pages import refused
from capabilities.common.refused import ChangeRefused
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def role_list(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request, right=Right.ROLES, category=None)
    context = {"roles": roles_shown(), "may_add": member.has_right(Right.ROLES)}
    return render(request, "capabilities/access/role_list.html", context)


@require_GET
@signed_in
def role_tools(request: MemberRequest, org: str, slug: str, name: str) -> HttpResponse:
    """The tools of one category in a role's matrix, where the catalogue is too long to show them all at once."""
    member = member_or_404(request, right=Right.ROLES, category=None)
    role = role_or_404(slug)
    line = role_category(rules_of(role), name)
    if not request.htmx:
        address = reverse("role_matrix", args=[org])
        return redirect(f"{address}?{urlencode({'roles': role.slug, 'open': line.name})}")
    context = {"role": role, "line": line, "locked": locked_roles(member).get(role.pk, "")}
    return render(request, "capabilities/access/_role_tools.html", context)


@require_POST
@signed_in
def role_delete(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request, right=Right.ROLES)
    role = role_or_404(slug)
    try:
        losing = delete_role(role, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "role_detail", org, slug)
    messages.success(request, f"{role} is removed; {losing} member{'s' if losing != 1 else ''} had it.")
    return redirect("role_list", org)
