"""The pages of MCP servers and their REST: what each reader sees, and queries that do not grow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from capabilities.catalogue.tools.writes import definition_of, update_tool
from capabilities.contract.context import Credential
from capabilities.models import ImportedTool, McpServer, Tool, ToolImport, ToolVersion, VersionStatus
from capabilities.running.kinds.mcp import address_of
from capabilities.running.mcp_client.server_addresses import StdioEntry
from tests.capabilities.catalogue.servers.servers import URL, make_credential, make_server, make_server_tool
from tests.cast import give_tool, make_agent, make_tool
from tests.rest import Rest
from toolhub.tenants.models import AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
ACME = "/o/acme/servers/"


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def as_bob(alice: Membership, bob: Membership) -> Client:
    client = Client()
    client.force_login(bob.user)
    return client


def give(bob: Membership, category: str = "") -> None:
    with organisation_scope(bob.organisation_id):
        AdminRight.objects.create(
            organisation_id=bob.organisation_id, membership=bob, right=Right.CATALOGUE, category=category
        )


def text_of(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def change(server: McpServer, **columns: Any) -> None:
    with organisation_scope(server.organisation_id):
        McpServer.objects.filter(pk=server.pk).update(**columns)


def test_without_servers_the_list_says_what_one_is(as_alice: Client) -> None:
    assert "Nothing of it runs before that." in text_of(as_alice, ACME)


def test_a_server_is_added_changed_and_removed_in_the_browser(as_alice: Client, acme: Organisation) -> None:
    make_credential(acme)

    added = as_alice.post(f"{ACME}new/", {"name": "notes", "url": URL, "credential": "notes_key", "is_enabled": "on"})
    page = text_of(as_alice, added["Location"])
    changed = as_alice.post(f"{ACME}notes/edit/", {"name": "notes", "title": "Paper", "url": URL})
    after = text_of(as_alice, changed["Location"])
    removed = as_alice.post(f"{ACME}notes/delete/", follow=True).content.decode()

    assert added["Location"] == f"{ACME}notes/"
    assert ("Test it, then read its tools." in page, "Notes_Key" in page, URL in page) == (True, True, True)
    assert ("Paper" in after, "switched off" in after, "nothing" in after) == (True, True, True)
    assert "Paper is removed." in removed


def test_a_refusal_stands_beside_its_field(as_alice: Client) -> None:
    answer = as_alice.post(f"{ACME}new/", {"name": "no tes", "url": URL})
    page = answer.content.decode()

    assert (answer.status_code, "id_name_error" in page, URL in page) == (422, True, True)


def test_the_page_says_how_a_server_is_doing(as_alice: Client, alice: Membership, acme: Organisation) -> None:
    server = make_server(alice, title="Our notes")
    tool = make_server_tool(server)
    with organisation_scope(acme):
        Tool.objects.filter(pk=tool.pk).update(quarantine="Its description changed.")
        found = ToolImport.objects.create(
            organisation=acme, source="mcp", title="t", server=server, status="review", deadline_at=timezone.now()
        )
        ImportedTool.objects.create(organisation=acme, tool_import=found, position=1, original_name="b", name="b")
    change(
        server,
        protocol="2026-07-28",
        server_info={"name": "<b>notes</b>", "version": "9.1"},
        instructions="Call <script>me</script> first.",
        refreshed_at=timezone.now(),
        failing_since=timezone.now(),
        error="It did not answer in time.",
    )

    listed, page, home = (text_of(as_alice, path) for path in (ACME, f"{ACME}notes/", "/o/acme/"))

    assert "1 server" in " ".join(listed.split())
    assert [each for each in ("Failing", "To review", "Kept back") if each not in listed] == []
    told = ("It did not answer in time.", "Its description changed.", "2026-07-28", "version 9.1", "No model reads")
    assert [each for each in told if each not in page] == []
    assert ("&lt;script&gt;me" in page, "<script>me" in page, "<b>notes" in page) == (True, False, False)
    for waits in ("1 tool is kept back until somebody decides about a change", "1 import waits for review"):
        assert waits in " ".join(home.split())


def test_before_it_is_removed_its_page_says_who_loses_what(
    as_alice: Client, alice: Membership, acme: Organisation
) -> None:
    server = make_server(alice)
    tool = make_server_tool(server)
    give_tool(make_agent(acme, name="Clerk"), tool)

    page = " ".join(text_of(as_alice, f"{ACME}notes/").split())

    assert "Agents that have some of them: Clerk." in page


def test_a_tool_of_a_server_that_is_off_says_so(as_alice: Client, alice: Membership) -> None:
    server = make_server(alice, title="Our notes")
    make_server_tool(server)
    change(server, is_enabled=False)

    page = text_of(as_alice, "/o/acme/tools/mcp__notes__add_note/")

    assert "its server Our notes is switched off" in " ".join(page.split())
    assert text_of(as_alice, "/o/acme/tools/")


def kept_back(server: McpServer, name: str, *, is_offered: bool) -> Tool:
    tool = make_server_tool(server, name)
    with organisation_scope(server.organisation_id):
        Tool.objects.filter(pk=tool.pk).update(quarantine="The address of its server changed.", is_offered=is_offered)
    return tool


def test_what_is_offered_as_accepted_is_used_again_in_the_browser(
    as_alice: Client, alice: Membership, acme: Organisation
) -> None:
    server = make_server(alice)
    kept_back(server, "a", is_offered=True)
    kept_back(server, "b", is_offered=False)

    before = " ".join(text_of(as_alice, f"{ACME}notes/").split())
    after = as_alice.post(f"{ACME}notes/accept/", follow=True).content.decode()

    assert "2 tools are kept back" in before
    assert "1 of them the server offers" in before
    assert "1 tool is used again" in after
    with organisation_scope(acme):
        assert list(Tool.objects.filter(quarantine="").values_list("name", flat=True)) == ["mcp__notes__a"]


def test_accepting_over_rest(alice: Membership, bob: Membership) -> None:
    server = make_server(alice)
    kept_back(server, "a", is_offered=True)
    kept_back(server, "b", is_offered=False)
    rest = Rest(alice)

    refused = rest.post("mcp-servers/notes/accept", {"tools": ["mcp__notes__a", "mcp__notes__b"]})
    unknown = rest.post("mcp-servers/notes/accept", {"tools": ["calculator"]})
    accepted = rest.post("mcp-servers/notes/accept", {})
    give(bob)

    assert refused.error == (409, "conflict", None)
    assert unknown.error == (400, "unknown", "tools")
    assert (accepted.status, accepted.json) == (200, {"accepted": 1})
    assert Rest(bob).post("mcp-servers/notes/accept", {}).status == 403


def test_a_change_that_waits_is_linked_from_its_server(as_alice: Client, alice: Membership, acme: Organisation) -> None:
    tool = kept_back(make_server(alice), "a", is_offered=False)
    with organisation_scope(acme):
        version = ToolVersion.objects.get(tool=tool)
        content = replace(definition_of(tool, version), description="Sends it to Mallory.")
        update_tool(tool, content, actor=None, status=VersionStatus.PENDING)

    page = text_of(as_alice, f"{ACME}notes/")
    waiting = text_of(as_alice, "/o/acme/tools/mcp__notes__a/versions/2/")

    assert 'href="/o/acme/tools/mcp__notes__a/versions/2/"' in page
    assert "Mallory" in waiting


def test_seconds_to_start_and_a_pinned_protocol_are_set_by_page_and_by_rest(
    as_alice: Client, alice: Membership
) -> None:
    fields = {"name": "notes", "url": URL, "is_enabled": "on"}
    refused = as_alice.post(f"{ACME}new/", fields | {"start_seconds": "91"})
    as_alice.post(f"{ACME}new/", fields | {"start_seconds": "60", "pinned_protocol": "2025-06-18"})
    rest = Rest(alice)
    by_page = rest.get("mcp-servers/notes").json
    by_rest = rest.patch("mcp-servers/notes", {"start_seconds": 5, "pinned_protocol": ""}).json
    wrong = [
        rest.patch("mcp-servers/notes", each).status for each in ({"start_seconds": 0}, {"pinned_protocol": "2020"})
    ]

    assert refused.status_code == 422
    assert (by_page["start_seconds"], by_page["pinned_protocol"]) == (60, "2025-06-18")
    assert (by_rest["start_seconds"], by_rest["pinned_protocol"], wrong) == (5, "", [400, 400])
    with organisation_scope(alice.organisation):
        server = McpServer.objects.get(name="notes")
        McpServer.objects.update(start_seconds=60, pinned_protocol="2025-06-18")
        server.refresh_from_db()
        address = address_of(server, Credential())
    assert (address.start_seconds, address.pinned) == (60, "2025-06-18")


def test_processes_are_offered_as_the_installation_says(
    as_alice: Client, alice: Membership, settings: Settings
) -> None:
    """S40: the form names entries of the settings, and has no field for a command."""
    entries = {"time": StdioEntry("time", ("/bin/true",), organisations=("acme",))}
    entries["other"] = StdioEntry("other", ("/bin/true",), organisations=("globex",))
    settings.TOOLHUB_MCP_STDIO = entries

    page = text_of(as_alice, f"{ACME}new/")
    made = as_alice.post(f"{ACME}new/", {"name": "time", "transport": "stdio", "stdio_name": "time", "url": URL})
    stolen = as_alice.post(f"{ACME}new/", {"name": "other", "transport": "stdio", "stdio_name": "other"})
    over_rest = Rest(alice).post("mcp-servers", {"name": "x", "transport": "stdio", "stdio_name": "other"})

    assert ('value="time"' in page, 'value="other"' in page, "/bin/true" in page) == (True, False, False)
    assert (made.status_code, stolen.status_code) == (302, 422)
    assert over_rest.error == (400, "unknown", "stdio_name")
    assert "the process <code>time</code>" in " ".join(text_of(as_alice, f"{ACME}time/").split())


def test_bob_sees_no_server_and_on_a_tool_no_address(
    as_bob: Client, as_alice: Client, alice: Membership, bob: Membership
) -> None:
    server = make_server(alice, title="Our notes", url=f"{URL}?key=hush")
    make_server_tool(server)
    change(server, server_info={"name": "notes-of-sam"})

    tool = text_of(as_bob, "/o/acme/tools/mcp__notes__add_note/")

    assert [as_bob.get(path).status_code for path in (ACME, f"{ACME}notes/", f"{ACME}nowhere/")] == [403, 403, 403]
    assert ("Our notes" in tool, "notes-of-sam" in tool) == (True, True)
    assert ("mcp.example.org" in tool, "hush" in tool) == (False, False)
    assert "mcp.example.org" in text_of(as_alice, f"{ACME}notes/")


def test_s8_with_the_right_for_one_category_the_address_stays_hidden(
    as_bob: Client, alice: Membership, bob: Membership
) -> None:
    make_server(alice)
    give(bob, "from_servers")

    pages = text_of(as_bob, ACME) + text_of(as_bob, f"{ACME}notes/")
    told = Rest(bob).get("mcp-servers/notes").json

    assert "mcp.example.org" not in pages
    assert told["url"] == ""
    assert [as_bob.get(f"{ACME}{path}").status_code for path in ("new/", "notes/edit/")] == [403, 403]
    assert Rest(bob).patch("mcp-servers/notes", {"title": "Mine"}).status == 403


def test_charlie_finds_nothing(alice: Membership, charlie: Membership) -> None:
    make_server(alice)
    client = Client()
    client.force_login(charlie.user)

    assert client.get(f"{ACME}notes/").status_code == 404
    assert client.get("/o/globex/servers/notes/").status_code == 404
    assert client.post("/o/globex/servers/notes/delete/").status_code == 404
    assert Rest(charlie).get("mcp-servers").json["results"] == []
    assert Rest(charlie).delete("mcp-servers/notes").status == 404


def test_a_server_over_rest(alice: Membership, acme: Organisation) -> None:
    rest = Rest(alice)
    make_credential(acme)

    made = rest.post("mcp-servers", {"name": "notes", "url": URL, "credential": "notes_key"})
    patched = rest.patch("mcp-servers/notes", {"title": "Paper", "is_enabled": False})
    refused = rest.post("mcp-servers", {"name": "notes", "url": URL})
    unknown = rest.post("mcp-servers", {"name": "more", "url": URL, "credential": "nowhere"})
    removed = rest.delete("mcp-servers/notes")

    assert (made.status, made.json["url"], made.json["credential"], made.json["tools"]) == (201, URL, "notes_key", 0)
    assert (patched.json["title"], patched.json["is_enabled"], patched.json["url"]) == ("Paper", False, URL)
    assert refused.error == (400, "taken", "name")
    assert unknown.error == (400, "unknown", "credential")
    assert (removed.status, rest.get("mcp-servers/notes").status) == (204, 404)


@pytest.mark.parametrize("path", [ACME, f"{ACME}notes/", "/o/acme/"])
def test_more_servers_and_tools_take_no_more_queries(as_alice: Client, alice: Membership, path: str) -> None:
    counts = []
    notes = make_server(alice)
    for number in (1, 3):
        for each in range(number):
            name = f"s{number}-{each}"
            make_server_tool(make_server(alice, name, title=name))
            make_server_tool(notes, f"t{number}_{each}")
        with organisation_scope(alice.organisation_id):
            McpServer.objects.update(failing_since=timezone.now())
            Tool.objects.update(quarantine="It changed.")
        with CaptureQueriesContext(connection) as queries:
            text_of(as_alice, path)
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_a_tool_without_a_server_that_is_kept_back_does_not_count_for_servers(
    as_alice: Client, alice: Membership, acme: Organisation
) -> None:
    tool = make_tool(acme, "calculator")
    with organisation_scope(acme):
        Tool.objects.filter(pk=tool.pk).update(quarantine="Somebody looks at it.")

    assert "kept back" not in text_of(as_alice, "/o/acme/")
