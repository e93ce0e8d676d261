"""The audited writes of agents: what a turn talks to, and the tools it starts with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import PROTECT

from capabilities.catalogue import touch_registry
from capabilities.models import Agent, AgentTool, LanguageModel, Tool
from capabilities.providers import MAX_ROUNDS
from capabilities.refused import ChangeRefused, check_slug, not_there
from capabilities.rights import require
from toolhub.tenants.audit import record
from toolhub.tenants.models import Membership, Right

#: More than any provider takes in one request.
MAX_OWN_TOOLS = 1_000
MAX_PROMPT = 100_000


@dataclass(frozen=True)
class AgentContent:
    """What an agent's form says. `tools` are names, in the order they are sent; None leaves the stored ones."""

    slug: str
    name: str
    model: LanguageModel
    description: str = ""
    prompt: str = ""
    starts_with_core: bool = True
    tools: tuple[str, ...] | None = None
    max_rounds: int | None = None
    is_enabled: bool = True


@transaction.atomic
def create_agent(content: AgentContent, *, actor: Membership) -> Agent:
    """Raises ChangeRefused for a short name in use, and for tools that are not there."""
    require(actor, Right.AGENTS)
    agent = Agent(organisation_id=actor.organisation_id)
    _write(agent, content)
    tools = _write_tools(agent, content.tools or ())
    record("agent.create", agent, actor=actor, after=_told(agent) | {"tools": tools})
    touch_registry(agent.organisation_id)
    return agent


@transaction.atomic
def update_agent(agent: Agent, content: AgentContent, *, actor: Membership) -> Agent:
    """Its sessions' next turns begin with this."""
    require(actor, Right.AGENTS)
    before = _told(agent)
    _write(agent, content)
    after = _told(agent)
    if content.tools is not None:
        before["tools"], after["tools"] = own_tools(agent), _write_tools(agent, content.tools)
    if before != after:
        record("agent.update", agent, actor=actor, before=before, after=after)
        touch_registry(agent.organisation_id)
    return agent


@transaction.atomic
def delete_agent(agent: Agent, *, actor: Membership) -> None:
    """Raises ChangeRefused while a session names it: what was said with it stays readable."""
    require(actor, Right.AGENTS)
    if is_used(agent):
        raise ChangeRefused("agent", f"Sessions use {agent}: switch it off instead.", code="in_use")
    record("agent.delete", agent, actor=actor, before=_told(agent) | {"tools": own_tools(agent)})
    agent.delete()
    touch_registry(actor.organisation_id)


def is_used(agent: Agent) -> bool:
    """Whether any row that must stay names the agent. A query for each table that could."""
    relations = [relation for relation in Agent._meta.related_objects if relation.on_delete is PROTECT]
    return any(
        relation.related_model._base_manager.filter(**{relation.field.name: agent}).exists() for relation in relations
    )


def own_tools(agent: Agent) -> list[str]:
    """Names, in their order. One query."""
    lines = AgentTool.objects.filter(agent=agent).order_by("position", "tool__category__name", "tool__name")
    return list(lines.values_list("tool__name", flat=True))


def _write(agent: Agent, content: AgentContent) -> None:
    check_slug(content.slug)
    if Agent.objects.filter(slug=content.slug).exclude(pk=agent.pk).exists():
        raise ChangeRefused("slug", f"There is an agent {content.slug} already.", code="taken")
    if len(content.prompt) > MAX_PROMPT:
        raise ChangeRefused("prompt", f"Keep the prompt under {MAX_PROMPT:,} characters.")
    if content.max_rounds is not None and not 1 <= content.max_rounds <= MAX_ROUNDS:
        raise ChangeRefused("max_rounds", f"Give a whole number from 1 to {MAX_ROUNDS}, or nothing.")
    agent.slug, agent.name, agent.description = content.slug, content.name, content.description
    agent.prompt, agent.model, agent.starts_with_core = content.prompt, content.model, content.starts_with_core
    agent.max_rounds, agent.is_enabled = content.max_rounds, content.is_enabled
    agent.save()


def _write_tools(agent: Agent, names: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(names))
    if len(names) > MAX_OWN_TOOLS:
        raise ChangeRefused("tools", f"An agent has at most {MAX_OWN_TOOLS:,} tools of its own.")
    keys = dict(Tool.objects.filter(name__in=names).values_list("name", "pk"))
    for name in names:
        if name not in keys:
            raise not_there("tools", "tool", name)
    if own_tools(agent) != names:
        AgentTool.objects.filter(agent=agent).delete()
        AgentTool.objects.bulk_create(
            AgentTool(organisation_id=agent.organisation_id, agent=agent, tool_id=keys[name], position=number)
            for number, name in enumerate(names, start=1)
        )
    return names


def _told(agent: Agent) -> dict[str, Any]:
    return {
        "slug": agent.slug,
        "name": agent.name,
        "description": agent.description,
        "prompt": agent.prompt,
        "model": str(agent.model),
        "starts_with_core": agent.starts_with_core,
        "max_rounds": agent.max_rounds,
        "is_enabled": agent.is_enabled,
    }
