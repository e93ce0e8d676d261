"""MR-28 at the doors that are no address of a page: delegation, schedules, /mcp, open turns, and who may change it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from capabilities.access.roles.writes import assign_role
from capabilities.agents.agents.writes import agent_content, update_agent
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.models import Agent, AgentRoom, Offer, Role, RoleMembership, is_offered
from sessions.doors.chats.queries import agents_to_talk_to
from sessions.doors.mcp_server.callers import address_of
from sessions.doors.schedules import periodic
from sessions.doors.schedules.writes import ScheduleContent, add_schedule
from sessions.insight.explain.reasons import Asked
from sessions.insight.explain.why import Subject, explain
from sessions.loop.calls.delegation import order_of
from sessions.loop.tools.execution import Outcome
from sessions.models import Schedule, TurnStatus
from sessions.turns import reaping
from sessions.turns.accepting import accept
from sessions.turns.fencing import Conflict
from tests.cast import allow_toolkit, make_agent, make_session, make_toolkit, make_turn
from tests.sessions.doors.schedules.test_periodic import schedule
from tests.sessions.steps import accepted, reread
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Right

pytestmark = pytest.mark.django_db


@pytest.fixture
def legal(alice: Membership, bob: Membership, in_acme: Any) -> Agent:
    """Offered to members of the role lawyers; nobody is one yet."""
    make_agent(alice.organisation, slug="starter")
    agent = make_agent(alice.organisation, slug="legal", role="Reads contracts.", offered_to=Offer.ROLES)
    lawyers = Role.objects.create(organisation=alice.organisation, slug="lawyers", name="Lawyers")
    AgentRoom.objects.create(organisation=alice.organisation, agent=agent, role=lawyers)
    return agent


def enter(member: Membership) -> None:
    role = Role.objects.get(slug="lawyers")
    RoleMembership.objects.create(organisation=member.organisation, role=role, membership=member)


def leave(member: Membership) -> None:
    RoleMembership.objects.filter(membership=member, role__slug="lawyers").delete()


def delegated(member: Membership, agent: str) -> Any:
    turn = make_turn(make_session(member, Agent.objects.get(slug="starter")), "go")
    return order_of(turn, {"agent": agent, "message": "Read it."})


def test_mr_28_one_rule_says_to_whom_an_agent_is_offered(legal: Agent, alice: Membership, bob: Membership) -> None:
    starter = Agent.objects.get(slug="starter")
    enter(bob)

    assert {(each.slug, who.pk) for each in (starter, legal) for who in (alice, bob) if is_offered(each, who)} == {
        ("starter", alice.pk),
        ("starter", bob.pk),
        ("legal", bob.pk),
    }
    assert [each.slug for each in agents_to_talk_to(alice)] == ["starter"]
    assert [each.slug for each in Agent.objects.seen_by(alice).order_by("pk")] == ["starter", "legal"]


def test_mr_28_an_agent_hands_on_to_those_that_its_member_is_offered(legal: Agent, bob: Membership) -> None:
    hidden, missing = delegated(bob, "legal"), delegated(bob, "no-such-agent")
    enter(bob)
    shown, order = delegated(bob, "no-such-agent"), delegated(bob, "legal")

    assert isinstance(hidden, Outcome)
    assert (hidden.result, "legal" in hidden.result) == (missing.result, False)
    assert "legal (Reads contracts.)" in json.loads(shown.result)["error"]
    assert order.agent == legal


def test_mr_28_clients_of_mcp_find_no_agent_and_no_toolkit_of_one(legal: Agent, bob: Membership) -> None:
    allow_toolkit(legal, make_toolkit(bob.organisation, "contracts"))
    paths = ("/mcp/legal", "/mcp/toolkit/contracts")

    before = [address_of(path, bob) for path in paths]
    enter(bob)

    assert before == [None, None]
    assert [found.agent for path in paths if (found := address_of(path, bob))] == [legal, legal]


def test_mr_28_a_schedule_names_an_agent_that_its_member_is_offered(legal: Agent, bob: Membership) -> None:
    wanted = ScheduleContent("Daily", "0 9 * * *", "Read the contracts.", "legal", "UTC")
    with pytest.raises(ChangeRefused) as refused:
        add_schedule(wanted, member=bob)
    assert (refused.value.field, refused.value.code) == ("agent", "unknown")

    enter(bob)
    row = schedule(make_session(bob, legal))
    leave(bob)
    Schedule.objects.filter(pk=row.pk).update(agent=legal)

    assert periodic.run_schedule(row.pk) is None
    assert "not offered" in Schedule.objects.get(pk=row.pk).last_error


def test_mr_28_where_no_agent_is_named_the_first_one_that_is_offered_is_taken(legal: Agent, bob: Membership) -> None:
    Agent.objects.update(offered_to=Offer.ROLES)
    wanted = ScheduleContent("Daily", "0 9 * * *", "Read the contracts.", "", "UTC")
    with pytest.raises(ChangeRefused) as refused:
        add_schedule(wanted, member=bob)
    assert (refused.value.field, refused.value.code) == ("agent", "conflict")
    assert periodic._reminders_session(bob) is None

    enter(bob)

    session = periodic._reminders_session(bob)
    assert (add_schedule(wanted, member=bob).agent, session and session.agent) == (legal, legal)


def test_mr_28_what_is_open_ends_when_the_member_leaves_the_room(legal: Agent, bob: Membership) -> None:
    enter(bob)
    session = make_session(bob, legal)
    turn = accepted(session)

    leave(bob)
    reaping.reap()

    assert (reread(turn).status, reread(turn).error_code) == (TurnStatus.FAILED, "agent_not_offered")
    (entry,) = AuditEntry.objects.filter(action="turn.stop")
    assert entry.after["reason"] == "agent_not_offered"
    with pytest.raises(Conflict) as refused:
        accept(session, "again", member=bob)
    assert refused.value.code == "agent_not_offered"


def test_mr_28_a_deleted_role_opens_its_agents_to_nobody(legal: Agent, bob: Membership) -> None:
    enter(bob)

    Role.objects.get(slug="lawyers").delete()

    legal.refresh_from_db()
    assert (legal.offered_to, is_offered(legal, bob)) == (Offer.ROLES, False)


@pytest.mark.parametrize("way", ["role", "everybody"])
def test_mr_28_nobody_below_admin_opens_an_agent_to_themselves(legal: Agent, bob: Membership, way: str) -> None:
    bob.access = Access.OPERATOR
    bob.save()
    opened = replace(agent_content(legal), offered_to=Offer.EVERYBODY, rooms=())
    ways: dict[str, Callable[[], object]] = {
        "role": lambda: assign_role(Role.objects.get(slug="lawyers"), [bob], actor=bob),
        "everybody": lambda: update_agent(legal, opened, actor=bob),
    }

    with pytest.raises(ChangeForbidden) as refused:
        ways[way]()

    assert "legal" not in str(refused.value)


def test_mr_28_an_admin_may_and_it_is_on_record(legal: Agent, alice: Membership) -> None:
    assign_role(Role.objects.get(slug="lawyers"), [alice], actor=alice)

    assert AuditEntry.objects.filter(action="member.widen_own").count() == 1


def test_mr_28_who_holds_the_right_for_agents_sees_all_and_talks_to_none_of_them(legal: Agent, bob: Membership) -> None:
    AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.AGENTS)

    assert legal in Agent.objects.seen_by(bob)
    assert legal not in agents_to_talk_to(bob)


def test_mr_28_rooms_are_written_with_their_audit_row_and_checked(legal: Agent, alice: Membership) -> None:
    content = replace(agent_content(legal), role="Reads deeds.", rooms=())
    update_agent(legal, content, actor=alice)

    entry = AuditEntry.objects.filter(action="agent.update").latest("number")
    assert (entry.before["rooms"], entry.after["rooms"], entry.after["role"]) == (["lawyers"], [], "Reads deeds.")
    for field, wrong, code in (
        ("rooms", {"rooms": ("no-such-role",)}, "unknown"),
        ("rooms", {"offered_to": Offer.EVERYBODY, "rooms": ("lawyers",)}, "invalid"),
        ("role", {"role": "two\nlines"}, "invalid"),
        ("offered_to", {"offered_to": "friends"}, "invalid"),
    ):
        with pytest.raises(ChangeRefused) as refused:
            update_agent(legal, replace(content, **wrong), actor=alice)
        assert (refused.value.field, refused.value.code) == (field, code)


def test_mr_28_explain_says_that_an_agent_is_not_offered(
    legal: Agent, alice: Membership, bob: Membership, client: Client
) -> None:
    found = explain(Subject(bob, legal, None), Asked())
    client.force_login(alice.user)
    page = client.get(f"/o/acme/explain/?agent=legal&member={bob.user.email}").content.decode()
    enter(bob)

    assert (found.is_offered, explain(Subject(bob, legal, None), Asked()).is_offered) == (False, True)
    assert "is not offered to" in page
