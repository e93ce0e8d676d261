"""Agents that an agent can call upon."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="agents",
    title="Agents",
    description="Give a part of the work to another agent.",
    keywords=("spawn", "sub-agent", "delegate", "agent", "spawn agent"),
)


@tool(category="agents", effect="write", human_format="Asking the agent {agent}")
def spawn_agent(
    context: ToolContext,
    agent: Annotated[str, Field(description="Slug of the agent", max_length=63)],
    message: Annotated[str, Field(description="What it shall do", min_length=1, max_length=10_000)],
) -> dict[str, Any]:
    """Give a part of the work to another agent of the organisation, and get its answer."""
    # In a turn, `sessions.delegation` answers the call with a child turn; only a call outside of one comes here.
    raise ToolError("An agent is asked from a conversation: there its answer is waited for.")
