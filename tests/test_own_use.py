"""Nobody below access `admin` widens, by any write, what they themselves may use, nor changes a member above them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.access.grants.writes import GrantContent, give_grant, revoke_grant, update_grant
from capabilities.access.powers import read_powers
from capabilities.access.requests.queries import requests_notice, waiting_for
from capabilities.access.requests.writes import RequestContent, ask_for_grant, grant_request, refuse_request
from capabilities.access.roles.writes import (
    RoleContent,
    RolesChanged,
    Rule,
    assign_role,
    delete_role,
    set_role_rules,
    set_roles_of,
    set_rules_of_roles,
    stamp_of,
    unassign_role,
    update_role,
)
from capabilities.catalogue.categories.writes import CategoryContent, create_category, delete_category, move_tool
from capabilities.catalogue.tools.writes import set_tool_enabled, set_tools_enabled
from capabilities.choosing.pipeline.permissions import key_of, permissions_of
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.models import (
    Category,
    Effect,
    Grant,
    GrantRequest,
    LanguageModel,
    McpServer,
    Role,
    RoleMembership,
    RoleRule,
    Tool,
    ToolRefusal,
)
from tests.cast import (
    PASSWORD,
    make_agent,
    make_category,
    make_member,
    make_role,
    make_token,
    make_tool,
    make_toolkit,
)
from tests.configuration_writes import NOT_GUARDED, NOT_IN_TABLE, OWN_WRITES, TABLE, TAKEN_OVER, Dice, found_writes
from tests.rest import Reply, Rest
from toolhub.tenants import authority
from toolhub.tenants.identity.resets import issue_reset_link, reset_link_by_secret
from toolhub.tenants.models import (
    CATEGORY_RIGHTS,
    Access,
    AdminRight,
    ApiToken,
    AuditEntry,
    Invitation,
    Membership,
    Organisation,
    ResetLink,
    Right,
)
from toolhub.tenants.people.invitations import LinkDead, invite, revoke_invitation
from toolhub.tenants.people.writes import Forbidden, MemberRefused

pytestmark = [pytest.mark.long, pytest.mark.django_db]


def usable(member: Membership) -> set[str]:
    permissions = permissions_of(member.pk)
    return {tool.name for tool in Tool.objects.all() if permissions.decide(key_of(tool)).allowed}


def give_right(member: Membership, right: Right, category: str = "") -> Membership:
    AdminRight.objects.create(organisation_id=member.organisation_id, membership=member, right=right, category=category)
    return Membership.objects.select_related("user", "organisation").get(pk=member.pk)


def listed(acme: Organisation, slug: str, *rules: Rule) -> Role:
    role = Role.objects.create(organisation=acme, slug=slug, name=slug, mode="listed")
    set_role_rules(role, rules, actor=None)
    return role


def has(role: Role, member: Membership) -> None:
    RoleMembership.objects.create(organisation=role.organisation, role=role, membership=member)


@pytest.fixture
def catalogue(in_acme: Organisation) -> None:
    for category, names in {"web": ("fetch", "http_post"), "file": ("file_read",)}.items():
        for name in names:
            make_tool(in_acme, name, category=make_category(in_acme, category))


@pytest.fixture
def web(acme: Organisation, catalogue: None, bob: Membership) -> Role:
    """Bob's role: `web`, without `http_post`."""
    role = listed(acme, "web", Rule("allow", category="web"), Rule("deny", tool="http_post"))
    has(role, bob)
    return role


# -- What the first inspection found ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
def test_with_the_right_catalogue_a_forbidden_tool_is_not_moved_to_a_category_of_ones_own(bob: Membership) -> None:
    bob = give_right(bob, Right.CATALOGUE)
    tool = Tool.objects.get(name="file_read")

    with pytest.raises(ChangeForbidden, match="your own rights, by file_read: only an admin may") as told:
        move_tool(tool, "web", actor=bob)

    assert told.value.field == "category"
    assert Tool.objects.get(name="file_read").category.name == "file"
    assert usable(bob) == {"fetch"}
    assert not AuditEntry.objects.filter(action="tool.move").exists()


