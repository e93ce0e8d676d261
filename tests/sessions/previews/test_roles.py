"""Whom a change of roles changes: members by their effective tools, live sessions, tokens."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.access.previews import NewRole
from capabilities.access.roles.writes import Rule, set_role_rules
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
from capabilities.pipeline.permissions import key_of as tool_key_of
from capabilities.pipeline.permissions import standing_of
from sessions.models import ChatSession, TurnStatus
from sessions.previews.concerned import Group
from sessions.previews.roles import Impact, impact_of
from tests.cast import make_agent, make_category, make_member, make_meta_tools, make_session, make_tool, make_turn
from toolhub.tenants.models import Membership, Organisation, User
from toolhub.tenants.scope import current_scope, organisation_scope, system_scope

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
    return impact_of([NewRole(role, "listed", rules)])


# -- Members ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("catalogue")
def test_members_with_the_same_change_are_told_together(alice: Membership, bob: Membership) -> None:
    coder = make_listed("coder", [FILE], alice, bob)

    impact = listed(coder, WEB, FILE, NO_WRITE)

    assert impact.groups == (Group(("Alice", "Bob"), ("fetch", "search"), ("file_write",)),)
    assert impact.sentence.startswith("2 members gain 2 tools and lose file_write; ")


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

    impact = impact_of([NewRole(files, "listed", (WEB,)), NewRole(web, "listed", (FILE,))])

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

    everything, nothing = (impact_of([NewRole(coder, mode, (FILE,))]) for mode in ("all", "none"))

    assert everything.groups[0].won == ("fetch", "search")
    assert nothing.groups[0].lost == ("file_read", "file_write")


@pytest.mark.usefixtures("catalogue")
def test_a_role_that_is_not_there_yet_changes_nobody(acme: Organisation) -> None:
    role = Role(organisation=acme, slug="new", name="New")

    impact = listed(role, WEB, Rule("allow", tool="missing"))

    assert (impact.groups, impact.sessions, impact.unchanged) == ((), 0, 0)
    assert impact.roles[0].opened == ("fetch", "search")


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

    monkeypatch.setattr("sessions.previews.concerned.GROUPS_SHOWN", 100)
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
        wanted.append(NewRole(role, "listed", tuple(lines()), given, taken))

    def usable() -> dict[str, set[str]]:
        standings = {str(member): standing_of(member) for member in members}
        return {
            name: {tool.name for tool in tools if each.decide(tool_key_of(tool)).allowed}
            for name, each in standings.items()
        }

    impact = impact_of(wanted)
    before = usable()
    for new in wanted:
        set_role_rules(new.role, new.rules or (), actor=None)
        RoleMembership.objects.filter(role=new.role, membership__in=new.taken).delete()
        for key in new.given:
            RoleMembership.objects.create(organisation_id=current_scope(), role=new.role, membership_id=key)
    after = usable()

    told = {name: group for group in impact.groups for name in group.members}
    for name in before:
        won, lost = after[name] - before[name], before[name] - after[name]
        group = told.get(name, Group((), (), ()))
        assert (set(group.won), set(group.lost)) == (won, lost), name


# -- Live sessions ----------------------------------------------------------------------------------------------------


def send(session: ChatSession, order: dict[str, list[int]], moment: datetime) -> None:
    session.tool_order, session.active_at = order, moment
    session.save()


def key_of(name: str) -> int:
    return Tool.objects.get(name=name).pk


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(
    ("own", "sent", "fields", "counts"),
    [
        ((), ["file_write"], {}, True),
        ((), ["file_read"], {}, False),
        (("fetch",), ["file_read"], {}, True),
        (("fetch",), None, {}, True),
        (("file_write",), None, {}, True),
        (("file_write",), [], {}, False),
        (("file_read",), None, {}, False),
        ((), ["file_write"], {"hours": 25}, False),
        ((), ["file_write"], {"hours": 25, "open": True}, True),
    ],
)
def test_a_live_session_counts_where_its_tools_change(
    bob: Membership,
    acme: Organisation,
    own: tuple[str, ...],
    sent: list[str] | None,
    fields: dict[str, Any],
    counts: bool,
) -> None:
    coder = make_listed("coder", [FILE], bob)
    agent = make_agent(acme)
    for name in own:
        AgentTool.objects.create(organisation=acme, agent=agent, tool_id=key_of(name))
    session = make_session(bob, agent)
    make_turn(session, status=TurnStatus.QUEUED if fields.get("open") else TurnStatus.DONE)
    order = {} if sent is None else {str(agent.pk): [key_of(name) for name in sent]}
    moment = timezone.now() - timedelta(hours=fields.get("hours", 0))
    send(session, order, moment)

    assert listed(coder, FILE, NO_WRITE, WEB).sessions == int(counts)


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
    for member in (alice, bob):
        send(make_session(member, agent), {str(agent.pk): [key_of("file_write")]}, timezone.now())

    impact = listed(coder)

    assert impact.sessions == 1
    assert "1 live session changes at its next turn" in impact.sentence


# -- Tokens and words -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("catalogue")
def test_tokens_are_those_of_the_current_versions_role_by_role(bob: Membership) -> None:
    files, web = make_listed("files", [FILE], bob), make_listed("web", [WEB], bob)
    for number, tool in enumerate(Tool.objects.order_by("name"), 1):
        ToolVersion.objects.filter(tool=tool).update(tokens=100 * number)

    impact = impact_of([NewRole(files, "listed", (FILE, WEB)), NewRole(web, "listed", (FILE,))])

    assert [role.tokens for role in impact.roles] == [100 + 400, 200 + 300 - 100 - 400]
    assert impact.sentence == "No member gains or loses a tool; +500 tokens for Files."


@pytest.mark.usefixtures("catalogue")
def test_the_sentence_tells_three_groups_and_counts_the_others(acme: Organisation) -> None:
    members = [make_member(acme, f"m{number}") for number in range(5)]
    coder = make_listed("coder", [], *members)
    for member, name in zip(members, ["fetch", "search", "file_read", "file_write"], strict=False):
        give(member, "deny", tool=Tool.objects.get(name=name))

    impact = listed(coder, FILE, WEB)

    assert impact.sentence.startswith("1 member gains 3 tools, 1 member gains 3 tools, 1 member gains 3 tools, 2 more ")


# -- Who has a role ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("catalogue")
def test_who_gets_a_role_gains_and_who_loses_it_loses(alice: Membership, bob: Membership) -> None:
    coder = make_listed("coder", [FILE], bob)
    make_listed("surfer", [WEB], alice)

    new = NewRole(coder, "listed", None, given=frozenset({alice.pk}), taken=frozenset({bob.pk}))
    impact = impact_of([new])

    files = ("file_read", "file_write")
    assert impact.groups == (Group(("Alice",), files, ()), Group(("Bob",), (), files))
    assert (impact.roles[0].members, impact.roles[0].given, impact.roles[0].taken) == (1, 1, 1)


@pytest.mark.usefixtures("catalogue")
def test_what_another_role_or_a_grant_opens_is_not_lost_with_a_role(alice: Membership, bob: Membership) -> None:
    coder = make_listed("coder", [FILE], alice, bob)
    make_listed("reader", [Rule("allow", tool="file_read")], alice)
    give(bob, "allow", tool=Tool.objects.get(name="file_write"))

    impact = impact_of([NewRole(coder, "listed", None, taken=frozenset({alice.pk, bob.pk}))])

    assert impact.groups == (Group(("Alice",), (), ("file_write",)), Group(("Bob",), (), ("file_read",)))


@pytest.mark.usefixtures("catalogue")
def test_the_last_role_takes_the_tools_that_load_others_along(acme: Organisation, bob: Membership) -> None:
    make_meta_tools(acme)
    coder = make_listed("coder", [FILE], bob)

    impact = impact_of([NewRole(coder, "listed", None, taken=frozenset({bob.pk}))])

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

    assert len(few) == len(many) <= 8


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
    impact = impact_of([NewRole(roles[0], "all", ())])
    took = time.process_time() - start

    assert sum(len(group.members) for group in impact.groups) + impact.others == 1_000
    assert took < 2, took
