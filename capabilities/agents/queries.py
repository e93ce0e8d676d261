"""Agents, as pages show them."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, Prefetch
from django.http import Http404

from capabilities.models import Agent, AgentTool, AgentToolkit
from capabilities.toolkits.queries import weigh


def agents_shown() -> Sequence[Agent]:
    """With how many tools of their own each has, and its toolkits' lines. Two queries."""
    toolkits = AgentToolkit.objects.select_related("toolkit").order_by("position", "toolkit__name")
    agents = Agent.objects.for_display().annotate(own_count=Count("agent_tools"))
    return list(agents.prefetch_related(Prefetch("agent_toolkits", toolkits)))


def agent_or_404(slug: str) -> Agent:
    agent = Agent.objects.for_display().filter(slug=slug).first()
    if agent is None:
        raise Http404("No such agent.")
    return agent


def toolkits_of_agent(agent: Agent) -> Sequence[AgentToolkit]:
    """What the agent may load, in its order, each with its numbers. Two queries."""
    found = list(
        AgentToolkit.objects.filter(agent=agent).select_related("toolkit").order_by("position", "toolkit__name")
    )
    weigh([line.toolkit for line in found])
    return found


def deferred_tools_of(agent: Agent) -> list[str]:
    """Names of its own tools that are not sent before they are loaded, in its order. One query."""
    lines = AgentTool.objects.filter(agent=agent, is_deferred=True).order_by("position", "tool__name")
    return list(lines.values_list("tool__name", flat=True))
