"""The ways people and models write a day with or without a time. Asks no clock: now is given."""

from __future__ import annotations

import re
from datetime import date, datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from capabilities.contract.context import ToolError
from capabilities.running.records.dates import parse_date

CLOCK = re.compile(r"(?:^|[ T])(?:at )?(\d{1,2})(?::(\d{2}))?(?::\d{2})? ?(am|pm)?$", re.IGNORECASE | re.ASCII)
#: Further away a time zone cannot be taken off any more, or nobody means it.
YEARS = range(1900, 2201)


def zone_named(name: str) -> ZoneInfo:
    """Return the time zone of this IANA name. Raises ToolError where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(f"There is no time zone {name!r}: use an IANA name such as Europe/Berlin.") from None


def parse_when(text: str, now: datetime, zone: ZoneInfo) -> datetime | date:
    """A moment in `zone` from `2026-11-23 15:00`, an ISO time with an offset, `tomorrow 15:00`, `friday at 3pm`; or a
    day where no time is said. Raises ToolError with the form to write where it is none of these."""
    when = _iso_moment(text.strip(), zone) or _spoken(" ".join(text.split()), now.astimezone(zone))
    if when.year not in YEARS:
        raise ToolError(f"{text!r} is too far away.")
    return when


def parse_clock(text: str) -> time | None:
    """A time of day alone: `15:00`, `3 pm`. None where it is none."""
    found = CLOCK.search(text.strip())
    if found is None or found.start() != 0 or not (found[2] or found[3]):
        return None
    return _time(found, text)


def _iso_moment(text: str, zone: ZoneInfo) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if ":" in text or "T" in text else None
        if moment is None:
            return None
        return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)
    except (ValueError, OverflowError):
        return None


def _spoken(text: str, now: datetime) -> datetime | date:
    found = CLOCK.search(text)
    if found is None or not (found[2] or found[3]):
        return parse_date(text, now.date())
    words = text[: found.start()].strip(" ,")
    day = parse_date(words, now.date()) if words else now.date()
    return datetime.combine(day, _time(found, text), now.tzinfo)


def _time(found: re.Match[str], text: str) -> time:
    hour, half = int(found[1]), (found[3] or "").lower()
    if half and 1 <= hour <= 12:
        hour = hour % 12 + (12 if half == "pm" else 0)
    elif half:
        hour = 24
    try:
        return time(hour, int(found[2] or 0))
    except ValueError:
        raise ToolError(f"{text!r} is no time: write it as YYYY-MM-DD HH:MM.") from None