@pytest.mark.usefixtures("catalogue")
def test_a_tool_can_be_moved_if_the_own_access_stays_the_same(bob: Membership) -> None:
    move_tool(Tool.objects.get(name="file_read"), "web", actor=give_right(bob, Right.CATALOGUE))

    assert Tool.objects.get(name="file_read").category.name == "web"


def test_a_tool_is_not_moved_to_where_one_administers_more(bob: Membership, catalogue: None) -> None:
    give_right(bob, Right.ROLES, "web")
    bob = give_right(bob, Right.CATALOGUE)

    with pytest.raises(ChangeForbidden, match="file_read"):
        move_tool(Tool.objects.get(name="file_read"), "web", actor=bob)


WIDER: dict[str, Callable[[Role, Membership], object]] = {
    "assign": lambda role, bob: assign_role(Role.objects.get(slug="everything"), [bob], actor=bob),
    "set": lambda role, bob: set_roles_of(bob, ["web", "everything"], actor=bob),
    "mode": lambda role, bob: update_role(role, RoleContent("web", "Web", mode="all"), actor=bob),
    "rules": lambda role, bob: set_role_rules(role, [Rule("allow", category="web")], actor=bob),
    "grant": lambda role, bob: give_grant(GrantContent(bob.public_id, "allow", tool="http_post"), actor=bob),
    "category": lambda role, bob: give_grant(GrantContent(bob.public_id, "allow", category="file"), actor=bob),
    "later": lambda role, bob: update_grant(deny_of(bob), reason="", expires_at=soon(), actor=bob),
    "revoke": lambda role, bob: revoke_grant(deny_of(bob), actor=bob),
    "longer": lambda role, bob: update_grant(
        Grant.objects.get(membership=bob, effect="allow"), reason="", expires_at=soon(9), actor=bob
    ),
}


def soon(minutes: int = 2) -> Any:
    return timezone.now() + timedelta(minutes=minutes)


def deny_of(member: Membership) -> Grant:
    return Grant.objects.select_related("tool__category", "category", "membership__user").get(
        membership=member, effect="deny"
    )


@pytest.mark.parametrize("how", WIDER)
def test_with_the_right_roles_nobody_opens_more_to_themselves(
    how: str, acme: Organisation, web: Role, alice: Membership, bob: Membership
) -> None:
    make_role(acme, alice, slug="everything")
    own = {"organisation": acme, "membership": bob}
    Grant.objects.create(**own, tool=Tool.objects.get(name="fetch"), effect="deny")
    Grant.objects.create(**own, tool=Tool.objects.get(name="file_read"), effect="allow", expires_at=soon())
    bob = give_right(bob, Right.ROLES)
    rows = AuditEntry.objects.count()

    with pytest.raises(ChangeForbidden, match="Ask an admin"):
        WIDER[how](web, bob)

    assert AuditEntry.objects.count() == rows
    assert usable(bob) == {"file_read"}


def test_narrowing_oneself_is_nobodys_business(acme: Organisation, web: Role, bob: Membership) -> None:
    make_role(acme, bob, slug="everything")
    bob = give_right(bob, Right.ROLES)

    set_roles_of(bob, ["web"], actor=bob)
    give_grant(GrantContent(bob.public_id, "deny", tool="fetch"), actor=bob)

    assert usable(bob) == set()


def test_an_admin_widens_their_own_use_on_record(acme: Organisation, alice: Membership, catalogue: None) -> None:
    role = listed(acme, "file", Rule("allow", category="file"))

    assign_role(role, [alice], actor=alice)

    assert usable(alice) == {"file_read"}
    row = AuditEntry.objects.get(action="member.widen_own")
    assert (row.actor_id, row.target_id) == (alice.pk, str(alice.public_id))
    assert row.after == {"by": "assign_role", "count": 1, "tools": ["file_read"]}


