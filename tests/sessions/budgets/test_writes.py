"""The audited writes of budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from capabilities.common.refused import ChangeRefused
from capabilities.contract.budget_windows import span_of
from sessions.budgets.amounts import amount_of
from sessions.budgets.writes import (
    BudgetContent,
    budget_content,
    create_budget,
    delete_budget,
    reset_period,
    set_spending_rules,
    switch_budget,
    top_up_period,
    update_budget,
)
from sessions.models import Budget, BudgetPeriod, Measure, Window
from tests.cast import make_agent, make_member, make_role, make_session, make_turn
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.money import NANO
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def scope(acme: Organisation) -> Iterator[None]:
    with organisation_scope(acme):
        yield


def make_budget(actor: Membership, name: str = "Daily", limit: int = 1_000, **fields: Any) -> Budget:
    return create_budget(BudgetContent(name, limit, **fields), actor=actor)


def make_period(budget: Budget, **fields: Any) -> BudgetPeriod:
    """The budget's running window."""
    span = span_of(budget.window, budget.organisation.time_zone, timezone.now())
    own = {"organisation_id": budget.organisation_id, "budget": budget, "measure": budget.measure}
    row = {"is_hard": budget.is_hard, "limit": budget.limit, "starts_at": span.starts_at, "ends_at": span.ends_at}
    return BudgetPeriod.objects.create(**own | row | fields)


def refusal(actor: Membership, **fields: Any) -> tuple[str, str]:
    with pytest.raises(ChangeRefused) as caught:
        make_budget(actor, **fields)
    return caught.value.field, caught.value.code


def last_entry() -> tuple[str, str]:
    entry = AuditEntry.objects.order_by("-number")[0]
    return entry.action, entry.target_label


# -- Making and changing ----------------------------------------------------------------------------------------------


def test_a_budget_is_made_and_on_record(alice: Membership) -> None:
    version = Organisation.objects.get(pk=alice.organisation_id).registry_version

    budget = make_budget(alice, measure="money", window="month", limit=12 * NANO)

    assert budget_content(Budget.objects.get()) == BudgetContent("Daily", 12 * NANO, measure="money", window="month")
    assert (budget.created_by, last_entry()) == (alice, ("budget.create", "Daily"))
    assert AuditEntry.objects.get(action="budget.create").after["limit"] == "12.00"
    assert Organisation.objects.get(pk=alice.organisation_id).registry_version == version + 1


def test_a_budget_is_for_a_role_a_member_an_agent_or_a_session(alice: Membership, bob: Membership) -> None:
    role, agent, session = make_role(bob.organisation, bob), make_agent(bob.organisation), make_session(alice)

    made = [
        make_budget(alice, name="r", scope="role", target=role.slug, is_per_member=True),
        make_budget(alice, name="m", scope="member", target=str(bob.public_id)),
        make_budget(alice, name="a", scope="agent", target=agent.slug),
        make_budget(alice, name="s", scope="session", target=str(session.pk)),
        make_budget(alice, name="each", scope="member"),
    ]

    assert [(each.role, each.membership, each.agent, each.session) for each in made] == [
        (role, None, None, None),
        (None, bob, None, None),
        (None, None, agent, None),
        (None, None, None, session),
        (None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"name": " "}, ("name", "invalid")),
        ({"limit": 0}, ("limit", "invalid")),
        ({"limit": 10**16}, ("limit", "invalid")),
        ({"scope": "galaxy"}, ("scope", "invalid")),
        ({"window": "week"}, ("window", "invalid")),
        ({"warn_at": (0,)}, ("warn_at", "invalid")),
        ({"warn_at": (80, 80)}, ("warn_at", "invalid")),
        ({"scope": "role"}, ("role", "required")),
        ({"scope": "role", "target": "nobody"}, ("role", "unknown")),
        ({"scope": "member", "target": "bob"}, ("member", "unknown")),
        ({"scope": "agent", "target": "nobody"}, ("agent", "unknown")),
        ({"scope": "session", "target": "not-an-id"}, ("session", "unknown")),
        ({"target": "anything"}, ("scope", "invalid")),
        ({"is_per_member": True}, ("is_per_member", "invalid")),
    ],
)
def test_a_refusal_names_the_invalid_field(alice: Membership, fields: dict[str, Any], refused: tuple[str, str]) -> None:
    assert refusal(alice, **fields) == refused
    assert not Budget.objects.exists()


