"""The audited writes of MCP servers: where they are, what signs, and whether their tools are used."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now

from capabilities.catalogue.imports.writes.start import start_import
from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.text import storable
from capabilities.models import (
    RELEASED,
    ConnectionTest,
    ImportSource,
    McpServer,
    StoredCredential,
    Tool,
    ToolImport,
    ToolKind,
    ToolVersion,
    Transport,
    VersionStatus,
    kept_back,
)
from capabilities.running.egress import Purpose, origin_of
from capabilities.running.egress.web_addresses import check_web_address
from capabilities.running.mcp_client.limits import CONNECT_SECONDS, MOST_CONNECT_SECONDS
from capabilities.running.mcp_client.protocol import VERSIONS
from capabilities.running.mcp_client.server_addresses import StdioEntry
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Access, Membership, Organisation, Right

#: So that mcp__NAME__TOOL has room in 64 characters.
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
MAX_URL = 1_000
#: Names that stand for something else in our addresses.
RESERVED_NAMES = frozenset({"new"})
#: Servers of one organisation.
MAX_SERVERS = 1_000
#: Tools that an audit entry names.
RECORDED = 100


class ServerRefused(ChangeRefused):
    """Reason why the server cannot be saved."""


@dataclass(frozen=True)
class ServerContent:
    """Content of a server's form. `credential` is the name of a stored credential, "" for none; `stdio_name` the name
    of an entry in the installation's settings, for a process."""

    name: str
    title: str = ""
    transport: str = Transport.HTTP.value
    url: str = ""
    stdio_name: str = ""
    credential: str = ""
    #: Seconds that it may take to connect, or to start, and to agree on a version.
    start_seconds: int = CONNECT_SECONDS
    #: The version of the protocol that is spoken with it and no other; empty: one is agreed on.
    pinned_protocol: str = ""
    is_enabled: bool = True


def server_content(server: McpServer) -> ServerContent:
    """Return the content of the server as it is stored."""
    plain = {each.name: getattr(server, each.name) for each in fields(ServerContent)}
    return ServerContent(**plain | {"credential": server.credential.name if server.credential else ""})


def tool_prefix(server_name: str) -> str:
    """Return the prefix of the names of a server's tools."""
    return f"mcp__{server_name}__"


@configuration_write()
def create_server(content: ServerContent, *, actor: Membership) -> McpServer:
    """Set a server up. Nothing is asked of it yet, and none of its tools is there.

    Tools of a removed server of the same name are this one's: a definition that is accepted is their next version.
    Raises PermissionDenied without the right `catalogue`; ServerRefused for content that is not taken, and for one
    server too many.
    """
    require(actor, Right.CATALOGUE)
    if McpServer.objects.count() >= MAX_SERVERS:
        raise ServerRefused("name", f"There are {MAX_SERVERS:,} servers already.")
    server = McpServer(organisation_id=actor.organisation_id, created_by=actor)
    _check_name(content.name, server)
    _fill(server, content, actor.organisation)
    server.off_by_admin = not content.is_enabled and actor.has_access(Access.ADMIN)
    server.save()
    left_behind = Tool.objects.filter(kind=ToolKind.MCP, server=None, name__startswith=tool_prefix(server.name))
    after = _shown(server)
    if count := left_behind.update(server=server):
        after["tools"] = count
    record("mcp_server.create", server, actor=actor, after=after)
    touch_registry(server.organisation_id)
    return server


@configuration_write()
def update_server(server: McpServer, content: ServerContent, *, actor: Membership) -> McpServer:
    """Change a server.

    Where it leads to another address or process, or is signed in another way, all its tools are kept back until the
    server was read again and somebody accepted them, and what waited for approval is rejected: it belongs to the
    address or process before. A server that has tools keeps its name, which theirs begin with. What an admin switched
    off, nobody below switches on for their own use. Raises PermissionDenied without the right `catalogue`;
    ServerRefused for content that is not taken, and for another name of a server that has tools.
    """
    require(actor, Right.CATALOGUE)
    server = McpServer.objects.select_related("credential").get(pk=server.pk)
    before, was_enabled, was_reached = _shown(server), server.is_enabled, _reached(server)
    if content.name != server.name:
        _check_name(content.name, server)
        if Tool.objects.filter(server=server).exists():
            raise ServerRefused("name", "The names of its tools begin with this name, so it stays. Change the title.")
    _fill(server, content, actor.organisation)
    moved = was_reached != _reached(server)
    after = _shown(server)
    if before == after and not moved:
        return server
    if was_enabled != server.is_enabled:
        server.off_by_admin = not server.is_enabled and actor.has_access(Access.ADMIN)
    if moved:
        forget_listing(server)
    elif server.is_enabled and not was_enabled and server.refreshed_at is not None:
        server.refresh_at = Now()
    server.save()
    ConnectionTest.objects.filter(server=server).delete()
    if moved:
        reason = f"{_what_changed(was_reached, _reached(server))} of its server changed."
        after["tools_kept_back"] = keep_back_tools(server, reason)
    record("mcp_server.update", server, actor=actor, before=before, after=after)
    touch_registry(server.organisation_id)
    server.refresh_from_db()
    return server


