"""Reservations of budgets: taken whole or not at all, settled once, and released on every way that a turn can end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from capabilities.models import Agent
from sessions.budgets.writes import budget_content, set_spending_rules, update_budget
from sessions.doors.chats.writes import delete_session, remove_deleted
from sessions.models import (
    Budget,
    BudgetPeriod,
    ChatSession,
    Reservation,
    ReservationStatus,
    Turn,
    TurnEvent,
    TurnStatus,
)
from sessions.turns import ledger, reaping
from sessions.turns import waiting as parking
from sessions.turns.budget_states import budgets_of, charged_by
from sessions.turns.fencing import OverBudget
from sessions.turns.ledger import Claim, LeaseLost
from sessions.turns.replies import ReplyRecord
from sessions.turns.spending import Reserved, reserve, sweep_reservations
from tests.cast import make_agent, make_approval, make_budget, make_session
from tests.sessions.steps import accepted, add_call, change, claimed, expire_lease, reread, start_call
from tests.threads import at_once
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db
threaded = pytest.mark.django_db(transaction=True)

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation))


def take(claim: Claim, tokens: int = 1_000, money: int | None = None, *, step: int = 1, at: datetime = AT) -> Any:
    """Reserve for a call of the claim's turn, as the loop does."""
    with organisation_scope(claim.organisation_id):
        turn = Turn.objects.get(pk=claim.turn_id)
        budgets = budgets_of(claim.organisation_id, None)
        return reserve(claim, budgets, charged_by(turn, None), step=step, tokens=tokens, money=money, at=at)


def reply(reserved: Reserved | None, tokens: int, cost: int | None = None) -> ReplyRecord:
    """What the loop stores of a reply that took so much."""
    return ReplyRecord(started_at=timezone.now(), text="hi", input_tokens=tokens, reserved=reserved, cost=cost)


def record(claim: Claim, reserved: Reserved | None, tokens: int, cost: int | None = None) -> None:
    with organisation_scope(claim.organisation_id):
        ledger.record_model_step(claim, reply(reserved, tokens, cost))


def amounts(budget: Budget) -> list[tuple[int, int]]:
    """(spent, reserved) of each period, in the order of their windows."""
    with system_scope():
        rows = BudgetPeriod.objects.filter(budget=budget).order_by("starts_at", "key")
        return list(rows.values_list("spent", "reserved"))


def reservations() -> list[str]:
    with system_scope():
        return list(Reservation.objects.order_by("pk").values_list("status", flat=True))


def events_of(turn: Turn, kind: str) -> list[Any]:
    with system_scope():
        return list(TurnEvent.objects.filter(turn=turn, type=kind).order_by("number").values_list("payload", flat=True))


# -- Take and settle --------------------------------------------------------------------------------------------------


def test_a_call_takes_its_most_and_leaves_what_it_used(session: ChatSession) -> None:
    day, month = make_budget(session.organisation, "day"), make_budget(session.organisation, "month", window="month")
    money = make_budget(session.organisation, "money", measure="money", window="total", limit=5_000_000_000)
    claim = claimed(accepted(session))

    reserved = take(claim, 1_000, 7_000_000)
    assert [amounts(each) for each in (day, month, money)] == [[(0, 1_000)], [(0, 1_000)], [(0, 7_000_000)]]

    record(claim, reserved, 400, 3_000_000)
    assert [amounts(each) for each in (day, month, money)] == [[(400, 0)], [(400, 0)], [(3_000_000, 0)]]
    with system_scope():
        row = Reservation.objects.get()
    assert (row.status, row.tokens, row.money, row.used_tokens, row.used_money) == (
        *("settled", 1_000, 7_000_000),
        *(400, 3_000_000),
    )
    assert (row.turn_id, row.epoch, row.step) == (claim.turn_id, claim.epoch, 1)
    assert sorted(amount for _, amount in row.lines) == [1_000, 1_000, 7_000_000]