def test_what_an_admin_switched_off_nobody_below_switches_on_for_themselves(
    acme: Organisation, web: Role, alice: Membership, bob: Membership
) -> None:
    bob = give_right(bob, Right.CATALOGUE)
    fetch, file_read = Tool.objects.get(name="fetch"), Tool.objects.get(name="file_read")
    set_tools_enabled(["fetch", "file_read"], False, actor=alice)

    with pytest.raises(ChangeForbidden, match="fetch"):
        set_tool_enabled(fetch, True, actor=bob)
    with pytest.raises(ChangeForbidden, match="fetch"):
        set_tools_enabled(["fetch", "file_read"], True, actor=bob)
    set_tool_enabled(file_read, True, actor=bob)  # he may not use it

    set_tool_enabled(fetch, True, actor=alice)
    set_tool_enabled(fetch, False, actor=bob)
    set_tool_enabled(fetch, True, actor=bob)  # what he switched off himself
    assert Tool.objects.get(name="fetch").is_enabled


# -- Members of higher access -----------------------------------------------------------------------------------------


HIGHER: dict[str, Callable[[Membership, Membership], object]] = {
    "give": lambda alice, bob: give_grant(GrantContent(alice.public_id, "deny", tool="fetch"), actor=bob),
    "update": lambda alice, bob: update_grant(deny_of(alice), reason="x", expires_at=None, actor=bob),
    "revoke": lambda alice, bob: revoke_grant(deny_of(alice), actor=bob),
    "assign": lambda alice, bob: assign_role(Role.objects.get(slug="web"), [alice], actor=bob),
    "unassign": lambda alice, bob: unassign_role(Role.objects.get(slug="everything"), [alice], actor=bob),
    "set": lambda alice, bob: set_roles_of(alice, [], actor=bob),
    "delete role": lambda alice, bob: delete_role(Role.objects.get(slug="everything"), actor=bob),
    "delete category": lambda alice, bob: delete_category(Category.objects.get(name="empty"), actor=bob),
    "grant request": lambda alice, bob: grant_request(GrantRequest.objects.get(), hours=1, actor=bob),
    "refuse request": lambda alice, bob: refuse_request(GrantRequest.objects.get(), answer="no", actor=bob),
    "mode of a role": lambda alice, bob: update_role(
        role_of(alice), RoleContent("everything", "everything", mode="none"), actor=bob
    ),
    "words of a role": lambda alice, bob: update_role(
        role_of(alice), RoleContent("everything", "Mine", mode="all"), actor=bob
    ),
    "rules of a role": lambda alice, bob: set_role_rules(role_of(alice), [Rule("deny", tool="fetch")], actor=bob),
    "rules of roles": lambda alice, bob: set_rules_of_roles(
        {role_of(alice): [Rule("allow", tool="fetch")]}, actor=bob, stamp=stamp_of([role_of(alice)])
    ),
}


@pytest.mark.usefixtures("web")
def test_a_request_of_a_member_of_higher_access_waits_for_somebody_else(alice: Membership, bob: Membership) -> None:
    ask_for_grant(RequestContent(tool="http_post", reason="please"), member=alice)
    bob = give_right(bob, Right.ROLES)

    assert (requests_notice(bob), waiting_for(bob).requests) == ((0, ""), [])

    bob.access = Access.ADMIN
    bob.save()
    assert requests_notice(bob)[0] == 1


def role_of(member: Membership) -> Role:
    return Role.objects.get(role_memberships__membership=member)


@pytest.mark.parametrize("how", HIGHER)
@pytest.mark.usefixtures("web")
def test_nothing_of_a_member_of_higher_access_is_changed(
    how: str, acme: Organisation, alice: Membership, bob: Membership
) -> None:
    make_role(acme, alice, slug="everything")
    own = {"organisation": acme, "membership": alice}
    Grant.objects.create(**own, tool=Tool.objects.get(name="http_post"), effect="deny")
    Grant.objects.create(**own, category=make_category(acme, "empty"), effect="allow")
    ask_for_grant(RequestContent(tool="http_post", reason="please"), member=alice)
    bob.access = Access.OPERATOR
    bob.save()
    before = rows_of([alice])

    with pytest.raises(ChangeForbidden, match=r"Alice has .*more access than you.* Ask an admin"):
        HIGHER[how](alice, bob)

    assert rows_of([alice]) == before


