"""When something that repeats happens. Pure: knows local times, no time zone, no row.

As RFC 5545 has it, what repeats on the 31st, or on 29 February, is left out where there is no such day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import MAXYEAR, date, datetime, timedelta
from typing import Final

ONCE: Final = "none"
#: Months that one step takes; days for the others.
MONTHS: Final = {"monthly": 1, "yearly": 12}
DAYS: Final = {"daily": 1, "weekly": 7}


def starts(
    first: datetime, repeat: str, after: datetime, before: datetime, until: date | None = None
) -> Iterator[datetime]:
    """Each start from `after` on and earlier than `before`, in order; none on a day past `until`."""
    number = 0 if first >= after else _steps(first, repeat, after)
    while True:
        try:
            start = nth(first, repeat, number)
        except OverflowError:
            return
        number += 1
        if start is None:
            continue
        if start >= before or (until is not None and start.date() > until):
            return
        if start >= after:
            yield start
        if repeat == ONCE:
            return


def nth(first: datetime, repeat: str, number: int) -> datetime | None:
    """The start that is so many steps past the first; None where that month has no such day. Raises OverflowError past
    the year 9999, the last that there is."""
    if repeat in DAYS:
        return first + timedelta(days=DAYS[repeat] * number)
    year, month = divmod(first.year * 12 + first.month - 1 + MONTHS.get(repeat, 0) * number, 12)
    if year > MAXYEAR:
        raise OverflowError
    try:
        return first.replace(year=year, month=month + 1)
    except ValueError:
        return None


def _steps(first: datetime, repeat: str, after: datetime) -> int:
    """Steps that lead to `after` or to a little before it, without walking them."""
    if repeat in DAYS:
        return (after - first).days // DAYS[repeat]
    months = (after.year - first.year) * 12 + after.month - first.month
    return max(0, months // MONTHS[repeat] - 1) if repeat in MONTHS else 0