def test_a_turn_that_ends_with_its_reply_settles_in_the_same_transaction(session: ChatSession) -> None:
    budget = make_budget(session.organisation)
    claim = claimed(accepted(session))
    reserved = take(claim)

    with organisation_scope(claim.organisation_id):
        ledger.finish(claim, TurnStatus.DONE, answer="hi", reply=reply(reserved, 250))

    assert (amounts(budget), reservations()) == ([(250, 0)], ["settled"])


def test_the_tightest_budget_refuses_and_nothing_is_taken_of_the_others(session: ChatSession) -> None:
    wide, tight = make_budget(session.organisation, "wide"), make_budget(session.organisation, "tight", limit=999)
    claim = claimed(accepted(session))

    with pytest.raises(OverBudget) as refused:
        take(claim, 1_000)

    assert (amounts(wide), amounts(tight), reservations()) == ([(0, 0)], [(0, 0)], [])
    for words in ("“tight” is too small: 999 of 999 tokens", "up to 1,000 tokens", "24 November 2026 at 00:00 (UTC)"):
        assert words in str(refused.value)
    assert (refused.value.code, refused.value.retry_after) == ("budget_exceeded", 12 * 3600)


def test_what_is_reserved_is_not_there_for_others(session: ChatSession) -> None:
    budget = make_budget(session.organisation, limit=1_500)
    other = make_session(session.membership, session.agent)
    first, second = claimed(accepted(session)), claimed(accepted(other))
    reserved = take(first)

    with pytest.raises(OverBudget) as refused:
        take(second)
    assert "has 500 of 1,500 tokens left." in str(refused.value)

    record(first, reserved, 200)
    assert take(second) is not None
    assert amounts(budget) == [(200, 1_000)]


def test_a_budget_that_only_warns_refuses_nothing_and_warns_once_a_share(session: ChatSession) -> None:
    budget = make_budget(session.organisation, "soft", is_hard=False, limit=1_000, warn_at=[50, 90])
    turn = accepted(session)
    claim = claimed(turn)
    for step, tokens in enumerate((400, 200, 100, 800), 1):
        record(claim, take(claim, 5_000, step=step), tokens)

    assert amounts(budget) == [(1_500, 0)]
    assert events_of(turn, "budget_warning") == [
        {"budget": "soft", "share": 50, "percent": 60},
        {"budget": "soft", "share": 90, "percent": 150},
    ]
    numbers = list(range(1, reread(turn).last_event + 1))
    with system_scope():
        assert list(TurnEvent.objects.filter(turn=turn).order_by("number").values_list("number", flat=True)) == numbers


def test_a_warning_of_the_last_reply_comes_before_the_end(session: ChatSession) -> None:
    make_budget(session.organisation, "soft", is_hard=False, limit=100, warn_at=[80])
    turn = accepted(session)
    claim = claimed(turn)
    with organisation_scope(claim.organisation_id):
        ledger.finish(claim, TurnStatus.DONE, answer="hi", reply=reply(take(claim), 99))

    with system_scope():
        found = list(TurnEvent.objects.filter(turn=turn).order_by("number").values_list("number", "type"))
    assert found == list(enumerate(["accepted", "started", "model", "budget_warning", "done"], 1))
    assert reread(turn).last_event == 5


def test_a_call_counts_in_the_window_that_it_began_in(session: ChatSession) -> None:
    budget = make_budget(session.organisation, limit=1_000)
    claim = claimed(accepted(session))
    late = take(claim, at=datetime(2026, 11, 23, 23, 59, 59, tzinfo=UTC))
    early = take(claim, step=2, at=datetime(2026, 11, 24, 0, 0, 1, tzinfo=UTC))

    record(claim, late, 900)
    record(claim, early, 300)

    assert amounts(budget) == [(900, 0), (300, 0)]


