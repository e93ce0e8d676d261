"""Previews of switching tools off. Provided by the room `sessions`."""

from __future__ import annotations

from capabilities.common.previews import Impact
from capabilities.common.provided import Provided

#: Preview of what other members lose where tools are switched off: `(names, actor=...)`.
impact_of_switching_off: Provided[..., Impact] = Provided("previews of switching off")
