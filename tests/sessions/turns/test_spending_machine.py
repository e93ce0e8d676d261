"""Budgets under everything that may happen to turns and to the budgets themselves, in any order: what is reserved is
the sum of what is held, what is spent is the sum of what was used, and no hard budget is passed."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sessions.budgets.writes import budget_content, open_periods, reset_period, top_up_period, update_budget
from sessions.models import Budget, BudgetPeriod, ChatSession, Reservation, ReservationStatus, Turn, TurnStatus
from sessions.turns import ledger, reaping
from sessions.turns.fencing import OverBudget
from sessions.turns.ledger import Claim, LeaseLost
from sessions.turns.spending import Reserved, dead_reservations
from tests.cast import make_agent, make_budget, make_session
from tests.sessions.steps import accepted, expire_lease
from tests.sessions.turns.test_spending import record, reply, take
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

BUDGETS: tuple[dict[str, Any], ...] = (
    {"name": "day", "window": "day", "limit": 3_000},
    {"name": "each member", "scope": "member", "window": "total", "limit": 9_000},
    {"name": "each turn", "window": "turn", "limit": 2_500},
    {"name": "dollars", "measure": "money", "window": "month", "limit": 5_000},
    {"name": "soft", "window": "hour", "limit": 500, "is_hard": False, "warn_at": [50, 100]},
)


class SpendingMachine(RuleBasedStateMachine):
    """Claims are never forgotten: one whose time is over is a zombie's."""

    member: Membership
    admin: Membership
    any_number = st.integers(0, 1_000)

    def __init__(self) -> None:
        super().__init__()
        self.budgets = [make_budget(self.member.organisation, **fields) for fields in BUDGETS]
        self.turns: list[UUID] = []
        self.claims: list[Claim] = []
        #: What each claim holds for the call that it is at.
        self.held: dict[Claim, Reserved | None] = {}
        self.now = timezone.now()
        #: The most that each period ever had: its limit may be lowered below what is spent.
        self.most: defaultdict[int, int] = defaultdict(int)

    def teardown(self) -> None:
        with system_scope():
            Reservation.objects.all().delete()
            Turn.objects.all().delete()
            ChatSession.objects.all().delete()
            Budget.objects.all().delete()

    def claim(self, number: int) -> Claim:
        return self.claims[-1 - number % len(self.claims)]

    def period(self, number: int) -> BudgetPeriod | None:
        """Any whose window runs, of any budget."""
        running = [row for budget in self.budgets for row in open_periods(budget).order_by("pk")]
        return running[number % len(running)] if running else None

    # -- Turns

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        for _ in range(count):
            self.start()

    @precondition(lambda self: len(self.turns) < 5)
    @rule()
    def start(self) -> None:
        with suppress(OverBudget):
            self.turns.append(accepted(make_session(self.member)).pk)
            self.take_turn(len(self.turns) - 1)

    @precondition(lambda self: self.turns)
    @rule(number=any_number)
    def take_turn(self, number: int) -> None:
        claim = ledger.claim(self.turns[number % len(self.turns)], "worker")
        if claim is not None:
            self.claims.append(claim)

    @precondition(lambda self: self.claims)
    @rule(number=any_number, tokens=st.integers(1, 1_500), money=st.none() | st.integers(0, 900))
    def reserve(self, number: int, tokens: int, money: int | None) -> None:
        claim = self.claim(number)
        if claim in self.held:
            return
        with system_scope():
            step = Reservation.objects.filter(turn=claim.turn_id, epoch=claim.epoch).count() + 1
        with suppress(OverBudget, LeaseLost):
            self.held[claim] = take(claim, tokens, money, step=step, at=self.now)

    @precondition(lambda self: self.held)
    @rule(number=any_number, share=st.integers(0, 100), ends=st.booleans())
    def settle(self, number: int, share: int, ends: bool) -> None:
        claim = list(self.held)[number % len(self.held)]
        reserved = self.held.pop(claim)
        used, cost = (0, 0) if reserved is None else (reserved.tokens * share // 100, reserved.money * share // 100)
        with suppress(LeaseLost):
            if ends:
                with organisation_scope(claim.organisation_id):
                    ledger.finish(claim, TurnStatus.DONE, answer="hi", reply=reply(reserved, used, cost))
            else:
                record(claim, reserved, used, cost)

    @precondition(lambda self: self.held)
    @rule(number=any_number)
    def get_no_reply(self, number: int) -> None:
        claim = list(self.held)[number % len(self.held)]
        del self.held[claim]
        with suppress(LeaseLost), organisation_scope(claim.organisation_id):
            ledger.release_reservation(claim)

    @precondition(lambda self: self.claims)
    @rule(number=any_number, how=st.sampled_from(["fail", "give back", "cancel"]))
    def stop(self, number: int, how: str) -> None:
        claim = self.claim(number)
        self.held.pop(claim, None)
        with suppress(LeaseLost), organisation_scope(claim.organisation_id):
            if how == "fail":
                ledger.finish(claim, TurnStatus.FAILED, error_code="x")
            elif how == "give back":
                ledger.release(claim)
            else:
                ledger.cancel(Turn.objects.get(pk=claim.turn_id), actor=self.member)

    @precondition(lambda self: self.turns)
    @rule(number=any_number)
    def crash(self, number: int) -> None:
        turn_id = self.turns[number % len(self.turns)]
        with system_scope():
            is_running = Turn.objects.filter(pk=turn_id, status=TurnStatus.RUNNING).exists()
        if is_running:
            expire_lease(turn_id)

    @rule()
    def sweep(self) -> None:
        reaping.reap()

    @rule(hours=st.sampled_from([1, 5, 24, 24 * 31]))
    def go_on(self, hours: int) -> None:
        self.now += timedelta(hours=hours)

    # -- Budgets

    @rule(which=st.integers(0, len(BUDGETS) - 1), limit=st.integers(1, 20_000))
    def edit(self, which: int, limit: int) -> None:
        with organisation_scope(self.member.organisation_id):
            budget = Budget.objects.get(pk=self.budgets[which].pk)
            update_budget(budget, replace(budget_content(budget), limit=limit), actor=self.admin)

    @rule(number=any_number)
    def reset(self, number: int) -> None:
        with organisation_scope(self.member.organisation_id):
            period = self.period(number)
            if period is not None:
                reset_period(period, actor=self.admin)

    @rule(number=any_number, amount=st.integers(1, 2_000))
    def top_up(self, number: int, amount: int) -> None:
        with organisation_scope(self.member.organisation_id):
            period = self.period(number)
            if period is not None:
                top_up_period(period, amount, actor=self.admin)

    # -- What always holds

    @invariant()
    def what_is_reserved_is_held_and_what_is_spent_was_used(self) -> None:
        held, used = defaultdict[int, int](int), defaultdict[int, int](int)
        with system_scope():
            periods = list(BudgetPeriod.objects.all())
            measures = {period.pk: period.measure for period in periods}
            for row in Reservation.objects.exclude(status=ReservationStatus.RELEASED):
                for key, amount in row.lines:
                    if row.status == ReservationStatus.HELD:
                        held[key] += amount
                    elif key in measures:
                        used[key] += row.used_money if measures[key] == "money" else row.used_tokens
        for period in periods:
            assert period.reserved == held[period.pk]
            assert period.spent + period.spent_before_reset == used[period.pk]

    @invariant()
    def no_hard_budget_is_passed(self) -> None:
        with system_scope():
            for period in BudgetPeriod.objects.filter(is_hard=True):
                self.most[period.pk] = max(self.most[period.pk], period.limit + period.added)
                assert period.spent + period.reserved <= self.most[period.pk]

    @invariant()
    def nothing_is_held_for_a_call_that_nobody_makes(self) -> None:
        """Each way to end releases in its own transaction: there is nothing for the sweep to find."""
        with system_scope():
            assert not dead_reservations().exists()


@pytest.mark.lasting
@pytest.mark.django_db
def test_budgets_hold_whatever_happens(bob: Membership, alice: Membership) -> None:
    make_agent(bob.organisation)
    machine = type("BobsMachine", (SpendingMachine,), {"member": bob, "admin": alice})

    with transaction.atomic():
        run_state_machine_as_test(
            machine,
            settings=hypothesis_settings(
                max_examples=20,
                stateful_step_count=30,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
