"""Servers are set up, changed and removed by one function each; what changes where a server leads keeps its tools
back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone
from pytest_django import Settings

from capabilities.catalogue.servers.writes import (
    ServerContent,
    ServerRefused,
    create_server,
    delete_server,
    server_content,
    update_server,
    url_without_query,
)
from capabilities.catalogue.tools.writes import definition_of, update_tool
from capabilities.choosing.pipeline.specs import specs
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.models import ConnectionTest, McpServer, Tool, ToolVersion, VersionStatus
from capabilities.running.egress import origin_of
from tests.capabilities.catalogue.servers.servers import URL, make_credential, make_server, make_server_tool
from tests.cast import make_member, make_role
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right

pytestmark = pytest.mark.django_db


def audited(action: str) -> AuditEntry:
    return AuditEntry.objects.get(action=action)


def test_a_server_is_set_up_without_a_word_to_it(in_acme: Organisation, alice: Membership) -> None:
    version = Organisation.objects.get().registry_version

    server = create_server(ServerContent("notes", "Our  notes", url=f" {URL}?key=hush "), actor=alice)

    assert (server.name, server.title, server.url, server.transport) == (
        "notes",
        "Our notes",
        f"{URL}?key=hush",
        "http",
    )
    assert (server.refreshed_at, server.refresh_at, server.is_enabled) == (None, None, True)
    entry = audited("mcp_server.create")
    assert (entry.after["url"], "hush" in str(entry.after)) == (f"{URL}?…", False)
    assert Organisation.objects.get().registry_version == version + 1


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("name", {"name": "Notes"}),
        ("name", {"name": ""}),
        ("name", {"name": "-notes"}),
        ("name", {"name": "a__b"}),
        ("name", {"name": "notes_"}),
        ("name", {"name": "n" * 33}),
        ("name", {"name": "new"}),
        ("name", {"name": "no/tes"}),
        ("title", {"title": "t" * 101}),
        ("url", {"url": ""}),
        ("url", {"url": "ftp://mcp.example.org"}),
        ("url", {"url": "https://user@mcp.example.org/mcp"}),
        ("url", {"url": "https://mcp.example.org/mcp#part"}),
        ("url", {"url": "https://mcp.example.org/" + "x" * 1_000}),
        ("transport", {"transport": "sse"}),
        ("credential", {"credential": "nowhere"}),
        ("stdio_name", {"stdio_name": "time"}),
        ("stdio_name", {"transport": "stdio", "url": "", "stdio_name": "/bin/sh"}),
        ("url", {"transport": "stdio", "stdio_name": "time"}),
        ("start_seconds", {"start_seconds": 0}),
        ("start_seconds", {"start_seconds": 91}),
        ("pinned_protocol", {"pinned_protocol": "2031-01-01"}),
    ],
)
def test_what_cannot_be_a_server_is_refused_beside_its_field(
    in_acme: Organisation, alice: Membership, field: str, content: dict[str, Any]
) -> None:
    with pytest.raises(ChangeRefused) as refused:
        create_server(ServerContent(**{"name": "notes", "url": URL} | content), actor=alice)

    assert refused.value.field == field
    assert not McpServer.objects.exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/mcp",
        "http://localhost:8000/mcp",
        "https://localhost./mcp",
        "http://169.254.169.254/latest",
        "http://[::1]/mcp",
        "http://[::ffff:a9fe:a9fe]/mcp",
        "http://10.1.2.3/mcp",
        "http://[fd00::1]/mcp",
        "https://93.184.215.14:8443/mcp",
    ],
)
def test_s31_a_private_address_or_an_odd_port_is_refused_as_it_is_typed(
    in_acme: Organisation, alice: Membership, settings: Settings, url: str
) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = []

    with pytest.raises(ChangeRefused, match="TOOLHUB_PRIVATE_HOSTS") as refused:
        create_server(ServerContent("notes", url=url), actor=alice)

    assert refused.value.field == "url"


def test_what_the_operator_lets_through_is_taken(in_acme: Organisation, alice: Membership, settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["mcp:127.0.0.1:8900"]

    assert create_server(ServerContent("notes", url="http://127.0.0.1:8900/mcp"), actor=alice).pk


def test_s40_no_command_can_be_typed_anywhere(in_acme: Organisation, alice: Membership) -> None:
    """A process is named, and only by the settings of the installation."""
    with pytest.raises(ChangeRefused) as refused:
        create_server(ServerContent("notes", transport="stdio", stdio_name="sh -c id"), actor=alice)

    assert (refused.value.field, refused.value.code) == ("stdio_name", "unknown")
    assert not {each.name for each in McpServer._meta.get_fields()} & {"command", "args", "argv", "env", "cwd"}


def test_a_name_of_a_server_that_is_taken_is_refused(in_acme: Organisation, alice: Membership) -> None:
    make_server(alice)

    with pytest.raises(ServerRefused) as refused:
        make_server(alice)

    assert refused.value.code == "taken"


def test_a_credential_is_only_chosen_for_where_it_may_go(in_acme: Organisation, alice: Membership) -> None:
    make_credential(in_acme, origins=["https://elsewhere.example.org"])

    with pytest.raises(ServerRefused, match=r"may not be sent to https://mcp\.example\.org") as refused:
        make_server(alice, credential="notes_key")

    assert refused.value.field == "credential"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://MCP.example.org:443/mcp", "https://mcp.example.org"),
        ("http://mcp.example.org:8080/", "http://mcp.example.org:8080"),
        ("https://[2606:4700::1111]/mcp", "https://[2606:4700::1111]"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str) -> None:
    assert origin_of(url) == origin


def test_the_query_of_an_address_is_not_shown() -> None:
    assert (url_without_query(URL), url_without_query(f"{URL}?key=hush")) == (URL, f"{URL}?…")


@pytest.mark.parametrize("change", [{"url": "https://other.example.org/mcp"}, {"credential": "notes_key"}])
def test_s49_another_address_or_credential_keeps_every_tool_back(
    in_acme: Organisation, alice: Membership, change: dict[str, Any]
) -> None:
    make_credential(in_acme)
    server = make_server(alice)
    tool, other = make_server_tool(server), make_server_tool(make_server(alice, "others"), "else")
    waiting = update_tool(
        tool,
        replace(definition_of(tool, ToolVersion.objects.get(tool=tool)), description="Waits."),
        actor=alice,
        status=VersionStatus.PENDING,
    )
    said = {"list_sha256": "x", "protocol": "2026-07-28", "server_info": {"name": "n"}, "refreshed_at": timezone.now()}
    McpServer.objects.filter(pk=server.pk).update(**said)
    ConnectionTest.objects.create(
        organisation=in_acme, server=server, membership=alice, status="works", deadline_at=server.created_at
    )

    saved = update_server(server, replace(server_content(server), **change), actor=alice)

    tool.refresh_from_db()
    other.refresh_from_db()
    waiting.refresh_from_db()
    assert tool.quarantine == f"The {'address' if 'url' in change else 'credential'} of its server changed."
    assert other.quarantine == ""
    assert (waiting.status, waiting.status_reason) == (VersionStatus.REJECTED, tool.quarantine)
    assert (saved.protocol, saved.server_info, saved.list_sha256, saved.refresh_at is None) == ("", {}, "", False)
    assert not ConnectionTest.objects.exists()
    assert audited("mcp_server.update").after["tools_kept_back"] == 1


def test_words_of_a_server_keep_nothing_back(in_acme: Organisation, alice: Membership) -> None:
    server = make_server(alice)
    tool = make_server_tool(server)

    update_server(server, replace(server_content(server), title="Another"), actor=alice)

    tool.refresh_from_db()
    assert (tool.quarantine, McpServer.objects.get().title) == ("", "Another")
    assert audited("mcp_server.update").after["title"] == "Another"


def test_an_unchanged_server_writes_no_audit_entry(in_acme: Organisation, alice: Membership) -> None:
    server = make_server(alice)

    update_server(server, server_content(server), actor=alice)

    assert not AuditEntry.objects.filter(action="mcp_server.update").exists()


def test_a_server_that_has_tools_keeps_its_name(in_acme: Organisation, alice: Membership) -> None:
    server = make_server(alice)
    renamed = update_server(server, replace(server_content(server), name="papers"), actor=alice)
    make_server_tool(renamed)

    with pytest.raises(ServerRefused, match="begin with this name") as refused:
        update_server(renamed, replace(server_content(renamed), name="notes"), actor=alice)

    assert (refused.value.field, McpServer.objects.get().name) == ("name", "papers")


def test_tools_of_a_server_that_is_off_are_not_ready(in_acme: Organisation, alice: Membership) -> None:
    server = make_server(alice)
    make_server_tool(server)
    McpServer.objects.update(refreshed_at=timezone.now())
    assert [spec.is_ready for spec in specs(Tool.objects.all())] == [True]

    server = update_server(server, replace(server_content(server), is_enabled=False), actor=alice)
    off = [spec.is_ready for spec in specs(Tool.objects.all())]
    server = update_server(server, replace(server_content(server), is_enabled=True), actor=alice)

    assert (off, [spec.is_ready for spec in specs(Tool.objects.all())]) == ([False], [True])
    assert server.refresh_at is not None


def test_rule_12_what_an_admin_switched_off_nobody_below_switches_on_for_themselves(
    in_acme: Organisation, alice: Membership
) -> None:
    make_role(in_acme, operator := make_member(in_acme, "olga", Access.OPERATOR))
    server = make_server(alice)
    make_server_tool(server)
    server = update_server(server, replace(server_content(server), is_enabled=False), actor=alice)

    with pytest.raises(ChangeForbidden, match="widen your own rights, by mcp__notes__add_note"):
        update_server(server, replace(server_content(server), is_enabled=True), actor=operator)
    assert not McpServer.objects.get().is_enabled

    update_server(server, replace(server_content(server), is_enabled=True), actor=alice)
    server = update_server(server, replace(server_content(server), is_enabled=False), actor=operator)
    update_server(server, replace(server_content(server), is_enabled=True), actor=operator)
    assert McpServer.objects.get().is_enabled


def test_a_removed_server_takes_its_tools_out_of_use_and_leaves_their_history(
    in_acme: Organisation, alice: Membership
) -> None:
    server = make_server(alice, title="Our notes")
    tool, waits = make_server_tool(server), make_server_tool(server, "other")
    current = ToolVersion.objects.get(tool=waits)
    content = replace(definition_of(waits, current), description="New.")
    pending = update_tool(waits, content, actor=alice, status=VersionStatus.PENDING)

    delete_server(server, actor=alice)

    tool.refresh_from_db()
    pending.refresh_from_db()
    (version,) = ToolVersion.objects.filter(tool=tool)
    assert (tool.server, tool.current_version, tool.quarantine) == (None, None, "Its server Our notes was removed.")
    assert (version.status, version.status_reason) == (VersionStatus.RETIRED, "Its server Our notes was removed.")
    assert pending.status == VersionStatus.REJECTED
    assert specs(Tool.objects.all()) == []
    assert not McpServer.objects.exists()
    assert audited("mcp_server.delete").after["tools"] == ["mcp__notes__add_note", "mcp__notes__other"]


def test_a_tool_without_a_server_is_never_ready_even_with_a_version(in_acme: Organisation, alice: Membership) -> None:
    server = make_server(alice)
    tool = make_server_tool(server)
    version = tool.current_version
    delete_server(server, actor=alice)

    Tool.objects.filter(pk=tool.pk).update(current_version=version, quarantine="")

    assert [spec.is_ready for spec in specs(Tool.objects.all())] == [False]


def test_a_server_set_up_again_under_its_name_has_its_old_tools_unused(
    in_acme: Organisation, alice: Membership
) -> None:
    server = make_server(alice)
    tool = make_server_tool(server)
    delete_server(server, actor=alice)

    again = make_server(alice)

    tool.refresh_from_db()
    assert (tool.server, tool.current_version, bool(tool.quarantine)) == (again, None, True)
    assert specs(Tool.objects.all()) == []


@pytest.mark.parametrize("category", ["", "from_servers"])
def test_bob_needs_the_right_whole(in_acme: Organisation, alice: Membership, bob: Membership, category: str) -> None:
    server = make_server(alice)
    if category:
        AdminRight.objects.create(organisation=in_acme, membership=bob, right=Right.CATALOGUE, category=category)

    for write in (
        lambda: make_server(bob, "other"),
        lambda: update_server(server, replace(server_content(server), title="Mine"), actor=bob),
        lambda: delete_server(server, actor=bob),
    ):
        with pytest.raises(PermissionDenied, match="catalogue"):
            write()

    AdminRight.objects.create(organisation=in_acme, membership=bob, right=Right.CATALOGUE)
    make_server(Membership.objects.select_related("organisation", "user").get(pk=bob.pk), "other")
