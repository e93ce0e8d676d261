"""REST: MCP servers. Secrets are stored with credentials, and never come out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.catalogue.servers.queries import offered_tools, server_or_404, shown_servers
from capabilities.catalogue.servers.writes import (
    MAX_URL,
    ServerContent,
    create_server,
    delete_server,
    read_tools,
    server_content,
    update_server,
    use_as_offered,
)
from capabilities.common.api import checked_part, refusals
from capabilities.models import McpServer, Transport
from capabilities.running.mcp_client.limits import CONNECT_SECONDS, MOST_CONNECT_SECONDS
from capabilities.running.mcp_client.protocol import VERSIONS
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page


class ServerIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=32, help_text="Its tools are called mcp__NAME__TOOL.")
    title = serializers.CharField(max_length=100, allow_blank=True, default="", help_text="Empty: the name.")
    transport = serializers.ChoiceField(Transport.choices, default=Transport.HTTP)
    url = serializers.CharField(
        max_length=MAX_URL, allow_blank=True, default="", help_text="Of a server over HTTP; keys do not belong in it."
    )
    stdio_name = serializers.CharField(
        max_length=64,
        allow_blank=True,
        default="",
        help_text="Of a process: its entry in the settings of the installation.",
    )
    credential = serializers.CharField(
        max_length=64, allow_blank=True, default="", help_text="Name of the credential that signs; empty: none."
    )
    start_seconds = serializers.IntegerField(
        min_value=1,
        max_value=MOST_CONNECT_SECONDS,
        default=CONNECT_SECONDS,
        help_text="That it may take to connect, or to start, and to agree on a version of the protocol.",
    )
    pinned_protocol = serializers.ChoiceField(
        ["", *VERSIONS],
        default="",
        help_text="The version of the protocol that is spoken with it and no other; empty: one is agreed on.",
    )
    is_enabled = serializers.BooleanField(default=True)


class ServerOut(ServerIn):
    url = serializers.CharField(help_text="Empty without the right `catalogue` for every category.")
    protocol = serializers.CharField(help_text="Version that it spoke when it was last read; empty before.")
    server_name = serializers.CharField(help_text="What it calls itself: text from outside.")
    server_version = serializers.CharField()
    instructions = serializers.CharField(help_text="Text from outside, for people: no model is sent it.")
    tools = serializers.IntegerField(help_text="Tools of it that have a version in force.")
    kept_back = serializers.IntegerField(help_text="Those of them that wait until somebody decides about a change.")
    to_review = serializers.IntegerField(help_text="Definitions in its imports that wait for a decision.")
    refreshed_at = serializers.DateTimeField(allow_null=True, help_text="When its tools were last read.")
    refresh_at = serializers.DateTimeField(allow_null=True, help_text="When they are read again.")
    failing_since = serializers.DateTimeField(allow_null=True)
    error = serializers.CharField(help_text="Why it could not be read, while it fails.")


SHOWN = ("name", "title", "transport", "stdio_name", "start_seconds", "pinned_protocol", "is_enabled")


def shown(server: McpServer, reader: Membership) -> dict[str, Any]:
    """Return one server, with the counts of `shown_servers`."""
    info = server.server_info if isinstance(server.server_info, dict) else {}
    body = {
        **{name: getattr(server, name) for name in SHOWN},
        "url": server.url if reader.has_right(Right.CATALOGUE) else "",
        "credential": server.credential.name if server.credential else "",
        "server_name": str(info.get("name", "")),
        "server_version": str(info.get("version", "")),
        "tools": server.tool_count,  # type: ignore[attr-defined]
        "kept_back": server.kept_back_count,  # type: ignore[attr-defined]
        "to_review": server.waiting_count,  # type: ignore[attr-defined]
    }
    for name in ("protocol", "instructions", "refreshed_at", "refresh_at", "failing_since", "error"):
        body[name] = getattr(server, name)
    return dict(ServerOut(body).data)


class ServerList(APIView):
    @extend_schema(
        operation_id="mcp_servers_list", summary="MCP servers", parameters=PAGE_PARAMETERS, responses=paged(ServerOut)
    )
    def get(self, request: Request) -> Response:
        """List the servers by name. Needs the right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        rows = shown_servers().defer(None).defer("credential__client_secret")
        return Response(page(request, rows, "name", lambda row: shown(row, member)))

    @extend_schema(
        operation_id="mcp_servers_create", summary="Add an MCP server", request=ServerIn, responses={201: ServerOut}
    )
    def post(self, request: Request) -> Response:
        """Add a server. It is not asked anything yet: test it, then read its tools. Needs the right `catalogue` for
        every category."""
        member = api_member(request, right=Right.CATALOGUE)
        content = ServerContent(**checked(ServerIn, request))
        with refusals():
            server = create_server(content, actor=member)
        return Response(shown(server_or_404(server.name), member), status.HTTP_201_CREATED)


