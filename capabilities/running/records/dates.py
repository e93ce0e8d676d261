"""The ways people and models write a date. Knows no tool, no row, and asks no clock: today is given."""

from __future__ import annotations

import re
from calendar import day_name, monthrange
from datetime import date, datetime, timedelta

from capabilities.contract.context import ToolError

WEEKDAYS = [name.lower() for name in day_name]


NEAR = {
    "today": 0,
    "tonight": 0,
    "now": 0,
    "tomorrow": 1,
    "day after tomorrow": 2,
    "the day after tomorrow": 2,
    "yesterday": -1,
}


AHEAD = re.compile(r"(?:in )?(an?|[0-9]{1,5}) (day|week|month|year)s?")


def parse_date(text: str, today: date) -> date:
    """A date from `2026-11-23`, `tomorrow`, `friday` (the next one after today), `in 3 days`, `next week`.

    Raises ToolError with the form to write where it is none of these.
    """
    words = " ".join(text.lower().split())
    try:
        if words in NEAR:
            return today + timedelta(days=NEAR[words])
        if weekday := _weekday(words):
            return today + timedelta(days=(weekday - today.isoweekday() - 1) % 7 + 1)
        if ahead := AHEAD.fullmatch(words.replace("next ", "in a ")):
            count = 1 if ahead[1].startswith("a") else int(ahead[1])
            return shift(today, **{f"{ahead[2]}s": count})
        return _iso_date(text.strip())
    except (ValueError, OverflowError):
        raise ToolError(f"{text!r} is not a date: write it as YYYY-MM-DD.") from None


def shift(start: date, *, days: int = 0, weeks: int = 0, months: int = 0, years: int = 0) -> date:
    """Years and months first, kept inside the month (31 January + 1 month = 28 February), then weeks and days.

    Raises ValueError or OverflowError outside the years 1 to 9999.
    """
    year, month = divmod(start.year * 12 + start.month - 1 + years * 12 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError(f"year {year} is out of range")
    moved = start.replace(year=year, month=month + 1, day=min(start.day, monthrange(year, month + 1)[1]))
    return moved + timedelta(days=days, weeks=weeks)


def _weekday(words: str) -> int | None:
    """1 for Monday to 7 for Sunday, also for `on fri` and `next friday`."""
    name = re.sub(r"^(on|next|this|by) ", "", words)
    for number, weekday in enumerate(WEEKDAYS, start=1):
        if len(name) >= 3 and weekday.startswith(name):
            return number
    return None


def _iso_date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text).date()
