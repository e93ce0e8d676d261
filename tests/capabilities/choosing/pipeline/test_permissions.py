"""What a member may use, with the rules of roles kept in memory: what is stored, and never what was undone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.access.roles.writes import Rule, delete_role, set_role_rules, unassign_role
from capabilities.choosing.pipeline.permissions import (
    key_of,
    may_use,
    permissions_at_version,
    permissions_of,
    permissions_of_each,
)
from capabilities.models import Effect, Grant, Role, RoleMembership, RoleMode, RoleRule, Tool
from tests.cast import make_category, make_member, make_organisation, make_role, make_tool
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


def random_organisation(seed: int) -> Membership:
    """A member with some of four roles, each with rules on some of 20 tools in four categories, and with grants."""
    dice = random.Random(seed)
    acme = make_organisation("acme")
    bob = make_member(acme, "bob", dice.choice([Access.MEMBER, Access.OPERATOR]))
    with organisation_scope(acme):
        categories = [make_category(acme, f"category_{n}") for n in range(4)]
        tools = [make_tool(acme, f"tool_{n}", category=dice.choice(categories)) for n in range(20)]
        for n in range(4):
            role = Role.objects.create(organisation=acme, slug=f"role-{n}", name=f"Role {n}", mode=mode_of(dice))
            for each in dice.sample(tools, 6):
                RoleRule.objects.create(organisation=acme, role=role, tool=each, effect=effect_of(dice))
            for home in dice.sample(categories, 2):
                RoleRule.objects.create(organisation=acme, role=role, category=home, effect=effect_of(dice))
            if dice.random() < 0.7:
                RoleMembership.objects.create(organisation=acme, role=role, membership=bob)
        for each in dice.sample(tools, 3):
            Grant.objects.create(organisation=acme, membership=bob, tool=each, effect=effect_of(dice))
        Grant.objects.create(
            organisation=acme, membership=bob, category=dice.choice(categories), effect=effect_of(dice)
        )
    return bob


def mode_of(dice: random.Random) -> str:
    return dice.choice([RoleMode.LISTED, RoleMode.LISTED, RoleMode.LISTED, RoleMode.NONE, RoleMode.ALL])


def effect_of(dice: random.Random) -> str:
    return dice.choice([Effect.ALLOW, Effect.DENY])


def is_allowed(member: Membership, tool: Tool) -> bool:
    """Row by row, as the rules are told to people."""
    grants = Grant.objects.filter(membership=member)
    own = {each.effect for each in grants if each.tool_id == tool.pk or each.category_id == tool.category_id}
    if own:
        return own == {"allow"}
    for role in Role.objects.filter(role_memberships__membership=member):
        of_tool = role.rules.filter(tool=tool).first()
        rule = of_tool or role.rules.filter(category=tool.category_id).first()
        if role.mode == RoleMode.ALL or (role.mode == RoleMode.LISTED and rule is not None and rule.effect == "allow"):
            return True
    return False


@pytest.mark.parametrize("seed", range(8))
def test_every_way_to_ask_gives_the_same_verdicts_as_row_by_row(seed: int) -> None:
    bob = random_organisation(seed)
    with organisation_scope(bob.organisation):
        tools = list(Tool.objects.order_by("name"))

        asked = {
            "read": permissions_of(bob),
            "first": permissions_at_version(bob)[0],
            "remembered": permissions_at_version(bob)[0],
            "in bulk": permissions_of_each([bob.pk])[bob.pk],
        }

        expected = [is_allowed(bob, tool) for tool in tools]
        verdicts = {name: [each.decide(key_of(tool)) for tool in tools] for name, each in asked.items()}
        assert [each.allowed for each in verdicts["read"]] == expected
        assert verdicts == dict.fromkeys(verdicts, verdicts["read"])
        assert len({each.loads for each in asked.values()}) == 1


@pytest.fixture
def bob() -> Membership:
    """May use `uuid` by the role `listed`."""
    acme = make_organisation("acme")
    member = make_member(acme, "bob")
    role = make_role(acme, member, RoleMode.LISTED, "listed")
    tool = make_tool(acme, "uuid")
    with organisation_scope(acme):
        RoleRule.objects.create(organisation=acme, role=role, tool=tool, effect="allow")
    return member


@pytest.fixture
def alice(bob: Membership) -> Membership:
    return make_member(bob.organisation, "alice", Access.ADMIN)


def may_use_uuid(member: Membership) -> bool:
    return may_use(member, key_of(Tool.objects.get(name="uuid"))).allowed


WRITES: dict[str, Callable[[Role, Membership, Membership], object]] = {
    "other rules": lambda role, bob, alice: set_role_rules(role, [Rule(Effect.DENY, tool="uuid")], actor=alice),
    "no role": lambda role, bob, alice: unassign_role(role, [bob], actor=alice),
    "the role is gone": lambda role, bob, alice: delete_role(role, actor=alice),
    "the member is gone": lambda role, bob, alice: Membership.objects.filter(pk=bob.pk).update(ended_at=timezone.now()),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_seen_by_the_next_question(bob: Membership, alice: Membership, write: str) -> None:
    with organisation_scope(bob.organisation):
        before = [may_use_uuid(bob), may_use_uuid(bob)]

        WRITES[write](Role.objects.get(slug="listed"), bob, alice)

        assert (before, may_use_uuid(bob)) == ([True, True], False)


def test_the_rules_of_roles_are_read_once_at_each_registry_version(bob: Membership, alice: Membership) -> None:
    counts = []
    with organisation_scope(bob.organisation):
        for n in range(4):
            if n == 2:
                set_role_rules(Role.objects.get(slug="listed"), [], actor=alice)
            with CaptureQueriesContext(connection) as captured:
                permissions_at_version(bob)
            counts.append(len(captured))

    assert counts == [2, 1, 2, 1]


def test_what_a_transaction_wrote_and_took_back_is_not_remembered(bob: Membership, alice: Membership) -> None:
    """The next change has the same registry version."""
    with organisation_scope(bob.organisation):
        role = Role.objects.get(slug="listed")
        with transaction.atomic():
            set_role_rules(role, [], actor=alice)
            assert not may_use_uuid(bob)
            transaction.set_rollback(True)

        make_tool(bob.organisation, "calculator")

        assert may_use_uuid(bob)


def test_members_of_two_organisations_never_share_rules(bob: Membership) -> None:
    globex = make_organisation("globex")
    charlie = make_member(globex, "charlie")
    make_role(globex, charlie, RoleMode.LISTED, "listed")
    with organisation_scope(bob.organisation):
        assert permissions_at_version(bob)[0].rights.roles[0].tools
    with organisation_scope(globex):
        assert not permissions_at_version(charlie)[0].rights.roles[0].tools
        assert permissions_at_version(bob)[0].rights.opens_nothing
