"""The pages of agents: the list and the form."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.agents.forms import AgentForm
from capabilities.agents.queries import agent_or_404, agents_shown
from capabilities.agents.writes import create_agent, delete_agent
from capabilities.catalogue.tools.queries import tools_named_like
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import Agent
from capabilities.toolkits.queries import toolkits_by_name
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def agent_list(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request)
    agents = agents_shown()
    context = {
        "agents": agents,
        "on_count": sum(agent.is_enabled for agent in agents),
        "may_change": member.has_right(Right.AGENTS),
    }
    return render(request, "capabilities/agents/agent_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def agent_create(request: MemberRequest, org: str) -> HttpResponse:
    """Nobody has a session with it yet, so it is saved at once."""
    member = member_or_404(request, right=Right.AGENTS)
    form = AgentForm(request.POST or None)
    if "find" not in request.POST and form.is_valid():
        try:
            saved = create_agent(form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            return agent_saved(request, org, saved)
    return agent_page(request, form, None, {})


def agent_saved(request: MemberRequest, org: str, agent: Agent) -> HttpResponse:
    messages.success(request, f"{agent} is saved: sessions have it from their next turn on.")
    return redirect("agent_detail", org, agent.slug)


def agent_page(
    request: MemberRequest, form: AgentForm, agent: Agent | None, more: dict[str, Any], *, status: int | None = None
) -> HttpResponse:
    """The form as it was filled in. `find` in the body only looks for tools, and shows what was found beside."""
    is_search = "find" in request.POST
    if is_search:
        form.errors.clear()
    q = request.POST.get("q", "")[:64].replace("\x00", "")
    toolkits = {toolkit.name: toolkit for toolkit in toolkits_by_name()}
    context = {
        "form": form,
        "agent": agent,
        "slug": agent.slug if agent else "",
        "found": [tool for tool in tools_named_like(q) if tool.name not in form.own],
        "toolkits": [toolkits.pop(name) for name in form.allowed if name in toolkits] + list(toolkits.values()),
        "q": q,
        "is_search": is_search,
        **more,
    }
    return render(request, "capabilities/agents/agent_form.html", context, status=status or status_of(form))


@require_POST
@signed_in
def agent_delete(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request, right=Right.AGENTS)
    agent = agent_or_404(slug)
    try:
        delete_agent(agent, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "agent_update", org, slug)
    messages.success(request, f"{agent} is removed.")
    return redirect("agent_list", org)
