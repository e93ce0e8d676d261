"""MR-28: an agent that is offered to the members of roles is nobody else's: not seen, not talked to, not handed to.

The walk is generated: every address that is known (`tests/test_tenancy_routes.py`) is asked by a member who is in no
room of any agent. A new page or route is walked from its first day.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import time_machine
from django.utils import timezone

from capabilities.models import Agent, AgentRoom, Offer, Role, RoleMembership
from tests.test_tenancy_routes import (
    ADDRESSES,
    ALL_ASKS,
    MISSING,
    ROUTES,
    Ask,
    OrganisationRows,
    TwoOrganisations,
    ask,
    filled,
    snapshot,
    without_echo,
    world,
)
from toolhub.tenants.models import AdminRight, Membership, Right
from toolhub.tenants.rows.scope import organisation_scope

__all__ = ["filled", "world"]

pytestmark = [pytest.mark.exhaustive, pytest.mark.django_db]

#: Stands in every text of the hidden agents, and in nothing else.
HIDDEN = "hiddenokapi"
#: Rights whose own pages name agents: who holds one administers what agents do, or reads what they did.
NAME_AGENTS = {
    *(Right.AGENTS, Right.TOOLKITS, Right.POLICIES, Right.HOOKS, Right.BUDGETS, Right.PROVIDERS),
    *(Right.SESSIONS, Right.APPROVALS, Right.AUDIT),
}
OTHER_RIGHTS = [right for right in Right if right not in NAME_AGENTS]


@pytest.fixture
def hidden(world: TwoOrganisations) -> OrganisationRows:
    """Acme's rows, where every agent is offered to a role that only Alice has."""
    acme = world.alice.organisation
    with organisation_scope(acme):
        room = Role.objects.create(organisation=acme, slug="okapi-room", name="Okapi room")
        RoleMembership.objects.create(organisation=acme, role=room, membership=world.alice)
        names = {}
        for agent in Agent.objects.all():
            names[agent.slug] = f"{HIDDEN}-{agent.pk}"
            agent.slug = agent.name = agent.description = agent.role = agent.prompt = names[agent.slug]
            agent.offered_to = Offer.ROLES
            agent.save()
            AgentRoom.objects.filter(agent=agent).delete()
            AgentRoom.objects.create(organisation=acme, agent=agent, role=room)
    return replace(world.acme, agent=names[world.acme.agent], idle_agent=names[world.acme.idle_agent])


def with_rights(member: Membership, rights: list[Right]) -> None:
    with organisation_scope(member.organisation):
        for right in rights:
            AdminRight.objects.create(organisation=member.organisation, membership=member, right=right)


def names_agents(way: Ask) -> bool:
    named = way.body or way.query
    return named is not None and named(MISSING) != named(replace(MISSING, agent="a", idle_agent="b"))


READS = [(name, number) for name, number in ALL_ASKS if ROUTES[name].asks[number].method == "GET"]
NAMING = [(name, number) for name, number in ALL_ASKS if names_agents(ROUTES[name].asks[number])]


@pytest.mark.parametrize("rights", [[], OTHER_RIGHTS], ids=["member", "other-rights"])
def test_mr_28_no_page_and_no_route_shows_an_agent_to_who_is_in_none_of_its_rooms(
    world: TwoOrganisations, hidden: OrganisationRows, rights: list[Right]
) -> None:
    with_rights(world.bob, rights)
    clients = {is_api: (world.by_token if is_api else world.by_login)(world.bob) for is_api in (True, False)}
    no_agent = replace(hidden, agent=MISSING.agent, idle_agent=MISSING.idle_agent)
    shown = []
    for name, number in READS:
        answer = ask(clients[ADDRESSES[name].is_api], name, ROUTES[name].asks[number], hidden, no_agent)
        if HIDDEN in answer.body + answer.location:
            shown.append((name, number, answer.status))

    assert shown == [], "\n".join(map(str, shown))


def test_mr_28_an_agent_in_no_room_of_the_member_is_answered_like_a_missing_one(
    world: TwoOrganisations, hidden: OrganisationRows
) -> None:
    """In paths, queries and bodies, with whatever right but that for agents: nothing of it is stored."""
    with_rights(world.bob, [right for right in Right if right not in NAME_AGENTS])
    missing = replace(hidden, agent=MISSING.agent, idle_agent=MISSING.idle_agent)
    clients = {is_api: (world.by_token if is_api else world.by_login)(world.bob) for is_api in (True, False)}
    told_apart, changed = [], []
    for name, number in ALL_ASKS:
        way = ROUTES[name].asks[number]
        in_path = {"agent", "idle_agent"} & {ROUTES[name].args.get(each, each) for each in ADDRESSES[name].arguments}
        if not in_path and not names_agents(way):
            continue
        client, before = clients[ADDRESSES[name].is_api], snapshot()
        with time_machine.travel(timezone.now(), tick=False):
            theirs, nobodys = (
                without_echo(ask(client, name, way, side if in_path else hidden, side), side)
                for side in (hidden, missing)
            )
        if theirs != nobodys:
            told_apart.append((name, number, theirs.status, nobodys.status))
        if snapshot() != before:
            changed.append((name, number))

    assert told_apart == [], "\n".join(map(str, told_apart))
    assert changed == []


def test_mr_28_a_member_of_a_room_is_offered_the_agent_at_each_door(
    world: TwoOrganisations, hidden: OrganisationRows
) -> None:
    """The walk would find nothing either where nobody were shown any agent."""
    with organisation_scope(world.bob.organisation):
        room = Role.objects.get(slug="okapi-room")
        RoleMembership.objects.create(organisation=world.bob.organisation, role=room, membership=world.bob)
    doors = ("session_list", "schedule_list", "agent_list", "agent_detail", "connect", "explain")
    routes = ("api-agents", "api-agent", "v1-models", "v1-model")
    clients = {is_api: (world.by_token if is_api else world.by_login)(world.bob) for is_api in (True, False)}

    shown = {
        name: HIDDEN in ask(clients[ADDRESSES[name].is_api], name, Ask(), hidden).body for name in (*doors, *routes)
    }

    assert shown == dict.fromkeys(shown, True)
