"""Usage: pages, REST and files say what the hourly sums hold, to those who may see it."""

from __future__ import annotations

import csv
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from capabilities.models import Tool
from sessions.budgets.queries import running_spans
from sessions.models import BudgetPeriod, ToolUsageHour, Turn, UsageHour
from sessions.usage.queries import GROUPINGS, UsageSums, usage_in
from sessions.usage.spans import range_of
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_budget,
    make_category,
    make_session,
    make_token,
    make_tool,
    make_toolkit,
)
from tests.sessions.usage.rollups.rows import ended_turn
from toolhub.tenants.models import AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.spreadsheets import as_text

NOW = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def at_now() -> Any:
    with time_machine.travel(NOW, tick=False):
        yield


def add_hour(member: Membership, *, at: datetime = NOW, agent: int = 1, **fields: Any) -> UsageHour:
    with organisation_scope(member.organisation):
        values = {"agent_name": f"Agent {agent}", "provider_name": "P", "model_name": "m", "turns": 1, "rounds": 2}
        return UsageHour.objects.create(
            organisation=member.organisation,
            hour=at.replace(minute=0),
            membership_key=member.pk,
            member_name=str(member),
            agent_key=agent,
            **values | fields,
        )


def add_tool_hour(organisation: Organisation, agent: int, tool: int, name: str, **fields: Any) -> ToolUsageHour:
    with organisation_scope(organisation):
        values = {"category_name": "web", "agent_name": "Agent", "hour": NOW.replace(minute=0)} | fields
        return ToolUsageHour.objects.create(
            organisation=organisation, agent_key=agent, tool_key=tool, tool_name=name, **values
        )


def page(member: Membership, query: str = "", name: str = "usage") -> str:
    client = Client()
    client.force_login(member.user)
    response = client.get(reverse(name, args=[member.organisation.slug]) + query)
    assert response.status_code == 200, response.status_code
    return response.content.decode()


def rest(member: Membership, query: str = "") -> Any:
    response = Client(headers={"Authorization": f"Bearer {make_token(member)}"}).get(f"/api/v1/usage{query}")
    return response.json() | {"status": response.status_code}


def chart(html: str) -> dict[str, Any]:
    found = re.search(r'data-usage-chart="([^"]*)"', html)
    assert found
    body: dict[str, Any] = json.loads(found[1].replace("&quot;", '"'))
    return body


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html.replace("&nbsp;", " ")))


# -- Ranges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "zone", "count", "first", "end", "labels"),
    [
        ("24h", "UTC", 24, "2026-11-19T11:00", "2026-11-20T11:00", ("11:00", "10:00")),
        ("7d", "UTC", 7, "2026-11-14T00:00", "2026-11-21T00:00", ("14 Nov", "20 Nov")),
        ("30d", "Europe/Berlin", 30, "2026-10-21T22:00", "2026-11-20T23:00", ("22 Oct", "20 Nov")),
        ("12m", "Asia/Kolkata", 12, "2025-11-30T18:30", "2026-11-30T18:30", ("Dec", "Nov")),
        ("7d", "no zone", 7, "2026-11-14T00:00", "2026-11-21T00:00", ("14 Nov", "20 Nov")),
    ],
)
def test_a_range_ends_with_the_period_that_it_is_in_the_zones_calendar(
    key: str, zone: str, count: int, first: str, end: str, labels: tuple[str, str]
) -> None:
    """The clock was put back in Berlin on 25 October: the days before begin an hour earlier in UTC."""
    span = range_of(key, zone, NOW)

    assert len(span.periods) == count
    assert (span.starts_at.isoformat()[:16], span.ends_at.isoformat()[:16]) == (first, end)
    assert (span.periods[0].label, span.periods[-1].label) == labels
    starts = [period.starts_at for period in span.periods]
    assert starts == sorted(set(starts))


# -- The page ---------------------------------------------------------------------------------------------------------


def test_the_page_sums_by_group_and_by_period(alice: Membership, bob: Membership) -> None:
    used: dict[str, Any] = {"input_tokens": 1_000, "cached_tokens": 600, "output_tokens": 50, "reasoning_tokens": 20}
    add_hour(bob, **used, cost=12_000_000, tool_tokens=300, all_tool_tokens=900, saved_tokens=500, saved_cost=5_000)
    add_hour(bob, at=NOW - timedelta(days=2), **used)
    add_hour(alice, agent=2, input_tokens=10, at=NOW - timedelta(days=40))
    html = page(alice)
    text = text_of(html)

    assert "2,000 tok" in text
    assert "60 % from the cache" in text
    assert "$0.012" in text
    assert "300 tok of 900 that were permitted" in text
    assert "Saved by routing 500 tok" in text
    assert "Agent 1" in text
    assert "Agent 2" not in text
    drawn = chart(html)
    assert [each["label"] for each in drawn["series"]] == ["Agent 1"]
    assert (drawn["series"][0]["values"][-1], drawn["series"][0]["values"][-3], sum(drawn["series"][0]["values"])) == (
        1_050,
        1_050,
        2_100,
    )
    assert "Friday, 20 November 2026 1,050" in text


