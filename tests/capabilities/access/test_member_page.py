"""The page of one member's roles, grants and tools: what is changed there, what is shown before, and who may."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.models import Grant, Role, RoleMembership, RoleRule, Tool
from tests.capabilities.access.test_member_tools import text_of
from tests.cast import make_category, make_member, make_tool
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

STAMP = re.compile(r'name="stamp"\s+value="([^"]+)"')


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.fixture
def reader(in_acme: Organisation, bob: Membership) -> Role:
    """Bob's: it opens fetch, of the category web; file_read is in no role."""
    web = make_category(in_acme, "web", is_core=False)
    make_tool(in_acme, "fetch", category=web)
    make_tool(in_acme, "file_read", category=make_category(in_acme, "file", is_core=False))
    role = Role.objects.create(organisation=in_acme, slug="reader", name="Reader", mode="listed")
    RoleRule.objects.create(organisation=in_acme, role=role, category=web, effect="allow")
    RoleMembership.objects.create(organisation=in_acme, role=role, membership=bob)
    return role


def address(member: Membership, what: str = "tools") -> str:
    return f"/o/acme/members/{member.public_id}/{what}/"


def roles_of(member: Membership) -> set[str]:
    return set(RoleMembership.objects.filter(membership=member).values_list("role__slug", flat=True))


def stamp_in(answer: Any) -> str:
    found = STAMP.search(answer.content.decode())
    assert found is not None, "nothing was shown to be saved"
    return found[1]


def grant_form(tool: str, effect: str = "allow", **fields: str) -> dict[str, str]:
    return {"tool": tool, "effect": effect, "until": "8h", "zone": "Europe/Berlin"} | fields


# -- Roles ------------------------------------------------------------------------------------------------------------


def test_roles_are_saved_after_what_they_mean_was_shown(as_alice: Client, reader: Role, bob: Membership) -> None:
    Role.objects.create(organisation=reader.organisation, slug="all", name="Everything", mode="all")

    shown = as_alice.post(address(bob, "roles"), {"roles": ["all"]})
    before = roles_of(bob)
    saved = as_alice.post(address(bob, "roles"), {"roles": ["all"], "stamp": stamp_in(shown)})

    assert "1 member gains file_read" in text_of(shown.content)
    assert (before, saved.status_code, roles_of(bob)) == ({"reader"}, 302, {"all"})
    actions = AuditEntry.objects.filter(action__startswith="role.").values_list("action", flat=True)
    assert sorted(actions) == ["role.assign", "role.unassign"]


def test_a_stamp_of_other_roles_saves_nothing(as_alice: Client, reader: Role, bob: Membership) -> None:
    Role.objects.create(organisation=reader.organisation, slug="all", name="Everything", mode="all")
    stamp = stamp_in(as_alice.post(address(bob, "roles"), {"roles": ["reader", "all"]}))

    as_alice.post(address(bob, "roles"), {"roles": [], "stamp": stamp})

    assert roles_of(bob) == {"reader"}


def test_a_role_that_was_changed_meanwhile_is_shown_anew(as_alice: Client, reader: Role, bob: Membership) -> None:
    stamp = stamp_in(as_alice.post(address(bob, "roles"), {"roles": []}))
    Role.objects.filter(pk=reader.pk).update(mode="all")

    answer = as_alice.post(address(bob, "roles"), {"roles": [], "stamp": stamp})

    assert (answer.status_code, roles_of(bob)) == (200, {"reader"})


def test_a_role_that_is_not_there_or_another_organisations_is_refused_beside_the_boxes(
    as_alice: Client, reader: Role, bob: Membership, globex: Organisation
) -> None:
    with organisation_scope(globex):
        Role.objects.create(organisation=globex, slug="theirs", name="Theirs", mode="all")

    for slug in ("theirs", "missing"):
        answer = as_alice.post(address(bob, "roles"), {"roles": ["reader", slug]})
        page = answer.content.decode()
        assert (answer.status_code, f"There is no role {slug}." in page, "stamp" in page) == (422, True, False)

    assert roles_of(bob) == {"reader"}