class ServerDetail(APIView):
    @extend_schema(operation_id="mcp_servers_read", summary="One MCP server", responses={200: ServerOut, 404: ErrorOut})
    def get(self, request: Request, name: str) -> Response:
        """Return one server. Needs the right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        return Response(shown(server_or_404(name), member))

    @extend_schema(
        operation_id="mcp_servers_update",
        summary="Change an MCP server",
        request=ServerIn,
        responses={200: ServerOut, 404: ErrorOut},
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change the given fields. With another address or credential all its tools are kept back until it was read
        again and they were accepted."""
        member = api_member(request, right=Right.CATALOGUE)
        server = server_or_404(name)
        part = checked_part(ServerIn, request)
        with refusals():
            saved = update_server(server, replace(server_content(server), **part), actor=member)
        return Response(shown(server_or_404(saved.name), member))

    @extend_schema(
        operation_id="mcp_servers_delete", summary="Remove an MCP server", responses={204: None, 404: ErrorOut}
    )
    def delete(self, request: Request, name: str) -> Response:
        """Remove the server: its tools are taken out of use; their history stays."""
        member = api_member(request, right=Right.CATALOGUE)
        server = server_or_404(name)
        with refusals():
            delete_server(server, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ServerReadOut(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="Of the import that the tools are reviewed in.")
    status = serializers.CharField()


class ServerRead(APIView):
    @extend_schema(
        operation_id="mcp_servers_read_tools",
        summary="Read an MCP server’s tools",
        request=None,
        responses={202: ServerReadOut, 404: ErrorOut, 409: ErrorOut},
    )
    def post(self, request: Request, name: str) -> Response:
        """Have a worker read its tools into an import, for a person to review. One that is open is returned as it is.
        409 `conflict` if the server is switched off, or too many imports are open. Needs the right `catalogue`."""
        member = api_member(request, right=Right.CATALOGUE, category=None)
        server = server_or_404(name)
        with refusals():
            asked = read_tools(server, actor=member)
        return Response(ServerReadOut({"id": asked.public_id, "status": asked.status}).data, status.HTTP_202_ACCEPTED)


class ServerAcceptIn(serializers.Serializer[Any]):
    tools = serializers.ListField(
        child=serializers.CharField(max_length=64), max_length=1_000, required=False, help_text="Left out: all of them."
    )


class ServerAcceptedOut(serializers.Serializer[Any]):
    accepted = serializers.IntegerField(help_text="Tools that are used again.")


class ServerAccept(APIView):
    @extend_schema(
        operation_id="mcp_servers_accept",
        summary="Use tools again as they were accepted",
        request=ServerAcceptIn,
        responses={200: ServerAcceptedOut, 404: ErrorOut, 409: ErrorOut},
    )
    def post(self, request: Request, name: str) -> Response:
        """Use tools again that are kept back although the server offers them as they were accepted, such as after it
        moved. 409 `conflict` for one that it offers otherwise: decide on its version that waits. Needs the right
        `approve_code` for their categories."""
        member = api_member(request, right=Right.APPROVE_CODE, category=None)
        server = server_or_404(name)
        names = checked(ServerAcceptIn, request).get("tools")
        with refusals():
            count = use_as_offered(server, offered_tools(server) if names is None else names, actor=member)
        return Response(ServerAcceptedOut({"accepted": count}).data)
