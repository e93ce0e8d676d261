"""MCP servers, as pages and the API show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404

from capabilities.language_models.providers.refused_tools import in_force
from capabilities.models import (
    UNDECIDED,
    Agent,
    ConnectionTest,
    ImportedTool,
    ImportStatus,
    McpServer,
    StoredCredential,
    Tool,
    ToolImport,
    ToolVersion,
    VersionStatus,
)
from toolhub.tenants.menu import notice
from toolhub.tenants.models import Membership, Organisation, Right
from toolhub.tenants.rows.keyset import Keyset, Page

#: Imports of a server that its page lists, newest first.
IMPORTS_SHOWN = 5
KEPT_BACK = Q(current_version__isnull=False) & ~Q(quarantine="")


def shown_servers() -> QuerySet[McpServer]:
    """Return the servers with their credential, and with `tool_count`, `kept_back_count` and `waiting_count`: its tools
    in force, those of them that are kept back, and definitions that wait for a decision in an import."""
    tools = Tool.objects.filter(server=OuterRef("pk"), current_version__isnull=False)
    waiting = ImportedTool.objects.filter(
        tool_import__server=OuterRef("pk"), tool_import__status=ImportStatus.REVIEW, status__in=UNDECIDED
    )
    return (
        McpServer.objects.select_related("credential")
        .defer("instructions", "server_capabilities", "credential__client_secret", "credential__server_metadata")
        .annotate(
            tool_count=_count(tools, "server"),
            kept_back_count=_count(tools.filter(KEPT_BACK), "server"),
            waiting_count=_count(waiting, "tool_import__server"),
        )
    )


def _count(rows: QuerySet[Any], by: str) -> Coalesce:
    counted = rows.order_by().values(by).annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


def servers_page(*, q: str = "", after: str = "", before: str = "") -> Page[McpServer]:
    """Return one page of servers by name. One query."""
    servers = shown_servers()
    if q:
        servers = servers.filter(Q(name__icontains=q) | Q(title__icontains=q))
    return Keyset(servers, ("name",)).page(after, before)


@dataclass(frozen=True)
class ServerNumbers:
    """Number of servers in all, switched off, and failing; and of the tools of theirs that are kept back."""

    servers: int
    off: int
    failing: int
    kept_back: int


def server_numbers() -> ServerNumbers:
    """Count the servers and the tools kept back. Two queries."""
    row = McpServer.objects.aggregate(
        servers=Count("pk"),
        off=Count("pk", filter=Q(is_enabled=False)),
        failing=Count("pk", filter=Q(is_enabled=True, failing_since__isnull=False)),
    )
    kept_back = Tool.objects.filter(KEPT_BACK, server__isnull=False).count()
    return ServerNumbers(row["servers"], row["off"], row["failing"], kept_back)


def server_or_404(name: str) -> McpServer:
    """Return the server of this name as `shown_servers` does, with all its columns. Raises Http404. One query."""
    server = shown_servers().defer(None).defer("credential__client_secret").filter(name=name).first()
    if server is None:
        raise Http404("No such server.")
    return server


def tools_of_server(server: McpServer, *, after: str = "", before: str = "") -> Page[Tool]:
    """Return the server's tools by name, each with `waiting_number`: of the newest version that waits for approval. One
    query."""
    waiting = ToolVersion.objects.filter(tool=OuterRef("pk"), status=VersionStatus.PENDING).order_by("-number")
    tools = (
        Tool.objects.filter(server=server)
        .annotate(waiting_number=Subquery(waiting.values("number")[:1]))
        .select_related("category", "current_version")
        .defer("current_version__wire", "current_version__parameters", "current_version__description")
    )
    return Keyset(tools, ("name",)).page(after, before)


def offered_tools(server: McpServer) -> Sequence[str]:
    """Return the names of its tools that are kept back although it offers them as they were accepted. One query."""
    tools = Tool.objects.filter(KEPT_BACK, server=server, is_offered=True)
    return list(tools.order_by("name").values_list("name", flat=True))


def imports_of_server(server: McpServer) -> Sequence[ToolImport]:
    """Return the server's newest imports, with `waiting_count`: the definitions in each that wait for a decision. One
    query."""
    waiting = Count("found", filter=Q(found__status__in=UNDECIDED))
    rows = ToolImport.objects.filter(server=server).defer("document").annotate(waiting_count=waiting)
    return list(rows.order_by("-pk")[:IMPORTS_SHOWN])


def removal_text(server: McpServer) -> str:
    """Return the effects of the server's removal, in sentences. Two queries, one where it has no tools."""
    tools = Tool.objects.filter(server=server, current_version__isnull=False)
    count = tools.count()
    if not count:
        return "None of its tools is in use."
    agents = Agent.objects.filter(agent_tools__tool__in=tools).distinct().order_by("name")
    names = list(agents.values_list("name", flat=True)[:4])
    more = " and others" if len(names) > 3 else ""
    agents_text = f" Agents that have some of them: {', '.join(names[:3])}{more}." if names else ""
    subject = "Its tool is" if count == 1 else f"Its {count:,} tools are"
    return (
        f"{subject} taken out of use at once, in running turns too.{agents_text} Versions and calls stay on record. A"
        " server that is set up again under this name has to be read, and its tools accepted, anew."
    )


def test_of_server(server: McpServer) -> ConnectionTest | None:
    """Return the result of the server's last test, or None. One query."""
    return ConnectionTest.objects.filter(server=server).first()


def credentials_by_title() -> QuerySet[StoredCredential]:
    return StoredCredential.objects.defer("client_secret", "server_metadata").order_by("title", "name")


#: Attribute in which the member of a request holds the counts of the menu from its first entry to its last: they are
#: read together.
_COUNTS = "_catalogue_counts"


def _catalogue_counts(member: Membership) -> tuple[int, int, int]:
    """Count imports to review, tools of servers that are kept back, and tools that providers refuse; 0 for who does not
    look after the catalogue. One query."""
    if not member.reach(Right.CATALOGUE):
        return 0, 0, 0
    own = {"organisation": OuterRef("pk")}
    imports = ToolImport.objects.filter(status=ImportStatus.REVIEW, **own)
    kept_back = Tool.objects.filter(KEPT_BACK, server__isnull=False, **own)
    refused = Tool.objects.filter(Exists(in_force().filter(tool=OuterRef("pk"))), **own)
    counted = (_count(each, "organisation") for each in (imports, kept_back, refused))
    counts: tuple[int, int, int] = Organisation.objects.filter(pk=member.organisation_id).values_list(*counted).get()
    return counts


def imports_notice(member: Membership) -> tuple[int, str]:
    """Return the number of imports to review, and a sentence that says so. One query, for the other two too."""
    counts = vars(member)[_COUNTS] = _catalogue_counts(member)
    return notice(counts[0], "import waits for review", "imports wait for review")


def servers_notice(member: Membership) -> tuple[int, str]:
    """Return the number of tools of servers that are kept back until somebody decides, and a sentence that says so. No
    query in a menu, which asks this last."""
    end = "kept back until somebody decides about a change"
    counts = vars(member).pop(_COUNTS, None) or _catalogue_counts(member)
    return notice(counts[1], f"tool is {end}", f"tools are {end}")


def refused_tools_notice(member: Membership) -> tuple[int, str]:
    """Return the number of tools that a model's provider refuses, and a sentence that says so."""
    end = "refused by a model’s provider"
    counts = vars(member).get(_COUNTS) or _catalogue_counts(member)
    return notice(counts[2], f"tool is {end}", f"tools are {end}")
