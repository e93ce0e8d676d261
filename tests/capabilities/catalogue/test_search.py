"""The catalogue by words and in an order, page by page; over REST, in the browser, and in the pickers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from capabilities.catalogue.categories.writes import CategoryContent, update_category
from capabilities.catalogue.tools.queries import tools_found, tools_page
from capabilities.catalogue.tools.search import by_tokens
from capabilities.choosing.pipeline.tool_index import search_names
from capabilities.common.picker import Search
from capabilities.common.registry_version import touch_registry
from capabilities.models import Tool
from sessions.models import StepKind, StepStatus
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_session,
    make_tool,
    make_toolkit,
    make_turn,
)
from tests.rest import Rest
from tests.sessions.doors.chats.test_views import add_step
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.cursors import sealed_place
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

ISSUES = [f"jira_{verb}_issue" for verb in ("assign", "close", "create")]


@pytest.fixture
def tools(in_acme: Organisation) -> None:
    work = make_category(in_acme, "work", title="Work", is_core=False)
    for name in (*ISSUES, "jira_search"):
        make_tool(in_acme, name, category=work, description=f"{name.split('_')[1]} in the tracker.")
    make_tool(in_acme, "changelog", category=work, description="Writes of a jira issue, at " + "great length " * 40)
    make_tool(in_acme, "issue", category=make_category(in_acme, "post"), description="Print an issue.")


def walk(**wanted: Any) -> list[str]:
    """All names, two a page, and the same backwards."""
    found, page = [], tools_page(**wanted, limit=2)
    while True:
        found += [tool.name for tool in page.rows]
        if not page.after:
            break
        page = tools_page(**wanted, limit=2, after=page.after)
    back = [tool.name for tool in page.rows]
    while page.before:
        page = tools_page(**wanted, limit=2, before=page.before)
        back = [tool.name for tool in page.rows] + back
    assert back == found
    return found


@pytest.mark.parametrize(
    ("q", "names"),
    [
        ("jira issue", ISSUES),
        ("issue  JIRA", ISSUES),
        ("issue", ["issue"]),
        ("jira iss", ISSUES),
        ("jira_close_issue", ["jira_close_issue"]),
        ("jira close issue", ["jira_close_issue"]),
        ("closing issues", ["jira_close_issue"]),
        ("work search", ["jira_search"]),
        ("jira nothing", [*ISSUES, "jira_search"]),
        ("ngelo", ["changelog"]),
        ("%", []),
        ("", ["changelog", "issue", *ISSUES, "jira_search"]),
    ],
)
@pytest.mark.usefixtures("tools")
def test_what_the_words_find_best_comes_first_on_every_page(q: str, names: list[str]) -> None:
    found = walk(q=q)[: len(names) or None]

    assert (found if q == "" else sorted(found)) == (names if q == "" else sorted(names))


@pytest.mark.usefixtures("tools")
def test_by_tokens_the_largest_come_first_and_the_same_size_goes_by_name() -> None:
    sizes = dict(Tool.objects.values_list("name", "current_version__tokens"))

    assert walk(order=by_tokens()) == sorted(sizes, key=lambda name: (-(sizes[name] or 0), name))


@pytest.mark.usefixtures("tools")
def test_a_page_is_one_query_and_three_with_words(
    in_acme: Organisation, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """Two more where the catalogue has changed: it is read once."""
    for count, wanted in (
        (1, {}),
        (5, {"q": "jira issue"}),
        (3, {"order": by_tokens(), "q": "issue"}),
        (3, {"q": "post"}),
    ):
        with django_assert_num_queries(count):
            tools_page(**wanted, limit=2)

    touch_registry(in_acme.pk)
    with django_assert_num_queries(5):
        tools_page(q="jira issue", limit=2)


def test_of_a_thousand_tools_jira_issue_finds_the_one_that_makes_issues(in_acme: Organisation) -> None:
    work = make_category(in_acme, "work")
    systems, nouns = ("jira", "github", "asana", "shop"), ("page", "ticket", "board", "user", "sprint")
    names = [
        f"{system}_{verb}{number}_{noun}"
        for system in systems
        for noun in nouns
        for verb in ("get", "add")
        for number in range(25)
    ]
    tools = Tool.objects.bulk_create(Tool(organisation=in_acme, name=name, category=work) for name in names)
    make_tool(in_acme, "jira_create_issue", category=work, description="Create an issue.")

    assert len(tools) == 1_000
    assert tools_page(q="jira issue", limit=1).rows[0].name == "jira_create_issue"
    assert tools_found(Search("jira issue")).rows[0].name == "jira_create_issue"


def test_a_search_finds_nothing_of_another_organisation(in_acme: Organisation, globex: Organisation) -> None:
    with organisation_scope(globex):
        make_tool(globex, "secret_rocket", category=make_category(globex, "space"), description="A secret.")
        assert search_names("rocket") == ("secret_rocket",)

    assert (search_names("rocket"), search_names("secret_rocket"), tools_page(q="rocket").rows) == ((), (), [])


def test_a_search_sees_each_change_of_the_catalogue(in_acme: Organisation, alice: Membership) -> None:
    tool = make_tool(in_acme, "issue", category=make_category(in_acme, "post"), description="Print an issue.")
    assert search_names("stamp") == ()

    update_category(tool.category, CategoryContent("Post", keywords=("stamp",)), actor=alice)

    assert search_names("stamp") == ("issue",)


@pytest.mark.usefixtures("tools")
def test_a_place_that_is_none_begins_at_the_front() -> None:
    for place in ("a:b", "changelog", sealed_place(["issue"]), sealed_place(["x", "issue"])):
        assert [tool.name for tool in tools_page(after=place, limit=1).rows] == ["changelog"]


@pytest.mark.usefixtures("tools")
def test_a_picker_finds_by_words_too() -> None:
    found = [tool.name for tool in tools_found(Search("issue jira")).rows]

    assert (sorted(found[:3]), sorted(found[3:])) == (ISSUES, ["changelog", "issue", "jira_search"])
    assert [tool.name for tool in tools_found(Search("issue jira", "post")).rows] == ["issue"]


@pytest.mark.usefixtures("tools")
def test_over_rest_words_and_orders_page_by_their_cursor(alice: Membership) -> None:
    rest = Rest(alice)
    first = rest.get("tools", q="jira issue", limit=3).json
    second = rest.get("tools", q="jira issue", limit=3, cursor=first["next"]).json

    found = [tool["name"] for tool in (*first["results"], *second["results"])]
    assert (sorted(found[:3]), sorted(found[3:])) == (ISSUES, ["changelog", "issue", "jira_search"])
    assert second["next"] is None
    assert rest.get("tools", q="jira", cursor="x").error == (400, "invalid", "cursor")
    assert rest.get("tools", sort="tokens").json["results"][0]["name"] == "changelog"
    assert rest.get("tools", sort="size").error == (400, "invalid", "sort")
    assert rest.get("tools", words="x").status == 400


@pytest.fixture
def agent(tools: None, in_acme: Organisation) -> None:
    """It begins with `issue`, a core tool, `jira_close_issue`, its own, and `jira_search`, of an initial toolkit."""
    agent = make_agent(in_acme, slug="clerk")
    give_tool(agent, Tool.objects.get(name="jira_close_issue"))
    give_tool(agent, Tool.objects.get(name="changelog"), is_deferred=True)
    allow_toolkit(agent, make_toolkit(in_acme, "first", Tool.objects.get(name="jira_search")), initial=True)
    allow_toolkit(agent, make_toolkit(in_acme, "later", Tool.objects.get(name="jira_create_issue")))


@pytest.mark.usefixtures("agent")
def test_the_filter_by_agent_lists_the_tools_that_it_starts_with(
    alice: Membership, charlie: Membership, client: Client
) -> None:
    client.force_login(alice.user)
    page = client.get("/o/acme/tools/?agent=clerk").content.decode()
    listed = re.findall(r'<tr id="tool-.*?/tools/(\w+)/"', page, re.S)

    assert listed == ["issue", "jira_close_issue", "jira_search"]
    assert [tool["name"] for tool in Rest(alice).get("tools", agent="clerk").json["results"]] == listed
    assert client.get("/o/acme/tools/?agent=nobody").status_code == 404
    assert Rest(alice).get("tools", agent="nobody").error == (400, "unknown", "agent")
    assert Rest(charlie).get("tools", agent="clerk").error == (400, "unknown", "agent")


@pytest.mark.usefixtures("tools")
def test_by_last_use_what_the_reader_may_see_called_last_comes_first(
    alice: Membership, bob: Membership, in_acme: Organisation, client: Client
) -> None:
    make_agent(in_acme)
    bobs, alices = make_turn(make_session(bob)), make_turn(make_session(alice))
    for number, (turn, name) in enumerate([(bobs, "issue"), (bobs, "jira_search"), (alices, "changelog")]):
        add_step(turn, kind=StepKind.TOOL, status=StepStatus.DONE, tool_name=name, round=1, call_index=number)

    def first(member: Membership, count: int) -> list[str]:
        client.force_login(member.user)
        page = client.get("/o/acme/tools/?sort=used").content.decode()
        return re.findall(r'<tr id="tool-.*?/tools/(\w+)/"', page, re.S)[:count]

    assert first(alice, 3) == ["changelog", "jira_search", "issue"]
    assert first(bob, 3) == ["jira_search", "issue", "changelog"], "then by name"
