"""Whom a change of roles changes: members by their effective tools, live sessions, tokens."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.access.roles.writes import RoleContent, Rule, create_role, rules_of, set_role_rules, update_role
from capabilities.choosing.pipeline.permissions import key_of as tool_key_of
from capabilities.choosing.pipeline.permissions import permissions_of
from capabilities.common.taken_back import is_tried
from capabilities.models import (
    AgentTool,
    Category,
    Grant,
    Role,
    RoleMembership,
    RoleRule,
    Tool,
    ToolVersion,
)
from sessions.insight.previews.concerned import Group
from sessions.insight.previews.roles import Impact, impact_of_roles
from sessions.models import ChatSession, TurnStatus
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.writes import By, load
from tests.cast import (
    allow_toolkit,
    make_agent,
    make_category,
    make_member,
    make_meta_tools,
    make_session,
    make_tool,
    make_toolkit,
    make_turn,
)
from toolhub.tenants.models import AuditEntry, Membership, Organisation, User
from toolhub.tenants.rows.scope import current_scope, organisation_scope, system_scope

pytestmark = pytest.mark.django_db

FILE = Rule("allow", category="file")
WEB = Rule("allow", category="web")
NO_WRITE = Rule("deny", tool="file_write")


@pytest.fixture
def catalogue(in_acme: Organisation) -> None:
    for category, names in {"file": ("file_read", "file_write"), "web": ("fetch", "search")}.items():
        row = make_category(in_acme, category, is_core=False)
        for name in names:
            make_tool(in_acme, name, category=row)


def make_listed(slug: str, rules: list[Rule], *members: Membership, mode: str = "listed") -> Role:
    own = {"organisation_id": current_scope()}
    role = Role.objects.create(**own, slug=slug, name=slug.title(), mode=mode)
    set_role_rules(role, rules, actor=None)
    for member in members:
        RoleMembership.objects.create(**own, role=role, membership=member)
    return role


def give(member: Membership, effect: str, **fields: Any) -> None:
    Grant.objects.create(organisation=member.organisation, membership=member, effect=effect, **fields)


def listed(role: Role, *rules: Rule) -> Impact:
    return impact_of_roles(lambda: set_role_rules(role, rules, actor=None), [role])


def with_mode(role: Role, mode: str) -> Impact:
    def save() -> None:
        Role.objects.filter(pk=role.pk).update(mode=mode)

    return impact_of_roles(save, [role])


def handed_on(role: Role, *, given: Iterable[Membership] = (), taken: Iterable[Membership] = ()) -> Impact:
    def save() -> None:
        RoleMembership.objects.filter(role=role, membership__in=list(taken)).delete()
        for member in given:
            RoleMembership.objects.create(organisation_id=current_scope(), role=role, membership=member)

    return impact_of_roles(save, [role])


def rules_of_each(wanted: Mapping[Role, Sequence[Rule]]) -> Impact:
    def save() -> None:
        for role, rules in wanted.items():
            set_role_rules(role, rules, actor=None)

    return impact_of_roles(save, wanted)


# -- Members ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("catalogue")
def test_members_with_the_same_change_are_told_together(alice: Membership, bob: Membership) -> None:
    coder = make_listed("coder", [FILE], alice, bob)

    impact = listed(coder, WEB, FILE, NO_WRITE)

    assert impact.groups == (Group(("Alice", "Bob"), ("fetch", "search"), ("file_write",)),)
    assert impact.sentence.startswith("2 members gain 2 tools and ")
    assert " lose file_write; " in impact.sentence


@pytest.mark.usefixtures("catalogue")
def test_what_another_role_opens_is_not_lost(alice: Membership, bob: Membership) -> None:
    coder = make_listed("coder", [FILE], alice, bob)
    make_listed("reader", [Rule("allow", tool="file_read"), WEB], bob)

    impact = listed(coder, WEB)

    assert impact.groups == (
        Group(("Alice",), ("fetch", "search"), ("file_read", "file_write")),
        Group(("Bob",), (), ("file_write",)),
    )


@pytest.mark.usefixtures("catalogue")
def test_a_member_with_a_role_that_opens_all_loses_nothing(bob: Membership) -> None:
    coder = make_listed("coder", [FILE], bob)
    make_listed("all", [], bob, mode="all")

    impact = listed(coder)

    assert (impact.groups, impact.unchanged) == ((), 1)
    assert impact.roles[0].closed == ("file_read", "file_write")
    assert impact.sentence.startswith("No member gains or loses a tool; ")


@pytest.mark.usefixtures("catalogue")
def test_two_roles_that_change_places_change_nothing_for_who_has_both(alice: Membership, bob: Membership) -> None:
    files, web = make_listed("files", [FILE], alice, bob), make_listed("web", [WEB], bob)

    impact = rules_of_each({files: (WEB,), web: (FILE,)})

    assert impact.groups == (Group(("Alice",), ("fetch", "search"), ("file_read", "file_write")),)
    assert impact.unchanged == 1


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(
    ("effect", "named", "hours", "won"),
    [
        ("deny", {"tool": "fetch"}, None, ("search",)),
        ("deny", {"category": "web"}, None, ()),
        ("allow", {"tool": "fetch"}, None, ("search",)),
        ("allow", {"category": "web"}, 1, ()),
        ("deny", {"category": "web"}, -1, ("fetch", "search")),
        ("allow", {"tool": "fetch"}, -1, ("fetch", "search")),
        ("deny", {"category": "file"}, None, ("fetch", "search")),
    ],
)
def test_what_a_grant_in_force_decides_is_neither_won_nor_lost(
    bob: Membership, effect: str, named: dict[str, str], hours: int | None, won: tuple[str, ...]
) -> None:
    coder = make_listed("coder", [FILE], bob)
    tool = Tool.objects.filter(name=named.get("tool")).first()
    category = Category.objects.filter(name=named.get("category")).first()
    until = timezone.now() + timedelta(hours=hours) if hours else None
    give(bob, effect, tool=tool, category=category, expires_at=until)

    impact = listed(coder, FILE, WEB)

    assert [group.won for group in impact.groups] == ([won] if won else [])


@pytest.mark.usefixtures("catalogue")
def test_who_left_or_may_not_sign_in_is_not_counted(alice: Membership, bob: Membership, acme: Organisation) -> None:
    gone = make_member(acme, "gone")
    coder = make_listed("coder", [FILE], alice, bob, gone)
    Membership.objects.filter(pk=gone.pk).update(ended_at=timezone.now())
    with system_scope():
        User.objects.filter(pk=bob.user_id).update(is_active=False)

    impact = listed(coder)

    assert [group.members for group in impact.groups] == [("Alice",)]
    assert impact.roles[0].members == 1


@pytest.mark.usefixtures("catalogue")
def test_modes_count_as_much_as_lines(bob: Membership) -> None:
    coder = make_listed("coder", [FILE], bob)

    everything, nothing = (with_mode(coder, mode) for mode in ("all", "none"))

    assert everything.groups[0].won == ("fetch", "search")
    assert nothing.groups[0].lost == ("file_read", "file_write")


@pytest.mark.usefixtures("catalogue")
def test_a_role_that_is_not_there_yet_changes_nobody(alice: Membership) -> None:
    content = RoleContent("newer", "New", mode="listed", rules=(WEB,))

    impact = impact_of_roles(lambda: create_role(content, actor=alice))

    assert (impact.groups, impact.sessions, impact.unchanged) == ((), 0, 0)
    assert (impact.roles[0].name, impact.roles[0].opened) == ("New", ("fetch", "search"))
    assert not Role.objects.filter(slug="newer").exists()


@pytest.mark.usefixtures("catalogue")
def test_members_of_another_organisation_are_not_seen(charlie: Membership, bob: Membership) -> None:
    with organisation_scope(charlie.organisation):
        row = make_category(charlie.organisation, "web")
        make_tool(charlie.organisation, "secret", category=row)
        make_listed("coder", [WEB], charlie)
    coder = make_listed("coder", [FILE], bob)

    impact = listed(coder, WEB)

    assert impact.groups == (Group(("Bob",), ("fetch", "search"), ("file_read", "file_write")),)


def test_it_says_what_the_rule_of_rights_says_for_everybody(
    in_acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against `Rights.decide` before and after, for members with roles and grants by the dice."""
    dice = random.Random(20_261_122)
    tools = []
    for number in range(4):
        category = make_category(in_acme, f"c{number}")
        tools += [make_tool(in_acme, f"t{number}{each}", category=category) for each in "abc"]
    make_meta_tools(in_acme)
    tools += Tool.objects.filter(category__name="dynamic")
    names = [*(f"c{number}" for number in range(4)), "dynamic"]

    def lines() -> list[Rule]:
        by_category = [Rule(dice.choice(["allow", "deny"]), category=name) for name in names if dice.random() < 0.5]
        return by_category + [
            Rule(dice.choice(["allow", "deny"]), tool=tool.name) for tool in tools if dice.random() < 0.4
        ]

    monkeypatch.setattr("sessions.insight.previews.concerned.GROUPS_SHOWN", 100)
    members = [make_member(in_acme, f"m{number}") for number in range(30)]
    modes = ["listed", "listed", "listed", "all", "none"]
    roles = [
        make_listed(f"r{number}", lines(), *dice.sample(members, 9), mode=mode) for number, mode in enumerate(modes)
    ]
    for member in dice.sample(members, 15):
        tool = dice.choice(tools)
        named = {"tool": tool} if dice.random() < 0.5 else {"category": tool.category}
        hours = dice.choice([1, -1, None])
        until = timezone.now() + timedelta(hours=hours) if hours else None
        give(member, dice.choice(["allow", "deny"]), expires_at=until, **named)
    wanted = []
    for role in roles[:3]:
        has = set(RoleMembership.objects.filter(role=role).values_list("membership_id", flat=True))
        given = frozenset(each.pk for each in members if each.pk not in has and dice.random() < 0.2)
        taken = frozenset(key for key in has if dice.random() < 0.2)
        wanted.append((role, lines(), given, taken))

    def usable() -> dict[str, set[str]]:
        permissions_by_member = {str(member): permissions_of(member) for member in members}
        return {
            name: {tool.name for tool in tools if each.decide(tool_key_of(tool)).allowed}
            for name, each in permissions_by_member.items()
        }

    def save() -> None:
        for role, rules, given, taken in wanted:
            set_role_rules(role, rules, actor=None)
            RoleMembership.objects.filter(role=role, membership__in=taken).delete()
            for key in given:
                RoleMembership.objects.create(organisation_id=current_scope(), role=role, membership_id=key)

    impact = impact_of_roles(save, [role for role, *_ in wanted])
    before = usable()
    save()
    after = usable()

    told = {name: group for group in impact.groups for name in group.members}
    for name in before:
        won, lost = after[name] - before[name], before[name] - after[name]
        group = told.get(name, Group((), (), ()))
        assert (set(group.won), set(group.lost)) == (won, lost), name


