"""Saved filters: addresses of lists that one member keeps under a name."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.cast import make_category, make_tool
from toolhub.tenants.models import Membership, Organisation, SavedFilter
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.saved_filters.writes import MAX_FILTERS, FilterRefused, save_filter

pytestmark = pytest.mark.django_db

TOOLS = "/o/acme/tools/"
#: Lists whose filters are saved: each has a filter by which its address is asked here.
LISTS = {
    "tool_list": "sort=tokens",
    "member_list": "q=a",
    "session_list": "q=a",
    "usage": "range=30d",
    "audit_list": "q=tool",
    "category_list": "q=a",
    "server_list": "q=a",
    "import_list": "state=ready",
    "module_list": "q=a",
    "hook_list": "q=a",
    "grant_list": "q=a",
    "credential_list": "q=a",
    "approval_list": "state=waiting",
    "keyword_list": "q=a",
}


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


def chips(page: bytes) -> dict[str, str]:
    """Queries of the saved filters on a page, by name."""
    found = re.findall(r'<form class="chip".*?<a href="\?([^"]*)"[^>]*>([^<]+)</a>', page.decode(), re.DOTALL)
    return {name: query.replace("&amp;", "&") for query, name in found}


def save(client: Client, name: str = "Mine", query: str = "q=fetch&sort=tokens", page: str = "tool_list") -> None:
    client.post("/o/acme/filters/", {"page": page, "name": name, "query": query})


def test_a_filter_is_saved_shown_above_its_list_alone_and_removed(as_alice: Client, acme: Organisation) -> None:
    make_tool(acme, "fetch", category=make_category(acme, "web"))
    before = as_alice.get(f"{TOOLS}?q=fetch&sort=tokens&category=&after=zzz").content
    sent = dict(re.findall(r'<input type="hidden" name="(page|query)" value="([^"]*)"', before.decode()))
    assert sent == {"page": "tool_list", "query": "q=fetch&amp;sort=tokens"}

    answer = as_alice.post("/o/acme/filters/", {"page": "tool_list", "name": " Mine ", "query": "q=fetch&sort=tokens"})

    assert answer["Location"] == f"{TOOLS}?q=fetch&sort=tokens"
    there = as_alice.get(answer["Location"]).content
    assert (chips(there), b"Save this filter" in there) == ({"Mine": "q=fetch&sort=tokens"}, False)
    assert chips(as_alice.get(TOOLS).content) == {"Mine": "q=fetch&sort=tokens"}
    assert chips(as_alice.get("/o/acme/members/").content) == {}

    with organisation_scope(acme):
        key = SavedFilter.objects.get().public_id
    assert as_alice.post(f"/o/acme/filters/{key}/delete/").status_code == 302
    assert chips(as_alice.get(TOOLS).content) == {}


@pytest.mark.parametrize(("page", "query"), LISTS.items())
def test_each_list_offers_to_save_its_filter_and_shows_what_was_saved(
    as_alice: Client, acme: Organisation, page: str, query: str
) -> None:
    make_category(acme, "web")
    path = reverse(page, args=["acme"])
    save(as_alice, "Kept", query, page)

    assert b"Save this filter" in as_alice.get(f"{path}?{query}&more=1").content
    assert chips(as_alice.get(path).content) == {"Kept": query}


def test_a_filter_belongs_to_its_member_and_organisation(
    client: Client, alice: Membership, bob: Membership, charlie: Membership
) -> None:
    with organisation_scope(alice.organisation):
        key = save_filter(alice, "tool_list", "Mine", "q=a").public_id
    for member, organisation in ((bob, "acme"), (charlie, "globex")):
        client.force_login(member.user)
        assert chips(client.get(f"/o/{organisation}/tools/").content) == {}
        assert client.post(f"/o/{organisation}/filters/{key}/delete/").status_code == 404
    assert client.post("/o/acme/filters/", {"page": "tool_list", "name": "x", "query": "q=a"}).status_code == 404

    with organisation_scope(alice.organisation):
        assert list(SavedFilter.objects.values_list("name", "membership")) == [("Mine", alice.pk)]


@pytest.mark.parametrize(
    ("page", "name", "query"),
    [
        ("tool_list", "", "q=a"),
        ("tool_list", "x" * 61, "q=a"),
        ("tool_list", "Mine", ""),
        ("tool_list", "Mine", "after=abc&q="),
        ("tool_list", "Mine", "q=" + "a" * 1_000),
        ("tool_list", "Mine", "q=" + "a" * 100_000),
        ("tool_list", "Mine", "&".join("q=a" for _ in range(200))),
        ("missing", "Mine", "q=a"),
        ("tool_detail", "Mine", "q=a"),
    ],
)
def test_what_is_no_filter_of_a_list_is_refused(
    as_alice: Client, acme: Organisation, page: str, name: str, query: str
) -> None:
    answer = as_alice.post("/o/acme/filters/", {"page": page, "name": name, "query": query})

    assert answer.status_code == 302
    with organisation_scope(acme):
        assert SavedFilter.objects.count() == 0


def test_a_name_is_replaced_and_the_number_is_bounded(alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        for number in range(MAX_FILTERS):
            save_filter(alice, "tool_list", f"F{number}", "q=a")
        save_filter(alice, "tool_list", "F0", "q=b")
        save_filter(alice, "member_list", "F0", "q=c")
        with pytest.raises(FilterRefused):
            save_filter(alice, "tool_list", "One more", "q=a")

        assert SavedFilter.objects.filter(page="tool_list").count() == MAX_FILTERS
        assert SavedFilter.objects.get(page="tool_list", name="F0").query == "q=b"


def test_a_list_has_the_same_queries_with_one_and_three_saved_filters(as_alice: Client) -> None:
    counts = set()
    for number in range(3):
        save(as_alice, f"F{number}")
        with CaptureQueriesContext(connection) as seen:
            as_alice.get(TOOLS)
        counts.add(len(seen))

    assert len(counts) == 1
