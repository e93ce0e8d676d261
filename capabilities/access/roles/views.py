"""The pages of roles: the list, a new one, and one with its words, rules and members.

What changes somebody's tools is shown first, and saved with the stamp of what was shown.
"""

from __future__ import annotations

from dataclasses import astuple
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.access.previews import impact_of_roles
from capabilities.access.roles.forms import RoleForm, posted_members, posted_rules
from capabilities.access.roles.matrix_views import MOVED
from capabilities.access.roles.queries import (
    RoleMembers,
    role_category,
    role_matrix,
    role_members,
    role_or_404,
    roles_shown,
)
from capabilities.access.roles.writes import (
    RoleContent,
    RolesChanged,
    Rule,
    check_rules,
    create_role,
    delete_role,
    require_for_rules,
    rules_of,
    set_role_rules,
    stamp_of,
    update_role,
)
from capabilities.access.roles_above import locked_roles
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.previews import asked_of, digest
from capabilities.common.refused import ChangeRefused
from capabilities.models import Role
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
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


@require_http_methods(["GET", "POST"])
@signed_in
def role_create(request: MemberRequest, org: str) -> HttpResponse:
    """Show the form of a new role. The tools that it would open, and the members who would get them, are shown before
    it is added where it has members."""
    member = member_or_404(request, right=Right.ROLES)
    form = RoleForm(request.POST or None)
    rules = posted_rules(request.POST, ())
    members = role_members(None, posted_members(request.POST), _member_query(request), actor=member)
    context: dict[str, Any] = {}
    if "find" not in request.POST and form.is_valid():
        content = form.content(rules)
        asked = digest(_asked_of_role(content, members))
        if "preview" not in request.POST and (request.POST.get("stamp") == asked or not members.given):
            try:
                role = create_role(content, given=members.given, actor=member)
            except ChangeRefused as error:
                show_refusal(form, error)
            else:
                messages.success(request, f"{role} is added.")
                return redirect("role_detail", org, role.slug)
        else:
            try:
                save = partial(create_role, content, given=members.given, actor=member)
                context["impact"] = impact_of_roles(save, [])
                context["stamp"] = asked if members.given else ""
            except ChangeRefused as error:
                show_refusal(form, error)
    return _role_page(request, None, form, rules, members, True, context)


@require_http_methods(["GET", "POST"])
@signed_in
def role_detail(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    """One role: its words, its matrix and its members are one form. With a right for a category only rules are saved.

    What changes its mode, its rules or its members is shown first, and saved with the stamp of what was shown. Of a
    role that a member of higher access has, only the other members are changed.
    """
    member = member_or_404(request, right=Right.ROLES, category=None)
    role = role_or_404(slug)
    may_change = member.has_right(Right.ROLES)
    stored = tuple(rules_of(role))
    rules = posted_rules(request.POST, stored)
    locked = locked_roles(member).get(role.pk, "")
    is_posted = request.method == "POST" and may_change
    form = RoleForm(request.POST if is_posted else None, role=role, is_locked=bool(locked))
    ticks = posted_members(request.POST) if may_change else {}
    members = role_members(role, ticks, _member_query(request), actor=member)
    more: dict[str, Any] = {"locked": locked}
    if request.method == "POST" and "find" not in request.POST and (not may_change or form.is_valid()):
        content = form.content(rules) if may_change else RoleContent(role.slug, role.name, mode=role.mode, rules=rules)
        require_for_rules(member, {role: (stored, rules)})
        try:
            check_rules(rules)
        except ChangeRefused as error:
            show_refusal(form, error) if may_change else messages.error(request, str(error))
            return _role_page(request, role, form, rules, members, may_change, more, stored)
        asked = asked_of(request, stamp_of([role]), _asked_of_role(content, members))
        is_felt = (content.mode, rules) != (role.mode, stored) or bool(members.given or members.taken)
        moved = asked.has_moved
        if asked.is_shown or asked.may_be_saved(is_felt=is_felt):
            try:
                _save(role, content, members, member, may_change, stamp=asked.state)
            except ChangeRefused as error:
                show_refusal(form, error) if may_change else messages.error(request, str(error))
                return _role_page(request, role_or_404(slug), form, rules, members, may_change, more, stored)
            except RolesChanged:
                moved = True
            else:
                messages.success(request, f"{role} is saved. The change applies from the next call on.")
                return redirect("role_detail", org, role.slug)
        try:
            impact = impact_of_roles(partial(_save, role_or_404(slug), content, members, member, may_change), [role])
        except ChangeRefused as error:
            show_refusal(form, error) if may_change else messages.error(request, str(error))
            return _role_page(request, role, form, rules, members, may_change, more, stored)
        more |= {"impact": impact, "stamp": asked.stamp, "moved": MOVED if moved else ""}
    return _role_page(request, role, form, rules, members, may_change, more, stored)


def _save(
    role: Role,
    content: RoleContent,
    members: RoleMembers,
    actor: Membership,
    may_change: bool,
    stamp: str | None = None,
) -> None:
    """Save the role and its members; with a right for a category, only its rules."""
    if may_change:
        update_role(role, content, given=members.given, taken=members.taken, actor=actor, stamp=stamp)
    else:
        set_role_rules(role, content.rules or (), actor=actor, stamp=stamp)


def _asked_of_role(content: RoleContent, members: RoleMembers) -> list[Any]:
    """Return the mode, the rules and the changed members of a role's form, as JSON values."""
    people = [sorted(str(each.public_id) for each in some) for some in (members.given, members.taken)]
    return [content.mode, [astuple(rule) for rule in content.rules or ()], *people]


def _member_query(request: MemberRequest) -> str:
    return request.POST.get("member_q", "")[:100].replace("\x00", "")


def _role_page(
    request: MemberRequest,
    role: Role | None,
    form: RoleForm,
    rules: tuple[Rule, ...],
    members: RoleMembers,
    may_change: bool,
    more: dict[str, Any],
    stored: tuple[Rule, ...] = (),
) -> HttpResponse:
    if "find" in request.POST:
        form = RoleForm(initial=request.POST.dict(), role=role, is_locked=bool(more.get("locked")))
    matrix = role_matrix(rules, stored)
    context = {
        "role": role,
        "form": form,
        "matrix": matrix,
        "members": members,
        "member_q": _member_query(request),
        "may_change": may_change,
        **more,
    }
    status = 409 if more.get("moved") and not request.htmx else status_of(form)
    return render(request, "capabilities/access/role_form.html", context, status=status)
