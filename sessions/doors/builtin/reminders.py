"""Reminders of the member who asks: shown at their moment, in the session where they were asked for."""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import QuerySet
from pydantic import Field

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.own import own_rows
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool
from sessions.doors.builtin._when import parse_moment
from sessions.doors.schedules.reminders import REMINDER_TEXT, create_reminder
from sessions.models import Reminder

CATEGORY = CategorySpec(
    name="reminders",
    title="Reminders",
    description="Texts that are told to the member at a moment.",
    keywords=("remind", "reminder", "remember", "don't forget"),
    is_core=True,
)
LIST_LIMIT = 100

Zone = Annotated[str, Field(description="IANA time zone of the user", max_length=64)]


@tool(category="reminders", effect="write", human_format="Reminding of {text}")
def reminders_add(
    context: ToolContext,
    text: Annotated[str, Field(min_length=1, max_length=REMINDER_TEXT), WITHOUT_NUL],
    when: Annotated[str, Field(description="YYYY-MM-DDTHH:MM, in 20 minutes, tomorrow 9:00", max_length=64)],
    timezone: Zone = "UTC",
) -> dict[str, Any]:
    """Remind the user of something at a moment; it is told in this conversation."""
    due_at = parse_moment(when, context.now(), timezone)
    if due_at <= context.now():
        raise ToolError(f"{when} is in the past.")
    reminder = create_reminder(context, text=text, due_at=due_at, session_id=context.session_id)
    return {"reminder": _as_json(reminder)}


@tool(category="reminders", effect="read", human_format="Listing reminders")
def reminders_list(context: ToolContext) -> dict[str, Any]:
    """List the user's reminders that are still to come, the next one first."""
    found = list(_waiting(context).order_by("due_at", "number")[: LIST_LIMIT + 1])
    listing: dict[str, Any] = {"reminders": [_as_json(reminder) for reminder in found[:LIST_LIMIT]]}
    return listing | ({"more": True} if len(found) > LIST_LIMIT else {})


@tool(category="reminders", effect="write", human_format="Removing reminder {number}")
def reminders_remove(
    context: ToolContext, number: Annotated[int, Field(description="The reminder's number.")]
) -> dict[str, Any]:
    """Remove one reminder that is still to come."""
    if not _waiting(context).filter(number=number).delete()[0]:
        raise ToolError(f"There is no reminder {number}; reminders_list shows them.")
    return {"removed": number}


@tool(category="reminders", effect="write", on_crash="retry", human_format="Removing all reminders")
def reminders_clear(context: ToolContext) -> dict[str, Any]:
    """Remove all of the user's reminders that are still to come."""
    return {"removed": _waiting(context).delete()[0]}


def _waiting(context: ToolContext) -> QuerySet[Reminder]:
    return own_rows(Reminder, context).filter(fired_at=None)


def _as_json(reminder: Reminder) -> dict[str, Any]:
    return {
        "number": reminder.number,
        "text": reminder.text,
        "due": reminder.due_at.isoformat(timespec="minutes"),
    }
