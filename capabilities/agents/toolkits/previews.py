"""Previews of what is in a toolkit. Provided by the room `sessions`."""

from __future__ import annotations

from capabilities.common.previews import Impact
from capabilities.common.provided import Provided

#: Changes that saving a toolkit's content makes, over the agents that may load it: `(toolkit, content, actor=...)`.
impact_of_toolkit: Provided[..., Impact] = Provided("previews of toolkits")
