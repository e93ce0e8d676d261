"""The page of one agent: what a turn with it would begin with, for the member who looks."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from capabilities.agents.queries import agent_or_404, toolkits_of_agent
from sessions.selection.starts import start_of
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def agent_detail(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request)
    agent = agent_or_404(slug)
    context = {
        "agent": agent,
        "start": start_of(agent, member),
        "toolkits": toolkits_of_agent(agent),
        "may_change": member.has_right(Right.AGENTS),
    }
    return render(request, "capabilities/agents/agent_detail.html", context)
