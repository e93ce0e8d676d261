"""Removal, demotion and a switch end what is open, on record: queued, waiting and running turns, and schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from capabilities.models import Agent, Offer
from sessions.doors.schedules import periodic
from sessions.loop.run.turn import claimed_turn
from sessions.models import ChatSession, Step, StepStatus, Turn, TurnStatus
from sessions.turns import ledger, reaping
from sessions.turns.fencing import check_may_start
from sessions.worker.process import work_on
from tests.cast import make_agent, make_session, make_turn
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.doors.schedules.test_periodic import schedule
from tests.sessions.run_turns import events_of, run, steps_of
from tests.sessions.steps import accepted, claimed, reread, start_call
from toolhub.tenants.models import Access, AuditEntry, Membership
from toolhub.tenants.people.writes import remove_member, set_access
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

Change = Callable[[Membership, Membership], None]


def removed(member: Membership, admin: Membership) -> None:
    with organisation_scope(member.organisation_id):
        remove_member(member, actor=admin)


def made_viewer(member: Membership, admin: Membership) -> None:
    with organisation_scope(member.organisation_id):
        set_access(member, Access.VIEWER, actor=admin)


def locked_out(member: Membership, admin: Membership) -> None:
    member.user.is_active = False
    member.user.save()


def agent_switched_off(member: Membership, admin: Membership) -> None:
    with organisation_scope(member.organisation_id):
        Agent.objects.update(is_enabled=False)


MEMBER_CHANGES = [(removed, "member_removed"), (made_viewer, "member_is_viewer"), (locked_out, "member_inactive")]


def agent_taken_away(member: Membership, admin: Membership) -> None:
    with organisation_scope(member.organisation_id):
        Agent.objects.filter(pk__in=ChatSession.objects.filter(membership=member).values("agent")).update(
            offered_to=Offer.ROLES
        )


AGENT_CODES = {"agent_disabled", "agent_not_offered"}
CHANGES = [*MEMBER_CHANGES, (agent_switched_off, "agent_disabled"), (agent_taken_away, "agent_not_offered")]
over = pytest.mark.parametrize(("change", "code"), CHANGES)


def ended(turn: Turn) -> tuple[str, str]:
    row = reread(turn)
    return row.status, row.error_code


def how(code: str) -> TurnStatus:
    return TurnStatus.FAILED if code in AGENT_CODES else TurnStatus.CANCELLED


def audit(session: ChatSession, action: str) -> list[tuple[str, str, Any]]:
    with organisation_scope(session.organisation_id):
        rows = AuditEntry.objects.filter(action=action).order_by("number")
        return [(row.actor_label, row.target_label, row.after["reason"]) for row in rows]


@over
def test_a_queued_turn_ends_with_the_next_sweep_on_record(
    session: ChatSession, alice: Membership, change: Change, code: str
) -> None:
    turn, other = accepted(session), accepted(make_session(alice, make_agent(alice.organisation, slug="other")))
    change(session.membership, alice)
    if code == "agent_disabled":
        with organisation_scope(alice.organisation_id):
            Agent.objects.filter(slug="other").update(is_enabled=True)

    reaping.reap()
    reaping.reap()

    assert ended(turn) == (how(code), code)
    assert events_of(turn)[-1] == how(code)
    assert audit(session, "turn.stop") == [("toolhub", "Turn 1", code)]
    assert ended(other) == (TurnStatus.QUEUED, "")


@over
@pytest.mark.django_db(transaction=True)
def test_a_claim_before_the_sweep_asks_no_model(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, change: Change, code: str
) -> None:
    turn = accepted(session)
    change(session.membership, alice)

    work_on(turn.pk)

    assert ended(turn) == (how(code), code)
    assert provider.requests == []


@over
def test_a_running_turn_is_told_to_stop_and_ends_with_the_reason(
    session: ChatSession, alice: Membership, change: Change, code: str
) -> None:
    turn = accepted(session)
    claim = claimed(turn)
    change(session.membership, alice)

    reaping.reap()

    assert reread(turn).cancel_requested_at is not None
    with organisation_scope(session.organisation_id):
        ledger.finish_stopped(claim)
    assert ended(turn) == (how(code), code)


@over
def test_no_call_begins_and_no_round_follows(
    session: ChatSession, alice: Membership, change: Change, code: str
) -> None:
    claim = claimed(accepted(session))
    change(session.membership, alice)

    with organisation_scope(session.organisation_id):
        with pytest.raises(ledger.CancelRequested):
            start_call(claim)
        with pytest.raises(ledger.CancelRequested):
            check_may_start(vars(claimed_turn(claim)))  # as the loop begins
        assert not Step.objects.exists()


@over
@pytest.mark.django_db(transaction=True)
def test_a_change_during_the_first_round_lets_no_call_of_it_run(
    session: ChatSession,
    alice: Membership,
    provider: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    code: str,
) -> None:
    provider.enqueue(Say(calls=(call("task_create", {"title": "buy milk"}),)))
    real = ledger.record_model_step

    def record(*args: Any, **more: Any) -> tuple[Step, list[Step], int]:
        recorded = real(*args, **more)
        change(session.membership, alice)
        return recorded

    monkeypatch.setattr(ledger, "record_model_step", record)

    turn = run(session, "please")

    assert ended(turn) == (how(code), code)
    assert len(provider.requests) == 1
    assert [(step.kind, step.status) for step in steps_of(turn)] == [("model", "done"), ("tool", "refused")]


@pytest.mark.django_db(transaction=True)
def test_a_change_during_a_call_lets_no_round_follow(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.enqueue(Say(calls=(call("uuid", {}),)))
    real = ledger.finish_step

    def finish(*args: Any, **more: Any) -> Any:
        removed(session.membership, alice)
        return real(*args, **more)

    monkeypatch.setattr(ledger, "finish_step", finish)

    turn = run(session, "please")

    assert ended(turn) == (TurnStatus.CANCELLED, "member_removed")
    assert len(provider.requests) == 1
    assert steps_of(turn)[-1].status == StepStatus.DONE


def test_what_a_crashed_worker_left_ends_with_the_reason(session: ChatSession, alice: Membership) -> None:
    turn = accepted(session)
    claimed(turn)
    removed(session.membership, alice)
    with organisation_scope(session.organisation_id):
        Turn.objects.update(lease_until=ledger.from_now(-1))

    reaping.reap()

    assert ended(turn) == (TurnStatus.CANCELLED, "member_removed")


def test_a_waiting_turn_and_its_child_end_together(session: ChatSession, alice: Membership) -> None:
    parent = make_turn(session, status=TurnStatus.WAITING_CHILD, waiting_since=ledger.from_now(0))
    with organisation_scope(session.organisation_id):
        step = Step.objects.create(
            organisation=session.organisation, turn=parent, index=1, kind="tool", status=StepStatus.STARTED
        )
    child = make_turn(make_session(session.membership, parent_turn=parent, depth=1), parent_step=step)
    removed(session.membership, alice)

    reaping.reap()

    assert ended(parent) == (TurnStatus.CANCELLED, "member_removed")
    assert ended(child)[0] == TurnStatus.CANCELLED


def test_another_organisation_s_member_of_the_same_user_goes_on(
    session: ChatSession, alice: Membership, charlie: Membership
) -> None:
    with organisation_scope(charlie.organisation_id):
        elsewhere = Membership.objects.create(organisation=charlie.organisation, user=session.membership.user)
    mine, theirs = accepted(session), accepted(make_session(elsewhere))

    removed(session.membership, alice)
    reaping.reap()

    assert ended(mine) == (TurnStatus.CANCELLED, "member_removed")
    assert ended(theirs) == (TurnStatus.QUEUED, "")


@pytest.mark.parametrize(("change", "code"), MEMBER_CHANGES)
def test_a_schedule_is_switched_off_with_the_reason_on_record(
    session: ChatSession, alice: Membership, change: Change, code: str
) -> None:
    row = schedule(session, next_at=ledger.from_now(3600))
    change(session.membership, alice)

    periodic.sweep()
    periodic.sweep()

    with organisation_scope(session.organisation_id):
        row.refresh_from_db()
        assert not Turn.objects.exists()
    assert (row.is_enabled, row.last_error.startswith("Switched off: The member ")) == (False, True)
    assert audit(session, "schedule.switch_off") == [("toolhub", "Morning", code)]


def test_nothing_starts_for_a_turn_that_was_stopped() -> None:
    fine = {"cancel_requested_at": None, "may_not_go_on": False}

    check_may_start(fine)
    for change in ({"cancel_requested_at": 1}, {"may_not_go_on": True}):
        with pytest.raises(ledger.CancelRequested):
            check_may_start(fine | change)
