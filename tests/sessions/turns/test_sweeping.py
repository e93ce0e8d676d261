"""One organisation's row never stops another's work: each step and each item of a sweep is by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError
from django.utils import timezone

from capabilities.access.grants import writes as grants
from capabilities.models import StoredCredential, StoredSecret
from sessions.doors.chats import writes as chats
from sessions.doors.schedules import periodic
from sessions.models import Approval, ChatSession, Notice, Reservation, Schedule, Step, Turn, TurnStatus
from sessions.turns import accepting, asked, bell, endings, reaping, spending
from sessions.turns import waiting as parking
from sessions.turns.sweeping import FIRST_PAUSE, LONGEST_PAUSE, REMEMBERED, Backoff, each_item
from sessions.usage.rollups import sweep as rollups
from sessions.worker import process as worker
from sessions.worker.process import Housekeeper
from tests.cast import make_approval, make_session, make_turn
from tests.rest import Rest
from tests.sessions.doors.schedules.test_periodic import AGO, overdue_grant, remind, schedule
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

BACKOFFS = (
    reaping.ends_backoff,
    reaping.stops_backoff,
    chats.removal_backoff,
    parking.resume_backoff,
    asked.expiry_backoff,
    asked.connected_backoff,
    periodic.reminders_backoff,
    periodic.schedules_backoff,
    periodic.grants_backoff,
    spending.release_backoff,
    rollups.rollups_backoff,
)


@pytest.fixture(autouse=True)
def no_failures_yet() -> Iterator[None]:
    for backoff in BACKOFFS:
        backoff.clear()
    yield
    for backoff in BACKOFFS:
        backoff.clear()


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Turns that a worker was called for; nobody comes."""
    calls: list[UUID] = []

    def ring(turn_id: UUID) -> bool:
        calls.append(turn_id)
        return True

    monkeypatch.setattr(bell, "ring", ring)
    return calls


@pytest.fixture
def attacker(charlie: Membership) -> ChatSession:
    return make_session(charlie)


@pytest.fixture
def victim(bob: Membership) -> ChatSession:
    return make_session(bob)


def sweep() -> None:
    Housekeeper().sweep()


def fresh(row: Any) -> Any:
    with organisation_scope(row.organisation_id):
        return type(row).objects.get(pk=row.pk)


def late(session: ChatSession) -> Turn:
    """A turn whose deadline has passed."""
    return make_turn(session, deadline_at=timezone.now() - AGO)


def test_a_key_that_a_client_posted_first_does_not_stop_its_schedule(
    attacker: ChatSession, victim: ChatSession
) -> None:
    row = schedule(attacker, session=attacker)
    key = f"schedule:{row.pk}:{row.next_at.isoformat()}"
    rest = Rest(attacker.membership)
    path = f"/api/v1/sessions/{attacker.pk}/turns"
    assert rest.post(path, {"message": "mine"}, {"Idempotency-Key": key}).status == 202
    with organisation_scope(attacker.organisation_id):
        Turn.objects.update(status=TurnStatus.DONE)
    expired, grant = late(victim), overdue_grant(victim, "tool")

    sweep()

    with organisation_scope(attacker.organisation_id):
        assert [turn.message for turn in Turn.objects.order_by("seq")] == ["mine", row.message]
    assert fresh(row).next_at > timezone.now()
    assert fresh(expired).status == TurnStatus.EXPIRED
    assert fresh(grant).lapsed_at is not None


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        ({"cron": "garbage"}, "five fields"),
        ({"cron": "61 * * * *"}, "no schedule"),
        ({"timezone": "Moon/Crater"}, "no time zone"),
        ({"timezone": "../../etc/passwd"}, "no time zone"),
    ],
)
def test_a_schedule_of_garbage_is_switched_off_and_says_why(
    attacker: ChatSession, victim: ChatSession, garbage: dict[str, str], said: str
) -> None:
    bad = schedule(attacker, **garbage)
    good, grant = schedule(victim, next_at=timezone.now()), overdue_grant(victim, "tool")

    sweep()

    row = fresh(bad)
    assert (row.is_enabled, row.last_error.startswith("Switched off: "), said in row.last_error) == (False, True, True)
    with organisation_scope(victim.organisation_id):
        assert Turn.objects.filter(message=good.message).count() == 1
    assert fresh(grant).lapsed_at is not None


