from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.access.roles.writes import (
    RoleContent,
    Rule,
    assign_role,
    create_role,
    delete_role,
    rules_of,
    set_role_rules,
    set_roles_of,
    unassign_role,
    update_role,
)
from capabilities.choosing.pipeline.permissions import key_of, permissions_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import Effect, Role, RoleMembership, RoleMode, RoleRule, Tool
from tests.cast import make_category, make_member, make_role, make_tool
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

WEB = Rule("allow", category="web")
NO_POST = Rule("deny", tool="http_post")


@pytest.fixture
def catalogue(acme: Organisation, in_acme: Organisation) -> None:
    web = make_category(acme, "web")
    for name in ("fetch", "http_post"):
        make_tool(acme, name, category=web)
    make_tool(acme, "file_read", category=make_category(acme, "file"))


def usable(member: Membership) -> list[str]:
    permissions = permissions_of(member)
    return [each.name for each in Tool.objects.order_by("name") if permissions.decide(key_of(each)).allowed]


def audit() -> list[str]:
    return [f"{row.action} {row.target_label}" for row in AuditEntry.objects.order_by("pk") if row.actor_id]


def version() -> int:
    return Organisation.objects.get(slug="acme").registry_version


@pytest.mark.usefixtures("catalogue")
def test_a_role_is_made_with_its_rules_and_opens_nothing_until_it_is_assigned(
    alice: Membership, bob: Membership
) -> None:
    before = version()

    role = create_role(RoleContent("web", "Web", mode="listed", rules=(WEB, NO_POST)), actor=alice)

    assert usable(bob) == []
    assert assign_role(role, [bob], actor=alice) == 1
    assert usable(bob) == ["fetch"]
    assert rules_of(role) == [WEB, NO_POST]
    assert audit() == ["role.create Web", "role.assign Bob"]
    told = AuditEntry.objects.get(action="role.create").after
    assert told["rules"] == ["allow category web", "deny tool http_post"]
    assert version() == before + 2


def test_a_new_role_opens_nothing_unless_it_says_so(alice: Membership, in_acme: Organisation) -> None:
    assert create_role(RoleContent("any", "Any"), actor=alice).mode == RoleMode.NONE


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(
    ("content", "field", "code"),
    [
        (RoleContent("all", "Twin"), "slug", "taken"),
        (RoleContent("new", "New"), "slug", "invalid"),
        (RoleContent("No", "No"), "slug", "invalid"),
        (RoleContent("x", "X", mode="some"), "mode", "invalid"),
        (RoleContent("x", "X", rules=(Rule("allow", tool="missing"),)), "rules", "unknown"),
        (RoleContent("x", "X", rules=(Rule("allow", category="missing"),)), "rules", "unknown"),
        (RoleContent("x", "X", rules=(Rule("allow"),)), "rules", "invalid"),
        (RoleContent("x", "X", rules=(Rule("allow", "web", "fetch"),)), "rules", "invalid"),
        (RoleContent("x", "X", rules=(Rule("maybe", "web"),)), "rules", "invalid"),
        (RoleContent("x", "X", rules=(WEB, Rule("deny", "web"))), "rules", "invalid"),
    ],
)
def test_an_invalid_role_changes_nothing(
    alice: Membership, acme: Organisation, content: RoleContent, field: str, code: str
) -> None:
    make_role(acme, alice)

    with pytest.raises(ChangeRefused) as refused:
        create_role(content, actor=alice)

    assert (refused.value.field, refused.value.code) == (field, code)
    assert list(Role.objects.values_list("slug", flat=True)) == ["all"]
    assert audit() == []


def test_a_rule_on_another_organisations_tool_is_one_on_a_missing_tool(
    alice: Membership, globex: Organisation, in_acme: Organisation
) -> None:
    make_tool(globex, "only_there")

    with pytest.raises(ChangeRefused, match="There is no tool only_there"):
        create_role(RoleContent("x", "X", mode="listed", rules=(Rule("allow", tool="only_there"),)), actor=alice)


