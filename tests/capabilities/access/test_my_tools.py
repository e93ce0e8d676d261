"""The registry as one member sees it (ZK-43)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from capabilities.access.members import registry
from capabilities.contract.wire import sha256_hex, tool_wire
from capabilities.models import Category, Effect, Grant, Tool, ToolVersion
from tests.cast import make_category, make_meta_tools, make_role, make_tool
from tests.rest import Rest
from toolhub.tenants.models import AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def names(page: Any) -> list[str]:
    return [tool["name"] for tool in page["tools"]]


def test_zk_43_a_tool_that_needs_set_up_is_listed_and_not_usable(in_acme: Organisation, bob: Membership) -> None:
    make_role(in_acme, bob)
    make_tool(in_acme, "ha_call", category=make_category(in_acme, "ha"))
    make_tool(in_acme, "uuid")
    Tool.objects.filter(name="ha_call").update(service="home_assistant")

    tools = Rest(bob).get("registry").json["tools"]

    assert [(tool["name"], tool["usable"], tool["needs_set_up"]) for tool in tools] == [
        ("ha_call", False, "Home Assistant"),
        ("uuid", True, ""),
    ]
    assert {tool["allowed"] for tool in tools} == {True}
    assert [tool["categories"] for tool in tools] == [["ha"], ["utility"]]


def test_zk_43_load_tool_category_is_for_those_who_may_load_categories(in_acme: Organisation, bob: Membership) -> None:
    make_role(in_acme, bob)
    make_meta_tools(in_acme)
    rest = Rest(bob)
    assert names(rest.get("registry").json) == [
        "call_tool",
        "list_toolkits",
        "load_tools",
        "search_tools",
        "unload_tools",
    ]

    AdminRight.objects.create(organisation=in_acme, membership=bob, right=Right.LOAD_CATEGORIES, category="web")

    assert "load_tool_category" in names(rest.get("registry").json)


def test_zk_43_the_permission_matrix_says_what_opens_each_category(in_acme: Organisation, bob: Membership) -> None:
    web, mail = make_category(in_acme, "web"), make_category(in_acme, "mail")
    for name, category in (("fetch", web), ("post", web), ("send", mail)):
        make_tool(in_acme, name, category=category)
    make_role(in_acme, bob, mode="listed", slug="reader")  # type: ignore[arg-type]
    Grant.objects.create(organisation=in_acme, membership=bob, tool=Tool.objects.get(name="fetch"), effect="allow")
    AdminRight.objects.create(organisation=in_acme, membership=bob, right=Right.ROLES, category="web")

    matrix = Rest(bob).get("registry").json["permission_matrix"]

    assert matrix == {
        "access": "member",
        "rights": [{"right": "roles", "categories": ["web"]}],
        "roles": ["reader"],
        "categories": [
            {"name": "mail", "tools": 1, "allowed": 0, "opened_by": {}},
            {"name": "web", "tools": 2, "allowed": 1, "opened_by": {"allowed by a grant of this member": 1}},
        ],
    }


def test_the_pages_come_one_after_the_other_and_hold_every_tool_once(in_acme: Organisation, bob: Membership) -> None:
    make_role(in_acme, bob)
    for number in range(5):
        make_tool(in_acme, f"tool_{number}")
    Grant.objects.create(organisation=in_acme, membership=bob, tool=Tool.objects.get(name="tool_2"), effect=Effect.DENY)
    rest = Rest(bob)

    first = rest.get("registry", limit="2").json
    second = rest.get("registry", limit="2", cursor=first["next"]).json

    assert (names(first), names(second)) == (["tool_0", "tool_1"], ["tool_3", "tool_4"])
    assert second["next"] is None
    assert (first["permission_matrix"] is None, second["permission_matrix"] is None) == (False, True)
    assert rest.get("registry", cursor="x").error == (400, "invalid", "cursor")
    assert rest.get("registry", page="2").error == (400, "invalid", "page")


def test_a_page_ends_before_its_bytes_are_too_many_and_holds_one_tool_at_least(
    in_acme: Organisation, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_role(in_acme, bob)
    for number in range(4):
        make_tool(in_acme, f"tool_{number}")
    rest = Rest(bob)
    whole = names(rest.get("registry").json)
    size = len(ToolVersion.objects.get(tool__name="tool_0").wire.encode())

    def pages(most: int) -> list[list[str]]:
        monkeypatch.setattr(registry, "MAX_BYTES", most)
        found = [rest.get("registry").json]
        while found[-1]["next"]:
            found.append(rest.get("registry", cursor=found[-1]["next"]).json)
        return [names(page) for page in found]

    assert pages(1) == [[name] for name in whole]
    assert pages(2 * size) == [whole[:2], whole[2:]]


def many_tools(acme: Organisation, count: int) -> None:
    """Of the size of real ones, in 100 categories."""
    parameters = {
        "type": "object",
        "properties": {f"p{each}": {"type": "string", "description": "What it is about."} for each in range(4)},
    }
    with organisation_scope(acme):
        own = {"organisation": acme}
        Category.objects.bulk_create(Category(**own, name=f"c{each:03}", title=f"C {each}") for each in range(100))
        rows = list(Category.objects.order_by("name"))
        Tool.objects.bulk_create(
            Tool(**own, name=f"tool_{each:05}", category=rows[each % len(rows)]) for each in range(count)
        )
        tools = list(Tool.objects.order_by("pk"))
        wires = [tool_wire(tool.name, "Does what it is for. " * 12, parameters) for tool in tools]
        ToolVersion.objects.bulk_create(
            ToolVersion(
                **own,
                tool=tool,
                number=1,
                description="Does what it is for. " * 12,
                parameters=parameters,
                wire=wire,
                sha256=sha256_hex(wire),
                tokens=200,
                effect="read",
            )
            for tool, wire in zip(tools, wires, strict=True)
        )
        for tool, version in zip(tools, ToolVersion.objects.order_by("pk"), strict=True):
            tool.current_version = version
        Tool.objects.bulk_update(tools, ["current_version"], batch_size=500)


@pytest.mark.long
def test_a_page_of_ten_thousand_tools_is_small(acme: Organisation, bob: Membership) -> None:
    many_tools(acme, 10_000)
    make_role(acme, bob)

    page = Rest(bob).get("registry", limit="200")

    assert len(page.text) < 200_000
    assert 100 < len(page.json["tools"]) <= 200


def test_the_queries_are_the_same_for_one_tool_and_many(acme: Organisation, bob: Membership) -> None:
    make_role(acme, bob)
    make_tool(acme, "one")
    rest = Rest(bob)
    rest.get("registry")

    def queries() -> int:
        with CaptureQueriesContext(connection) as context:
            rest.get("registry")
        return len(context)

    few = queries()
    for number in range(3):
        make_tool(acme, f"tool_{number}", category=make_category(acme, f"c{number}"))
        make_role(acme, bob, slug=f"role-{number}")
    assert queries() == few
