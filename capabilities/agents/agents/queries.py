"""Agents, as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Prefetch, Q
from django.http import Http404

from capabilities.agents.toolkits.queries import weigh
from capabilities.common.picker import SHOWN, Fields, Picker, Search, shown_and_kept
from capabilities.models import Agent, AgentToolkit, Toolkit
from toolhub.tenants.models import Membership


def agents_shown(member: Membership) -> Sequence[Agent]:
    """Return the agents that the member sees, each with the number of its own tools, its toolkits' lines and its rooms.
    Three queries."""
    toolkits = AgentToolkit.objects.select_related("toolkit").order_by("position", "toolkit__name")
    agents = Agent.objects.seen_by(member).select_related("model__provider").defer("model__provider__api_key")
    agents = agents.order_by("name", "pk")
    return list(
        agents.annotate(own_count=Count("agent_tools")).prefetch_related(Prefetch("agent_toolkits", toolkits), "rooms")
    )


def agent_or_404(slug: str, member: Membership) -> Agent:
    """Return the agent of this short name. Raises Http404, also for one that the member does not see."""
    agents = Agent.objects.seen_by(member).select_related("model__provider", "fallback_model__provider")
    agent = agents.defer("model__provider__api_key", "fallback_model__provider__api_key").filter(slug=slug).first()
    if agent is None:
        raise Http404("No such agent.")
    return agent


def toolkits_of_agent(agent: Agent) -> Sequence[AgentToolkit]:
    """Return the toolkits that the agent may load, in its order, each with its numbers. Two queries."""
    found = list(
        AgentToolkit.objects.filter(agent=agent).select_related("toolkit").order_by("position", "toolkit__name")
    )
    weigh([line.toolkit for line in found])
    return found


@dataclass(frozen=True)
class PickedTool:
    """A tool of the agent's own, as the form shows it."""

    name: str
    position: int
    is_deferred: bool
    is_pinned: bool = False

    def fields(self) -> Fields:
        ticked = [("deferred_tools", self.name)] if self.is_deferred else []
        ticked += [("pinned_tools", self.name)] if self.is_pinned else []
        return [("tools", self.name), (f"place-{self.name}", str(self.position)), *ticked]


@dataclass(frozen=True)
class PickedToolkit:
    """A toolkit that the agent may load, as the form shows it."""

    name: str
    position: int
    is_initial: bool

    def fields(self) -> Fields:
        initial = [("initial_toolkits", self.name)] if self.is_initial else []
        return [("allowed_toolkits", self.name), (f"toolkit-place-{self.name}", str(self.position)), *initial]


@dataclass(frozen=True)
class AgentToolkitRow:
    """One line of the toolkits on an agent's form. Without a place it comes last."""

    name: str
    is_allowed: bool
    is_initial: bool = False
    position: int | None = None
    tool_count: int = 0
    tokens: int = 0


def toolkit_picker(rows: Sequence[PickedToolkit], search: Search) -> Picker:
    """The toolkits that are ticked on an agent's form, and others to tick. Four queries."""
    words = Q()
    for word in search.q.split():
        words &= Q(name__icontains=word) | Q(description__icontains=word)
    names = set(Toolkit.objects.filter(words).values_list("name", flat=True))
    shown, kept, count = shown_and_kept(rows, PickedToolkit.fields, lambda row: row.name in names)
    others = sorted(names - {row.name for row in rows})
    wanted = [*(row.name for row in shown if row.name.isprintable()), *others[:SHOWN]]
    toolkits = list(Toolkit.objects.filter(name__in=wanted))
    weigh(toolkits)
    numbers = {each.name: (each.tool_count, each.tokens) for each in toolkits}  # type: ignore[attr-defined]
    return Picker(
        "allowed_toolkits",
        "toolkit",
        search,
        Toolkit.objects.count(),
        [AgentToolkitRow(row.name, True, row.is_initial, row.position, *numbers.get(row.name, ())) for row in shown],
        [AgentToolkitRow(name, False, False, None, *numbers[name]) for name in others[:SHOWN] if name in numbers],
        "capabilities/agents/agents/_agent_toolkit.html",
        "capabilities/agents/agents/_agent_toolkit.html",
        words="name or description",
        none="There is no toolkit yet. The page Toolkits says what they are for.",
        has_more=len(others) > SHOWN,
        kept=kept,
        kept_count=count,
    )
