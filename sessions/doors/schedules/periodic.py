"""Work that is due by the clock: reminders are shown, schedules submit turns. Swept by every worker, done once each.

Whoever wins the conditional UPDATE of a row does its work, in the same transaction: with three workers or after a
crash, a reminder is shown once, and a schedule submits one turn for each of its moments. What was missed while nothing
ran is made up for once, not once for each moment.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.access.grants.writes import grants_to_lapse, lapse_grant
from capabilities.common.text import storable
from capabilities.models import Agent
from sessions.access import member_ending, member_may_not_chat, own_session
from sessions.doors.chats.writes import open_session
from sessions.models import KEPT, OPEN_STATUSES, ChatSession, Notice, Reminder, Schedule, Turn
from sessions.turns import accepting, ledger
from sessions.turns.sweeping import Backoff, each_item, each_step
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope

#: Rows of each kind that one sweep takes up.
AT_ONCE = 100
#: Seconds until a reminder is tried again that no session could be opened for.
WAIT_FOR_AGENT = 3600
#: Characters of a schedule's last error.
MAX_ERROR = 300
#: Items that failed lately, and are left alone for a while.
reminders_backoff = Backoff("reminder")
schedules_backoff = Backoff("schedule")
grants_backoff = Backoff("grant")


def sweep() -> None:
    """Tell what is due, submit what is scheduled, end what was for a time. Safe in any number of workers at once.

    Each item by itself: one that fails is logged, left alone for a while, and stops nobody else's.
    """
    each_step((deliver_reminders, switch_off_schedules, run_schedules, lapse_grants))


def deliver_reminders() -> None:
    with system_scope():
        due = Reminder.objects.filter(fired_at=None, due_at__lte=Now()).exclude(pk__in=reminders_backoff.paused())
        found = list(due.order_by("due_at", "pk").values_list("pk", "organisation_id")[:AT_ONCE])
    each_item(reminders_backoff, found, deliver_reminder)


def switch_off_schedules() -> None:
    """Switch off the schedules of members who were removed, demoted or locked out."""
    with system_scope():
        found = Schedule.objects.filter(member_may_not_chat(), is_enabled=True).exclude(
            pk__in=schedules_backoff.paused()
        )
        orphans = list(found.order_by("pk").values_list("pk", "organisation_id")[:AT_ONCE])
    each_item(schedules_backoff, orphans, switch_off_schedule)


def run_schedules() -> None:
    with system_scope():
        due = Schedule.objects.filter(is_enabled=True, next_at__lte=Now()).exclude(pk__in=schedules_backoff.paused())
        found = list(due.order_by("next_at", "pk").values_list("pk", "organisation_id")[:AT_ONCE])
    each_item(schedules_backoff, found, run_schedule, on_failure=_note_failure)


def lapse_grants() -> int:
    """Put on record which grants have come to their end; returns how many."""
    return each_item(grants_backoff, grants_to_lapse(grants_backoff.paused()), lapse_grant)


# -- Reminders --------------------------------------------------------------------------------------------------------


@transaction.atomic
def deliver_reminder(reminder_id: int) -> Notice | None:
    """Tell a due reminder in its session (one that an agent opened: in the member's own above it), or in the member's
    last one, or in a new one; None if another worker has, the member was removed, or it waits.

    A session needs an agent: where the organisation has none, the reminder is kept, and tried again in an hour.
    """
    if not Reminder.objects.filter(pk=reminder_id, fired_at=None).update(fired_at=Now()):
        return None
    reminder = Reminder.objects.select_related("session", "membership__user").get(pk=reminder_id)
    if reminder.membership.ended_at is not None:
        return None
    session = own_session(reminder.session) if reminder.session else last_session(reminder.membership_id)
    session = session or _reminders_session(reminder.membership)
    if session is None:
        Reminder.objects.filter(pk=reminder_id).update(fired_at=None, due_at=ledger.from_now(WAIT_FOR_AGENT))
        return None
    return post_notice(session, f"Reminder: {reminder.text}")


def _reminders_session(member: Membership) -> ChatSession | None:
    """A session for a member who has none, with the first agent that is offered to the member, one that is switched on
    before one that is off."""
    agent = Agent.objects.offered_to(member).order_by("-is_enabled", "pk").first()
    return open_session(member, agent, title="Reminders") if agent is not None else None


def post_notice(session: ChatSession, text: str) -> Notice:
    """Say something in a session; a page that has it open shows it within seconds."""
    return Notice.objects.create(organisation_id=session.organisation_id, session=session, text=text)


def last_session(membership_id: int) -> ChatSession | None:
    own = ChatSession.objects.filter(KEPT, membership=membership_id, parent_turn=None)
    return own.order_by("-active_at", "-pk").first()


# -- Schedules --------------------------------------------------------------------------------------------------------


def next_moment(cron: str, zone: str, after: datetime) -> datetime:
    """The first moment after `after` that the cron line names in that time zone, in UTC.

    Where clocks change, as cron on Debian does it: a line with a fixed hour runs once that day (one in the hour that is
    left out: right after it), a line with `*` runs on as time goes by, also in the hour that comes twice.

    Raises ValueError with a sentence for a line or a zone that cannot be.
    """
    try:
        tz = UTC if zone == "UTC" else ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{zone!r} is no time zone; write one such as Europe/Berlin.") from None
    if len(cron.split()) != 5:
        raise ValueError("A schedule has five fields: minute, hour, day of month, month, day of week.")
    try:
        return next(CronSim(cron, after.astimezone(tz))).astimezone(UTC)
    except StopIteration:
        raise ValueError(f"{cron!r} is no schedule: the moment that it names never comes.") from None
    except (CronSimError, ValueError, TypeError, AssertionError) as error:
        field = str(error).removeprefix("Bad ") if isinstance(error, CronSimError) else ""
        raise ValueError(f"{cron!r} is no schedule: {_unread(field)}.") from None


def _unread(field: str) -> str:
    if field == "day-of-week":
        return "the day of week cannot be read; a range such as mon-fri does not go over Saturday, write sat,sun"
    if field in ("day-of-month", "month", "hour", "minute"):
        return f"the {field.replace('-', ' ')} cannot be read, or no such moment comes"
    return "it cannot be read"


@transaction.atomic
def run_schedule(schedule_id: int) -> Turn | None:
    """Submit the turn of a schedule's moment and move on to its next one; None if another worker has, or it cannot.

    One whose line or time zone cannot be read is switched off, and says why.
    """
    schedule = Schedule.objects.select_related("agent", "session", "membership__user").filter(pk=schedule_id).first()
    if schedule is None:
        return None
    moment = schedule.next_at
    due = Schedule.objects.filter(pk=schedule_id, is_enabled=True, next_at=moment)
    try:
        following = next_moment(schedule.cron, schedule.timezone, timezone.now())
    except ValueError as error:
        due.update(is_enabled=False, last_error=storable(f"Switched off: {error}", MAX_ERROR))
        return None
    if not due.update(next_at=following, last_at=Now(), last_error=""):
        return None
    refusal = _why_not(schedule)
    if refusal:
        _note_error(schedule_id, refusal)
        return None
    try:
        session = schedule.session or _own_session(schedule)
        key = f"schedule:{schedule.pk}:{moment.isoformat()}"
        return accepting.accept(
            session, schedule.message, member=schedule.membership, agent=schedule.agent, origin_key=key
        ).turn
    except ledger.Conflict as conflict:
        _note_error(schedule_id, str(conflict))
        return None


@transaction.atomic
def switch_off_schedule(schedule_id: int) -> None:
    """Switch off a schedule whose member may not chat any more, with its audit row; any other is left alone."""
    schedule = Schedule.objects.select_related("membership__user").get(pk=schedule_id)
    ending = member_ending(schedule.membership)
    if ending is None:
        return
    error = f"Switched off: {ending.message}"
    if Schedule.objects.filter(pk=schedule_id, is_enabled=True).update(is_enabled=False, last_error=error):
        record("schedule.switch_off", schedule, actor=None, after={"reason": ending.code, "message": ending.message})


def _note_error(schedule_id: int, error: str) -> None:
    Schedule.objects.filter(pk=schedule_id).update(last_error=storable(error, MAX_ERROR))


def _note_failure(schedule_id: int, error: Exception) -> None:
    _note_error(schedule_id, f"It could not be started ({type(error).__name__}); it is tried again.")


def _why_not(schedule: Schedule) -> str:
    ending = member_ending(schedule.membership)
    if ending is not None:
        return ending.message
    if not schedule.agent.is_enabled:
        return f"The agent {schedule.agent} is switched off."
    if schedule.session and Turn.objects.filter(session=schedule.session, status__in=OPEN_STATUSES).exists():
        return "Its turn before was still running."
    return ""


def _own_session(schedule: Schedule) -> ChatSession:
    session = open_session(schedule.membership, schedule.agent, title=f"Schedule: {schedule.name}")
    Schedule.objects.filter(pk=schedule.pk).update(session=session)
    return session