def test_a_turn_whose_end_raises_stops_no_other_end(
    attacker: ChatSession, victim: ChatSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = late(attacker), late(victim)
    real = endings.follow_up

    def follow_up(turn_id: UUID, *more: Any) -> None:
        if turn_id == bad.pk:
            raise RuntimeError("this row is broken")
        real(turn_id, *more)

    monkeypatch.setattr(endings, "follow_up", follow_up)

    sweep()

    assert fresh(good).status == TurnStatus.EXPIRED
    assert fresh(bad).status == TurnStatus.QUEUED
    assert f"Sweep: end of turn {bad.pk} of organisation {bad.organisation_id} failed (1 in a row)" in caplog.text
    caplog.clear()
    sweep()
    assert "failed" not in caplog.text, "it is left alone for a while"


def test_more_failing_rows_than_a_sweep_takes_do_not_crowd_out_the_others(
    attacker: ChatSession, victim: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic, "AT_ONCE", 2)
    for number in range(1, 4):
        remind(attacker, number=number, due_at=timezone.now() - 2 * AGO)
    remind(victim)
    real = periodic.post_notice

    def post_notice(session: ChatSession, text: str) -> Notice:
        if session.pk == attacker.pk:
            raise RuntimeError("no")
        return real(session, text)

    monkeypatch.setattr(periodic, "post_notice", post_notice)

    sweep()
    sweep()

    with organisation_scope(victim.organisation_id):
        assert [notice.text for notice in Notice.objects.all()] == ["Reminder: stretch"]


def waiting(session: ChatSession) -> Turn:
    """A turn that waits for a child and has none any more."""
    return make_turn(session, status=TurnStatus.WAITING_CHILD, waiting_since=timezone.now() - AGO)


def ask(session: ChatSession) -> Approval:
    """A call that nobody allowed in time."""
    turn = waiting(session)
    step = Step.objects.create(organisation=turn.organisation, turn=turn, index=1, kind="tool", status="pending")
    return make_approval(step, expires_at=timezone.now() - AGO)


def connected(session: ChatSession) -> None:
    """A call that waits for an account, which is connected by now."""
    turn = waiting(session)
    own = {"organisation": turn.organisation}
    credential = StoredCredential.objects.create(**own, name="far", title="Far", kind="bearer", scope="member")
    StoredSecret.objects.create(**own, credential=credential, membership=session.membership)
    step = Step.objects.create(**own, turn=turn, index=1, kind="tool", status="waiting")
    make_approval(step, kind="link", credential=credential)


def left(session: ChatSession) -> None:
    """Its member leaves, with an open turn and a schedule for later."""
    make_turn(session)
    schedule(session, next_at=timezone.now() + AGO)
    Membership.objects.filter(pk=session.membership_id).update(ended_at=timezone.now())


def deleted(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        ChatSession.objects.update(deleted_at=timezone.now())


def reserved(session: ChatSession) -> None:
    """What is held for a call of a turn that has ended."""
    turn = make_turn(session, status=TurnStatus.DONE, ended_at=timezone.now())
    Reservation.objects.create(organisation=turn.organisation, turn=turn, epoch=1, step=1, tokens=1)


ITEMS: dict[str, tuple[Any, str, Callable[[ChatSession], object]]] = {
    "end of a turn": (reaping, "end_unclaimed", late),
    "stop of a turn": (reaping, "stop_disallowed", left),
    "waiting turn": (parking, "resume", waiting),
    "approval": (asked, "settle", ask),
    "connected account": (asked, "settle", connected),
    "reminder": (periodic, "deliver_reminder", remind),
    "schedule": (periodic, "run_schedule", schedule),
    "schedule of a member who left": (periodic, "switch_off_schedule", left),
    "grant": (periodic, "lapse_grant", lambda session: overdue_grant(session, "tool")),
    "deleted session": (chats, "_remove", deleted),
    "dead reservation": (spending, "_release", reserved),
}


@pytest.mark.parametrize("item", ITEMS)
def test_whatever_failed_is_left_alone_for_a_while_and_then_tried_again(
    attacker: ChatSession, monkeypatch: pytest.MonkeyPatch, item: str
) -> None:
    module, work, make = ITEMS[item]
    with organisation_scope(attacker.organisation_id):
        make(attacker)
    tried = []

    def fails(key: Any, *_: object, **__: object) -> None:
        tried.append(key)
        raise RuntimeError("broken")

    monkeypatch.setattr(module, work, fails)

    sweep()
    sweep()
    assert len(tried) == 1

    for backoff in BACKOFFS:
        backoff.clear()
    sweep()
    assert len(tried) == 2


def test_every_pause_is_in_the_table_of_these_tests() -> None:
    modules = (chats, reaping, parking, asked, periodic, spending, rollups)
    found = [value for module in modules for value in vars(module).values()]
    kept = {id(each) for each in found if isinstance(each, Backoff)}
    written = sum(path.read_text().count(" = Backoff(") for path in Path("sessions").rglob("*.py"))

    assert kept == {id(each) for each in BACKOFFS}
    assert len(kept) == written


def test_a_schedule_that_fails_unforeseen_says_so_and_is_tried_again(
    attacker: ChatSession, victim: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = schedule(attacker), schedule(victim, next_at=timezone.now(), message="good")
    real = accepting.accept

    def accept(session: ChatSession, message: str, **more: Any) -> Any:
        if message != "good":
            raise ZeroDivisionError
        return real(session, message, **more)

    monkeypatch.setattr(accepting, "accept", accept)

    sweep()

    row: Schedule = fresh(bad)
    assert (row.is_enabled, row.next_at) == (True, bad.next_at)
    assert "(ZeroDivisionError)" in row.last_error
    assert fresh(good).last_error == ""
    monkeypatch.setattr(accepting, "accept", real)
    periodic.schedules_backoff.clear()
    sweep()
    assert (fresh(bad).last_error, fresh(bad).next_at > timezone.now()) == ("", True)


def test_a_schedule_whose_session_takes_no_message_says_why_and_moves_on(attacker: ChatSession) -> None:
    child = make_session(attacker.membership, parent_turn=make_turn(attacker, status=TurnStatus.DONE), depth=1)
    row = schedule(attacker, session=child)

    sweep()

    assert "nobody else writes here" in fresh(row).last_error
    assert fresh(row).next_at > timezone.now()


@pytest.mark.parametrize("step", ["reminders", "reap", "ring"])
def test_a_step_that_fails_as_a_whole_keeps_no_other_from_running(
    victim: ChatSession, monkeypatch: pytest.MonkeyPatch, rung: list[UUID], step: str
) -> None:
    expired, grant, waiting = late(victim), overdue_grant(victim, "tool"), make_turn(make_session(victim.membership))

    def fails(*_: object) -> None:
        raise RuntimeError("broken")

    broken = {"reminders": (periodic, "deliver_reminders"), "reap": (reaping, "reap"), "ring": (worker, "unrung")}[step]
    monkeypatch.setattr(*broken, fails)

    sweep()

    assert fresh(grant).lapsed_at is not None
    assert (fresh(expired).status == TurnStatus.EXPIRED) is (step != "reap")
    assert (waiting.pk in rung) is (step != "ring")


def test_a_turn_that_cannot_be_rung_for_keeps_no_other_waiting(
    attacker: ChatSession, victim: ChatSession, monkeypatch: pytest.MonkeyPatch, rung: list[UUID]
) -> None:
    bad, good = make_turn(attacker), make_turn(victim)
    real = bell.ring
    monkeypatch.setattr(bell, "ring", lambda turn_id: real(turn_id) if turn_id != bad.pk else 1 / 0)

    sweep()

    assert rung == [good.pk]


def test_a_lost_connection_is_no_item_s_fault(victim: ChatSession, monkeypatch: pytest.MonkeyPatch) -> None:
    backoff = Backoff("thing")

    def gone(_: object) -> None:
        raise OperationalError("server closed the connection")

    monkeypatch.setattr("sessions.turns.sweeping.connection.is_usable", lambda: False)
    with pytest.raises(OperationalError):
        each_item(backoff, [(1, victim.organisation_id)], gone)

    assert backoff.paused() == []


def test_the_pause_doubles_up_to_its_longest_and_what_is_remembered_is_bounded() -> None:
    backoff = Backoff("thing")
    counts = [backoff.note("a").count for _ in range(40)]
    for key in range(REMEMBERED + 5):
        backoff.note(key)

    assert counts == list(range(1, 41))
    assert FIRST_PAUSE < LONGEST_PAUSE
    assert len(backoff.paused()) == REMEMBERED


def test_what_goes_well_again_begins_anew(victim: ChatSession) -> None:
    backoff = Backoff("thing")
    backoff.note(1)

    assert each_item(backoff, [(1, victim.organisation_id)], lambda _: None) == 1
    assert backoff.note(1).count == 1


def test_a_grant_whose_lapse_raises_stops_no_other(
    attacker: ChatSession, victim: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = overdue_grant(attacker, "a"), overdue_grant(victim, "b")
    real = grants.lapse_grant
    monkeypatch.setattr(periodic, "lapse_grant", lambda pk: real(pk) if pk != bad.pk else 1 / 0)

    sweep()

    assert (fresh(bad).lapsed_at, fresh(good).lapsed_at is None) == (None, False)


def test_a_waiting_turn_that_cannot_go_on_stops_no_other(
    attacker: ChatSession, victim: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: dict[str, Any] = {"status": TurnStatus.WAITING_CHILD, "waiting_since": timezone.now() - timedelta(seconds=5)}
    bad, good = make_turn(attacker, **waits), make_turn(victim, **waits)
    real = parking.resume
    monkeypatch.setattr(parking, "resume", lambda pk: real(pk) if pk != bad.pk else 1 / 0)

    sweep()

    assert (fresh(bad).status, fresh(good).status) == (TurnStatus.WAITING_CHILD, TurnStatus.QUEUED)
