"""Reminders among what members keep: how the pages and REST of the assistant show and write them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils.timezone import get_current_timezone_name, localtime
from rest_framework import serializers

from capabilities.running.records.forms import RecordForm, moment_field, text_field
from capabilities.running.records.kind import Kind, RecordLine, State
from capabilities.running.records.serializers import identity, moment, number
from sessions.doors.schedules.reminders import REMINDER_TEXT, change_reminder
from sessions.models import Reminder
from toolhub.tenants.times import day_and_time


class ReminderForm(RecordForm):
    text = text_field(REMINDER_TEXT, 2)
    due_at = moment_field(label="When")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["due_at"].help_text = f"In {get_current_timezone_name()}."

    @classmethod
    def initial_of(cls, shown: Mapping[str, Any]) -> dict[str, Any]:
        return dict(shown) | {"due_at": localtime(datetime.fromisoformat(shown["due_at"])).replace(tzinfo=None)}


class ReminderIn(serializers.Serializer[Any]):
    text = serializers.CharField(max_length=REMINDER_TEXT)
    due_at = moment()


class ReminderOut(ReminderIn):
    id = identity()
    number = number()
    fired_at = moment(allow_null=True, help_text="When you were reminded.")
    created_at = moment()


def _reminder(reminder: Reminder) -> RecordLine:
    when = f"{day_and_time(reminder.due_at)} {localtime(reminder.due_at):%Z}"
    return RecordLine(reminder.text, facts=(when,), is_done=reminder.fired_at is not None)


REMINDERS = Kind(
    name="reminders",
    title="Reminders",
    one="reminder",
    icon="bell",
    purpose="What you asked to be reminded of, and when.",
    example="Remind me tomorrow at 9:00 to call Ada",
    model=Reminder,
    order=("-due_at", "-number"),
    searched=("text",),
    line=_reminder,
    out=ReminderOut,
    body=ReminderIn,
    form=ReminderForm,
    change=change_reminder,
    states=(
        State("open", "To come", Q(fired_at=None)),
        State("done", "Told", Q(fired_at__isnull=False)),
    ),
)
