"""Previews of an agent's offer, and of the tools that a session begins with. Provided by the room `sessions`."""

from __future__ import annotations

from typing import Any

from capabilities.common.previews import Impact
from capabilities.common.provided import Provided

#: Changes that saving an agent's content makes: `(agent, content, actor=...)`.
impact_of_agent: Provided[..., Impact] = Provided("previews of agents")
#: The tools that a member's new session with an agent begins with, and those that a message brings: `(agent, member,
#: message)`.
start_of: Provided[..., Any] = Provided("starts of agents")