def test_a_loss_is_told_as_one(alice: Membership) -> None:
    add_hour(alice, input_tokens=1_000, saved_tokens=-2_500, saved_cost=-1_000_000_000)

    text = text_of(page(alice, "?show=saved"))

    assert "Lost by routing 2,500 tok $1.00 lost" in text


@pytest.mark.parametrize(
    ("show", "by"),
    [
        *((show, "agent") for show in ("tokens", "kinds", "money", "definitions", "saved", "nonsense")),
        *(("tokens", by) for by in ("member", "model", "nonsense")),
    ],
)
def test_each_choice_of_chart_shows_its_figures(alice: Membership, show: str, by: str) -> None:
    used: dict[str, Any] = {"input_tokens": 100, "cached_tokens": 30, "cache_write_tokens": 20, "output_tokens": 40}
    more: dict[str, Any] = {
        "reasoning_tokens": 15,
        "cost": 7_000_000,
        "tool_tokens": 5,
        "all_tool_tokens": 9,
        "saved_tokens": 3,
    }
    add_hour(alice, **used, **more)
    name = {"member": str(alice), "model": "P / m"}.get(by, "Agent 1")
    expected = {
        "kinds": [50, 30, 20, 25, 15],
        "money": [0.007],
        "definitions": [5, 4],
        "saved": [3],
    }.get(show, [140])

    html = page(alice, f"?show={show}&by={by}")

    assert name in text_of(html)
    assert [sum(each["values"]) for each in chart(html)["series"]] == expected


def test_many_groups_are_cut_and_the_rest_is_told_together(alice: Membership) -> None:
    for number in range(60):
        add_hour(alice, agent=number + 1, input_tokens=1_000 - number)

    html = page(alice)
    text = text_of(html)

    assert [each["label"] for each in chart(html)["series"]] == [f"Agent {n}" for n in range(1, 7)] + ["All others"]
    total = sum(1_000 - number for number in range(60))
    assert sum(sum(each["values"]) for each in chart(html)["series"]) == total
    assert "Agent 50 " in text
    assert "Agent 51 " not in text
    with organisation_scope(alice.organisation):
        usage = usage_in(alice, GROUPINGS["agent"], range_of("30d", "UTC", NOW), "tokens")
    assert isinstance(usage.others, UsageSums)
    assert usage.others.input_tokens == sum(1_000 - number for number in range(50, 60))


def test_an_empty_page_says_what_it_is_for_and_what_is_still_to_come(alice: Membership) -> None:
    with organisation_scope(alice.organisation):
        ended_turn(make_session(alice, make_agent(alice.organisation)), at=NOW - timedelta(hours=3))

    text = text_of(page(alice))

    assert "Nothing was used in the last 30 days" in text
    assert "are still being added" in text
    with organisation_scope(alice.organisation):
        Turn.objects.update(is_rolled_up=True)
    assert "are still being added" not in text_of(page(alice))


def test_usage_by_tool_and_category(alice: Membership) -> None:
    add_tool_hour(alice.organisation, 1, 5, "web_search", sent_rounds=3, sent_tokens=450, calls=2, failed_calls=1)
    add_tool_hour(alice.organisation, 2, 5, "web_search", sent_rounds=1, sent_tokens=150, missed_turns=4)

    for by, name in (("tool", "web_search"), ("category", "web")):
        html = page(alice, f"?by={by}")
        assert f"{name} 4 600 2 1 0 4" in text_of(html)
        assert chart(html)["series"][0]["values"][-1] == 600


def test_a_member_without_the_right_sees_what_is_his_own(alice: Membership, bob: Membership) -> None:
    add_hour(alice, input_tokens=777)
    add_hour(bob, input_tokens=55, agent=2)
    add_tool_hour(bob.organisation, 2, 5, "web_search", sent_rounds=3, sent_tokens=450)

    for query in ("", "?by=member", "?by=tool"):
        text = text_of(page(bob, query))
        assert "Agent 2" in text
        for hidden in ("777", "Agent 1", "web_search", str(alice)):
            assert hidden not in text

    client = Client()
    client.force_login(bob.user)
    assert client.get(reverse("usage_unused", args=["acme"])).status_code == 403
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.BUDGETS)
    assert "777" in text_of(page(bob))