def test_a_role_of_ones_peers_alone_is_changed_as_before(
    acme: Organisation, web: Role, alice: Membership, bob: Membership
) -> None:
    make_role(acme, alice, slug="everything")
    has(web, make_member(acme, "peer"))

    set_role_rules(web, [], actor=give_right(bob, Right.ROLES))

    assert usable(bob) == set()


def test_a_role_of_who_has_left_is_changed_as_before(acme: Organisation, web: Role, bob: Membership) -> None:
    boss = make_member(acme, "boss", Access.ADMIN)
    has(web, boss)
    Membership.objects.filter(pk=boss.pk).update(ended_at=timezone.now())

    set_role_rules(web, [], actor=give_right(bob, Right.ROLES))

    assert usable(bob) == set()


@pytest.mark.usefixtures("web")
def test_one_who_is_admin_alone_changes_the_role_that_they_have(acme: Organisation, alice: Membership) -> None:
    role = make_role(acme, alice, slug="everything")

    update_role(role, RoleContent("everything", "All of it", mode="listed", rules=()), actor=alice)

    assert usable(alice) == set()


def test_a_stronger_peers_password_is_not_reset(acme: Organisation, web: Role, bob: Membership) -> None:
    peer = make_member(acme, "peer")
    bob = give_right(bob, Right.MEMBERS)
    _, secret = issue_reset_link(peer, actor=bob)

    make_role(acme, peer)

    with pytest.raises(Forbidden, match="Peer may use what you may not: file_read, http_post"):
        issue_reset_link(peer, actor=bob)
    with pytest.raises(LinkDead):  # made while the peer was weaker
        reset_link_by_secret(secret)
    assert ResetLink.objects.count() == 1


def test_an_admin_resets_anybodys_password(
    in_acme: Organisation, acme: Organisation, alice: Membership, bob: Membership
) -> None:
    make_role(acme, bob)

    _, secret = issue_reset_link(bob, actor=alice)

    assert reset_link_by_secret(secret).membership == bob


def test_an_invitation_to_more_access_is_not_taken_back_or_replaced(
    acme: Organisation, in_acme: Organisation, alice: Membership, bob: Membership
) -> None:
    invitation, _ = invite("boss@example.com", Access.ADMIN, actor=alice)
    bob = give_right(bob, Right.MEMBERS)

    with pytest.raises(Forbidden, match="more access than you"):
        revoke_invitation(invitation, actor=bob)
    with pytest.raises(Forbidden, match="more access than you"):
        invite("boss@example.com", Access.MEMBER, actor=bob)
    key = Rest(alice).get("invitations").json["results"][0]["id"]
    reply = Rest(bob).ask("DELETE", f"invitations/{key}")

    assert reply.error == (403, "forbidden", None)
    assert Invitation.objects.get().revoked_at is None


# -- How it is said ---------------------------------------------------------------------------------------------------


def change(rest: Rest, method: str, path: str, **body: Any) -> Reply:
    return rest.ask(method, path, json.dumps(body).encode())


def test_rest_answers_403_with_the_field_at_fault(web: Role, alice: Membership, bob: Membership) -> None:
    give_right(bob, Right.CATALOGUE)
    rest = Rest(give_right(bob, Right.ROLES))
    key = next(each["id"] for each in Rest(alice).get("members").json["results"] if each["name"] == "Bob")

    assert change(rest, "PUT", f"members/{key}/roles", roles=["web"]).status == 200
    assert change(rest, "PATCH", "roles/web", mode="all").error == (403, "forbidden", "rules")
    has(listed(alice.organisation, "boss"), alice)
    for part in ({"mode": "all"}, {"name": "Mine"}, {"rules": [{"tool": "fetch"}]}):
        assert change(rest, "PATCH", "roles/boss", **part).error == (403, "forbidden", "rules")
    assert change(rest, "PATCH", "tools/file_read", category="web").error == (403, "forbidden", "category")
    assert rest.post("grants", {"member": key, "tool": "file_read", "effect": "allow"}).error == (
        403,
        "forbidden",
        "member",
    )


