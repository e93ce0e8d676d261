"""Starts of something that repeats. Pure: knows local times, no time zone, no row.

As RFC 5545 has it, what repeats on the 31st, or on 29 February, is left out where there is no such day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Final

from dateutil.rrule import DAILY, MONTHLY, WEEKLY, YEARLY, rrule

ONCE: Final = "none"


def starts(
    first: datetime, repeat: str, after: datetime, before: datetime, until: date | None = None
) -> Iterator[datetime]:
    """Each start from `after` on and earlier than `before`, in order; none on a day past `until` or past the year 9999.

    Nothing before the day of `after` is walked: a rule that began a century ago costs no more than one of today.
    """
    for whole in (first,) if repeat == ONCE else _rule(first, repeat, max(first, after)):
        start = whole.replace(microsecond=first.microsecond)  # rrule counts whole seconds
        if start >= before or (until is not None and start.date() > until):
            return
        if start >= after:
            yield start


def _rule(first: datetime, repeat: str, begin: datetime) -> Iterable[datetime]:
    """The starts from the day of `begin` on, which may be any from the first one's on."""
    begin = datetime.combine(begin, first.time())
    if repeat == "daily":
        return rrule(DAILY, begin)
    if repeat == "weekly":
        return rrule(WEEKLY, begin, byweekday=first.weekday())
    if repeat == "monthly":
        return rrule(MONTHLY, begin, bymonthday=first.day)
    return rrule(YEARLY, begin, bymonth=first.month, bymonthday=first.day)
