"""A turn that waits for people, as it waits for other agents: nobody holds it, and it goes on by itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from sessions.models import Approval, ApprovalKind, ApprovalStatus, ChatSession, StepStatus, TurnStatus
from sessions.turns import asked, ledger, waiting
from sessions.turns.reaping import reap
from tests.cast import make_approval, make_turn
from tests.sessions.run_turns import accept, events_of, tool_steps_of
from tests.sessions.steps import add_call, change, claimed, reread
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([ApprovalKind.APPROVAL], TurnStatus.WAITING_APPROVAL),
        ([ApprovalKind.QUESTION], TurnStatus.WAITING_INPUT),
        ([ApprovalKind.QUESTION, ApprovalKind.APPROVAL], TurnStatus.WAITING_APPROVAL),
    ],
)
def test_a_turn_that_waits_for_people_is_held_by_nobody(
    session: ChatSession, kinds: list[ApprovalKind], status: TurnStatus
) -> None:
    turn = accept(session)
    claim = claimed(turn)
    for index, kind in enumerate(kinds):
        make_approval(add_call(claim, call_index=index), kind=kind)

    with organisation_scope(turn.organisation_id):
        assert waiting.park(claim)

    waits = reread(turn)
    assert (waits.status, waits.owner, waits.lease_until) == (status, "", None)
    assert waits.is_open
    assert waits.waiting_since is not None
    assert events_of(turn)[-1] == status


def test_a_turn_goes_on_when_nothing_that_it_waits_for_is_open(session: ChatSession) -> None:
    turn = accept(session)
    claim = claimed(turn)
    first = make_approval(add_call(claim, call_index=0))
    second = make_approval(add_call(claim, call_index=1), kind=ApprovalKind.QUESTION)
    with organisation_scope(turn.organisation_id):
        waiting.park(claim)
        deadline = reread(turn).deadline_at
        change(turn.pk, waiting_since=timezone.now() - timedelta(days=3))

        Approval.objects.filter(pk=first.pk).update(status=ApprovalStatus.DENIED)
        waiting.resume(turn.pk)
        assert reread(turn).status == TurnStatus.WAITING_INPUT

        Approval.objects.filter(pk=second.pk).update(status=ApprovalStatus.RESPONDED)
        waiting.resume(turn.pk)

    resumed = reread(turn)
    assert (resumed.status, resumed.waiting_since) == (TurnStatus.QUEUED, None)
    assert resumed.deadline_at - deadline > timedelta(days=2, hours=23)
    assert events_of(turn)[-1] == "resumed"


def test_a_turn_whose_answer_came_first_does_not_wait(session: ChatSession) -> None:
    turn = accept(session)
    claim = claimed(turn)
    make_approval(add_call(claim), status=ApprovalStatus.APPROVED)

    with organisation_scope(turn.organisation_id):
        assert not waiting.park(claim)

    assert reread(turn).status == TurnStatus.RUNNING


def test_a_sweep_lets_a_turn_go_on_that_everybody_forgot(session: ChatSession) -> None:
    forgotten = make_turn(session, status=TurnStatus.WAITING_APPROVAL, waiting_since=timezone.now())

    reap()

    assert reread(forgotten).status == TurnStatus.QUEUED


def test_a_waiting_turn_that_is_stopped_ends_at_once_and_what_it_asked_is_void(session: ChatSession) -> None:
    turn = accept(session)
    claim = claimed(turn)
    asked = make_approval(add_call(claim))
    with organisation_scope(turn.organisation_id):
        waiting.park(claim)
        ledger.cancel(reread(turn), actor=session.membership)
        asked.refresh_from_db()

    assert reread(turn).status == TurnStatus.CANCELLED
    assert asked.status == ApprovalStatus.VOID
    assert asked.decided_at is not None
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.REFUSED]


def test_a_message_behind_a_turn_that_waits_for_days_is_not_late(session: ChatSession) -> None:
    turn = accept(session)
    claim = claimed(turn)
    asked = make_approval(add_call(claim))
    behind = accept(session, "and then?")
    days = timedelta(days=3)
    with organisation_scope(turn.organisation_id):
        waiting.park(claim)
        change(turn.pk, waiting_since=timezone.now() - days, deadline_at=timezone.now() - days + timedelta(minutes=5))
        change(behind.pk, deadline_at=timezone.now() - timedelta(days=2))
        reap()
        assert reread(behind).status == TurnStatus.QUEUED

        Approval.objects.filter(pk=asked.pk).update(status=ApprovalStatus.DENIED)
        waiting.resume(turn.pk)
    reap()

    assert reread(behind).status == TurnStatus.QUEUED
    assert reread(behind).deadline_at > timezone.now() + timedelta(hours=23)


def test_a_message_that_waits_behind_nobody_is_late(session: ChatSession) -> None:
    turn = accept(session)
    change(turn.pk, deadline_at=timezone.now() - timedelta(seconds=1))

    reap()

    assert reread(turn).status == TurnStatus.EXPIRED


def test_a_turn_that_was_stopped_asks_nobody_any_more(session: ChatSession) -> None:
    turn = accept(session)
    claim = claimed(turn)
    approval = make_approval(add_call(claim))
    change(turn.pk, cancel_requested_at=timezone.now())
    with organisation_scope(turn.organisation_id):
        Approval.objects.filter(pk=approval.pk).delete()
        approval.pk = None

        with pytest.raises(ledger.CancelRequested):
            asked.ask(claim, approval)

        assert not Approval.objects.filter(turn=turn).exists()
