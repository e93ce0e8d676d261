"""One person gains nothing by more accounts: those that they, or accounts of theirs, invited or could reset."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.access.grants.writes import GrantContent, give_grant
from capabilities.access.roles.writes import RolesChanged, Rule, assign_role, set_role_rules
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.models import Grant, Role, Tool
from tests.cast import make_category, make_member, make_tool
from tests.configuration_writes import TABLE, TAKEN_OVER, Dice
from tests.rest import Rest
from tests.test_own_use import give_right, has, listed, random_organisation, usable
from toolhub.tenants.identity.linked_accounts import linked_members
from toolhub.tenants.identity.resets import issue_reset_link
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.people.invitations import Newcomer, invite, join_as_newcomer, open_invitations
from toolhub.tenants.people.writes import MemberRefused, remove_member

pytestmark = pytest.mark.django_db

SECRET = "a long enough secret 7"


@pytest.fixture
def web(acme: Organisation, in_acme: Organisation, bob: Membership) -> Role:
    """Bob's role. It allows fetch; file_read is in no role but `everything`, which nobody has."""
    make_tool(in_acme, "fetch", category=make_category(in_acme, "web"))
    make_tool(in_acme, "file_read", category=make_category(in_acme, "file"))
    Role.objects.create(organisation=acme, slug="everything", name="Everything", mode="all")
    role = listed(acme, "web", Rule("allow", category="web"))
    has(role, bob)
    return role


def fresh(member: Membership) -> Membership:
    return Membership.objects.select_related("user", "organisation").get(pk=member.pk)


def join(inviter: Membership, name: str, access: Access = Access.MEMBER) -> Membership:
    invitation, _ = invite(f"{name}@example.com", access, actor=fresh(inviter))
    return fresh(join_as_newcomer(invitation, Newcomer(name.title(), "", SECRET)))


@pytest.fixture
def second(web: Role, bob: Membership) -> Membership:
    """An account that Bob invited, and may be his own; he may give roles as well."""
    give_right(bob, Right.ROLES)
    return join(give_right(bob, Right.MEMBERS), "second")


def test_an_account_that_one_invited_gets_no_more_than_one_may_use(
    web: Role, bob: Membership, second: Membership
) -> None:
    own = fresh(bob)
    everything = Role.objects.get(slug="everything")
    has(listed(bob.organisation, "theirs"), second)

    with pytest.raises(ChangeForbidden, match=r"you can give Second only what you may use yourself.*file_read"):
        assign_role(everything, [second], actor=own)
    with pytest.raises(ChangeForbidden, match="file_read"):
        give_grant(GrantContent(second.public_id, "allow", category="file"), actor=own)
    with pytest.raises(ChangeForbidden, match="file_read"):
        set_role_rules(Role.objects.get(slug="theirs"), [Rule("allow", tool="file_read")], actor=own)
    assign_role(web, [second], actor=own)

    assert usable(second) == {"fetch"}


def test_such_an_account_gives_its_inviter_nothing_that_it_may_not_use(
    web: Role, bob: Membership, second: Membership
) -> None:
    second = give_right(second, Right.ROLES)

    with pytest.raises(ChangeForbidden, match="you can give Bob only what you may use yourself"):
        assign_role(Role.objects.get(slug="everything"), [bob], actor=second)
    with pytest.raises(ChangeForbidden):
        give_grant(GrantContent(bob.public_id, "allow", tool="file_read"), actor=second)

    assert usable(bob) == {"fetch"}


def test_accounts_invited_by_one_and_by_each_other_are_linked_whoever_left(
    acme: Organisation, web: Role, alice: Membership, bob: Membership, second: Membership
) -> None:
    third = join(give_right(second, Right.MEMBERS), "third")
    fourth = join(bob, "fourth")
    peer = make_member(acme, "peer")
    remove_member(second, actor=alice)

    assert {each.pk for each in linked_members(fresh(bob))} == {third.pk, fourth.pk}
    assert {each.pk for each in linked_members(fourth)} == {bob.pk, third.pk}
    assert linked_members(peer) == []


def test_an_account_whose_password_one_could_reset_is_linked(acme: Organisation, web: Role, bob: Membership) -> None:
    peer = make_member(acme, "peer")
    give_right(bob, Right.MEMBERS)
    bob = give_right(bob, Right.ROLES)
    assign = Role.objects.get(slug="everything")

    issue_reset_link(peer, actor=bob)

    with pytest.raises(ChangeForbidden, match="you can give Peer only"):
        assign_role(assign, [peer], actor=bob)


def test_the_right_members_may_be_gone_when_the_roles_are_given(web: Role, bob: Membership, second: Membership) -> None:
    AdminRight.objects.filter(membership=bob, right=Right.MEMBERS).delete()

    with pytest.raises(ChangeForbidden):
        assign_role(Role.objects.get(slug="everything"), [second], actor=fresh(bob))


