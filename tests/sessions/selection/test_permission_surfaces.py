"""Every surface that says whether a member may use a tool says the same: what is asked when a call runs."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from capabilities.access.members.queries import UsableTool, members_who_may_use, usable_tools
from capabilities.access.requests.writes import RequestContent, ask_for_grant
from capabilities.choosing.pipeline.permissions import may_use, members_permitted
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.common.refused import ChangeRefused
from capabilities.contract.loading import LOADING_TOOLS, META_CATEGORY, META_TOOLS
from capabilities.models import Category, Effect, Grant, Role, RoleMembership, RoleRule, Tool
from sessions.insight.explain.reasons import Asked
from sessions.insight.explain.why import Subject, explain
from sessions.loop.tools.execution import refusal_to
from sessions.selection.active_tools import get_active_tool_permissions
from sessions.selection.queries import selection_preview
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_member,
    make_meta_tools,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right

pytestmark = [pytest.mark.long, pytest.mark.django_db]


def random_members(acme: Organisation, dice: random.Random) -> list[Membership]:
    """With roles and grants by the dice, on the tools that load others more often than on the rest."""
    own = {"organisation": acme}
    tools, categories = list(Tool.objects.all()), list(Category.objects.all())
    roles = []
    for number in range(5):
        mode = dice.choice(["listed", "listed", "listed", "all", "none"])
        role = Role.objects.create(**own, slug=f"r{number}", name=f"R{number}", mode=mode)
        for tool in dice.sample(tools, 3):
            RoleRule.objects.create(**own, role=role, tool=tool, effect=dice.choice(Effect.values))
        for category in dice.sample(categories, dice.randrange(3)):
            RoleRule.objects.create(**own, role=role, category=category, effect=dice.choice(Effect.values))
        roles.append(role)
    members = []
    for number in range(5):
        member = make_member(acme, f"m{number}", dice.choice([Access.MEMBER, Access.MEMBER, Access.OPERATOR]))
        for role in dice.sample(roles, dice.randrange(4)):
            RoleMembership.objects.create(**own, role=role, membership=member)
        for _ in range(dice.randrange(3)):
            named = {"tool": dice.choice(tools)} if dice.random() < 0.7 else {"category": dice.choice(categories)}
            Grant.objects.create(**own, membership=member, effect=dice.choice(Effect.values), **named)
        if dice.random() < 0.4:
            AdminRight.objects.create(
                **own, membership=member, right=Right.LOAD_CATEGORIES, category=dice.choice(["", "web"])
            )
        members.append(member)
    return members


@pytest.mark.parametrize("seed", [3, 9, 11])
def test_all_surfaces_agree_with_what_is_asked_when_a_call_runs(in_acme: Organisation, seed: int) -> None:
    dice = random.Random(seed)
    for name in ("web", "file"):
        category = make_category(in_acme, name, is_core=False)
        for each in "abc":
            make_tool(in_acme, f"{name}_{each}", category=category)
    make_meta_tools(in_acme)
    tools = list(Tool.objects.select_related("category").order_by("name"))
    kit = make_toolkit(in_acme, "kit", Tool.objects.get(name="web_c"))
    agent = make_agent(in_acme, starts_with_core=True)
    for tool in tools:
        if tool.name not in META_TOOLS and tool.name != "web_c":
            give_tool(agent, tool)
    allow_toolkit(agent, kit)

    for member in random_members(in_acme, dice):
        specs = {tool.name: current_specs([tool.current_version_id or 0])[0] for tool in tools}
        may = {name: may_use(member, spec).allowed for name, spec in specs.items()}
        session = make_session(member, agent)

        told: dict[str, dict[str, bool]] = {
            "execution": {name: refusal_to(member.pk, spec) is None for name, spec in specs.items()},
            "tool page": {
                tool.name: member in [each.member for each in members_who_may_use(tool).rows] for tool in tools
            },
            "queryset": {tool.name: member in members_permitted(tool).members for tool in tools},
            "member page": {each.name: each.answer.allowed for each in every_tool_of(member)},
            "asking": {tool.name: not may_ask(member, tool) for tool in tools},
            "registry": dict.fromkeys(specs, False) | dict.fromkeys(in_registry(member), True),
            "explain": explained(session),
        }
        for surface, answers in told.items():
            assert answers == may, (surface, str(member))
        sent = [tool.name for tool in selection_preview(session).tools]
        active = get_active_tool_permissions(session)
        assert sent == list(active)
        assert all(may[name] and active[name]() for name in sent)
        brought = {tool.name for tool in tools if tool.name not in META_TOOLS and tool.name != "web_c"}
        assert brought & set(sent) == {name for name in brought if may[name]}


def every_tool_of(member: Membership) -> Sequence[UsableTool]:
    return usable_tools(member, only_allowed=False).page.rows


def may_ask(member: Membership, tool: Tool) -> bool:
    """Whether the member is let ask for it: who may use it already is not."""
    try:
        ask_for_grant(RequestContent(tool=tool.name, reason="I need it."), member=member)
    except ChangeRefused:
        return False
    return True


def in_registry(member: Membership) -> list[str]:
    reply = Rest(member).get("registry")
    return [each["name"] for each in reply.json["tools"]]


def explained(session: Any) -> dict[str, bool]:
    """What the stages of permission say of each tool."""
    page = explain(Subject(session.membership, session.agent, session), Asked(limit=100))
    return {
        each.reasons.spec.name: not any(cell.stops for cell in each.reasons.cells if cell.stage in ("role", "grants"))
        for each in page.tools
    }


# -- A role's deny of a tool that loads others ------------------------------------------------------------------------


def make_listed(acme: Organisation, slug: str, member: Membership, **rules: str) -> Role:
    """A role of the mode `listed` with rules on tools, or with `category_` before, on categories."""
    role = Role.objects.create(organisation=acme, slug=slug, name=slug, mode="listed")
    RoleMembership.objects.create(organisation=acme, role=role, membership=member)
    for name, effect in rules.items():
        if name.startswith("category_"):
            named: dict[str, Any] = {"category": Category.objects.get(name=name.removeprefix("category_"))}
        else:
            named = {"tool": Tool.objects.get(name=name)}
        RoleRule.objects.create(organisation=acme, role=role, effect=effect, **named)
    return role


def answer(member: Membership, name: str) -> tuple[bool, str]:
    version = Tool.objects.get(name=name).current_version_id
    found = may_use(member, current_specs([version or 0])[0])
    return found.allowed, found.reason


@pytest.fixture
def meta(in_acme: Organisation) -> None:
    make_tool(in_acme, "fetch", category=make_category(in_acme, "web"))
    make_meta_tools(in_acme)


@pytest.mark.usefixtures("meta")
def test_a_role_that_denies_load_tools_is_enough_while_no_other_opens_it(acme: Organisation, bob: Membership) -> None:
    make_listed(acme, "web", bob, fetch="allow")
    allowed, why = answer(bob, "load_tools")
    assert (allowed, "gives nothing" in why) == (True, True)

    make_listed(acme, "no-loading", bob, load_tools="deny")

    assert answer(bob, "load_tools") == (False, "role no-loading denies it")
    assert answer(bob, "search_tools")[0]


@pytest.mark.usefixtures("meta")
def test_a_role_that_denies_the_category_dynamic_denies_all_of_it(acme: Organisation, bob: Membership) -> None:
    make_listed(acme, "web", bob, fetch="allow", **{f"category_{META_CATEGORY}": "deny"}, search_tools="allow")

    assert {name for name in LOADING_TOOLS if answer(bob, name)[0]} == {"search_tools"}


@pytest.mark.usefixtures("meta")
def test_another_role_that_opens_it_is_enough_as_for_any_tool(acme: Organisation, bob: Membership) -> None:
    make_listed(acme, "no-loading", bob, load_tools="deny")
    make_listed(acme, "loading", bob, load_tools="allow")

    assert answer(bob, "load_tools") == (True, "role loading allows it")


@pytest.mark.usefixtures("meta")
def test_who_may_use_nothing_needs_nothing_that_loads(acme: Organisation, bob: Membership) -> None:
    assert answer(bob, "load_tools") == (False, "this member has no role")


def test_nobody_asks_the_rules_of_rights_but_the_one_function() -> None:
    """`Rights.decide` and `RoleRules.opens` do not know the admin right that one meta-tool needs."""
    found = []
    for folder in ("capabilities", "sessions", "toolhub"):
        for path in Path(folder).rglob("*.py"):
            if str(path) in ("capabilities/choosing/pipeline/permissions.py", "capabilities/contract/permission.py"):
                continue
            found += [str(path) for _ in re.finditer(r"rights\w*(\(.*\))?\.decide\(", path.read_text())]
    assert found == []
