"""Reminders and schedules: told and submitted once each, whoever sweeps, and however often."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from capabilities.models import Agent, Grant
from sessions.doors.schedules import periodic
from sessions.models import ChatSession, Notice, Reminder, Schedule, Turn, TurnStatus
from tests.cast import make_session, make_tool, make_turn
from toolhub.tenants.models import AuditEntry, Membership
from toolhub.tenants.people.writes import remove_member
from toolhub.tenants.rows.scope import organisation_scope

AGO = timedelta(minutes=1)


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


def remind(chat: ChatSession, **fields: object) -> Reminder:
    with organisation_scope(chat.organisation_id):
        values = {"number": 1, "text": "stretch", "due_at": timezone.now() - AGO, "session": chat} | fields
        return Reminder.objects.create(
            organisation=chat.organisation,
            membership=chat.membership,
            **values,
        )


def schedule(chat: ChatSession, **fields: object) -> Schedule:
    with organisation_scope(chat.organisation_id):
        values = {
            "number": 1,
            "name": "Morning",
            "cron": "0 9 * * *",
            "message": "What is due?",
            "agent": chat.agent,
            "next_at": timezone.now() - AGO,
        } | fields
        return Schedule.objects.create(
            organisation=chat.organisation,
            membership=chat.membership,
            **values,
        )


def overdue_grant(chat: ChatSession, name: str) -> Grant:
    """Of the session's member, over for a minute."""
    tool = make_tool(chat.organisation, name)
    with organisation_scope(chat.organisation_id):
        return Grant.objects.create(
            organisation=chat.organisation,
            membership=chat.membership,
            tool=tool,
            effect="allow",
            expires_at=timezone.now() - AGO,
        )


def notices(session: ChatSession) -> list[str]:
    with organisation_scope(session.organisation_id):
        return list(Notice.objects.filter(session=session).order_by("pk").values_list("text", flat=True))


def turns(of: Schedule) -> list[Turn]:
    with organisation_scope(of.organisation_id):
        return list(Turn.objects.filter(message=of.message).order_by("pk"))


@pytest.mark.django_db
def test_a_due_reminder_is_told_in_its_session_once(session: ChatSession) -> None:
    remind(session)

    periodic.sweep()
    periodic.sweep()

    assert notices(session) == ["Reminder: stretch"]


@pytest.mark.django_db
def test_a_reminder_that_is_not_due_waits(session: ChatSession) -> None:
    reminder = remind(session, due_at=timezone.now() + AGO)

    periodic.sweep()

    assert notices(session) == []
    with organisation_scope(session.organisation_id):
        reminder.refresh_from_db()
    assert reminder.fired_at is None


@pytest.mark.django_db
def test_a_reminder_without_its_session_is_told_in_the_member_s_last_one(session: ChatSession) -> None:
    remind(session, session=None)

    periodic.sweep()

    assert notices(session) == ["Reminder: stretch"]


@pytest.mark.django_db
def test_a_reminder_of_a_session_that_an_agent_opened_is_told_in_the_member_s_own(session: ChatSession) -> None:
    child = make_session(session.membership, parent_turn=make_turn(session), depth=1)
    below = make_session(session.membership, parent_turn=make_turn(child), depth=2)
    remind(below)
    remind(below, number=2, session=None)

    periodic.sweep()

    with organisation_scope(session.organisation_id):
        assert {notice.session_id for notice in Notice.objects.all()} == {session.pk}
        assert Notice.objects.count() == 2


@pytest.mark.django_db
def test_a_reminder_of_a_member_without_a_session_opens_one_and_is_told_there(session: ChatSession) -> None:
    remind(session, session=None)
    with organisation_scope(session.organisation_id):
        ChatSession.objects.all().delete()

    periodic.sweep()
    periodic.sweep()

    with organisation_scope(session.organisation_id):
        opened = ChatSession.objects.get()
        assert (opened.title, opened.membership_id) == ("Reminders", session.membership_id)
        assert [notice.text for notice in Notice.objects.filter(session=opened)] == ["Reminder: stretch"]


@pytest.mark.django_db
def test_a_reminder_that_no_session_can_be_opened_for_is_kept(bob: Membership) -> None:
    with organisation_scope(bob.organisation_id):
        own = {"organisation": bob.organisation, "membership": bob, "number": 1, "text": "stretch"}
        reminder = Reminder.objects.create(**own, due_at=timezone.now() - AGO)

    periodic.sweep()

    with organisation_scope(bob.organisation_id):
        reminder.refresh_from_db()
        assert (reminder.fired_at, reminder.due_at > timezone.now()) == (None, True)
        Reminder.objects.update(due_at=timezone.now() - AGO)
    session = make_session(bob)
    periodic.sweep()
    assert notices(session) == ["Reminder: stretch"]


@pytest.mark.django_db
def test_a_reminder_of_a_member_who_was_removed_is_told_to_nobody(alice: Membership, session: ChatSession) -> None:
    remind(session)
    with organisation_scope(session.organisation_id):
        remove_member(session.membership, actor=alice)

    periodic.sweep()

    assert notices(session) == []


def test_a_due_schedule_submits_one_turn_and_moves_on(session: ChatSession) -> None:
    row = schedule(session)

    periodic.sweep()
    periodic.sweep()

    (turn,) = turns(row)
    with organisation_scope(session.organisation_id):
        row.refresh_from_db()
    assert turn.status == TurnStatus.QUEUED
    assert turn.membership_id == session.membership_id
    assert row.session_id == turn.session_id
    assert row.next_at > timezone.now()
    assert (row.next_at.hour, row.next_at.minute) == (9, 0)


