"""Agents that an agent can call upon."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from capabilities.contract.context import ToolContext, ToolError
from capabilities.registry import CategorySpec, ServiceSpec, tool

CATEGORY = CategorySpec(
    name="agents",
    title="Agents",
    description="Give a part of the work to another agent.",
    keywords=("spawn", "sub-agent", "delegate", "agent", "spawn agent"),
)
SERVICES = (
    ServiceSpec(
        name="delegation",
        title="Delegation (a later version)",
        description="Child turns of other agents come with a later version.",
        fields=(),
        is_available=False,
    ),
)


@tool(category="agents", effect="write", service="delegation", human_format="Asking the agent {agent}")
def spawn_agent(
    context: ToolContext,
    agent: Annotated[str, Field(description="Slug of the agent", max_length=63)],
    message: Annotated[str, Field(description="What it shall do", min_length=1, max_length=10_000)],
) -> dict[str, Any]:
    """Give a part of the work to another agent of the organisation, and get its answer."""
    raise ToolError("Delegation to other agents comes with a later version.")
