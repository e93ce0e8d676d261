"""The personal assistant of one organisation, switched on or off: what is its own comes back, or is set aside."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from capabilities.catalogue.tools.install import install_builtin
from capabilities.common.registry_version import touch_registry
from capabilities.models import (
    Agent,
    AgentTool,
    AgentToolkit,
    Category,
    Tool,
    ToolKind,
    Toolkit,
    ToolkitCategory,
    ToolkitTool,
    ToolsMode,
)
from capabilities.running.assistant import ASSISTANT
from capabilities.running.registry import registry
from capabilities.starter import add_new_starters
from toolhub.tenants.models import Organisation


def bring_assistant(organisation: Organisation) -> None:
    """Bring back what was set aside, as it was, and install what the organisation never had."""
    Agent.every.filter(is_set_aside=True, was_enabled=True).update(is_enabled=True)
    Agent.every.filter(is_set_aside=True).update(was_enabled=False)
    for model in (Agent, Toolkit, Tool, Category):
        model.every.filter(is_set_aside=True).update(is_set_aside=False)
    install_builtin(organisation)
    add_new_starters(organisation)
    touch_registry(organisation.pk)


def set_assistant_aside(organisation: Organisation) -> None:
    """Set aside the assistant's tools and the categories, toolkits and agents that hold nothing else. Such agents are
    switched off, so that their turns end and nobody writes to them. No row is deleted."""
    own = registry.of(ASSISTANT)
    Tool.objects.filter(kind=ToolKind.BUILTIN, name__in=own.tools).update(is_set_aside=True)
    present = Tool.objects.filter(category=OuterRef("pk"))
    Category.objects.filter(~Exists(present), name__in=own.categories).update(is_set_aside=True)
    toolkits = _emptied(Toolkit.objects.all(), "toolkit", ToolkitTool, ToolkitCategory)
    toolkits.update(is_set_aside=True)
    agents = Agent.objects.filter(starts_with_core=False, tools_mode=ToolsMode.LISTED)
    for agent in _emptied(agents, "agent", AgentTool, AgentToolkit):
        agent.is_set_aside, agent.was_enabled, agent.is_enabled = True, agent.is_enabled, False
        agent.save(update_fields=["is_set_aside", "was_enabled", "is_enabled"])
    touch_registry(organisation.pk)


def _emptied(rows: QuerySet[Agent] | QuerySet[Toolkit], field: str, *links: type) -> QuerySet:  # type: ignore[type-arg]
    """Those of the rows that have links, and all to what is set aside."""
    had = [Exists(each.every.filter(**{field: OuterRef("pk")})) for each in links]  # type: ignore[attr-defined]
    left = [Exists(each.objects.filter(**{field: OuterRef("pk")})) for each in links]  # type: ignore[attr-defined]
    return rows.filter(had[0] | had[1], ~left[0], ~left[1])