def test_a_page_says_so_beside_the_form(acme: Organisation, web: Role, bob: Membership, client: Client) -> None:
    give_right(bob, Right.ROLES)
    give_right(bob, Right.CATALOGUE)
    client.login(email="bob@example.com", password=PASSWORD)
    words = "only an admin may. Ask an admin."

    form = {"member": "bob@example.com", "effect": "allow", "tool": "file_read", "reason": "mine", "until": "8h"}
    reply = client.post("/o/acme/grants/new/", form)
    assert (reply.status_code, words in reply.content.decode()) == (422, True)

    reply = client.post("/o/acme/tools/file_read/move/", {"category": "web"}, follow=True)
    assert words in reply.content.decode()


# -- Every write ------------------------------------------------------------------------------------------------------


def test_every_write_of_configuration_is_in_the_table() -> None:
    assert found_writes() == {*TABLE, *NOT_IN_TABLE}


def test_every_write_of_the_table_is_guarded() -> None:
    guarded = {name.replace("._change_rights", "") for name in authority.WRITES}
    assert {name for name in TABLE if name not in NOT_GUARDED} == guarded - {"toolhub.tenants.people.writes"}


def test_writes_fail_while_powers_of_each_is_not_provided(
    monkeypatch: pytest.MonkeyPatch, alice: Membership, in_acme: Organisation
) -> None:
    monkeypatch.setattr(authority.powers_of_each, "_function", None)

    with pytest.raises(RuntimeError, match="powers_of_each"):
        create_category("x", CategoryContent("X"), actor=alice)


def rows_of(members: list[Membership]) -> dict[str, list[Any]]:
    """Everything that is these members'."""
    keys = [member.pk for member in members]
    found: dict[str, list[Any]] = {"Membership": list(Membership.objects.filter(pk__in=keys).order_by("pk").values())}
    models: list[Any] = [AdminRight, Grant, GrantRequest, RoleMembership, ResetLink]
    roles = Role.objects.filter(role_memberships__membership__in=keys).distinct()
    found["Role"] = list(roles.order_by("pk").values("pk", "slug", "name", "description", "mode"))
    rules = RoleRule.objects.filter(role__in=[role["pk"] for role in found["Role"]])
    found["RoleRule"] = list(rules.order_by("pk").values())
    for model in models:
        found[model.__name__] = list(model.objects.filter(membership__in=keys).order_by("pk").values())
    tokens = ApiToken.objects.filter(membership__in=keys).order_by("pk")
    found["ApiToken"] = list(tokens.values_list("pk", "revoked_at"))
    return found


