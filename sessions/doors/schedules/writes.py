"""Writes of schedules, for pages, the REST API and the tools `cron_*`.

A schedule's turns act with the rights of its member. So only its member adds, edits or switches it on; whoever has the
right `sessions` sees everybody's, switches them off and deletes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone

from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.text import storable
from capabilities.contract.context import ToolError
from capabilities.models import Agent
from capabilities.running.records.rows import create_numbered
from sessions.doors.schedules.periodic import next_moment
from sessions.models import Schedule
from toolhub.tenants.access import check_right
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.rows.keyset import PAGE, Keyset, Page

#: Schedules that a member may have.
MOST = 20
MAX_NAME = 100
MAX_LINE = 100
MAX_ZONE = 64
MAX_MESSAGE = 10_000
#: A change of one of these moves the next run.
TIMES = ("cron", "timezone")


@dataclass(frozen=True)
class ScheduleContent:
    """Content of a schedule's form. `agent` is a slug; "" for the first agent that is switched on."""

    name: str
    cron: str
    message: str
    agent: str = ""
    timezone: str = "UTC"


# -- Who may ----------------------------------------------------------------------------------------------------------


def may_edit(member: Membership, schedule: Schedule) -> bool:
    """Return whether the member may edit it and switch it on: its own member, who may chat."""
    return schedule.membership_id == member.pk and member.has_access(Access.MEMBER)


def check_may_edit(member: Membership, schedule: Schedule) -> None:
    """Raise PermissionDenied unless the member may edit it and switch it on."""
    if not may_edit(member, schedule):
        raise PermissionDenied("Only its member edits a schedule: its turns act with that member's rights.")


def check_may_end(member: Membership, schedule: Schedule) -> None:
    """Raise PermissionDenied unless the member may switch it off and delete it: its own, or with the right sessions."""
    if schedule.membership_id != member.pk:
        check_right(member, Right.SESSIONS)
    elif not member.has_access(Access.MEMBER):
        raise PermissionDenied("This needs at least the access level member.")


# -- Writes -----------------------------------------------------------------------------------------------------------


@transaction.atomic
def add_schedule(content: ScheduleContent, *, member: Membership) -> Schedule:
    """A new schedule of this member, switched on. Raises ChangeRefused."""
    if Schedule.objects.filter(membership=member).count() >= MOST:
        raise ChangeRefused("name", f"There are {MOST} schedules; remove one first.", code="conflict")
    _check(content)
    schedule = _create(content, member)
    record("schedule.add", schedule, actor=member, after=_content_of(schedule))
    return schedule


def _create(content: ScheduleContent, member: Membership) -> Schedule:
    try:
        return create_numbered(
            Schedule,
            _Owner(member),
            name=storable(content.name.strip()),
            cron=content.cron.strip(),
            timezone=content.timezone,
            message=storable(content.message),
            agent=_agent(member, content.agent),
            next_at=_next(content.cron, content.timezone),
        )
    except ToolError as error:
        raise ChangeRefused("name", str(error), code="conflict") from error


@transaction.atomic
def change_schedule(schedule: Schedule, content: ScheduleContent, *, actor: Membership) -> Schedule:
    """Set all that its form says. Its next run moves with its times. Raises ChangeRefused, PermissionDenied."""
    check_may_edit(actor, schedule)
    _check(content)
    before = _content_of(schedule)
    if content.agent != schedule.agent.slug:
        schedule.agent = _agent(schedule.membership, content.agent)
    schedule.name, schedule.message = storable(content.name.strip()), storable(content.message)
    moved = (schedule.cron, schedule.timezone) != (content.cron.strip(), content.timezone)
    schedule.cron, schedule.timezone = content.cron.strip(), content.timezone
    following = _next(schedule.cron, schedule.timezone)
    fields = ["agent", "name", "message", "cron", "timezone"]
    if moved:
        schedule.next_at, schedule.last_error = following, ""
        fields += ["next_at", "last_error"]
    after = _content_of(schedule)
    if after != before:
        schedule.save(update_fields=fields)
        record("schedule.change", schedule, actor=actor, before=before, after=after)
    return schedule


