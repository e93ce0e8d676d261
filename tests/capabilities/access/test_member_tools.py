"""The page of what one member may use, and why."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.access.members.queries import CATEGORIES_SHOWN, GRANTS_SHOWN
from capabilities.models import Grant, Role, RoleMembership, RoleRule, Tool
from tests.cast import make_category, make_member, make_role, make_tool
from toolhub.tenants.models import AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def text_of(page: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def address(member: Membership) -> str:
    return f"/o/acme/members/{member.public_id}/tools/"


@pytest.fixture
def tools(acme: Organisation, bob: Membership) -> None:
    """Bob has a role that lists `web`, and grants that allow file_read and deny fetch."""
    web, file = make_category(acme, "web"), make_category(acme, "file")
    made = {name: make_tool(acme, name, category=web) for name in ("fetch", "search")}
    made |= {name: make_tool(acme, name, category=file) for name in ("file_read", "file_write")}
    with organisation_scope(acme):
        role = Role.objects.create(organisation=acme, slug="reader", name="Reader", mode="listed")
        RoleRule.objects.create(organisation=acme, role=role, category=web)
        RoleMembership.objects.create(organisation=acme, role=role, membership=bob)
        for name, effect in (("file_read", "allow"), ("fetch", "deny")):
            Grant.objects.create(organisation=acme, membership=bob, tool=made[name], effect=effect)
        AdminRight.objects.create(organisation=acme, membership=bob, right=Right.AUDIT)


@pytest.mark.usefixtures("tools")
def test_a_member_sees_the_own_tools_with_the_reason_for_each(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)

    allowed, every = (text_of(client.get(f"{address(bob)}{query}").content) for query in ("", "?show=all"))

    assert "May use 2 of 4 tools" in allowed
    assert "search role reader allows it" in allowed
    assert "file_read allowed by a grant" in allowed
    assert "file_write" not in allowed
    assert "file_write no role of this member" in every
    assert "fetch denied by a grant of this member" in every
    assert "Web 1 of 2 ·" in allowed
    assert "Reader Listed tools" in allowed
    assert "Audit every category" in allowed


@pytest.mark.usefixtures("tools")
def test_filters_narrow_the_tools_and_not_the_numbers(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)

    page = client.get(f"{address(bob)}?q=FILE&category=file&show=all").content

    assert re.findall(r'href="/o/acme/tools/(\w+)/"', page.decode()) == ["file_read", "file_write"]
    assert "May use 2 of 4 tools" in text_of(page)
    assert client.get(f"{address(bob)}?q=%00&show=some&category=missing&after=%00").status_code == 200


@pytest.mark.usefixtures("tools")
def test_a_search_by_name_finds_tools_that_are_not_allowed_too(client: Client, bob: Membership) -> None:
    client.force_login(bob.user)

    page = client.get(f"{address(bob)}?q=file&show=").content

    assert re.findall(r'href="/o/acme/tools/(\w+)/"', page.decode()) == ["file_read", "file_write"]


def test_of_others_only_those_with_the_right_see_it(
    client: Client, alice: Membership, bob: Membership, charlie: Membership, acme: Organisation
) -> None:
    carol, dan = make_member(acme, "carol"), make_member(acme, "dan")
    with organisation_scope(acme):
        AdminRight.objects.create(organisation=acme, membership=carol, right=Right.ROLES, category="web")
    for member, status in ((alice, 200), (bob, 200), (carol, 200), (dan, 403), (charlie, 404)):
        client.force_login(member.user)
        assert client.get(address(bob)).status_code == status
    client.force_login(alice.user)
    assert client.get(address(charlie)).status_code == 404


def test_both_pages_lead_there(client: Client, alice: Membership, bob: Membership) -> None:
    client.force_login(alice.user)

    assert address(bob) in client.get(f"/o/acme/members/{bob.public_id}/").content.decode()
    assert address(alice) in client.get("/account/").content.decode()


@pytest.mark.long
def test_the_queries_and_the_size_stay_with_ten_thousand_tools(
    client: Client, bob: Membership, acme: Organisation
) -> None:
    category = make_category(acme, "many")
    make_role(acme, bob)
    client.force_login(bob.user)

    def ask(count: int) -> tuple[int, bytes]:
        with organisation_scope(acme):
            Tool.objects.bulk_create(
                Tool(organisation=acme, category=category, name=f"tool_{number:05}")
                for number in range(Tool.objects.count(), count)
            )
        with CaptureQueriesContext(connection) as seen:
            page = client.get(address(bob)).content
        return len(seen), page

    few, _ = ask(10)
    many, page = ask(10_000)

    assert few == many <= 14
    assert len(page) < 200_000
    assert "after=" in page.decode()


@pytest.mark.usefixtures("tools")
def test_a_grant_that_is_not_among_the_newest_still_stands_beside_its_tool(
    client: Client, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    with organisation_scope(acme):
        fetch = Tool.objects.get(name="fetch")
        for _ in range(GRANTS_SHOWN):
            Grant.objects.create(organisation=acme, membership=bob, tool=fetch, effect="deny")
        old = Grant.objects.get(tool__name="file_read")
    client.force_login(alice.user)

    page = client.get(f"{address(bob)}?q=file_read").content.decode()

    assert f"/o/acme/grants/{old.public_id}/" in page
    assert f"The newest {GRANTS_SHOWN} are shown." in text_of(page.encode())
    assert "/o/acme/grants/?q=bob%40example.com" in page


def test_of_many_categories_those_with_most_tools_are_shown(
    client: Client, bob: Membership, acme: Organisation
) -> None:
    make_role(acme, bob)
    client.force_login(bob.user)
    for number in range(CATEGORIES_SHOWN + 1):
        make_tool(acme, f"tool_{number}", category=make_category(acme, f"category_{number}"))
    make_tool(acme, "one_more", category=make_category(acme, f"category_{CATEGORIES_SHOWN}"))

    page = text_of(client.get(address(bob)).content)

    assert f"Category_{CATEGORIES_SHOWN} 2 of 2" in page
    assert page.count(" 1 of 1 ·") == CATEGORIES_SHOWN - 1
    assert "1 more category:" in page