# -- Live sessions ----------------------------------------------------------------------------------------------------


def key_of(name: str) -> int:
    return Tool.objects.get(name=name).pk


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(
    ("own", "loaded", "fields", "counts"),
    [
        ("", "file_write", {}, True),
        ("", "file_read", {}, False),
        ("fetch", "file_read", {}, True),
        ("fetch", "", {}, True),
        ("file_write", "", {}, True),
        ("file_read", "", {}, False),
        ("", "", {}, False),
        ("", "file_write", {"hours": 25}, False),
        ("", "file_write", {"hours": 25, "open": True}, True),
    ],
)
def test_a_live_session_counts_where_its_tools_change(
    bob: Membership, acme: Organisation, own: str, loaded: str, fields: dict[str, Any], counts: bool
) -> None:
    coder = make_listed("coder", [FILE], bob)
    agent = make_agent(acme)
    if own:
        AgentTool.objects.create(organisation=acme, agent=agent, tool_id=key_of(own))
    session = make_session(bob, agent)
    if loaded:
        allow_toolkit(agent, make_toolkit(acme, "kit", Tool.objects.get(name=loaded)))
        assert load(LoadTarget(session, agent), "kit", by=By(bob)).status == "loaded"
    make_turn(session, status=TurnStatus.QUEUED if fields.get("open") else TurnStatus.DONE)
    ChatSession.objects.update(active_at=timezone.now() - timedelta(hours=fields.get("hours", 0)))

    assert listed(coder, FILE, NO_WRITE, WEB).sessions == int(counts)


