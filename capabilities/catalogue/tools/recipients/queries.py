"""Agents that have some tools, for the next step after they were added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from capabilities.choosing.pipeline.bringing import Way, ways_between
from capabilities.models import Agent, Tool
from toolhub.tenants.models import Membership

#: Agents that a page lists.
SHOWN = 6


@dataclass(frozen=True)
class Holder:
    """An agent with some of the tools."""

    agent: Agent
    #: Way by which each of those that it has or can load comes to it.
    ways: Sequence[Way]

    @property
    def count(self) -> int:
        return len(self.ways)

    @property
    def from_start(self) -> int:
        """Number of them that a session begins with."""
        return sum(way.is_from_start for way in self.ways)


@dataclass(frozen=True)
class Holders:
    """The agents that have or can load any of these tools; `without_agent` are names of those that no agent has."""

    total: int
    agents: Sequence[Holder]
    without_agent: Sequence[str]

    @property
    def shown(self) -> Sequence[Holder]:
        return self.agents[:SHOWN]

    @property
    def to_try(self) -> Agent | None:
        """An agent that is switched on, and begins with most of them."""
        found = [each for each in self.agents if each.agent.is_enabled]
        return found[0].agent if found else None


def holders_of(tools: Sequence[Tool], member: Membership | None = None) -> Holders:
    """Return the holders of these tools, which have their categories at hand. The agents with most of them at the start
    of a session come first; those that the member does not see are left out, but what they have is not nobody's. Seven
    queries, none for no tool."""
    if not tools:
        return Holders(0, (), ())
    agents = list(Agent.objects.defer("prompt").order_by("name", "pk"))
    ways = ways_between(agents, tools)
    with_way = {tool for _, tool in ways}
    of_agent: dict[int, list[Way]] = defaultdict(list)
    for (agent, _), way in ways.items():
        of_agent[agent].append(way)
    seen = set(Agent.objects.seen_by(member).values_list("pk", flat=True)) if member is not None else set(of_agent)
    holders = [Holder(each, of_agent[each.pk]) for each in agents if each.pk in {*of_agent} & seen]
    # What was listed with one agent on purpose says more than what an agent with every tool has anyway.
    holders.sort(key=lambda each: (each.agent.has_every_tool, -each.from_start, -each.count, each.agent.name))
    return Holders(len(tools), holders, [tool.name for tool in tools if tool.pk not in with_way])
