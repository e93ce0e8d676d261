"""Reminders as their member writes them: shared by tools, pages and REST. `periodic.py` decides when they are shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from capabilities.models.numbered import Owner
from capabilities.running.records.own import RecordRefused, own_rows
from capabilities.running.records.rows import create_numbered
from sessions.models import Reminder

#: Reminders that a member may have waiting, and characters of one.
REMINDERS = 500
REMINDER_TEXT = 500


@transaction.atomic
def create_reminder(owner: Owner, *, text: str, due_at: datetime, session_id: UUID | None) -> Reminder:
    if own_rows(Reminder, owner).filter(fired_at=None).count() >= REMINDERS:
        raise RecordRefused(f"There are {REMINDERS} reminders waiting; remove some first.")
    return create_numbered(Reminder, owner, text=text, due_at=due_at, session_id=session_id)


@transaction.atomic
def change_reminder(owner: Owner, reminder: Reminder, **changes: Any) -> None:
    """Change a reminder. `changes`: text, due_at. Only one that is still to come; its moment stays ahead. Raises
    RecordRefused."""
    if "due_at" in changes and changes["due_at"] <= owner.now():
        raise RecordRefused("This moment is in the past.", "due_at")
    if "text" in changes:
        changes["text"] = changes["text"].strip()
    if not own_rows(Reminder, owner).filter(pk=reminder.pk, fired_at=None).update(**changes):
        raise RecordRefused("You have been reminded of this already.")
