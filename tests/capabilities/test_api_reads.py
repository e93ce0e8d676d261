"""What the REST routes of the catalogue and of who may use it tell."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from capabilities.catalogue.tools.writes import Definition, set_tool_enabled, update_tool
from capabilities.contract.wire import tool_wire
from capabilities.models import (
    AgentTool,
    Grant,
    LanguageModel,
    Provider,
    Role,
    RoleMembership,
    RoleRule,
    ToolVersion,
)
from tests.cast import make_agent, make_category, make_member, make_role, make_tool
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}}


@pytest.fixture
def rest(alice: Membership, in_acme: Organisation) -> Rest:
    """Alice's; the test's own writes are Acme's."""
    return Rest(alice)


def names(reply: Any) -> list[str]:
    return [row.get("name") or row["slug"] for row in reply.json["results"]]


def without_order(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each row the fields that are expected of it; what else it tells is not this test's."""
    return [{name: row[name] for name in wanted} for row, wanted in zip(rows, expected, strict=True)]


def test_categories_are_told_by_name(rest: Rest, acme: Organisation) -> None:
    make_category(acme, "web", title="Web", description="Out there.", keywords=["url"], is_core=False)
    make_category(acme, "file")

    rows = rest.get("categories").json["results"]

    expected = [
        {"name": "file", "title": "File", "description": "", "keywords": [], "is_core": True},
        {"name": "web", "title": "Web", "description": "Out there.", "keywords": ["url"], "is_core": False},
    ]
    assert without_order(rows, expected) == expected


def test_a_tool_is_told_at_its_current_version(rest: Rest, alice: Membership, acme: Organisation) -> None:
    tool = make_tool(acme, "look_up", description="First.", parameters=PARAMETERS, effect="read")
    update_tool(tool, Definition("look_up", "Second.", PARAMETERS, effect="write"), actor=alice)

    reply = rest.get("tools/look_up")

    expected = {
        "name": "look_up",
        "category": "utility",
        "kind": "builtin",
        "is_enabled": True,
        "description": "Second.",
        "parameters": PARAMETERS,
        "effect": "write",
        "version": 2,
    }
    assert without_order([reply.json], [expected]) == [expected]
    assert rest.get("tools").json == {"results": [reply.json], "next": None}


def test_the_versions_of_a_tool_are_told_newest_first(rest: Rest, alice: Membership, acme: Organisation) -> None:
    tool = make_tool(acme, "look_up", description="First.", parameters=PARAMETERS)
    update_tool(tool, Definition("look_up", "Second.", PARAMETERS), actor=alice)

    rows = rest.get("tools/look_up/versions").json["results"]

    assert [(row["number"], row["description"]) for row in rows] == [(2, "Second."), (1, "First.")]
    wire = tool_wire("look_up", "Second.", PARAMETERS)
    assert rows[0]["sha256"] == hashlib.sha256(wire.encode()).hexdigest()
    assert rows[0]["tokens"] == ToolVersion.objects.get(number=2).tokens > 0


def test_tools_can_be_asked_for_by_category(rest: Rest, acme: Organisation) -> None:
    make_tool(acme, "a", category=make_category(acme, "one"))
    make_tool(acme, "b", category=make_category(acme, "two"))

    assert names(rest.get("tools", category="two")) == ["b"]


@pytest.mark.parametrize("category", ["", "nothing", "TWO", "x" * 5000, "a\x00", "\x00", "' OR 1=1", "two "])
def test_a_category_that_is_not_there_is_unknown(rest: Rest, acme: Organisation, category: str) -> None:
    make_tool(acme, "b", category=make_category(acme, "two"))

    assert rest.get("tools", category=category).error == (400, "unknown", "category")


@pytest.mark.parametrize("name", ["nothing", "LOOK_UP", "look_up%00", "x" * 5000, "look up", "..", "%F0%9F%94%91"])
def test_a_tool_that_is_not_there_is_missing(rest: Rest, acme: Organisation, name: str) -> None:
    make_tool(acme, "look_up")

    assert rest.get(f"tools/{name}").error == (404, "not_found", None)
    assert rest.get(f"tools/{name}/versions").error == (404, "not_found", None)


def test_agents_are_told_with_their_tools_and_never_with_their_prompt(rest: Rest, acme: Organisation) -> None:
    agent = make_agent(acme, description="Helps.", prompt="secret prompt", max_rounds=3)
    AgentTool.objects.create(organisation=acme, agent=agent, tool=make_tool(acme, "calculator"))

    expected = [
        {
            "slug": "starter",
            "name": "Starter",
            "description": "Helps.",
            "model": "scripted",
            "provider": "scripted",
            "starts_with_core": True,
            "tools": ["calculator"],
            "max_rounds": 3,
            "is_enabled": True,
        }
    ]
    assert without_order(rest.get("agents").json["results"], expected) == expected


def test_the_key_of_a_provider_is_masked(rest: Rest, acme: Organisation) -> None:
    secret = "sk-abcdefghijklmnop-9876"
    own = {"organisation": acme, "slug": "openai", "name": "OpenAI"}
    Provider.objects.create(**own, base_url="https://x.test/v1", api_key=secret)

    reply = rest.get("providers")

    expected = [
        {
            "slug": "openai",
            "name": "OpenAI",
            "base_url": "https://x.test/v1",
            "api_key": reply.json["results"][0]["api_key"],
            "tool_limit": 128,
            "is_enabled": True,
        }
    ]
    assert without_order(reply.json["results"], expected) == expected
    assert reply.json["results"][0]["api_key"].endswith("9876")
    assert "abcdef" not in reply.text


def test_models_are_told_with_their_limits(rest: Rest, acme: Organisation) -> None:
    provider = Provider.objects.create(organisation=acme, slug="p", name="P")
    model = LanguageModel.objects.create(organisation=acme, provider=provider, name="m", context_window=8000)

    expected = [
        {
            "id": str(model.public_id),
            "name": "m",
            "provider": "p",
            "context_window": 8000,
            "tool_limit": None,
            "max_rounds": None,
        }
    ]
    assert without_order(rest.get("models").json["results"], expected) == expected


def test_roles_are_told_with_their_rules(rest: Rest, acme: Organisation) -> None:
    role = Role.objects.create(organisation=acme, slug="r", name="R", description="D", mode="listed")
    RoleRule.objects.create(organisation=acme, role=role, category=make_category(acme, "web"))
    RoleRule.objects.create(organisation=acme, role=role, tool=make_tool(acme, "calculator"), effect="deny")

    expected = [
        {
            "slug": "r",
            "name": "R",
            "description": "D",
            "mode": "listed",
            "rules": [
                {"category": "web", "tool": None, "effect": "allow"},
                {"category": None, "tool": "calculator", "effect": "deny"},
            ],
        }
    ]
    assert without_order(rest.get("roles").json["results"], expected) == expected


def test_grants_are_told_with_what_they_name(rest: Rest, bob: Membership, acme: Organisation) -> None:
    tool = make_tool(acme, "calculator")
    grant = Grant.objects.create(organisation=acme, membership=bob, tool=tool, effect="deny", reason="Because.")

    expected = [
        {
            "id": str(grant.public_id),
            "member": str(bob.public_id),
            "category": None,
            "tool": "calculator",
            "effect": "deny",
            "reason": "Because.",
            "expires_at": None,
        }
    ]
    assert without_order(rest.get("grants").json["results"], expected) == expected


@pytest.mark.parametrize(
    ("path", "right"),
    [("providers", Right.PROVIDERS), ("models", Right.PROVIDERS), ("roles", Right.ROLES), ("grants", Right.ROLES)],
)
def test_what_needs_a_right_is_told_to_who_has_it(acme: Organisation, bob: Membership, path: str, right: Right) -> None:
    rest = Rest(bob)
    assert rest.get(path).error == (403, "forbidden", None)

    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=bob, right=right)

    assert rest.get(path).status == 200


