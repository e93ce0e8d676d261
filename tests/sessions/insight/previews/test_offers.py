"""Whom a change of an agent or a toolkit changes: tools won and lost, live sessions, loads that fall, tokens."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.agents.agents import views as agent_views
from capabilities.agents.agents.writes import AgentContent, allowed_toolkits, deferred_tools, own_tools, update_agent
from capabilities.agents.toolkits import views as toolkit_views
from capabilities.agents.toolkits.writes import ToolkitContent, ToolkitLine, content_of, update_toolkit
from capabilities.choosing.pipeline.candidates import candidates_for
from capabilities.common.refused import ChangeRefused
from capabilities.contract.loading import META_TOOLS
from capabilities.models import Agent, Grant, Role, RoleMembership, Tool, Toolkit
from sessions.insight.previews.concerned import Group
from sessions.insight.previews.offers import (
    AgentChange,
    OfferImpact,
    OverrideChange,
    impact_of_agent,
    impact_of_toolkit,
)
from sessions.models import ChatSession, LoadedToolkit, TurnStatus
from sessions.selection.holdings import holdings_of
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.writes import By, load, load_category
from sessions.selection.queries import Selection, selection_preview
from tests.cast import (
    allow_toolkit,
    give_tool,
    hold_credential,
    make_agent,
    make_category,
    make_member,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
    make_turn,
)
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation, User
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db]

HTMX = {"HX-Request": "true"}


@pytest.fixture
def coder(in_acme: Organisation, alice: Membership, bob: Membership) -> Agent:
    """Bob, who may use everything, as Alice may, has a live session with the agent: its own `note`, and it may load
    `ops` (docker, deploy)."""
    make_meta_tools(in_acme)
    category = make_category(in_acme, "devops", is_core=False)
    tools = {name: make_tool(in_acme, name, category=category) for name in ("docker", "deploy", "fetch", "note")}
    agent = make_agent(in_acme, slug="coder", starts_with_core=False)
    give_tool(agent, tools["note"], position=1)
    allow_toolkit(agent, make_toolkit(in_acme, "ops", tools["docker"], tools["deploy"]))
    make_role(in_acme, bob)
    make_role(in_acme, alice)
    make_session(bob, agent)
    return agent


@pytest.fixture
def session(coder: Agent) -> ChatSession:
    return ChatSession.objects.get()


def like(agent: Agent, **fields: Any) -> AgentContent:
    """The agent as it is stored, but for these."""
    kits = allowed_toolkits(agent)
    stored: dict[str, Any] = {
        "starts_with_core": agent.starts_with_core,
        "tools": tuple(own_tools(agent)),
        "deferred_tools": tuple(deferred_tools(agent)),
        "allowed_toolkits": tuple(kits),
        "initial_toolkits": tuple(name for name, is_initial in kits.items() if is_initial),
        "loading_mode": agent.loading_mode,
        "scope": agent.scope,
    }
    return AgentContent(agent.slug, agent.name, agent.model, **(stored | fields))


def bundle(*lines: str | ToolkitLine, name: str = "ops", **fields: Any) -> ToolkitContent:
    own = tuple(line if isinstance(line, ToolkitLine) else ToolkitLine(line) for line in lines)
    return ToolkitContent(name, tools=own, **fields)


def ops() -> Toolkit:
    return Toolkit.objects.get(name="ops")


def loaded(session: ChatSession, agent: Agent, name: str, member: Membership | None = None) -> None:
    assert load(LoadTarget(session, agent), name, by=By(member or session.membership)).status == "loaded"


def tokens_of(*names: str) -> int:
    rows = Tool.objects.filter(name__in=names).values_list("current_version__tokens", flat=True)
    return sum(tokens or 0 for tokens in rows)


# -- An agent ---------------------------------------------------------------------------------------------------------


def test_a_change_of_words_is_felt_by_nobody(coder: Agent, alice: Membership) -> None:
    content = like(coder, description="Writes code.", prompt="Be brief.")

    assert impact_of_agent(coder, content, actor=alice) == OfferImpact(is_felt=False)


def test_nothing_is_saved_by_looking(coder: Agent, alice: Membership, acme: Organisation) -> None:
    acme.refresh_from_db()
    version = acme.registry_version

    impact_of_agent(coder, like(coder, tools=("fetch",), starts_with_core=True), actor=alice)

    acme.refresh_from_db()
    coder.refresh_from_db()
    assert (own_tools(coder), coder.starts_with_core, acme.registry_version) == (["note"], False, version)
    assert not AuditEntry.objects.filter(action="agent.update").exists()


def test_what_could_not_be_saved_is_refused_when_it_is_shown(coder: Agent, alice: Membership) -> None:
    with pytest.raises(ChangeRefused, match=r"There is no tool missing\."):
        impact_of_agent(coder, like(coder, tools=("missing",)), actor=alice)


def test_own_tools_are_won_and_lost_with_their_tokens(coder: Agent, alice: Membership) -> None:
    impact = impact_of_agent(coder, like(coder, tools=("fetch",)), actor=alice)

    meta = tokens_of("list_toolkits", "load_tools", "unload_tools", "search_tools", "load_tool_category")
    before, after = meta + tokens_of("note"), meta + tokens_of("fetch")
    assert impact.agents == (AgentChange("Coder", ("fetch",), ("note",), (), (), before, after),)
    assert impact.concerned.groups == (Group(("Bob",), ("fetch",), ("note",)),)
    assert (impact.sessions, impact.unchanged, impact.dropped) == (1, 0, 0)


def test_a_toolkit_that_becomes_initial_is_sent_and_wins_nobody_a_tool(coder: Agent, alice: Membership) -> None:
    impact = impact_of_agent(coder, like(coder, initial_toolkits=("ops",)), actor=alice)

    (change,) = impact.agents
    assert (change.sent, change.no_longer_loadable) == (("deploy", "docker"), ("deploy", "docker"))
    assert change.tokens == tokens_of("deploy", "docker")
    assert (impact.concerned.groups, impact.sessions) == ((), 1)
    assert impact.sentence.startswith("No member gains or loses a tool; 1 live ")
    assert impact.sentence.endswith(f"+{change.tokens} tokens at the start for Coder.")


def test_a_toolkit_that_may_not_be_loaded_any_more_is_dropped(
    coder: Agent, session: ChatSession, alice: Membership
) -> None:
    loaded(session, coder, "ops")

    impact = impact_of_agent(coder, like(coder, allowed_toolkits=()), actor=alice)

    assert (impact.dropped, impact.sessions) == (1, 1)
    assert impact.concerned.groups == (Group(("Bob",), (), ("deploy", "docker")),)
    assert "; 1 load is dropped; " in impact.sentence
    assert impact.agents[0].no_longer_sent == ("list_toolkits", "load_tools", "search_tools", "unload_tools")


def test_a_toolkit_that_is_allowed_beside_changes_no_session(
    coder: Agent, alice: Membership, acme: Organisation
) -> None:
    make_toolkit(acme, "net", Tool.objects.get(name="fetch"))

    impact = impact_of_agent(coder, like(coder, allowed_toolkits=("ops", "net")), actor=alice)

    assert impact.agents[0].loadable == ("fetch",)
    assert impact.concerned.groups == (Group(("Bob",), ("fetch",), ()),)
    assert impact.sessions == 0


def test_an_own_tool_that_becomes_deferred_leaves_the_session_and_stays_in_reach(
    coder: Agent, session: ChatSession, alice: Membership
) -> None:
    impact = impact_of_agent(coder, like(coder, deferred_tools=("note",)), actor=alice)
    update_agent(coder, like(coder, deferred_tools=("note",)), actor=alice)
    loaded(session, coder, "note")
    back = impact_of_agent(coder, like(coder, deferred_tools=()), actor=alice)

    assert (impact.agents[0].no_longer_sent, impact.agents[0].loadable) == (("note",), ("note",))
    assert (impact.concerned.groups, impact.sessions) == ((), 1)
    assert (back.dropped, back.sessions) == (1, 0), "its load falls, and it is sent all the same"


def test_the_loading_mode_changes_what_loads_and_what_is_sent(
    coder: Agent, session: ChatSession, alice: Membership
) -> None:
    loaded(session, coder, "ops")

    impact = impact_of_agent(coder, like(coder, loading_mode="constant"), actor=alice)

    assert impact.agents[0].sent == ("call_tool",)
    assert impact.agents[0].no_longer_sent == ("load_tools", "unload_tools")
    assert (impact.sessions, impact.dropped, impact.concerned.groups) == (1, 0, ())
    same_run = impact_of_agent(coder, like(coder, loading_mode="same_run"), actor=alice)
    assert (same_run.is_felt, same_run.agents, same_run.sessions, same_run.unchanged) == (True, (), 0, 1)


def test_what_clients_of_the_api_go_without_is_told_by_itself(coder: Agent, alice: Membership) -> None:
    impact = impact_of_agent(coder, like(coder, client_approvals="hide"), actor=alice)
    coder.client_approvals = "hide"
    coder.save()
    back = impact_of_agent(coder, like(coder, client_approvals="ask"), actor=alice)

    assert (impact.is_felt, impact.changes_somebody, back.changes_somebody) == (False, True, True)
    assert impact.sentence.startswith("No member gains or loses a tool. ")
    assert "API go without the tools of Coder" in impact.sentence
    (told,) = back.of_clients
    assert "API get the tools of Coder" in told


def test_core_tools_come_and_go_with_the_switch(coder: Agent, alice: Membership, acme: Organisation) -> None:
    make_tool(acme, "calculator")

    impact = impact_of_agent(coder, like(coder, starts_with_core=True), actor=alice)

    assert impact.agents[0].sent == ("calculator",)
    assert impact.sessions == 1


def test_a_preview_shows_tools_lost_by_the_scope(coder: Agent, alice: Membership, acme: Organisation) -> None:
    """Of core tools: others with a shared credential keep the scope from being saved."""
    make_tool(acme, "ha_get_state")
    make_tool(acme, "calculator")
    update_agent(coder, like(coder, starts_with_core=True), actor=alice)
    Tool.objects.filter(name="ha_get_state").update(service="github")
    hold_credential(acme, "github")

    impact = impact_of_agent(coder, like(coder, scope="member"), actor=alice)

    assert impact.agents[0].no_longer_sent == ("ha_get_state",)
    assert impact.concerned.groups == (Group(("Bob",), (), ("ha_get_state",)),)


def test_tools_that_do_not_fit_are_told_and_weigh_nothing(coder: Agent, alice: Membership) -> None:
    coder.model.tool_limit = 6
    coder.model.save()

    impact = impact_of_agent(coder, like(coder, tools=("note", "fetch")), actor=alice)

    # What loads others stays, then the first of its own.
    assert (impact.agents[0].over_limit, impact.agents[0].tokens) == (1, 0)


# -- Members and sessions ---------------------------------------------------------------------------------------------


def test_only_what_a_member_may_use_is_won_or_lost(coder: Agent, alice: Membership, acme: Organisation) -> None:
    carol, dan = (make_member(acme, name) for name in ("carol", "dan"))
    make_role(acme, carol)
    make_role(acme, dan)
    for member in (carol, dan):
        make_session(member, coder)
    fetch = Tool.objects.get(name="fetch")
    Grant.objects.create(organisation=acme, membership=carol, tool=fetch, effect="deny")
    Grant.objects.create(organisation=acme, membership=dan, category=fetch.category, effect="deny")

    impact = impact_of_agent(coder, like(coder, tools=("fetch",)), actor=alice)

    assert impact.concerned.groups == (Group(("Bob",), ("fetch",), ("note",)), Group(("Carol",), (), ("note",)))
    assert (impact.unchanged, impact.sessions) == (1, 2), "for Dan nothing changes"


@pytest.mark.parametrize(
    ("hours", "status", "counts"),
    [(0, "done", True), (25, "done", False), (25, "queued", True), (25, "running", True)],
)
def test_a_session_counts_while_it_is_live(
    coder: Agent, session: ChatSession, alice: Membership, hours: int, status: str, counts: bool
) -> None:
    make_turn(session, status=TurnStatus(status))
    ChatSession.objects.update(active_at=timezone.now() - timedelta(hours=hours))

    assert impact_of_agent(coder, like(coder, tools=()), actor=alice).sessions == int(counts)


def test_a_session_of_several_agents_counts_for_those_it_has_talked_to(
    coder: Agent, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    ChatSession.objects.all().delete()
    other = make_session(bob, make_agent(acme, slug="writer"))

    assert impact_of_agent(coder, like(coder, tools=()), actor=alice).sessions == 0
    make_turn(other, agent=coder, status=TurnStatus.DONE)
    assert impact_of_agent(coder, like(coder, tools=()), actor=alice).sessions == 1


def test_who_left_or_may_not_sign_in_is_not_counted(
    coder: Agent, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    gone = make_member(acme, "gone")
    make_role(acme, gone)
    make_session(gone, coder)
    Membership.objects.filter(pk=gone.pk).update(ended_at=timezone.now())
    with system_scope():
        User.objects.filter(pk=bob.user_id).update(is_active=False)

    impact = impact_of_agent(coder, like(coder, tools=()), actor=alice)

    assert (impact.concerned.groups, impact.sessions, impact.unchanged) == ((), 0, 0)


# -- A toolkit --------------------------------------------------------------------------------------------------------


def test_a_toolkit_s_tools_are_told_for_each_agent_that_may_load_it(
    coder: Agent, session: ChatSession, alice: Membership, acme: Organisation
) -> None:
    loaded(session, coder, "ops")
    writer = make_agent(acme, slug="writer", starts_with_core=False)
    allow_toolkit(writer, ops(), initial=True)

    impact = impact_of_toolkit(ops(), bundle("docker", "fetch"), actor=alice)

    assert [(each.name, each.sent, each.loadable) for each in impact.agents] == [
        ("Coder", (), ("fetch",)),
        ("Writer", ("fetch",), ()),
    ]
    assert impact.concerned.groups == (Group(("Bob",), ("fetch",), ("deploy",)),)
    assert (impact.sessions, impact.dropped) == (1, 0)


def test_a_toolkit_that_is_not_loaded_changes_no_session(coder: Agent, alice: Membership) -> None:
    impact = impact_of_toolkit(ops(), bundle("docker"), actor=alice)

    assert (impact.sessions, impact.concerned.groups) == (0, (Group(("Bob",), (), ("deploy",)),))


def test_a_tool_that_something_else_brings_is_not_lost(
    coder: Agent, session: ChatSession, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    loaded(session, coder, "ops")
    Membership.objects.filter(pk=bob.pk).update(access=Access.OPERATOR)
    place = LoadTarget(session, coder)
    assert load_category(place, "devops", by=By(bob)).status == "loaded"

    impact = impact_of_toolkit(ops(), bundle("docker"), actor=alice)

    assert impact.sessions == 0, "the category that is loaded still has it"


def test_a_toolkit_that_no_agent_may_load_is_felt_by_nobody(alice: Membership, coder: Agent) -> None:
    coder.agent_toolkits.all().delete()

    assert impact_of_toolkit(ops(), bundle("fetch"), actor=alice) == OfferImpact(is_felt=False)


def test_overrides_are_told_in_words_and_change_a_session_that_has_it_loaded(
    coder: Agent, session: ChatSession, alice: Membership
) -> None:
    content = bundle(ToolkitLine("docker", timeout=60), "deploy")

    assert impact_of_toolkit(ops(), content, actor=alice).sessions == 0
    loaded(session, coder, "ops")
    impact = impact_of_toolkit(ops(), content, actor=alice)

    assert impact.overrides == (OverrideChange("docker", "as the tool says", "timeout 1 min"),)
    assert (impact.sessions, impact.concerned.groups) == (1, ())
    assert "; 1 tool with other overrides." in impact.sentence


def test_a_load_that_comes_into_conflict_is_dropped(
    coder: Agent, session: ChatSession, alice: Membership, acme: Organisation
) -> None:
    allow_toolkit(coder, make_toolkit(acme, "more", Tool.objects.get(name="docker")))
    loaded(session, coder, "ops")
    loaded(session, coder, "more")

    impact = impact_of_toolkit(ops(), bundle(ToolkitLine("docker", timeout=60), "deploy"), actor=alice)

    assert impact.dropped == 1


def test_a_load_of_which_its_member_may_use_nothing_any_more_is_dropped(
    coder: Agent, session: ChatSession, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    Grant.objects.create(organisation=acme, membership=bob, tool=Tool.objects.get(name="docker"), effect="deny")
    loaded(session, coder, "ops")

    impact = impact_of_toolkit(ops(), bundle("docker"), actor=alice)

    assert (impact.dropped, impact.sessions) == (1, 1)


def test_a_category_in_a_toolkit_brings_its_tools(coder: Agent, alice: Membership, acme: Organisation) -> None:
    web = make_category(acme, "web", is_core=False)
    make_tool(acme, "search", category=web)

    impact = impact_of_toolkit(ops(), bundle("docker", "deploy", categories=("web",)), actor=alice)

    assert impact.agents[0].loadable == ("search",)


def test_another_organisation_s_sessions_are_not_seen(coder: Agent, alice: Membership, charlie: Membership) -> None:
    with organisation_scope(charlie.organisation):
        make_session(charlie, make_agent(charlie.organisation, slug="coder"))

    assert impact_of_agent(coder, like(coder, tools=()), actor=alice).sessions == 1


# -- Against what happens ---------------------------------------------------------------------------------------------


class Agents:
    """Agents, toolkits, members and sessions by the dice."""

    def __init__(self, dice: random.Random, acme: Organisation) -> None:
        self.dice, self.acme = dice, acme
        make_meta_tools(acme)
        self.categories = [make_category(acme, f"c{number}", is_core=number == 0) for number in range(3)]
        self.tools = [make_tool(acme, f"t{number}", category=self.categories[number % 3]) for number in range(12)]
        Tool.objects.filter(name="t11").update(is_enabled=False)
        self.agents = [make_agent(acme, slug=slug, starts_with_core=slug == "one") for slug in ("one", "two")]
        self.kits = [make_toolkit(acme, f"k{number}", *dice.sample(self.tools, 3)) for number in range(4)]
        for agent in self.agents:
            for place, tool in enumerate(dice.sample(self.tools, 3), 1):
                give_tool(agent, tool, position=place, is_deferred=place == 3)
            for kit in self.kits[:3]:
                allow_toolkit(agent, kit, initial=kit is not self.kits[0] and dice.random() < 0.3)
        members = [make_member(acme, f"m{number}") for number in range(6)]
        for member in members:
            make_role(acme, member)
            for tool in dice.sample(self.tools, 3):
                Grant.objects.create(organisation=acme, membership=member, tool=tool, effect="deny")
        self.sessions = [make_session(member, dice.choice(self.agents)) for member in members]
        for session in self.sessions:
            session.shares_loads = dice.random() < 0.3
            session.save()
            for agent in {session.agent, dice.choice(self.agents)}:
                make_turn(session, agent=agent, status=TurnStatus.DONE)
                names = [each.name for each in holdings_of(session, agent).loadable]
                for name in dice.sample(names, min(2, len(names))):
                    load(LoadTarget(session, agent), name, by=By(session.membership))

    def agent_content(self, agent: Agent) -> AgentContent:
        own = tuple(tool.name for tool in self.dice.sample(self.tools, 4))
        allowed = tuple(kit.name for kit in self.dice.sample(self.kits, 3))
        return like(
            agent,
            tools=own,
            deferred_tools=own[:1],
            allowed_toolkits=allowed,
            initial_toolkits=allowed[:1],
            starts_with_core=self.dice.random() < 0.5,
            loading_mode=self.dice.choice(["next_request", "constant", agent.loading_mode]),
        )

    def talks(self) -> list[LoadTarget]:
        pairs = {(session, turn.agent) for session in self.sessions for turn in session.turns.select_related("agent")}
        pairs |= {(session, session.agent) for session in self.sessions}
        return [LoadTarget(ChatSession.objects.get(pk=session.pk), agent) for session, agent in pairs]

    def selections(self) -> dict[tuple[Any, str], Selection]:
        agents = {agent.pk: agent for agent in Agent.objects.select_related("model__provider")}
        return {
            (place.session.pk, place.agent.slug): selection_preview(place.session, agents[place.agent.pk])
            for place in self.talks()
        }

    def starts(self) -> dict[str, set[str]]:
        """What a session with each agent begins with, apart from what loads others."""
        return {
            agent.name: {each.spec.name for each in candidates_for(agent) if each.spec.is_enabled}
            for agent in Agent.objects.all()
        }


def sent_by(selection: Selection) -> set[tuple[str, Any]]:
    return {(tool.name, tool.overrides) for tool in selection.tools}


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6, 7, 8])
def test_it_says_what_the_selection_then_does(seed: int, in_acme: Organisation, alice: Membership) -> None:
    world = Agents(random.Random(seed), in_acme)
    before, starts = world.selections(), world.starts()
    agent, kit = world.agents[seed % 2], Toolkit.objects.get(name="k0")
    if seed <= 4:
        change = world.agent_content(agent)
        impact = impact_of_agent(agent, change, actor=alice)
        update_agent(agent, change, actor=alice)
    else:
        lines = (ToolkitLine("t1", timeout=60), *(ToolkitLine(f"t{number}") for number in (2, 5, 11)))
        impact = impact_of_toolkit(kit, ToolkitContent("k0", tools=lines), actor=alice)
        update_toolkit(kit, ToolkitContent("k0", tools=lines), actor=alice)
    after, started = world.selections(), world.starts()

    old = {load.id for selection in before.values() for load, _ in selection.stale}
    fallen = {load.id for selection in after.values() for load, _ in selection.stale} - old
    changed = {session for session, slug in before if sent_by(before[session, slug]) != sent_by(after[session, slug])}
    assert impact.sessions == len(changed)
    assert impact.dropped == len(fallen)
    for each in impact.agents:
        assert set(each.sent) - META_TOOLS == started[each.name] - starts[each.name]
        assert set(each.no_longer_sent) - META_TOOLS == starts[each.name] - started[each.name]


# -- How much it takes ------------------------------------------------------------------------------------------------


def grow(acme: Organisation, coder: Agent, start: int, end: int) -> None:
    for number in range(start, end):
        member = make_member(acme, f"m{number}")
        make_role(acme, member)
        tool = make_tool(acme, f"tool_{number}", category=make_category(acme, f"c{number}", is_core=False))
        Grant.objects.create(organisation=acme, membership=member, tool=tool, effect="deny")
        kit = make_toolkit(acme, f"kit_{number}", tool, categories=(tool.category,))
        allow_toolkit(coder, kit)
        other = make_agent(acme, slug=f"other-{number}", starts_with_core=False)
        allow_toolkit(other, ops())
        for agent in (coder, other):
            session = make_session(member, agent)
            make_turn(session, agent=coder, status=TurnStatus.DONE)
            loaded(session, agent, "ops")


def test_it_takes_the_same_queries_for_1_and_3_of_everything(
    coder: Agent, alice: Membership, acme: Organisation
) -> None:
    def count() -> tuple[int, int]:
        agent = Agent.objects.get(pk=coder.pk)
        with CaptureQueriesContext(connection) as of_agent:
            impact_of_agent(agent, like(agent, tools=("fetch",)), actor=alice)
        with CaptureQueriesContext(connection) as of_toolkit:
            impact_of_toolkit(ops(), bundle("docker"), actor=alice)
        return len(of_agent), len(of_toolkit)

    grow(acme, coder, 0, 1)
    few = count()
    grow(acme, coder, 1, 3)

    assert count() == few
    assert max(few) <= 70


def test_it_is_quick_for_a_thousand_sessions(coder: Agent, alice: Membership, acme: Organisation) -> None:
    own = {"organisation": acme}
    category = make_category(acme, "devops")
    tools = [make_tool(acme, f"tool_{number:03}", category=category) for number in range(100)]
    update_toolkit(ops(), bundle(*(tool.name for tool in tools)), actor=alice)
    with system_scope():
        users = User.objects.bulk_create(User(email=f"u{number}@example.com") for number in range(1_000))
        members = Membership.objects.bulk_create(Membership(**own, user=user) for user in users)
    role = Role.objects.get(slug="all")
    RoleMembership.objects.bulk_create(RoleMembership(**own, role=role, membership=member) for member in members)
    Grant.objects.bulk_create(
        Grant(**own, membership=member, tool=tools[number % 100], effect="deny")
        for number, member in enumerate(members)
    )
    sessions = ChatSession.objects.bulk_create(ChatSession(**own, membership=member, agent=coder) for member in members)
    kit = ops()
    LoadedToolkit.objects.bulk_create(
        LoadedToolkit(**own, session=session, agent=coder, toolkit=kit, name="ops", source="model", loaded_by=member)
        for session, member in zip(sessions, members, strict=True)
    )

    start = time.process_time()
    impact = impact_of_toolkit(kit, bundle("docker", *(tool.name for tool in tools[:50])), actor=alice)
    took = time.process_time() - start

    assert (impact.sessions, impact.not_looked_at, impact.concerned.members) == (50, 951, 1_001)
    assert "50 live sessions change" in impact.sentence
    assert "951 more live sessions" in impact.sentence
    assert took < 3, took


# -- The pages --------------------------------------------------------------------------------------------------------

AGENT = "/o/acme/agents/coder/edit/"
TOOLKIT = "/o/acme/toolkits/ops/edit/"


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def form(coder: Agent) -> dict[str, Any]:
    """What a browser sends of the agent as it is stored."""
    words = {
        "name": "Coder",
        "slug": "coder",
        "model": coder.model.public_id,
        "is_enabled": "on",
        "prompt": "",
        "q": "",
    }
    modes = {"loading_mode": "next_request", "scope": "organisation"}
    lists = {"tools": ["note"], "place-note": "1", "allowed_toolkits": ["ops"], "toolkit-place-ops": "1"}
    return words | modes | lists


KIT = {"name": "ops", "description": "", "tools": ["docker", "deploy"], "place-docker": "1", "place-deploy": "2"}


def text_of(page: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def stamp_in(page: bytes) -> str:
    found = re.search(r'name="stamp"\s+value="([0-9a-f.]+)"', page.decode())
    assert found is not None
    return found[1]


def test_words_of_an_agent_are_saved_at_once(as_alice: Client, coder: Agent, form: dict[str, Any]) -> None:
    answer = as_alice.post(AGENT, form | {"prompt": "Be brief.", "description": "Codes."})

    coder.refresh_from_db()
    assert (answer.status_code, coder.prompt) == (302, "Be brief.")


def test_tools_of_an_agent_are_shown_first_and_saved_with_the_stamp(
    as_alice: Client, coder: Agent, form: dict[str, Any]
) -> None:
    change = form | {"tools": ["fetch", "docker"], "place-fetch": "1", "place-docker": "2", "prompt": "Typed."}

    shown = as_alice.post(AGENT, change)

    page = text_of(shown.content)
    assert (shown.status_code, own_tools(coder)) == (200, ["note"])
    assert "1 member gains fetch and loses note; " in page
    assert "1 live session changes" in page
    assert "Nothing is saved yet." in page
    html = shown.content.decode()
    assert "Typed." in html, "nothing that was typed is lost"
    assert html.index('value="fetch"') < html.index('value="docker"')
    saved = as_alice.post(AGENT, change | {"stamp": stamp_in(shown.content)})
    coder.refresh_from_db()
    assert saved["Location"] == "/o/acme/agents/coder/"
    assert (own_tools(coder), coder.prompt) == (["fetch", "docker"], "Typed.")


def test_an_agent_that_changed_after_its_preview_is_previewed_again(
    as_alice: Client, coder: Agent, form: dict[str, Any]
) -> None:
    stamp = stamp_in(as_alice.post(AGENT, form | {"tools": ["fetch"]}).content)

    again = as_alice.post(AGENT, form | {"tools": ["docker"], "stamp": stamp})

    assert (again.status_code, own_tools(coder)) == (200, ["note"])
    assert "1 member loses note" in text_of(again.content)
    assert stamp_in(again.content) != stamp


@pytest.mark.parametrize("words_only", [False, True])
def test_an_agent_that_was_changed_meanwhile_is_not_saved_with_an_old_stamp(
    as_alice: Client, coder: Agent, form: dict[str, Any], alice: Membership, words_only: bool
) -> None:
    stamp = stamp_in(as_alice.post(AGENT, form | {"tools": ["fetch"]}).content)
    changed = {"prompt": "Other."} if words_only else {"tools": ("note", "deploy")}
    update_agent(coder, like(coder, **changed), actor=alice)

    stale = as_alice.post(AGENT, form | {"tools": ["fetch"], "stamp": stamp})

    assert stale.status_code == 409
    assert "nothing is saved yet" in text_of(stale.content)
    assert "note" in own_tools(coder)
    assert as_alice.post(AGENT, form | {"tools": ["fetch"], "stamp": stamp_in(stale.content)}).status_code == 302
    assert own_tools(coder) == ["fetch"]


def test_a_preview_over_htmx_saves_nothing_even_with_a_good_stamp(
    as_alice: Client, coder: Agent, form: dict[str, Any]
) -> None:
    change = form | {"tools": ["fetch"]}
    stamp = stamp_in(as_alice.post(AGENT, change).content)

    shown = as_alice.post(AGENT, change | {"preview": "1", "stamp": stamp}, headers=HTMX)
    words = as_alice.post(AGENT, form | {"preview": "1"}, headers=HTMX)

    assert (shown.status_code, own_tools(coder)) == (200, ["note"])
    assert "1 member gains fetch" in text_of(shown.content)
    assert "No member’s tools change." in text_of(words.content)


def test_an_invalid_form_shows_errors_in_place_of_a_preview(as_alice: Client, form: dict[str, Any]) -> None:
    page = as_alice.post(AGENT, form | {"tools": ["missing"]})

    assert page.status_code == 422
    assert text_of(page.content).count("There is no tool missing.") == 2
    assert "What will change" not in text_of(page.content)


def test_a_toolkit_is_shown_first_and_saved_with_the_stamp(as_alice: Client, coder: Agent) -> None:
    change = KIT | {"tools": ["docker"], "timeout-docker": "60", "description": "Infra."}

    shown = as_alice.post(TOOLKIT, change)

    page = text_of(shown.content)
    assert (shown.status_code, len(content_of(ops()).tools)) == (200, 2)
    assert "1 member loses deploy" in page
    assert "docker as the tool says → timeout 1 min" in page
    assert as_alice.post(TOOLKIT, change | {"stamp": stamp_in(shown.content)}).status_code == 302
    assert content_of(ops()) == bundle(ToolkitLine("docker", 60.0), description="Infra.")


def test_words_of_a_toolkit_and_one_that_no_agent_may_load_are_saved_at_once(as_alice: Client, coder: Agent) -> None:
    words = as_alice.post(TOOLKIT, KIT | {"description": "Infra."})
    coder.agent_toolkits.all().delete()
    tools = as_alice.post(TOOLKIT, KIT | {"tools": ["docker"]})

    assert (words.status_code, tools.status_code) == (302, 302)
    assert content_of(ops()) == bundle("docker")


def test_a_toolkit_that_was_changed_meanwhile_is_not_saved_with_an_old_stamp(
    as_alice: Client, coder: Agent, alice: Membership
) -> None:
    stamp = stamp_in(as_alice.post(TOOLKIT, KIT | {"tools": ["docker"]}).content)
    update_toolkit(ops(), bundle("docker", "deploy", "fetch"), actor=alice)

    stale = as_alice.post(TOOLKIT, KIT | {"tools": ["docker"], "stamp": stamp})

    assert stale.status_code == 409
    assert len(content_of(ops()).tools) == 3


def just_before(monkeypatch: pytest.MonkeyPatch, write: str, change: Callable[[], object]) -> None:
    """Somebody else's change comes between the page's own look and its write."""
    views = agent_views if write == "update_agent" else toolkit_views
    real = getattr(views, write)

    def late(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(views, write, real)
        change()
        return real(*args, **more)

    monkeypatch.setattr(views, write, late)


def test_an_agent_that_is_changed_between_the_look_and_the_write_is_shown_again(
    as_alice: Client, coder: Agent, form: dict[str, Any], alice: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp = stamp_in(as_alice.post(AGENT, form | {"tools": ["fetch"]}).content)
    theirs = like(coder, tools=("note", "deploy"))
    just_before(monkeypatch, "update_agent", lambda: update_agent(coder, theirs, actor=alice))

    stale = as_alice.post(AGENT, form | {"tools": ["fetch"], "stamp": stamp})

    assert (stale.status_code, own_tools(coder)) == (409, ["note", "deploy"])
    assert "nothing is saved yet" in text_of(stale.content)
    assert as_alice.post(AGENT, form | {"tools": ["fetch"], "stamp": stamp_in(stale.content)}).status_code == 302


def test_a_toolkit_that_is_changed_between_the_look_and_the_write_is_shown_again(
    as_alice: Client, coder: Agent, alice: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp = stamp_in(as_alice.post(TOOLKIT, KIT | {"tools": ["docker"]}).content)
    theirs = bundle("docker", "deploy", "fetch")
    just_before(monkeypatch, "update_toolkit", lambda: update_toolkit(ops(), theirs, actor=alice))

    stale = as_alice.post(TOOLKIT, KIT | {"tools": ["docker"], "stamp": stamp})

    assert (stale.status_code, content_of(ops())) == (409, theirs)
    assert as_alice.post(TOOLKIT, KIT | {"tools": ["docker"], "stamp": stamp_in(stale.content)}).status_code == 302
