"""Rows of MCP servers and of tools that came from them."""

from __future__ import annotations

from typing import Any

from capabilities.catalogue.servers.writes import ServerContent, create_server
from capabilities.catalogue.tools.writes import Definition, Origin, create_tool
from capabilities.models import McpServer, StoredCredential, Tool, ToolKind
from tests.cast import make_category
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

URL = "https://mcp.example.org/mcp"
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def make_server(actor: Membership, name: str = "notes", **content: Any) -> McpServer:
    with organisation_scope(actor.organisation_id):
        return create_server(ServerContent(name, **{"url": URL} | content), actor=actor)


def make_server_tool(server: McpServer, name: str = "add_note", **fields: Any) -> Tool:
    """A tool of the server that is in force."""
    content: dict[str, Any] = {"description": f"Does {name}.", "parameters": SCHEMA} | fields
    content.setdefault("implementation", {"name": name, "headers": {}, "output_schema": None, "annotations": {}})
    with organisation_scope(server.organisation_id):
        definition = Definition(f"mcp__{server.name}__{name}", **content)
        category = make_category(Organisation.objects.get(pk=server.organisation_id), "from_servers", is_core=False)
        return create_tool(category, definition, actor=None, origin=Origin(ToolKind.MCP, server=server))


def make_credential(organisation: Organisation, name: str = "notes_key", **fields: Any) -> StoredCredential:
    with organisation_scope(organisation):
        plain = {"title": name.title(), "kind": "bearer", "origins": ["https://mcp.example.org"]}
        return StoredCredential.objects.create(organisation=organisation, name=name, **plain | fields)
