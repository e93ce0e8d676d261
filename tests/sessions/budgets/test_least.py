"""A limit under which no turn can start is told where it is saved and shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from capabilities.models import Agent
from sessions.budgets.least import least_of, warnings_of
from sessions.models import Budget, BudgetScope, Measure, TurnStatus
from tests.cast import make_agent, make_budget, make_session
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI
from tests.sessions.run_turns import run
from toolhub.tenants.models import Membership, Organisation

pytestmark = pytest.mark.django_db


@pytest.fixture
def agents(in_acme: Organisation) -> tuple[Agent, Agent]:
    small = make_agent(in_acme, slug="small", name="Small", output_p95=300)
    large = make_agent(in_acme, slug="large", name="Large", output_p95=3_000)
    return small, large


def budget(organisation: Organisation, limit: int, **fields: Any) -> Budget:
    return make_budget(organisation, limit=limit, **fields)


def test_a_budget_too_small_for_a_turn_names_the_agents_concerned(
    agents: tuple[Agent, Agent], in_acme: Organisation
) -> None:
    small, large = (least_of(agent, Measure.TOKENS, None) for agent in agents)
    assert 300 <= small < large

    (none,) = warnings_of(budget(in_acme, small - 1, name="none"), None)
    (some,) = warnings_of(budget(in_acme, small, name="some"), None)

    assert ("No turn" in none, "Large" in none, "Small" in none) == (True, True, True)
    assert ("No turn" in some, "Large" in some, "Small" in some) == (False, True, False)
    assert warnings_of(budget(in_acme, large, name="all"), None) == []


@pytest.mark.parametrize("fields", [{"is_hard": False}, {"is_enabled": False}, {"measure": Measure.TURNS}])
def test_a_small_budget_that_stops_no_turn_gives_no_warning(
    agents: tuple[Agent, Agent], in_acme: Organisation, fields: dict[str, Any]
) -> None:
    assert warnings_of(budget(in_acme, 1, **fields), None) == []


def test_a_budget_of_one_agent_is_about_that_one(agents: tuple[Agent, Agent], in_acme: Organisation) -> None:
    small = least_of(agents[0], Measure.TOKENS, None)

    assert warnings_of(budget(in_acme, small, scope=BudgetScope.AGENT, agent=agents[0]), None) == []


def test_page_and_rest_say_it(agents: tuple[Agent, Agent], alice: Membership, client: Client) -> None:
    made = Rest(alice).post("budgets", {"name": "Tiny", "limit": "10"})
    read = Rest(alice).get(f"budgets/{made.json['id']}")
    client.force_login(alice.user)

    page = client.get(reverse("budget_detail", args=["acme", made.json["id"]])).content.decode()

    assert made.status == 201
    assert made.json["warnings"] == read.json["warnings"]
    assert "No turn can start" in made.json["warnings"][0]
    assert "No turn can start" in page
    assert Rest(alice).patch(f"budgets/{made.json['id']}", {"limit": "1000000"}).json["warnings"] == []


@pytest.mark.django_db(transaction=True)
def test_a_turn_under_such_a_limit_is_refused_before_its_first_call(
    alice: Membership, provider: ScriptedOpenAI
) -> None:
    agent = make_agent(alice.organisation, provider.url, slug="small", output_p95=300)
    session = make_session(alice, agent)
    make_budget(alice.organisation, limit=299)
    provider.enqueue(Say("Hi."))

    turn = run(session)

    assert (turn.status, turn.error_code, provider.requests) == (TurnStatus.FAILED, "budget_exceeded", [])
