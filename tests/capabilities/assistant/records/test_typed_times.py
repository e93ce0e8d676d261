"""Times typed on the pages of what members keep: in the organisation's zone, or in the event's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from capabilities.assistant.records.forms import EventForm
from sessions.models import Reminder
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.times import shown_as


@pytest.mark.parametrize("typed", ["2026-03-29T02:30", "2026-10-25T02:30"])
def test_an_event_may_be_in_an_hour_that_the_zone_of_the_page_skips_or_has_twice(typed: str) -> None:
    fields = {"title": "Call", "starts_at": typed, "time_zone": "Asia/Tokyo", "repeat": "none"}

    with shown_as(Organisation(time_zone="Europe/Berlin")):
        form = EventForm(fields)
        assert form.is_valid(), form.errors

    assert form.values()["starts_at"].isoformat() == f"{typed}:00+09:00"


@pytest.mark.django_db
def test_a_reminder_is_typed_and_shown_in_the_zone_of_the_page(client: Client, alice: Membership) -> None:
    Organisation.objects.filter(pk=alice.organisation_id).update(time_zone="Asia/Tokyo")
    due = datetime(2036, 1, 2, 15, 30, tzinfo=UTC)
    with organisation_scope(alice.organisation_id):
        own = {"organisation": alice.organisation, "membership": alice}
        reminder = Reminder.objects.create(number=1, text="Call Ada", due_at=due, **own)
    client.force_login(alice.user)
    address = f"/o/acme/data/reminders/{reminder.public_id}/"

    page = client.get(address).content.decode()
    client.post(address, {"text": "Call Ada", "due_at": "2036-01-03T01:30"})

    assert "2036-01-03T00:30" in page
    assert "In Asia/Tokyo." in page
    with organisation_scope(alice.organisation_id):
        reminder.refresh_from_db()
    assert reminder.due_at == due + timedelta(hours=1)