def test_nobody_sees_another_organisations_usage(alice: Membership, charlie: Membership) -> None:
    add_hour(alice, input_tokens=777)
    add_tool_hour(alice.organisation, 1, 5, "web_search", sent_rounds=30, sent_tokens=450)

    assert "777" not in page(charlie)
    assert "web_search" not in page(charlie, "?by=tool")
    assert "web_search" not in page(charlie, name="usage_unused")
    assert "777" not in page(charlie, name="usage_csv")
    assert rest(charlie, "?group_by=agent")["results"] == []
    client = Client()
    client.force_login(charlie.user)
    assert client.get(reverse("usage", args=["acme"])).status_code == 404


def test_names_are_data(alice: Membership) -> None:
    add_hour(alice, input_tokens=5, agent_name='"><script>alert(1)</script>')

    html = page(alice)

    assert "<script>alert" not in html
    assert chart(html.replace("&lt;", "<").replace("&gt;", ">"))["series"]
    assert "<style" not in html
    assert not re.search(r"<script(?![^>]*src=)", html)


@pytest.mark.parametrize("query", ["", "?range=12m&by=member", "?by=tool", "?by=category&range=24h"])
def test_a_page_costs_the_same_queries_for_one_row_and_many(alice: Membership, query: str) -> None:
    client = Client()
    client.force_login(alice.user)

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(reverse("usage", args=["acme"]) + query).status_code == 200
        return len(queries)

    add_hour(alice, input_tokens=5)
    add_tool_hour(alice.organisation, 1, 5, "web_search", sent_rounds=1)
    cost()
    few = cost()
    for number in range(2, 20):
        add_hour(alice, input_tokens=5, agent=number, at=NOW - timedelta(days=number))
        add_tool_hour(alice.organisation, number, number + 5, f"tool_{number}", sent_rounds=1)

    assert cost() == few <= 14


# -- The file ---------------------------------------------------------------------------------------------------------


def test_the_file_holds_every_group_and_no_formula(alice: Membership) -> None:
    add_hour(alice, input_tokens=5, cost=1_500_000_000, agent_name="=cmd|' /C calc'!A0")
    for number in range(2, 70):
        add_hour(alice, agent=number, input_tokens=1)

    lines = list(csv.DictReader(page(alice, "?by=agent", "usage_csv").splitlines()))

    assert len(lines) == 69
    assert (lines[0]["agent"], lines[0]["input_tokens"], lines[0]["cost_usd"]) == ("'=cmd|' /C calc'!A0", "5", "1.50")


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\tx"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    assert as_text(text) == f"'{text}"
    assert as_text("Bob") == "Bob"


# -- REST -------------------------------------------------------------------------------------------------------------


def test_rest_sums_by_day_of_the_organisations_zone(alice: Membership) -> None:
    organisation = alice.organisation
    organisation.time_zone = "Europe/Berlin"
    organisation.save()
    add_hour(alice, at=datetime(2026, 11, 10, 22, tzinfo=UTC), input_tokens=1, cost=2_500_000)
    add_hour(alice, at=datetime(2026, 11, 10, 23, tzinfo=UTC), input_tokens=10)
    add_hour(alice, at=datetime(2026, 11, 12, 1, tzinfo=UTC), input_tokens=100)

    body = rest(alice, "?group_by=day&from=2026-11-10&to=2026-11-12")

    assert [(row["key"][:10], row["input_tokens"], row["cost"]) for row in body["results"]] == [
        ("2026-11-10", 1, "0.0025"),
        ("2026-11-11", 10, "0.00"),
    ]
    assert body["time_zone"] == "Europe/Berlin"
    assert body["starts_at"].startswith("2026-11-09T23:00:00")
    assert [row["input_tokens"] for row in rest(alice, "?group_by=month")["results"]] == [111]
    assert [row["input_tokens"] for row in rest(alice, "?group_by=hour")["results"]] == [1, 10, 100]