def test_a_name_is_taken_once(alice: Membership) -> None:
    make_budget(alice)

    assert refusal(alice) == ("name", "taken")


def test_another_organisations_target_is_a_missing_one(alice: Membership, charlie: Membership) -> None:
    with organisation_scope(charlie.organisation_id):
        session, agent = make_session(charlie), make_agent(charlie.organisation, slug="theirs")

    assert refusal(alice, scope="member", target=str(charlie.public_id)) == ("member", "unknown")
    assert refusal(alice, scope="session", target=str(session.pk)) == ("session", "unknown")
    assert refusal(alice, scope="agent", target=agent.slug) == ("agent", "unknown")


def test_an_operator_sets_no_budget_for_an_admin_and_needs_the_right(alice: Membership, bob: Membership) -> None:
    operator = make_member(alice.organisation, "olga", Access.OPERATOR)

    assert refusal(operator, scope="member", target=str(alice.public_id)) == ("member", "forbidden")
    assert make_budget(operator, scope="member", target=str(bob.public_id)).membership == bob
    with pytest.raises(PermissionDenied, match="budgets"):
        make_budget(bob, name="mine")


def test_an_operator_changes_no_budget_of_an_admin(alice: Membership) -> None:
    operator = make_member(alice.organisation, "olga", Access.OPERATOR)
    budget = make_budget(alice, scope="member", target=str(alice.public_id))
    period = make_period(budget, spent=5)
    writes: list[Callable[[], object]] = [
        lambda: update_budget(budget, replace(budget_content(budget), limit=5), actor=operator),
        lambda: switch_budget(budget, False, actor=operator),
        lambda: delete_budget(budget, actor=operator),
        lambda: reset_period(period, actor=operator),
        lambda: top_up_period(period, 5, actor=operator),
    ]

    for write in writes:
        with pytest.raises(PermissionDenied, match="more access than you"):
            write()


def test_a_session_that_the_actor_may_not_see_is_a_missing_one(alice: Membership, bob: Membership) -> None:
    keeper = make_member(alice.organisation, "keeper", Access.MEMBER)
    AdminRight.objects.create(organisation=alice.organisation, membership=keeper, right=Right.BUDGETS)
    session = make_session(bob)

    assert refusal(keeper, scope="session", target=str(session.pk)) == ("session", "unknown")
    assert make_budget(alice, scope="session", target=str(session.pk)).session == session


def test_turns_at_once_have_no_window_and_always_stop(alice: Membership) -> None:
    budget = make_budget(alice, measure="turns", limit=3, window="day", is_hard=False)

    assert (budget.window, budget.is_hard, budget.warn_at) == (Window.TOTAL, True, [])


def test_what_a_budget_counts_stays(alice: Membership) -> None:
    budget = make_budget(alice)
    changes: list[tuple[str, Any]] = [
        ("scope", "agent"),
        ("measure", "money"),
        ("window", "month"),
        ("is_per_member", True),
    ]

    for name, value in changes:
        content = asdict(budget_content(budget)) | {name: value}
        with pytest.raises(ChangeRefused) as caught:
            update_budget(budget, BudgetContent(**content), actor=alice)
        assert caught.value.field == name


def test_a_new_limit_is_that_of_the_running_windows_and_of_no_other(alice: Membership) -> None:
    budget = make_budget(alice)
    running = make_period(budget, spent=900, warned=80)
    over = make_period(budget, starts_at=timezone.now() - timedelta(days=9), ends_at=timezone.now() - timedelta(days=8))

    changed = replace(budget_content(budget), limit=2_000, is_hard=False)
    update_budget(budget, changed, actor=alice)

    running.refresh_from_db()
    over.refresh_from_db()
    assert (running.limit, running.is_hard, running.spent, running.warned) == (2_000, False, 900, 0)
    assert (over.limit, over.is_hard) == (1_000, True)
    assert last_entry() == ("budget.update", "Daily")


def test_a_new_limit_of_each_turn_is_that_of_open_turns(alice: Membership) -> None:
    budget = make_budget(alice, window="turn")
    make_turn(make_session(alice))
    row = {"organisation_id": budget.organisation_id, "budget": budget, "measure": "tokens", "is_hard": True}
    ended = BudgetPeriod.objects.create(
        **row, limit=1_000, key="turn:a", starts_at=timezone.now() - timedelta(days=9), ends_at=None
    )
    open_one = BudgetPeriod.objects.create(**row, limit=1_000, key="turn:b", starts_at=timezone.now(), ends_at=None)

    update_budget(budget, replace(budget_content(budget), limit=5), actor=alice)

    ended.refresh_from_db()
    open_one.refresh_from_db()
    assert (ended.limit, open_one.limit) == (1_000, 5)


