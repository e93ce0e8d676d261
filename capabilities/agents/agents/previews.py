"""Previews of an agent's offer, of the tools that a session begins with, and of what a round costs. Provided by the
room `sessions`."""

from __future__ import annotations

from typing import Any

from capabilities.agents.agents.drafts import AgentDraft
from capabilities.agents.agents.writes import AgentContent
from capabilities.common.previews import Impact
from capabilities.models import Agent
from toolhub.tenants.models import Membership
from toolhub.tenants.provided import Provided


@Provided
def impact_of_agent(agent: Agent, content: AgentContent, *, actor: Membership) -> Impact:
    """Preview saving an agent's content. Raises ChangeRefused for what could not be saved."""
    raise NotImplementedError


@Provided
def start_of(agent: Agent, member: Membership, message: str) -> Any:
    """Return the tools that a member's new session with an agent begins with, and those that a message brings."""
    raise NotImplementedError


@Provided
def cost_of_draft(draft: AgentDraft, member: Membership) -> Any:
    """Return what a round of the agent costs as its form has it: tokens of definitions and prompt, and money."""
    raise NotImplementedError
