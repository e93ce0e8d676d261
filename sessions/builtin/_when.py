"""The ways people and models write a moment. Asks no clock: now is given."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from capabilities.builtin._dates import parse_date
from capabilities.contract.context import ToolError

AHEAD = re.compile(r"(?:in )?(an?|[0-9]{1,6}) (second|minute|min|hour|day|week)s?")
CLOCK = re.compile(r"(?:at )?([0-9]{1,2})(?:[:.]([0-9]{2}))? ?(am|pm)?")
SECONDS = {"second": 1, "minute": 60, "min": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
#: The hour of a day that comes without one.
MORNING = time(9, 0)
HOW = "write it as YYYY-MM-DDTHH:MM, `in 20 minutes`, or `tomorrow 9:00`"


def parse_moment(text: str, now: datetime, zone: str) -> datetime:
    """An aware moment from an ISO date and time, `in 20 minutes`, `tomorrow 9:00`, `friday at 5 pm`, or a day alone
    (9:00). What names no zone is read in `zone`. Raises ToolError with the form to write where it is none of these."""
    words = " ".join(text.lower().split())
    tz = zone_named(zone)
    try:
        if not words:
            raise ValueError(text)
        if ahead := AHEAD.fullmatch(words):
            count = 1 if ahead[1].startswith("a") else int(ahead[1])
            return now + timedelta(seconds=count * SECONDS[ahead[2]])
        return _iso(text, tz) or _spoken(words, now.astimezone(tz))
    except (ValueError, OverflowError, ToolError):
        raise ToolError(f"{text!r} is no moment: {HOW}.") from None


def zone_named(zone: str) -> ZoneInfo:
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(f"{zone!r} is no time zone; write one such as Europe/Berlin.") from None


def _iso(text: str, tz: ZoneInfo) -> datetime | None:
    """A date with a time as ISO 8601 writes it, in its own zone or else in `tz`; None for anything else."""
    try:
        moment = datetime.fromisoformat(text.strip()) if len(text.strip()) > len("2026-01-31") else None
    except ValueError:
        return None
    return moment.replace(tzinfo=tz) if moment is not None and moment.tzinfo is None else moment


def _spoken(words: str, now: datetime) -> datetime:
    found = re.search(r"(?:^| )(?:at )?[0-9]{1,2}(?:[:.][0-9]{2})? ?(?:am|pm)?$", words)
    clock = CLOCK.fullmatch(found[0].strip()) if found else None
    day = words[: found.start()].strip(" ,") if found and clock else words
    at = _time(clock) if clock else MORNING
    if day:
        return datetime.combine(parse_date(day, now.date()), at, now.tzinfo)
    today = datetime.combine(now.date(), at, now.tzinfo)
    return today if today > now else today + timedelta(days=1)


def _time(clock: re.Match[str]) -> time:
    hour = int(clock[1])
    if clock[3]:
        if not 1 <= hour <= 12:
            raise ValueError("no such hour")
        hour = hour % 12 + (12 if clock[3] == "pm" else 0)
    return time(hour, int(clock[2] or 0))
