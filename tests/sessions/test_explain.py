"""Why a tool is, or is not, in what an agent sends: the verdict of every stage, and the changes that would matter."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from django.db import transaction

from capabilities.models import (
    Agent,
    AgentScope,
    AgentTool,
    AgentToolkit,
    Effect,
    Grant,
    LanguageModel,
    LoadingMode,
    Role,
    RoleMode,
    RoleRule,
    ServiceSetting,
    Tool,
)
from sessions import loading
from sessions.explain import ALONE, Asked, Reasons
from sessions.loading import By, Place
from sessions.models import ChatSession, LoadedToolkit, LoadSource
from sessions.selection import STAGES, permitted, selection_preview, within_limit
from sessions.single_changes import Change
from sessions.why import Explanation, Subject, explain
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from toolhub.tenants.models import Membership
from toolhub.tenants.scope import organisation_scope

pytestmark = pytest.mark.django_db

SERVICES = ("", "", "", "", "home_assistant", "searxng")
TOOLS = [f"tool_{number}" for number in range(9)]


def fresh_session(session: ChatSession) -> ChatSession:
    return ChatSession.objects.select_related("agent__model__provider", "membership__user").get(pk=session.pk)


def explained(session: ChatSession, **asked: Any) -> Explanation:
    session = fresh_session(session)
    return explain(Subject(session.membership, session.agent, session), Asked(**asked))


def test_every_stage_of_the_selection_has_a_column() -> None:
    assert (*ALONE.values(), permitted, within_limit) == STAGES


# -- Random worlds ----------------------------------------------------------------------------------------------------


def random_world(bob: Membership, dice: random.Random) -> ChatSession:
    acme = bob.organisation
    own = {"organisation": acme}
    categories = [make_category(acme, name, is_core=name == "core") for name in ("core", "files", "web")]
    make_meta_tools(acme)
    tools = []
    for name in TOOLS:
        tool = make_tool(acme, name, category=dice.choice(categories))
        Tool.objects.filter(pk=tool.pk).update(is_enabled=dice.random() < 0.8, service=dice.choice(SERVICES))
        tools.append(tool)
    for service in ("home_assistant", "searxng"):
        ServiceSetting.objects.create(**own, service=service, is_complete=dice.random() < 0.7)
    agent = make_agent(
        acme,
        starts_with_core=dice.random() < 0.5,
        loading_mode=dice.choice([LoadingMode.NEXT_REQUEST, LoadingMode.SAME_RUN, LoadingMode.CONSTANT]),
        scope=dice.choice([AgentScope.ORGANISATION, AgentScope.MEMBER]),
    )
    LanguageModel.objects.update(tool_limit=dice.choice([2, 5, 7, 128]))
    for place, tool in enumerate(dice.sample(tools, 3), start=1):
        give_tool(agent, tool, position=place, is_deferred=dice.random() < 0.5)
    session = make_session(bob, agent, tool_order=random_order(agent, tools, dice))
    if dice.random() < 0.2:
        ChatSession.objects.update(delegated_tools=[tool.pk for tool in dice.sample(tools, 5)])
    for number in range(4):
        held = dice.sample(tools, 3)
        said = {held[0].name: {"timeout": 5.0}} if dice.random() < 0.3 else None
        whole = (dice.choice(categories),) if dice.random() < 0.3 else ()
        toolkit = make_toolkit(acme, f"kit_{number}", *held, categories=whole, overrides=said)
        if number:
            allow_toolkit(agent, toolkit, initial=dice.random() < 0.3)
            if dice.random() < 0.5:
                LoadedToolkit.objects.create(
                    **own, session=session, agent=agent, toolkit=toolkit, name=toolkit.name, source=LoadSource.PERSON
                )
    random_rights(bob, tools, dice)
    return session


def random_order(agent: Agent, tools: list[Tool], dice: random.Random) -> dict[str, list[int]]:
    return {str(agent.pk): [tool.pk for tool in dice.sample(tools, 4)]} if dice.random() < 0.4 else {}


def random_rights(bob: Membership, tools: list[Tool], dice: random.Random) -> None:
    own = {"organisation": bob.organisation}
    for mode in dice.sample([RoleMode.ALL, RoleMode.LISTED, RoleMode.NONE], dice.randint(0, 3)):
        role = make_role(bob.organisation, bob, mode, mode.value)
        for tool in dice.sample(tools, 5):
            effect = dice.choice([Effect.ALLOW, Effect.ALLOW, Effect.DENY])
            RoleRule.objects.create(**own, role=role, tool=tool, effect=effect)
    for _ in range(dice.randint(0, 4)):
        tool = dice.choice(tools)
        thing: dict[str, Any] = {"tool": tool} if dice.random() < 0.7 else {"category": tool.category}
        Grant.objects.create(**own, membership=bob, effect=dice.choice(list(Effect)), **thing)


def make_real(change: Change, tool: Reasons, session: ChatSession) -> None:
    """Do what the change says."""
    session, own = fresh_session(session), {"organisation": session.organisation}
    agent, member, spec = session.agent, session.membership, tool.spec
    kit = re.search(r"toolkit (\w+)", change.text)
    name = kit.group(1) if kit else spec.name
    place, by = Place(session, agent), By(member)
    match change.code:
        case "switch_on":
            Tool.objects.filter(pk=spec.tool_id).update(is_enabled=True)
        case "set_up":
            ServiceSetting.objects.filter(service=change.args[0]).update(is_complete=True)
        case "widen_scope":
            Agent.objects.filter(slug=change.args[0]).update(scope=AgentScope.ORGANISATION)
        case "load_toolkit" | "load_tool":
            assert loading.load(place, name, by=by).status == "loaded"
        case "unload":
            found = re.search(r"loaded tool (\w+)", change.text)
            assert loading.unload(place, found.group(1) if found else name, by=by).status == "unloaded"
        case "make_initial":
            AgentToolkit.objects.filter(agent=agent, toolkit__name=name).update(is_initial=True)
        case "send_at_once":
            AgentTool.objects.filter(agent=agent, tool=spec.tool_id).update(is_deferred=False)
        case "add_tool":
            AgentTool.objects.create(**own, agent=agent, tool_id=spec.tool_id, position=99)
        case "revoke_grant":
            what = {"category": spec.category_id} if "category" in change.text else {"tool": spec.tool_id}
            (grant,) = Grant.objects.filter(membership=member, effect=Effect.DENY, **what)
            grant.delete()
        case "give_grant":
            Grant.objects.create(**own, membership=member, tool_id=spec.tool_id, effect=Effect.ALLOW)
        case "allow_in_role":
            RoleRule.objects.update_or_create(
                role=Role.objects.get(slug=change.args[0]),
                tool_id=spec.tool_id,
                defaults={**own, "effect": Effect.ALLOW},
            )
        case "raise_limit":
            LanguageModel.objects.filter(pk=change.args[1]).update(tool_limit=int(change.text.split()[-4]))
        case _:
            raise AssertionError(change)


def sent_now(session: ChatSession) -> set[str]:
    return {tool.name for tool in selection_preview(fresh_session(session)).tools}


#: Every change that the random worlds below have told at least once.
CODES = {
    "switch_on",
    "set_up",
    "widen_scope",
    "load_toolkit",
    "load_tool",
    "unload",
    "make_initial",
    "send_at_once",
    "add_tool",
    "revoke_grant",
    "give_grant",
    "allow_in_role",
    "raise_limit",
}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_told_is_so_in_any_world(bob: Membership, seed: int) -> None:
    with organisation_scope(bob.organisation):
        session = random_world(bob, random.Random(seed))
        found = explained(session)
        selection = selection_preview(fresh_session(session))

        assert {each.reasons.spec.name for each in found.tools if each.reasons.is_sent} == sent_now(session)
        assert (found.sent, found.tokens) == (len(selection.tools), selection.tokens)
        first_no = {each.tool: each for each in reversed(selection.verdicts) if not each.kept}
        for each in found.tools:
            tool = each.reasons
            assert bool(tool.stops) is not tool.is_sent, tool
            if tool.spec.name in first_no and tool.first_stop is not None:
                said = first_no[tool.spec.name]
                assert (tool.first_stop.stage.replace("loaded", "gather"), tool.first_stop.reason) == (
                    said.stage,
                    said.reason,
                )
            for change in each.changes:
                assert change.code in CODES
                with transaction.atomic():
                    make_real(change, tool, session)
                    assert tool.spec.name in sent_now(session), (change, tool)
                    transaction.set_rollback(True)


def test_the_random_worlds_tell_of_every_kind_of_change(bob: Membership) -> None:
    told: set[str] = set()
    for seed in range(40):
        with organisation_scope(bob.organisation), transaction.atomic():
            session = random_world(bob, random.Random(seed))
            told |= {change.code for each in explained(session).tools for change in each.changes}
            transaction.set_rollback(True)

    assert told == CODES
