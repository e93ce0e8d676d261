"""The ranges that usage is shown for, in periods of the organisation's time zone. Reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from django.utils import timezone

from capabilities.contract.budget_windows import EACH_DAY, EACH_MONTH, span_of, zone_named
from toolhub.tenants.times import clock, long_day, month, short_day


@dataclass(frozen=True)
class Period:
    """One column of a chart: an hour, a day or a month."""

    starts_at: datetime
    label: str
    #: With what the label leaves out.
    title: str


@dataclass(frozen=True)
class Range:
    """Periods one behind the other, from the first's start until before `ends_at`."""

    key: str
    periods: Sequence[Period]
    ends_at: datetime

    @property
    def starts_at(self) -> datetime:
        return self.periods[0].starts_at


RANGES = {"24h": "24 hours", "7d": "7 days", "30d": "30 days", "12m": "12 months"}
DEFAULT_RANGE = "30d"
#: Writes a moment in words.
Writer = Callable[[datetime], str]


def range_of(key: str, zone_name: str, now: datetime) -> Range:
    """The range that ends with the hour, day or month of `now`; by days and months as the zone's calendar has them."""
    zone = zone_named(zone_name)
    if key == "24h":
        hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        starts = [hour - timedelta(hours=number) for number in range(23, -1, -1)]
        return Range(key, [_period(start, zone, clock, _short_moment) for start in starts], hour + timedelta(hours=1))
    window, count = (EACH_MONTH, 12) if key == "12m" else (EACH_DAY, 7 if key == "7d" else 30)
    label, title = (_short_month, month) if window == EACH_MONTH else (short_day, long_day)
    spans = [span_of(window, zone_name, now)]
    while len(spans) < count:
        spans.append(span_of(window, zone_name, spans[-1].starts_at - timedelta(microseconds=1)))
    periods = [_period(each.starts_at, zone, label, title) for each in reversed(spans)]
    ends_at = spans[0].ends_at
    assert ends_at is not None
    return Range(key, periods, ends_at)


def _period(start: datetime, zone: tzinfo, label: Writer, title: Writer) -> Period:
    with timezone.override(zone):
        return Period(start, label(start), title(start))


def _short_moment(start: datetime) -> str:
    return f"{short_day(start)}, {clock(start)}"


def _short_month(start: datetime) -> str:
    return month(start, with_year=False)