@configuration_write("server")
def delete_server(server: McpServer, *, actor: Membership) -> None:
    """Remove a server, and take its tools out of use: their versions are retired and stay on record, under the same
    names. Raises PermissionDenied without the right `catalogue`."""
    require(actor, Right.CATALOGUE)
    server = McpServer.objects.select_related("credential").get(pk=server.pk)
    tools = Tool.objects.filter(server=server)
    names = list(tools.order_by("name").values_list("name", flat=True))
    reason = storable(f"Its server {server.title} was removed.", 300)
    in_force = ToolVersion.objects.filter(tool__in=tools, status=VersionStatus.APPROVED)
    in_force.update(status=VersionStatus.RETIRED, status_reason=reason)
    _reject_waiting(server, reason)
    tools.update(**kept_back(reason), current_version=None, is_offered=False, server=None)
    after = {"tools": names[:RECORDED], "tools_count": len(names)} if names else {}
    record("mcp_server.delete", server, actor=actor, before=_shown(server), after=after)
    server.delete()
    touch_registry(actor.organisation_id)


def read_tools(server: McpServer, *, actor: Membership) -> ToolImport:
    """Have a worker read the server's tools with an audit row, for a person to review; one reading at a time. Raises
    ChangeRefused for a server that is switched off."""
    if not server.is_enabled:
        raise ServerRefused("server", f"{server.title} is switched off: switch it on first.", code="conflict")
    return start_import(ImportSource.MCP, actor=actor, title=server.title, server=server)


@configuration_write("tools")
def use_as_offered(server: McpServer, names: Collection[str], *, actor: Membership) -> int:
    """Use these tools of the server again that are kept back, as they were accepted: it offered them so when it was
    last read. What waits beside them is rejected. All or none; returns how many.

    Needs the right `approve_code` for their categories. Raises ChangeRefused for one that it does not offer so.
    """
    tools = {each.name: each for each in Tool.objects.filter(server=server, name__in=names).select_related("category")}
    for name in names:
        if name not in tools:
            raise not_there("tools", "tool of this server", name)
    kept_back = [each for each in tools.values() if each.quarantine and each.current_version_id is not None]
    require(actor, Right.APPROVE_CODE, {each.category.name for each in kept_back})
    for tool in kept_back:
        if not tool.is_offered:
            raise ServerRefused(
                "tools", f"{tool} was not offered as it was accepted when the server was last read.", code="conflict"
            )
    if not kept_back:
        return 0
    reason = "The definition that was accepted before was kept."
    keys = [each.pk for each in kept_back]
    waiting = ToolVersion.objects.filter(tool__in=keys, status=VersionStatus.PENDING)
    waiting.update(status=VersionStatus.REJECTED, status_reason=reason, decided_by=actor, decided_at=Now())
    Tool.objects.filter(pk__in=keys).update(**RELEASED)
    reasons = {each.name: each.quarantine for each in sorted(kept_back, key=str)[:RECORDED]}
    record("mcp_server.accept", server, actor=actor, before={"kept_back": reasons}, after={"tools": len(kept_back)})
    touch_registry(server.organisation_id)
    return len(kept_back)


def forget_listing(server: McpServer) -> None:
    """Forget, before it is saved, what was read of it: it is not true of where it leads now, so it is read again at
    once."""
    server.protocol, server.instructions, server.list_sha256, server.error = "", "", "", ""
    server.server_info, server.server_capabilities = {}, {}
    was_read = server.refreshed_at is not None or server.failing_since is not None
    server.refreshed_at = server.failing_since = None
    server.refresh_at = Now() if was_read else None


def keep_back_tools(server: McpServer, reason: str, tools: Collection[int] | None = None) -> int:
    """Keep these of its tools back, by key; None: all that are in force. What waits for approval is rejected. Returns
    how many are kept back now and were not. In the caller's transaction, without an audit row."""
    text = storable(reason, 300)
    rows = Tool.objects.filter(server=server).exclude(current_version=None)
    if tools is not None:
        rows = rows.filter(pk__in=tools)
    count = rows.filter(quarantine="").count()
    rows.update(is_offered=False)
    # What a person said of one stays.
    rows.filter(Q(quarantine="") | Q(quarantined_by=None)).update(**kept_back(text))
    _reject_waiting(server, text, tools)
    return count