def test_nothing_changed_is_no_entry(alice: Membership) -> None:
    budget = make_budget(alice)
    before = AuditEntry.objects.count()

    update_budget(budget, budget_content(budget), actor=alice)

    assert AuditEntry.objects.count() == before


def test_a_budget_is_switched_off_and_removed(alice: Membership) -> None:
    budget = make_budget(alice)
    make_period(budget)

    assert not switch_budget(budget, False, actor=alice).is_enabled
    delete_budget(budget, actor=alice)

    assert not Budget.objects.exists()
    assert not BudgetPeriod.objects.exists()
    assert last_entry() == ("budget.delete", "Daily")


# -- Running windows --------------------------------------------------------------------------------------------------


def test_a_reset_takes_back_what_was_spent_and_keeps_what_is_reserved(alice: Membership) -> None:
    period = make_period(make_budget(alice), spent=700, reserved=100, warned=80, spent_before_reset=50)

    reset_period(period, actor=alice)

    period.refresh_from_db()
    assert (period.spent, period.reserved, period.warned, period.spent_before_reset) == (0, 100, 0, 750)
    assert period.reset_at is not None
    entry = AuditEntry.objects.get(action="budget.reset")
    assert (entry.before["spent"], entry.before["period"]) == ("700", str(period.public_id))


def test_a_top_up_is_for_this_window_alone(alice: Membership) -> None:
    budget = make_budget(alice)
    period = make_period(budget, spent=1_000)

    top_up_period(period, 250, actor=alice)
    top_up_period(period, 250, actor=alice)

    period.refresh_from_db()
    assert (period.added, period.limit, budget.limit) == (500, 1_000, 1_000)
    assert AuditEntry.objects.filter(action="budget.top_up").count() == 2


@pytest.mark.parametrize("amount", [0, -1, 10**16])
def test_a_top_up_is_an_amount(alice: Membership, amount: int) -> None:
    period = make_period(make_budget(alice))

    with pytest.raises(ChangeRefused) as caught:
        top_up_period(period, amount, actor=alice)

    assert caught.value.field == "amount"


def test_a_window_holds_no_more_than_its_column(alice: Membership) -> None:
    period = make_period(make_budget(alice, measure="money", limit=10**18), added=3 * 10**18)

    with pytest.raises(ChangeRefused, match="more than one window can hold"):
        top_up_period(period, 10**18, actor=alice)


def test_a_window_that_has_ended_is_neither_reset_nor_topped_up(alice: Membership) -> None:
    period = make_period(make_budget(alice))

    with time_machine.travel(timezone.now() + timedelta(days=2), tick=False):
        with pytest.raises(ChangeRefused, match="ended") as reset:
            reset_period(period, actor=alice)
        with pytest.raises(ChangeRefused, match="ended") as topped_up:
            top_up_period(period, 5, actor=alice)
    assert (reset.value.code, topped_up.value.code) == ("conflict", "conflict")


def test_only_the_right_resets(alice: Membership, bob: Membership) -> None:
    period = make_period(make_budget(alice), spent=5)

    with pytest.raises(PermissionDenied):
        reset_period(period, actor=bob)
    with pytest.raises(PermissionDenied):
        top_up_period(period, 5, actor=bob)


# -- What all budgets go by -------------------------------------------------------------------------------------------


def test_a_new_time_zone_ends_running_windows_by_it_and_resets_nothing(alice: Membership) -> None:
    with time_machine.travel(datetime(2026, 7, 15, 20, 0, tzinfo=UTC), tick=False):
        day = make_period(make_budget(alice), spent=900)
        month = make_period(make_budget(alice, name="Month", window="month"), spent=5)
        total = make_budget(alice, name="Total", window="total")
        for_good = make_period(replace_window(total), starts_at=total.created_at, ends_at=None, spent=7)

        set_spending_rules("Pacific/Auckland", counts_unpriced_as_free=True, actor=alice)

        for row in (day, month, for_good):
            row.refresh_from_db()
        assert (day.starts_at, day.ends_at, day.spent) == (
            datetime(2026, 7, 15, 12, tzinfo=UTC),
            datetime(2026, 7, 16, 12, tzinfo=UTC),
            900,
        )
        assert (month.starts_at, month.ends_at) == (
            datetime(2026, 6, 30, 12, tzinfo=UTC),
            datetime(2026, 7, 31, 12, tzinfo=UTC),
        )
        assert (for_good.starts_at, for_good.ends_at) == (total.created_at, None)
        assert last_entry() == ("budget.rules", "all budgets")
        acme = Organisation.objects.get(pk=alice.organisation_id)
        assert (acme.time_zone, acme.counts_unpriced_as_free) == ("Pacific/Auckland", True)


