"""A member's calendar: events, once or repeated, each in a time zone, and the address under which others read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from django.db.models import QuerySet
from django.urls import reverse
from pydantic import Field

from capabilities.assistant.builtin._lib.occurrences import Occurrence, events_between, occurrences
from capabilities.assistant.models import CalendarEvent
from capabilities.assistant.records.feeds import has_feed, make_feed, remove_feed
from capabilities.assistant.records.writes.calendar import (
    NOTES,
    PLACE,
    TITLE,
    change_event,
    check_room,
    check_span,
    create_event,
    whole_days,
)
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.moments import parse_clock, parse_when, zone_named
from capabilities.running.records.names import holds_all, words_of
from capabilities.running.records.own import own_rows, remove_row
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="calendar",
    title="Calendar",
    description="The member's calendar, with a feed for other calendar programs.",
    keywords=(
        "calendar",
        "event",
        "appointment",
        "meeting",
        "schedule a",
        "agenda",
        "am i free",
        "busy",
        "invite",
        "what's on",
    ),
    is_core=True,
)

#: Occurrences that one listing shows, and overlaps with a new event that are shown.
LIST_LIMIT = 200
OVERLAPS = 5
#: Days that one listing spans at most, and by default; days in which overlaps of a repeated event are looked for.
SPAN_DAYS = 400
USUAL_DAYS = 7
LOOK_AHEAD_DAYS = 60

Number = Annotated[int, Field(description="The event's number.")]
Title = Annotated[str, Field(max_length=TITLE), WITHOUT_NUL]
When = Annotated[
    str, Field(description="Day (whole-day event) or day and time: YYYY-MM-DD HH:MM, friday 15:00.", max_length=60)
]
End = Annotated[str, Field(description="Time, or day and time, or last day; default 1 hour or 1 day.", max_length=60)]
Zone = Annotated[str | None, Field(description="IANA name, as Europe/Berlin.", max_length=64)]
Repeat = Literal["none", "daily", "weekly", "monthly", "yearly"]
Day = Annotated[str, Field(max_length=40)]
Place = Annotated[str, Field(max_length=PLACE), WITHOUT_NUL]
Notes = Annotated[str, Field(max_length=NOTES), WITHOUT_NUL]


@tool(category="calendar", effect="read", human_format="Looking at the calendar")
def calendar_list(
    context: ToolContext,
    start: Annotated[Day, Field(description="First day; default today.")] = "today",
    end: Annotated[Day, Field(description="Last day; default 6 days later.")] = "",
    query: Annotated[str, Field(description="Words of title, place or notes.", max_length=200)] = "",
    time_zone: Zone = None,
) -> dict[str, Any]:
    """List the user's calendar events in a range of days, repeated ones each time, with overlaps."""
    zone = _zone(context, time_zone)
    first = _day(context, start, zone)
    last = (_day(context, end, zone) if end else first + timedelta(days=USUAL_DAYS - 1)) + timedelta(days=1)
    if not first < last <= first + timedelta(days=SPAN_DAYS):
        raise ToolError(f"The last day comes after the first, at most {SPAN_DAYS} days later.")
    begin, finish = (datetime.combine(day, time(), zone) for day in (first, last))
    words = words_of(query)
    events = events_between(context, begin, finish)
    wanted = [event for event in events if holds_all(words, event.title, event.place, event.notes)]
    found = occurrences(wanted, begin, finish, LIST_LIMIT + 1)
    shown = found[:LIST_LIMIT]
    rows = [_as_json(each, zone) | _overlapping(each, shown) for each in shown]
    listing: dict[str, Any] = {"time_zone": zone.key, "events": rows}
    return listing | ({"note": "There are more: name fewer days."} if len(found) > LIST_LIMIT else {})


@tool(category="calendar", effect="write", human_format="Adding to the calendar: {title}")
def calendar_add(
    context: ToolContext,
    title: Title,
    start: When,
    end: End = "",
    time_zone: Zone = None,
    repeat: Repeat = "none",
    repeat_until: Annotated[Day, Field(description="Last day of a repeated event.")] = "",
    place: Place = "",
    notes: Notes = "",
) -> dict[str, Any]:
    """Add an event to the user's calendar. Tells what it overlaps with."""
    check_room(context, repeat)
    zone = _zone(context, time_zone)
    span = _span(context, start, end, zone)
    event = create_event(
        context,
        title=title,
        place=place,
        notes=notes,
        repeat=repeat,
        repeat_until=_until(context, repeat_until, zone),
        time_zone=zone.key,
        **span.fields(),
    )
    return _with_overlaps(context, event)


