from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import islice

import pytest
from dateutil.rrule import rrule
from hypothesis import given
from hypothesis import strategies as st

from capabilities.assistant.records import recurrence
from capabilities.assistant.records.recurrence import starts

FAR = datetime(2100, 1, 1)
moments = st.datetimes(datetime(1950, 1, 1), datetime(2080, 1, 1)).map(lambda moment: moment.replace(microsecond=0))


def first_days(first: datetime, repeat: str, count: int) -> list[str]:
    return [f"{start:%Y-%m-%d}" for start in islice(starts(first, repeat, first, FAR), count)]


@pytest.mark.parametrize(
    ("first", "repeat", "days"),
    [
        ("2026-11-18", "none", ["2026-11-18"]),
        ("2026-12-30", "daily", ["2026-12-30", "2026-12-31", "2027-01-01"]),
        ("2026-11-18", "weekly", ["2026-11-18", "2026-11-25", "2026-12-02"]),
        ("2026-11-30", "monthly", ["2026-11-30", "2026-12-30", "2027-01-30", "2027-03-30"]),
        ("2026-08-31", "monthly", ["2026-08-31", "2026-10-31", "2026-12-31"]),
        ("2024-02-29", "yearly", ["2024-02-29", "2028-02-29"]),
    ],
)
def test_it_repeats_and_leaves_out_days_that_are_not(first: str, repeat: str, days: list[str]) -> None:
    assert first_days(datetime.fromisoformat(first), repeat, len(days)) == days


@pytest.mark.timeout(10)
@pytest.mark.parametrize("repeat", ["daily", "weekly", "monthly", "yearly"])
def test_what_repeats_ends_with_the_last_year_there_is(repeat: str) -> None:
    first = datetime(9999, 11, 30, 12)

    found = list(starts(first, repeat, first, datetime.max))

    assert found[0] == first
    assert len(found) == {"daily": 32, "weekly": 5, "monthly": 2, "yearly": 1}[repeat]


def test_nothing_starts_past_the_last_day() -> None:
    first = datetime(2026, 11, 18, 22)

    found = list(starts(first, "daily", first, FAR, until=date(2026, 11, 20)))

    assert [start.day for start in found] == [18, 19, 20]


@pytest.mark.parametrize(("repeat", "count"), [("daily", 31), ("weekly", 5), ("monthly", 1), ("yearly", 1)])
def test_a_rule_that_began_long_ago_walks_no_day_before_the_range(
    repeat: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[datetime] = []

    class Watched(rrule):
        def __iter__(self) -> Iterator[datetime]:
            for start in super().__iter__():
                walked.append(start)
                yield start

    monkeypatch.setattr(recurrence, "rrule", Watched)

    found = list(starts(datetime(1, 1, 31, 9), repeat, datetime(9990, 1, 1), datetime(9990, 2, 1)))

    assert len(found) == count
    assert walked[:-1] == found


def test_a_start_keeps_its_fraction_of_a_second() -> None:
    first = datetime(2026, 11, 18, 22, 0, 0, 250)

    assert list(starts(first, "daily", first, first + timedelta(days=2))) == [first, first + timedelta(days=1)]


@given(moments, st.sampled_from(["none", "daily", "weekly", "monthly", "yearly"]), moments, st.integers(0, 1500))
def test_starts_in_a_span_are_those_of_the_whole_series(
    first: datetime, repeat: str, after: datetime, days: int
) -> None:
    after = min(after, first + timedelta(days=4000))
    before = after + timedelta(days=days)

    found = list(starts(first, repeat, after, before))

    walked = (first + timedelta(days=number) for number in range(1 if repeat == "none" else 6000))
    every = (start for start in walked if happens(first, repeat, start))
    assert found == [start for start in every if after <= start < before]


def happens(first: datetime, repeat: str, start: datetime) -> bool:
    """Whether this day, at the first start's time, is one of the rule's."""
    return {
        "none": start == first,
        "daily": True,
        "weekly": start.weekday() == first.weekday(),
        "monthly": start.day == first.day,
        "yearly": (start.month, start.day) == (first.month, first.day),
    }[repeat]
