"""Tools of this service's own code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capabilities.contract.context import ToolContext, ToolError
from capabilities.registry import registry


def run(name: str, context: ToolContext, arguments: Mapping[str, Any]) -> Any:
    tool = registry.tools.get(name)
    if tool is None:
        raise ToolError(f"{name} is not part of this version of the service; use another tool.")
    return tool.call(context, arguments)


def display(name: str, arguments: Mapping[str, Any]) -> str:
    """The call in one line for people; the bare name where arguments and defaults do not fill the line."""
    tool = registry.tools.get(name)
    if tool is None:
        return name
    try:
        return " ".join(tool.human_format.format_map({**tool.defaults, **arguments}).split())[:300]
    except (KeyError, IndexError, ValueError, AttributeError, TypeError):
        return name
