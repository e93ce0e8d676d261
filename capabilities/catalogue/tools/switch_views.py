"""Switching tools on and off. Where other members lose a tool by it, that is shown before it is switched off."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from capabilities.catalogue.previews import impact_of_switching_off
from capabilities.catalogue.tools.bulk.kept import keep_form
from capabilities.catalogue.tools.bulk.views import undo_address
from capabilities.catalogue.tools.queries import shown_tool_or_404
from capabilities.catalogue.tools.views import mark_tool
from capabilities.catalogue.tools.writes import set_tool_enabled, set_tools_enabled
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
    """Switch one tool; htmx gets the switch back, or what others lose. With `now` nobody is asked first."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = shown_tool_or_404(name)
    require(member, Right.CATALOGUE, [tool.category.name])
    if request.POST.get("now") != "1" and (answer := _shown_first(request, member, [tool.name])):
        return answer
    try:
        set_tool_enabled(tool, request.POST.get("enabled") == "1", actor=member, message=request.POST.get("message"))
    except ChangeRefused as error:
        if request.htmx:
            raise
        messages.error(request, str(error))
        return redirect(page_before(request, member))
    if request.htmx:
        mark_tool(tool, may_switch=True)
        return render(request, "capabilities/catalogue/_tool_switch.html", {"tool": tool})
    messages.success(request, f"{tool} is {'on' if tool.is_enabled else 'off'}.")
    return redirect(page_before(request, member))


@require_POST
@signed_in
def tools_switch(request: MemberRequest, org: str) -> HttpResponse:
    """Switch the ticked tools, all or none."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    names = sorted(set(request.POST.getlist("names")))
    found = Tool.objects.filter(name__in=names).values_list("category__name", flat=True)
    require(member, Right.CATALOGUE, set(found))
    if not names:
        messages.warning(request, "Tick the tools to switch first.")
        return redirect(page_before(request, member))
    if answer := _shown_first(request, member, names):
        return answer
    enabled = request.POST.get("enabled") == "1"
    try:
        changed = set_tools_enabled(names, enabled, actor=member)
    except ChangeRefused as error:
        messages.error(request, str(error))
        keep_form(request)
    else:
        of_them = f"{changed} of {len(names)} tools" if changed != 1 else "1 tool"
        text = f"Switched {of_them} {'on' if enabled else 'off'}."
        messages.success(request, text, extra_tags=undo_address(member))
    return redirect(page_before(request, member))


def _shown_first(request: MemberRequest, member: Membership, names: list[str]) -> HttpResponse | None:
    """Return a page of what other members lose, where they do and it was not shown yet; else None."""
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
