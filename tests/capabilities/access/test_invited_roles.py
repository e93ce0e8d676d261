"""Roles on an invitation: who may put them there, and who has them afterwards."""

from __future__ import annotations

import pytest
from django.test import Client

from capabilities.choosing.pipeline.permissions import permissions_of
from capabilities.models import Category, Grant, Role, RoleMembership, RoleRule, Tool
from tests.cast import make_category, make_role, make_tool
from tests.rest import Rest
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Invitation, Membership, Organisation, Right
from toolhub.tenants.people.invitations import Newcomer, invitation_by_secret, invite, join_as, join_as_newcomer
from toolhub.tenants.people.writes import Forbidden

pytestmark = pytest.mark.django_db

DANA = Newcomer("Dana", "Doe", "a-good-long-password")


def usable(member: Membership) -> set[str]:
    permissions = permissions_of(member.pk)
    tools = Tool.objects.values_list("name", "pk", "category_id")
    return {name for name, key, category in tools if permissions.rights.decide(key, category).allowed}


def with_rights(member: Membership, *rights: Right) -> Membership:
    for right in rights:
        AdminRight.objects.create(organisation=member.organisation, membership=member, right=right)
    return Membership.objects.select_related("user", "organisation").get(pk=member.pk)


def held(member: Membership) -> list[str]:
    return sorted(Role.objects.filter(role_memberships__membership=member).values_list("slug", flat=True))


@pytest.fixture
def web(in_acme: Organisation) -> Role:
    """A role that allows `fetch`; `http_post`, of the same category, is denied."""
    make_tool(in_acme, "fetch", category=make_category(in_acme, "web"))
    post = make_tool(in_acme, "http_post", category=Category.objects.get(name="web"))
    role = Role.objects.create(organisation=in_acme, slug="web", name="Web", mode="listed")
    RoleRule.objects.create(organisation=in_acme, role=role, category=Category.objects.get(name="web"), effect="allow")
    RoleRule.objects.create(organisation=in_acme, role=role, tool=post, effect="deny")
    return role


@pytest.fixture
def everything(web: Role) -> Role:
    return Role.objects.create(organisation=web.organisation, slug="all", name="Everything", mode="all")


@pytest.fixture
def giver(web: Role, bob: Membership) -> Membership:
    """Bob with the role `web`, who may invite and give roles."""
    RoleMembership.objects.create(organisation=web.organisation, role=web, membership=bob)
    return with_rights(bob, Right.MEMBERS, Right.ROLES)


# -- It works ---------------------------------------------------------------------------------------------------------


def test_over_rest_roles_are_named_listed_and_given_when_it_is_accepted(alice: Membership, web: Role) -> None:
    api = Rest(alice)

    made = api.post("invitations", {"email": "dana@example.com", "roles": ["web", "web"]})
    assert (made.status, made.json["roles"]) == (201, ["web"])
    assert api.get("invitations").json["results"][0]["roles"] == ["web"]
    assert not RoleMembership.objects.exists()
    member = join_as_newcomer(invitation_by_secret(made.json["link"].rpartition("/join/")[2].strip("/")), DANA)

    assert (held(member), usable(member)) == (["web"], {"fetch"})
    told = (
        AuditEntry.objects.exclude(action__in=("tool.create", "token.issue"))
        .order_by("number")
        .values_list("actor_label", "action", "after")
    )
    assert list(told) == [
        (
            "alice@example.com",
            "invitation.create",
            {"email": "dana@example.com", "access": "member", "roles": ["web"]},
        ),
        ("dana@example.com", "invitation.accept", {"email": "dana@example.com"}),
        ("dana@example.com", "member.add", {"email": "dana@example.com", "access": "member"}),
        ("alice@example.com", "role.assign", {"role": "web"}),
    ]


def test_the_page_offers_the_roles_and_the_list_shows_them(alice: Membership, web: Role, client: Client) -> None:
    client.force_login(alice.user)

    assert 'value="web"' in client.get("/o/acme/members/invite/").content.decode()
    body = {"email": "dana@example.com", "access": "member", "roles": ["web"]}
    assert client.post("/o/acme/members/invite/", body).status_code == 200

    assert [each.role for each in Invitation.objects.get().invitation_roles.all()] == [web]
    assert '<span class="chip">Web</span>' in client.get("/o/acme/members/").content.decode()


