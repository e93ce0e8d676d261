"""Previews of what is in a toolkit. Provided by the room `sessions`."""

from __future__ import annotations

from capabilities.agents.toolkits.writes import ToolkitContent
from capabilities.common.previews import Impact
from capabilities.models import Toolkit
from toolhub.tenants.models import Membership
from toolhub.tenants.provided import Provided


@Provided
def impact_of_toolkit(toolkit: Toolkit, content: ToolkitContent, *, actor: Membership) -> Impact:
    """Preview saving a toolkit's content, over the agents that may load it."""
    raise NotImplementedError
