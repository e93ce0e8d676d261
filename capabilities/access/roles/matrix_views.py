"""Page of roles by categories and tools. It first shows the members that a change affects, and saves what was shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from capabilities.access.previews import impact_of_roles
from capabilities.access.roles.matrix import (
    KINDS,
    WORDS,
    Asked,
    CellKey,
    changed_rules,
    check_changes,
    matrix_roles,
    matrix_rows,
    one_cell,
    posted_changes,
    posted_was,
    rules_of_roles,
)
from capabilities.access.roles.writes import (
    RolesChanged,
    Rule,
    require_for_rules,
    set_role_rule,
    set_rules_of_roles,
    stamp_of,
)
from capabilities.access.roles_above import locked_roles
from capabilities.common import previews
from capabilities.common.refused import ChangeRefused
from capabilities.models import Role, RoleMembership
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in

MOVED = "A role was changed in the meantime: nothing is saved yet. This is what your changes would do now."


@require_http_methods(["GET", "POST"])
@signed_in
def matrix(request: MemberRequest, org: str) -> HttpResponse:
    """Show roles by categories and tools. A first POST shows the members that the changes affect, one with its stamp
    saves them; the script of the page saves one cell at once."""
    member = member_or_404(request, right=Right.ROLES, category=None)
    asked = asked_of(request)
    if request.method == "POST":
        return _cell(request, member) if request.htmx and "now" in request.POST else _changed(request, member, asked)
    if request.htmx and len(asked.opened) == 1:
        return _category(request, member, asked)
    return _matrix_page(request, member, asked, {}, {})


def asked_of(request: MemberRequest) -> Asked:
    def several(name: str) -> tuple[str, ...]:
        return tuple(word for text in request.GET.getlist(name) for word in text.split(",") if word)

    q, after, behind = (request.GET.get(name, "")[:100].replace("\x00", "") for name in ("q", "after", "behind"))
    opened = tuple(name.replace("\x00", "") for name in several("open"))
    return Asked(several("roles"), opened, q, after, behind, bool(request.GET.get("differ")))


def _category(request: MemberRequest, member: Membership, asked: Asked) -> HttpResponse:
    _, roles = matrix_roles(asked.roles)
    page = matrix_rows(roles, asked, {}, member.reach(Right.ROLES), locked_roles(member), only=asked.opened[0])
    rows = page.rows
    context = {"row": rows[0] if rows else None, "roles": roles, "roles_query": _query(roles, asked)}
    return render(request, "capabilities/access/_matrix_tools.html", context)


def _cell(request: MemberRequest, member: Membership) -> HttpResponse:
    """Save one cell at once; the answer is the cell, and a line that undoes it: by the same write, the other way."""
    context: dict[str, Any] = {"is_undo": "undo" in request.POST}
    try:
        changes = posted_changes(request.POST)
        roles = check_changes(changes)
        if len(changes) != 1:
            raise ChangeRefused("rules", "One cell is changed at a time.")
        [((slug, kind, name), effect)] = changes.items()
        role, was = roles[slug], posted_was(request.POST, (slug, kind, name))
        set_role_rule(role, Rule(effect, **{KINDS[kind]: name}), was=was, actor=member)
    except RolesChanged:
        context["refusal"] = "Somebody changed this cell in the meantime. It is shown as it is now; nothing was saved."
    except ChangeRefused as error:
        answer = render(request, "capabilities/access/_matrix_cell.html", context | {"refusal": str(error)}, status=422)
        answer["HX-Reswap"] = "none"  # the line alone
        return answer
    active = RoleMembership.objects.filter(role=role, membership__ended_at=None)
    context |= {"cell": one_cell(role, kind, name), "role": role, "word": WORDS[effect], "was": was}
    context |= {"name": name, "back": f"{slug}:{kind}:{name}:{effect}", "members": active.count()}
    return render(
        request, "capabilities/access/_matrix_cell.html", context, status=422 if "refusal" in context else 200
    )


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
    content = sorted([*cell_key, effect] for cell_key, effect in changes.items())
    posted = previews.asked_of(request, stamp_of(roles.values()), content)
    moved = posted.has_moved
    if posted.is_shown:
        try:
            set_rules_of_roles(rules, actor=member, stamp=posted.state)
        except ChangeRefused as error:
            return _matrix_page(request, member, asked, changes, {"refusal": str(error)}, status=422)
        except RolesChanged:
            moved = True
        else:
            messages.success(request, f"Saved: {', '.join(sorted(map(str, rules)))}. It counts from the next call on.")
            return redirect(request.get_full_path())
    try:
        impact = impact_of_roles(lambda: set_rules_of_roles(rules, actor=member), rules)
    except ChangeRefused as error:
        return _matrix_page(request, member, asked, changes, {"refusal": str(error)}, status=422)
    context = {"impact": impact, "stamp": posted.stamp, "moved": MOVED if moved else ""}
    if request.htmx:
        return render(request, impact.template, context)
    return _matrix_page(request, member, asked, changes, context, status=409 if moved else 200)


def _matrix_page(
    request: MemberRequest,
    member: Membership,
    asked: Asked,
    changes: Mapping[CellKey, str],
    more: dict[str, Any],
    *,
    status: int = 200,
) -> HttpResponse:
    every, roles = matrix_roles(asked.roles)
    page = matrix_rows(roles, asked, changes, member.reach(Right.ROLES), locked_roles(member))
    context = {
        "every": every,
        "roles": roles,
        "rows": page.rows,
        "behind": page.behind,
        "asked": asked,
        "hidden": [(":".join((*cell_key, "*")), effect) for cell_key, effect in changes.items()],
        "changes": len(changes),
        "roles_query": _query(roles, asked),
        "may_add": member.has_right(Right.ROLES),
        **more,
    }
    return render(request, "capabilities/access/matrix.html", context, status=status)


def _query(roles: Sequence[Role], asked: Asked) -> str:
    return "roles=" + ",".join(role.slug for role in roles) + ("&differ=1" if asked.differ else "")