def test_a_new_time_zone_joins_two_running_windows_of_one_budget(alice: Membership) -> None:
    """A worker that had read the zone before it was changed made the second one."""
    with time_machine.travel(datetime(2026, 7, 15, 20, 0, tzinfo=UTC), tick=False):
        budget = make_budget(alice)
        mine = {"key": "member:1"}
        kept = make_period(budget, spent=600, reserved=50, added=10)
        other = make_period(budget, spent=300, reserved=20, added=70, starts_at=datetime(2026, 7, 15, 12, tzinfo=UTC))
        of_one = make_period(budget, spent=1, **mine)

        set_spending_rules("Pacific/Auckland", counts_unpriced_as_free=False, actor=alice)

        for row in (kept, other, of_one):
            row.refresh_from_db()
        assert (kept.starts_at, kept.spent, kept.reserved, kept.added) == (
            *(datetime(2026, 7, 15, 12, tzinfo=UTC), 900, 50, 70),
        )
        assert (other.spent, other.reserved, other.ends_at) == (0, 20, timezone.now())
        assert (of_one.starts_at, of_one.spent) == (kept.starts_at, 1)


def test_a_new_time_zone_keeps_what_ended_and_began_when_its_own_window_does(alice: Membership) -> None:
    """A day of 23 hours in Berlin ended, and the day of 24 hours in Lagos that began with it has not."""
    acme = Organisation.objects.get(pk=alice.organisation_id)
    Organisation.objects.filter(pk=acme.pk).update(time_zone="Europe/Berlin")
    with time_machine.travel(datetime(2026, 3, 29, 22, 30, tzinfo=UTC), tick=False):
        budget = Budget.objects.get(pk=make_budget(alice).pk)
        began, middle = datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)
        ended = make_period(budget, starts_at=began, ends_at=middle, spent=800)
        running = make_period(budget, spent=5)
        assert running.starts_at == middle

        set_spending_rules("Africa/Lagos", counts_unpriced_as_free=False, actor=alice)

        ended.refresh_from_db()
        running.refresh_from_db()
        assert (ended.starts_at, ended.ends_at, ended.spent) == (began - timedelta(microseconds=1), middle, 800)
        assert (running.starts_at, running.ends_at, running.spent) == (began, datetime(2026, 3, 29, 23, tzinfo=UTC), 5)


def replace_window(budget: Budget) -> Budget:
    """The same row for `make_period`, whose windows are those of the clock."""
    found = Budget.objects.get(pk=budget.pk)
    found.window = Window.DAY
    return found


def test_a_time_zone_is_one_that_there_is(alice: Membership) -> None:
    with pytest.raises(ChangeRefused) as caught:
        set_spending_rules("Mars/Olympus", counts_unpriced_as_free=False, actor=alice)

    assert caught.value.field == "time_zone"


# -- Amounts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "measure", "amount"),
    [
        ("1,000,000", "tokens", 1_000_000),
        ("1 000", "tokens", 1_000),
        ("12.5", "money", 12_500_000_000),
        ("3", "turns", 3),
    ],
)
def test_an_amount_is_read(text: str, measure: str, amount: int) -> None:
    assert amount_of(text, measure, "limit") == amount


@pytest.mark.parametrize(
    ("text", "measure", "sentence"),
    [
        ("1.5", "tokens", "Give a whole number of tokens."),
        ("1,00", "turns", "Give a whole number of turns."),
        ("0.0000000001", Measure.MONEY, "Give at most 9 digits behind the point."),
        ("0", "money", r"Give more than 0, and at most \$1,000,000,000.00."),
        ("-5", "money", "Give dollars as a number such as 12.50, below a billion."),
    ],
)
def test_an_amount_that_is_none_says_what_to_give(text: str, measure: str, sentence: str) -> None:
    with pytest.raises(ChangeRefused, match=sentence):
        amount_of(text, measure, "limit")
