"""Give tools to agents: as their own, or in a toolkit that they may load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from capabilities.agents.agents.writes import agent_content, allowed_toolkits, own_tools, update_agent
from capabilities.agents.toolkits.writes import ToolkitContent, ToolkitLine, content_of, create_toolkit, update_toolkit
from capabilities.catalogue.tools.recipients.writes import Recipients
from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.rights import configuration_write, require
from capabilities.models import Agent, Toolkit
from toolhub.tenants.models import Membership, Right


@configuration_write("agents")
def give_tools(names: Sequence[str], to: Recipients, *, actor: Membership) -> None:
    """Put tools into a toolkit, or among the own tools of agents; with both, the agents may load the toolkit.

    An agent that has every tool is left as it is, and what is there already stays in its place. Each agent and toolkit
    has its own audit row. Needs the right `agents` or `toolkits`, as it takes. Raises ChangeRefused.
    """
    if to.is_nobody or not names:
        return
    if to.toolkit and to.new_toolkit:
        raise ChangeRefused("new_toolkit", "Choose a toolkit, or name a new one: one of the two.")
    toolkit = _in_toolkit(names, to, actor) if to.toolkit or to.new_toolkit else ""
    if to.agents:
        require(actor, Right.AGENTS)
    for agent in _agents_named(to.agents):
        if toolkit:
            let_load(agent, toolkit, actor=actor)
        elif not agent.has_every_tool:
            _own(agent, names, actor)


@configuration_write("agents")
def let_load(agent: Agent, toolkit: str, *, actor: Membership) -> None:
    """Let the agent load the toolkit of this name, behind those that it may load. Needs the right `agents`. Raises
    ChangeRefused."""
    stored = allowed_toolkits(agent)
    if toolkit not in stored:
        _save(agent, actor, allowed_toolkits=(*stored, toolkit))


def _agents_named(slugs: Sequence[str]) -> list[Agent]:
    found = {agent.slug: agent for agent in Agent.objects.for_display().filter(slug__in=slugs)}
    for slug in slugs:
        if slug not in found:
            raise not_there("agents", "agent", slug)
    return [found[slug] for slug in dict.fromkeys(slugs)]


def _in_toolkit(names: Sequence[str], to: Recipients, actor: Membership) -> str:
    """The name of the toolkit that holds the tools now."""
    try:
        if to.new_toolkit:
            lines = tuple(ToolkitLine(name) for name in names)
            return create_toolkit(ToolkitContent(to.new_toolkit, "", lines), actor=actor).name
        toolkit = Toolkit.objects.filter(name=to.toolkit).first()
        if toolkit is None:
            raise not_there("toolkit", "toolkit", to.toolkit)
        stored = content_of(toolkit)
        listed = {line.tool for line in stored.tools}
        new_lines = tuple(ToolkitLine(name) for name in names if name not in listed)
        return update_toolkit(toolkit, replace(stored, tools=(*stored.tools, *new_lines)), actor=actor).name
    except ChangeRefused as error:
        field = "new_toolkit" if to.new_toolkit else "toolkit"
        raise ChangeRefused(field, str(error), code=error.code) from error


def _own(agent: Agent, names: Sequence[str], actor: Membership) -> None:
    stored = own_tools(agent)
    new_names = [name for name in names if name not in stored]
    _save(agent, actor, tools=(*stored, *new_names))


def _save(agent: Agent, actor: Membership, **change: Any) -> None:
    try:
        update_agent(agent, replace(agent_content(agent), **change), actor=actor)
    except ChangeRefused as error:
        raise ChangeRefused("agents", f"{agent}: {error}", code=error.code) from error
