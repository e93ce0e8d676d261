"""Ways by which tools come to agents: the rule for one tool and one agent, and its answers for many of both.

A turn, previews, Explain and pages all ask here, so that they agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q, QuerySet

from capabilities.contract.envelope import NO_OVERRIDES, Overrides, overrides_of
from capabilities.contract.loading import META_CATEGORY, RESERVED_TOOLS
from capabilities.models import (
    Agent,
    AgentTool,
    AgentToolkit,
    Category,
    Tool,
    ToolkitCategory,
    ToolkitTool,
    ToolsMode,
)

#: As the source of a candidate: it is one of the agent's own tools.
OWN = "agent"
#: How the source of one from a core category begins; the category's name follows.
CORE = "core category "


class OwnLine(NamedTuple):
    """Line of a tool in an agent's own list."""

    place: int | None = None
    is_deferred: bool = False


def is_own(agent: Agent, line: OwnLine) -> bool:
    """Return whether a session with the agent begins with the tool as one of the agent's own."""
    return not line.is_deferred and (line.place is not None or agent.has_every_tool)


def comes_with_core(agent: Agent, line: OwnLine, *, is_core: bool) -> bool:
    """Return whether a session with the agent begins with the tool because its category is core."""
    return is_core and agent.starts_with_core and not line.is_deferred


def begins_with(agent: Agent, line: OwnLine, *, is_core: bool) -> bool:
    """Return whether a session with the agent begins with the tool, without any toolkit."""
    return is_own(agent, line) or comes_with_core(agent, line, is_core=is_core)


def begins_with_category(agent: Agent, category: Category) -> bool:
    """Return whether a session with the agent begins with every tool of the category."""
    return agent.has_every_tool or (category.is_core and agent.starts_with_core)


def categories_beside(agent: Agent, categories: QuerySet[Category]) -> QuerySet[Category]:
    """Return those of the categories that the agent does not begin with."""
    if agent.has_every_tool:
        return categories.none()
    return categories.filter(is_core=False) if agent.starts_with_core else categories


def tools_from_start(agent: Agent) -> list[QuerySet[Any, Any]]:
    """Keys of the tools that the agent itself brings, deferred ones too: a query for each side, none of them run."""
    if agent.has_every_tool:
        return [Tool.objects.values_list("pk")]
    queries: list[QuerySet[Any, Any]] = [AgentTool.objects.filter(agent=agent).values_list("tool_id")]
    if agent.starts_with_core:
        queries.append(Tool.objects.filter(category__in=Category.objects.filter(is_core=True)).values_list("pk"))
    return queries


def toolkit_lines(tools: Collection[int], categories: Collection[int]) -> tuple[Any, Any]:
    """The lines of toolkits that bring any of these tools: those that name one, those that name its category."""
    listed = ToolkitTool.objects.filter(tool__in=tools).exclude(tool__name__in=RESERVED_TOOLS)
    return listed, ToolkitCategory.objects.filter(category__in=categories)


def overrides_in(toolkits: Collection[int], tools: Collection[int] | None = None) -> dict[int, dict[int, Overrides]]:
    """{toolkit: {tool: overrides}}, of these tools alone where some are given: of tools that the toolkit lists what it
    says, of those of its categories nothing. Two queries, none for no toolkit."""
    found: dict[int, dict[int, Overrides]] = {key: {} for key in toolkits}
    if not found:
        return found
    some, of_category = (Q(), Q()) if tools is None else (Q(tool__in=tools), Q(category__tools__in=tools))
    lines = ToolkitTool.objects.filter(some, toolkit__in=toolkits).order_by("position")
    lines = lines.exclude(tool__name__in=RESERVED_TOOLS)
    for key, tool, *values in lines.values_list("toolkit_id", "tool_id", "timeout", "max_result_chars", "knobs"):
        found[key][tool] = overrides_of(*values)
    whole = ToolkitCategory.objects.filter(of_category, toolkit__in=toolkits, category__tools__isnull=False)
    rows = whole.values_list("toolkit_id", "category__tools__pk", "category__tools__name")
    for key, tool, name in rows:
        if name not in RESERVED_TOOLS:
            found[key].setdefault(tool, NO_OVERRIDES)
    return found


