"""Who gets tools: agents, a toolkit, or nobody yet; and the next step, said alike wherever nobody has one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.urls import reverse

from capabilities.agents.agents.giving import give_tools
from capabilities.agents.agents.writes import own_tools
from capabilities.catalogue.tools.recipients.queries import holders_of
from capabilities.catalogue.tools.recipients.writes import NO_AGENT, Recipients
from capabilities.choosing.pipeline.bringing import ways_between, without_agent
from capabilities.common.refused import ChangeRefused
from capabilities.contract.loading import META_CATEGORY
from capabilities.models import Agent, AgentToolkit, Category, Effect, Grant, Tool, Toolkit, ToolkitCategory, ToolsMode
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_meta_tools,
    make_organisation,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loads import ask, carried
from tests.sessions.run_turns import run
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def pets(in_acme: Organisation) -> Category:
    return make_category(in_acme, "pets", is_core=False)


@pytest.fixture
def tools(in_acme: Organisation, pets: Category) -> list[Tool]:
    return [make_tool(in_acme, name, category=pets) for name in ("list_pets", "add_pet")]


@pytest.fixture
def agent(in_acme: Organisation, alice: Membership) -> Agent:
    return make_agent(in_acme, slug="helper", name="Helper")


def actions() -> list[str]:
    return list(
        AuditEntry.objects.filter(action__regex=r"^(agent|toolkit)\.")
        .order_by("number")
        .values_list("action", flat=True)
    )


def names_of(toolkit: str) -> list[str]:
    lines = Toolkit.objects.get(name=toolkit).toolkit_tools.order_by("position")
    return list(lines.values_list("tool__name", flat=True))


def with_rights(member: Membership, *rights: Right) -> Membership:
    for right in rights:
        AdminRight.objects.create(organisation_id=member.organisation_id, membership=member, right=right)
    return member


# -- The write --------------------------------------------------------------------------------------------------------


def test_agents_get_tools_as_their_own_behind_what_they_have(
    agent: Agent, tools: list[Tool], alice: Membership
) -> None:
    first = make_tool(alice.organisation, "first", category=tools[0].category)
    give_tool(agent, first)

    give_tools(["add_pet", "first", "list_pets"], Recipients(("helper",)), actor=alice)

    assert own_tools(agent) == ["first", "add_pet", "list_pets"]
    assert actions() == ["agent.update"]


def test_a_new_toolkit_holds_them_and_the_agents_may_load_it(
    agent: Agent, tools: list[Tool], alice: Membership
) -> None:
    give_tools(["list_pets", "add_pet"], Recipients(("helper",), new_toolkit="pets"), actor=alice)

    assert names_of("pets") == ["list_pets", "add_pet"]
    assert own_tools(agent) == []
    assert AgentToolkit.objects.get(agent=agent).is_initial is False
    assert sorted(actions()) == ["agent.update", "toolkit.create"]


def test_a_toolkit_that_is_there_keeps_its_lines(tools: list[Tool], alice: Membership) -> None:
    make_toolkit(alice.organisation, "pets", tools[1])

    give_tools(["list_pets", "add_pet"], Recipients(toolkit="pets"), actor=alice)

    assert names_of("pets") == ["add_pet", "list_pets"]


@pytest.mark.parametrize(
    ("to", "field"),
    [
        (Recipients(("helper", "nobody")), "agents"),
        (Recipients(toolkit="nothing"), "toolkit"),
        (Recipients(("nobody",), new_toolkit="pets"), "agents"),
        (Recipients(toolkit="old", new_toolkit="pets"), "new_toolkit"),
        (Recipients(new_toolkit="old"), "new_toolkit"),
        (Recipients(("theirs",)), "agents"),
    ],
)
def test_an_unknown_recipient_gives_tools_to_nobody(
    agent: Agent, tools: list[Tool], alice: Membership, to: Recipients, field: str
) -> None:
    make_toolkit(alice.organisation, "old")
    make_agent(make_organisation("other"), slug="theirs")

    with pytest.raises(ChangeRefused) as refused:
        give_tools(["list_pets"], to, actor=alice)

    assert refused.value.field == field
    assert (own_tools(agent), actions(), list(Toolkit.objects.values_list("name", flat=True))) == ([], [], ["old"])


@pytest.mark.parametrize(
    ("right", "to"),
    [
        (Right.TOOLKITS, Recipients(("helper",))),
        (Right.AGENTS, Recipients(new_toolkit="pets")),
        (Right.AGENTS, Recipients(toolkit="old")),
        (Right.TOOLKITS, Recipients(("helper",), new_toolkit="pets")),
    ],
)
def test_agents_and_toolkits_each_take_their_right(
    agent: Agent, tools: list[Tool], bob: Membership, right: Right, to: Recipients
) -> None:
    make_toolkit(bob.organisation, "old")

    with pytest.raises(PermissionDenied):
        give_tools(["list_pets"], to, actor=with_rights(bob, right, Right.CATALOGUE))

    assert (own_tools(agent), names_of("old"), actions()) == ([], [], [])


def test_rule_12_a_change_to_an_agent_raises_what_readers_remember(
    agent: Agent, tools: list[Tool], alice: Membership
) -> None:
    before = Organisation.objects.get(pk=alice.organisation_id).registry_version

    give_tools(["list_pets"], Recipients(("helper",)), actor=alice)

    assert Organisation.objects.get(pk=alice.organisation_id).registry_version > before


# -- Every tool -------------------------------------------------------------------------------------------------------


def has_every_tool(agent: Agent) -> Agent:
    Agent.objects.filter(pk=agent.pk).update(tools_mode=ToolsMode.ALL)
    agent.refresh_from_db()
    return agent


@pytest.mark.django_db(transaction=True)
def test_an_agent_with_every_tool_sends_what_comes_later_and_keeps_no_list(
    alice: Membership, pets: Category, provider: ScriptedOpenAI
) -> None:
    make_role(alice.organisation, alice)
    agent = has_every_tool(make_agent(alice.organisation, provider.url, slug="all", starts_with_core=False))
    session = make_session(alice, agent)
    make_tool(alice.organisation, "comes_later", category=pets)
    make_tool(make_organisation("other"), "theirs")
    provider.enqueue(Say("Hi."))

    run(session)

    assert carried(provider.requests[-1]) == ["comes_later"]

    give_tools(["comes_later"], Recipients(("all",)), actor=alice)
    assert own_tools(agent) == []


def test_the_state_is_set_by_page_and_by_rest_and_is_on_record(agent: Agent, alice: Membership) -> None:
    reply = Rest(alice).patch("agents/helper", {"tools_mode": "all"})

    assert (reply.status, reply.json["tools_mode"]) == (200, "all")
    entry = AuditEntry.objects.get(action="agent.update")
    assert (entry.before["tools_mode"], entry.after["tools_mode"]) == ("listed", "all")
    assert Rest(alice).patch("agents/helper", {"tools_mode": "some"}).status == 400


def test_an_operator_without_the_right_does_not_open_every_tool(agent: Agent, bob: Membership) -> None:
    with_rights(bob, Right.CATALOGUE, Right.TOOLKITS)

    assert Rest(bob).patch("agents/helper", {"tools_mode": "all"}).status == 403


# -- What is said where no agent has it -------------------------------------------------------------------------------


def test_members_without_a_way_to_a_tool_are_the_same_by_query_and_by_pairs(in_acme: Organisation) -> None:
    """Each of the ways alone, and all ways mixed by chance."""
    chance = random.Random(4)
    make_meta_tools(in_acme)
    categories = [make_category(in_acme, f"c{number}", is_core=number == 0) for number in range(4)]
    tools = [make_tool(in_acme, f"t{number}", category=chance.choice(categories)) for number in range(12)]
    kits = [make_toolkit(in_acme, f"k{number}", *chance.sample(tools, 2)) for number in range(3)]
    ToolkitCategory.objects.create(organisation=in_acme, toolkit=kits[0], category=categories[1])
    agents = [make_agent(in_acme, slug=f"a{number}", starts_with_core=False) for number in range(3)]
    every = list(Tool.objects.select_related("category"))

    def agree() -> int:
        by_pairs = {key for _, key in ways_between(list(Agent.objects.all()), every)}
        shown = {tool.pk for tool in every if tool.category.name != META_CATEGORY}
        nobodys = set(without_agent([tool.pk for tool in every]).values_list("pk", flat=True))
        assert nobodys == shown - by_pairs
        return len(nobodys)

    counts = [agree()]
    give_tool(agents[0], tools[0], is_deferred=True)
    counts.append(agree())
    give_tool(agents[1], tools[1])
    counts.append(agree())
    allow_toolkit(agents[2], kits[2])
    counts.append(agree())
    allow_toolkit(agents[2], kits[0], initial=True)
    counts.append(agree())
    Agent.objects.filter(pk=agents[0].pk).update(starts_with_core=True)
    counts.append(agree())
    has_every_tool(agents[1])
    counts.append(agree())
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (12, 0)
    assert len(set(counts)) >= 5


@pytest.mark.django_db(transaction=True)
def test_page_explain_and_refusal_say_the_same_next_step(
    alice: Membership, pets: Category, provider: ScriptedOpenAI
) -> None:
    make_role(alice.organisation, alice)
    agent = make_agent(alice.organisation, provider.url, slug="starter", starts_with_core=False)
    tool = make_tool(alice.organisation, "list_pets", category=pets)
    give_tool(agent, make_tool(alice.organisation, "first", category=pets))
    client = Client()
    client.force_login(alice.user)

    def said() -> tuple[bool, bool, bool]:
        page = client.get(reverse("tool_detail", args=["acme", "list_pets"])).content.decode()
        (line,) = Rest(alice).get("explain", agent="starter", q="list_pets").json["results"]
        (told,) = ask(make_session(alice, agent), provider, call("list_pets"))
        return NO_AGENT in page, NO_AGENT in line["sentence"], told.get("next_step") == NO_AGENT

    assert said() == (True, True, True)

    give_tool(make_agent(alice.organisation, slug="other", starts_with_core=False), tool)
    assert said() == (False, False, False)


@pytest.mark.django_db(transaction=True)
def test_a_member_without_the_tool_is_told_of_no_next_step(
    alice: Membership, pets: Category, provider: ScriptedOpenAI
) -> None:
    agent = make_agent(alice.organisation, provider.url, slug="starter", starts_with_core=False)
    make_tool(alice.organisation, "list_pets", category=pets)
    make_role(alice.organisation, alice)
    give_tool(agent, make_tool(alice.organisation, "first", category=pets))
    with organisation_scope(alice.organisation):
        tool = Tool.objects.get(name="list_pets")
        Grant.objects.create(organisation=alice.organisation, membership=alice, tool=tool, effect=Effect.DENY)

    (told,) = ask(make_session(alice, agent), provider, call("list_pets"))

    assert "next_step" not in told


@pytest.mark.parametrize("count", [1, 3])
def test_who_has_tools_takes_the_same_queries_for_1_and_3(
    in_acme: Organisation, count: int, django_assert_max_num_queries: Any
) -> None:
    pets = make_category(in_acme, "pets", is_core=False)
    tools = [make_tool(in_acme, f"t{number}", category=pets) for number in range(count)]
    for number in range(count):
        agent = make_agent(in_acme, slug=f"a{number}", name=f"A{number}", starts_with_core=False)
        give_tool(agent, tools[0])
        allow_toolkit(agent, make_toolkit(in_acme, f"k{number}", tools[-1]))

    with django_assert_max_num_queries(7):
        found = holders_of(list(Tool.objects.select_related("category")))

    assert (len(found.agents), len(found.without_agent), found.total) == (count, max(count - 2, 0), count)


# -- Doors ------------------------------------------------------------------------------------------------------------


def test_the_page_asks_for_somebody_who_is_there(agent: Agent, tools: list[Tool], alice: Membership) -> None:
    client = Client()
    client.force_login(alice.user)
    url = reverse("tool_give", args=["acme", "list_pets"])

    assert "helper" in client.get(url).content.decode()
    assert client.post(url, {}).status_code == 422
    assert client.post(url, {"agents": ["nobody"]}).status_code == 422
    assert own_tools(agent) == []


def test_the_page_is_not_there_for_another_organisation(agent: Agent, tools: list[Tool], charlie: Membership) -> None:
    client = Client()
    client.force_login(charlie.user)

    assert client.post(reverse("tool_give", args=["acme", "list_pets"]), {"agents": ["helper"]}).status_code == 404
    assert own_tools(agent) == []


def test_what_members_feel_is_shown_before_it_is_saved(
    tools: list[Tool], alice: Membership, provider: ScriptedOpenAI
) -> None:
    make_role(alice.organisation, alice)
    agent = make_agent(alice.organisation, provider.url, slug="starter", starts_with_core=False)
    make_session(alice, agent)
    client = Client()
    client.force_login(alice.user)
    url = reverse("tool_give", args=["acme", "list_pets"])

    shown = client.post(url, {"agents": ["starter"]})

    assert own_tools(agent) == []
    stamp = shown.context["stamp"] if "stamp" in (shown.context or {}) else shown.context["preview"].stamp
    assert client.post(url, {"agents": ["starter"], "stamp": stamp}).status_code == 302
    assert own_tools(agent) == ["list_pets"]


def test_an_http_tool_over_rest_goes_to_agents_and_a_new_toolkit(
    agent: Agent, pets: Category, alice: Membership
) -> None:
    body = {
        "name": "read_user",
        "category": "pets",
        "description": "Reads a user.",
        "effect": "read",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        "implementation": {
            "method": "GET",
            "url": "https://api.example.org/users/{id}",
            "arguments": {"id": {"in": "path"}},
        },
        "agents": ["helper"],
        "new_toolkit": "people",
    }

    assert Rest(alice).post("http-tools", {**body, "agents": ["nobody"]}).status == 400
    assert not Tool.objects.filter(name="read_user").exists()
    reply = Rest(alice).post("http-tools", body)

    assert reply.status == 201, reply.json
    assert names_of("people") == ["read_user"]
    assert list(agent.agent_toolkits.values_list("toolkit__name", flat=True)) == ["people"]
