"""The events of a calendar."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction

from capabilities.assistant.models import CalendarEvent
from capabilities.contract.context import ToolError
from capabilities.models.numbered import Owner
from capabilities.running.records.moments import YEARS, zone_named
from capabilities.running.records.names import one_line
from capabilities.running.records.own import RecordRefused, own_rows
from capabilities.running.records.rows import create_numbered

#: Events of one member, and those of them that repeat: each is walked day by day.
EVENTS = 5_000
REPEATING = 200
LONGEST = timedelta(days=366)
TITLE = 300
PLACE = 300
NOTES = 5_000

ONCE = CalendarEvent.Repeat.NONE


@transaction.atomic
def create_event(
    owner: Owner,
    *,
    title: str,
    starts_at: datetime,
    ends_at: datetime,
    time_zone: str,
    is_all_day: bool = False,
    repeat: str = ONCE,
    repeat_until: date | None = None,
    place: str = "",
    notes: str = "",
) -> CalendarEvent:
    """An event of whole days takes the days of its time zone that it touches; `ends_at` is where the last one ends."""
    check_room(owner, repeat)
    event = CalendarEvent(
        title=_title(title), starts_at=starts_at, ends_at=ends_at, time_zone=time_zone, is_all_day=is_all_day,
        repeat=repeat, repeat_until=repeat_until, place=place.strip(), notes=notes.strip(),
    )  # fmt: skip
    _complete(event)
    fields = {each: getattr(event, each) for each in (*TEXTS, *TIMES)}
    return create_numbered(CalendarEvent, owner, **fields)


@transaction.atomic
def change_event(owner: Owner, event: CalendarEvent, **changes: Any) -> None:
    """`changes`: the arguments of `create_event`. An event that does not repeat any more has no last day."""
    if "title" in changes:
        changes["title"] = _title(changes["title"])
    changes |= {key: changes[key].strip() for key in ("place", "notes") if key in changes}
    if changes.get("repeat", event.repeat) == ONCE:
        changes.setdefault("repeat_until", None)
    elif event.repeat == ONCE:
        check_room(owner, changes["repeat"], more=0)
    for name, value in changes.items():
        setattr(event, name, value)
    _complete(event)
    fields = {each: getattr(event, each) for each in (*TEXTS, *TIMES)}
    own_rows(CalendarEvent, owner).filter(pk=event.pk).update(**fields, updated_at=owner.now())


TEXTS = ("title", "place", "notes")
TIMES = ("starts_at", "ends_at", "is_all_day", "time_zone", "repeat", "repeat_until")


def whole_days(first: date, last: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the moments at which the first day starts and the last one ends."""
    return datetime.combine(first, time(), zone), datetime.combine(last + timedelta(days=1), time(), zone)


def check_room(owner: Owner, repeat: str, more: int = 1) -> None:
    """Raise RecordRefused where the member has as many events as there may be."""
    rows = own_rows(CalendarEvent, owner)
    if more and rows.count() >= EVENTS:
        raise RecordRefused(f"The calendar holds at most {EVENTS} events: remove some first.")
    if repeat != ONCE and rows.exclude(repeat=ONCE).count() >= REPEATING:
        raise RecordRefused(f"The calendar holds at most {REPEATING} repeated events: remove some first.")


def check_span(start: datetime, end: datetime) -> None:
    """Raises RecordRefused for an event that ends before it starts, or lasts longer than LONGEST."""
    if end <= start:
        raise RecordRefused("The event ends before it starts.", "ends_at")
    if end - start > LONGEST:
        raise RecordRefused(f"An event lasts at most {LONGEST.days} days.", "ends_at")


def _complete(event: CalendarEvent) -> None:
    """Check an event as a whole, and put one of whole days on the days of its zone."""
    try:
        zone = zone_named(event.time_zone)
    except ToolError as error:
        raise RecordRefused(str(error), "time_zone") from None
    for field in ("starts_at", "ends_at"):
        if getattr(event, field).year not in YEARS:
            raise RecordRefused(f"This is outside of the years {YEARS[0]} to {YEARS[-1]}.", field)
    if event.is_all_day:
        first, end = event.starts_at.astimezone(zone).date(), event.ends_at.astimezone(zone)
        last = end.date() if end.timetz() != time(tzinfo=zone) else end.date() - timedelta(days=1)
        if last < first:
            raise RecordRefused("The event ends before it starts.", "ends_at")
        event.starts_at, event.ends_at = whole_days(first, last, zone)
    check_span(event.starts_at, event.ends_at)
    _check_repeat(event, event.starts_at.astimezone(zone).date())


def _check_repeat(event: CalendarEvent, first: date) -> None:
    if event.repeat_until is None:
        return
    if event.repeat == ONCE:
        raise RecordRefused(
            "The event does not repeat: say how with repeat, or leave repeat_until out.", "repeat_until"
        )
    if event.repeat_until < first:
        raise RecordRefused("repeat_until is earlier than the event.", "repeat_until")


def _title(text: str) -> str:
    return one_line(text, "An event needs a title.")