def random_organisation(acme: Organisation, dice: random.Random) -> Membership:
    """Returns the actor: anybody but an admin, with delegated rights by the dice."""
    own = {"organisation": acme}
    categories = [make_category(acme, name) for name in ("web", "file", "mail")]
    tools = [make_tool(acme, f"{row.name}_{each}", category=row) for row in categories for each in "ab"]
    make_tool(acme, "load_tools", category=make_category(acme, "dynamic"))
    make_agent(acme, base_url="https://api.openai.com/v1")
    make_toolkit(acme, "kit", tools[0])
    server = McpServer.objects.create(**own, name="s", title="S", is_enabled=False, off_by_admin=dice.random() < 0.5)
    Tool.objects.filter(pk=make_tool(acme, "mcp__s__a", category=categories[0]).pk).update(kind="mcp", server=server)
    model, version = LanguageModel.objects.get(), tools[0].current_version
    assert version is not None
    told = {"sha256": "0" * 64, "origin": "o", "words": "No.", "refused_at": timezone.now()}
    ToolRefusal.objects.create(**own, tool=tools[0], model=model, version=version, **told)
    actor = make_member(acme, "actor", dice.choice([Access.VIEWER, Access.MEMBER, Access.MEMBER, Access.OPERATOR]))
    people = [actor, make_member(acme, "boss", Access.ADMIN), make_member(acme, "operator", Access.OPERATOR)]
    people += [make_member(acme, name) for name in ("peer", "other")]
    for number, mode in enumerate(("listed", "listed", "all", "none")):
        role = Role.objects.create(**own, slug=f"r{number}", name=f"R{number}", mode=mode)
        for tool in dice.sample(tools, 2):
            RoleRule.objects.create(**own, role=role, tool=tool, effect=dice.choice(Effect.values))
        RoleRule.objects.create(**own, role=role, category=dice.choice(categories), effect="allow")
        for member in dice.sample(people, 2):
            if member != actor or mode != "all":
                RoleMembership.objects.create(**own, role=role, membership=member)
    for member in people * 2:
        named = {"tool": dice.choice(tools)} if dice.random() < 0.6 else {"category": dice.choice(categories)}
        ends = dice.choice([None, None, timezone.now() + timedelta(hours=1)])
        Grant.objects.create(**own, membership=member, effect=dice.choice(Effect.values), expires_at=ends, **named)
    for right in Right:
        if dice.random() < 0.7:
            limited = right in CATEGORY_RIGHTS and dice.random() < 0.3
            give_right(actor, right, dice.choice(categories).name if limited else "")
    for member in (people[1], people[3]):
        GrantRequest.objects.create(**own, membership=member, tool=dice.choice(tools), reason="x", hours=1)
        make_token(member)
    Invitation.objects.create(
        **own, email="waiting@example.com", access=Access.ADMIN, digest="x", created_by=people[1], expires_at=soon()
    )
    return Membership.objects.select_related("user", "organisation").get(pk=actor.pk)


def at_the_end(member: Membership) -> set[str]:
    """What the member may use when every grant that has an end has ended."""
    with transaction.atomic():
        Grant.objects.exclude(expires_at=None).delete()
        found = usable(member)
        transaction.set_rollback(True)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_no_write_widens_its_actors_own_use_or_changes_anybody_above(in_acme: Organisation, seed: int) -> None:
    """Every write of the table, twice, in an order by the dice."""
    dice = random.Random(seed)
    actor = random_organisation(in_acme, dice)
    above = list(Membership.objects.filter(access__in=authority.higher_than(actor)))
    known = set(Tool.objects.values_list("name", flat=True))
    now, later, rows = usable(actor), at_the_end(actor), rows_of(above)
    own = rows_of([actor])
    writes = {**TABLE, **OWN_WRITES}
    order = [*writes] * 2
    dice.shuffle(order)
    done = 0
    for name in order:
        TAKEN_OVER.clear()
        fresh = Membership.objects.select_related("user", "organisation").get(pk=actor.pk)
        try:
            with transaction.atomic():
                writes[name](Dice(dice, fresh), fresh)
        except (PermissionDenied, ChangeRefused, MemberRefused, RolesChanged, IndexError):
            continue
        done += 1
        assert usable(actor) & known <= now, name
        assert at_the_end(actor) & known <= later, name
        assert rows_of(above) == rows, name
        assert rows_of([actor])["AdminRight"] == own["AdminRight"], name
        assert all(usable(member) <= usable(actor) for member in TAKEN_OVER), name
        now, later = now & usable(actor), later & at_the_end(actor)
    assert done > 5


def test_the_queries_do_not_grow_with_what_there_is(
    acme: Organisation, in_acme: Organisation, alice: Membership, bob: Membership
) -> None:
    bob = give_right(bob, Right.CATALOGUE)

    def queries() -> int:
        member = Membership.objects.select_related("user", "organisation").get(pk=bob.pk)
        member.reach(Right.CATALOGUE)
        with CaptureQueriesContext(
            connection,
        ) as context:
            read_powers([member], timezone.now())
        return len(context)

    few = queries()
    for number in range(3):
        make_tool(acme, f"tool_{number}")
        make_role(acme, bob, slug=f"role-{number}")
        Grant.objects.create(organisation=acme, membership=bob, tool=Tool.objects.latest("pk"), effect="allow")
    assert queries() == few <= 5
