"""Tools and toolkits that an agent was sent in many rounds and never called: what could be unloaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum

from capabilities.choosing.pipeline.bringing import Pair, Way, overrides_in, ways_between
from capabilities.contract.loading import META_CATEGORY
from capabilities.models import Agent, AgentToolkit, Tool
from sessions.models import ToolUsageHour
from toolhub.tenants.models import Membership, Reach

#: Days that are looked at, rounds that a tool must have been sent in, and tools that are proposed.
DAYS = 30
FEWEST_ROUNDS = 20
MOST = 50


@dataclass(frozen=True)
class UnusedTool:
    """A tool that one agent was sent and never called, and what it comes with."""

    agent: Agent
    tool: Tool
    rounds: int
    tokens: int
    #: The tool is one of the agent's own.
    is_own: bool
    #: The agent starts with the tool's category.
    is_core: bool
    #: Names of the agent's toolkits that bring it.
    toolkits: Sequence[str]
    #: Another agent called the tool.
    is_called: bool


@dataclass(frozen=True)
class UnusedToolkit:
    """A toolkit of an agent of which no tool that was sent was called."""

    agent: Agent
    name: str
    is_initial: bool
    tools: int
    tokens: int


@dataclass(frozen=True)
class Unused:
    """Tools and toolkits sent in vain, those that cost most first."""

    tools: Sequence[UnusedTool]
    toolkits: Sequence[UnusedToolkit]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.tools)

    def called_by_nobody(self, reach: Reach) -> list[str]:
        """Return the names of tools that are on and that no agent called, as far as the reach goes; sorted."""
        idle = {each.tool for each in self.tools if each.tool.is_enabled and not each.is_called}
        return sorted(tool.name for tool in idle if reach.covers(tool.category.name))


def unused_of(member: Membership, now: datetime) -> Unused:
    """Return what the member's organisation was sent in vain in the last 30 days. At most eleven queries."""
    rows = ToolUsageHour.objects.filter(hour__gte=now - timedelta(days=DAYS)).exclude(category_name=META_CATEGORY)
    by_tool = rows.values("agent_key", "tool_key").annotate(
        rounds=Sum("sent_rounds"), tokens=Sum("sent_tokens"), called=Sum("calls")
    )
    idle = list(by_tool.filter(called=0, rounds__gte=FEWEST_ROUNDS).order_by("-tokens", "agent_key", "tool_key")[:MOST])
    agents = Agent.objects.in_bulk({row["agent_key"] for row in idle})
    tools = {
        tool.pk: tool
        for tool in Tool.objects.filter(pk__in={row["tool_key"] for row in idle}).select_related("category")
    }
    called = set(rows.filter(tool_key__in=tools, calls__gt=0).values_list("tool_key", flat=True))
    ways = ways_between(list(agents.values()), tools.values())
    bringing = {pair: way.toolkits for pair, way in ways.items()}
    found = []
    for row in idle:
        agent, tool = agents.get(row["agent_key"]), tools.get(row["tool_key"])
        if agent is None or tool is None:
            continue
        way = ways.get((agent.pk, tool.pk), Way())
        found.append(
            UnusedTool(
                agent,
                tool,
                row["rounds"],
                row["tokens"],
                is_own=way.is_own or way.is_deferred,
                is_core=way.is_core,
                toolkits=[each.toolkit.name for each in way.toolkits],
                is_called=tool.pk in called,
            )
        )
    return Unused(found, _toolkits(found, bringing, now))


def _toolkits(
    idle: Sequence[UnusedTool], bringing: Mapping[Pair, Sequence[AgentToolkit]], now: datetime
) -> list[UnusedToolkit]:
    """Toolkits that bring one of these tools, and of which the agent called none. Three queries."""
    of_toolkit: dict[Pair, list[UnusedTool]] = defaultdict(list)
    rows: dict[Pair, AgentToolkit] = {}
    for each in idle:
        for row in bringing.get((each.agent.pk, each.tool.pk), ()):
            of_toolkit[each.agent.pk, row.toolkit_id].append(each)
            rows[each.agent.pk, row.toolkit_id] = row
    if not rows:
        return []
    used = set(
        ToolUsageHour.objects.filter(
            hour__gte=now - timedelta(days=DAYS), agent_key__in={agent for agent, _ in rows}, calls__gt=0
        ).values_list("agent_key", "tool_key")
    )
    kits = overrides_in({toolkit for _, toolkit in rows}, {tool for _, tool in used})
    used_toolkits = {(agent, toolkit) for toolkit, tools in kits.items() for agent, tool in used if tool in tools}
    found = [
        UnusedToolkit(
            each[0].agent,
            rows[pair].toolkit.name,
            rows[pair].is_initial,
            len(each),
            sum(tool.tokens for tool in each),
        )
        for pair, each in of_toolkit.items()
        if pair not in used_toolkits
    ]
    return sorted(found, key=lambda each: (-each.tokens, each.name))
