"""Windows of budgets over changes of the clock, ends of months and leap days, and who counts on which budget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.budget_windows import (
    Amounts,
    BudgetTerms,
    Charged,
    PeriodName,
    _last_spans,
    crossed,
    keys_of,
    periods_of,
    span_of,
    window_of,
    zone_named,
)

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("zone", "at", "starts_at", "hours"),
    [
        ("UTC", utc(2026, 11, 23, 0, 21), utc(2026, 11, 23), 24),
        ("Europe/Berlin", utc(2026, 11, 23, 0, 21), utc(2026, 11, 22, 23), 24),
        # Forward on 29 March, back on 25 October.
        ("Europe/Berlin", utc(2026, 3, 29, 12), utc(2026, 3, 28, 23), 23),
        ("Europe/Berlin", utc(2026, 10, 25, 0, 30), utc(2026, 10, 24, 22), 25),
        ("America/New_York", utc(2026, 3, 8, 12), utc(2026, 3, 8, 5), 23),
        ("America/New_York", utc(2026, 11, 1, 12), utc(2026, 11, 1, 4), 25),
        # There is no midnight: the clock goes from 23:59 to 01:00.
        ("Africa/Cairo", utc(2026, 4, 24, 12), utc(2026, 4, 23, 22), 23),
        # It shows midnight twice: the day begins with the first.
        ("America/Havana", utc(2026, 11, 1, 5, 30), utc(2026, 11, 1, 4), 25),
        # It was put back over midnight: what follows belongs to the day that had begun.
        ("America/St_Johns", utc(2009, 11, 1, 2, 40), utc(2009, 11, 1, 2, 30), 25),
        # A day that was left out.
        ("Pacific/Apia", utc(2011, 12, 30, 9, 59), utc(2011, 12, 29, 10), 24),
        ("Pacific/Apia", utc(2011, 12, 30, 10), utc(2011, 12, 30, 10), 24),
        ("Asia/Kolkata", utc(2026, 11, 23, 18, 30), utc(2026, 11, 23, 18, 30), 24),
    ],
)
def test_a_day_lasts_until_the_next_midnight_there(zone: str, at: datetime, starts_at: datetime, hours: int) -> None:
    span = span_of("day", zone, at)

    assert (span.starts_at, span.ends_at) == (starts_at, starts_at + hours * HOUR)


@pytest.mark.parametrize(
    ("zone", "at", "starts_at", "ends_at"),
    [
        ("UTC", utc(2026, 1, 31, 23, 59, 59), utc(2026, 1, 1), utc(2026, 2, 1)),
        ("UTC", utc(2028, 2, 29), utc(2028, 2, 1), utc(2028, 3, 1)),
        ("UTC", utc(2026, 2, 28, 12), utc(2026, 2, 1), utc(2026, 3, 1)),
        ("UTC", utc(2026, 12, 31, 12), utc(2026, 12, 1), utc(2027, 1, 1)),
        # In Berlin it is March already, in the summer that begins within it.
        ("Europe/Berlin", utc(2026, 2, 28, 23, 30), utc(2026, 2, 28, 23), utc(2026, 3, 31, 22)),
        ("America/New_York", utc(2026, 11, 1, 3), utc(2026, 10, 1, 4), utc(2026, 11, 1, 4)),
    ],
)
def test_a_month_lasts_until_the_first_of_the_next(
    zone: str, at: datetime, starts_at: datetime, ends_at: datetime
) -> None:
    span = span_of("month", zone, at)

    assert (span.starts_at, span.ends_at) == (starts_at, ends_at)


def test_29_february_is_a_day_of_its_own() -> None:
    assert span_of("day", "Europe/Berlin", utc(2028, 2, 29, 12)).ends_at == utc(2028, 2, 29, 23)
    assert span_of("day", "Europe/Berlin", utc(2028, 2, 29, 23)).starts_at == utc(2028, 2, 29, 23)


@pytest.mark.parametrize(
    ("zone", "at", "starts_at", "minutes"),
    [
        ("UTC", utc(2026, 11, 23, 0, 21, 7), utc(2026, 11, 23), 60),
        ("Asia/Kolkata", utc(2026, 11, 23, 0, 21), utc(2026, 11, 22, 23, 30), 60),
        # The hour from 2 to 3 comes twice: each is an hour.
        ("Europe/Berlin", utc(2026, 10, 25, 0, 30), utc(2026, 10, 25, 0), 60),
        ("Europe/Berlin", utc(2026, 10, 25, 1, 30), utc(2026, 10, 25, 1), 60),
        # It is left out.
        ("Europe/Berlin", utc(2026, 3, 29, 0, 59), utc(2026, 3, 29, 0), 60),
        ("Europe/Berlin", utc(2026, 3, 29, 1), utc(2026, 3, 29, 1), 60),
        # The clock is put back by half an hour, and forward.
        ("Australia/Lord_Howe", utc(2026, 4, 4, 15, 10), utc(2026, 4, 4, 15), 30),
        ("Australia/Lord_Howe", utc(2026, 10, 3, 15, 40), utc(2026, 10, 3, 15, 30), 30),
    ],
)
def test_an_hour_is_that_of_the_clock(zone: str, at: datetime, starts_at: datetime, minutes: int) -> None:
    span = span_of("hour", zone, at)

    assert (span.starts_at, span.ends_at) == (starts_at, starts_at + timedelta(minutes=minutes))


@given(
    zone=st.sampled_from(sorted(available_timezones())),
    window=st.sampled_from(["hour", "day", "month"]),
    at=st.datetimes(datetime(1972, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC)),
)
def test_windows_follow_each_other_without_a_gap(zone: str, window: str, at: datetime) -> None:
    _last_spans.clear()
    span = span_of(window, zone, at)
    assert span.ends_at is not None

    assert span.starts_at <= at < span.ends_at
    assert span_of(window, zone, span.starts_at) == span
    assert span_of(window, zone, span.ends_at - timedelta(microseconds=1)) == span
    assert span_of(window, zone, span.ends_at).starts_at == span.ends_at
    _last_spans.clear()
    assert span_of(window, zone, span.starts_at) == span


def test_one_second_after_the_reset_is_the_next_window() -> None:
    for window in ("hour", "day", "month"):
        span = span_of(window, "Europe/Berlin", utc(2026, 3, 29, 0, 59, 59))
        assert span.ends_at is not None
        assert span_of(window, "Europe/Berlin", span.ends_at - SECOND) == span
        assert span_of(window, "Europe/Berlin", span.ends_at + SECOND).starts_at == span.ends_at


@pytest.mark.parametrize("name", ["", "Nowhere/Land", "../../etc/passwd", "Europe", "a" * 300])
def test_a_zone_that_is_none_is_utc(name: str) -> None:
    assert zone_named(name) is UTC


def terms(scope: str = "organisation", **more: object) -> BudgetTerms:
    known: dict[str, object] = {"measure": "tokens", "window": "day", "limit": 100, "is_hard": True, "warn_at": ()}
    made = {"id": 1, "name": "A", "scope": scope, "created_at": utc(2026, 1, 1)} | known | more
    return BudgetTerms(**made)  # type: ignore[arg-type]


def charged(**more: object) -> Charged:
    made: dict[str, object] = {"membership_id": 12, "agent_ids": (3, 4), "session_id": "s", "turn_id": "t"}
    made |= {"began_at": utc(2026, 11, 23, 0, 0, 1), "read_roles": lambda: {7}} | more
    return Charged(**made)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "keys"),
    [
        (terms(), [""]),
        (terms("role", target_id=7), [""]),
        (terms("role", target_id=7, is_per_member=True), ["member:12"]),
        (terms("role", target_id=8), []),
        (terms("member"), ["member:12"]),
        (terms("member", target_id=12), [""]),
        (terms("member", target_id=13), []),
        (terms("agent"), ["agent:3", "agent:4"]),
        # One that another agent asked counts on both; on the one above too.
        (terms("agent", target_id=4), [""]),
        (terms("agent", target_id=5), []),
        (terms("session"), ["session:s"]),
        (terms("session", target_id="s"), [""]),
        (terms("session", target_id="other"), []),
    ],
)
def test_a_turn_counts_on_what_it_belongs_to(budget: BudgetTerms, keys: list[str]) -> None:
    assert keys_of(budget, charged()) == keys


def test_an_agent_that_asks_itself_counts_once() -> None:
    assert keys_of(terms("agent"), charged(agent_ids=(3, 3))) == ["agent:3"]


def test_roles_are_not_read_where_no_budget_is_for_a_role() -> None:
    def read() -> set[int]:
        raise AssertionError

    assert keys_of(terms("member"), charged(read_roles=read)) == ["member:12"]


def test_each_turn_has_its_own_period() -> None:
    found = list(periods_of(terms("member", window="turn"), charged(), "UTC", utc(2026, 11, 23, 5)))

    assert found == [PeriodName(1, "member:12 turn:t", utc(2026, 11, 23, 0, 0, 1))]
    assert [each.key for each in periods_of(terms(window="turn"), charged(), "UTC", utc(2026, 11, 23))] == ["turn:t"]


def test_a_budget_for_good_and_one_of_turns_at_once_never_end() -> None:
    for budget in (terms(window="total"), terms(measure="turns", window="day"), terms(measure="turns", window="turn")):
        found = list(periods_of(budget, charged(), "UTC", utc(2026, 11, 23)))
        assert found == [PeriodName(1, "", utc(2026, 1, 1))]
        assert window_of(budget, "UTC", utc(2026, 11, 23)).ends_at is None


def test_what_is_left_counts_what_is_reserved_and_was_added() -> None:
    amounts = Amounts(limit=100, added=50, spent=60, reserved=30)

    assert (amounts.total, amounts.left, amounts.percent, amounts.is_spent) == (150, 60, 40, False)
    assert Amounts(limit=100, spent=90, reserved=50).left == 0
    assert not Amounts(limit=100, spent=90, reserved=50).is_spent
    assert Amounts(limit=100, spent=100).is_spent
    assert (Amounts(limit=0).percent, Amounts(limit=0).share_left) == (100, 0.0)


@pytest.mark.parametrize(
    ("percent", "warned", "share"), [(49, 0, 0), (50, 0, 50), (85, 0, 80), (85, 80, 0), (120, 80, 100), (79, 50, 0)]
)
def test_the_highest_share_that_is_reached_warns_once(percent: int, warned: int, share: int) -> None:
    assert crossed((50, 80, 100), percent, warned) == share