def test_a_holder_of_the_right_roles_gives_invited_members_more_than_the_own_tools(
    web: Role, alice: Membership, bob: Membership
) -> None:
    """What delegating `roles` means: others are given what the giver may not use."""
    peer = join(alice, "peer")
    other = join(alice, "other")

    assign_role(Role.objects.get(slug="everything"), [peer], actor=give_right(bob, Right.ROLES))
    assign_role(Role.objects.get(slug="everything"), [other], actor=give_right(peer, Right.ROLES))

    assert usable(peer) == usable(other) == {"fetch", "file_read"}


def test_an_admin_gives_linked_accounts_what_they_like(web: Role, alice: Membership, second: Membership) -> None:
    assign_role(Role.objects.get(slug="everything"), [second], actor=alice)

    assert usable(second) == {"fetch", "file_read"}


def test_rest_and_pages_refuse_it_alike(web: Role, bob: Membership, second: Membership, client: Client) -> None:
    rest = Rest(fresh(bob))
    body = json.dumps({"roles": ["everything"]}).encode()

    assert rest.ask("PUT", f"members/{second.public_id}/roles", body).error == (403, "forbidden", "roles")
    grant = {"member": str(second.public_id), "tool": "file_read", "effect": "allow"}
    assert rest.post("grants", grant).error == (403, "forbidden", "member")

    client.force_login(bob.user)
    form = {"member": "second@example.com", "effect": "allow", "tool": "file_read", "reason": "x", "until": "8h"}
    answer = client.post("/o/acme/grants/new/", form)
    assert (answer.status_code, "only what you may use yourself" in answer.content.decode()) == (422, True)
    assert not Grant.objects.exists()


def test_the_queries_do_not_grow_with_linked_accounts(web: Role, bob: Membership, second: Membership) -> None:
    peer = make_member(bob.organisation, "peer")

    def queries() -> int:
        actor = fresh(bob)
        with CaptureQueriesContext(connection) as log:
            give_grant(GrantContent(peer.public_id, "allow", tool="fetch"), actor=actor)
        Grant.objects.all().delete()
        return len(log)

    few = queries()
    for name in ("third", "fourth"):
        has(web, join(bob, name))
    assert queries() == few


@dataclass(frozen=True)
class OwnDice(Dice):
    """Draws the accounts of one person as often as all other members together."""

    own: tuple[Membership, ...] = ()

    def member(self) -> Membership:
        return fresh(self.one(self.own)) if self.yes() else super().member()


#: Access and delegated rights of one person; an operator holds all but `members` by level.
HELD = [
    (Access.OPERATOR, (Right.MEMBERS,)),
    (Access.MEMBER, (Right.MEMBERS, Right.ROLES)),
    (Access.MEMBER, (Right.MEMBERS, Right.CATALOGUE)),
    (Access.MEMBER, (Right.ROLES, Right.CATALOGUE)),
]
ROOMS = (".roles.", ".grant", ".invit", ".members.", ".resets.", ".move_tool", ".set_tool_enabled")


@pytest.mark.parametrize(("access", "rights"), HELD, ids=str)
def test_a_person_gains_nothing_with_several_linked_accounts(
    in_acme: Organisation, access: Access, rights: tuple[Right, ...]
) -> None:
    """Writes about permission by the dice, each by one of the person's accounts; their links are used at once."""
    dice = random.Random("-".join([access, *rights]))
    person = random_organisation(in_acme, dice)
    Membership.objects.filter(pk=person.pk).update(access=access)
    AdminRight.objects.filter(membership=person).delete()
    for right in rights:
        give_right(person, right)
    own, most = {person.pk}, usable(person)
    known = set(Tool.objects.values_list("name", flat=True))
    names = [name for name in TABLE if any(room in name for room in ROOMS)]
    if Right.MEMBERS in rights:
        own.add(join(person, "second", access).pk)
    done = 0
    for _ in range(120):
        TAKEN_OVER.clear()
        accounts = tuple(Membership.objects.filter(pk__in=own, ended_at=None).order_by("pk"))
        if not accounts:
            break
        actor, name = fresh(dice.choice(accounts)), dice.choice(names)
        try:
            with transaction.atomic():
                TABLE[name](OwnDice(dice, actor, accounts), actor)
        except (PermissionDenied, ChangeRefused, MemberRefused, RolesChanged, IndexError):
            continue
        done += 1
        own |= {member.pk for member in TAKEN_OVER}
        for invitation in list(open_invitations().filter(created_by__in=own).select_related("organisation")):
            own.add(join_as_newcomer(invitation, Newcomer("N", "", SECRET)).pk)
        for account in own:
            assert usable(Membership.objects.get(pk=account)) & known <= most, name
    assert done > 5
