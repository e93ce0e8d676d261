from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from sessions.doors.schedules import periodic
from sessions.models import ChatSession, Notice, Reminder
from tests.cast import make_member, make_role, make_session, make_turn
from tests.sessions.doors.builtin.conftest import Use
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def test_a_reminder_that_was_asked_for_is_told_in_that_session(session: ChatSession, use: Use) -> None:
    added = use("reminders_add", text="stretch", when="in 20 minutes")
    with organisation_scope(session.organisation_id):
        Reminder.objects.update(due_at=timezone.now() - timedelta(seconds=1))

    periodic.sweep()

    assert added["reminder"]["number"] == 1
    with organisation_scope(session.organisation_id):
        assert [notice.text for notice in Notice.objects.filter(session=session)] == ["Reminder: stretch"]
    assert use("reminders_list") == {"reminders": []}


def test_reminders_are_listed_by_their_moment_and_removed_by_number(use: Use) -> None:
    use("reminders_add", text="later", when="in 2 days")
    use("reminders_add", text="sooner", when="in an hour")

    assert [each["text"] for each in use("reminders_list")["reminders"]] == ["sooner", "later"]
    assert use("reminders_remove", number=2) == {"removed": 2}
    assert "no reminder 2" in use("reminders_remove", number=2)["error"]
    assert use("reminders_clear") == {"removed": 1}


@pytest.mark.parametrize(("when", "said"), [("2020-01-01T10:00", "is in the past"), ("whenever", "is not a date")])
def test_a_moment_that_cannot_be_is_told(use: Use, when: str, said: str) -> None:
    assert said in use("reminders_add", text="x", when=when)["error"]


def test_another_member_s_reminders_do_not_exist(session: ChatSession, use: Use) -> None:
    use("reminders_add", text="secret", when="in an hour")
    dora = make_member(session.organisation, "dora")
    make_role(session.organisation, dora)
    hers = make_turn(make_session(dora))

    assert use("reminders_list", of=hers) == {"reminders": []}
    assert use("reminders_clear", of=hers) == {"removed": 0}
    assert "There is no reminder 1" in use("reminders_remove", of=hers, number=1)["error"]
