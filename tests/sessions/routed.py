"""Sessions whose agent sends only the tools that a message needs."""

from __future__ import annotations

from typing import Any

from capabilities.models import Agent, RoutingMode
from capabilities.running.registry import registry
from sessions.models import ChatSession, Step, StepKind, Turn
from tests.cast import give_tool, hold_credential, make_agent, make_category, make_meta_tools, make_session, make_tool
from tests.sessions.run_turns import steps_of
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

#: With their own keywords and tools.
CATEGORIES = ("web", "git", "ha", "tasks", "aether", "aether_db", "reminders")
HA = {"ha_get_state", "ha_get_states", "ha_call_service"}
WEB = {"web_search", "web_read", "http_fetch"}


def make_routed_session(
    member: Membership, base_url: str, mode: RoutingMode = RoutingMode.HYBRID, **fields: Any
) -> ChatSession:
    """The agent has every tool of CATEGORIES as its own, and nothing to load."""
    organisation = member.organisation
    make_meta_tools(organisation)
    for service in ("home_assistant", "aether_database"):
        hold_credential(organisation, service)
    agent = make_agent(organisation, base_url, **({"starts_with_core": False, "routing_mode": mode} | fields))
    position = 0
    for name in CATEGORIES:
        known = registry.categories[name]
        category = make_category(organisation, name, title=known.title, keywords=list(known.keywords), is_core=False)
        for spec in registry.tools.values():
            if spec.category == name:
                position += 1
                give_tool(agent, make_tool(organisation, spec.name, category=category), position=position)
    return make_session(member, agent)


def set_routing(session: ChatSession, **fields: Any) -> None:
    with organisation_scope(session.organisation_id):
        Agent.objects.filter(pk=session.agent_id).update(**fields)


def first_step(turn: Turn) -> Step:
    return steps_of(turn, StepKind.MODEL)[0]
