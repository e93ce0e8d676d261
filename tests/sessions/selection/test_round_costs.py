"""What a round costs, beside the form of an agent: of the form as it is filled in, and nothing is written for it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from capabilities.common.tokens import count_tokens
from capabilities.models import Agent, LanguageModel, ModelPrice, Provider
from sessions.selection.round_costs import RoundCost
from tests.cast import allow_toolkit, give_tool, make_agent, make_category, make_role, make_tool, make_toolkit
from tests.sessions.doors.chats.test_views import delegate, text_of
from toolhub.tenants.models import AuditEntry, Membership, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
EDIT = "/o/acme/agents/clerk/edit/"
#: Three for who asks, the agent, its roles, the model; rights, tools, toolkits, what these hold, definitions, keywords:
#: the offline model needs no query for its price.
QUERIES = 12


@pytest.fixture
def agent(alice: Membership) -> Agent:
    """An agent with one tool of its own, one in the core and one in a toolkit that is not initial."""
    acme = alice.organisation
    make_role(acme, alice)
    agent = make_agent(acme, slug="clerk", prompt="Be brief.", starts_with_core=False)
    make_tool(acme, "core_tool")
    elsewhere = make_category(acme, "elsewhere", is_core=False, keywords=["paint"])
    give_tool(agent, make_tool(acme, "own_tool", category=elsewhere))
    make_tool(acme, "other_tool", category=elsewhere)
    kit = make_toolkit(acme, "kit", make_tool(acme, "kit_tool", category=elsewhere))
    allow_toolkit(agent, kit)
    return agent


@pytest.fixture
def as_alice(client: Client, alice: Membership, agent: Agent) -> Client:
    client.force_login(alice.user)
    return client


def filled(agent: Agent, **changes: Any) -> dict[str, Any]:
    """The form as it is stored, with these changes."""
    with organisation_scope(agent.organisation_id):
        model = agent.model.public_id
    stored = {
        "name": agent.name,
        "slug": agent.slug,
        "model": str(model),
        "prompt": agent.prompt,
        "tools": ["own_tool"],
        "allowed_toolkits": ["kit"],
        "tools_mode": "listed",
        "loading_mode": agent.loading_mode,
        "routing_mode": agent.routing_mode,
        "scope": agent.scope,
        "offered_to": "everybody",
        "client_approvals": "ask",
    }
    return stored | changes


def cost(client: Client, agent: Agent, **changes: Any) -> RoundCost:
    reply = client.post(EDIT, {**filled(agent, **changes), "cost": "1"})
    assert reply.status_code == 200
    found: RoundCost = reply.context["cost"]
    return found


def names(client: Client, agent: Agent, **changes: Any) -> int:
    return cost(client, agent, **changes).tools


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"tools": ["own_tool", "other_tool"]}, 1),
        ({"tools": []}, -1),
        ({"tools": ["own_tool", "other_tool"], "deferred_tools": ["other_tool"]}, 0),
        ({"starts_with_core": "on"}, 1),
        ({"tools_mode": "all"}, 3),
        ({"initial_toolkits": ["kit"]}, 1),
        ({"tools": ["own_tool", "no_such_tool"], "allowed_toolkits": ["kit", "no_such_kit"]}, 0),
    ],
)
def test_ticked_tools_and_toolkits_change_what_a_round_carries(
    as_alice: Client, agent: Agent, changes: dict[str, Any], more: int
) -> None:
    assert names(as_alice, agent, **changes) - names(as_alice, agent) == more


def test_the_prompt_counts_and_nothing_is_written(as_alice: Client, agent: Agent) -> None:
    with organisation_scope(agent.organisation_id):
        before = AuditEntry.objects.count()
    prompt = "Be brief, and say what you did. " * 20

    found = cost(as_alice, agent, prompt=prompt)

    assert found.prompt_tokens == count_tokens(prompt) > cost(as_alice, agent).prompt_tokens > 0
    assert found.tokens == found.tool_tokens + found.prompt_tokens
    with organisation_scope(agent.organisation_id):
        assert AuditEntry.objects.count() == before
        assert Agent.objects.get(slug="clerk").prompt == "Be brief."


def test_instructions_of_tools_count_behind_the_prompt(as_alice: Client, agent: Agent) -> None:
    words = "Use it with care, and only once."
    make_tool(agent.organisation, "wordy_tool", instructions=words)

    found = cost(as_alice, agent, tools=["own_tool", "wordy_tool"])

    assert found.instruction_tokens >= count_tokens(f"wordy_tool: {words}")


def test_a_message_brings_fewer_tools_where_it_is_routed(as_alice: Client, agent: Agent) -> None:
    found = cost(as_alice, agent, routing_mode="keywords")

    assert (found.message, found.all_tool_tokens > found.tool_tokens) == ("Hello", True)
    pinned = cost(as_alice, agent, routing_mode="keywords", pinned_tools=["own_tool"])
    assert pinned.tools > found.tools
    assert cost(as_alice, agent, routing_mode="keywords", loading_mode="constant").message == ""


def test_money_is_that_of_the_model_in_the_form(as_alice: Client, alice: Membership, agent: Agent) -> None:
    with organisation_scope(agent.organisation_id):
        dear = LanguageModel.objects.create(
            organisation=agent.organisation, provider=agent.model.provider, name="dear", context_window=8_000
        )
        Provider.objects.update(base_url="https://models.example.com/v1")
        ModelPrice.objects.create(
            organisation=agent.organisation,
            model=dear,
            valid_from=timezone.now(),
            input=Decimal(3),
            output=Decimal(9),
            cached=Decimal("0.3"),
        )

    found = cost(as_alice, agent, model=str(dear.public_id))

    assert (found.nano, found.cached_nano) == (found.tokens * 3_000, found.tokens * 300)
    assert cost(as_alice, agent).nano is None


def test_what_cannot_be_saved_has_a_cost_too(as_alice: Client, agent: Agent) -> None:
    wrong = {"name": "", "slug": "NOT A NAME", "max_rounds": "-3", "loading_mode": "nonsense", "model": "nonsense"}

    assert cost(as_alice, agent, **wrong) == cost(as_alice, agent)


@pytest.mark.parametrize("count", [1, 3])
def test_the_cost_takes_the_same_queries_for_one_and_three_tools_and_toolkits(
    as_alice: Client, agent: Agent, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    acme = agent.organisation
    more = [make_tool(acme, f"tool_{number}").name for number in range(count)]
    kits = [make_toolkit(acme, f"kit_{number}", make_tool(acme, f"kt_{number}")).name for number in range(count)]
    form = filled(agent, tools=more, allowed_toolkits=kits, initial_toolkits=kits, routing_mode="hybrid", cost="1")

    with django_assert_num_queries(QUERIES):
        reply = as_alice.post(EDIT, form)

    assert reply.status_code == 200
    assert reply.context["cost"].all_tools >= 2 * count


def test_an_answer_is_short_however_much_is_ticked(as_alice: Client, agent: Agent) -> None:
    many = [make_tool(agent.organisation, f"tool_{number:03}").name for number in range(150)]
    reply = as_alice.post(EDIT, filled(agent, tools=many, prompt="word " * 2_000, cost="1"))

    assert (reply.context["cost"].over_limit, len(reply.content) < 5_000) == (150 - 128 + 0, True)
    assert "do not fit" in text_of(reply.content)
    for key in ("name", "model", "prompt", "tools", "sending", "rights"):
        assert f'id="summary-{key}"'.encode() in reply.content


def test_the_form_says_it_at_load_and_so_does_that_of_a_new_agent(as_alice: Client, agent: Agent) -> None:
    edit, new = as_alice.get(EDIT), as_alice.get("/o/acme/agents/new/")

    assert edit.context["cost"] == cost(as_alice, agent)
    assert new.context["cost"].prompt_tokens == 0
    assert b'id="round-cost"' in new.content


def test_a_form_without_any_model_says_no_cost(as_alice: Client, agent: Agent) -> None:
    with organisation_scope(agent.organisation_id):
        Agent.objects.all().delete()
        LanguageModel.objects.all().delete()

    page = as_alice.get("/o/acme/agents/new/")

    assert (page.status_code, "cost" in page.context) == (200, False)
    assert as_alice.post("/o/acme/agents/new/", {"cost": "1"}).status_code == 200


def test_only_who_administers_agents_asks_what_one_would_cost(client: Client, bob: Membership, agent: Agent) -> None:
    client.force_login(bob.user)
    assert client.post(EDIT, filled(agent, cost="1")).status_code == 403

    delegate(bob, Right.AGENTS)
    make_role(bob.organisation, bob, slug="bobs")
    assert client.post(EDIT, filled(agent, cost="1")).context["cost"].tools > 0


def test_tools_of_another_organisation_count_as_nothing(client: Client, charlie: Membership, agent: Agent) -> None:
    client.force_login(charlie.user)
    make_agent(charlie.organisation, slug="theirs", starts_with_core=False)
    make_role(charlie.organisation, charlie, slug="theirs")

    reply = client.post("/o/globex/agents/theirs/edit/", filled(agent, cost="1"))

    assert (reply.status_code, reply.context["cost"].tools) == (200, 0)
    assert client.post(EDIT, filled(agent, cost="1")).status_code == 404
