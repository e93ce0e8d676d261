"""Ways to run tools: one module a kind, each with a `run` that is a `Runner`, and what it can run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from capabilities.contract.context import Credential, ToolContext
from capabilities.contract.spec import ToolSpec
from capabilities.models import ToolKind, ToolVersion
from capabilities.running.kinds import builtin, http, mcp, python
from capabilities.running.kinds.checks import Check


class Runner(Protocol):
    """Function that runs one call of a tool.

    `spec` is the tool with its envelope in force, `version` the row of the same version, of which columns that the spec
    does not have are read when they are asked for, `credential` what signs the call.

    Returns text, or what JSON can say, or a ToolResult. Raises ToolError with a sentence for the model; and one of
    CallWaits where the call cannot end now: the same call is made again then, with `context.resumed`. To ask again for
    a task (`resumed.action` is "poll") may change nothing at the far side: it is also done after a crash. With
    "cancel" on a task, what is returned or raised is read by nobody.

    It checks no rights and no arguments: the caller has done so a moment ago. It need not mask secrets, nor stop in
    time: the caller does.
    """

    def __call__(
        self,
        *,
        spec: ToolSpec,
        version: ToolVersion,
        credential: Credential,
        context: ToolContext,
        arguments: Mapping[str, Any],
    ) -> Any: ...


RUNNERS: dict[str, Runner] = {
    ToolKind.BUILTIN: builtin.run,
    ToolKind.HTTP: http.run,
    ToolKind.MCP: mcp.run,
    ToolKind.PYTHON: python.run,
}
#: Asked before a version is written.
CHECKS: dict[str, Check] = {
    ToolKind.HTTP: http.check_implementation,
    ToolKind.MCP: mcp.check_implementation,
    ToolKind.PYTHON: python.check_implementation,
}
