from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.models import CalendarEvent
from capabilities.records.calendar_feed import escaped, feed_text, folded_line
from capabilities.records.recurrence import starts

NOW = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
UID = uuid.UUID("11111111-2222-4333-8444-555555555555")

texts = st.text(st.characters(exclude_categories=["Cs"]))


def make_event(start: datetime, hours: float = 1, **fields: Any) -> CalendarEvent:
    defaults = {"uid": UID, "title": "Stand-up", "updated_at": NOW, "time_zone": str(start.tzinfo)} | fields
    return CalendarEvent(starts_at=start, ends_at=start + timedelta(hours=hours), **defaults)


def lines_of(*events: CalendarEvent) -> list[str]:
    return feed_text("Acme: Alice", events, NOW).replace("\r\n ", "").split("\r\n")


def told_starts(lines: list[str]) -> list[datetime]:
    """Every start that the rules tell, as a calendar program would: counted in UTC."""
    found: list[datetime] = []
    for block in "\n".join(lines).split("BEGIN:VEVENT")[1:]:
        first = re.search(r"DTSTART:(\S+)", block)
        assert first
        start = datetime.strptime(first[1], "%Y%m%dT%H%M%SZ")
        rule = re.search(r"RRULE:FREQ=(\w+)(?:;UNTIL=(\S+))?", block)
        if not rule:
            found.append(start)
            continue
        until = (
            datetime.strptime(rule[2], "%Y%m%dT%H%M%SZ") if rule[2] else NOW.replace(tzinfo=None) + timedelta(days=9)
        )
        found += starts(start, rule[1].lower(), start, until + timedelta(seconds=1))
    return sorted(found)


def test_the_whole_feed_is_as_rfc_5545_has_it() -> None:
    event = make_event(datetime(2026, 11, 20, 15, tzinfo=BERLIN), place="Room 1; left", notes="a,b\nc")

    assert feed_text("Acme, Inc.", [event], NOW) == (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//toolhub//calendar//EN\r\nCALSCALE:GREGORIAN\r\nMETHOD:PUBLISH\r\n"
        "X-WR-CALNAME:Acme\\, Inc.\r\n"
        "BEGIN:VEVENT\r\nUID:11111111-2222-4333-8444-555555555555@toolhub\r\nDTSTAMP:20261118T093000Z\r\n"
        "DTSTART:20261120T140000Z\r\nDTEND:20261120T150000Z\r\nSUMMARY:Stand-up\r\n"
        "LOCATION:Room 1\\; left\r\nDESCRIPTION:a\\,b\\nc\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )


def test_whole_days_are_dates_with_the_end_left_out() -> None:
    event = make_event(datetime(2026, 12, 24, tzinfo=BERLIN), 72, is_all_day=True, repeat="yearly")

    lines = lines_of(event)

    assert [line for line in lines if line.startswith(("DT", "RR"))][1:] == [
        "DTSTART;VALUE=DATE:20261224",
        "DTEND;VALUE=DATE:20261227",
        "RRULE:FREQ=YEARLY",
    ]


def test_an_event_without_length_has_no_end() -> None:
    assert not [line for line in lines_of(make_event(NOW, 0)) if line.startswith("DTEND")]


@pytest.mark.parametrize(
    ("until", "rule"), [(None, "FREQ=WEEKLY"), ("2026-12-24", "FREQ=WEEKLY;UNTIL=20261224T093000Z")]
)
def test_in_utc_one_rule_is_enough(until: str | None, rule: str) -> None:
    day = datetime.fromisoformat(until).date() if until else None
    event = make_event(NOW.replace(tzinfo=ZoneInfo("UTC")), repeat="weekly", repeat_until=day)

    assert f"RRULE:{rule}" in lines_of(event)


def test_a_repeated_event_keeps_its_local_time_when_the_clock_changes() -> None:
    event = make_event(datetime(2026, 10, 19, 9, tzinfo=BERLIN), repeat="weekly")

    found = told_starts(lines_of(event))

    local = [start.replace(tzinfo=UTC).astimezone(BERLIN) for start in found]
    assert {(start.hour, start.minute, start.weekday()) for start in local} == {(9, 0, 0)}
    assert found[:3] == [datetime(2026, 10, 19, 7), datetime(2026, 10, 26, 8), datetime(2026, 11, 2, 8)]
    assert len(found) == len(set(found)) > 100


@pytest.mark.parametrize("repeat", ["daily", "weekly", "monthly", "yearly"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"])
@pytest.mark.parametrize("hour", [0, 2, 12, 23])
def test_the_rules_tell_every_start_and_no_other(repeat: str, zone: str, hour: int) -> None:
    first = datetime(2025, 10, 31, hour, 30)
    event = make_event(first.replace(tzinfo=ZoneInfo(zone)), repeat=repeat)
    last = NOW.replace(tzinfo=None) + timedelta(days=700)

    found = [start for start in told_starts(lines_of(event)) if NOW.replace(tzinfo=None) < start < last]

    local = starts(first, repeat, first, last + timedelta(days=2))
    in_utc = [start.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).replace(tzinfo=None) for start in local]
    assert found == [start for start in in_utc if NOW.replace(tzinfo=None) < start < last]


def test_uids_are_the_same_a_month_later() -> None:
    event = make_event(datetime(2010, 3, 1, 9, tzinfo=BERLIN), repeat="daily")

    now, later = (feed_text("a", [event], NOW + timedelta(days=days)) for days in (0, 30))

    uids = [set(re.findall(r"UID:(\S+)", text.replace("\r\n ", ""))) for text in (now, later)]
    assert len(uids[0] & uids[1]) >= len(uids[0]) - 1
    assert len(re.findall("BEGIN:VEVENT", now)) < 10


def test_a_daily_event_of_long_ago_takes_little_time() -> None:
    events = [make_event(datetime(1900, 3, 1, 9, tzinfo=BERLIN), repeat="daily") for _ in range(5)]

    assert feed_text("a", events, NOW).count("BEGIN:VEVENT") < 50


@given(texts)
def test_a_folded_line_is_short_and_unfolds_to_itself(text: str) -> None:
    line = "SUMMARY:" + escaped(text)

    folded = folded_line(line)

    assert all(len(part.encode()) <= 75 for part in folded.split("\r\n"))
    assert folded.replace("\r\n ", "") == line


@given(texts)
def test_an_escaped_text_is_one_line_and_reads_back(text: str) -> None:
    value = escaped(text)

    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value)
    plain = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), value)
    kept = text.replace("\r\n", "\n").replace("\r", "\n")
    assert plain == re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", kept)
