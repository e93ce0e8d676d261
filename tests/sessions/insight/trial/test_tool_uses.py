"""Use, failures and cost in the list of tools, and how a tool's page shows its week."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.models import Tool
from sessions.models import ToolUsageHour
from tests.cast import give_tool, make_agent, make_category, make_session, make_tool, make_turn
from tests.sessions.doors.chats.test_views import add_step
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

LIST = "/o/acme/tools/"
HTMX = {"HX-Request": "true"}
#: Queries that signing in and the menu take on a page of an administrator, and those of signing in on a part of one.
FRAME, SIGNED_IN = 8, 3


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


def used(tool: Tool, calls: int, failed: int = 0, *, days: int = 0, agent: int = 1, **fields: Any) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(days=days)
    with organisation_scope(tool.organisation_id):
        ToolUsageHour.objects.create(
            organisation_id=tool.organisation_id,
            hour=hour,
            agent_key=agent,
            tool_key=tool.pk,
            tool_name=tool.name,
            calls=calls,
            failed_calls=failed,
            **fields,
        )


def names(page: str) -> list[str]:
    return re.findall(r'<tr id="tool-([\w-]+)"', page)


def cells(page: str, name: str) -> list[str]:
    """Numbers of a tool's row, as a reader reads them."""
    row = page.split(f'<tr id="tool-{name}"')[1].split("</tr>")[0]
    numbers = re.findall(r'<td class="num[^"]*">(.*?)</td>', row, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", each).split()) for each in numbers]


# -- The list ---------------------------------------------------------------------------------------------------------


def test_a_row_has_calls_and_failures_of_seven_days_by_all_agents(as_alice: Client, acme: Organisation) -> None:
    tool = make_tool(acme, "fetch")
    used(tool, 900, 1)
    used(tool, 300, 5, agent=2)
    used(tool, 34, days=5)
    used(tool, 7_000, 7_000, days=8)

    page = as_alice.get(LIST).content.decode()

    assert cells(page, "fetch")[:2] == ["1,234 calls in 7 days", "6 (0 %) failed"]
    assert "Cost of definition" in page


def test_the_list_is_sorted_by_numbers_also_of_what_a_search_finds(as_alice: Client, acme: Organisation) -> None:
    for name, calls, failed, words in (
        ("few", 9, 0, "A rocket."),
        ("many", 100, 2, "A boat."),
        ("some", 10, 9, "A rocket."),
        ("none", 0, 0, "A boat."),
    ):
        used(make_tool(acme, name, description=words), calls, failed)

    orders = {sort: names(as_alice.get(LIST, {"sort": sort}).content.decode()) for sort in ("calls", "failures")}
    found = names(as_alice.get(LIST, {"sort": "calls", "q": "rocket"}).content.decode())

    assert orders == {"calls": ["many", "some", "few", "none"], "failures": ["some", "many", "few", "none"]}
    assert found == ["some", "few"]


def test_pages_by_use_go_on_where_the_last_one_ended(as_alice: Client, acme: Organisation) -> None:
    for number in range(60):
        used(make_tool(acme, f"tool_{number:02}"), number)

    first = as_alice.get(LIST, {"sort": "calls"})
    second = as_alice.get(LIST, {"sort": "calls", "after": first.context["page"].after})

    shown = names(first.content.decode()) + names(second.content.decode())
    assert shown == [f"tool_{number:02}" for number in range(59, -1, -1)]


def test_the_head_of_a_column_sorts_and_keeps_the_filters(as_alice: Client, acme: Organisation) -> None:
    make_tool(acme)

    page = as_alice.get(LIST, {"kind": "builtin", "sort": "failures"}).content.decode()

    assert re.findall(r'aria-sort="descending">\s*<a href="([^"]+)">([^<]+)', page) == [
        ("?kind=builtin&amp;sort=failures", "Failures")
    ]
    assert 'href="?kind=builtin&amp;sort=calls"' in page


def test_red_is_for_a_tool_of_which_every_second_call_fails(as_alice: Client, acme: Organisation) -> None:
    for name, calls, failed in (("well", 100, 49), ("rare", 2, 2), ("failing", 100, 50)):
        used(make_tool(acme, name), calls, failed)

    rows = as_alice.get(LIST).content.decode().split("<tbody>")[1].split("</tbody>")[0].split("</tr>")

    assert [re.search(r'id="tool-(\w+)"', row)[1] for row in rows if "is-bad" in row] == ["failing"]  # type: ignore[index]
    assert "danger" not in "".join(rows)


def test_uses_are_shown_to_who_sees_usage_and_of_the_own_organisation_alone(
    client: Client, alice: Membership, bob: Membership, charlie: Membership
) -> None:
    tool = make_tool(alice.organisation, "fetch")
    used(tool, 7)
    make_tool(alice.organisation, "other")
    theirs = make_tool(charlie.organisation, "fetch")
    used(theirs, 99)
    with organisation_scope(charlie.organisation):
        ToolUsageHour.objects.update(tool_key=tool.pk)

    pages = {}
    for member in (alice, bob):
        client.force_login(member.user)
        pages[member.pk] = client.get(LIST, {"sort": "calls"}).content.decode()

    assert cells(pages[alice.pk], "fetch")[0] == "7 calls in 7 days"
    assert ("Use in 7 days" in pages[bob.pk], len(cells(pages[bob.pk], "fetch"))) == (False, 1)
    assert 'value="calls"' not in pages[bob.pk]


@pytest.mark.parametrize("query", [{}, {"sort": "calls"}])
def test_the_list_takes_the_same_queries_for_one_and_three_tools(
    as_alice: Client, acme: Organisation, query: dict[str, str]
) -> None:
    counts = []
    for number in range(3):
        used(make_tool(acme, f"tool_{number}"), number + 1)
        as_alice.get(LIST, query)
        with CaptureQueriesContext(connection) as queries:
            as_alice.get(LIST, query)
        counts.append(len(queries))

    # One of them for the member's saved filters.
    assert counts == [FRAME + (6 if query else 5)] * 3


# -- A tool's page ----------------------------------------------------------------------------------------------------


def test_the_page_begins_with_what_it_is_then_who_uses_it_and_how_then_how_to_change_it(
    as_alice: Client, acme: Organisation
) -> None:
    tool = make_tool(acme, "fetch")
    give_tool(make_agent(acme), tool, position=1)

    page = as_alice.get(f"{LIST}fetch/").content.decode()

    parts = ["Description for the model", "Facts", "Used by", "How it goes", 'id="off"', 'id="instructions"']
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert page.index("own tool") < page.index("How it goes")


def test_the_three_ways_off_are_explained_beside_their_buttons(as_alice: Client, acme: Organisation) -> None:
    make_tool(acme, "fetch")

    page = as_alice.get(f"{LIST}fetch/").content.decode()
    forms = re.findall(r"<form[^>]*way-off.*?</form>", page, re.DOTALL)
    ways = {re.findall("<b>([^<]+)", form)[0]: re.findall('action="([^"]+)"', form)[0] for form in forms}

    assert ways == {
        "Off for agents": f"{LIST}fetch/switch/",
        "Stopped now, with a message": f"{LIST}fetch/switch/",
        "Keep it back until somebody decides": f"{LIST}fetch/keep-back/",
    }


def test_who_may_not_change_a_tool_finds_no_way_off(client: Client, bob: Membership) -> None:
    make_tool(bob.organisation, "fetch")
    client.force_login(bob.user)

    page = client.get(f"{LIST}fetch/").content.decode()

    assert ("way-off" in page, 'href="#change"' in page) == (False, False)


def test_how_it_goes_has_calls_failures_and_the_last_use(
    as_alice: Client, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    tool = make_tool(acme, "fetch")
    used(tool, 30, 3, days=2, result_tokens=4_000)
    used(tool, 10, 1, result_tokens=500)
    used(tool, 500, days=9)
    used(make_tool(acme, "other"), 77)
    turn = make_turn(make_session(bob))
    add_step(turn, tool_name="fetch", tool_version=tool.current_version, round=1, call_index=0)

    part = as_alice.get(f"{LIST}fetch/calls/", headers=HTMX).content.decode()
    values = [" ".join(each.split()) for each in re.findall(r'card-value num">([^<]*)', part)]

    assert values == ["40", "4"]
    assert ("4,500" in part, "10 % of calls" in part, part.count('class="sparkline"')) == (True, True, 2)
    assert re.search(rf'href="[^"]*{turn.pk}[^"]*">\s*<span class="card-title">Last use', part)


def test_a_member_sees_the_last_own_use_and_nobody_elses_sums(
    client: Client, alice: Membership, bob: Membership
) -> None:
    tool = make_tool(bob.organisation, "fetch")
    used(tool, 30, 3)
    client.force_login(bob.user)

    before = client.get(f"{LIST}fetch/calls/", headers=HTMX).content.decode()
    for member in (bob, alice):
        add_step(make_turn(make_session(member)), tool_name="fetch", round=1, call_index=0)
    after = client.get(f"{LIST}fetch/calls/", headers=HTMX).content.decode()

    assert ("card-" in before, after.count("card-title"), "Failures" in after) == (False, 1, False)


def test_the_page_takes_the_same_queries_for_one_and_three_agents(as_alice: Client, acme: Organisation) -> None:
    tool, counts, parts = make_tool(acme, "fetch"), [], []
    for number in range(3):
        give_tool(make_agent(acme, slug=f"agent-{number}"), tool, position=1)
        used(tool, 3, agent=number)
        with CaptureQueriesContext(connection) as queries:
            as_alice.get(f"{LIST}fetch/")
        with CaptureQueriesContext(connection) as of_part:
            as_alice.get(f"{LIST}fetch/calls/", headers=HTMX)
        counts.append(len(queries))
        parts.append(len(of_part))

    assert counts == [counts[0]] * 3
    assert counts[0] <= FRAME + 12
    assert parts == [SIGNED_IN + 3] * 3


def test_tools_are_counted_and_may_be_moved_to_a_category_without_any(as_alice: Client, acme: Organisation) -> None:
    make_tool(acme, "fetch", category=make_category(acme, "net"))
    make_category(acme, "attic")
    with organisation_scope(acme):
        Tool.objects.filter(name="fetch").update(is_enabled=False)

    page = as_alice.get(LIST)

    numbers = page.context["numbers"]
    assert (numbers.tools, numbers.enabled, numbers.tokens, numbers.not_ready) == (1, 0, 0, 0)
    assert [(each.name, each.count) for each in numbers.categories] == [("attic", 0), ("net", 1)]
    assert page.content.decode().count('<option value="attic"') == 2  # of the filter, and of what is set for many
