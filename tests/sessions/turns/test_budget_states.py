"""Which budgets a turn, a session and a member count on, and how these stand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from capabilities.models import Role
from sessions.models import Budget, BudgetPeriod, ChatSession, Turn, TurnStatus
from sessions.turns.budget_states import (
    budgets_for_member,
    budgets_for_session,
    budgets_for_turn,
    budgets_of,
    charged_below,
    charged_by,
    states_of,
    tightest,
)
from tests.cast import make_agent, make_budget, make_member, make_session, make_turn
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)


def period(budget: Budget, starts_at: datetime = datetime(2026, 11, 23, tzinfo=UTC), **fields: Any) -> BudgetPeriod:
    with organisation_scope(budget.organisation_id):
        terms = {"measure": budget.measure, "is_hard": budget.is_hard, "limit": budget.limit}
        made = {"organisation_id": budget.organisation_id, "budget": budget, "starts_at": starts_at} | terms | fields
        return BudgetPeriod.objects.create(**made)


def test_a_session_counts_on_what_is_for_it(session: ChatSession) -> None:
    acme, bob = session.organisation, session.membership
    other = make_member(acme, "dora")
    with organisation_scope(acme):
        role = Role.objects.get()
        bare = Role.objects.create(organisation=acme, name="Bare", slug="bare")
    kinds: dict[str, dict[str, Any]] = {
        "all": {},
        "mine": {"scope": "member", "membership": bob},
        "each member": {"scope": "member"},
        "role": {"scope": "role", "role": role},
        "each of role": {"scope": "role", "role": role, "is_per_member": True},
        "agent": {"scope": "agent", "agent": session.agent},
        "session": {"scope": "session"},
        "other member": {"scope": "member", "membership": other},
        "other role": {"scope": "role", "role": bare},
        "off": {"is_enabled": False},
        "each turn": {"window": "turn"},
    }
    for name, fields in kinds.items():
        make_budget(acme, name, **fields)

    with organisation_scope(acme):
        of_session = [state.terms.name for state in budgets_for_session(session, at=AT)]
        of_member = [state.terms.name for state in budgets_for_member(bob, at=AT)]
        of_turn = [state.terms.name for state in budgets_for_turn(make_turn(session), at=AT)]

    bound = ["all", "mine", "each member", "role", "each of role"]
    assert of_member == bound
    assert of_session == [*bound, "agent", "session"]
    assert of_turn == [*bound, "agent", "session", "each turn"]


def test_a_state_says_what_is_left_and_when_it_resets(session: ChatSession) -> None:
    acme = session.organisation
    Organisation.objects.filter(pk=acme.pk).update(time_zone="Europe/Berlin")
    day = make_budget(acme, "Day", limit=1_000)
    make_budget(acme, "Good", measure="money", window="total", limit=2_500_000_000)
    period(day, datetime(2026, 11, 22, 23, tzinfo=UTC), spent=700, reserved=200, added=100)

    with organisation_scope(acme):
        states = budgets_for_session(session, at=AT)

    by_name = {state.terms.name: state for state in states}
    assert by_name["Day"].left_text == "200 of 1,100 tokens"
    assert by_name["Day"].resets_text == "It resets on 24 November 2026 at 00:00 (Europe/Berlin)."
    assert by_name["Day"].seconds_to_reset(AT) == 11 * 3600
    assert by_name["Day"].seconds_to_reset(AT + timedelta(hours=11, microseconds=-1)) == 1
    assert by_name["Good"].left_text == "$2.50 of $2.50"
    assert by_name["Good"].resets_text == "It does not reset by itself."
    assert by_name["Good"].seconds_to_reset(AT) is None
    assert tightest(states) == by_name["Day"]


def test_of_equal_shares_the_smaller_budget_is_the_tighter(session: ChatSession) -> None:
    for name, limit in (("Wide", 9_000), ("Narrow", 4_000), ("Other", 20_000)):
        make_budget(session.organisation, name, limit=limit)

    with organisation_scope(session.organisation):
        state = tightest(budgets_for_session(session, at=AT))

    assert state is not None
    assert state.terms.name == "Narrow"


def test_one_second_after_the_reset_all_of_it_is_left(session: ChatSession) -> None:
    period(make_budget(session.organisation, limit=1_000), spent=1_000)
    midnight = datetime(2026, 11, 24, tzinfo=UTC)

    with organisation_scope(session.organisation_id):
        before, after = (
            budgets_for_session(session, at=midnight + timedelta(seconds=seconds))[0] for seconds in (-1, 1)
        )

    assert (before.left, before.is_spent) == (0, True)
    assert (after.left, after.is_spent) == (1_000, False)


def test_another_organisations_budgets_are_not_there(session: ChatSession, charlie: Membership) -> None:
    period(make_budget(charlie.organisation, limit=1), spent=1)

    with organisation_scope(session.organisation_id):
        assert budgets_for_session(session) == []


def test_where_all_is_known_the_states_are_one_query_and_none_without_budgets(session: ChatSession) -> None:
    version = 1_000_001
    with organisation_scope(session.organisation_id):
        turn = make_turn(session)
        budgets_of(session.organisation_id, version)
        with CaptureQueriesContext(connection) as none:
            budgets_for_turn(turn, version=version)
    for name in ("a", "b", "c"):
        make_budget(session.organisation, name)
    with organisation_scope(session.organisation_id):
        budgets_of(session.organisation_id, version + 1)
        with CaptureQueriesContext(connection) as some:
            assert len(budgets_for_turn(turn, version=version + 1)) == 3

    assert (len(none), len(some)) == (0, 1)


def test_a_turn_by_delegation_counts_on_all_above_it(session: ChatSession) -> None:
    helper = make_agent(session.organisation, slug="helper", name="Helper")
    with organisation_scope(session.organisation_id):
        top = make_turn(session)
        child = Turn(
            organisation_id=top.organisation_id,
            session=make_session(session.membership, helper),
            membership=session.membership,
            agent=helper,
            created_at=top.created_at + timedelta(seconds=5),
            charged_above=charged_below(top),
        )
        grandchild = Turn(agent_id=999, membership=session.membership, charged_above=charged_below(child))
        found = charged_by(grandchild, None)

    assert found.agent_ids == (999, helper.pk, session.agent_id)
    assert (found.session_id, found.turn_id) == (str(session.pk), str(top.pk))
    assert found.began_at == top.created_at


def test_turns_at_once_are_counted_as_they_are(session: ChatSession) -> None:
    acme = session.organisation
    make_budget(acme, "At once", measure="turns", limit=3, scope="member")
    with organisation_scope(acme):
        for status in (TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING_APPROVAL):
            make_turn(session, status=status)
        (state,) = budgets_for_session(session)

    assert state.left_text == "1 of 3 turns at once"
    assert "when one of them ends" in state.resets_text


def test_a_page_of_budgets_reads_their_current_periods(session: ChatSession) -> None:
    acme = session.organisation
    one, each = make_budget(acme, "one", limit=10), make_budget(acme, "each", scope="member", limit=10)
    period(one, spent=4)
    period(one, datetime(2026, 11, 22, tzinfo=UTC), spent=9)
    for number in range(3):
        period(each, key=f"member:{number}", spent=number)
    period(each, datetime(2026, 11, 22, tzinfo=UTC), key="member:1", spent=9)
    untouched = make_budget(acme, "untouched", window="month", limit=5)

    with organisation_scope(acme):
        found = states_of([one, each, untouched], "UTC", at=AT, most=2)

    assert [state.amounts.spent for state in found[one.pk]] == [4]
    assert [(state.key, state.amounts.spent) for state in found[each.pk]] == [("member:2", 2), ("member:1", 1)]
    assert [state.left for state in found[untouched.pk]] == [5]


def test_no_budget_is_read_outside_of_an_organisation() -> None:
    with system_scope():
        assert list(Budget.objects.all()) == []