def test_a_right_for_one_category_sets_no_roles(
    client: Client, reader: Role, alice: Membership, bob: Membership
) -> None:
    AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.ROLES, category="web")
    client.force_login(bob.user)

    answer = client.post(address(alice, "roles"), {"roles": ["reader"]})

    assert (answer.status_code, roles_of(alice)) == (403, set())


# -- Grants -----------------------------------------------------------------------------------------------------------


def test_a_tool_is_allowed_in_place_for_some_hours(as_alice: Client, reader: Role, bob: Membership) -> None:
    answer = as_alice.post(address(bob, "grant") + "?show=all", grant_form("file_read", reason="Month's end"))

    grant = Grant.objects.get()
    assert answer.headers["Location"] == address(bob) + "?show=all"
    assert (grant.membership, grant.effect, grant.tool, grant.reason) == (
        bob,
        "allow",
        Tool.objects.get(name="file_read"),
        "Month's end",
    )
    assert grant.expires_at is not None
    assert timedelta(hours=7, minutes=59) < grant.expires_at - timezone.now() <= timedelta(hours=8)


def test_a_tool_is_denied_in_place_without_an_end(as_alice: Client, reader: Role, bob: Membership) -> None:
    as_alice.post(address(bob, "grant"), grant_form("fetch", "deny", until="never"))

    page = text_of(as_alice.get(address(bob) + "?show=all").content)
    assert "Deny fetch · no end" in page
    assert "fetch denied by a grant of this member" in page
    assert "May use 0 of 2 tools" in page


def test_a_deny_is_proposed_without_an_end_and_an_allow_for_some_hours(
    as_alice: Client, reader: Role, bob: Membership
) -> None:
    page = as_alice.get(address(bob) + "?show=all").content.decode()

    proposed = {
        tool: re.findall(rf'id="grant-{tool}-until".*?value="(\w+)" selected', page, re.DOTALL)[0]
        for tool in ("fetch", "file_read")
    }
    assert proposed == {"fetch": "never", "file_read": "8h"}


def test_an_invalid_end_of_a_grant_is_refused(as_alice: Client, reader: Role, bob: Membership) -> None:
    for fields, complaint in (
        ({"until": "date"}, "Choose a date."),
        ({"until": "date", "until_date": "2001-01-01"}, "This date has passed."),
        ({"until": "date", "until_date": "9999-12-31"}, "This date is too far away."),
        ({"until": "tonight", "zone": "Nowhere/Else"}, "This is no time zone."),
        ({"until": "tonight", "zone": "../../etc/passwd"}, "This is no time zone."),
        ({"until": "tonight", "zone": "Europe"}, "This is no time zone."),
    ):
        answer = as_alice.post(address(bob, "grant"), grant_form("file_read", **fields))

        assert (answer.status_code, complaint in text_of(answer.content)) == (422, True), fields
    assert not Grant.objects.exists()


def test_revoking_shows_what_the_member_loses_and_then_revokes(as_alice: Client, reader: Role, bob: Membership) -> None:
    as_alice.post(address(bob, "grant"), grant_form("file_read"))
    revoke = f"/o/acme/grants/{Grant.objects.get().public_id}/revoke/"

    shown = as_alice.post(revoke, {"member": "1"})
    there = Grant.objects.exists()
    done = as_alice.post(revoke, {"member": "1", "stamp": stamp_in(shown)})

    assert "1 member loses file_read" in text_of(shown.content)
    assert (there, done.headers["Location"], Grant.objects.exists()) == (True, address(bob), False)


def test_a_grant_that_changes_nothing_is_revoked_at_once(as_alice: Client, reader: Role, bob: Membership) -> None:
    as_alice.post(address(bob, "grant"), grant_form("file_read"))
    Grant.objects.update(expires_at=timezone.now() - timedelta(hours=1))

    as_alice.post(f"/o/acme/grants/{Grant.objects.get().public_id}/revoke/")

    assert not Grant.objects.exists()


