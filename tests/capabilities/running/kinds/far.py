"""A tool of an MCP server, and calls of it as the loop makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from capabilities.catalogue.tools.writes import Origin
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.contract.context import CallWaits, Credential, Resumed
from capabilities.contract.results import ToolResult
from capabilities.contract.spec import ToolSpec
from capabilities.models import McpServer, ToolKind, ToolVersion
from capabilities.running.kinds import mcp
from sessions.loop.tools import execution
from tests.capabilities.running.mcp_client.scripted import Script
from tests.cast import make_tool
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope


class Far:
    """A server of the organisation's with one tool."""

    def __init__(self, organisation: Organisation, url: str, **implementation: Any) -> None:
        self.organisation = organisation
        self.script = Script()
        with organisation_scope(organisation):
            self.server = McpServer.objects.create(
                organisation=organisation, name="far", title="Far", url=url, protocol=implementation.pop("protocol", "")
            )
        parameters = implementation.pop("parameters", {"type": "object", "properties": {"text": {"type": "string"}}})
        effect = implementation.pop("effect", "external")
        self.tool = make_tool(
            organisation,
            "mcp__far__do",
            origin=Origin(ToolKind.MCP, server=self.server),
            implementation={"name": "do"} | implementation,
            parameters=parameters,
            effect=effect,
            untrusted_output=True,
        )
        self.credential = Credential()

    @property
    def spec(self) -> ToolSpec:
        with organisation_scope(self.organisation):
            (spec,) = current_specs([self.tool.current_version_id or 0])
        return spec

    def call(
        self, *, resumed: Resumed | None = None, timeout: float = 20, member: int = 1, **arguments: Any
    ) -> ToolResult:
        spec = self.spec
        context = execution.context_of(spec, self.organisation.pk, member)
        context = replace(context, resumed=resumed, timeout=timeout)
        with organisation_scope(self.organisation):
            version = ToolVersion.objects.get(pk=self.tool.current_version_id or 0)
            return mcp.run(spec=spec, version=version, credential=self.credential, context=context, arguments=arguments)

    def waits(self, kind: type[CallWaits], **arguments: Any) -> Any:
        with pytest.raises(kind) as raised:
            self.call(**arguments)
        return raised.value

    def go_on(self, waits: CallWaits, action: str = "accept", **content: Any) -> ToolResult:
        return self.call(resumed=Resumed(waits.state, action, content))
