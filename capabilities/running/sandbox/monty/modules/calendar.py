"""`calendar`: the functions over years, months and weekdays, and the English names."""

from datetime import date
from typing import Any

MONDAY, TUESDAY, WEDNESDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY = 0, 1, 2, 3, 4, 5, 6
January, February = 1, 2
day_name = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
day_abbr = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
month_name = [
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
month_abbr = ["", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_days = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def isleap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def leapdays(y1: int, y2: int) -> int:
    y1 -= 1
    y2 -= 1
    return (y2 // 4 - y1 // 4) - (y2 // 100 - y1 // 100) + (y2 // 400 - y1 // 400)


def weekday(year: int, month: int, day: int) -> int:
    return date(year, month, day).weekday()


def monthrange(year: int, month: int) -> tuple[int, int]:
    if not 1 <= month <= 12:
        raise ValueError(f"bad month number {month!r}; must be 1-12")
    return weekday(year, month, 1), _days[month] + (1 if month == 2 and isleap(year) else 0)


def monthcalendar(year: int, month: int) -> list[list[int]]:
    first, days = monthrange(year, month)
    cells: list[int] = [0] * first + list(range(1, days + 1))
    cells += [0] * (-len(cells) % 7)
    return [cells[start : start + 7] for start in range(0, len(cells), 7)]


def timegm(moment: Any) -> int:
    year, month, day, hour, minute, second = moment[0], moment[1], moment[2], moment[3], moment[4], moment[5]
    days = (date(year, month, 1) - date(1970, 1, 1)).days + day - 1
    return ((days * 24 + hour) * 60 + minute) * 60 + second  # type: ignore[no-any-return]
