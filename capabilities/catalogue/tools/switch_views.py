"""Switching tools on and off. Where other members lose a tool by it, that is shown before it is switched off."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from capabilities.catalogue.previews import impact_of_switching_off
from capabilities.catalogue.tools import views as tools
from capabilities.catalogue.tools.queries import shown_tool_or_404
from capabilities.common.pages import page_before
from capabilities.common.previews import digest
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import require
from capabilities.models import Tool
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in


@require_POST
@signed_in
def tool_switch(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """One tool; htmx gets the switch back, or what others lose in its place."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = shown_tool_or_404(name)
    require(member, Right.CATALOGUE, [tool.category.name])
    answer = _shown_first(request, member, [tool.name])
    return answer or _back(request, tools.tool_switch(request, org, name))


@require_POST
@signed_in
def tools_switch(request: MemberRequest, org: str) -> HttpResponse:
    """The ticked tools, all or none."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    names = sorted(set(request.POST.getlist("names")))
    found = Tool.objects.filter(name__in=names).values_list("category__name", flat=True)
    require(member, Right.CATALOGUE, set(found))
    answer = _shown_first(request, member, names) if names else None
    return answer or _back(request, tools.tools_switch(request, org))


def _shown_first(request: MemberRequest, member: Membership, names: list[str]) -> HttpResponse | None:
    """What other members lose, where they do and it was not shown yet."""
    if request.POST.get("enabled") == "1":
        return None
    try:
        impact = impact_of_switching_off(names, actor=member)
    except ChangeRefused:  # the switch itself says why
        return None
    stamp = digest([names, impact.sentence])
    if not impact.changes_somebody or request.POST.get("stamp") == stamp:
        return None
    context = {"names": names, "impact": impact, "stamp": stamp, "back": page_before(request, member)}
    template = (
        "capabilities/catalogue/_tool_switch_off.html"
        if request.htmx
        else "capabilities/catalogue/tool_switch_off.html"
    )
    return render(request, template, context | {"name": names[0], "count": impact.members})


def _back(request: MemberRequest, response: HttpResponse) -> HttpResponse:
    """To the page that the switch was on, not to the one that asked."""
    page = request.POST.get("back", "")
    if "Location" in response and url_has_allowed_host_and_scheme(
        page, {request.get_host()}, require_https=request.is_secure()
    ):
        response["Location"] = page
    return response