@pytest.mark.django_db
def test_moments_that_were_missed_are_made_up_for_once(session: ChatSession) -> None:
    row = schedule(session, cron="*/5 * * * *", next_at=timezone.now() - timedelta(days=3))

    periodic.sweep()

    assert len(turns(row)) == 1


@pytest.mark.django_db
def test_a_schedule_that_is_off_submits_nothing(session: ChatSession) -> None:
    row = schedule(session, is_enabled=False)

    periodic.sweep()

    assert turns(row) == []


@pytest.mark.django_db
def test_a_schedule_waits_while_its_turn_before_is_open(session: ChatSession) -> None:
    make_turn(session, "still at it")
    row = schedule(session, session=session)

    periodic.sweep()

    with organisation_scope(session.organisation_id):
        row.refresh_from_db()
    assert turns(row) == []
    assert row.last_error == "Its turn before was still running."


@pytest.mark.django_db
@pytest.mark.parametrize(("what", "reason"), [("agent", "agent Starter"), ("member", "may not sign in")])
def test_a_schedule_of_a_disabled_agent_or_member_says_so(session: ChatSession, what: str, reason: str) -> None:
    row = schedule(session)
    if what == "agent":
        with organisation_scope(session.organisation_id):
            Agent.objects.update(is_enabled=False)
    else:
        session.membership.user.is_active = False
        session.membership.user.save()

    periodic.sweep()

    with organisation_scope(session.organisation_id):
        row.refresh_from_db()
    assert turns(row) == []
    assert reason in row.last_error


@pytest.mark.django_db(transaction=True)
def test_three_workers_at_once_do_each_thing_once(session: ChatSession) -> None:
    for number in range(1, 6):
        remind(session, number=number, text=f"stretch {number}")
    row = schedule(session)
    for number in range(1, 6):
        overdue_grant(session, f"tool_{number}")
    start = threading.Barrier(3)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            start.wait()
            periodic.sweep()
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert failures == []
    assert sorted(notices(session)) == [f"Reminder: stretch {number}" for number in range(1, 6)]
    assert len(turns(row)) == 1
    with organisation_scope(session.organisation_id):
        lapsed = AuditEntry.objects.filter(action="grant.lapse").values_list("target_label", flat=True)
        assert sorted(lapsed) == [f"Bob: allow tool_{number}" for number in range(1, 6)]
        assert not Grant.objects.filter(lapsed_at=None).exists()


@pytest.mark.parametrize(
    ("cron", "zone", "after", "moment"),
    [
        ("*/5 * * * *", "UTC", "2026-11-22T02:33:10", "2026-11-22T02:35:00"),
        ("0 9 * * mon-fri", "Europe/Berlin", "2026-11-22T02:33:10", "2026-11-23T08:00:00"),
        ("0 9 * * *", "America/New_York", "2026-07-01T12:00:00", "2026-07-01T13:00:00"),
        ("30 2 29 2 *", "UTC", "2026-11-22T00:00:00", "2028-02-29T02:30:00"),
    ],
)
def test_a_cron_line_is_read_on_the_wall_clock_of_its_zone(cron: str, zone: str, after: str, moment: str) -> None:
    found = periodic.next_moment(cron, zone, datetime.fromisoformat(after).replace(tzinfo=UTC))

    assert found == datetime.fromisoformat(moment).replace(tzinfo=UTC)


def moments(cron: str, zone: str, after: str, count: int) -> list[str]:
    """What the line names one after the other, as day, hour and minute in UTC."""
    found, moment = [], datetime.fromisoformat(after).replace(tzinfo=UTC)
    for _ in range(count):
        moment = periodic.next_moment(cron, zone, moment)
        found.append(moment.strftime("%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # Clocks go back in Berlin on 2026-10-25 at 01:00 UTC: 02:00 to 03:00 comes twice.
        ("*/15 * * * *", "2026-10-25T00:40", ["25 00:45", "25 01:00", "25 01:15", "25 01:30", "25 01:45", "25 02:00"]),
        ("30 * * * *", "2026-10-24T23:40", ["25 00:30", "25 01:30", "25 02:30"]),
        ("30 2 * * *", "2026-10-24T12:00", ["25 00:30", "26 01:30"]),
        ("0 9 * * *", "2026-10-24T12:00", ["25 08:00", "26 08:00"]),
        # They go forward on 2026-03-29 at 01:00 UTC: 02:00 to 03:00 is left out.
        ("*/15 * * * *", "2026-03-29T00:40", ["29 00:45", "29 01:00", "29 01:15"]),
        ("30 2 * * *", "2026-03-28T12:00", ["29 01:00", "30 00:30"]),
        ("0 9 * * *", "2026-03-28T12:00", ["29 07:00", "30 07:00"]),
    ],
)
def test_no_moment_is_lost_or_doubled_where_clocks_change(cron: str, after: str, expected: list[str]) -> None:
    assert moments(cron, "Europe/Berlin", after, len(expected)) == expected


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "x",
        "61 * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "* * * *",
        "* * * * * *",
        "@daily",
        "0 0 * * sat-sun",
        "5L/2 5L/2 5L/2 5L/2 5L/2",
    ],
)
def test_a_cron_line_that_cannot_be_is_told(cron: str) -> None:
    with pytest.raises(ValueError, match=r"schedule.*\.$"):
        periodic.next_moment(cron, "UTC", datetime(2026, 11, 22, tzinfo=UTC))