@pytest.mark.usefixtures("catalogue")
def test_rules_are_replaced_and_those_that_stay_keep_their_row(alice: Membership) -> None:
    role = create_role(RoleContent("web", "Web", mode="listed", rules=(WEB, NO_POST)), actor=alice)
    row = RoleRule.objects.get(category__name="web").pk

    set_role_rules(role, [WEB, Rule("allow", tool="http_post")], actor=alice)

    assert RoleRule.objects.get(category__name="web").pk == row
    assert RoleRule.objects.get(tool__name="http_post").effect == Effect.ALLOW
    assert audit() == ["role.create Web", "role.update Web"]


@pytest.mark.usefixtures("catalogue")
def test_saving_a_role_unchanged_writes_no_audit_entry(alice: Membership) -> None:
    content = RoleContent("web", "Web", mode="listed", rules=(WEB, NO_POST))
    role = create_role(content, actor=alice)
    before = version()

    update_role(role, content, actor=alice)
    set_role_rules(role, [NO_POST, WEB], actor=alice)

    assert audit() == ["role.create Web"]
    assert version() == before


@pytest.mark.usefixtures("catalogue")
def test_a_role_that_goes_is_taken_from_its_members(alice: Membership, bob: Membership, acme: Organisation) -> None:
    role = make_role(acme, bob, slug="coders")

    assert delete_role(role, actor=alice) == 1

    assert usable(bob) == []
    told = AuditEntry.objects.get(action="role.delete").before
    assert (told["slug"], told["mode"], told["members"]) == ("coders", "all", 1)


def test_assigning_twice_counts_once(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    role = create_role(RoleContent("any", "Any"), actor=alice)

    assert [assign_role(role, [alice, bob], actor=alice), assign_role(role, [bob], actor=alice)] == [2, 0]
    assert [unassign_role(role, [bob], actor=alice), unassign_role(role, [bob], actor=alice)] == [1, 0]

    assert audit() == ["role.create Any", "role.assign Alice", "role.assign Bob", "role.unassign Bob"]


def test_the_roles_of_a_member_are_set_whole(alice: Membership, bob: Membership, in_acme: Organisation) -> None:
    for slug in ("a", "b", "c"):
        create_role(RoleContent(slug, slug), actor=alice)

    assert set_roles_of(bob, ["b", "a"], actor=alice) == ["a", "b"]
    assert set_roles_of(bob, ["c", "b"], actor=alice) == ["b", "c"]
    with pytest.raises(ChangeRefused) as refused:
        set_roles_of(bob, ["c", "missing"], actor=alice)

    assert (refused.value.field, refused.value.code) == ("roles", "unknown")
    held = RoleMembership.objects.filter(membership=bob).values_list("role__slug", flat=True)
    assert sorted(held) == ["b", "c"]


@pytest.mark.usefixtures("catalogue")
def test_a_right_for_one_category_is_for_the_rules_on_it_alone(alice: Membership, bob: Membership) -> None:
    AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.ROLES, category="web")
    role = create_role(RoleContent("web", "Web", mode="listed", rules=(WEB,)), actor=alice)

    set_role_rules(role, [WEB, NO_POST], actor=bob)
    with pytest.raises(PermissionDenied):
        set_role_rules(role, [WEB, NO_POST, Rule("allow", tool="file_read")], actor=bob)
    for change in (
        lambda: create_role(RoleContent("mine", "Mine", mode="all"), actor=bob),
        lambda: update_role(role, RoleContent("web", "Web", mode="all"), actor=bob),
        lambda: assign_role(role, [bob], actor=bob),
        lambda: unassign_role(role, [bob], actor=bob),
        lambda: delete_role(role, actor=bob),
    ):
        with pytest.raises(PermissionDenied):
            change()

    assert rules_of(role) == [WEB, NO_POST]


def test_nobody_without_the_right_touches_a_role(bob: Membership, acme: Organisation) -> None:
    carol = make_member(acme, "carol")
    with organisation_scope(acme), pytest.raises(PermissionDenied):
        create_role(RoleContent("any", "Any"), actor=carol)
