"""A calendar as the text that other programs subscribe to (RFC 5545). Knows events, and nothing of requests.

Times are written in UTC, so that no description of a time zone is needed. What repeats at a local time then has one
rule for each stretch between two changes of the clock: one rule in UTC would be an hour off for half of the year.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

from capabilities.models import CalendarEvent
from capabilities.records.recurrence import starts

#: Octets of a line, its end not counted.
LINE_OCTETS = 75
#: How far the feed reaches where an event repeats at a local time for ever, and how long what is over stays in it.
AHEAD = timedelta(days=730)
BEHIND = timedelta(days=366)
#: RFC 5545 allows no control characters but the tab.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
BY_DAY = {"daily", "weekly"}
FREQUENCY = {"daily": "DAILY", "weekly": "WEEKLY", "monthly": "MONTHLY", "yearly": "YEARLY"}


@dataclass(frozen=True)
class Stretch:
    """Starts of one event that one rule tells: `rule` is its text, empty for a single one."""

    uid: str
    start: datetime
    rule: str = ""


def feed_text(name: str, events: Iterable[CalendarEvent], now: datetime) -> str:
    """The whole calendar, every line ended by CR and LF."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//toolhub//calendar//EN", "CALSCALE:GREGORIAN"]
    lines += ["METHOD:PUBLISH", f"X-WR-CALNAME:{escaped(name)}"]
    for event in events:
        for stretch in stretches(event, now):
            lines += event_lines(event, stretch)
    lines.append("END:VCALENDAR")
    return "".join(f"{folded_line(line)}\r\n" for line in lines)


def event_lines(event: CalendarEvent, stretch: Stretch) -> Iterator[str]:
    yield "BEGIN:VEVENT"
    yield f"UID:{stretch.uid}@toolhub"
    yield f"DTSTAMP:{utc(event.updated_at)}"
    end = stretch.start.astimezone(UTC) + (event.ends_at - event.starts_at)
    if event.is_all_day:
        yield f"DTSTART;VALUE=DATE:{stretch.start:%Y%m%d}"
        yield f"DTEND;VALUE=DATE:{stretch.start + timedelta(days=event.days):%Y%m%d}"
    else:
        yield f"DTSTART:{utc(stretch.start)}"
        if event.ends_at > event.starts_at:
            yield f"DTEND:{utc(end)}"
    if stretch.rule:
        yield f"RRULE:{stretch.rule}"
    yield f"SUMMARY:{escaped(event.title)}"
    for key, text in (("LOCATION", event.place), ("DESCRIPTION", event.notes)):
        if text:
            yield f"{key}:{escaped(text)}"
    yield "END:VEVENT"


def stretches(event: CalendarEvent, now: datetime) -> Iterator[Stretch]:
    """The rules that together tell every start of the event. A UID names the same starts whenever it is asked for."""
    zone = ZoneInfo(event.time_zone)
    first = event.starts_at.astimezone(zone)
    uid = str(event.uid)
    if event.repeat == CalendarEvent.Repeat.NONE:
        yield Stretch(uid, first)
    elif event.is_all_day or _is_fixed(zone):
        until = f";UNTIL={_last(event, zone)}" if event.repeat_until else ""
        yield Stretch(uid, first, f"FREQ={FREQUENCY[event.repeat]}{until}")
    else:
        yield from _between_changes(event, zone, now)


def _between_changes(event: CalendarEvent, zone: ZoneInfo, now: datetime) -> Iterator[Stretch]:
    first = event.starts_at.astimezone(zone).replace(tzinfo=None)
    horizon = (max(now, event.starts_at) + AHEAD).astimezone(zone).replace(tzinfo=None)
    # Of every day or week, only the latest are walked. The stretch that this cuts in two is over for long and not told,
    # unless the clock never changes; then it is the only one.
    by_day = event.repeat in BY_DAY
    begin = max(first, (now - 2 * BEHIND).astimezone(zone).replace(tzinfo=None)) if by_day else first
    found = [each.replace(tzinfo=zone) for each in starts(first, event.repeat, begin, horizon, event.repeat_until)]
    for _, group in groupby(found, key=lambda each: _same_rule(event, each)):
        run = list(group)
        if run[-1] < now - BEHIND:
            continue
        uid = str(event.uid) if run[0] == found[0] else f"{event.uid}-{run[0]:%Y%m%d}"
        rule = f"FREQ={FREQUENCY[event.repeat]};UNTIL={utc(run[-1])}" if len(run) > 1 else ""
        yield Stretch(uid, run[0], rule)


def _same_rule(event: CalendarEvent, start: datetime) -> object:
    """Equal for neighbours that one rule in UTC tells. By month and year it must count the same days as the local one;
    a start that falls on another day in UTC stands alone."""
    offset = start.utcoffset()
    return offset if event.repeat in BY_DAY or start.astimezone(UTC).date() == start.date() else start


def _is_fixed(zone: ZoneInfo) -> bool:
    """Whether the zone is UTC itself: any other may change its clock one day."""
    return zone.key in {"UTC", "Etc/UTC"}


def _last(event: CalendarEvent, zone: ZoneInfo) -> str:
    """UNTIL has the form of DTSTART: a date for whole days, else a moment."""
    if event.repeat_until is None or event.is_all_day:
        return f"{event.repeat_until:%Y%m%d}"
    clock = event.starts_at.astimezone(zone).time()
    return utc(datetime.combine(event.repeat_until, clock, zone))


def utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def escaped(text: str) -> str:
    """A text value: the separators with a backslash before them, line ends as \\n, no control characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\\", "\\\\")
    lines = lines.replace(";", "\\;").replace(",", "\\,").replace("\n", "\\n")
    return CONTROL.sub("", lines)


def folded_line(line: str) -> str:
    """The line in parts of at most LINE_OCTETS octets, all but the first after a blank. No character is cut in two."""
    parts, size = [""], 0
    for character in line:
        octets = len(character.encode("utf-8", "replace"))
        if size + octets > LINE_OCTETS:
            parts.append(" ")
            size = 1
        parts[-1] += character
        size += octets
    return "\r\n".join(parts)
