"""Home: a week in numbers, what is open, what fails, what changed; and what a plain member sees of it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.models import GrantRequest, Hook, McpServer, Provider
from sessions.insight.overview.queries import Card, open_turns, troubles_of, week_of
from sessions.models import Measure, TurnStatus, Window
from tests.capabilities.test_pages import give_right
from tests.cast import make_agent, make_budget, make_session, make_tool, make_turn
from tests.sessions.usage.rollups.rows import ended_turn
from tests.sessions.usage.test_usage import add_hour, add_tool_hour
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

ACME = "/o/acme/"


def home(member: Membership) -> str:
    client = Client()
    client.force_login(member.user)
    return " ".join(client.get(ACME).content.decode().partition('id="main"')[2].split())


def cards(member: Membership) -> dict[str, Card]:
    with organisation_scope(member.organisation):
        return {card.title: card for card in week_of(member, timezone.now())}


# -- A week in numbers ------------------------------------------------------------------------------------------------


def test_the_cards_sum_seven_days_and_draw_each(alice: Membership) -> None:
    now = timezone.now()
    numbers = {"turns": 10, "failed_turns": 1, "cost": 2_500_000_000, "tool_tokens": 300, "all_tool_tokens": 1_000}
    add_hour(alice, at=now, **numbers)
    add_hour(alice, at=now - timedelta(days=2), agent=2, turns=30)
    add_hour(alice, at=now - timedelta(days=20), agent=3, turns=500)

    found = cards(alice)

    assert found["Turns"].value == "40"
    assert sorted(found["Turns"].points) == [0, 0, 0, 0, 0, 10, 30]
    assert (found["Cost"].value, found["Failed turns"].value) == ("$2.50", "1")
    assert found["Failed turns"].detail.startswith("2 %")
    assert (found["Tool tokens left out"].value, found["Tool tokens left out"].detail[:4]) == ("700 tok", "70 %")


def test_each_card_leads_to_a_page_with_its_rows(alice: Membership) -> None:
    client = Client()
    client.force_login(alice.user)

    assert {client.get(card.url).status_code for card in cards(alice).values()} == {200}


def test_the_cost_names_the_budget_that_is_nearest_to_its_end(alice: Membership, acme: Organisation) -> None:
    with organisation_scope(acme):
        make_budget(acme, "Roomy", measure=Measure.TOKENS, window=Window.TOTAL)
        make_budget(acme, "Off", measure=Measure.TOKENS, window=Window.TOTAL, is_enabled=False)

    assert cards(alice)["Cost"].detail == "Roomy: 0 % used"


def test_a_member_with_another_right_sees_their_own_week(alice: Membership, bob: Membership) -> None:
    add_hour(alice, at=timezone.now(), turns=10)
    add_hour(bob, at=timezone.now(), turns=3)
    with organisation_scope(bob.organisation):
        give_right(bob, Right.CATALOGUE)

    assert cards(alice)["Turns"].value == "13"
    assert cards(bob)["Turns"].value == "3"


def test_a_failed_turn_is_counted_where_it_failed(alice: Membership, bob: Membership) -> None:
    session = make_session(bob, make_agent(bob.organisation))
    turn = make_turn(session, status=TurnStatus.FAILED, ended_at=timezone.now(), error_code="provider_error")
    with organisation_scope(bob.organisation):
        from sessions.usage.rollups.sweep import add_turns

        assert add_turns([turn.pk]) == 1

    assert (cards(alice)["Failed turns"].value, cards(alice)["Turns"].value) == ("1", "1")


# -- Now --------------------------------------------------------------------------------------------------------------


def test_open_turns_are_ones_own_and_with_the_right_everybodys(
    alice: Membership, bob: Membership, charlie: Membership
) -> None:
    agent = make_agent(bob.organisation)
    make_turn(make_session(bob, agent, title="Buy milk"), status=TurnStatus.WAITING_APPROVAL)
    make_turn(make_session(bob, agent, title="Over"), status=TurnStatus.DONE, ended_at=timezone.now())
    make_turn(make_session(charlie, make_agent(charlie.organisation), title="Secret"), status=TurnStatus.RUNNING)

    for member, titles in ((bob, ["Buy milk"]), (alice, ["Buy milk"]), (charlie, ["Secret"])):
        with organisation_scope(member.organisation):
            assert [str(turn.session) for turn in open_turns(member).turns] == titles
    assert "Waiting for approval" in home(bob)
    assert "Secret" not in home(alice)


def test_a_member_sees_which_of_their_requests_wait(bob: Membership, acme: Organisation) -> None:
    tool = make_tool(acme, "web_search")
    with organisation_scope(acme):
        GrantRequest.objects.create(organisation=acme, membership=bob, tool=tool, reason="work", hours=8)

    page = home(bob)

    assert "web_search" in page.partition("Your requests")[2]
    assert "What fails" not in page
    assert "Changed today" not in page


# -- What fails, what changed -----------------------------------------------------------------------------------------


def failing_server(acme: Organisation) -> None:
    McpServer.objects.create(organisation=acme, name="notes", title="Notes", failing_since=timezone.now())


def failing_tool(acme: Organisation) -> None:
    add_tool_hour(acme, 1, 5, "web_search", hour=timezone.now().replace(minute=0), calls=9, failed_calls=4)


def failing_hook(acme: Organisation) -> None:
    admin = Membership.objects.get(user__email="alice@example.com")
    create_hook(HookContent({"name": "Mask", "action": "ask", "settings": {"message": "Sure?"}}), actor=admin)
    Hook.objects.update(failed_in_a_row=2)


def left_behind(acme: Organisation) -> None:
    make_agent(acme, base_url="https://api.openai.com/v1")
    Provider.objects.update(slug="environment")


@pytest.mark.parametrize(
    ("make", "word", "page", "right"),
    [
        (failing_server, "Notes", "servers/notes/", Right.CATALOGUE),
        (failing_tool, "4 of 9 calls", "tools/web_search/", Right.BUDGETS),
        (failing_hook, "1 hook failed", "hooks/", Right.HOOKS),
        (left_behind, "1 agent", "agents/", Right.AGENTS),
    ],
)
def test_each_failure_is_a_sentence_with_the_page_where_it_is_mended(
    acme: Organisation, alice: Membership, bob: Membership, settings: Any, make: Any, word: str, page: str, right: Right
) -> None:
    settings.OPENAI_BASE_URL = settings.OPENAI_API_KEY = ""
    with organisation_scope(acme):
        make(acme)
        assert troubles_of(bob, timezone.now()) == []
        give_right(bob, right)

    shown = home(bob).partition("What fails")[2]

    assert word in shown
    assert f'href="{ACME}{page}"' in shown


def test_the_changes_of_today_are_shown_to_who_reads_the_audit(alice: Membership, acme: Organisation) -> None:
    with organisation_scope(acme):
        tool = make_tool(acme, "web_search")
        record("tool.update", tool, actor=alice, before={"is_enabled": True}, after={"is_enabled": False})

    shown = home(alice).partition("Changed today")[2]

    assert 'href="/o/acme/tools/web_search/"' in shown


def test_home_costs_the_same_with_one_and_with_three(alice: Membership, acme: Organisation) -> None:
    agent = make_agent(acme)
    client = Client()
    client.force_login(alice.user)
    counts = []
    for number in (1, 2, 3):
        make_turn(make_session(alice, agent), status=TurnStatus.RUNNING)
        with organisation_scope(acme):
            McpServer.objects.create(
                organisation=acme, name=f"s{number}", title=f"S{number}", failing_since=timezone.now()
            )
            make_budget(acme, f"B{number}")
            record("tool.update", make_tool(acme, f"tool_{number}"), actor=alice, after={"is_enabled": False})
        add_hour(alice, at=timezone.now(), agent=number)
        with CaptureQueriesContext(connection) as captured:
            client.get(ACME)
        counts.append(len(captured))

    assert counts[0] == counts[2]
    assert counts[0] <= 30


def test_first_steps_are_one_line_that_ends(alice: Membership) -> None:
    agent = make_agent(alice.organisation)
    assert re.search(r"First steps: 4 of 4", home(alice))
    ended_turn(make_session(alice, agent))

    assert re.search(r"First steps: 3 of 4", home(alice))