def test_who_has_an_account_gets_the_roles_too(alice: Membership, charlie: Membership, web: Role) -> None:
    _, secret = invite("charlie@example.com", Access.MEMBER, actor=alice, roles=["web"])

    assert held(join_as(invitation_by_secret(secret), charlie.user)) == ["web"]


def test_a_role_that_was_deleted_is_not_given(alice: Membership, web: Role, everything: Role) -> None:
    _, secret = invite("dana@example.com", Access.MEMBER, actor=alice, roles=["web", "all"])
    everything.delete()

    assert held(join_as_newcomer(invitation_by_secret(secret), DANA)) == ["web"]


# -- It is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", ["no-such", "theirs", "Web", "é"])
def test_a_role_that_is_not_there_and_one_of_another_organisation_are_unknown(
    alice: Membership, charlie: Membership, web: Role, client: Client, slug: str
) -> None:
    make_role(charlie.organisation, charlie, slug="theirs")
    client.force_login(alice.user)

    status, code, field = Rest(alice).post("invitations", {"email": "x@example.com", "roles": ["web", slug]}).error
    body = {"email": "x@example.com", "access": "member", "roles": ["web", slug]}
    page = client.post("/o/acme/members/invite/", body)

    assert (status, code, field) == (400, "unknown", "roles")
    assert page.status_code == 422
    assert "There is no role" in page.content.decode()
    assert not Invitation.objects.exists()


def test_below_admin_nobody_invites_to_a_role_beyond_their_own(
    giver: Membership, everything: Role, client: Client
) -> None:
    client.force_login(giver.user)
    body = {"email": "x@example.com", "access": "member", "roles": ["all"]}

    reply = Rest(giver).post("invitations", body)
    page = client.post("/o/acme/members/invite/", body)

    assert reply.error == (403, "forbidden", None)
    assert "http_post" in reply.text
    assert page.status_code == 422
    assert "its giver may use: http_post" in page.content.decode()
    assert not Invitation.objects.exists()
    assert Rest(giver).post("invitations", body | {"roles": ["web"]}).status == 201


def test_a_tool_that_a_grant_denies_is_not_ones_own(giver: Membership, web: Role, in_acme: Organisation) -> None:
    Grant.objects.create(organisation=in_acme, membership=giver, tool=Tool.objects.get(name="fetch"), effect="deny")

    with pytest.raises(Forbidden, match="fetch"):
        invite("x@example.com", Access.MEMBER, actor=giver, roles=["web"])


def test_roles_on_an_invitation_need_the_right_roles(bob: Membership, web: Role, client: Client) -> None:
    RoleMembership.objects.create(organisation=web.organisation, role=web, membership=bob)
    bob = with_rights(bob, Right.MEMBERS)
    client.force_login(bob.user)
    body = {"email": "x@example.com", "access": "member", "roles": ["web"]}

    assert Rest(bob).post("invitations", body).error == (403, "forbidden", None)
    assert 'name="roles"' not in client.get("/o/acme/members/invite/").content.decode()
    assert client.post("/o/acme/members/invite/", body).status_code == 422
    assert not Invitation.objects.exists()


# -- What changed meanwhile -------------------------------------------------------------------------------------------


def test_roles_that_the_inviter_may_no_longer_give_are_left_out(giver: Membership, web: Role) -> None:
    _, secret = invite("dana@example.com", Access.MEMBER, actor=giver, roles=["web"])
    RoleRule.objects.filter(role=web, effect="deny").delete()
    RoleMembership.objects.filter(membership=giver).delete()

    member = join_as_newcomer(invitation_by_secret(secret), DANA)

    assert (held(member), usable(member)) == ([], set())
    entry = AuditEntry.objects.get(action="invitation.leave_out_roles")
    assert "fetch" in entry.after["roles"]["web"]
    assert not AuditEntry.objects.filter(action="role.assign").exists()


def test_an_inviter_without_the_right_roles_by_now_gives_none(giver: Membership) -> None:
    _, secret = invite("dana@example.com", Access.MEMBER, actor=giver, roles=["web"])
    AdminRight.objects.filter(membership=giver, right=Right.ROLES).delete()

    assert held(join_as_newcomer(invitation_by_secret(secret), DANA)) == []
