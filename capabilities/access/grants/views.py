"""The pages of grants: the list, a new one, and revoking one."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.access.grants.forms import GrantFilter, GrantForm
from capabilities.access.grants.queries import grant_numbers, grant_or_404, grants_page, names_to_suggest
from capabilities.access.grants.writes import give_grant, revoke_grant
from capabilities.access.previews import impact_of_revoking
from capabilities.common.pages import show_refusal, status_of
from capabilities.common.previews import digest
from capabilities.common.refused import ChangeRefused
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.authority import why_not_to
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def grant_list(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request, right=Right.ROLES, category=None)
    address = GrantFilter(request.GET)
    every, in_force = grant_numbers()
    page = grants_page(**address.values())
    reach = member.reach(Right.ROLES)
    for grant in page.rows:
        name = grant.tool.category.name if grant.tool else grant.category.name if grant.category else ""
        grant.may_revoke = reach.covers(name) and not why_not_to(member, grant.membership)  # type: ignore[attr-defined]
    context = {
        **address.context(page),
        "every": every,
        "in_force": in_force,
    }
    return render(request, "capabilities/access/grant_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def grant_create(request: MemberRequest, org: str) -> HttpResponse:
    actor = member_or_404(request, right=Right.ROLES, category=None)
    form = GrantForm(
        request.POST or None, initial={name: request.GET.get(name, "")[:254] for name in ("member", "tool")}
    )
    if form.is_valid():
        member = Membership.objects.filter(user__email=form.cleaned_data["member"].lower(), ended_at=None).first()
        try:
            grant = give_grant(form.content(member.public_id if member else UUID(int=0)), actor=actor)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"Given: {grant}. It counts from the next call on.")
            return redirect("grant_list", org)
    emails, tools = names_to_suggest()
    context = {"form": form, "emails": emails, "tools": tools}
    return render(request, "capabilities/access/grant_form.html", context, status=status_of(form))


@require_POST
@signed_in
def grant_revoke(request: MemberRequest, org: str, grant_id: UUID) -> HttpResponse:
    """Revoke a grant. Where its member gains or loses tools by it, that is shown first."""
    actor = member_or_404(request, right=Right.ROLES, category=None)
    grant = grant_or_404(grant_id)
    name, member = str(grant), grant.membership
    impact = impact_of_revoking(grant, actor)
    stamp = digest([str(grant.public_id), impact.sentence])
    is_from_member = "member" in request.POST
    if impact.changes_somebody and request.POST.get("stamp") != stamp:
        context = {"grant": grant, "impact": impact, "stamp": stamp, "is_from_member": is_from_member}
        return render(request, "capabilities/access/grant_revoke.html", context)
    revoke_grant(grant, actor=actor)
    messages.success(request, f"Revoked: {name}.")
    return redirect("member_tools", org, member.public_id) if is_from_member else redirect("grant_list", org)