def test_rest_names_groups_as_clients_know_them(alice: Membership) -> None:
    agent = make_agent(alice.organisation)
    add_hour(alice, agent=agent.pk, input_tokens=4)
    add_hour(alice, agent=agent.pk + 1, input_tokens=6)
    add_tool_hour(alice.organisation, 1, 5, "web_search", sent_rounds=3)

    by = {name: rest(alice, f"?group_by={name}")["results"] for name in GROUPINGS}

    assert [(row["key"], row["name"]) for row in by["agent"]] == [
        ("starter", f"Agent {agent.pk}"),
        (None, f"Agent {agent.pk + 1}"),
    ]
    assert [(row["key"], row["input_tokens"]) for row in by["member"]] == [(str(alice.public_id), 10)]
    assert [row["key"] for row in by["model"]] == ["P / m"]
    assert [(row["key"], row["sent_rounds"]) for row in by["tool"]] == [("web_search", 3)]
    assert [row["key"] for row in by["category"]] == ["web"]
    assert "turns" not in by["tool"][0]
    assert "calls" not in by["agent"][0]


@pytest.mark.parametrize("group_by", ["day", "agent"])
def test_rest_pages_begin_behind_the_last_row(alice: Membership, group_by: str) -> None:
    for number in range(1, 8):
        add_hour(alice, agent=number, at=NOW - timedelta(days=number), input_tokens=number)
    seen, query = [], ""
    while True:
        body = rest(alice, f"?group_by={group_by}&limit=3{query}")
        seen += [row["input_tokens"] for row in body["results"]]
        if body["next"] is None:
            break
        query = f"&cursor={body['next']}"

    assert sorted(seen) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?group_by=colour", "group_by"),
        ("?from=yesterday", "from"),
        ("?from=2026-11-12&to=2026-11-11", "from"),
        ("?from=2024-01-01", "from"),
        ("?to=2026-13-01", "to"),
        ("?fron=2026-11-01", "fron"),
        ("?group_by=agent&cursor=x", "cursor"),
        ("?cursor=x", "cursor"),
        ("?limit=0", "limit"),
    ],
)
def test_rest_refuses_what_it_does_not_understand(alice: Membership, query: str, field: str) -> None:
    body = rest(alice, query)

    assert (body["status"], body["error"]["field"]) == (400, field)


def test_rest_shows_a_member_without_the_right_his_own(alice: Membership, bob: Membership) -> None:
    add_hour(alice, input_tokens=777)
    add_hour(bob, input_tokens=55, agent=2)

    assert [row["input_tokens"] for row in rest(bob, "?group_by=agent")["results"]] == [55]
    assert [row["input_tokens"] for row in rest(bob)["results"]] == [55]
    for group_by in ("member", "tool", "category"):
        assert rest(bob, f"?group_by={group_by}")["status"] == 403


# -- Unused tools -----------------------------------------------------------------------------------------------------


def test_tools_that_were_sent_and_never_called_are_told_with_where_they_come_from(alice: Membership) -> None:
    organisation = alice.organisation
    agent = make_agent(organisation, starts_with_core=True)
    web = make_category(organisation, "web", is_core=False)
    names = ("own_tool", "core_tool", "kit_tool", "kit_used", "rare_tool", "other_kit_tool")
    tools = {name: make_tool(organisation, name, category=None if name == "core_tool" else web) for name in names}
    give_tool(agent, tools["own_tool"], position=1)
    allow_toolkit(agent, make_toolkit(organisation, "used_kit", tools["kit_tool"], tools["kit_used"]), initial=True)
    allow_toolkit(agent, make_toolkit(organisation, "idle_kit", tools["other_kit_tool"]), initial=True)
    for number, name in enumerate(names):
        rounds, calls = (5 if name == "rare_tool" else 30), int(name == "kit_used")
        tokens = 1_000 * (number + 1)
        add_tool_hour(organisation, agent.pk, tools[name].pk, name, sent_rounds=rounds, sent_tokens=tokens, calls=calls)

    html = page(alice, name="usage_unused")
    text = text_of(html)

    assert "Starter 1 6,000 tok Stop loading it" in text
    assert "used_kit Starter" not in text
    assert "own_tool Starter 30 1,000 tok " in text
    assert "core_tool Starter 30 2,000 tok core " in text
    assert "Starter 30 3,000 tok toolkit used_kit" in text
    assert "rare_tool" not in text
    assert "kit_used" not in text
    assert reverse("agent_update", args=["acme", agent.slug]) in html


