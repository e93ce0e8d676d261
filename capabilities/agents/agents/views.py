"""The pages of agents: the list, one with what it starts with, and the form.

A change of words is saved at once. One of what the agent offers is shown first, and saved with the stamp of what was
shown.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.agents.agents.drafts import AgentDraft, stored_draft
from capabilities.agents.agents.forms import AgentForm
from capabilities.agents.agents.giving import let_load
from capabilities.agents.agents.previews import cost_of_draft, impact_of_agent, start_of
from capabilities.agents.agents.queries import PickedTool, agent_or_404, agents_shown, toolkit_picker, toolkits_of_agent
from capabilities.agents.agents.sections import pictures_of, sections_of
from capabilities.agents.agents.writes import AgentContent, agent_stamp, create_agent, delete_agent, update_agent
from capabilities.agents.toolkits.queries import toolkit_or_404
from capabilities.catalogue.tools.queries import tool_picker
from capabilities.common.pages import preview_status, refused, show_refusal, shown_preview, status_of
from capabilities.common.picker import search_in
from capabilities.common.previews import Preview, save_as_shown
from capabilities.common.refused import ChangeRefused
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import Agent
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in

#: Characters of a message that is tried on an agent's page.
MAX_EXAMPLE = 2_000


@require_GET
@signed_in
def agent_list(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request)
    agents = agents_shown(member)
    context = {
        "agents": agents,
        "on_count": sum(agent.is_enabled for agent in agents),
        "may_change": member.has_right(Right.AGENTS),
    }
    return render(request, "capabilities/agents/agents/agent_list.html", context)


@require_GET
@signed_in
def agent_detail(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request)
    agent = agent_or_404(slug, member)
    start = start_of(agent, member, request.GET.get("message", "")[:MAX_EXAMPLE])
    toolkits, may_change = toolkits_of_agent(agent), member.has_right(Right.AGENTS)
    draft = stored_draft(agent, {line.toolkit.name: line.is_initial for line in toolkits})
    context = {
        "agent": agent,
        "start": start,
        "draft": draft,
        "model": resolve_model(agent.model, agent),
        "toolkits": toolkits,
        "may_change": may_change,
        **_state(draft, start.cost, sees_prompt=may_change),
    }
    return render(request, "capabilities/agents/agents/agent_detail.html", context)


def _state(draft: AgentDraft, cost: Any, *, sees_prompt: bool = True) -> dict[str, Any]:
    """The sections of an agent with a line on each, when its tools are sent, and what a round of it costs."""
    sections = sections_of(draft, cost.prompt_tokens if sees_prompt else None)
    return {"sections": {each.key: each for each in sections}, "pictures": pictures_of(draft), "cost": cost}


@require_http_methods(["GET", "POST"])
@signed_in
def agent_create(request: MemberRequest, org: str) -> HttpResponse:
    """Nobody has a session with it yet, so it is saved at once."""
    member = member_or_404(request, right=Right.AGENTS)
    form = AgentForm(request.POST or None)
    if "cost" in request.POST:
        return round_cost(request, form, None)
    if "find" not in request.POST and form.is_valid():
        try:
            saved = create_agent(form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            return agent_saved(request, org, saved)
    return agent_page(request, form, None, {})


@require_http_methods(["GET", "POST"])
@signed_in
def agent_update(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    """A first POST that changes what the agent offers shows what that means; one with the stamp of that saves it."""
    member = member_or_404(request, right=Right.AGENTS)
    agent = agent_or_404(slug, member)
    form = AgentForm(request.POST or None, agent=agent)
    if "cost" in request.POST:
        return round_cost(request, form, agent)
    if "find" in request.POST or not form.is_valid():
        return agent_page(request, form, agent, {})
    content = form.content()
    try:
        answer = save_as_shown(
            request,
            _offered(content),
            stamp=lambda: agent_stamp(agent),
            impact_of=lambda: impact_of_agent(agent, content, actor=member),
            save=lambda stamp: update_agent(agent_or_404(slug, member), content, actor=member, stamp=stamp),
        )
    except ChangeRefused as error:
        show_refusal(form, error)
        return agent_page(request, form, agent, {})
    if isinstance(answer, Preview):
        return agent_page(request, form, agent, shown_preview(answer), status=preview_status(request, answer))
    return agent_saved(request, org, answer)


def _offered(content: AgentContent) -> list[Any]:
    """Return the modes, tools and toolkits of an agent's content, as JSON values."""
    modes = [content.starts_with_core, content.tools_mode, content.scope, content.loading_mode]
    lists = [content.tools, content.allowed_toolkits]
    return [*modes, *lists, sorted(content.deferred_tools or ()), sorted(content.initial_toolkits or ())]


def agent_saved(request: MemberRequest, org: str, agent: Agent) -> HttpResponse:
    messages.success(request, f"{agent} is saved: sessions have it from their next turn on.")
    return redirect("agent_detail", org, agent.slug)


def agent_page(
    request: MemberRequest, form: AgentForm, agent: Agent | None, more: dict[str, Any], *, status: int | None = None
) -> HttpResponse:
    """The form as it was filled in. `find` in the body only looks for tools, and shows what was found beside."""
    org, is_search = request.membership.organisation.slug, "find" in request.POST
    if is_search:
        form.errors.clear()
    context = {
        "form": form,
        "agent": agent,
        "slug": agent.slug if agent else "",
        "kind": "agent",
        "thing": str(agent or ""),
        "add": "Add an agent",
        "list_title": "Agents",
        "back": reverse("agent_detail", args=[org, agent.slug]) if agent else reverse("agent_list", args=[org]),
        "tools": tool_picker(
            form.tool_rows(),
            PickedTool.fields,
            search_in(request.POST, "tools"),
            row="capabilities/agents/agents/_agent_tool.html",
        ),
        "toolkits": toolkit_picker(form.toolkit_rows(), search_in(request.POST, "allowed_toolkits")),
        "is_search": is_search,
        **_state_of_form(request, form, agent),
        **more,
    }
    return render(request, "capabilities/agents/agents/agent_form.html", context, status=status or status_of(form))


def round_cost(request: MemberRequest, form: AgentForm, agent: Agent | None) -> HttpResponse:
    """The cost of a round, and a line on each section, of the agent as its form is filled in. Nothing is written."""
    context = _state_of_form(request, form, agent) | {"is_swapped": True}
    return render(request, "capabilities/agents/agents/_round_cost.html", context)


def _state_of_form(request: MemberRequest, form: AgentForm, agent: Agent | None) -> dict[str, Any]:
    draft = form.draft(agent, request.membership.organisation_id)
    return {} if draft is None else _state(draft, cost_of_draft(draft, request.membership))


@require_POST
@signed_in
def agent_delete(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    member = member_or_404(request, right=Right.AGENTS)
    agent = agent_or_404(slug, member)
    try:
        delete_agent(agent, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "agent_update", org, slug)
    messages.success(request, f"{agent} is removed.")
    return redirect("agent_list", org)


@require_POST
@signed_in
def toolkit_agents(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Let the chosen agent load the toolkit, on whose page the form stands."""
    member = member_or_404(request, right=Right.AGENTS)
    toolkit = toolkit_or_404(name, member)
    agent = agent_or_404(request.POST.get("agent", "").replace("\x00", ""), member)
    try:
        let_load(agent, toolkit.name, actor=member)
    except ChangeRefused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{agent} may load {toolkit}.")
    return redirect("toolkit_detail", org, name)