def _reject_waiting(server: McpServer, reason: str, tools: Collection[int] | None = None) -> None:
    waiting = ToolVersion.objects.filter(tool__server=server, status=VersionStatus.PENDING)
    if tools is not None:
        waiting = waiting.filter(tool__in=tools)
    waiting.update(status=VersionStatus.REJECTED, status_reason=reason, decided_at=Now())


def _fill(server: McpServer, content: ServerContent, organisation: Organisation) -> None:
    """Raises ServerRefused for what cannot be."""
    if content.transport not in Transport.values:
        raise ServerRefused("transport", f"Choose one of {', '.join(Transport.values)}.")
    server.name = content.name
    server.title = storable(" ".join(content.title.split()) or content.name)
    if len(server.title) > 100:
        raise ServerRefused("title", "The title has at most 100 characters.")
    server.transport = Transport(content.transport)
    server.credential = _credential_of(content.credential)
    if server.transport == Transport.HTTP:
        server.url, server.stdio_name = _checked_url(content, server.credential), ""
    else:
        server.url, server.stdio_name = "", _checked_process(content, organisation)
    if not 1 <= content.start_seconds <= MOST_CONNECT_SECONDS:
        raise ServerRefused("start_seconds", f"Give it 1 at least, and {MOST_CONNECT_SECONDS} at most.")
    if content.pinned_protocol not in ("", *VERSIONS):
        raise ServerRefused("pinned_protocol", f"Choose one of {', '.join(VERSIONS)}, or none.")
    server.start_seconds, server.pinned_protocol = content.start_seconds, content.pinned_protocol
    server.is_enabled = content.is_enabled


def _check_name(name: str, server: McpServer) -> None:
    if not NAME.fullmatch(name) or "__" in name or name.endswith("_"):
        raise ServerRefused(
            "name",
            "Use 1 to 32 lower-case letters, digits, hyphens and single underscores; begin with a letter or digit.",
        )
    if name in RESERVED_NAMES:
        raise ServerRefused("name", f"The name {name} is taken by the service itself.")
    if McpServer.objects.filter(name=name).exclude(pk=server.pk).exists():
        raise ServerRefused("name", f"There is a server {name} already.", code="taken")


def _credential_of(name: str) -> StoredCredential | None:
    if not name:
        return None
    found = StoredCredential.objects.filter(name=name).first()
    if found is None:
        raise not_there("credential", "credential", name)
    return found


def _checked_url(content: ServerContent, credential: StoredCredential | None) -> str:
    """Return the address of the server. Raises ServerRefused, also for one beyond the credential's origins."""
    url = content.url.strip()
    if content.stdio_name:
        raise ServerRefused("stdio_name", "Only a process of this installation has one.")
    if not url:
        raise ServerRefused("url", "Give the address of the server.")
    if len(url) > MAX_URL:
        raise ServerRefused("url", f"The address has at most {MAX_URL:,} characters.")
    parsed = check_web_address(url, "url", purpose=Purpose.MCP)
    if parsed.fragment:
        raise ServerRefused("url", "The address ends before any #.")
    origin = origin_of(url)
    if credential is not None and origin not in credential.origins:
        raise ServerRefused("credential", f"{credential.title} may not be sent to {origin}: add it to the credential.")
    return url


def _checked_process(content: ServerContent, organisation: Organisation) -> str:
    """Raises ChangeRefused unless the installation's settings have this entry for the organisation."""
    if content.url or content.credential:
        field = "url" if content.url else "credential"
        raise ServerRefused(field, "A process of this installation has none.")
    if content.stdio_name not in processes_for(organisation):
        raise not_there("stdio_name", "process in the settings", content.stdio_name)
    return content.stdio_name


def processes_for(organisation: Organisation) -> tuple[str, ...]:
    """Return the names of processes of this installation that its settings open to the organisation. No query."""
    entries: dict[str, StdioEntry] = settings.TOOLHUB_MCP_STDIO
    return tuple(sorted(name for name, entry in entries.items() if entry.is_open_to(organisation.slug)))


def _reached(server: McpServer) -> dict[str, Any]:
    """Return the fields that say where its calls go and how they are signed."""
    return {
        "address": (server.transport, server.url, server.stdio_name),
        "credential": server.credential_id,
    }


def _what_changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    changed = [name for name in before if before[name] != after[name]]
    return " and ".join(f"the {name}" for name in changed).capitalize()


def url_without_query(url: str) -> str:
    """The address as lists and the audit show it: what stands behind the ? may be a key."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query="…" if parts.query else ""))


def _shown(server: McpServer) -> dict[str, Any]:
    """Return the fields that the audit records of it."""
    return {
        "name": server.name,
        "title": server.title,
        "transport": str(server.transport),
        "url": url_without_query(server.url),
        "stdio_name": server.stdio_name,
        "credential": server.credential.name if server.credential else "",
        "start_seconds": server.start_seconds,
        "pinned_protocol": server.pinned_protocol,
        "is_enabled": server.is_enabled,
    }
