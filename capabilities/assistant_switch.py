"""The personal assistant of one organisation, switched on or off: what is its own comes back, or is set aside."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TypeVar

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
    ToolkitCategory,
    ToolkitTool,
    ToolsMode,
)
from capabilities.models.set_aside import SetAside, set_aside_models, set_links_aside
from capabilities.running.assistant import ASSISTANT
from capabilities.running.registry import registry
from capabilities.starter import add_new_starters, assistants_agents, assistants_toolkits, open_to_everyday
from toolhub.tenants.models import Organisation

R = TypeVar("R", bound=SetAside)


def bring_assistant(organisation: Organisation) -> None:
    """Bring back what was set aside, as it was, and install what the organisation never had, as if it had been made
    with it."""
    Agent.every.filter(is_set_aside=True, was_enabled=True).update(is_enabled=True)
    Agent.every.filter(is_set_aside=True).update(was_enabled=False)
    for model in set_aside_models():
        model.every.filter(is_set_aside=True).update(is_set_aside=False)
    known = set(Category.objects.values_list("pk", flat=True))
    install_builtin(organisation)
    open_to_everyday(organisation, Category.objects.exclude(pk__in=known))
    add_new_starters(organisation)
    touch_registry(organisation.pk)


def set_assistant_aside(organisation: Organisation) -> None:
    """Set aside the assistant's tools, its categories, toolkits and agents that hold nothing else, and what is said of
    any of these. Such agents are switched off, so that their turns end and nobody writes to them. No row is deleted."""
    own = registry.of(ASSISTANT)
    Tool.objects.filter(kind=ToolKind.BUILTIN, name__in=own.tools).update(is_set_aside=True)
    present = Tool.objects.filter(category=OuterRef("pk"))
    Category.objects.filter(~Exists(present), name__in=own.categories).update(is_set_aside=True)
    set_links_aside()
    _emptied(assistants_toolkits(organisation), "toolkit", ToolkitTool, ToolkitCategory).update(is_set_aside=True)
    set_links_aside()
    agents = assistants_agents(organisation).filter(starts_with_core=False, tools_mode=ToolsMode.LISTED)
    for agent in _emptied(agents, "agent", AgentTool, AgentToolkit):
        agent.is_set_aside, agent.was_enabled, agent.is_enabled = True, agent.is_enabled, False
        agent.save(update_fields=["is_set_aside", "was_enabled", "is_enabled"])
    set_links_aside()
    touch_registry(organisation.pk)


def _emptied(rows: QuerySet[R], field: str, *links: type[SetAside]) -> QuerySet[R]:
    """Those of the rows that have links, all of which are set aside."""
    aside = [Exists(each.every.filter(**{field: OuterRef("pk")}, is_set_aside=True)) for each in links]
    left = [Exists(each.objects.filter(**{field: OuterRef("pk")})) for each in links]
    return rows.filter(reduce(or_, aside), *(~each for each in left))