@pytest.mark.parametrize(
    ("zone", "last_second"),
    [
        ("Europe/Berlin", datetime(2026, 3, 29, 21, 59, 59, tzinfo=UTC)),  # forward on this day
        ("Europe/Berlin", datetime(2026, 10, 25, 22, 59, 59, tzinfo=UTC)),  # back
        ("UTC", datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC)),
        ("UTC", datetime(2026, 4, 30, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_a_day_that_is_used_up_has_room_a_second_after_its_end(
    session: ChatSession, zone: str, last_second: datetime
) -> None:
    Organisation.objects.filter(pk=session.organisation_id).update(time_zone=zone)
    make_budget(session.organisation, limit=1_000)
    claim = claimed(accepted(session))
    record(claim, take(claim, at=last_second - timedelta(hours=22)), 1_000)

    with pytest.raises(OverBudget) as refused:
        take(claim, step=2, at=last_second)
    assert refused.value.retry_after == 1
    assert take(claim, step=2, at=last_second + timedelta(seconds=2)) is not None


@pytest.mark.parametrize(
    "month_end", [datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC), datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC)]
)
def test_a_month_that_is_used_up_has_room_a_second_after_its_end(session: ChatSession, month_end: datetime) -> None:
    make_budget(session.organisation, limit=1_000, window="month")
    claim = claimed(accepted(session))
    record(claim, take(claim, at=month_end.replace(day=1)), 1_000)

    with pytest.raises(OverBudget):
        take(claim, step=2, at=month_end)
    assert take(claim, step=2, at=month_end + timedelta(seconds=2)) is not None


def test_a_budget_of_each_turn_counts_all_of_its_calls(session: ChatSession) -> None:
    budget = make_budget(session.organisation, window="turn", limit=1_500)
    claim = claimed(accepted(session))
    record(claim, take(claim), 700)

    with pytest.raises(OverBudget) as refused:
        take(claim, step=2)

    assert str(refused.value).endswith("The next message has one of its own.")
    assert refused.value.retry_after is None
    other = claimed(accepted(make_session(session.membership, session.agent)))
    assert take(other) is not None
    assert amounts(budget) == [(700, 0), (0, 1_000)]


def test_a_limit_that_is_changed_counts_for_the_running_window_at_once(session: ChatSession) -> None:
    """Whoever changes a budget changes its open periods: what a worker still has in mind of it does not count."""
    budget = make_budget(session.organisation, limit=5_000)
    claim = claimed(accepted(session))
    with organisation_scope(session.organisation_id):
        turn, budgets = Turn.objects.get(pk=claim.turn_id), budgets_of(session.organisation_id, None)
        old = charged_by(turn, None)
        assert reserve(claim, budgets, old, step=1, tokens=1_000, money=None, at=AT)
        Budget.objects.update(limit=1_200)
        BudgetPeriod.objects.update(limit=1_200)
        with pytest.raises(OverBudget):
            reserve(claim, budgets, old, step=2, tokens=1_000, money=None, at=AT)
        budget.delete()
        assert reserve(claim, budgets, old, step=2, tokens=1_000, money=None, at=AT) is None


def test_a_period_that_is_made_late_has_the_limit_that_the_budget_has_then(session: ChatSession) -> None:
    make_budget(session.organisation, limit=5_000)
    claim = claimed(accepted(session))
    with organisation_scope(session.organisation_id):
        turn, budgets = Turn.objects.get(pk=claim.turn_id), budgets_of(session.organisation_id, None)
        Budget.objects.update(limit=900)
        with pytest.raises(OverBudget):
            reserve(claim, budgets, charged_by(turn, None), step=1, tokens=1_000, money=None, at=AT)


def test_another_organisations_budget_takes_nothing_of_a_turn(session: ChatSession, charlie: Membership) -> None:
    theirs = make_budget(charlie.organisation, limit=1)
    claim = claimed(accepted(session))

    assert take(claim) is None
    with organisation_scope(charlie.organisation_id):
        turn_of_acme = Turn.objects.filter(pk=claim.turn_id)
        assert not turn_of_acme.exists()
    assert amounts(theirs) == []


# -- No turn leaves anything behind -----------------------------------------------------------------------------------


def end(claim: Claim, status: TurnStatus) -> None:
    with organisation_scope(claim.organisation_id):
        ledger.finish(claim, status, error_code="" if status == TurnStatus.DONE else "x")


def give_back(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        ledger.release(claim)


def wait_for_provider(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        ledger.release(claim, wait=60)


def lose_lease_to_another(claim: Claim) -> None:
    expire_lease(claim.turn_id)
    assert ledger.claim(claim.turn_id, "worker-2") is not None


def crash_again_and_again(claim: Claim) -> None:
    change(claim.turn_id, attempts=99, lease_until=ledger.from_now(-1))
    reaping.reap()


def run_out_of_time(claim: Claim) -> None:
    change(claim.turn_id, deadline_at=ledger.from_now(-1), lease_until=ledger.from_now(-1))
    reaping.reap()


def be_stopped_by_somebody(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        turn = Turn.objects.get(pk=claim.turn_id)
        ledger.cancel(turn, actor=turn.membership)
        ledger.finish_stopped(claim)


def be_stopped_when_its_worker_is_gone(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        turn = Turn.objects.get(pk=claim.turn_id)
        ledger.cancel(turn, actor=turn.membership)
    expire_lease(claim.turn_id)
    reaping.reap()


def be_stopped_when_it_was_given_back(claim: Claim) -> None:
    give_back(claim)
    with organisation_scope(claim.organisation_id):
        turn = Turn.objects.get(pk=claim.turn_id)
        ledger.cancel(turn, actor=turn.membership)


def lose_its_session(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        turn = Turn.objects.select_related("session__membership__user").get(pk=claim.turn_id)
        delete_session(turn.session, actor=turn.session.membership)
        ledger.finish_stopped(claim)
    remove_deleted()


def lose_its_session_and_its_worker(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        turn = Turn.objects.select_related("session__membership__user").get(pk=claim.turn_id)
        delete_session(turn.session, actor=turn.session.membership)
    expire_lease(claim.turn_id)
    reaping.reap()
    remove_deleted()


def lose_its_member(claim: Claim) -> None:
    with system_scope():
        turn = Turn.objects.get(pk=claim.turn_id)
        Membership.objects.filter(pk=turn.membership_id).update(ended_at=timezone.now())
    expire_lease(claim.turn_id)
    reaping.reap()


def lose_its_agent(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        Agent.objects.update(is_enabled=False)
    expire_lease(claim.turn_id)
    reaping.reap()


def wait_for_a_person(claim: Claim) -> None:
    step = add_call(claim)
    with organisation_scope(claim.organisation_id):
        make_approval(step)
        assert parking.park(claim)


def get_no_reply(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        ledger.release_reservation(claim)


ENDS: tuple[Callable[[Claim], None], ...] = (
    partial(end, status=TurnStatus.DONE),
    partial(end, status=TurnStatus.FAILED),
    partial(end, status=TurnStatus.EXPIRED),
    give_back,
    wait_for_provider,
    lose_lease_to_another,
    crash_again_and_again,
    run_out_of_time,
    be_stopped_by_somebody,
    be_stopped_when_its_worker_is_gone,
    be_stopped_when_it_was_given_back,
    lose_its_session,
    lose_its_session_and_its_worker,
    lose_its_member,
    lose_its_agent,
    wait_for_a_person,
    get_no_reply,
)


@pytest.mark.parametrize("way", ENDS)
def test_no_way_to_end_leaves_anything_reserved(session: ChatSession, way: Callable[[Claim], None]) -> None:
    budget = make_budget(session.organisation)
    each = make_budget(session.organisation, "each turn", window="turn", scope="member")
    claim = claimed(accepted(session))
    take(claim)
    assert amounts(budget) == [(0, 1_000)]

    way(claim)

    assert [amounts(one) for one in (budget, each)] == [[(0, 0)], [(0, 0)]]
    assert set(reservations()) <= {ReservationStatus.RELEASED}


def test_a_worker_that_lost_its_turn_neither_takes_nor_settles(session: ChatSession) -> None:
    budget = make_budget(session.organisation)
    claim = claimed(accepted(session))
    reserved = take(claim)
    lose_lease_to_another(claim)

    with pytest.raises(LeaseLost):
        record(claim, reserved, 400)
    with pytest.raises(LeaseLost):
        take(claim, step=2)

    assert (amounts(budget), reservations()) == ([(0, 0)], ["released"])


def test_what_no_transaction_released_a_sweep_does(session: ChatSession) -> None:
    """As where a worker reserves in the moment in which its turn ends elsewhere."""
    budget = make_budget(session.organisation)
    turn = accepted(session)
    claim = claimed(turn)
    take(claim)
    change(turn.pk, status=TurnStatus.DONE, ended_at=timezone.now())
    assert amounts(budget) == [(0, 1_000)]

    reaping.reap()
    reaping.reap()

    assert (amounts(budget), reservations()) == ([(0, 0)], ["released"])


def test_a_sweep_leaves_alone_what_a_worker_holds(session: ChatSession) -> None:
    budget = make_budget(session.organisation)
    take(claimed(accepted(session)))

    reaping.reap()

    assert (amounts(budget), reservations()) == ([(0, 1_000)], ["held"])


def test_a_removed_session_takes_no_reservation_with_it(session: ChatSession) -> None:
    """Even where the turn ended without a word to the budgets, and its session goes before the next sweep."""
    budget = make_budget(session.organisation)
    turn = accepted(session)
    take(claimed(turn))
    change(turn.pk, status=TurnStatus.DONE, ended_at=timezone.now(), is_rolled_up=True)
    with system_scope():
        ChatSession.objects.filter(pk=session.pk).update(deleted_at=timezone.now())

    remove_deleted()
    reaping.reap()

    assert amounts(budget) == [(0, 0)]


def test_old_periods_of_each_turn_are_removed_but_not_those_of_open_turns(session: ChatSession) -> None:
    each, day = make_budget(session.organisation, "each turn", window="turn"), make_budget(session.organisation, "day")
    turns = [accepted(make_session(session.membership, session.agent)) for _ in range(2)]
    claims = [claimed(turn) for turn in turns]
    for turn, claim, days in zip(turns, claims, (30, 20), strict=True):
        change(turn.pk, created_at=timezone.now() - timedelta(days=days))
        record(claim, take(claim), 100)

    reaping.reap()
    assert amounts(each) == [(100, 0), (100, 0)]
    end(claims[0], TurnStatus.DONE)
    reaping.reap()
    assert amounts(each) == [(100, 0)]
    end(claims[1], TurnStatus.DONE)
    reaping.reap()
    assert (amounts(each), amounts(day)) == ([], [(200, 0)])


# -- At once ----------------------------------------------------------------------------------------------------------


@threaded
def test_of_many_at_once_as_many_get_room_as_there_is(session: ChatSession) -> None:
    budgets = [
        make_budget(session.organisation, "tight", limit=1_000),
        make_budget(session.organisation, "wide", scope="member", limit=20_000),
    ]
    claims = [claimed(accepted(make_session(session.membership, session.agent))) for _ in range(16)]

    def one(claim: Claim) -> bool:
        try:
            return take(claim) is not None
        except OverBudget:
            return False

    let_through = at_once([partial(one, claim) for claim in claims])

    assert sum(let_through) == 1
    assert [amounts(budget) for budget in budgets] == [[(0, 1_000)], [(0, 1_000)]]


@threaded
def test_calls_that_meet_several_budgets_in_any_order_do_not_wait_for_each_other(session: ChatSession) -> None:
    names = ["a", "b", "c", "d"]
    budgets = [make_budget(session.organisation, name, limit=1_000_000) for name in names]
    claims = [claimed(accepted(make_session(session.membership, session.agent))) for _ in range(8)]

    def some(claim: Claim) -> None:
        for step in range(1, 6):
            record(claim, take(claim, step=step), 10)

    at_once([partial(some, claim) for claim in claims])

    assert [amounts(budget) for budget in budgets] == [[(400, 0)]] * 4
    assert connection.vendor in ("sqlite", "postgresql")


@threaded
def test_an_edit_and_a_new_zone_do_not_wait_for_calls_that_hold_several_windows(
    session: ChatSession, alice: Membership
) -> None:
    """Later rows first: what a database finds without being asked for an order is another one than that of the keys."""
    agents = [session.agent, *(make_agent(session.organisation, slug=f"agent-{number}") for number in range(5))]
    each = make_budget(session.organisation, "each agent", scope="agent", limit=1_000_000)
    make_budget(session.organisation, "hour", scope="agent", window="hour", limit=1_000_000)
    above = [str(agent.pk) for agent in agents]
    claims = [claimed(accepted(make_session(session.membership, agent))) for agent in agents]
    with system_scope():
        for number, claim in enumerate(claims):
            chain = {"agents": [int(key) for key in above[number:] + above[:number]]}
            Turn.objects.filter(pk=claim.turn_id).update(charged_above=chain)
        for key in reversed(BudgetPeriod.objects.order_by("pk").values_list("pk", flat=True)):
            BudgetPeriod.objects.filter(pk=key).update(warned=0)

    def calls(claim: Claim) -> None:
        for step in range(1, 16):
            record(claim, take(claim, step=step, at=timezone.now()), 10)

    def edits() -> None:
        with organisation_scope(alice.organisation_id):
            for number in range(15):
                budget = Budget.objects.get(pk=each.pk)
                update_budget(budget, replace(budget_content(budget), limit=2_000_000 + number), actor=alice)

    def zones() -> None:
        with organisation_scope(alice.organisation_id):
            for number in range(8):
                zone = ("Asia/Kolkata", "Europe/Berlin")[number % 2]
                set_spending_rules(zone, counts_unpriced_as_free=False, actor=alice)

    at_once([*(partial(calls, claim) for claim in claims), edits, zones])

    with system_scope():
        assert set(BudgetPeriod.objects.values_list("reserved", flat=True)) == {0}
        assert not Reservation.objects.filter(ended_at=None).exists()


def test_a_step_that_was_started_is_no_reservation(session: ChatSession) -> None:
    make_budget(session.organisation)
    claim = claimed(accepted(session))
    start_call(claim)

    assert reservations() == []


def test_what_was_added_to_a_window_is_there_for_calls(session: ChatSession) -> None:
    budget = make_budget(session.organisation, limit=1_000)
    claim = claimed(accepted(session))
    record(claim, take(claim), 1_000)
    with pytest.raises(OverBudget):
        take(claim, step=2)

    with system_scope():
        BudgetPeriod.objects.filter(budget=budget).update(added=1_000)

    assert take(claim, step=3) is not None
    assert amounts(budget) == [(1_000, 1_000)]


def test_a_sweep_releases_what_a_dead_epoch_holds_while_the_next_one_runs(session: ChatSession) -> None:
    budget = make_budget(session.organisation)
    claim = claimed(accepted(session))
    take(claim)
    with system_scope():
        Turn.objects.filter(pk=claim.turn_id).update(epoch=claim.epoch + 1)

        sweep_reservations()

    assert (amounts(budget), reservations()) == ([(0, 0)], ["released"])


def test_a_refusal_names_the_budget_that_stops_and_not_one_that_warns(session: ChatSession) -> None:
    make_budget(session.organisation, "warns", limit=1, is_hard=False, window="total")
    make_budget(session.organisation, "stops", limit=500)

    with pytest.raises(OverBudget, match="stops"):
        take(claimed(accepted(session)))


def test_a_budget_that_is_switched_off_meanwhile_makes_no_window(session: ChatSession) -> None:
    off, on = make_budget(session.organisation, "off", limit=1), make_budget(session.organisation, "on")
    claim = claimed(accepted(session))
    with organisation_scope(claim.organisation_id):
        turn, known = Turn.objects.get(pk=claim.turn_id), budgets_of(claim.organisation_id, None)
        Budget.objects.filter(pk=off.pk).update(is_enabled=False)

        reserve(claim, known, charged_by(turn, None), step=1, tokens=1_000, money=None, at=AT)

    assert (amounts(off), amounts(on)) == ([], [(0, 1_000)])
