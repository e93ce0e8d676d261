"""The selection, from memory and from the database, has the verdicts of asking tool by tool and row by row."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from capabilities.choosing.pipeline.permissions import permission_for
from capabilities.choosing.pipeline.stages import Verdict
from capabilities.models import Agent, AgentTool, AgentToolkit, Category, Effect, RoleMode, RoleRule, Tool, ToolkitTool
from sessions.models import ChatSession, LoadedToolkit, Turn
from sessions.selection.queries import selection_preview
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_member,
    make_organisation,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.sessions.run_turns import running, selected_for
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

LIMIT = 20


def random_session(seed: int) -> ChatSession:
    """40 tools in six categories, two of them core; an agent with some of its own and four toolkits, two of them
    initial and one loaded; a member with a role that lists some."""
    dice = random.Random(seed)
    acme = make_organisation("acme")
    bob = make_member(acme, "bob")
    categories = [make_category(acme, f"category_{n}", is_core=n < 2) for n in range(6)]
    tools = [make_tool(acme, f"tool_{n:02}", category=dice.choice(categories)) for n in range(40)]
    with organisation_scope(acme):
        Tool.objects.filter(pk__in=[each.pk for each in dice.sample(tools, 5)]).update(is_enabled=False)
        agent = make_agent(acme)
        agent.model.tool_limit = LIMIT
        agent.model.save()
        for place, each in enumerate(dice.sample(tools, 6), start=1):
            give_tool(agent, each, position=place)
        kits = [
            make_toolkit(acme, f"kit_{n}", *dice.sample(tools, 4), categories=(dice.choice(categories[2:]),))
            for n in range(4)
        ]
        for n, kit in enumerate(kits):
            allow_toolkit(agent, kit, initial=n < 2)
        role = make_role(acme, bob, RoleMode.LISTED, "listed")
        for each in dice.sample(tools, 12):
            effect = dice.choice([Effect.ALLOW, Effect.DENY])
            RoleRule.objects.create(organisation=acme, role=role, tool=each, effect=effect)
        for kind in dice.sample(categories, 3):
            RoleRule.objects.create(organisation=acme, role=role, category=kind)
        session = make_session(bob, agent)
        LoadedToolkit.objects.create(
            organisation=acme, session=session, agent=agent, toolkit=kits[3], name=kits[3].name, source="person"
        )
    return session


def brought(agent: Agent) -> Iterator[tuple[Tool, str]]:
    """Each way in which a tool comes to the agent, side by side."""
    for line in AgentTool.objects.filter(agent=agent).order_by("position"):
        yield line.tool, "agent"
    for category in Category.objects.filter(is_core=True).order_by("name"):
        for tool in Tool.objects.filter(category=category).order_by("name"):
            yield tool, f"core category {category.name}"
    loaded = list(AgentToolkit.objects.filter(agent=agent, toolkit__name="kit_3"))
    initial = AgentToolkit.objects.filter(agent=agent, is_initial=True).order_by("position")
    for kit in [each.toolkit for each in (*loaded, *initial)]:
        listed = [each.tool for each in ToolkitTool.objects.filter(toolkit=kit).order_by("position")]
        for tool in listed:
            yield tool, f"toolkit {kit.name}"
        for tool in Tool.objects.filter(category__toolkit_categories__toolkit=kit).order_by("category__name", "name"):
            if tool not in listed:
                yield tool, f"toolkit {kit.name}"


def tool_by_tool(session: ChatSession) -> tuple[list[str], list[Verdict]]:
    """Names that are sent, and all verdicts."""
    found: dict[str, tuple[Tool, str]] = {}
    for tool, source in brought(session.agent):
        found.setdefault(tool.name, (tool, source))
    verdicts = [Verdict(name, "gather", True, source) for name, (_, source) in found.items()]
    verdicts += [
        Verdict(name, "enabled", False, "switched off in the catalogue")
        for name, (tool, _) in found.items()
        if not tool.is_enabled
    ]
    there = {name: pair for name, pair in found.items() if pair[0].is_enabled}
    answers = {name: permission_for(session.membership_id, tool) for name, (tool, _) in there.items()}
    verdicts += [Verdict(name, each.stage, each.allowed, each.reason) for name, each in answers.items()]
    kept = [name for name in there if answers[name].allowed]
    rank = {name: ("agent", "toolkit", "core").index(found[name][1].split()[0]) for name in kept}
    over = sorted(kept, key=rank.__getitem__)[LIMIT:]
    verdicts += [Verdict(name, "limit", False, f"over the limit of {LIMIT} tools") for name in kept if name in over]
    return [name for name in kept if name not in over], verdicts


@pytest.mark.parametrize("seed", range(6))
def test_the_selection_has_the_verdicts_of_asking_tool_by_tool(seed: int) -> None:
    session = random_session(seed)
    with organisation_scope(session.organisation_id):
        session = ChatSession.objects.select_related("agent__model__provider").get(pk=session.pk)
        row = Turn(organisation_id=session.organisation_id, session=session, agent=session.agent, seq=1)
        row.membership_id = session.membership_id
        turn = running(row)
        stored = selected_for(turn)
        turn.registry_version = Organisation.objects.get(pk=session.organisation_id).registry_version

        found = [stored, selected_for(turn), selected_for(turn), selection_preview(session)]

        names, verdicts = tool_by_tool(session)
        assert [tool.name for tool in stored.tools] == names
        assert list(stored.verdicts) == verdicts
        assert all(each == stored for each in found)
        assert {each.stage for each in verdicts} >= {"gather", "enabled", "role"}