def test_what_no_agent_called_is_switched_off_from_there_by_who_may(alice: Membership, bob: Membership) -> None:
    organisation = alice.organisation
    agent, other = make_agent(organisation), make_agent(organisation, slug="other")
    for number, name in enumerate(("idle_tool", "shared_tool", "off_tool")):
        tool = make_tool(organisation, name)
        give_tool(agent, tool, position=number)
        add_tool_hour(organisation, agent.pk, tool.pk, name, sent_rounds=30, sent_tokens=9)
        if name == "shared_tool":
            add_tool_hour(organisation, other.pk, tool.pk, name, sent_rounds=30, calls=1)
    with organisation_scope(organisation):
        Tool.objects.filter(name="off_tool").update(is_enabled=False)
        AdminRight.objects.create(organisation=organisation, membership=bob, right=Right.BUDGETS)

    pages = [page(member, name="usage_unused") for member in (alice, bob)]
    offered = [re.findall(r'name="names"\s+value="(\w+)"', html) for html in pages]
    client = Client()
    client.force_login(alice.user)
    client.post(reverse("tools_switch", args=["acme"]), {"names": offered[0], "enabled": "0"})

    assert offered == [["idle_tool"], []]
    with organisation_scope(organisation):
        assert sorted(Tool.objects.filter(is_enabled=True).values_list("name", flat=True)) == ["shared_tool"]


def test_nothing_unused_says_so(alice: Membership) -> None:
    assert "Every tool that was sent often" in page(alice, name="usage_unused")


# -- Advice -----------------------------------------------------------------------------------------------------------


def test_advice_names_what_is_sent_in_vain_the_fullest_budget_and_the_dearest_model(alice: Membership) -> None:
    organisation = alice.organisation
    agent = make_agent(organisation)
    small, large = make_tool(organisation, "small_tool"), make_tool(organisation, "large_tool")
    for tool, tokens in ((small, 1_000), (large, 9_000)):
        add_tool_hour(organisation, agent.pk, tool.pk, tool.name, sent_rounds=30, sent_tokens=tokens)
    give_tool(agent, large, position=1)
    add_hour(alice, model_name="cheap", turns=10, cost=1_000_000_000)
    add_hour(alice, model_name="dear", turns=2, cost=900_000_000)
    for name, limit in (("Wide", 100_000), ("Tight", 1_000)):
        budget = make_budget(organisation, name, limit=limit)
        with organisation_scope(organisation):
            span = running_spans([budget], organisation.time_zone)[budget.pk]
            BudgetPeriod.objects.create(
                organisation=organisation,
                budget=budget,
                starts_at=span.starts_at,
                ends_at=span.ends_at,
                measure="tokens",
                is_hard=True,
                limit=limit,
                spent=500,
            )

    html = page(alice, name="usage_advice")
    text = text_of(html)

    assert ("large_tool" in text, "9,000 tok" in text, "small_tool" in text) == (True, True, False)
    assert ("Tight" in text, "50 %" in text, "Wide" in text) == (True, True, False)
    assert "dear $0.45" in text
    assert f'href="{reverse("agent_update", args=["acme", agent.slug])}"' in html
    assert f'href="{reverse("budget_detail", args=["acme", budget.public_id])}"' in html


def test_advice_leads_nobody_to_a_page_that_refuses_them(alice: Membership, bob: Membership) -> None:
    agent, tool = make_agent(alice.organisation), make_tool(alice.organisation)
    give_tool(agent, tool, position=1)
    add_tool_hour(alice.organisation, agent.pk, tool.pk, tool.name, sent_rounds=30, sent_tokens=9_000)
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.BUDGETS)

    links = {
        member.access: re.findall(r"· <a href=\"([^\"]+)", page(member, name="usage_advice")) for member in (alice, bob)
    }

    assert links == {"admin": [f"/o/acme/agents/{agent.slug}/edit/"], "member": ["/o/acme/usage/unused/"]}


def test_without_anything_to_save_the_advice_says_so(alice: Membership) -> None:
    add_hour(alice, cost=5)

    assert "Nothing to save" in page(alice, name="usage_advice")


def test_advice_costs_the_same_queries_for_one_and_many(alice: Membership) -> None:
    client = Client()
    client.force_login(alice.user)
    organisation = alice.organisation
    agent, counts = make_agent(organisation), []
    make_budget(organisation, "At once", measure="turns", limit=3)
    used = make_tool(organisation, "used")
    add_tool_hour(organisation, agent.pk, used.pk, used.name, sent_rounds=30, calls=3)
    for number in range(3):
        tool = make_tool(organisation, f"tool_{number}")
        allow_toolkit(agent, make_toolkit(organisation, f"kit_{number}", tool), initial=True)
        give_tool(agent, tool, position=number + 1)
        add_tool_hour(organisation, agent.pk, tool.pk, tool.name, sent_rounds=30, sent_tokens=10)
        add_hour(alice, model_name=f"m{number}", cost=5)
        make_budget(organisation, f"b{number}")
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse("usage_advice", args=["acme"]), headers={"HX-Request": "true"})
        counts.append(len(queries))

    assert counts == [counts[0]] * 3
    assert counts[0] == 3 + 15  # those of signing in, and its own
