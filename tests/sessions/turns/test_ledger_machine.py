"""The ledger against a model of it: two workers, two sessions and those that agents open, and everything that may
happen, in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Max
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

from sessions.loop.calls import delegation
from sessions.models import OPEN_STATUSES, UNANSWERED, ChatSession, Step, StepKind, Turn, TurnEvent, TurnStatus
from sessions.turns import ledger, reaping
from sessions.turns import waiting as parking
from sessions.turns.ledger import Claim, LeaseLost
from tests.cast import make_agent, make_session
from tests.sessions.steps import accepted, add_call, change, end_call, expire_lease, record_model, start_call
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope
from toolhub.tenants.rows.statements import Select

WORKERS = ("worker-1", "worker-2")
# After each of four thousand acts the ledger is read with these.
TURNS = Select(lambda: Turn.objects.values_list("pk", "status", "epoch", "attempts", "last_step", "owner"))
LAST_EVENTS = Select(lambda: Turn.objects.values_list("pk", "last_event"))
EVENTS = Select(
    lambda: (
        TurnEvent.objects.values("turn")
        .annotate(count=Count("pk"), most=Max("number"))
        .values_list("turn", "count", "most")
    )
)
GAPS = Select(
    lambda: Step.objects.values("turn").annotate(count=Count("pk"), most=Max("index")).exclude(count=F("most"))
)
LEFT_OPEN = Select(
    lambda: (
        Step.objects.filter(kind=StepKind.TOOL, status__in=UNANSWERED)
        .exclude(turn__status__in=OPEN_STATUSES)
        .values_list("pk")
    )
)

ENDS = (TurnStatus.DONE, TurnStatus.FAILED, TurnStatus.CANCELLED, TurnStatus.EXPIRED)


@dataclass
class Expected:
    """What a turn should look like."""

    turn: Turn
    status: str = TurnStatus.QUEUED
    epoch: int = 0
    owner: str = ""
    attempts: int = 0
    steps: int = 0
    lease_over: bool = False
    cancelled: bool = False
    late: bool = False
    #: Intents without an outcome, with the claim that wrote them.
    open_steps: list[Step] = field(default_factory=list)
    #: The turn that gave it away, if one did.
    parent: Expected | None = None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES

    @property
    def is_free(self) -> bool:
        return self.status == TurnStatus.QUEUED or (self.status == TurnStatus.RUNNING and self.lease_over)

    @property
    def is_unheld(self) -> bool:
        return self.status in (TurnStatus.QUEUED, TurnStatus.WAITING_CHILD)

    def end(self, status: str) -> None:
        self.status, self.owner = status, ""
        self.open_steps.clear()

    def owned_by(self, claim: Claim) -> bool:
        return self.status == TurnStatus.RUNNING and self.epoch == claim.epoch


class LedgerMachine(RuleBasedStateMachine):
    """Claims are never forgotten: one whose time is over is a zombie's, and must write nothing."""

    member: Membership
    ENDED_BY_SWEEPS: tuple[tuple[str, Callable[[Expected], bool]], ...] = (
        (TurnStatus.CANCELLED, lambda each: each.cancelled),
        (TurnStatus.EXPIRED, lambda each: each.late),
        (
            TurnStatus.FAILED,
            lambda each: each.status == TurnStatus.RUNNING and each.attempts >= settings.TOOLHUB_MAX_ATTEMPTS,
        ),
    )
    any_number = st.integers(0, 1_000)

    def __init__(self) -> None:
        super().__init__()
        self.sessions = [make_session(self.member) for _ in range(2)]
        self.turns: dict[UUID, Expected] = {}
        self.claims: list[Claim] = []

    def teardown(self) -> None:
        with system_scope():
            Turn.objects.all().delete()
            ChatSession.objects.all().delete()

    def turn(self, number: int) -> Expected:
        return list(self.turns.values())[number % len(self.turns)]

    def write(self, number: int, act: Any) -> Expected | None:
        """Let some claim write; None where it was a zombie's, and was refused."""
        claim = self.claims[-1 - number % len(self.claims)]
        expected = self.turns[claim.turn_id]
        if expected.owned_by(claim):
            with system_scope():
                act(claim, expected)
            return expected
        with system_scope(), pytest.raises(LeaseLost):
            act(claim, expected)
        return None

    def children(self, expected: Expected) -> list[Expected]:
        return [each for each in self.turns.values() if each.parent is expected and each.is_open]

    def end(self, expected: Expected, status: str, *, unclaimed: bool = False) -> None:
        """The turn's end, and what follows from it."""
        expected.end(status)
        expected.epoch += unclaimed
        for child in self.children(expected):
            self.stop(child)
        parent = expected.parent
        if parent is not None and parent.status == TurnStatus.WAITING_CHILD and not self.children(parent):
            parent.status = TurnStatus.QUEUED

    def stop(self, expected: Expected) -> None:
        if not expected.is_open or expected.cancelled:
            return
        expected.cancelled = True
        if expected.is_unheld:
            self.end(expected, TurnStatus.CANCELLED, unclaimed=True)
        for child in self.children(expected):
            self.stop(child)

    # -- What may happen

    @initialize(sessions=st.lists(st.integers(0, 1), min_size=1, max_size=4), owner=st.sampled_from(WORKERS))
    def begin(self, sessions: list[int], owner: str) -> None:
        for which in sessions:
            self.accept(which)
        self.claim(0, owner, at_random=False)

    @precondition(lambda self: len(self.turns) < 6)
    @rule(which=st.integers(0, 1))
    def accept(self, which: int) -> None:
        turn = accepted(self.sessions[which])
        self.turns[turn.pk] = Expected(turn)

    @precondition(lambda self: self.turns)
    @rule(number=any_number, owner=st.sampled_from(WORKERS), at_random=st.booleans())
    def claim(self, number: int, owner: str, at_random: bool) -> None:
        free = [each for each in self.turns.values() if self.may_be_claimed(each)]
        expected = self.turn(number) if at_random or not free else free[number % len(free)]
        may = self.may_be_claimed(expected)

        claim = ledger.claim(expected.turn.pk, owner)

        assert (claim is not None) == may
        if claim is not None:
            expected.status, expected.owner, expected.lease_over = TurnStatus.RUNNING, owner, False
            expected.epoch, expected.attempts = expected.epoch + 1, expected.attempts + 1
            assert claim.epoch == expected.epoch
            if claim.epoch == 1:
                expected.late = False  # the time to run begins now
            self.claims.append(claim)

    def may_be_claimed(self, expected: Expected) -> bool:
        return expected.is_free and expected.attempts < settings.TOOLHUB_MAX_ATTEMPTS and not self.waits(expected)

    def waits(self, expected: Expected) -> bool:
        return any(
            other.is_open and other.turn.session_id == expected.turn.session_id and other.turn.seq < expected.turn.seq
            for other in self.turns.values()
        )

    @rule(owner=st.sampled_from(WORKERS))
    def beat(self, owner: str) -> None:
        ledger.renew(owner, list(self.turns))
        for expected in self.turns.values():
            if expected.status == TurnStatus.RUNNING and expected.owner == owner and not expected.late:
                expected.lease_over = False

    @precondition(lambda self: self.turns)
    @rule(number=any_number)
    def lease_runs_out(self, number: int) -> None:
        expected = self.turn(number)
        if expected.status == TurnStatus.RUNNING:
            expire_lease(expected.turn.pk)
            expected.lease_over = True

    @precondition(lambda self: self.turns)
    @rule(number=any_number)
    def deadline_passes(self, number: int) -> None:
        expected = self.turn(number)
        change(expected.turn.pk, deadline_at=ledger.from_now(-60))
        expected.late = True

    @precondition(lambda self: self.claims)
    @rule(number=any_number)
    def release(self, number: int) -> None:
        if expected := self.write(number, lambda claim, _: ledger.release(claim)):
            expected.status, expected.attempts = TurnStatus.QUEUED, expected.attempts - 1

    @precondition(lambda self: self.claims)
    @rule(number=any_number)
    def record_a_model_step(self, number: int) -> None:
        if expected := self.write(number, lambda claim, _: record_model(claim)):
            expected.attempts, expected.steps = 1, expected.steps + 1

    @precondition(lambda self: self.claims)
    @rule(number=any_number)
    def write_an_intent(self, number: int) -> None:
        def act(claim: Claim, expected: Expected) -> None:
            if expected.cancelled and expected.owned_by(claim):
                with pytest.raises(ledger.CancelRequested):
                    start_call(claim, round=expected.steps + 1)
            else:
                expected.open_steps.append(start_call(claim, round=expected.steps + 1))

        expected = self.write(number, act)
        if expected and not expected.cancelled:
            expected.steps += 1

    @precondition(lambda self: self.claims)
    @rule(number=any_number)
    def store_an_outcome(self, number: int) -> None:
        def act(claim: Claim, expected: Expected) -> None:
            if expected.open_steps:
                end_call(claim, expected.open_steps[-1])
            elif not expected.owned_by(claim):
                raise LeaseLost

        expected = self.write(number, act)
        if expected and expected.open_steps:
            expected.open_steps.pop()
            expected.attempts = 1

    @precondition(lambda self: self.claims and len(self.turns) < 10)
    @rule(number=any_number)
    def hand_over(self, number: int) -> None:
        def act(claim: Claim, expected: Expected) -> None:
            turn = Turn.objects.select_related("session", "agent").get(pk=claim.turn_id)
            order = delegation.Order(turn, turn.agent, "Do it.", ())

            def open_child() -> Turn | None:
                with transaction.atomic():
                    step = add_call(claim, round=expected.steps + 1, name="spawn_agent")
                    child = delegation.open_child(claim, step, order)
                    transaction.set_rollback(child is None)
                    return child

            if expected.cancelled and expected.owned_by(claim):
                with pytest.raises(ledger.CancelRequested):
                    open_child()
                return
            child = open_child()
            if child is None:
                return  # the whole tree has the children that one message may have
            step = child.parent_step
            assert step is not None
            assert delegation.open_child(claim, step, order) == child
            self.turns[child.pk] = Expected(child, parent=expected)
            expected.open_steps.append(step)
            expected.steps += 1

        self.write(number, act)

    @precondition(lambda self: self.claims)
    @rule(number=any_number)
    def park(self, number: int) -> None:
        def act(claim: Claim, expected: Expected) -> None:
            if expected.cancelled and expected.owned_by(claim):
                with pytest.raises(ledger.CancelRequested):
                    parking.park(claim)
            else:
                assert parking.park(claim) == bool(self.children(expected))

        expected = self.write(number, act)
        if expected and not expected.cancelled and self.children(expected):
            expected.status, expected.owner, expected.attempts = TurnStatus.WAITING_CHILD, "", 0

    @precondition(lambda self: self.claims)
    @rule(number=any_number, status=st.sampled_from(ENDS))
    def finish(self, number: int, status: TurnStatus) -> None:
        if expected := self.write(number, lambda claim, _: ledger.finish(claim, status)):
            self.end(expected, status)

    @precondition(lambda self: self.turns)
    @rule(number=any_number)
    def cancel(self, number: int) -> None:
        expected = self.turn(number)
        with system_scope():
            ledger.cancel(expected.turn, actor=self.member)
        self.stop(expected)

    @rule()
    def reap(self) -> None:
        reaping.reap()
        for status, is_due in self.ENDED_BY_SWEEPS:
            for expected in [each for each in self.turns.values() if each.is_free and is_due(each)]:
                if expected.is_free:  # and was not stopped with the one that gave it away
                    self.end(expected, status, unclaimed=True)

    # -- What always holds

    @invariant()
    def turns_are_as_expected(self) -> None:
        with system_scope():
            found = {pk: rest for pk, *rest in TURNS.rows()}
        for pk, expected in self.turns.items():
            owner = found[pk].pop()
            assert found[pk] == [expected.status, expected.epoch, expected.attempts, expected.steps]
            assert expected.status != TurnStatus.RUNNING or owner == expected.owner

    @invariant()
    def a_session_runs_one_turn_at_a_time_and_in_order(self) -> None:
        for session in self.sessions:
            begun = [each for each in self.turns.values() if each.turn.session_id == session.pk and each.epoch]
            in_order = sorted(begun, key=lambda each: each.turn.seq)
            assert sum(each.status == TurnStatus.RUNNING for each in begun) <= 1
            assert all(not self.waits(each) for each in in_order if each.status == TurnStatus.RUNNING)

    @invariant()
    def events_and_steps_count_without_gaps(self) -> None:
        with system_scope():
            counted = {turn: (count, most) for turn, count, most in EVENTS.rows()}
            assert counted == {turn: (number, number) for turn, number in LAST_EVENTS.rows()}
            assert GAPS.rows() == []

    @invariant()
    def a_turn_waits_for_somebody_and_nobody_works_for_one_that_has_ended(self) -> None:
        for expected in self.turns.values():
            assert expected.status != TurnStatus.WAITING_CHILD or self.children(expected)
            assert expected.is_open or all(child.cancelled for child in self.children(expected))

    @invariant()
    def an_ended_turn_has_no_open_step(self) -> None:
        with system_scope():
            assert LEFT_OPEN.rows() == []


@pytest.mark.lasting
@pytest.mark.django_db
def test_the_ledger_does_what_its_model_says(bob: Membership) -> None:
    make_agent(bob.organisation)
    machine = type("BobsMachine", (LedgerMachine,), {"member": bob})

    run_state_machine_as_test(
        machine,
        settings=hypothesis_settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