def test_a_right_for_one_category_allows_its_tools_alone(
    client: Client, reader: Role, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    carol = make_member(acme, "carol")
    AdminRight.objects.create(organisation=acme, membership=bob, right=Right.ROLES, category="web")
    client.force_login(bob.user)

    other = client.post(address(carol, "grant"), grant_form("file_read"))
    own = client.post(address(carol, "grant"), grant_form("fetch"))

    assert (other.status_code, own.status_code) == (403, 302)
    page = client.get(address(carol) + "?show=all").content.decode()
    assert ('value="file_read"' in page, "Save the roles" in page) == (False, False)


# -- Who --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["roles", "grant"])
def test_a_stranger_and_a_member_without_the_right_change_nothing(
    client: Client, reader: Role, alice: Membership, bob: Membership, charlie: Membership, what: str
) -> None:
    found = []
    for member in (bob, charlie):
        client.force_login(member.user)
        found.append(client.post(address(alice, what), grant_form("fetch") | {"roles": "reader"}).status_code)

    assert found == [403, 404]
    assert (roles_of(alice), Grant.objects.exists()) == (set(), False)


@pytest.mark.parametrize("what", ["roles", "grant"])
def test_another_organisations_member_is_a_missing_one(
    as_alice: Client, reader: Role, charlie: Membership, what: str
) -> None:
    answer = as_alice.post(address(charlie, what), grant_form("fetch") | {"roles": "reader"})

    assert answer.status_code == 404


def test_nobody_changes_the_roles_of_who_ranks_higher(
    client: Client, reader: Role, alice: Membership, bob: Membership
) -> None:
    bob.access = Access.OPERATOR
    bob.save(update_fields=["access"])
    client.force_login(bob.user)
    Grant.objects.create(organisation=alice.organisation, membership=alice, tool=Tool.objects.first(), effect="allow")

    page = client.get(address(alice) + "?show=all").content.decode()
    answer = client.post(address(alice, "roles"), {"roles": ["reader"]}, follow=True)

    assert "Alice has more access than you" in text_of(page.encode())
    assert re.findall(r'<form[^>]*action="/o/acme/(?:members|grants)/[^"]*"', page) == []
    assert "/revoke/" not in client.get("/o/acme/grants/").content.decode()
    assert (answer.redirect_chain[0][1], text_of(answer.content).count("has more access than you")) == (302, 2)
    assert roles_of(alice) == set()


def test_a_member_without_tools_is_shown_where_to_request_access(
    client: Client, reader: Role, acme: Organisation
) -> None:
    carol = make_member(acme, "carol")
    client.force_login(carol.user)

    page = client.get(address(carol)).content.decode()

    assert "You cannot use any tool yet" in page
    assert "/o/acme/access-requests/#ask" in page


def test_the_page_takes_the_same_queries_for_more_of_everything(
    as_alice: Client, reader: Role, bob: Membership, acme: Organisation
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as log:
            assert as_alice.get(address(bob) + "?show=all").status_code == 200
        return len(log)

    def grow(start: int, end: int) -> None:
        for number in range(start, end):
            tool = make_tool(acme, f"tool_{number}")
            role = Role.objects.create(organisation=acme, slug=f"r{number}", name="R", mode="none")
            RoleMembership.objects.create(organisation=acme, role=role, membership=bob)
            Grant.objects.create(organisation=acme, membership=bob, tool=tool, effect="allow")

    grow(0, 1)
    few = queries()
    grow(1, 4)

    assert queries() == few


def test_the_list_of_members_shows_their_roles_in_the_same_queries(
    as_alice: Client, reader: Role, acme: Organisation
) -> None:
    def read() -> tuple[int, str]:
        with CaptureQueriesContext(connection) as log:
            page = as_alice.get("/o/acme/members/").content
        return len(log), text_of(page)

    few, page = read()
    for number in range(3):
        member = make_member(acme, f"m{number}")
        RoleMembership.objects.create(organisation=acme, role=reader, membership=member)
    many, _ = read()

    assert "bob@example.com Reader Member" in page
    assert many == few
