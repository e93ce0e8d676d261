"""The page that gives one tool to agents, or puts it into a toolkit."""

from __future__ import annotations

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from capabilities.catalogue.tools.queries import shown_tool_or_404
from capabilities.catalogue.tools.recipients.pages import giving_page, require_giver
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.pages import signed_in


@require_http_methods(["GET", "POST"])
@signed_in
def tool_give(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Give a tool to agents. The change is shown where somebody feels it, and saved from there."""
    member = member_or_404(request)
    require_giver(member)
    tool = shown_tool_or_404(name)
    return giving_page(request, member, [tool.name], back_url=reverse("tool_detail", args=[org, tool.name]))