def without_agent(tools: Collection[int]) -> QuerySet[Tool]:
    """Build the query of these tools that no agent begins with or can load: `ways_between` finds no agent for them."""
    found = Tool.objects.filter(pk__in=tools).exclude(category__name=META_CATEGORY)
    core = Agent.objects.filter(starts_with_core=True)
    whole = ToolkitCategory.objects.filter(category=OuterRef("category"), toolkit__agent_toolkits__isnull=False)
    listed = ToolkitTool.objects.filter(tool=OuterRef("pk"), toolkit__agent_toolkits__isnull=False)
    return found.exclude(
        Exists(Agent.objects.filter(tools_mode=ToolsMode.ALL))
        | Exists(AgentTool.objects.filter(tool=OuterRef("pk")))
        | Q(Exists(core), category__is_core=True)
        | Exists(listed.exclude(tool__name__in=RESERVED_TOOLS))
        | (~Q(name__in=RESERVED_TOOLS) & Exists(whole))
    )


@dataclass(frozen=True)
class Way:
    """Way by which one tool comes to one agent."""

    is_own: bool = False
    is_core: bool = False
    #: The agent defers it: it is loaded by its name.
    is_deferred: bool = False
    #: The agent's lines of toolkits that bring it, in the agent's order.
    toolkits: tuple[AgentToolkit, ...] = ()

    @property
    def is_any(self) -> bool:
        return self.is_own or self.is_core or self.is_deferred or bool(self.toolkits)

    @property
    def is_from_start(self) -> bool:
        """True where a session begins with the tool: it need not be loaded."""
        return self.is_own or self.is_core or any(line.is_initial for line in self.toolkits)

    @property
    def words(self) -> str:
        """Way in a few words, for people."""
        if self.is_own:
            return "own tool"
        if self.is_core:
            return "core tool"
        if self.is_deferred:
            return "own tool, loaded by name"
        names = ", ".join(line.toolkit.name for line in self.toolkits)
        return f"toolkit {names}" if self.is_from_start else f"can load {names}"


#: Keys of an agent and a tool.
Pair = tuple[int, int]


def ways_between(agents: Collection[Agent], tools: Iterable[Tool]) -> Mapping[Pair, Way]:
    """Return the way by which each of these tools, which have their categories at hand, comes to each of these agents;
    pairs without a way are left out. At most four queries, whatever the number of agents and tools."""
    by_key = {tool.pk: tool for tool in tools if tool.category.name != META_CATEGORY}
    if not by_key or not agents:
        return {}
    lines = AgentTool.objects.filter(agent__in=agents, tool__in=by_key)
    own = {
        (agent, tool): OwnLine(position, deferred)
        for agent, tool, position, deferred in lines.values_list("agent_id", "tool_id", "position", "is_deferred")
    }
    toolkit_lines = _lines_between(agents, by_key)
    found: dict[Pair, Way] = {}
    for agent in agents:
        for key, tool in by_key.items():
            line = own.get((agent.pk, key), OwnLine())
            way = Way(
                is_own(agent, line),
                comes_with_core(agent, line, is_core=tool.category.is_core),
                line.is_deferred,
                tuple(toolkit_lines.get((agent.pk, key), ())),
            )
            if way.is_any:
                found[agent.pk, key] = way
    return found


def _lines_between(agents: Collection[Agent], tools: Collection[int]) -> Mapping[Pair, Sequence[AgentToolkit]]:
    lines = AgentToolkit.objects.filter(agent__in=agents).select_related("toolkit").order_by("position", "pk")
    allowed = list(lines)
    overrides = overrides_in({line.toolkit_id for line in allowed}, tools)
    found: dict[Pair, list[AgentToolkit]] = defaultdict(list)
    for line in allowed:
        for tool in overrides[line.toolkit_id]:
            found[line.agent_id, tool].append(line)
    return found