@transaction.atomic
def switch_schedule(schedule: Schedule, is_enabled: bool, *, actor: Membership) -> Schedule:
    """Switch it on (it goes on with its next moment) or off. Raises ChangeRefused for times that cannot be read."""
    if is_enabled:
        check_may_edit(actor, schedule)
        schedule.next_at, schedule.last_error = _next(schedule.cron, schedule.timezone), ""
    else:
        check_may_end(actor, schedule)
    before, schedule.is_enabled = schedule.is_enabled, is_enabled
    schedule.save(update_fields=["is_enabled", "next_at", "last_error"] if is_enabled else ["is_enabled"])
    if before != is_enabled:
        record(
            "schedule.switch",
            schedule,
            actor=actor,
            before={"is_enabled": before},
            after={"is_enabled": is_enabled},
        )
    return schedule


@transaction.atomic
def remove_schedule(schedule: Schedule, *, actor: Membership) -> None:
    """Delete it; turns that it submitted stay. A second time changes nothing."""
    check_may_end(actor, schedule)
    if Schedule.objects.filter(pk=schedule.pk).delete()[0]:
        record("schedule.remove", schedule, actor=actor, before=_content_of(schedule))


@dataclass(frozen=True)
class _Owner:
    """The member as `create_numbered` wants an owner."""

    member: Membership
    now: Any = timezone.now

    @property
    def organisation_id(self) -> int:
        return self.member.organisation_id

    @property
    def membership_id(self) -> int:
        return self.member.pk


def _check(content: ScheduleContent) -> None:
    for field, text, most in (
        ("name", content.name, MAX_NAME),
        ("message", content.message, MAX_MESSAGE),
        ("cron", content.cron, MAX_LINE),
        ("timezone", content.timezone, MAX_ZONE),
    ):
        if not text.strip():
            raise ChangeRefused(field, "Write something here.", code="blank")
        if len(text) > most:
            raise ChangeRefused(field, f"Use at most {most:,} characters.")


def _agent(member: Membership, slug: str) -> Agent:
    """The agent of that name, or the first one that is switched on, as a newcomer meets it; of those that are offered
    to the schedule's member."""
    if slug:
        found = Agent.objects.offered_to(member).filter(slug=slug).first()
        if found is None:
            raise not_there("agent", "agent", slug)
        return found
    first = Agent.objects.offered_to(member).filter(is_enabled=True).order_by("pk").first()
    if first is None:
        raise ChangeRefused("agent", "There is no agent that is switched on.", code="conflict")
    return first


def _next(cron: str, zone: str) -> datetime:
    try:
        return next_moment(cron, zone, timezone.now())
    except ValueError as error:
        raise ChangeRefused("timezone" if "time zone" in str(error) else "cron", str(error)) from error


def _content_of(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "message": schedule.message,
        "agent": schedule.agent.slug,
        "member": str(schedule.membership),
    }


# -- Reads ------------------------------------------------------------------------------------------------------------


def visible_schedules(member: Membership) -> QuerySet[Schedule]:
    """The member's own, or the organisation's with the right `sessions`; with agent and owner at hand."""
    rows = Schedule.objects.select_related("agent", "membership__user").defer("agent__prompt")
    return rows if member.has_right(Right.SESSIONS) else rows.filter(membership=member)


def schedule_or_404(member: Membership, public_id: UUID) -> Schedule:
    """Return the schedule with this id. Raises Http404 where the member sees none. One query, or two."""
    schedule = visible_schedules(member).filter(public_id=public_id).first()
    if schedule is None:
        raise Http404("No such schedule.")
    return schedule


def schedules_page(
    member: Membership, *, everyone: bool = False, after: str = "", before: str = "", limit: int = PAGE
) -> Page[Schedule]:
    """The member's schedules, or (`everyone`, for who has the right `sessions`) the organisation's, by name."""
    rows = visible_schedules(member)
    if not everyone:
        rows = rows.filter(membership=member)
    return Keyset(rows, ("name", "public_id")).page(after, before, limit=limit)
