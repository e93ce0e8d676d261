"""The moments that reminders are asked for: a time from now on, else what a calendar takes. Now is given."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from capabilities.contract.context import ToolError
from capabilities.running.records.moments import parse_when, zone_named

AHEAD = re.compile(r"(?:in )?(an?|[0-9]{1,6}) (second|minute|min|hour|day|week)s?")
SECONDS = {"second": 1, "minute": 60, "min": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
#: The hour of a day that comes without one.
MORNING = time(9, 0)


def parse_moment(text: str, now: datetime, zone: str) -> datetime:
    """An aware moment from `in 20 minutes`, an ISO date and time, `tomorrow 9:00`, `friday at 5 pm`, or a day alone
    (9:00). A time of day alone is the next one. Raises ToolError with the form to write where it is none of these."""
    words = " ".join(text.lower().split())
    tz = zone_named(zone)
    if ahead := AHEAD.fullmatch(words):
        count = 1 if ahead[1].startswith("a") else int(ahead[1])
        return _later(now, count * SECONDS[ahead[2]], text)
    when = parse_when(text, now, tz)
    if not isinstance(when, datetime):
        return datetime.combine(when, MORNING, tz)
    is_clock_alone = (words[:1].isdigit() and "-" not in words) or words.startswith("at ")
    return when + timedelta(days=1) if is_clock_alone and when <= now else when


def _later(now: datetime, seconds: int, text: str) -> datetime:
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        raise ToolError(f"{text!r} is too far away.") from None