@pytest.mark.usefixtures("catalogue")
def test_a_session_counts_by_what_every_agent_sends_that_it_has_talked_to(bob: Membership, acme: Organisation) -> None:
    coder = make_listed("coder", [FILE], bob)
    writer = make_agent(acme, slug="writer", starts_with_core=False)
    AgentTool.objects.create(organisation=acme, agent=writer, tool_id=key_of("file_write"))
    session = make_session(bob, make_agent(acme))

    assert listed(coder, FILE, NO_WRITE).sessions == 0
    make_turn(session, agent=writer, status=TurnStatus.DONE)
    assert listed(coder, FILE, NO_WRITE).sessions == 1


@pytest.mark.usefixtures("catalogue")
def test_of_many_live_sessions_those_used_last_are_looked_at_and_the_others_counted(
    bob: Membership, acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.insight.previews.roles.SESSIONS_LOOKED_AT", 2)
    coder = make_listed("coder", [FILE], bob)
    agent = make_agent(acme)
    AgentTool.objects.create(organisation=acme, agent=agent, tool_id=key_of("file_write"))
    old, *_ = (make_session(bob, agent) for _ in range(3))
    ChatSession.objects.filter(pk=old.pk).update(agent=make_agent(acme, slug="empty", starts_with_core=False))

    impact = listed(coder)

    assert (impact.sessions, impact.not_looked_at) == (2, 1)
    assert "2 live sessions change" in impact.sentence
    assert "1 more live session was not looked at" in impact.sentence


@pytest.mark.usefixtures("catalogue")
def test_core_tools_count_as_the_agents_and_switched_off_ones_do_not(bob: Membership, acme: Organisation) -> None:
    coder = make_listed("coder", [FILE], bob)
    make_session(bob, make_agent(acme))
    Category.objects.filter(name="web").update(is_core=True)

    assert listed(coder, FILE, WEB).sessions == 1
    Tool.objects.filter(category__name="web").update(is_enabled=False)
    assert listed(coder, FILE, WEB).sessions == 0


@pytest.mark.usefixtures("catalogue")
def test_a_session_of_a_member_who_wins_and_loses_nothing_does_not_count(
    alice: Membership, bob: Membership, acme: Organisation
) -> None:
    coder = make_listed("coder", [FILE], alice, bob)
    make_listed("all", [], bob, mode="all")
    agent = make_agent(acme)
    AgentTool.objects.create(organisation=acme, agent=agent, tool_id=key_of("file_write"))
    for member in (alice, bob):
        make_session(member, agent)

    impact = listed(coder)

    assert impact.sessions == 1
    assert "1 live session changes at its next turn" in impact.sentence


# -- Tokens and words -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("catalogue")
def test_tokens_are_those_of_the_current_versions_role_by_role(bob: Membership) -> None:
    files, web = make_listed("files", [FILE], bob), make_listed("web", [WEB], bob)
    for number, tool in enumerate(Tool.objects.order_by("name"), 1):
        ToolVersion.objects.filter(tool=tool).update(tokens=100 * number)

    impact = rules_of_each({files: (FILE, WEB), web: (FILE,)})

    assert [role.tokens for role in impact.roles] == [100 + 400, 200 + 300 - 100 - 400]
    assert impact.sentence.endswith("; +500 tokens for Files.")


@pytest.mark.usefixtures("catalogue")
def test_the_sentence_tells_three_groups_and_counts_the_others(acme: Organisation) -> None:
    members = [make_member(acme, f"m{number}") for number in range(5)]
    coder = make_listed("coder", [], *members)
    for member, name in zip(members, ["fetch", "search", "file_read", "file_write"], strict=False):
        give(member, "deny", tool=Tool.objects.get(name=name))

    impact = listed(coder, FILE, WEB)

    assert impact.sentence.startswith("1 member gains 3 tools, " * 3 + "2 more ")


# -- Who has a role ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("catalogue")
def test_who_gets_a_role_gains_and_who_loses_it_loses(alice: Membership, bob: Membership) -> None:
    coder = make_listed("coder", [FILE], bob)
    make_listed("surfer", [WEB], alice)

    impact = handed_on(coder, given=[alice], taken=[bob])

    files = ("file_read", "file_write")
    assert impact.groups == (Group(("Alice",), files, ()), Group(("Bob",), (), files))
    assert (impact.roles[0].members, impact.roles[0].given, impact.roles[0].taken) == (1, 1, 1)


@pytest.mark.usefixtures("catalogue")
def test_tools_of_another_role_or_a_grant_are_not_lost_with_a_role(alice: Membership, bob: Membership) -> None:
    coder = make_listed("coder", [FILE], alice, bob)
    make_listed("reader", [Rule("allow", tool="file_read")], alice)
    give(bob, "allow", tool=Tool.objects.get(name="file_write"))

    impact = handed_on(coder, taken=[alice, bob])

    assert impact.groups == (Group(("Alice",), (), ("file_write",)), Group(("Bob",), (), ("file_read",)))


@pytest.mark.usefixtures("catalogue")
def test_the_last_role_takes_the_tools_that_load_others_along(acme: Organisation, bob: Membership) -> None:
    make_meta_tools(acme)
    coder = make_listed("coder", [FILE], bob)

    impact = handed_on(coder, taken=[bob])

    assert "load_tools" in impact.groups[0].lost


# -- How much it takes ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("catalogue")
def test_it_takes_the_same_queries_for_more_of_everything(acme: Organisation) -> None:
    def grow(start: int, end: int) -> None:
        for number in range(start, end):
            member = make_member(acme, f"m{number}")
            RoleMembership.objects.create(organisation=acme, role=coder, membership=member)
            make_listed(f"other-{number}", [WEB], member)
            tool = make_tool(acme, f"tool_{number}", category=Category.objects.get(name="file"))
            give(member, "deny", tool=tool)
            agent = make_agent(acme, slug=f"agent-{number}")
            AgentTool.objects.create(organisation=acme, agent=agent, tool=tool)
            make_turn(make_session(member, agent))

    coder = make_listed("coder", [FILE])
    grow(0, 1)
    with CaptureQueriesContext(connection) as few:
        listed(coder)
    grow(1, 6)
    with CaptureQueriesContext(connection) as many:
        listed(coder)

    assert len(few) == len(many) <= 40


@pytest.mark.usefixtures("catalogue")
@pytest.mark.django_db(transaction=True)
def test_a_preview_leaves_nothing_behind_and_rings_nobody(alice: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    coder = make_listed("coder", [FILE], alice)
    rung: list[str] = []
    organisation = Organisation.objects.get(pk=current_scope())
    audited = AuditEntry.objects.count()

    def save() -> None:
        assert is_tried()
        update_role(coder, RoleContent("renamed", "Renamed", mode="all", rules=(WEB,)), taken=[alice], actor=alice)
        transaction.on_commit(lambda: rung.append("rung"))

    impact = impact_of_roles(save, [coder])

    assert (impact.roles[0].name, impact.roles[0].taken) == ("Coder", 1)
    stored = Role.objects.get(pk=coder.pk)
    assert (stored.slug, stored.mode, rules_of(stored)) == ("coder", "listed", [FILE])
    assert RoleMembership.objects.filter(role=coder, membership=alice).exists()
    version = organisation.registry_version
    organisation.refresh_from_db()
    assert (organisation.registry_version, AuditEntry.objects.count(), rung) == (version, audited, [])
    assert not is_tried()


@pytest.mark.long
def test_it_is_quick_for_a_thousand_members_and_ten_thousand_tools(in_acme: Organisation) -> None:
    own = {"organisation": in_acme}
    categories = [make_category(in_acme, f"c{number}") for number in range(50)]
    tools = Tool.objects.bulk_create(
        Tool(**own, category=categories[number % 50], name=f"tool_{number:05}") for number in range(10_000)
    )
    with system_scope():
        users = User.objects.bulk_create(User(email=f"u{number}@example.com") for number in range(1_000))
        members = Membership.objects.bulk_create(Membership(**own, user=user) for user in users)
    roles = [Role.objects.create(**own, slug=f"r{number}", name="R", mode="listed") for number in range(20)]
    RoleRule.objects.bulk_create(
        RoleRule(**own, role=role, category=categories[number]) for number, role in enumerate(roles)
    )
    RoleMembership.objects.bulk_create(
        RoleMembership(**own, role=role, membership=member)
        for number, member in enumerate(members)
        for role in {roles[0], roles[1 + number % 19], roles[1 + number % 7]}
    )
    Grant.objects.bulk_create(
        Grant(**own, membership=member, tool=tools[number * 7], effect="deny") for number, member in enumerate(members)
    )
    agent = make_agent(in_acme)
    ChatSession.objects.bulk_create(
        ChatSession(**own, membership=member, agent=agent, tool_order={str(agent.pk): [tools[0].pk]})
        for member in members
    )

    start = time.process_time()
    impact = with_mode(roles[0], "all")
    took = time.process_time() - start

    assert sum(len(group.members) for group in impact.groups) + impact.others == 1_000
    assert took < 2, took
