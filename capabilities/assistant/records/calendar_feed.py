"""A calendar as the text that other programs subscribe to (RFC 5545). Knows events, and nothing of requests.

What happens once is written in UTC. What repeats keeps its local time: it names its time zone, and the feed describes
that for programs that do not know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from icalendar import Calendar, Event, Timezone, vText

from capabilities.assistant.models import CalendarEvent

#: How long what is over stays in the feed.
BEHIND = timedelta(days=366)
#: Years that the description of a time zone covers, before and after the one in which the feed is read.
ZONE_BEHIND = 3
ZONE_AHEAD = 10
#: RFC 5545 allows no control characters but the tab.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def feed_text(name: str, events: Iterable[CalendarEvent], now: datetime) -> str:
    """The whole calendar, every line ended by CR and LF."""
    calendar = Calendar(prodid="-//toolhub//calendar//EN", version="2.0", calscale="GREGORIAN", method="PUBLISH")
    calendar.add("x-wr-calname", Text.without_controls(name))
    entries = [_entry(event) for event in events]
    zones = {str(entry["dtstart"].params["tzid"]) for entry in entries if "tzid" in entry["dtstart"].params}
    for each in (*(_zone(zone, now.year) for zone in sorted(zones)), *entries):
        calendar.add_component(each)
    document: bytes = calendar.to_ical()
    return document.decode()


class Text(vText):
    r"""A text value. The library's own takes the two characters \N for the end of a line."""

    @classmethod
    def without_controls(cls, text: str) -> Text:
        return cls(CONTROL.sub("", text))

    def to_ical(self) -> bytes:
        return rb"\\N".join(vText(part).to_ical() for part in self.split(r"\N"))


def _entry(event: CalendarEvent) -> Event:
    """Return the event as an entry of an iCalendar feed."""
    zone = ZoneInfo(event.time_zone)
    repeats = event.repeat != CalendarEvent.Repeat.NONE
    start: date = event.starts_at.astimezone(zone if repeats or event.is_all_day else UTC)
    end: date = event.ends_at.astimezone(zone if repeats else UTC)
    if event.is_all_day:
        start = date(start.year, start.month, start.day)
        end = start + timedelta(days=event.days)
    entry = Event()
    entry.add("uid", f"{event.uid}@toolhub")
    entry.add("dtstamp", event.updated_at)
    entry.add("dtstart", start)
    if event.is_all_day or event.ends_at > event.starts_at:
        entry.add("dtend", end)
    if repeats:
        entry.add("rrule", {"freq": event.repeat.upper()} | _until(event, zone))
    for key, text in (("summary", event.title), ("location", event.place), ("description", event.notes)):
        if text:
            entry.add(key, Text.without_controls(text))
    return entry


def _until(event: CalendarEvent, zone: ZoneInfo) -> dict[str, date]:
    """UNTIL is a date for whole days, else the moment of the last day's start in UTC."""
    if event.repeat_until is None:
        return {}
    if event.is_all_day:
        return {"until": event.repeat_until}
    clock = event.starts_at.astimezone(zone).time()
    return {"until": datetime.combine(event.repeat_until, clock, zone).astimezone(UTC)}


@lru_cache(maxsize=256)
def _zone(name: str, year: int) -> Timezone:
    """The description of a time zone around that year. It takes up to 30 ms to make, and never changes."""
    zone = Timezone.from_tzid(name, first_date=date(year - ZONE_BEHIND, 1, 1), last_date=date(year + ZONE_AHEAD, 1, 1))
    for part in zone.subcomponents:
        # Where the clock is put forward, the library names the time after the gap; RFC 5545 asks for the one before.
        gap = part.TZOFFSETTO - part.TZOFFSETFROM
        if gap > timedelta():
            part.DTSTART -= gap
            if later := part.pop("rdate", None):
                part.add("rdate", [each.dt - gap for each in later.dts])
    return zone
