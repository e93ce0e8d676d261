"""The pages that change what roles open. Each shows first whom it changes, and saves what was shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from capabilities.access.roles.forms import RoleForm, posted_members, posted_rules
from capabilities.access.roles.queries import RoleMembers, role_matrix, role_members, role_or_404
from capabilities.access.roles.writes import (
    RoleContent,
    RolesChanged,
    Rule,
    check_rules,
    create_role,
    require_for_rules,
    rules_of,
    set_role_rules,
    set_rules_of_roles,
    stamp_of,
    update_role,
)
from capabilities.access.roles_above import locked_roles
from capabilities.common.pages import show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import Role
from sessions.previews.matrix import (
    Asked,
    Place,
    changed_rules,
    check_changes,
    matrix_roles,
    matrix_rows,
    posted_changes,
    rules_of_roles,
)
from sessions.previews.roles import NewRole, impact_of
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in

MOVED = "A role was changed in the meantime: nothing is saved yet. This is what your changes would do now."


# -- All roles --------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
@signed_in
def matrix(request: MemberRequest, org: str) -> HttpResponse:
    """Roles by categories and tools. A first POST shows whom the changes change, one with its stamp saves them."""
    member = member_or_404(request, right=Right.ROLES, category=None)
    asked = asked_of(request)
    if request.method == "POST":
        return _changed(request, member, asked)
    if request.htmx and len(asked.opened) == 1:
        return _category(request, member, asked)
    return _matrix_page(request, member, asked, {}, {})


def asked_of(request: MemberRequest) -> Asked:
    def several(name: str) -> tuple[str, ...]:
        return tuple(word for text in request.GET.getlist(name) for word in text.split(",") if word)

    q, after = (request.GET.get(name, "")[:100].replace("\x00", "") for name in ("q", "after"))
    opened = tuple(name.replace("\x00", "") for name in several("open"))
    return Asked(several("roles"), opened, q, after)


def _category(request: MemberRequest, member: Membership, asked: Asked) -> HttpResponse:
    _, roles = matrix_roles(asked.roles)
    rows = matrix_rows(roles, asked, {}, member.reach(Right.ROLES), locked_roles(member), only=asked.opened[0])
    context = {"row": rows[0] if rows else None, "roles": roles, "roles_query": _query(roles)}
    return render(request, "sessions/previews/_matrix_tools.html", context)


def _changed(request: MemberRequest, member: Membership, asked: Asked) -> HttpResponse:
    try:
        changes = posted_changes(request.POST)
        roles = check_changes(changes)
        if not changes:
            raise ChangeRefused("rules", "Nothing was changed.")
    except ChangeRefused as error:
        return _matrix_page(request, member, asked, {}, {"refusal": str(error)}, status=422)
    stored = rules_of_roles(roles.values())
    rules = {role: changed_rules(role, stored[role.pk], changes) for role in roles.values()}
    require_for_rules(member, {role: (stored[role.pk], lines) for role, lines in rules.items()})
    stamp = f"{stamp_of(roles.values())}.{_digest(sorted([*place, said] for place, said in changes.items()))}"
    asked_stamp = request.POST.get("stamp", "")
    moved = bool(asked_stamp) and asked_stamp.partition(".")[0] != stamp.partition(".")[0]
    if asked_stamp == stamp and "preview" not in request.POST:
        try:
            set_rules_of_roles(rules, actor=member, stamp=stamp.partition(".")[0])
        except ChangeRefused as error:
            return _matrix_page(request, member, asked, changes, {"refusal": str(error)}, status=422)
        except RolesChanged:
            moved = True
        else:
            messages.success(request, f"Saved: {', '.join(sorted(map(str, rules)))}. It counts from the next call on.")
            return redirect(request.get_full_path())
    impact = impact_of([NewRole(role, role.mode, lines) for role, lines in rules.items()])
    context = {"impact": impact, "stamp": stamp, "moved": MOVED if moved else ""}
    if request.htmx:
        return render(request, "sessions/previews/_impact.html", context)
    return _matrix_page(request, member, asked, changes, context, status=409 if moved else 200)


def _matrix_page(
    request: MemberRequest,
    member: Membership,
    asked: Asked,
    changes: Mapping[Place, str],
    more: dict[str, Any],
    *,
    status: int = 200,
) -> HttpResponse:
    every, roles = matrix_roles(asked.roles)
    rows = matrix_rows(roles, asked, changes, member.reach(Right.ROLES), locked_roles(member))
    lines = [*(row.cells for row in rows), *(tool.cells for row in rows for tool in row.tools)]
    shown = {cell.place for cells in lines for cell in cells}
    context = {
        "every": every,
        "roles": roles,
        "rows": rows,
        "asked": asked,
        "hidden": [(":".join((*place, "*")), said) for place, said in changes.items() if place not in shown],
        "changes": len(changes),
        "roles_query": _query(roles),
        "may_add": member.has_right(Right.ROLES),
        **more,
    }
    return render(request, "sessions/previews/matrix.html", context, status=status)


def _query(roles: Sequence[Role]) -> str:
    return "roles=" + ",".join(role.slug for role in roles)


def _digest(value: Any) -> str:
    return sha256_hex(canonical_json(value))


# -- One role ---------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
@signed_in
def role_create(request: MemberRequest, org: str) -> HttpResponse:
    """The form of a new role. What it would open, and to whom, is shown before it is added where it has members."""
    member = member_or_404(request, right=Right.ROLES)
    form = RoleForm(request.POST or None)
    rules = posted_rules(request.POST, ())
    members = role_members(None, posted_members(request.POST), _member_query(request), actor=member)
    context: dict[str, Any] = {}
    if "find" not in request.POST and form.is_valid():
        content = form.content(rules)
        asked = _digest(_asked_of_role(content, members))
        if "preview" not in request.POST and (request.POST.get("stamp") == asked or not members.given):
            try:
                role = create_role(content, given=members.given, actor=member)
            except ChangeRefused as error:
                show_refusal(form, error)
            else:
                messages.success(request, f"{role} is added.")
                return redirect("role_detail", org, role.slug)
        else:
            role = Role(organisation=member.organisation, slug=content.slug, name=content.name)
            context["impact"] = impact_of([NewRole(role, content.mode, rules, _keys(members.given))])
            context["stamp"] = asked if members.given else ""
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
            return _role_page(request, role, form, rules, members, may_change, more)
        state, told = stamp_of([role]), _digest(_asked_of_role(content, members))
        asked_state, _, asked_told = request.POST.get("stamp", "").partition(".")
        is_shown = (asked_state, asked_told) == (state, told)
        is_felt = (content.mode, rules) != (role.mode, stored) or bool(members.given or members.taken)
        moved = bool(asked_state) and asked_state != state
        if "preview" not in request.POST and not moved and (is_shown or not is_felt):
            try:
                if may_change:
                    update_role(role, content, given=members.given, taken=members.taken, actor=member, stamp=state)
                else:
                    set_role_rules(role, rules, actor=member, stamp=state)
            except ChangeRefused as error:
                show_refusal(form, error) if may_change else messages.error(request, str(error))
                return _role_page(request, role_or_404(slug), form, rules, members, may_change, more)
            except RolesChanged:
                moved = True
            else:
                messages.success(request, f"{role} is saved. The change applies from the next call on.")
                return redirect("role_detail", org, role.slug)
        new = NewRole(role, content.mode, rules, _keys(members.given), _keys(members.taken))
        more |= {"impact": impact_of([new]), "stamp": f"{state}.{told}", "moved": MOVED if moved else ""}
    return _role_page(request, role, form, rules, members, may_change, more)


def _asked_of_role(content: RoleContent, members: RoleMembers) -> list[Any]:
    """What a role's form asks for beside words."""
    people = [sorted(str(each.public_id) for each in some) for some in (members.given, members.taken)]
    return [content.mode, [astuple(rule) for rule in content.rules or ()], *people]


def _keys(members: Iterable[Membership]) -> frozenset[int]:
    return frozenset(each.pk for each in members)


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
) -> HttpResponse:
    if "find" in request.POST:
        form = RoleForm(initial=request.POST.dict(), role=role, is_locked=bool(more.get("locked")))
    lines = role_matrix(rules)
    context = {
        "role": role,
        "form": form,
        "matrix": lines,
        "unlisted": sum(not line.is_listed for line in lines),
        "members": members,
        "member_q": _member_query(request),
        "may_change": may_change,
        **more,
    }
    status = 409 if more.get("moved") and not request.htmx else status_of(form)
    return render(request, "capabilities/access/role_form.html", context, status=status)
