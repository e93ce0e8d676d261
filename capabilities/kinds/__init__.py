"""How a tool of each kind runs: one module a kind, each with `run(name, context, arguments)`.

`run` returns what the tool returned, or raises ToolError with a sentence for the model. It checks no rights: the caller
has asked for them a moment ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from capabilities.contract.context import ToolContext
from capabilities.kinds import builtin
from capabilities.models import ToolKind

Runner = Callable[[str, ToolContext, Mapping[str, Any]], Any]

RUNNERS: dict[str, Runner] = {ToolKind.BUILTIN: builtin.run}