# Setting the same values a second time changes nothing, so a crash may be followed by another try.
@tool(category="calendar", effect="write", on_crash="retry", human_format="Changing event {number}")
def calendar_update(
    context: ToolContext,
    number: Number,
    title: Title | None = None,
    start: Annotated[When | None, Field(description="The event keeps its length, unless end is given.")] = None,
    end: End | None = None,
    time_zone: Zone = None,
    repeat: Repeat | None = None,
    repeat_until: Annotated[Day | None, Field(description="none takes it away.")] = None,
    place: Place | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Change an event, a repeated one every time it happens; what is left out stays. Tells what it overlaps with."""
    event = _event(context, number)
    given = {"title": title, "place": place, "notes": notes, "repeat": repeat}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if time_zone is not None:
        _set_zone(event, zone_named(time_zone))
    if start is not None or end is not None:
        _move(context, event, start, end)
    if repeat_until is not None:
        changes["repeat_until"] = _until(context, repeat_until, ZoneInfo(event.time_zone))
    change_event(context, event, **changes)
    return _with_overlaps(context, event)


# No retry after a crash: the highest number is given again, so a repeat could remove a newer event.
@tool(category="calendar", effect="write", human_format="Removing event {number}")
def calendar_remove(context: ToolContext, number: Number) -> dict[str, Any]:
    """Remove an event from the user's calendar, a repeated one as a whole."""
    event = _event(context, number)
    row = _as_json(_first(event), ZoneInfo(event.time_zone))
    remove_row(context, event)
    return {"removed": row}


@tool(category="calendar", effect="write", in_untrusted="ask", human_format="Preparing the calendar feed")
def calendar_feed(context: ToolContext, action: Literal["create", "renew", "remove"] = "create") -> dict[str, Any]:
    """Give the user the secret address (.ics) under which other calendar programs can read the calendar.

    It is shown once. renew makes a new one and ends the old one; remove ends it.
    """
    if action == "remove":
        remove_feed(context.membership_id)
        return {"note": "The feed is removed; its address ends in nothing."}
    if action == "create" and has_feed(context.membership_id):
        raise ToolError("There is a feed, and its address was shown once: use the action renew for a new one.")
    secret = make_feed(context.organisation_id, context.membership_id, context.now())
    note = "Add it to this service's address. Whoever knows it can read the calendar; it is not shown again."
    return {"path": reverse("calendar_feed", kwargs={"secret": secret}), "note": note}


@dataclass(frozen=True)
class Span:
    """Span of time: its start, its end, and whether it is in whole days."""

    start: datetime
    end: datetime
    is_all_day: bool

    def fields(self) -> dict[str, Any]:
        return {"starts_at": self.start, "ends_at": self.end, "is_all_day": self.is_all_day}


def _span(context: ToolContext, start: str, end: str, zone: ZoneInfo) -> Span:
    begin = parse_when(start, context.now(), zone)
    if not isinstance(begin, datetime):
        last = parse_when(end, context.now(), zone) if end.strip() else begin
        last_day = last.date() if isinstance(last, datetime) else last
        return _checked(_whole_days(begin, last_day, zone))
    if not end.strip():
        return Span(begin, begin + timedelta(hours=1), False)
    clock = parse_clock(end)
    finish = _next_at(begin, clock) if clock else parse_when(end, context.now(), zone)
    if not isinstance(finish, datetime):
        raise ToolError("The event starts at a time: give its end with a time too.")
    return _checked(Span(begin, finish, False))


def _whole_days(first: date, last: date, zone: ZoneInfo) -> Span:
    return Span(*whole_days(first, last, zone), True)


def _next_at(begin: datetime, clock: time) -> datetime:
    """Return that time of day, or of the next day where it is not later than the beginning: 22:00 to 02:00."""
    end = datetime.combine(begin.date(), clock, begin.tzinfo)
    return end if end > begin else end + timedelta(days=1)


def _checked(span: Span) -> Span:
    check_span(span.start, span.end)
    return span


def _set_zone(event: CalendarEvent, zone: ZoneInfo) -> None:
    """A time stays the moment that it is, a whole day the day."""
    if event.is_all_day:
        first = event.starts_at.astimezone(ZoneInfo(event.time_zone)).date()
        span = _whole_days(first, first + timedelta(days=event.days - 1), zone)
        event.starts_at, event.ends_at = span.start, span.end
    event.time_zone = zone.key


def _move(context: ToolContext, event: CalendarEvent, start: str | None, end: str | None) -> None:
    zone = ZoneInfo(event.time_zone)
    local = event.starts_at.astimezone(zone)
    begin = start if start is not None else f"{local:%Y-%m-%d}" + ("" if event.is_all_day else f" {local:%H:%M}")
    span = _span(context, begin, end or "", zone)
    if not end and span.is_all_day == event.is_all_day:
        if event.is_all_day:
            last = span.start.date() + timedelta(days=event.days - 1)
            span = _whole_days(span.start.date(), last, zone)
        else:
            length = event.ends_at - event.starts_at
            span = Span(span.start, (span.start.astimezone(UTC) + length).astimezone(zone), False)
    event.starts_at, event.ends_at, event.is_all_day = span.start, span.end, span.is_all_day


def _until(context: ToolContext, text: str, zone: ZoneInfo) -> date | None:
    return None if text.strip().lower() in {"", "none"} else _day(context, text, zone)


def _mine(context: ToolContext) -> QuerySet[CalendarEvent]:
    return own_rows(CalendarEvent, context)


def _event(context: ToolContext, number: int) -> CalendarEvent:
    event = _mine(context).filter(number=number).first()
    if event is None:
        raise ToolError(f"There is no event {number}: calendar_list shows the numbers.")
    return event


def _zone(context: ToolContext, name: str | None) -> ZoneInfo:
    """The one that is named, or the organisation's."""
    if name is not None:
        return zone_named(name)
    zone = context.now().tzinfo
    return zone if isinstance(zone, ZoneInfo) else ZoneInfo("UTC")


def _day(context: ToolContext, text: str, zone: ZoneInfo) -> date:
    when = parse_when(text, context.now(), zone)
    return when.date() if isinstance(when, datetime) else when


def _first(event: CalendarEvent) -> Occurrence:
    zone = ZoneInfo(event.time_zone)
    return Occurrence(event, event.starts_at.astimezone(zone), event.ends_at.astimezone(zone))


def _with_overlaps(context: ToolContext, event: CalendarEvent) -> dict[str, Any]:
    """The event, and what it overlaps with: a repeated one on the days from its first one on."""
    first = _first(event)
    last = first.end if event.repeat == CalendarEvent.Repeat.NONE else first.end + timedelta(days=LOOK_AHEAD_DAYS)
    around = occurrences(events_between(context, first.start, last), first.start, last, 5 * LIST_LIMIT)
    own = [each for each in around if each.event.pk == event.pk]
    others = [each for each in around if any(each.overlaps(one) for one in own)]
    zone = ZoneInfo(event.time_zone)
    answer: dict[str, Any] = {"event": _as_json(first, zone)}
    if others:
        answer["overlaps"] = [_brief(each, zone) for each in others[:OVERLAPS]]
    if len(others) > OVERLAPS:
        answer["more_overlaps"] = len(others) - OVERLAPS
    if event.repeat in {"monthly", "yearly"} and first.start.day > 28:
        answer["note"] = f"Where there is no day {first.start.day}, it is left out."
    return answer


def _overlapping(one: Occurrence, others: list[Occurrence]) -> dict[str, Any]:
    numbers = sorted({each.event.number for each in others if one.overlaps(each)})
    return {"overlaps": numbers} if numbers else {}


def _brief(each: Occurrence, zone: ZoneInfo) -> dict[str, Any]:
    return {"number": each.event.number, "title": each.event.title, "start": _moment(each.start, zone)}


def _as_json(each: Occurrence, zone: ZoneInfo) -> dict[str, Any]:
    """Return the occurrence as JSON. Whole days are days wherever one is; times are in the zone that was asked for."""
    event = each.event
    row: dict[str, Any] = {"number": event.number, "title": event.title}
    if event.is_all_day:
        last = each.end.date() - timedelta(days=1)
        row |= {"day": each.start.date().isoformat()} | ({"last_day": last.isoformat()} if event.days > 1 else {})
    else:
        row |= {"start": _moment(each.start, zone), "end": _moment(each.end, zone)}
    if event.repeat != CalendarEvent.Repeat.NONE:
        row["repeat"] = event.repeat
    if event.repeat_until:
        row["repeat_until"] = event.repeat_until.isoformat()
    if not event.is_all_day and event.time_zone != zone.key:
        row["time_zone"] = event.time_zone
    return row | {key: getattr(event, key) for key in ("place", "notes") if getattr(event, key)}


def _moment(moment: datetime, zone: ZoneInfo) -> str:
    return moment.astimezone(zone).isoformat(timespec="minutes")
