"""Schedules of the member who asks: a message that is submitted again and again, by a cron line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from pydantic import Field

from capabilities.common.refused import ChangeRefused
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool
from sessions.doors.schedules.writes import ScheduleContent, add_schedule, remove_schedule, switch_schedule
from sessions.models import Schedule
from toolhub.tenants.models import Membership

CATEGORY = CategorySpec(
    name="cron",
    title="Schedules",
    description="Messages that are submitted by the clock, as turns of their own.",
    keywords=("schedule", "cron", "every day", "every week", "recurring", "automate", "job"),
)
Number = Annotated[int, Field(description="The schedule's number.")]


@tool(category="cron", effect="read", human_format="Listing schedules")
def cron_list(context: ToolContext) -> dict[str, Any]:
    """List the user's schedules with their next moment."""
    return {"schedules": [_as_json(each) for each in _mine(context).select_related("agent").order_by("number")]}


@tool(category="cron", effect="write", in_untrusted="ask", human_format="Scheduling {name}")
def cron_add(
    context: ToolContext,
    name: Annotated[str, Field(min_length=1, max_length=100), WITHOUT_NUL],
    schedule: Annotated[str, Field(description="Five cron fields: 0 9 * * mon-fri", max_length=100)],
    message: Annotated[
        str, Field(description="What is sent to the agent each time", min_length=1, max_length=10_000), WITHOUT_NUL
    ],
    timezone: Annotated[str, Field(description="IANA time zone of the fields", max_length=64)] = "UTC",
) -> dict[str, Any]:
    """Submit a message to this agent again and again, in a session of its own."""
    # By hand there is no agent: then it is the first one.
    content = ScheduleContent(name, schedule, message, agent=context.agent, timezone=timezone)
    with _refusals_as_text():
        return {"schedule": _as_json(add_schedule(content, member=_member(context)))}


@tool(category="cron", effect="write", human_format="Removing schedule {number}")
def cron_remove(context: ToolContext, number: Number) -> dict[str, Any]:
    """Remove a schedule. Turns that it submitted stay."""
    with _refusals_as_text():
        remove_schedule(_one(context, number), actor=_member(context))
    return {"removed": number}


@tool(category="cron", effect="write", on_crash="retry", human_format="Switching schedule {number}")
def cron_toggle(context: ToolContext, number: Number, enabled: bool) -> dict[str, Any]:
    """Switch a schedule on or off. Switched on, it goes on with its next moment."""
    with _refusals_as_text():
        return {"schedule": _as_json(switch_schedule(_one(context, number), enabled, actor=_member(context)))}


@contextmanager
def _refusals_as_text() -> Iterator[None]:
    """Raise what the write refuses as a ToolError, which the model reads."""
    try:
        yield
    except (ChangeRefused, PermissionDenied) as error:
        raise ToolError(str(error)) from error


def _member(context: ToolContext) -> Membership:
    return Membership.objects.select_related("user").get(pk=context.membership_id)


def _mine(context: ToolContext) -> QuerySet[Schedule]:
    return Schedule.objects.filter(membership=context.membership_id)


def _one(context: ToolContext, number: int) -> Schedule:
    row = _mine(context).select_related("agent", "membership__user").filter(number=number).first()
    if row is None:
        raise ToolError(f"There is no schedule {number}; cron_list shows them.")
    return row


def _as_json(row: Schedule) -> dict[str, Any]:
    shown = {
        "number": row.number,
        "name": row.name,
        "schedule": row.cron,
        "timezone": row.timezone,
        "message": row.message[:200],
        "agent": row.agent.slug,
        "enabled": row.is_enabled,
        "next": row.next_at.isoformat(timespec="minutes") if row.is_enabled else None,
    }
    return shown | ({"last_error": row.last_error} if row.last_error else {})
