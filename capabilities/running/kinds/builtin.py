"""Runner of tools that are functions of this service's own code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from capabilities.contract.context import Credential, ToolContext, ToolError
from capabilities.contract.spec import ToolSpec
from capabilities.models import ToolVersion
from capabilities.running.registry import registry


def run(
    *,
    spec: ToolSpec,
    version: ToolVersion,
    credential: Credential,
    context: ToolContext,
    arguments: Mapping[str, Any],
) -> Any:
    """Call the function of that name with what the service needs in its context; the version adds nothing to it. Raises
    ToolError where this version of the service has none."""
    tool = registry.tools.get(spec.name)
    if tool is None:
        raise ToolError(f"{spec.name} is not part of this version of the service; use another tool.")
    return tool.call(replace(context, service=credential.values), arguments)
