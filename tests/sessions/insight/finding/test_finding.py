"""Pages and things found by words of their names, and by whom."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.models import McpServer, ToolVersion
from sessions.insight.finding.queries import SHOWN, find
from tests.capabilities.test_pages import give_right
from tests.cast import make_agent, make_category, make_member, make_role, make_session, make_tool, make_toolkit
from toolhub.tenants.models import Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

FIND = "/o/acme/find/"


def titles(member: Membership, text: str) -> dict[str, list[str]]:
    return {group.title: [each.title for each in group.found] for group in find(member, text)}


@pytest.fixture
def things(in_acme: Organisation, alice: Membership) -> Organisation:
    home = make_category(in_acme, "calendar", title="Calendar")
    for name in ("calendar_event_create", "calendar_event_list"):
        make_tool(in_acme, name, category=home)
    make_tool(in_acme, "mail_send", category=make_category(in_acme, "mail", title="Mail"))
    make_toolkit(in_acme, "calendar-kit")
    agent = make_agent(in_acme, slug="planner", name="Calendar planner")
    make_session(alice, agent, title="My calendar of May")
    make_role(in_acme, alice, slug="calendars")
    McpServer.objects.create(organisation=in_acme, name="calendars", title="Calendar server")
    return in_acme


@pytest.mark.parametrize("text", ["calendar", "CALENDAR", "calender", "kalendar", "calendr"])
def test_a_name_is_found_misspelt_too(things: Organisation, alice: Membership, text: str) -> None:
    found = titles(alice, text)

    assert set(found["Tools"][:2]) == {"calendar_event_create", "calendar_event_list"}
    assert "mail_send" not in found["Tools"]
    assert found["Toolkits"] == ["calendar-kit"]
    assert found["Agents"] == ["Calendar planner"]
    assert found["Sessions"] == ["My calendar of May"]
    assert found["MCP servers"] == ["Calendar server"]
    assert found["Categories"] == ["Calendar"]


def test_every_word_has_to_be_there_and_the_best_comes_first(things: Organisation, alice: Membership) -> None:
    assert titles(alice, "calendar list")["Tools"] == ["calendar_event_list"]
    assert titles(alice, "event calendar xylophone") == {}
    assert titles(alice, "  ") == {}


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("approvals", "Approvals"),
        ("aprovals", "Approvals"),
        ("invite", "Invite a member"),
        ("who changed", "Audit"),
        ("api key", "Your tokens"),
        ("permissions", "Matrix"),
    ],
)
def test_pages_are_found_by_their_titles_and_by_other_words(alice: Membership, text: str, page: str) -> None:
    with organisation_scope(alice.organisation):
        assert page in titles(alice, text)["Pages"]


def test_a_member_finds_what_a_members_pages_show(things: Organisation, bob: Membership) -> None:
    make_member(things, "calendria")

    assert set(titles(bob, "calendar")) == {"Tools", "Toolkits", "Agents"}
    assert "Pages" not in titles(bob, "audit")
    give_right(bob, Right.MEMBERS)
    assert titles(Membership.objects.get(pk=bob.pk), "calendria")["Members"] == ["Calendria"]


def test_charlie_finds_nothing_of_acme(things: Organisation, charlie: Membership) -> None:
    with organisation_scope(charlie.organisation):
        assert titles(charlie, "calendar") == {}


def test_a_tool_that_waits_for_its_first_version_is_not_found(things: Organisation, alice: Membership) -> None:
    tool = make_tool(things, "calendar_draft")
    type(tool).objects.filter(pk=tool.pk).update(current_version=None)
    ToolVersion.objects.filter(tool=tool).delete()

    assert "calendar_draft" not in titles(alice, "calendar_draft").get("Tools", [])


def test_each_kind_shows_a_few_and_costs_one_query_however_many_there_are(
    things: Organisation, alice: Membership
) -> None:
    counts = []
    for more in (0, 30):
        for number in range(more):
            make_tool(things, f"calendar_{number:02}")
        with CaptureQueriesContext(connection) as captured:
            assert len(titles(alice, "calendar")["Tools"]) == min(2 + more, SHOWN)
        counts.append(len(captured))

    assert counts == [9, 9]


def test_the_list_below_the_box_and_the_page_name_the_same(things: Organisation, alice: Membership) -> None:
    client = Client()
    client.force_login(alice.user)
    part = client.get(FIND, {"q": "calender"}, headers={"HX-Request": "true"}).content.decode()
    page = client.get(FIND, {"q": "calender"}).content.decode().partition('id="main"')[2]

    linked = re.findall(r'href="(/o/acme/(?:tools|toolkits|agents|sessions|servers|categories)/[\w-]+/)"', part)
    assert linked == re.findall(r'href="(/o/acme/(?:tools|toolkits|agents|sessions|servers|categories)/[\w-]+/)"', page)
    assert "/o/acme/tools/calendar_event_list/" in linked
    assert "<html" not in part


@pytest.mark.parametrize("q", ["\0", "<script>", "%", "'", "ÄÖ" * 200, "🙂"])
def test_any_text_may_be_looked_for(in_acme: Organisation, alice: Membership, q: str) -> None:
    client = Client()
    client.force_login(alice.user)

    answer = client.get(FIND, {"q": q})

    assert answer.status_code == 200
    assert b"<script>" not in answer.content.partition(b'id="main"')[2]