def test_a_viewer_reads_the_catalogue(acme: Organisation) -> None:
    make_tool(acme, "calculator")
    rest = Rest(make_member(acme, "vera", Access.VIEWER))

    assert names(rest.get("tools")) == ["calculator"]
    assert [rest.get(path).status for path in ("categories", "agents", "registry", "sessions")] == [200] * 4


# -- The registry -----------------------------------------------------------------------------------------------------


def allowed(rest: Rest) -> list[str]:
    return [tool["name"] for tool in rest.get("registry").json["tools"]]


def test_zk_43_the_registry_lists_only_tools_that_the_member_may_use(
    in_acme: Organisation, alice: Membership, bob: Membership
) -> None:
    web = make_category(in_acme, "web")
    for name in ("calculator", "uuid"):
        make_tool(in_acme, name)
    make_tool(in_acme, "web_read", category=web)
    rest = Rest(bob)
    assert allowed(rest) == []

    role = make_role(in_acme, bob, slug="listed")
    Role.objects.filter(pk=role.pk).update(mode="listed")
    RoleRule.objects.create(organisation=in_acme, role=role, category=web)
    assert allowed(rest) == ["web_read"]

    make_role(in_acme, bob, slug="all")
    assert allowed(rest) == ["calculator", "uuid", "web_read"]

    Grant.objects.create(organisation=in_acme, membership=bob, category=web, effect="deny")
    assert allowed(rest) == ["calculator", "uuid"]
    assert allowed(Rest(alice)) == []  # access levels administer; they open no tool

    RoleMembership.objects.filter(membership=bob).delete()
    assert allowed(rest) == []


def test_zk_43_a_registry_entry_says_what_the_tool_is_and_why_it_is_allowed(
    rest: Rest, alice: Membership, acme: Organisation
) -> None:
    make_tool(acme, "look_up", description="Looks up.", parameters=PARAMETERS)
    make_role(acme, alice)

    tool = rest.get("registry").json["tools"][0]

    assert {key: tool[key] for key in ("name", "category", "description", "parameters")} == {
        "name": "look_up",
        "category": "utility",
        "description": "Looks up.",
        "parameters": PARAMETERS,
    }
    assert "all" in tool["reason"]


def test_zk_42_the_registry_version_rises_with_each_change(rest: Rest, alice: Membership, acme: Organisation) -> None:
    tool = make_tool(acme, "calculator")
    make_role(acme, alice)
    first = rest.get("registry").json["version"]

    set_tool_enabled(tool, False, actor=alice)
    assert (rest.get("registry").json["version"], allowed(rest)) == (first + 1, [])
    set_tool_enabled(tool, False, actor=alice)
    assert rest.get("registry").json["version"] == first + 1
    set_tool_enabled(tool, True, actor=alice)
    assert (rest.get("registry").json["version"], allowed(rest)) == (first + 2, ["calculator"])
